//! The shards of a tokio runtime, which a task of that runtime turns.
//!
//! A thread outside of a runtime wakes a task through the queue that all workers share. While the workers are busy,
//! that queue is long. A task of the runtime wakes others through its worker's own queue. So a future that is awaited
//! in a runtime uses shards that belong to the runtime, and is as punctual as the runtime's own timers.
//!
//! Such shards are a *place*: a set with one loop, and the engine for futures on it. A place is never freed, and goes
//! from one runtime to the next.
//!
//! # States of a place
//!
//! ```text
//!         a runtime's first future            the first poll of its task
//!   FREE ─────────────────────────────► GIVEN ────────────────────────────► TURNED
//!   ▲  │                                  │                                   │
//!   │  │ a timer is armed                 │ the runtime ends: it drops the task
//!   │  ▼                                  ▼                                   │
//!   ALONE ◄───────────────────────────────┴───────────────────────────────────┘
//!   a thread turns the shard until no timer is pending
//! ```
//!
//! The loop's shard lies in the place while it is `FREE` or `GIVEN`. The task or the thread that turns it has it
//! otherwise.
//!
//! # Legal endings of each race
//!
//! - *A future arms its timer while the runtime ends.* If the shard is turned once more, the timer is seen. Otherwise
//!   the place was left before: the arming rings the bell of the place, and a thread turns the shard. No timer waits
//!   for ever, in whichever thread its future is polled later.
//! - *A runtime that is ending asks for a place.* It drops the task at once. The place is left before the future is
//!   armed, so the future uses the process's shards.
//! - *Two threads of a runtime ask for its first place.* The lock of all places decides. Both get the same place.
//! - *A runtime takes a place that a thread turns alone.* It does not: only free places are given.
//! - *A test has moved the clock of the runtime ahead* (feature `test-util`). The wheels are ahead with it, so no other
//!   runtime gets the place. A future that outlives such a runtime waits for ever.
//! - *The child of a fork.* It has its parent's places without their threads. Each refuses timers, so none is given.

use super::wakeup::Wakeup;
use crate::api::builder::Builder;
use crate::api::handle::Handle;
use crate::api::loops::LoopShard;
use crate::api::shards::Shards;
use crate::base::error::BuildError;
use crate::base::fork::ForkLock;
use crate::base::sync::{
    AtomicU64, Mutex, MutexGuard, OnceLock, Ordering, ignore_poison, park_timeout, thread,
};
use crate::shard::LoopLeft;
#[cfg(feature = "test-util")]
use crate::system::clock::runtime::RuntimeClock;
use core::cell::Cell;
use core::time::Duration;
use core::{fmt, mem};
use std::panic::catch_unwind;
use tokio::runtime::{self, Handle as Runtime};

/// The length of a tick of the shards that a runtime turns. tokio rounds each sleep up to a millisecond. A tick adds
/// little to that.
const TICK: Duration = Duration::from_micros(64);
/// The greatest number of timers of each engine that a thread handles in one turn.
const BUDGET: usize = 1_024;
/// The longest time that a thread sleeps between two turns of a shard.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// A set of one shard that a tokio runtime turns, with the engine for the runtime's futures. A place is never freed. It
/// goes from one runtime to the next.
pub(crate) struct Place {
    shards: Shards,
    /// The number of runtimes that have used the place and left it.
    stay: AtomicU64,
    occupancy: Mutex<Occupancy>,
    #[cfg(feature = "test-util")]
    clock: RuntimeClock,
}

struct Occupancy {
    state: State,
    /// The runtime that uses the place at present; `None` if no runtime does.
    runtime: Option<runtime::Id>,
}

enum State {
    Free(LoopShard),
    Given(LoopShard),
    Turned,
    Alone,
}

/// All places (sets of shards for tokio runtimes) that this process has made.
static PLACES: OnceLock<ForkLock<Vec<&'static Place>>> = OnceLock::new();

/// The result of a thread's last search for a runtime's place (the shards that the runtime turns).
#[derive(Clone, Copy)]
struct Known {
    runtime: runtime::Id,
    /// The runtime's use of its place (its shards). `None` if the runtime has no timer.
    stay: Option<Stay>,
}

thread_local! {
    /// The runtime whose place the calling thread searched for last.
    static LAST: Cell<Option<Known>> = const { Cell::new(None) };
}

/// Returns the place (the shards) of the tokio runtime that the calling thread is in. Returns `None` outside of a
/// runtime. Also returns `None` if the runtime has no timer, or is ending.
pub(crate) fn current() -> Option<&'static Place> {
    let runtime = Runtime::try_current().ok()?;
    let id = runtime.id();
    match LAST.try_with(Cell::get).ok().flatten() {
        Some(Known { runtime, stay: Some(stay) }) if runtime == id && stay.lasts() => Some(stay.place),
        Some(Known { runtime, stay: None }) if runtime == id => None,
        _ => enter(&runtime, id),
    }
}

/// Returns the place (the shards) of a runtime. Gives the runtime a place if it has none.
#[cold]
fn enter(runtime: &Runtime, id: runtime::Id) -> Option<&'static Place> {
    let stay = if has_timer() { Some(stay_of(runtime, id)?) } else { None };
    let known = Known { runtime: id, stay };
    let _thread_ends = LAST.try_with(|last| last.set(Some(known)));
    // A runtime that is ending has dropped its task already.
    stay.filter(|stay| stay.lasts()).map(|stay| stay.place)
}

/// Returns whether the present runtime has a timer. In a runtime without a timer, tokio's sleep panics.
fn has_timer() -> bool {
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

fn stay_of(runtime: &Runtime, id: runtime::Id) -> Option<Stay> {
    let (stay, is_new) = {
        let mut places = PLACES.get_or_init(ForkLock::default).lock()?;
        if let Some(stay) = places.iter().find_map(|place| place.stay_of(id)) {
            (stay, false)
        } else if let Some(stay) = places.iter().find_map(|place| place.give(id)) {
            (stay, true)
        } else {
            let place = Place::new().ok()?;
            places.push(place);
            (place.give(id)?, true)
        }
    };
    if is_new {
        drop(runtime.spawn(turn(Leaving(stay))));
    }
    Some(stay)
}

/// Turns the shard of a place until the runtime drops this task.
async fn turn(leaving: Leaving) {
    if let Some(shard) = leaving.0.place.begin() {
        shard.turn_as_task(tokio::time::sleep).await;
    }
}

/// The time in which a runtime uses a place (a set of shards for tokio runtimes).
#[derive(Clone, Copy)]
struct Stay {
    place: &'static Place,
    number: u64,
}

impl Stay {
    /// Returns whether the runtime still uses the place.
    #[inline]
    fn lasts(self) -> bool {
        // Ordering: Relaxed. An old answer is the race of an arming with the end of the runtime.
        self.place.stay.load(Ordering::Relaxed) == self.number
    }
}

/// A guard in the task that turns a runtime's shard. When the runtime drops the task, the guard ends the runtime's use
/// of the place.
struct Leaving(Stay);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.place.leave();
    }
}

impl Place {
    /// Makes a place (a set of one shard) that no runtime uses yet.
    fn new() -> Result<&'static Self, BuildError> {
        let builder = Builder::new().tick(TICK);
        #[cfg(feature = "test-util")]
        let clock = RuntimeClock::default();
        #[cfg(feature = "test-util")]
        let builder = builder.clock(clock.clone());
        let (shards, mut loops) = builder.loops(1)?;
        let occupancy = Occupancy { state: State::Free(loops.remove(0)), runtime: None };
        Ok(Box::leak(Box::new(Self {
            shards,
            stay: AtomicU64::new(0),
            occupancy: Mutex::new(occupancy),
            #[cfg(feature = "test-util")]
            clock,
        })))
    }

    /// Returns a handle to the engine for futures on the place's shards.
    #[inline]
    pub(super) fn handle(&self) -> &Handle<Wakeup> {
        self.shards.futures()
    }

    /// Returns the place's shards.
    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    fn lock(&self) -> MutexGuard<'_, Occupancy> {
        ignore_poison(self.occupancy.lock())
    }

    fn present_stay(&'static self) -> Stay {
        // Ordering: Relaxed. Changed with the place's lock held, as is this call.
        Stay { place: self, number: self.stay.load(Ordering::Relaxed) }
    }

    /// Returns the present stay of `runtime` at this place. Returns `None` if the place does not belong to that
    /// runtime.
    fn stay_of(&'static self, runtime: runtime::Id) -> Option<Stay> {
        // In the child of a fork a thread that is gone may hold the lock.
        if self.handle().is_forked() {
            return None;
        }
        let occupancy = self.lock();
        (occupancy.runtime == Some(runtime)).then(|| self.present_stay())
    }

    /// Gives the place to a runtime. Returns `None` if the place is not free.
    fn give(&'static self, runtime: runtime::Id) -> Option<Stay> {
        if self.handle().is_forked() {
            return None;
        }
        let mut occupancy = self.lock();
        let State::Free(shard) = occupancy.take_if(|state| matches!(state, State::Free(_)))? else {
            return None;
        };
        *occupancy = Occupancy { state: State::Given(shard), runtime: Some(runtime) };
        Some(self.present_stay())
    }

    /// Takes the shard out of the place, for the runtime's task that will turn it. Returns `None` if no runtime waits
    /// for the shard.
    fn begin(&self) -> Option<LoopShard> {
        let mut occupancy = self.lock();
        let State::Given(shard) = occupancy.take_if(|state| matches!(state, State::Given(_)))? else {
            return None;
        };
        occupancy.state = State::Turned;
        Some(shard)
    }

    /// Ends a runtime's use of the place, because the runtime has dropped its task. If timers are pending, a thread
    /// turns the shard.
    fn leave(&'static self) {
        let mut occupancy = self.lock();
        let state = mem::replace(&mut occupancy.state, State::Alone);
        occupancy.runtime = None;
        // Ordering: Relaxed. See `Stay::lasts`.
        self.stay.fetch_add(1, Ordering::Relaxed);
        drop(occupancy);
        #[cfg(feature = "test-util")]
        if self.clock.was_ahead() {
            // The place is lost, as its runtime's time is.
            return;
        }
        let shard = match state {
            State::Given(shard) => Some(shard),
            // The task has dropped the shard.
            _ => self.shards.take_loop(0),
        };
        // Without a shard this process is the child of a fork.
        if let Some(shard) = shard {
            self.free(shard);
        }
    }

    /// Makes the place free for the next runtime. If a timer is pending, a thread first turns the shard.
    fn free(&'static self, mut shard: LoopShard) {
        shard.wake_task_by(move || self.turn_alone());
        let mut occupancy = self.lock();
        // An arming that this call does not see rings the bell, which waits for the lock.
        let is_quiet = shard.next_deadline().is_none();
        occupancy.state = State::Free(shard);
        drop(occupancy);
        if !is_quiet {
            self.turn_alone();
        }
    }

    /// Starts a thread that turns the shard of a free place until no timer is pending.
    fn turn_alone(&'static self) {
        let mut occupancy = self.lock();
        let taken = occupancy.take_if(|state| matches!(state, State::Free(_)));
        drop(occupancy);
        if let Some(State::Free(shard)) = taken {
            let thread = thread::Builder::new().name("tourbillon-ended".into());
            // If the system refuses the thread, the shard is dropped, and the place stays as it is.
            drop(thread.spawn(|| self.stay_alone(shard)));
        }
    }

    /// Turns the shard on the calling thread until no timer is pending.
    fn stay_alone(&'static self, mut shard: LoopShard) {
        let this = thread::current();
        shard.wake_task_by(move || this.unpark());
        loop {
            let left = shard.turn(shard.true_now(), BUDGET);
            match shard.rest() {
                _ if left == LoopLeft::More => {}
                Some(rest) => park_timeout(rest.min(LONGEST_SLEEP)),
                None => break,
            }
        }
        self.free(shard);
    }
}

impl Occupancy {
    /// Takes the place's state out if `is_kind` returns true for it. The caller then has the shard in that state.
    fn take_if(&mut self, is_kind: impl FnOnce(&State) -> bool) -> Option<State> {
        is_kind(&self.state).then(|| mem::replace(&mut self.state, State::Alone))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("shards", &self.shards).finish_non_exhaustive()
    }
}
