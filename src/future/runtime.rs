//! The shards of a tokio runtime, which a task of that runtime turns.
//!
//! A thread outside of a runtime wakes a task through the queue that all workers share. While the workers are busy,
//! that queue is long. A task of the runtime wakes others through its worker's own queue. So a future that is awaited
//! in a runtime uses shards of that runtime.
//!
//! # The life of a runtime's shards
//!
//! ```text
//!   the runtime's first future          the first poll            the runtime ends: it drops the task
//!   ─────────────────────────► made ───────────────────► turned ──────────────────────────────────► shut down
//! ```
//!
//! # Legal endings of each race
//!
//! - *Two threads of a runtime ask first.* Both make shards. The lock of the register decides whose are used. The
//!   others are dropped before a timer is armed there.
//! - *A task of the runtime waits while the runtime ends.* The shutdown wakes the task. If it is polled before the
//!   runtime drops it, and within a second, its future stays pending, so that nobody takes the end for a timeout. If a
//!   thread of `spawn_blocking` waits for the future, the future reports the end after a grace (`ended`).
//! - *The program shuts the engine down while the runtime goes on.* The engine stays the runtime's. Its futures report
//!   the shutdown at once, in tasks and elsewhere.
//! - *A future outlives the runtime.* The shutdown wakes its task. If the future is polled again, it panics or returns
//!   an error, as with each engine that was shut down. tokio's futures panic.
//! - *A runtime that is ending asks for the first time.* It drops the new task at once. The rest is as above.
//! - *A task arms the first timer of all, and then blocks its worker.* The turning task was woken last, and tokio keeps
//!   such a task for the worker that woke it. So another task, which does nothing, is spawned after each such wake-up
//!   and takes that place. Then any worker may take the turning task.
//! - *The child of a fork* has the shards of its parent without the threads. They refuse timers, so a runtime that goes
//!   on in the child gets shards of its own.

use super::ended;
use super::wakeup::Wakeup;
use crate::api::builder::Builder;
use crate::api::handle::Handle;
use crate::api::loops::LoopShard;
use crate::api::shards::Shards;
use crate::base::error::BuildError;
use crate::base::fork::ForkLock;
use crate::base::sync::{OnceLock, StdArc};
use crate::system::clock::runtime::TICK;
use core::cell::RefCell;
use core::time::Duration;
use std::panic::catch_unwind;
use tokio::runtime::{Handle as Runtime, Id, RuntimeFlavor};

/// The greatest number of runtimes without a timer in the register.
const MOST_WITHOUT_TIMER: usize = 64;

/// The shards of a runtime, and their engine for futures.
#[derive(Clone)]
struct Turned {
    runtime: Id,
    shards: Shards,
    handle: Handle<Wakeup>,
}

/// A tokio runtime in which a thread has asked for shards. `turned` is `None` if the runtime has no timer.
#[derive(Clone)]
struct Known {
    runtime: Id,
    turned: Option<Turned>,
}

impl Known {
    /// Returns whether this entry is for `runtime`, and its shards were not made before a fork.
    fn is_of(&self, runtime: Id) -> bool {
        self.runtime == runtime && !self.turned.as_ref().is_some_and(|turned| turned.handle.is_forked())
    }
}

/// The runtimes of this process that have asked for shards.
static REGISTER: OnceLock<ForkLock<Vec<Known>>> = OnceLock::new();

thread_local! {
    /// The runtime in which the calling thread last asked for shards.
    static LAST: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// Returns the engine for futures of the tokio runtime that the calling thread is in. Returns `None` outside of a
/// runtime, and where the runtime has no timer.
pub(super) fn engine() -> Option<Handle<Wakeup>> {
    // One reference is counted: each future that arms its first timer comes here.
    with_current(|turned| turned.handle.clone())
}

/// Returns the shards of the tokio runtime that the calling thread is in. Returns `None` where [`engine`] does.
pub(crate) fn shards() -> Option<Shards> {
    with_current(|turned| turned.shards.clone())
}

/// Calls `look`, which runs no code of the program, with the shards of the runtime that the calling thread is in.
fn with_current<R>(look: impl Fn(&Turned) -> R) -> Option<R> {
    let runtime = Runtime::try_current().ok()?;
    let id = runtime.id();
    let last = |last: &RefCell<Option<Known>>| {
        last.borrow().as_ref().filter(|known| known.is_of(id)).map(|known| known.turned.as_ref().map(&look))
    };
    match LAST.try_with(last).ok().flatten() {
        Some(found) => found,
        None => enter(&runtime, id).as_ref().map(look),
    }
}

/// Finds the shards of a runtime in the register, or makes them.
#[cold]
fn enter(runtime: &Runtime, id: Id) -> Option<Turned> {
    let register = REGISTER.get_or_init(ForkLock::default);
    let registered = register.lock()?.iter().find(|known| known.is_of(id)).cloned();
    let known = match registered {
        Some(known) => known,
        None => make(register, runtime, id)?,
    };
    // Outside of the borrow: the last handle to an engine shuts it down.
    let former = LAST.try_with(|last| last.replace(Some(known.clone())));
    drop(former);
    known.turned
}

/// Makes the shards of a runtime, unless another thread of the runtime was first.
fn make(register: &ForkLock<Vec<Known>>, runtime: &Runtime, id: Id) -> Option<Known> {
    // Before the lock is taken: the start of an engine runs code of the program, for example its subscriber of events.
    let made = if has_timer() { Some(Turned::new(id).ok()?) } else { None };
    let (turned, shard) = made.map_or((None, None), |(turned, shard)| (Some(turned), Some(shard)));
    let known = Known { runtime: id, turned };
    {
        let mut all = register.lock()?;
        if let Some(first) = all.iter().find(|first| first.is_of(id)).cloned() {
            drop(all);
            return Some(first);
        }
        let oldest = all.iter().position(|known| known.turned.is_none());
        if all.iter().filter(|known| known.turned.is_none()).count() >= MOST_WITHOUT_TIMER
            && let Some(oldest) = oldest
        {
            all.remove(oldest);
        }
        all.push(known.clone());
    }
    if let (Some(turned), Some(shard)) = (known.turned.clone(), shard) {
        Turned::begin(runtime, Ending(turned), shard);
    }
    Some(known)
}

/// Returns whether the runtime that the calling thread is in has a timer. tokio's sleep panics if there is none. In a
/// program whose panics abort, a runtime needs a timer.
fn has_timer() -> bool {
    cfg!(panic = "abort") || catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

impl Turned {
    fn new(runtime: Id) -> Result<(Self, LoopShard), BuildError> {
        let builder = Builder::new().tick(TICK);
        #[cfg(feature = "test-util")]
        let builder = builder.clock(crate::system::clock::runtime::RuntimeClock);
        let (shards, mut loops) = builder.loops(1)?;
        let handle = shards.futures().clone();
        Ok((Self { runtime, shards, handle }, loops.remove(0)))
    }

    /// Spawns the task that turns the shard.
    fn begin(runtime: &Runtime, ending: Ending, shard: LoopShard) {
        let nudge = {
            let runtime = runtime.clone();
            let has_workers = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
            move || {
                if has_workers && tokio::task::try_id().is_some() {
                    drop(runtime.spawn(async {}));
                }
            }
        };
        let turning = shard.turn_with(tokio::time::sleep, nudge.clone());
        drop(runtime.spawn(async move {
            // `_ending` is dropped after the shard, which ends with the task.
            let _ending = ending;
            turning.await
        }));
        nudge();
    }
}

/// Shuts a runtime's engine for futures down when it is dropped. The task that turns the shard owns it, so the runtime
/// drops it when the runtime ends.
struct Ending(Turned);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(mut all) = REGISTER.get().and_then(ForkLock::lock) {
            // In the child of a fork, the runtime may have had shards before the fork, too.
            let is_this = |turned: &Turned| StdArc::ptr_eq(turned.handle.core(), self.0.handle.core());
            let place = all.iter().position(|known| known.turned.as_ref().is_some_and(is_this));
            let known = place.map(|place| all.swap_remove(place));
            drop(all);
            drop(known);
        }
        ended::note_end(&self.0.handle, self.0.runtime);
        drop(self.0.handle.shutdown());
    }
}
