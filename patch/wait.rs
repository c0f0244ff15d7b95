//! A wait on the engine, which ends even if its engine is gone. Both crates of this folder include this file.
//!
//! The child of a fork has none of the threads of its parent's engine, a tokio runtime may end, and a program may shut
//! down shards that it has entered. A wait on such an engine starts again with the rest of its time, on an engine that
//! goes on in this process. `crate::start` makes the sleep of a wait.

use crate::start;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon::future::{self, ShutDown, Sleep, Wakeup};
use tourbillon::{Builder, Engine, Handle};

/// A wait on the engine of the thread that makes it.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) sleep: Sleep,
}

impl Wait {
    /// Makes a wait that ends `time` from now, or later; never earlier.
    #[inline]
    pub(crate) fn new(time: Duration) -> Self {
        Self { sleep: start(time) }
    }

    /// Polls the wait. A wait that has ended stays so.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll_sleep(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) => self.start_again(cx),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ShutDown>> {
        pin!(self.sleep.try_wait()).poll(cx)
    }

    #[cold]
    fn start_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let rest = self.rest();
        let engines: [fn(Duration) -> Option<Sleep>; 2] =
            [|rest| Some(start(rest)), |rest| Some(living_engine()?.sleep(rest))];
        for sleep in engines.into_iter().filter_map(|engine| engine(rest)) {
            self.sleep = sleep;
            match self.poll_sleep(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => {}
            }
        }
        // Without an engine, the task is woken again and again, and checks the clock each time.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns the time until the wait's deadline, by the engine's clock. Moves the deadline of the sleep to the
    /// present.
    fn rest(&mut self) -> Duration {
        let deadline = self.sleep.deadline();
        self.sleep.reset_after(Duration::ZERO);
        deadline - self.sleep.deadline()
    }
}

/// An engine that was started in the child of a fork.
struct AfterFork {
    engine: Engine<Wakeup>,
    /// The engine that a child of this child process has started. Empty if no such engine was started.
    next: OnceLock<Box<AfterFork>>,
}

/// Returns an engine that has threads in this process: the process's own engine, or, if a fork has left that engine
/// without threads, an engine that starts now. Returns `None` if the system refuses the threads.
fn living_engine() -> Option<&'static Handle<Wakeup>> {
    static FIRST: OnceLock<Box<AfterFork>> = OnceLock::new();
    let global = future::global();
    if !global.is_forked() {
        return Some(global);
    }
    let mut place = &FIRST;
    while let Some(started) = place.get() {
        if !started.engine.handle().is_forked() {
            return Some(started.engine.handle());
        }
        place = &started.next;
    }
    let engine = Builder::new().start_futures().ok()?;
    Some(place.get_or_init(|| Box::new(AfterFork { engine, next: OnceLock::new() })).engine.handle())
}
