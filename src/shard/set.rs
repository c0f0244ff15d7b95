//! A set of shards, which engines share: the settings, the shards, and whether a thread may wait for the shards.
//!
//! Threads of the set lead the shards (`shard_thread`), or loops of the program do (`loop_shard`). In a driven set, the
//! thread of the program that moves the time leads them.

use super::here;
use super::stall::StallDetector;
use super::station::Station;
use super::station_shared::StationShared;
use super::{Leading, Shard};
use crate::base::counters::ShardCounters;
use crate::base::fork::Generation;
use crate::base::sync::{AtomicBool, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, StdArc, thread};
use crate::base::tick::TickLength;
use crate::dispatch::{Dispatcher, Workers};
use crate::lockfree::roster::Roster;
use crate::system::clock::EngineClock;
use crate::system::forks::{self, Watch};
use crate::system::scheduling::{Scheduling, SchedulingRefusals};
use core::time::Duration;

/// The settings of a set of shards. All engines on the set share them.
#[derive(Clone)]
pub(crate) struct SetSettings {
    pub(crate) tick: TickLength,
    pub(crate) shards: usize,
    /// The core of each shard. The list is empty if the shards are not pinned.
    pub(crate) cores: Box<[usize]>,
    /// Whether a shard's thread may leave its core while another thread is busy there. It stays on a core that the
    /// program has chosen.
    pub(crate) may_leave_cores: bool,
    pub(crate) clock: EngineClock,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) roster: StdArc<Roster>,
    pub(crate) stall_after: Duration,
    pub(crate) scheduling: Scheduling,
    pub(crate) leaders: Leaders,
}

/// Says which threads lead the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaders {
    /// The set starts a thread for each shard.
    Threads,
    /// The program turns a loop for each shard, on threads of its own.
    Loops,
    /// A single thread of the program leads all shards, and moves the time.
    Driver,
}

/// A set of shards. The set's engines share it with the threads that lead its shards.
pub(crate) struct ShardSet {
    id: u64,
    shards: Box<[Shard]>,
    settings: SetSettings,
    refusals: SchedulingRefusals,
    /// The threads of the set that no thread has joined yet.
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// Whether the handlers of an engine on this set run inline, on the threads that lead the shards.
    runs_inline: AtomicBool,
    made_in: Generation,
    pub(super) forks: OnceLock<Watch>,
}

/// Returns the number of the next engine or set of this process.
pub(crate) fn next_id() -> u64 {
    use std::sync::atomic::AtomicU64;
    // Models do not track it, since an id is only compared.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl ShardSet {
    pub(crate) fn new(settings: SetSettings) -> StdArc<Self> {
        forks::listen();
        let id = next_id();
        let shard = |index: usize| {
            let stalls = |counters: &StdArc<ShardCounters>| {
                StallDetector::new(id, index, settings.tick, settings.stall_after, StdArc::clone(counters))
            };
            Shard::new(&settings.roster, stalls, settings.cores.get(index).copied())
        };
        let shards = (0..settings.shards).map(shard).collect();
        StdArc::new(Self {
            id,
            shards,
            settings,
            refusals: SchedulingRefusals::default(),
            threads: Mutex::new(Vec::new()),
            runs_inline: AtomicBool::new(false),
            made_in: Generation::current(),
            forks: OnceLock::new(),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn settings(&self) -> &SetSettings {
        &self.settings
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Returns the number of threads to which the system refused a time slice, and the number to which it refused a
    /// priority.
    pub(crate) fn scheduling_refusals(&self) -> &SchedulingRefusals {
        &self.refusals
    }

    /// Returns the generation of the process that made the set. Each fork begins a new generation.
    pub(crate) fn made_in(&self) -> Generation {
        self.made_in
    }

    /// Returns whether this process is the child of a fork, and the set was started before the fork.
    pub(crate) fn is_in_child(&self) -> bool {
        self.made_in.is_past()
    }

    /// Returns whether this process is the child of a fork, and the threads or loops that run the shards are in the
    /// parent.
    pub(crate) fn is_forked(&self) -> bool {
        self.settings.leaders != Leaders::Driver && self.is_in_child()
    }

    fn has_threads(&self) -> bool {
        self.settings.leaders == Leaders::Threads && !self.is_forked()
    }

    /// Returns whether threads or loops run the shards, so that the program need not drive them.
    pub(crate) fn is_served(&self) -> bool {
        self.settings.leaders != Leaders::Driver && !self.is_forked()
    }

    pub(crate) fn is_of_loops(&self) -> bool {
        self.settings.leaders == Leaders::Loops
    }

    /// Returns a text for people that says why the shard of loop `n` is late. Returns `None` if no loops run the
    /// shards.
    pub(crate) fn why_loop_is_late(&self, n: usize) -> Option<&'static str> {
        let has_loop = (self.settings.leaders == Leaders::Loops).then(|| self.settings.roster.is_taken(n))?;
        Some(if has_loop { "its loop does not turn" } else { "it has no loop" })
    }

    /// Returns the number of the first shard whose loop runs on the calling thread; `None` if no loop does.
    pub(crate) fn loop_here(&self) -> Option<usize> {
        self.settings.roster.loop_here()
    }

    /// Returns whether an engine on the set has run its handlers inline. Returns true even after that engine has ended.
    pub(crate) fn runs_inline(&self) -> bool {
        // Ordering: Relaxed. The value is only a hint for people.
        self.runs_inline.load(Ordering::Relaxed)
    }

    pub(crate) fn note_inline_handlers(&self) {
        // Ordering: Relaxed. See `runs_inline`.
        self.runs_inline.store(true, Ordering::Relaxed);
    }

    /// Makes the shared part of an engine's station at shard `n`. A station is an engine's part of a shard. If threads
    /// lead the shards, the station can rest.
    pub(crate) fn station_for(&self, n: usize, lane_capacity: u64) -> StationShared {
        let roster = &self.settings.roster;
        match self.settings.leaders {
            Leaders::Threads => self.shards[n].station_that_rests(lane_capacity, roster),
            Leaders::Loops | Leaders::Driver => StationShared::new(lane_capacity, roster),
        }
    }

    /// Adds the stations of an engine, its parts of the shards: one to each shard.
    pub(crate) fn join(&self, stations: Vec<Station>) {
        for (shard, station) in self.shards.iter().zip(stations) {
            shard.join(station);
        }
    }

    /// Drops the stations (parts of the shards) of engines that were shut down, if the set has no threads to do so. A
    /// loop that is in a turn (a pass of its loop) may run handlers. If `may_wait` is true, waits until such turns have
    /// ended.
    pub(crate) fn dismiss_if_without_threads(&self, may_wait: bool) {
        match self.settings.leaders {
            Leaders::Threads => {}
            Leaders::Loops if may_wait && self.may_wait_for_shards() => self.dismiss(Shard::lead),
            // A shard that is in a turn drops the stations at its end, or in the next turn.
            Leaders::Loops | Leaders::Driver => self.dismiss(Shard::try_lead),
        }
    }

    /// Drops the stations of engines that were shut down, at each shard that `lead` locks. The stations are dropped
    /// after the shard is unlocked: a station's drop may drop a handler, and another thread may wait for the lock.
    pub(super) fn dismiss(&self, lead: impl Fn(&Shard) -> Option<Leading<'_>>) {
        for shard in &self.shards {
            let closed = lead(shard).map(|mut led| {
                shard.admit(&mut led);
                led.take_closed()
            });
            if closed.is_none() {
                shard.bury_if_its_leader_panicked();
            }
            drop(closed);
        }
    }

    /// Returns whether the calling thread is a thread of the set, or runs a loop of the set.
    fn is_own_thread(&self) -> bool {
        here::is_thread_of(self.id) || self.loop_here().is_some()
    }

    /// Returns whether the calling thread may wait for a shard. A thread that leads a shard must not wait. No thread
    /// may wait if a shard has neither a thread nor a loop. Inside a handler that the set's workers run, the thread
    /// leads no shard, because another thread takes its shard over. If several handlers are on the stack, the outermost
    /// handler decides.
    pub(crate) fn may_wait_for_shards(&self) -> bool {
        let has_let_go = || here::first_firing_of(self.id).is_some_and(|first| first.is_on_workers);
        self.is_served() && self.settings.roster.is_full() && (!self.is_own_thread() || has_let_go())
    }

    /// Returns whether the calling thread may lead a shard of this set at present. A thread of the set may lead one,
    /// unless it runs a handler for the set's workers. A loop's thread leads a shard only inside a turn.
    pub(crate) fn is_led_here(&self) -> bool {
        match self.settings.leaders {
            Leaders::Loops => self.is_turned_here(),
            Leaders::Threads | Leaders::Driver => self.is_own_thread() && !self.may_wait_for_shards(),
        }
    }

    /// Returns whether the calling thread is in a turn of an event loop of this set.
    pub(crate) fn is_turned_here(&self) -> bool {
        self.is_of_loops() && here::is_turning(self.id)
    }

    /// Returns the workers of the set; `None` if handlers do not run on them.
    pub(super) fn own_workers(&self) -> Option<&Workers> {
        self.settings.dispatcher.own_workers()
    }

    /// Returns the number of threads that the set has if threads run the shards.
    pub(super) fn threads(&self) -> usize {
        self.shards.len() + self.own_workers().map_or(0, Workers::count)
    }

    /// Moves the tickets (requests to check timers) in the lanes (threads' queues to the shard) of the loops' shards
    /// into the wheels. Leaves out shards whose loop is in a turn. Any thread may call this method. The method works
    /// even if a loop has never turned or does not exist.
    pub(crate) fn drain_loops(&self) {
        for shard in self.shards() {
            if let Some(mut leading) = shard.try_lead() {
                shard.admit(&mut leading);
                leading.drain();
            }
        }
    }

    /// Closes the set: its threads end soon.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            shard.parker.close();
        }
        if let Some(workers) = self.own_workers() {
            workers.close();
        }
    }

    /// If the set was closed, waits until the set's threads have ended. Does not wait on a thread of the set or inside
    /// a handler: a thread of the set may wait for the caller.
    pub(crate) fn await_end(&self) {
        let is_closed = self.shards.iter().all(|shard| shard.parker.is_closed());
        let may_wait = self.has_threads()
            && !self.is_own_thread()
            && here::first_firing_of(self.id).is_none()
            && !self.settings.dispatcher.is_worker_here();
        if is_closed && may_wait {
            // The lock is held until the threads have ended, so that a second caller waits, too.
            for thread in self.lock_threads().drain(..) {
                // The panic of a user's clock was already reported when it was raised.
                let _panic = thread.join();
            }
        }
    }

    pub(super) fn lock_threads(&self) -> MutexGuard<'_, Vec<thread::JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the shards' parkers in the child of a fork. A parker is the word on which the thread that runs a shard
    /// sleeps. Uses only atomics, because threads that do not exist in the child may hold locks.
    pub(super) fn enter_child(&self) {
        for shard in &self.shards {
            shard.parker.close_in_child();
        }
        if let Some(workers) = self.own_workers() {
            workers.close_in_child();
        }
    }
}

impl core::fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShardSet")
            .field("id", &self.id)
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}
