//! Turning a loop's shard in a task of a runtime.

use crate::api::loops::LoopShard;
use crate::base::sync::{Mutex, PoisonError, StdArc};
use crate::shard::Left;
use core::convert::Infallible;
use core::future::{Future, poll_fn};
use core::mem;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

/// The tickets that one turn fires or moves before the other tasks of the runtime go on.
const BUDGET: usize = 1_024;

impl LoopShard {
    /// Turns the shard in a task of an asynchronous runtime, for as long as the task runs. `sleep` is the runtime's own
    /// timer: `tokio::time::sleep`, or `smol::Timer::after`. The task sleeps by it until the shard's next deadline, and
    /// is woken when a task or a thread arms an earlier timer. It may run on any thread of the runtime, and wakes the
    /// tasks whose timeouts have passed on that thread.
    ///
    /// With shards that have threads, a task whose timeout has passed is woken by a thread outside of the runtime, and
    /// goes to the end of the queue that all workers of the runtime share. A worker puts the tasks that it wakes into
    /// its own queue. On a runtime that has nothing to spare, timeouts are noticed earlier that way.
    ///
    /// A deadline is rounded up to the tick of the shards, and then as `sleep` rounds it. At most 1,024 tickets are
    /// fired or moved before the other tasks of the runtime go on. Dropping the future drops the shard: see "The end"
    /// at [`LoopShard`]. A function that was set by [`wake_by`](Self::wake_by) is not called any more.
    ///
    /// # Panics
    ///
    /// The task panics if `sleep` or its future does, as tokio's do in a runtime without a timer. The shard is dropped
    /// then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    ///
    /// let (shards, mut loops) = Builder::new().loops(1)?;
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    /// let outcome = runtime.block_on(async {
    ///     tokio::spawn(loops.remove(0).turn_as_task(tokio::time::sleep));
    ///     shards.futures().timeout(Duration::from_millis(5), std::future::pending::<()>()).await
    /// });
    /// assert!(outcome.is_err(), "it has passed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn turn_as_task<S: Future>(mut self, mut sleep: impl FnMut(Duration) -> S) -> Infallible {
        let bell = StdArc::new(Bell::default());
        let rings = StdArc::clone(&bell);
        self.wake_task_by(move || rings.ring());
        loop {
            let left = self.turn(self.true_now(), BUDGET);
            match self.timeout(self.true_now()) {
                None if left == Left::Nothing => bell.rung().await,
                Some(rest) if left == Left::Nothing && !rest.is_zero() => bell.rung_or(sleep(rest)).await,
                _ => let_the_others_go_on().await,
            }
        }
    }
}

/// The bell of a turning task, which everybody who arms an earlier timer rings. A ring while the task is awake counts.
#[derive(Default)]
struct Bell(Mutex<Rope>);

#[derive(Default)]
struct Rope {
    has_rung: bool,
    /// The task, while it waits.
    waits: Option<Waker>,
}

impl Bell {
    fn ring(&self) {
        let waits = {
            let mut rope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            rope.has_rung = true;
            rope.waits.take()
        };
        // Outside of the lock, as all code of the runtime.
        if let Some(task) = waits {
            task.wake();
        }
    }

    /// Waits for a ring since the last wait.
    async fn rung(&self) {
        poll_fn(|cx| self.poll_rung(cx)).await;
    }

    /// Waits for a ring, or for the end of `sleep`.
    async fn rung_or(&self, sleep: impl Future) {
        let mut sleep = pin!(sleep);
        poll_fn(|cx| match self.poll_rung(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => sleep.as_mut().poll(cx).map(drop),
        })
        .await;
    }

    fn poll_rung(&self, cx: &Context<'_>) -> Poll<()> {
        let task = cx.waker().clone();
        let former = {
            let mut rope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if mem::take(&mut rope.has_rung) {
                return Poll::Ready(());
            }
            rope.waits.replace(task)
        };
        // Outside of the lock, as in `ring`.
        drop(former);
        Poll::Pending
    }
}

/// Returns once the runtime has polled the task again.
async fn let_the_others_go_on() {
    let mut is_second = false;
    poll_fn(|cx| {
        if mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
