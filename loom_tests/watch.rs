//! The watch over leaders that run handlers, and the permits to run them: every handler is watched, and every job is
//! run.
//!
//! Each row was tried: the named fence or step was left out of `src`.
//!
//! | left out | model that goes red |
//! |----------|---------------------|
//! | Y2: `begin`'s fence | `a_leader_begins_while_the_watcher_leaves` |
//! | Y2: `leave`'s fence | `a_leader_begins_while_the_watcher_leaves` |
//! | Y2: `leave` does not look at the numbers | `a_leader_begins_while_the_watcher_leaves` |
//! | L1: the leader does not let go of its shard | `a_shard_is_taken_over_from_a_leader_that_is_held_up` |
//! | L1: the leader wakes no thread to watch | `a_shard_is_taken_over_from_a_leader_that_is_held_up` |
//! | L1: a thread that goes to sleep does not look whether a watcher is wanted | `a_shard_is_taken_over_from_a_leader_that_is_held_up` |
//! | L1: a leader names itself once only, not before each sleep | none: in a model `try_lock` may wait for the lock. `takeover::a_leader_that_leads_again_is_woken` |
//! | P2: a push's fence | `a_permit_comes_back_while_a_job_is_pushed` |
//! | P2: the fence of a permit's drop | `a_permit_comes_back_while_a_job_is_pushed` |
//! | P2: a permit's drop wakes no thread | `a_permit_comes_back_while_a_job_is_pushed` |
//! | P2: a push wakes no thread | `a_permit_comes_back_while_a_job_is_pushed` |
//! | a thread that goes to sleep does not look whether the engine is closed | none here: `sleepers::closing_races_with_sleep` |

use super::model;
use crate::clock::{Clock, EngineClock};
use crate::dispatch::{Dispatcher, DueChunk, Fire, Handover, Workers};
use crate::roster::Roster;
use crate::shard::{Crew, Pulse, Seat, Shard, ShardShared};
use crate::slab::{Magazines, Slots};
use crate::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::tick::{Tick, TickLength, Timestamp};
use crate::ticket::{Posting, Ticket};
use crate::watch::Watch;
use core::time::Duration;

const NOW: Timestamp = Timestamp::from_nanos(1_000);
const DUE: Timestamp = Timestamp::from_nanos(500);

struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn sleep_for(&self, _now: Timestamp, _deadline: Timestamp) -> Option<Duration> {
        None
    }
}

/// A leader begins its handlers while the watcher, which has seen no handlers for a while, leaves. Legal endings: (a)
/// the watcher sees the leader and stays; (b) the leader sees that no thread watches, and wakes one.
#[test]
fn a_leader_begins_while_the_watcher_leaves() {
    model("a_leader_begins_while_the_watcher_leaves", || {
        let watch = StdArc::new(Watch::new(1));
        assert!(watch.begin(0));
        watch.end(0);
        assert!(watch.take());
        let leader = StdArc::clone(&watch);
        let leader = thread::spawn(move || leader.begin(0));
        let left = watch.leave();
        let wakes = leader.join().unwrap();
        assert!(!left || watch.is_wanted(), "a leader runs handlers, and no thread watches");
        assert_eq!(wakes, watch.is_wanted(), "the thread to watch was woken in vain, or not at all");
    });
}

/// An engine of one shard and one worker whose handler does not return before its shard has turned again.
struct HeldUp {
    shared: StdArc<ShardShared>,
    dispatcher: Dispatcher,
    fired: AtomicU64,
}

impl HeldUp {
    fn new() -> StdArc<Self> {
        let roster = Roster::new(2);
        Self::of(ShardShared::new(64, &roster), Workers::new(1, 1, roster))
    }

    fn of(shared: ShardShared, workers: Workers) -> StdArc<Self> {
        StdArc::new(Self {
            shared: StdArc::new(shared),
            dispatcher: Dispatcher::Own(Box::new(workers)),
            fired: AtomicU64::new(0),
        })
    }

    fn workers(&self) -> &Workers {
        self.dispatcher.own_workers().unwrap()
    }
}

impl Fire for HeldUp {
    fn fire(self: &StdArc<Self>, _: usize, chunk: &DueChunk) {
        while chunk.take().is_some() {
            self.shared.want_sweep();
            while self.shared.is_sweep_wanted() {
                thread::yield_now();
            }
            self.fired.fetch_add(1, Ordering::Relaxed);
            self.shared.parker.close();
            self.workers().close();
        }
    }

    fn job_dropped(&self, _: usize) {}

    fn handover_taken(&self, _: usize) {}
}

/// A handler holds up its shard's leader. The other thread takes the shard over, and the leader stands by once the
/// handler has returned. If no thread takes the shard over, the handler waits for ever.
#[test]
fn a_shard_is_taken_over_from_a_leader_that_is_held_up() {
    model("a_shard_is_taken_over_from_a_leader_that_is_held_up", || {
        let world = HeldUp::new();
        let slots = StdArc::new(Slots::new(4, Timestamp::ZERO));
        let tick = TickLength::from_nanos(10);
        let mut lane = world.shared.inbox.register();
        let index = Magazines::new().take(&slots).unwrap();
        let (_, stamp) = slots.control(index).arm(index, DUE);
        let _ = lane.push(Posting { deadline: DUE, index, stamp });
        let shard = Shard::new(0, StdArc::clone(&world.shared), slots, tick, Timestamp::ZERO);
        let pulse = Pulse::new(0, 0, tick, Duration::from_secs(1), StdArc::clone(&world.shared));
        let seats: StdArc<[Seat]> = StdArc::new([Seat::new(shard, pulse, None)]);
        let serve = |me: usize, world: StdArc<HeldUp>, seats: StdArc<[Seat]>| {
            let clock = EngineClock::Custom(Box::new(Frozen));
            Crew { seats: &seats, clock: &clock, dispatcher: &world.dispatcher, fire: &world }.serve(me);
        };
        let other = (StdArc::clone(&world), StdArc::clone(&seats));
        let worker = thread::spawn(move || serve(1, other.0, other.1));
        serve(0, StdArc::clone(&world), seats);
        worker.join().unwrap();
        assert_eq!(world.fired.load(Ordering::Relaxed), 1);
    });
}

/// A firing side that counts the tickets that it fires.
struct Count {
    fired: AtomicU64,
}

impl Fire for Count {
    fn fire(self: &StdArc<Self>, _: usize, chunk: &DueChunk) {
        while chunk.take().is_some() {
            self.fired.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn job_dropped(&self, _: usize) {}

    fn handover_taken(&self, _: usize) {}
}

/// The only permit comes back while a job is pushed and a thread goes to sleep. Legal endings: (a) the thread finds
/// both before it sleeps; (b) the push wakes the thread; (c) the permit's drop wakes it. The queue itself is no part of
/// the model: a pushed job is seen at once.
#[test]
fn a_permit_comes_back_while_a_job_is_pushed() {
    model("a_permit_comes_back_while_a_job_is_pushed", || {
        let count = StdArc::new(Count { fired: AtomicU64::new(0) });
        let dispatcher = StdArc::new(Dispatcher::Own(Box::new(Workers::new(1, 1, Roster::new(1)))));
        let workers = dispatcher.own_workers().unwrap();
        let permit = workers.permit().unwrap();
        let chunk = DueChunk::new(vec![Ticket { tick: Tick(0), index: 0, stamp: 0 }], Timestamp::ZERO);
        let handover = StdArc::new(Handover::new(0, vec![chunk]));
        let worker = (StdArc::clone(&dispatcher), StdArc::clone(&count));
        let worker = thread::spawn(move || {
            let (dispatcher, count) = worker;
            let workers = dispatcher.own_workers().unwrap();
            workers.enter_current_thread(0);
            while count.fired.load(Ordering::Relaxed) == 0 {
                workers.run_jobs();
                if count.fired.load(Ordering::Relaxed) == 0 {
                    workers.stand_by(0);
                }
            }
        });
        let pusher = (StdArc::clone(&dispatcher), StdArc::clone(&count), StdArc::clone(&handover));
        let pusher = thread::spawn(move || assert!(pusher.0.dispatch(&pusher.1, &pusher.2)));
        drop(permit);
        pusher.join().unwrap();
        worker.join().unwrap();
        assert_eq!(count.fired.load(Ordering::Relaxed), 1);
    });
}
