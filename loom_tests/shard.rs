//! A shard's thread as it is shipped, `Crew::serve` with a real wheel, lanes and parker, against the threads that wake
//! it.
//!
//! A wake that is lost leaves the shard's thread parked for ever, which loom reports as a deadlock: a park has no time
//! limit here.
//!
//! Each row was tried: the named step was left out of `src`.
//!
//! | left out | model that goes red |
//! |----------|---------------------|
//! | F1: `announce`'s heavy fence | all five |
//! | F1: `notify`'s light fence | all five |
//! | K1: `sleep` announces nothing | all five |
//! | K1: `sleep` ignores `may_sleep` | all five |
//! | K1: `may_sleep` does not drain | all but `a_wanted_sweep_races_with_sleep` |
//! | K1: `may_sleep` ignores a timer that is due earlier | all but `a_wanted_sweep_races_with_sleep` |
//! | K1: `may_sleep` ignores a wanted sweep | `a_wanted_sweep_races_with_sleep` |
//! | `want_sweep` wakes before it sets the flag, or does not wake | `a_wanted_sweep_races_with_sleep` |
//! | `sleep` does not withdraw | `two_pushes_race_with_two_sleeps`, `a_wanted_sweep_races_with_sleep` |
//! | X3: a lane that is taken over does not arrive | all but `a_wanted_sweep_races_with_sleep` |
//! | `sleep` ignores that the parker is closed | none: `park` loads the word once more |

use super::model;
use crate::clock::{Clock, EngineClock};
use crate::dispatch::{Dispatcher, DueChunk, Fire};
use crate::inbox::LaneWriter;
use crate::parker::Notified;
use crate::roster::Roster;
use crate::shard::{Crew, Pulse, Seat, Shard, ShardShared};
use crate::slab::{Magazines, Slots};
use crate::state::Claim;
use crate::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::tick::{TickLength, Timestamp};
use crate::ticket::Posting;
use core::time::Duration;

fn tick() -> TickLength {
    TickLength::from_nanos(10)
}

const NOW: Timestamp = Timestamp::from_nanos(1_000);
const DUE: Timestamp = Timestamp::from_nanos(500);
const AHEAD: Timestamp = Timestamp::from_nanos(5_000);

struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }
}

/// An engine of one shard, which ends when it has fired `last` timers.
struct World {
    shared: StdArc<ShardShared>,
    slots: StdArc<Slots>,
    fired: AtomicU64,
    last: u64,
}

impl World {
    fn new(last: u64) -> StdArc<Self> {
        StdArc::new(Self {
            shared: StdArc::new(ShardShared::new(64, &Roster::new(1))),
            slots: StdArc::new(Slots::new(4, Timestamp::ZERO)),
            fired: AtomicU64::new(0),
            last,
        })
    }

    /// Runs the shard's own thread to its end.
    fn drive(self: &StdArc<Self>) -> thread::JoinHandle<()> {
        let world = StdArc::clone(self);
        thread::spawn(move || {
            let shared = &world.shared;
            let shard =
                Shard::new(0, StdArc::clone(shared), StdArc::clone(&world.slots), tick(), Timestamp::ZERO);
            let pulse = Pulse::new(0, 0, tick(), Duration::from_secs(1), StdArc::clone(shared));
            let crew = Crew {
                seats: &[Seat::new(shard, pulse, None)],
                clock: &EngineClock::Custom(Box::new(Frozen)),
                dispatcher: &Dispatcher::Inline,
                fire: &world,
            };
            crew.serve(0);
        })
    }

    /// Schedules a timer as the engine does.
    fn schedule(&self, lane: &mut LaneWriter, magazines: &mut Magazines, deadline: Timestamp) {
        let index = magazines.take(&self.slots).unwrap();
        let (_, stamp) = self.slots.control(index).arm(index, deadline);
        let _ = lane.push(Posting { deadline, index, stamp });
        // The parker is closed once the last timer has fired, which may be by now.
        let _: Notified = self.shared.parker.notify(deadline);
    }

    fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

impl Fire for World {
    fn fire(self: &StdArc<Self>, _: usize, chunk: &DueChunk) {
        while let Some((ticket, _)) = chunk.take() {
            let claim = self.slots.control(ticket.index).claim(ticket.stamp, NOW);
            assert!(matches!(claim, Claim::Won { .. }));
            if self.fired.fetch_add(1, Ordering::Relaxed) + 1 == self.last {
                self.shared.parker.close();
            }
        }
    }

    fn job_dropped(&self, _: usize) {}

    fn handover_taken(&self, _: usize) {}
}

/// A due timer is pushed while the shard, which has no timer, goes to sleep. Legal endings: (a) the turn finds the
/// timer; (b) the drain after the announcement finds it; (c) the producer wakes the shard. (tokio #6682, gRPC #11667)
#[test]
fn push_races_with_sleep() {
    model("shard::push_races_with_sleep", || {
        let world = World::new(1);
        let mut lane = world.shared.inbox.register();
        let shard = world.drive();
        world.schedule(&mut lane, &mut Magazines::new(), DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1);
    });
}

/// The same race while the shard has a timer that is ahead, and is woken only for timers that are due before it.
#[test]
fn push_races_with_sleep_until_later() {
    model("push_races_with_sleep_until_later", || {
        let world = World::new(1);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        world.schedule(&mut lane, &mut magazines, AHEAD);
        let shard = world.drive();
        world.schedule(&mut lane, &mut magazines, DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1);
    });
}

/// A lane is registered, and pushed to, while the shard goes to sleep.
#[test]
fn a_first_push_races_with_sleep() {
    model("a_first_push_races_with_sleep", || {
        let world = World::new(1);
        let shard = world.drive();
        world.schedule(&mut world.shared.inbox.register(), &mut Magazines::new(), DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 1);
    });
}

/// A shard that has found a timer at its last look sleeps again afterwards, and is woken again.
#[test]
fn two_pushes_race_with_two_sleeps() {
    model("two_pushes_race_with_two_sleeps", || {
        let world = World::new(2);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        let shard = world.drive();
        world.schedule(&mut lane, &mut magazines, DUE);
        world.schedule(&mut lane, &mut magazines, DUE);
        shard.join().unwrap();
        assert_eq!(world.fired(), 2);
    });
}

/// A sweep is wanted while the shard goes to sleep: the shard does not sleep before it has swept.
#[test]
fn a_wanted_sweep_races_with_sleep() {
    model("a_wanted_sweep_races_with_sleep", || {
        let world = World::new(1);
        let shard = world.drive();
        world.shared.want_sweep();
        while world.shared.is_sweep_wanted() {
            thread::yield_now();
        }
        world.shared.parker.close();
        shard.join().unwrap();
    });
}
