//! A shard: the stations of engines, and the thread that leads them.
//!
//! A shard has a [`Station`] for each engine that uses it. One thread at a time drives the shard, its *leader*: the
//! thread that has the lock of the shard, awake or asleep. A leader that runs handlers unlocks the shard for that time,
//! and tries to lock it again afterwards. Two threads may try the lock. The first is the leader, when it comes back
//! from its handlers. The second is an idle thread, which is woken if the leader does not come back
//! ([`watch`](crate::lockfree::watch)). The thread that finds the lock free leads from then on. The other thread finds
//! the lock taken and becomes idle: it *stands by*.
//!
//! To join a shard, an engine puts a station into the list `newcomers`, where the shard's leader finds it. To leave,
//! the engine closes the station's parker, and the leader drops the station in its next turn.
//!
//! # States
//! ```text
//! led ── the leader lets go, to run handlers ──► free ── it comes back, or another thread takes over ──► led
//!
//! a station:   newcomer ── the leader admits it ──► served ── its parker is closed, the leader drops it ──► gone
//!
//! served, at a shard with threads:
//!              at work ── idle for some turns: announce, fence, look again ──► at rest
//!                 ▲                                                               │
//!                 └────────── called, or its moment has come: withdraw ───────────┘
//! ```
//! A turn visits only the stations at work, so stations at rest cost a turn nothing. At shards of loops and of drivers
//! no station rests.
//!
//! # Invariants
//! R1. While a shard with a thread is free, a thread runs handlers for it, and tries the lock when the handlers have
//!     returned. Until then its alarm is set, or another thread takes the shard over (Y1 of `watch`).
//! R2. The next leader sees the changes that a leader made: the lock hands them over.
//! R3. A *newcomer* is a station that no leader has admitted yet. It is admitted before the shard sleeps, or the shard
//!     is woken for it. The leader reads the flag `has_newcomers` between the announcement and the sleep, as it reads
//!     the lanes (F1 of `parker`). A nap may come before the admission.
//! R4. Each station is dropped by a leader. The last leader of a closed shard takes the newcomers for good, and `join`
//!     drops a station that comes later. If a leader panicked, no thread leads the shard any more, and the thread
//!     that finds the panic drops the stations. At a shard without a thread, the end of the station's engine, a turn or
//!     the end of the set drops the station.
//! R5. A station at rest has nothing that is due before its announced moment, or its call is out or about to be (K5 of
//!     `parker`). The leader takes the calls in at the beginning of each turn, and looks for more calls between the
//!     announcement of its sleep and the sleep (C4 of `calls`). The leader sleeps at most until the first of the
//!     announced moments.
//!
//! # Races and their legal endings
//! - The handlers return x an idle thread takes over: one of the two threads gets the lock and leads; the other stands
//!   by.
//! - Two earlier leaders come back at once, or an earlier leader comes back while the present leader runs handlers: one
//!   of the threads gets the lock and leads; the others stand by.
//! - An engine joins x the shard goes to sleep: the leader finds the newcomer before it sleeps, or is woken.
//! - A push to a station x the station is laid to rest: (a) the look after the fence finds the ticket, and the station
//!   stays at work; (b) the producer finds the announced moment, and calls.
//! - A call x the shard goes to sleep: the leader finds the call before it sleeps, or is woken.
//! - An engine is shut down while its station rests, or is laid to rest: the announcement fails, or the closing calls.
//! - An engine is shut down before its station was admitted: the leader admits the station and drops it.
//!
//! # Synchronisation
//! | pair | one side                       | other side              | ruled out         | model |
//! |------|--------------------------------|-------------------------|-------------------|-------|
//! | R6   | `join`: the flag, then the wake | `announce`, `may_sleep` | both miss         | `shard::a_station_joins_while_the_shard_goes_to_sleep` |
//! | R7   | `join`: the lock, then the set is closed | the last leader: closed, then the lock | a newcomer that stays | `shard::a_station_joins_before_the_shard_closes` |
//!
//! If the user's clock panics, the leader panics and poisons the lock: no thread drives its shard any more.

mod backlog;
mod check;
pub(crate) mod here;
mod home;
mod leader_sleep;
mod led;
mod loop_shard;
mod order;
mod output;
mod owner;
mod presence;
mod recheck;
mod resting;
mod set;
mod shard_thread;
mod sleep;
mod stall;
mod station;
mod station_shared;
#[cfg(all(test, not(tourbillon_loom)))]
mod tests;

#[cfg(all(test, tourbillon_loom))]
pub(crate) use check::keep_due;
pub(crate) use led::Led;
pub use loop_shard::LoopLeft;
pub(crate) use loop_shard::Seat;
pub(crate) use owner::Owner;
pub(crate) use presence::Presence;
pub(crate) use recheck::first_check;
pub(crate) use set::{Leaders, SetSettings, ShardSet, next_id};
#[cfg(all(test, tourbillon_loom))]
pub(crate) use shard_thread::ShardThread;
pub(crate) use station::Station;
pub(crate) use station_shared::StationShared;

use crate::base::counters::ShardCounters;
use crate::base::fork::{ForkLock, Generation, lock_patiently};
use crate::base::sync::{AtomicBool, ModelledMutex, ModelledMutexGuard, Ordering, StdArc, TryLockError};
use crate::base::tick::{TickLength, Timestamp};
use crate::lockfree::calls::Calls;
use crate::lockfree::parker::{self, Parker};
use crate::lockfree::roster::Roster;
use core::time::Duration;
use sleep::Next;
use stall::StallDetector;

/// A shard finds the due timers of the engines that use the shard. One thread at a time, the leader, runs the shard.
#[derive(Debug)]
pub(crate) struct Shard {
    led: ModelledMutex<Led>,
    made_in: Generation,
    /// The stations (engines' parts of the shard) that no leader (the thread that runs the shard) has admitted yet.
    /// `None` if no leader will admit any more.
    newcomers: ForkLock<Option<Vec<Station>>>,
    has_newcomers: AtomicBool,
    /// The list of resting stations that have asked the leader for a turn.
    calls: StdArc<Calls>,
    /// The word on which the thread that leads the shard sleeps. A new station or a station's call wakes the thread
    /// through this word. Closing this parker ends the shard.
    pub(crate) parker: StdArc<Parker>,
    pub(crate) counters: StdArc<ShardCounters>,
    /// The core to which the shard's leader is pinned; `None` if the shard is not pinned.
    core: Option<usize>,
}

/// The guard of a shard's lock. The thread that has this guard leads the shard.
pub(crate) type Leading<'a> = ModelledMutexGuard<'a, Led>;

impl Shard {
    fn new(
        roster: &StdArc<Roster>,
        stalls: impl FnOnce(&StdArc<ShardCounters>) -> StallDetector,
        core: Option<usize>,
    ) -> Self {
        let counters = StdArc::new(ShardCounters::new());
        Self {
            led: ModelledMutex::new(Led::new(stalls(&counters))),
            made_in: Generation::current(),
            newcomers: ForkLock::new(Some(Vec::new())),
            has_newcomers: AtomicBool::new(false),
            calls: Calls::new(),
            parker: StdArc::new(Parker::new(StdArc::clone(roster))),
            counters,
            core,
        }
    }

    /// Makes the calling thread the shard's leader, the thread that runs the shard. Fails if another thread leads the
    /// shard now.
    pub(crate) fn try_lead(&self) -> Option<Leading<'_>> {
        self.led.try_lock().ok()
    }

    /// Makes the calling thread the shard's leader, the thread that runs the shard. If another thread leads the shard,
    /// first waits for that thread. The shard must have no thread, and the caller must not be in one of the shard's
    /// handlers. In the child of a fork, the call gives up after a moment, because the other leader may not exist
    /// there.
    pub(crate) fn lead(&self) -> Option<Leading<'_>> {
        if self.made_in.is_past() { lock_patiently(&self.led).ok() } else { self.led.lock().ok() }
    }

    /// Makes the shared part of a station that can rest. Only a shard with threads of its own has such stations.
    pub(crate) fn station_that_rests(&self, lane_capacity: u64, roster: &StdArc<Roster>) -> StationShared {
        StationShared::with(
            lane_capacity,
            Parker::of_station(StdArc::clone(roster), &self.calls, &self.parker),
        )
    }

    /// Adds a station for the leader to admit. If no thread will lead the shard any more, drops the station.
    pub(crate) fn join(&self, station: Station) {
        let mut station = Some(station);
        if let Some(Some(newcomers)) = self.newcomers.lock().as_deref_mut() {
            newcomers.extend(station.take());
        }
        // The drop happens outside of the lock, since a station's drop may drop a handler.
        drop(station);
        // Ordering: Relaxed [R6]. The parker's fences order this store as they order a push. The lock publishes the
        // station.
        self.has_newcomers.store(true, Ordering::Relaxed);
        self.parker.wake_if_asleep();
    }

    /// Returns for how long the shard has been overdue for the engine of `station`. At a loop's shard, an earlier timer
    /// of another thread counts, too. The shard's counters do not include such a timer, so this method reads it from
    /// the parker (the word for the sleep) of the station.
    pub(crate) fn behind(&self, station: &StationShared, tick: TickLength, now: Timestamp) -> Duration {
        let by_word = station.parker.looks_at().map_or(Duration::ZERO, |look| look.overdue(tick, now));
        self.counters.behind(now).max(by_word)
    }

    /// Returns the parkers (words) on which the leader announces its sleep: the shard's own parker, and the parkers of
    /// the stations that do not rest.
    fn parkers<'a>(&'a self, led: &'a Led) -> impl Iterator<Item = &'a Parker> {
        core::iter::once(&*self.parker).chain(led.parkers())
    }

    /// Returns whether a new station or a station's call waits for the leader. A station is an engine's part of the
    /// shard.
    fn has_arrivals(&self) -> bool {
        self.has_newcomers() || !self.calls.is_empty()
    }

    fn has_newcomers(&self) -> bool {
        // Ordering: Relaxed [R6]. See `join`.
        self.has_newcomers.load(Ordering::Relaxed)
    }

    /// Admits the stations that have joined, and ends the rest of stations that have called. Drops the stations of
    /// engines that were shut down.
    pub(crate) fn admit_and_dismiss(&self, led: &mut Led) {
        self.admit(led);
        self.calls.take(|number| led.rouse(number));
        led.drop_closed();
    }

    /// Lets stations rest that had nothing to do for some turns. Announces the rests, and then drains the stations'
    /// lanes (threads' queues) once more. Returns false if a lane has a ticket (a request to check a timer) that is
    /// due, so that the shard must turn again.
    fn lay_to_rest(&self, led: &mut Led, now: Timestamp) -> bool {
        let idle = led.take_idle(now);
        if idle.is_empty() {
            return true;
        }
        let announced: Vec<_> =
            idle.into_iter().map(|(station, wake)| (station.announce_rest(wake), station, wake)).collect();
        parker::fence_rests();
        let mut may_sleep = true;
        for (is_announced, mut station, wake) in announced {
            if is_announced && station.look_again(wake) == Next::Sleep(wake) {
                led.keep_resting(station, wake);
            } else {
                led.return_to_work(station);
                may_sleep = false;
            }
        }
        may_sleep
    }

    fn admit(&self, led: &mut Led) {
        if self.has_newcomers() {
            // Ordering: Relaxed. The flag is cleared before the list is read. A station that joins while it is read
            // sets the flag again.
            self.has_newcomers.store(false, Ordering::Relaxed);
            if let Some(Some(newcomers)) = self.newcomers.lock().as_deref_mut() {
                led.stations.append(newcomers);
            }
        }
    }

    /// Drops all stations if a leader has panicked. After a panic, no thread can lead the shard any more.
    fn bury_if_its_leader_panicked(&self) {
        if let Err(TryLockError::Poisoned(poisoned)) = self.led.try_lock() {
            drop(self.take_all(&mut poisoned.into_inner()));
        }
    }

    /// Takes out all stations for good. From now on, a station that joins is dropped at once. The method does not read
    /// the flag `has_newcomers`, because the last leader may see an old value. Only the lock orders this call after an
    /// earlier `join` (R7).
    fn take_all(&self, led: &mut Led) -> Vec<Station> {
        let mut stations = led.take_all();
        let newcomers = self.newcomers.lock().and_then(|mut newcomers| newcomers.take());
        stations.extend(newcomers.into_iter().flatten());
        stations
    }
}
