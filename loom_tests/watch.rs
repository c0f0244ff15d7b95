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

use super::{crew_of_one_shard, model};
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::base::tick::{Tick, Timestamp};
use crate::base::ticket::{Insertion, Ticket};
use crate::dispatch::{Batch, Dispatcher, DueChunk, Fire, Workers, dispatch};
use crate::lockfree::roster::Roster;
use crate::lockfree::slab::{Magazines, Slots};
use crate::lockfree::watch::Watch;
use crate::shard::{Crew, Presence, Station, StationShared};
use crate::system::clock::{Clock, EngineClock};
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
        assert!(watch.begin(0), "the first leader wakes no thread to watch");
        watch.end(0);
        assert!(watch.take(), "the watch is not wanted");
        let leader = StdArc::clone(&watch);
        let leader = thread::spawn(move || leader.begin(0));
        let left = watch.leave();
        let wakes = leader.join().unwrap();
        assert!(!left || watch.is_wanted(), "a leader runs handlers, and no thread watches");
        assert_eq!(wakes, watch.is_wanted(), "the thread to watch was woken in vain, or not at all");
    });
}

/// An engine on one shard, with one worker, whose handler does not return before its shard has turned again.
struct HeldUp {
    crew: StdArc<Crew>,
    shared: StdArc<StationShared>,
    fired: AtomicU64,
}

impl HeldUp {
    fn new() -> StdArc<Self> {
        let clock = EngineClock::Custom(StdArc::new(Frozen));
        let mut settings = crew_of_one_shard(clock, Dispatcher::Inline);
        let workers = Workers::new(1, 1, StdArc::clone(&settings.roster));
        settings.dispatcher = Dispatcher::Own(StdArc::new(workers));
        let shared = StdArc::new(StationShared::new(64, &settings.roster));
        StdArc::new(Self { crew: Crew::new(settings), shared, fired: AtomicU64::new(0) })
    }
}

impl Fire for HeldUp {
    fn dispatcher(&self) -> &Dispatcher {
        &self.crew.settings().dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most && chunk.take().is_some() {
                called += 1;
                self.shared.want_sweep();
                while self.shared.is_sweep_wanted() {
                    thread::yield_now();
                }
                self.fired.fetch_add(1, Ordering::Relaxed);
                self.shared.parker.close();
                self.crew.close();
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// A handler holds up its shard's leader. The other thread takes the shard over, and the leader stands by once the
/// handler has returned. If no thread takes the shard over, the handler waits for ever.
#[test]
fn a_shard_is_taken_over_from_a_leader_that_is_held_up() {
    model("a_shard_is_taken_over_from_a_leader_that_is_held_up", || {
        let world = HeldUp::new();
        let slots = StdArc::new(Slots::new(4, Timestamp::ZERO));
        let mut lane = world.shared.inbox.register();
        let index = Magazines::new().take(&slots).unwrap();
        let (_, stamp) = slots.control(index).arm(index, DUE);
        let _ = lane.push(Insertion { deadline: DUE, index, stamp });
        let engine: StdArc<dyn Fire> = StdArc::<HeldUp>::clone(&world);
        let time = (world.crew.settings().tick, Timestamp::ZERO);
        let shared = StdArc::clone(&world.shared);
        world.crew.join(vec![Station::new(0, (engine, &Presence::of(1)), shared, slots, time)]);
        let crew = StdArc::clone(&world.crew);
        let worker = thread::spawn(move || crew.serve(1));
        world.crew.serve(0);
        worker.join().unwrap();
        assert_eq!(world.fired.load(Ordering::Relaxed), 1, "the timer was not fired once");
    });
}

/// A firing side that counts the tickets that it fires.
struct Count {
    dispatcher: Dispatcher,
    fired: AtomicU64,
}

impl Fire for Count {
    fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most && chunk.take().is_some() {
                called += 1;
                self.fired.fetch_add(1, Ordering::Relaxed);
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// The only permit comes back while a job is pushed and a thread goes to sleep. Legal endings: (a) the thread finds
/// both before it sleeps; (b) the push wakes the thread; (c) the permit's drop wakes it. The queue itself is no part of
/// the model: a pushed job is seen at once.
#[test]
fn a_permit_comes_back_while_a_job_is_pushed() {
    model("a_permit_comes_back_while_a_job_is_pushed", || {
        let roster = Roster::new(1);
        let workers = StdArc::new(Workers::new(1, 1, StdArc::clone(&roster)));
        let dispatcher = Dispatcher::Own(StdArc::clone(&workers));
        let count = StdArc::new(Count { dispatcher, fired: AtomicU64::new(0) });
        let permit = workers.permit().unwrap();
        let chunk = DueChunk::new(vec![Ticket { tick: Tick(0), index: 0, stamp: 0 }], Timestamp::ZERO);
        let batch = StdArc::new(Batch::new(0, vec![chunk]));
        let (standing_by, fired) = (StdArc::clone(&workers), StdArc::clone(&count));
        let worker = thread::spawn(move || {
            roster.enter_current_thread(0);
            while fired.fired.load(Ordering::Relaxed) == 0 {
                standing_by.run_jobs();
                if fired.fired.load(Ordering::Relaxed) == 0 {
                    standing_by.stand_by(0);
                }
            }
        });
        let engine: StdArc<dyn Fire> = StdArc::<Count>::clone(&count);
        let pusher = thread::spawn(move || assert!(dispatch(&engine, &batch), "the workers panicked"));
        drop(permit);
        pusher.join().unwrap();
        worker.join().unwrap();
        assert_eq!(count.fired.load(Ordering::Relaxed), 1, "the job was not run once");
    });
}
