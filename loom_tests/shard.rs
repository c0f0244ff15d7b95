//! A shard's thread as it is shipped, against the threads that wake it. The models run `ShardThread::serve` with a real
//! wheel, lanes and parker.
//!
//! A lost wake leaves the shard's thread parked for ever, which loom reports as a deadlock: a park has no time limit
//! here.
//!
//! Each row was tried: the named step was left out of `src`. `a_wanted_check_races_with_sleep` and
//! `a_station_joins_before_the_shard_closes` were tried with their own rows only: "all" means the others.
//!
//! | left out | model that goes red |
//! |----------|---------------------|
//! | F1: `sleep`'s heavy fence | all but `a_station_leaves_while_the_shard_goes_to_sleep` |
//! | R6: `join` does not wake the shard | `a_station_joins_while_the_shard_goes_to_sleep` |
//! | R6: the shard sleeps though it has newcomers | `a_station_joins_while_the_shard_goes_to_sleep` |
//! | R6: the sleep is not announced on the shard's own parker | `a_station_joins_while_the_shard_goes_to_sleep` |
//! | `close` does not unpark; or the leader drops no closed station | `a_station_leaves_while_the_shard_goes_to_sleep` |
//! | F1: `notify`'s light fence | the first five |
//! | K1: `sleep` announces nothing | the first five |
//! | K1: `sleep` ignores `may_sleep` | the first five |
//! | K1: `may_sleep` does not drain | all but `a_wanted_sweep_races_with_sleep` |
//! | K1: `may_sleep` ignores a timer that is due earlier | all but `a_wanted_sweep_races_with_sleep` |
//! | K1: `may_sleep` ignores a wanted sweep | `a_wanted_sweep_races_with_sleep` |
//! | `look_again` ignores a wanted check that is not planned | `a_wanted_check_races_with_sleep` |
//! | R7: the last leader of a shard takes the newcomers only if their flag is set | `a_station_joins_before_the_shard_closes` |
//! | `want_sweep` wakes before it sets the flag, or does not wake | `a_wanted_sweep_races_with_sleep` |
//! | `sleep` does not withdraw | `two_pushes_race_with_two_sleeps`, `a_wanted_sweep_races_with_sleep` |
//! | X3: a lane that is taken over does not arrive | all but `a_wanted_sweep_races_with_sleep` |
//! | a drain takes the last insertion of a row for the live one | `a_reissue_races_with_the_last_arming_of_a_lane` |
//! | `sleep` ignores that the parker is closed | none: `park` loads the word once more |

use super::{model, set_of_one_shard};
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::dispatch::{Batch, Dispatcher, Fire};
use crate::lockfree::inbox::LaneWriter;
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::{Magazines, Slots};
use crate::lockfree::state::{Cancel, Claim};
use crate::shard::{Presence, ShardSet, ShardThread, Station, StationShared};
use crate::system::clock::{Clock, EngineClock};
use core::time::Duration;
use std::sync::{OnceLock, Weak};

const NOW: Timestamp = Timestamp::from_nanos(1_000);
pub(super) const DUE: Timestamp = Timestamp::from_nanos(500);
pub(super) const AHEAD: Timestamp = Timestamp::from_nanos(5_000);

struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }
}

/// A clock that stands still. The clock ends its world when a shard sleeps with a time limit.
struct UntilLimitedSleep(OnceLock<Weak<World>>);

impl Clock for UntilLimitedSleep {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        self.0.get().and_then(Weak::upgrade).expect("the world of the clock").end();
        None
    }
}

/// An engine on one shard. The engine and the shard end when `last` timers have fired.
pub(super) struct World {
    pub(super) set: StdArc<ShardSet>,
    pub(super) shared: StdArc<StationShared>,
    pub(super) slots: StdArc<Slots>,
    pub(super) presence: StdArc<Presence>,
    dispatcher: Dispatcher,
    fired: AtomicU64,
    last: u64,
}

impl World {
    /// Makes an engine whose station (its part of the shard) does not rest.
    fn new(last: u64) -> StdArc<Self> {
        Self::with(last, |set| StationShared::new(64, &set.settings().roster))
    }

    /// Makes an engine whose station rests whenever it may. The shard's leader, the thread that runs it, leaves a
    /// resting station out.
    pub(super) fn that_rests(last: u64) -> StdArc<Self> {
        Self::with(last, |set| set.station_for(0, 64))
    }

    /// Makes an engine that ends when its shard first sleeps with a time limit. The engine's station does not rest.
    fn until_limited_sleep() -> StdArc<Self> {
        let clock = StdArc::new(UntilLimitedSleep(OnceLock::new()));
        let custom = EngineClock::Custom(StdArc::<UntilLimitedSleep>::clone(&clock));
        let world = Self::by(custom, u64::MAX, |set| StationShared::new(64, &set.settings().roster));
        let is_first = clock.0.set(StdArc::downgrade(&world));
        assert!(is_first.is_ok(), "a clock has one world");
        world
    }

    fn with(last: u64, station: impl FnOnce(&ShardSet) -> StationShared) -> StdArc<Self> {
        Self::by(EngineClock::Custom(StdArc::new(Frozen)), last, station)
    }

    fn by(clock: EngineClock, last: u64, station: impl FnOnce(&ShardSet) -> StationShared) -> StdArc<Self> {
        let set = ShardSet::new(set_of_one_shard(clock, Dispatcher::Inline));
        let shared = StdArc::new(station(&set));
        StdArc::new(Self {
            set,
            shared,
            slots: StdArc::new(Slots::new(4, Timestamp::ZERO)),
            presence: Presence::of(1),
            dispatcher: Dispatcher::Inline,
            fired: AtomicU64::new(0),
            last,
        })
    }

    /// Adds the engine's station to the shard.
    fn join(self: &StdArc<Self>) {
        let engine: StdArc<dyn Fire> = StdArc::<Self>::clone(self);
        let (shared, slots) = (StdArc::clone(&self.shared), StdArc::clone(&self.slots));
        let time = (self.set.settings().tick, Timestamp::ZERO);
        self.set.join(vec![Station::new(0, (engine, &self.presence), shared, slots, time)]);
    }

    /// Runs the shard's own thread, which ends with the shard. Returns the handle of the thread.
    fn serve(&self) -> thread::JoinHandle<()> {
        let set = StdArc::clone(&self.set);
        thread::spawn(move || ShardThread::new(&set, 0).serve())
    }

    /// Adds the engine to the shard, and runs the shard's own thread. Returns the handle of the thread.
    pub(super) fn drive(self: &StdArc<Self>) -> thread::JoinHandle<()> {
        self.join();
        self.serve()
    }

    /// Schedules a timer as the engine does: pushes it to the shard, and wakes the shard if necessary.
    pub(super) fn schedule(&self, lane: &mut LaneWriter, magazines: &mut Magazines, deadline: Timestamp) {
        let index = magazines.take(&self.slots).unwrap();
        let (_, stamp) = self.slots.control(index).arm(index, deadline);
        let _ = lane.push(Insertion { deadline, index, stamp });
        // The parker is closed once the last timer has fired. That may already have happened.
        let _: Notified = self.shared.parker.notify(deadline);
    }

    pub(super) fn end(&self) {
        self.shared.parker.close();
        self.set.close();
    }

    pub(super) fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

impl Fire for World {
    fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most
                && let Some((ticket, _)) = chunk.take_alone()
            {
                called += 1;
                let claim = self.slots.control(ticket.index()).claim(ticket.stamp(), NOW);
                assert!(matches!(claim, Claim::Won { .. }), "a ticket was fired whose timer was not claimed");
                if self.fired.fetch_add(1, Ordering::Relaxed) + 1 == self.last {
                    self.end();
                }
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// A due timer is pushed while the shard, which has no timer, goes to sleep. Legal endings: (a) the shard's turn finds
/// the timer; (b) the drain after the shard's announcement finds the timer; (c) the producer wakes the shard. (tokio
/// #6682, gRPC #11667)
#[test]
fn push_races_with_sleep() {
    model("shard::push_races_with_sleep", || {
        let world = World::new(1);
        let mut lane = world.shared.inbox.register();
        let shard = world.drive();
        world.schedule(&mut lane, &mut Magazines::new(), DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
    });
}

/// A due timer is pushed while the shard has a later timer and goes to sleep. Only a timer that is due before the
/// shard's first timer wakes the shard.
#[test]
fn push_races_with_sleep_until_later() {
    model("push_races_with_sleep_until_later", || {
        let world = World::new(1);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        world.schedule(&mut lane, &mut magazines, AHEAD);
        let shard = world.drive();
        world.schedule(&mut lane, &mut magazines, DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
    });
}

/// A thread registers a lane (queue to the shard), and pushes to it, while the shard goes to sleep.
#[test]
fn a_first_push_races_with_sleep() {
    model("a_first_push_races_with_sleep", || {
        let world = World::new(1);
        let shard = world.drive();
        world.schedule(&mut world.shared.inbox.register(), &mut Magazines::new(), DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
    });
}

/// A shard finds a timer at its last check before a sleep. Afterwards the shard sleeps, and is woken again.
#[test]
fn two_pushes_race_with_two_sleeps() {
    model("two_pushes_race_with_two_sleeps", || {
        let world = World::new(2);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        let shard = world.drive();
        world.schedule(&mut lane, &mut magazines, DUE);
        world.schedule(&mut lane, &mut magazines, DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 2, "a timer was not fired once");
    });
}

/// A worker decides to queue an early ticket (a request to check a timer) again, and pushes the insertion into another
/// thread's lane. Before the push, that thread has cancelled the timer, armed another timer in the same slot, and
/// ended. So the stale insertion comes after the live insertion.
#[test]
fn a_reissue_races_with_the_last_arming_of_a_lane() {
    model("a_reissue_races_with_the_last_arming_of_a_lane", || {
        let world = World::new(1);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        let index = magazines.take(&world.slots).unwrap();
        let (id, stamp) = world.slots.control(index).arm(index, DUE);
        let worker = StdArc::clone(&world);
        let worker = thread::spawn(move || {
            if let Claim::Early { stamp, deadline } =
                worker.slots.control(index).claim(stamp, Timestamp::ZERO)
            {
                let _ = worker.shared.inbox.register().push(Insertion { deadline, index, stamp });
            }
        });
        assert_eq!(world.slots.control(index).cancel(id), Cancel::Won, "a timer that was not due fired");
        magazines.put(&world.slots, index);
        world.schedule(&mut lane, &mut magazines, DUE);
        drop(lane);
        worker.join().unwrap();
        world.drive().join().unwrap();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
    });
}

/// A thread requests a sweep (the removal of stale tickets) while the shard goes to sleep. The shard sweeps before it
/// sleeps.
#[test]
fn a_wanted_sweep_races_with_sleep() {
    model("a_wanted_sweep_races_with_sleep", || {
        let world = World::new(1);
        let shard = world.drive();
        world.shared.want_sweep();
        while world.shared.is_sweep_wanted() {
            thread::yield_now();
        }
        world.end();
        shard.join().unwrap();
    });
}

/// A thread requests a check of the batches (groups of due timers) while the shard, which has no timer, goes to sleep.
/// Legal endings: (a) the shard's turn plans the check; (b) the shard finds the request after its announcement, and
/// another turn plans the check; (c) the request wakes the shard. In each ending the shard then sleeps with a time
/// limit. A sleep without a limit is a deadlock.
#[test]
fn a_wanted_check_races_with_sleep() {
    model("a_wanted_check_races_with_sleep", || {
        let world = World::until_limited_sleep();
        let shard = world.drive();
        world.shared.want_check();
        shard.join().unwrap();
    });
}

/// An engine joins, and the set of shards is dropped at once, while the shard's thread begins. A station is the
/// engine's part of the shard, and the leader is the thread that runs the shard. Legal endings: (a) the leader admits
/// the station in a turn; (b) the leader admits the station after its last turn. In both endings the leader drops the
/// station.
#[test]
fn a_station_joins_before_the_shard_closes() {
    model("a_station_joins_before_the_shard_closes", || {
        let world = World::new(1);
        let shard = world.serve();
        world.join();
        world.end();
        shard.join().unwrap();
        assert_eq!(world.presence.stations(), 0, "the shard has ended, and still has the station");
    });
}

/// An engine with a due timer joins while the shard goes to sleep. A station is the engine's part of the shard, and the
/// leader is the thread that runs the shard. Legal endings: (a) the leader admits the station before the shard sleeps;
/// (b) the shard is woken and admits the station.
#[test]
fn a_station_joins_while_the_shard_goes_to_sleep() {
    model("a_station_joins_while_the_shard_goes_to_sleep", || {
        let world = World::new(1);
        let shard = world.serve();
        world.schedule(&mut world.shared.inbox.register(), &mut Magazines::new(), DUE);
        world.join();
        shard.join().unwrap();
        assert_eq!(world.fired(), 1, "the timer of the engine that joined was not fired once");
    });
}

/// An engine is shut down while its shard, which goes on, goes to sleep. A station is the engine's part of the shard,
/// and the leader is the thread that runs the shard. Legal endings: (a) the leader drops the station before the shard
/// sleeps; (b) the shard is woken and drops the station. If the station stays, the model reports a deadlock.
#[test]
fn a_station_leaves_while_the_shard_goes_to_sleep() {
    model("a_station_leaves_while_the_shard_goes_to_sleep", || {
        let world = World::new(1);
        let shard = world.drive();
        world.shared.parker.close();
        while world.presence.stations() > 0 {
            thread::yield_now();
        }
        world.set.close();
        shard.join().unwrap();
    });
}
