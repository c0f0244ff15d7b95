//! Tasks that wait in a tokio runtime while that runtime ends.
//!
//! A runtime that ends shuts its engine for futures down before it has dropped the last of its tasks. A task that is
//! polled in between must not take the end for a timeout. So its future stays pending, and the runtime drops the task.
//!
//! But a thread of `spawn_blocking` counts as a task, and may block on such a future. The end of the runtime waits for
//! that thread, and nobody drops the future. So the future stays pending only for the [`GRACE`]. Then it is woken once
//! more, and reports the shutdown. A destructor that blocks on a future gets the same answer if the runtime has dropped
//! the turning task before. If it has not, the engine still lives but does not turn, and the destructor waits for ever.
//!
//! A program may also shut such an engine down itself, while its runtime goes on. Then the futures report the shutdown
//! at once.

use super::wakeup::Wakeup;
use crate::api::handle::Handle;
use crate::base::fork::ForkLock;
use crate::base::sync::{OnceLock, sleep, thread};
use crate::base::tick::Timestamp;
use crate::dispatch::survives;
use crate::system::clock::{Clock, SystemClock};
use crate::system::signals::Blocked;
use core::mem;
use core::task::Waker;
use core::time::Duration;
use tokio::runtime::{Handle as Runtime, Id};

/// The time after the end of a runtime's engine for which the futures of the runtime's tasks stay pending. It is far
/// longer than a runtime takes to drop its tasks.
const GRACE: Duration = Duration::from_secs(1);

/// An engine for futures that has ended with its runtime.
struct Ended {
    engine: u64,
    runtime: Id,
    at: Timestamp,
}

impl Ended {
    fn is_recent(&self) -> bool {
        SystemClock::new().now() - self.at < GRACE
    }
}

/// The engines that have ended within the grace, and the tasks to wake after it.
#[derive(Default)]
struct Lately {
    ended: Vec<Ended>,
    tasks: Vec<Waker>,
    has_thread: bool,
}

static LATELY: OnceLock<ForkLock<Lately>> = OnceLock::new();

/// Records that the engine of `handle` ends because `runtime` ends. The caller then shuts the engine down.
pub(super) fn note_end(handle: &Handle<Wakeup>, runtime: Id) {
    if let Some(mut lately) = LATELY.get_or_init(ForkLock::default).lock() {
        lately.ended.retain(Ended::is_recent);
        let engine = handle.core().admission().engine();
        lately.ended.push(Ended { engine, runtime, at: SystemClock::new().now() });
    }
}

/// Returns whether a future on the engine of `handle`, which is shut down, stays pending: a task of the engine's
/// runtime polls it, and that runtime has ended just now. Wakes `waker` after the grace.
#[cold]
pub(super) fn stays_pending(handle: &Handle<Wakeup>, waker: &Waker) -> bool {
    let is_in_task = tokio::task::try_id().is_some();
    let Some(runtime) = Runtime::try_current().ok().filter(|_| is_in_task).map(|runtime| runtime.id()) else {
        return false;
    };
    // In the child of a fork, the thread that would wake the task is in the parent.
    let Some(lately) = LATELY.get().filter(|lately| !lately.is_inherited()) else { return false };
    let engine = handle.core().admission().engine();
    // Cloned outside of the lock, since this is code of the program.
    let waker = waker.clone();
    let Some(mut lately) = lately.lock() else { return false };
    let ended_with = |ended: &Ended| ended.engine == engine && ended.runtime == runtime && ended.is_recent();
    if !lately.ended.iter().any(ended_with) {
        drop(lately);
        return false;
    }
    lately.tasks.push(waker);
    if mem::replace(&mut lately.has_thread, true) {
        return true;
    }
    drop(lately);
    let _no_signals = Blocked::new();
    if thread::Builder::new().name("tb-ended".to_owned()).spawn(wake_after_grace).is_ok() {
        return true;
    }
    // Nobody would wake the tasks, so this task learns of the end at once.
    let tasks = LATELY.get().and_then(ForkLock::lock).map(|mut lately| {
        lately.has_thread = false;
        mem::take(&mut lately.tasks)
    });
    wake(tasks.unwrap_or_default());
    false
}

/// Wakes the tasks after the grace. Ends when no task has waited during a whole grace.
fn wake_after_grace() {
    loop {
        sleep(GRACE);
        let tasks = {
            let Some(mut lately) = LATELY.get().and_then(ForkLock::lock) else { return };
            let tasks = mem::take(&mut lately.tasks);
            lately.has_thread = !tasks.is_empty();
            tasks
        };
        if tasks.is_empty() {
            return;
        }
        wake(tasks);
    }
}

fn wake(tasks: Vec<Waker>) {
    for task in tasks {
        let _survived = survives(|| task.wake());
    }
}
