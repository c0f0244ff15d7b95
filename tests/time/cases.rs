//! The cases of a time module. `main.rs` mounts this file on tokio's module and on this crate's, each as `super::time`.
//!
//! Most cases run on a clock that stands still until the case moves it or the runtime is idle. On such a clock all
//! times are exact, because the clock started at a whole tick of its runtime. A case in real time only checks that
//! nothing happens early and that everything ends.

use super::time::{self, Duration, Instant};
use crate::support::MS;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::{Builder, Runtime};

#[path = "cases/budget.rs"]
mod budget;
#[path = "cases/differences.rs"]
mod differences;
#[path = "cases/instants.rs"]
mod instants;
#[path = "cases/interval.rs"]
mod interval;
#[path = "cases/panics.rs"]
mod panics;
#[path = "cases/pausing.rs"]
mod pausing;
#[path = "cases/resetting.rs"]
mod resetting;
#[path = "cases/runtimes.rs"]
mod runtimes;
#[path = "cases/sleep.rs"]
mod sleep;
#[path = "cases/timeout.rs"]
mod timeout;
#[path = "cases/types.rs"]
mod types;

const NANO: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Fails unless the time `time` has passed since the moment `start`. A millisecond more is permitted.
#[track_caller]
fn assert_passed(start: Instant, time: Duration) {
    let passed = start.elapsed();
    assert!(passed >= time && passed <= time + MS, "{passed:?} have passed instead of {time:?}");
}

// --- Tasks ---

/// The number of a task's wake-ups after the last call of `take`.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Bell {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Makes a bell that counts wake-ups, and the waker that rings the bell.
fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (Arc::clone(&bell), bell.into())
}

/// Makes a context whose waker does nothing.
fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A future that a test polls by hand. The bell counts its wake-ups.
struct Task<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<F> Task<F> {
    fn new(future: F) -> Self {
        let (bell, waker) = bell();
        Self { future: Box::pin(future), bell, waker }
    }

    /// Returns the number of the task's wake-ups after the last call of this function.
    fn take_wakes(&self) -> usize {
        self.bell.take()
    }

    /// Drops the task's future, and returns the bell that counts the task's wake-ups.
    fn drop_future(self) -> Arc<Bell> {
        self.bell
    }
}

impl<F: Future> Task<F> {
    fn poll(&mut self) -> Poll<F::Output> {
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }
}

// --- Runtimes ---

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Makes a current-thread runtime whose clock is paused.
fn standing() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn several_threads(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

/// Makes a runtime of each kind. Their clocks run in real time.
fn runtimes() -> [Runtime; 3] {
    [current_thread(), several_threads(1), several_threads(4)]
}

// --- Panics ---

/// A panic: its text, and the file of the call that the panic blames.
struct Panicked {
    text: String,
    file: String,
}

thread_local! {
    /// The file of the call that the last panic on this thread blames.
    static BLAMED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`, which must panic, and returns the panic.
fn panic_of<R>(f: impl FnOnce() -> R) -> Panicked {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let former = take_hook();
        set_hook(Box::new(move |info| {
            BLAMED.set(info.location().map(|place| place.file().to_owned()));
            former(info);
        }));
    });
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => {
            let file = BLAMED.take().expect("the hook has run on this thread");
            Panicked { text: text(&*payload), file }
        }
    }
}

/// Returns the text of a panic from its payload.
fn text(payload: &(dyn Any + Send)) -> String {
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    let literal = payload.downcast_ref::<&'static str>().copied();
    formatted.or(literal).expect("the panic has a text").to_owned()
}
