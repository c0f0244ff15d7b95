//! A shard that an event loop of the program leads, against threads that arm timers elsewhere. The models call the
//! shipped `Seat::turn` and `Seat::next_look`, with a real wheel, lanes and parker. A *seat* is the loop's access to
//! its shard. A *word* is a parker's value: the moment at which the loop must look at its lanes.
//!
//! The loop's poll is a park here. A lost wake leaves the loop parked for ever, which loom reports as a deadlock. The
//! poll has no time limit if the loop announces none, and the clock of a model stands still.
//!
//! Each row was tried: the named step was left out of `src`, or the named ordering was made `Relaxed`.
//! `a_task_arms_before_it_waits` and `an_arming_of_a_second_station_races_with_the_loop` were tried with their own rows
//! only: "all" means the others.
//!
//! | left out or weakened | model that goes red |
//! |----------------------|---------------------|
//! | F1: `announce`'s heavy fence | `an_arming_elsewhere_races_with_the_loop`, `a_loop_ends_while_a_timer_is_armed`, `a_drain_elsewhere_races_with_the_loop`, `a_station_joins_while_the_loop_goes_to_its_poll` |
//! | F1: `notify`'s light fence | the same four |
//! | K3: `wake` without Release | none: a model passes the light fence, which releases the push as well |
//! | K3: `withdraw` without Acquire | `push_lowers_the_word` |
//! | the thread that drained the lanes of a loop does not notify it | `a_drain_elsewhere_races_with_the_loop` |
//! | a loop is not woken | all but `push_lowers_the_word` and the four without a poll |
//! | W1: a loop that has moved does not note its thread | `a_loop_moves_while_its_former_thread_arms`, `a_station_joins_while_the_loop_reads_the_words_that_it_knows` |
//! | W1: it notes its thread after it has read the word | the same two |
//! | W1: a loop does not note its thread if a former loop of its place has | the same two, `a_loop_takes_a_place_while_its_former_thread_arms`, `an_arming_elsewhere_races_with_a_standing_announcement` |
//! | a loop leaves its place first, and its wake function in a second step | the two models of a loop that takes a place |
//! | a loop that takes a place keeps the wake function of the former loop | the two models of a loop that takes a place |
//! | a loop that has not turned does not look at the words before its poll | these two, `a_loop_ends_while_a_timer_is_armed`, `two_armings_elsewhere_race_with_each_other` |
//! | a cancel and a claim change the timer's word by a load and a store | `a_cancel_elsewhere_races_with_a_turn`, `a_loop_ends_while_a_timer_is_cancelled` |
//! | K1: no drain after the announcement | `an_arming_elsewhere_races_with_the_loop`, `a_loop_ends_while_a_timer_is_armed`, `a_drain_elsewhere_races_with_the_loop` |
//! | R6: no look at `has_newcomers` after the announcement | `a_station_joins_while_the_loop_goes_to_its_poll` |
//! | R6: `join` wakes nobody | both models of a station that joins |
//! | W4: a task is not woken from its own thread | `a_task_arms_before_it_waits` |
//! | W5: a seat that knows a station takes a second station for known | `an_arming_of_a_second_station_races_with_the_loop` |
//! | W5: a seat leaves out the word of the shard's own parker | both models of a station that joins |
//! | the bell forgets a ring that comes before the wait, or a ring does not wake the task that waits | `an_arming_elsewhere_races_with_a_task_that_waits` |

use super::{model, model_with_endings};
use crate::base::sync::{AtomicU64, Ordering, StdArc, thread};
use crate::base::tick::{TickLength, Timestamp};
use crate::base::ticket::Insertion;
use crate::dispatch::{Batch, Dispatcher, Fire};
use crate::lockfree::inbox::LaneWriter;
use crate::lockfree::parker::Notified;
use crate::lockfree::roster::{Roster, WakeFn, Waking};
use crate::lockfree::slab::{Magazines, Slots};
use crate::lockfree::state::{Cancel, Claim};
use crate::shard::{Leaders, LoopLeft, Presence, Seat, SetSettings, ShardSet, Station, StationShared};
use crate::system::clock::{EngineClock, ManualClock};
use crate::system::scheduling::Scheduling;
use core::time::Duration;
use std::sync::atomic::AtomicBool;

mod succession;

const EARLIER: Timestamp = Timestamp::from_nanos(100);
const NOW: Timestamp = Timestamp::from_nanos(1_000);
const DUE: Timestamp = Timestamp::from_nanos(500);
const AHEAD: Timestamp = Timestamp::from_nanos(5_000);
const BUDGET: usize = 64;

/// An engine on a shard that one loop leads.
struct World {
    set: StdArc<ShardSet>,
    shared: StdArc<StationShared>,
    slots: StdArc<Slots>,
    fired: AtomicU64,
}

impl World {
    fn new() -> StdArc<Self> {
        let set = ShardSet::new(SetSettings {
            tick: TickLength::from_nanos(10),
            shards: 1,
            cores: Box::new([]),
            may_leave_cores: false,
            clock: EngineClock::Custom(StdArc::new(ManualClock::new())),
            dispatcher: Dispatcher::Inline,
            roster: Roster::of_loops(1),
            stall_after: Duration::from_secs(1),
            scheduling: Scheduling { slice: None, ..Scheduling::default() },
            leaders: Leaders::Loops,
        });
        Self::at(set)
    }

    /// Makes another engine on the same shard. The station (the engine's part of the shard) has joined the shard.
    fn another(&self) -> StdArc<Self> {
        let world = Self::at(StdArc::clone(&self.set));
        world.join(&Presence::of(1));
        world
    }

    fn at(set: StdArc<ShardSet>) -> StdArc<Self> {
        let shared = StdArc::new(StationShared::new(64, &set.settings().roster));
        let slots = StdArc::new(Slots::new(4, Timestamp::ZERO));
        StdArc::new(Self { set, shared, slots, fired: AtomicU64::new(0) })
    }

    /// Adds the engine's station to the shard.
    fn join(self: &StdArc<Self>, presence: &StdArc<Presence>) {
        let engine: StdArc<dyn Fire> = StdArc::<Self>::clone(self);
        let (shared, slots) = (StdArc::clone(&self.shared), StdArc::clone(&self.slots));
        let time = (self.set.settings().tick, Timestamp::ZERO);
        self.set.join(vec![Station::new(0, (engine, presence), shared, slots, time)]);
    }

    /// Makes an engine whose station has joined the shard.
    fn joined() -> StdArc<Self> {
        let world = Self::new();
        world.join(&Presence::of(1));
        world
    }

    /// Runs the loop on a new thread until `last` timers have fired. Unparking that thread wakes the loop.
    fn spawn_loop(self: &StdArc<Self>, mut seat: Seat, last: u64) -> thread::JoinHandle<()> {
        let world = StdArc::clone(self);
        thread::spawn(move || {
            world.be_woken_here();
            world.run(&mut seat, last);
        })
    }

    /// Makes the calling thread the loop's thread. Unparking that thread then wakes the loop.
    fn be_woken_here(&self) {
        let here = thread::current();
        let function: StdArc<WakeFn> = StdArc::new(move || here.unpark());
        self.set.settings().roster.wake_by(0, Waking { function, is_of_task: false });
    }

    /// Ends the engine, and takes its station out of the shard.
    fn end(&self) {
        self.shared.parker.close();
        self.set.dismiss_if_without_threads(true);
    }

    /// Schedules a timer for this deadline from the calling thread.
    fn arm(&self, deadline: Timestamp) {
        self.schedule(&mut self.shared.inbox.register(), &mut Magazines::new(), deadline);
    }

    /// Schedules a timer as the engine does: pushes it to the shard, and notifies the parker (the word on which a
    /// thread sleeps), which wakes the loop.
    fn schedule(&self, lane: &mut LaneWriter, magazines: &mut Magazines, deadline: Timestamp) {
        let index = magazines.take(&self.slots).unwrap();
        let (_, stamp) = self.slots.control(index).arm(index, deadline);
        let _ = lane.push(Insertion { deadline, index, stamp });
        let _: Notified = self.shared.parker.notify(deadline);
    }

    /// Turns a loop that has not turned before, until nothing is left to do.
    fn turn(&self) {
        self.turn_by(&mut Seat::new(0));
    }

    fn turn_by(&self, seat: &mut Seat) {
        self.turn_at(seat, NOW);
    }

    fn turn_at(&self, seat: &mut Seat, now: Timestamp) {
        while seat.turn(&self.set, now, BUDGET, || {}) == LoopLeft::More {}
    }

    /// Runs the loop of a program until `last` timers have fired. The loop turns, and then waits until its next moment
    /// comes or a waker wakes it. The calls are those of `LoopShard::turn` and `LoopShard::next_deadline`.
    fn run(&self, seat: &mut Seat, last: u64) {
        loop {
            self.turn_by(seat);
            if self.fired() == last {
                return;
            }
            match seat.next_look(&self.set, || {}) {
                Some(look) if look <= NOW => thread::yield_now(),
                _ => thread::park(),
            }
        }
    }

    fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }
}

impl Fire for World {
    fn dispatcher(&self) -> &Dispatcher {
        &Dispatcher::Inline
    }

    fn fire(self: StdArc<Self>, batch: &Batch, most: usize) -> usize {
        let mut called = 0;
        for chunk in batch.chunks() {
            while called < most
                && let Some((ticket, _)) = chunk.take_alone()
            {
                called += 1;
                if matches!(self.slots.control(ticket.index()).claim(ticket.stamp(), NOW), Claim::Won { .. })
                {
                    self.fired.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// Another thread schedules a due timer. At the same time the loop, which has no timer, turns and begins to wait. The
/// loop's word is the moment until which the loop waits. Legal endings: (a) the turn drains the timer's ticket (a
/// request to check the timer); (b) the drain after the announcement finds the ticket; (c) the loop reads the lowered
/// word; (d) the loop is woken.
#[test]
fn an_arming_elsewhere_races_with_the_loop() {
    model("looped::an_arming_elsewhere_races_with_the_loop", || {
        let world = World::joined();
        let looped = world.spawn_loop(Seat::new(0), 1);
        world.arm(DUE);
        looped.join().unwrap();
        world.end();
    });
}

/// A loop that is a task of a runtime has read its words (moments until which it waits). Then another task on the
/// loop's thread arms a timer, and so does a task on another thread. The loop waits without another read of the words,
/// so both armings wake it.
#[test]
fn a_task_arms_before_it_waits() {
    model("a_task_arms_before_it_waits", || {
        let world = World::joined();
        let task = StdArc::clone(&world);
        let task = thread::spawn(move || {
            // In a model, a thread cannot unpark itself.
            let (here, is_woken) = (thread::current(), StdArc::new(AtomicBool::new(false)));
            let wakes = StdArc::clone(&is_woken);
            let function: StdArc<WakeFn> = StdArc::new(move || {
                wakes.store(true, Ordering::Relaxed);
                here.unpark();
            });
            task.set.settings().roster.wake_by(0, Waking { function, is_of_task: true });
            let mut seat = Seat::new(0);
            task.turn_by(&mut seat);
            let look = seat.next_look(&task.set, || {});
            task.arm(DUE);
            // The task waits until the moment that it read before.
            if !look.is_some_and(|look| look <= NOW) && !is_woken.load(Ordering::Relaxed) {
                thread::park();
            }
            task.run(&mut seat, 2);
        });
        world.arm(DUE);
        task.join().unwrap();
        world.end();
    });
}

/// A loop knows one engine's station when another engine joins. Another thread schedules a timer of the second engine
/// while the loop turns and begins to wait. The legal endings are those of `an_arming_elsewhere_races_with_the_loop`.
#[test]
fn an_arming_of_a_second_station_races_with_the_loop() {
    model("an_arming_of_a_second_station_races_with_the_loop", || {
        let first = World::joined();
        let mut seat = Seat::new(0);
        first.turn_by(&mut seat);
        let second = first.another();
        second.turn_by(&mut seat);
        let looped = second.spawn_loop(seat, 1);
        second.arm(DUE);
        looped.join().unwrap();
        first.end();
        second.end();
    });
}

/// Another thread schedules a due timer while the loop has a later timer. The loop has announced how long it waits. The
/// announcement stays in force over turns in which nothing is due.
#[test]
fn an_arming_elsewhere_races_with_a_standing_announcement() {
    model("an_arming_elsewhere_races_with_a_standing_announcement", || {
        let world = World::joined();
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        world.schedule(&mut lane, &mut magazines, AHEAD);
        world.turn();
        let looped = world.spawn_loop(Seat::new(0), 1);
        world.schedule(&mut lane, &mut magazines, DUE);
        looped.join().unwrap();
        world.end();
    });
}

/// Two threads arm timers, in either order, for a loop that is asleep. The loop's word (the moment until which it
/// waits) becomes the earlier deadline. Both timers fire in the first turn. An arming wakes the loop if its deadline is
/// earlier than the word.
#[test]
fn two_armings_elsewhere_race_with_each_other() {
    model("two_armings_elsewhere_race_with_each_other", || {
        let world = World::joined();
        world.turn();
        let other = StdArc::clone(&world);
        let (mut lane, mut magazines) = (world.shared.inbox.register(), Magazines::new());
        let first = magazines.take(&world.slots).unwrap();
        let (_, stamp) = world.slots.control(first).arm(first, NOW);
        let elsewhere = thread::spawn(move || {
            let _ = other.shared.inbox.register().push(Insertion { deadline: NOW, index: first, stamp });
            let _: Notified = other.shared.parker.notify(NOW);
        });
        world.schedule(&mut lane, &mut magazines, DUE);
        elsewhere.join().unwrap();
        assert!((1..=2).contains(&world.shared.parker.unparks()), "woken too often, or never");
        assert_eq!(Seat::new(0).next_look(&world.set, || {}), Some(DUE), "the earlier moment was lost");
        world.turn();
        assert_eq!(world.fired(), 2);
        world.end();
    });
}

/// A push lowers the loop's word, the moment until which it waits. A loop that reads the lowered word finds the timer's
/// ticket in its next turn, without another fence.
#[test]
fn push_lowers_the_word() {
    model("push_lowers_the_word", || {
        let world = World::joined();
        world.turn();
        let looped = StdArc::clone(&world);
        let looped = thread::spawn(move || {
            let mut seat = Seat::new(0);
            if seat.next_look(&looped.set, || {}).is_some() {
                let _ = seat.turn(&looped.set, NOW, BUDGET, || {});
                assert_eq!(looped.fired(), 1, "the turn at the lowered moment missed the ticket");
            }
        });
        world.arm(DUE);
        looped.join().unwrap();
        world.turn();
        assert_eq!(world.fired(), 1, "the timer was not fired once");
        world.end();
    });
}

/// A thread whose lane (queue to the shard) is full drains the lanes in the loop's place. Then it wakes the loop for
/// its timer. Legal endings: (a) the loop's turn finds the timer's ticket in the wheel; (b) the turn has found the
/// ticket in the lane, and the thread finds nothing; (c) the loop is in a turn, and the thread leaves the lane to the
/// turn.
#[test]
fn a_drain_elsewhere_races_with_the_loop() {
    model("a_drain_elsewhere_races_with_the_loop", || {
        let world = World::joined();
        let looped = world.spawn_loop(Seat::new(0), 1);
        let index = Magazines::new().take(&world.slots).unwrap();
        let (_, stamp) = world.slots.control(index).arm(index, DUE);
        let _ = world.shared.inbox.register().push(Insertion { deadline: DUE, index, stamp });
        world.set.drain_loops();
        let _: Notified = world.shared.parker.notify(DUE);
        looped.join().unwrap();
        world.end();
    });
}

/// Another thread cancels a timer while the loop turns at the timer's deadline. Either the timer fires, or it is
/// cancelled.
#[test]
fn a_cancel_elsewhere_races_with_a_turn() {
    const ENDINGS: &[&str] = &["it fires", "it is cancelled"];
    model_with_endings("looped::a_cancel_elsewhere_races_with_a_turn", ENDINGS, |endings| {
        let world = World::joined();
        let mut magazines = Magazines::new();
        let index = magazines.take(&world.slots).unwrap();
        let (id, stamp) = world.slots.control(index).arm(index, DUE);
        let _ = world.shared.inbox.register().push(Insertion { deadline: DUE, index, stamp });
        let _: Notified = world.shared.parker.notify(DUE);
        let other = StdArc::clone(&world);
        let elsewhere =
            thread::spawn(move || u64::from(other.slots.control(index).cancel(id) == Cancel::Won));
        world.turn();
        let cancelled = elsewhere.join().unwrap();
        assert_eq!(world.fired() + cancelled, 1, "the timer did not end once");
        endings.note(ENDINGS[usize::from(cancelled == 1)]);
        world.end();
    });
}

/// A waker that unparks the thread which polls a future.
#[cfg(feature = "async")]
struct Polls(thread::Thread);

#[cfg(feature = "async")]
impl std::task::Wake for Polls {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(feature = "async")]
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = std::sync::Arc::new(Polls(thread::current())).into();
    let (mut future, mut cx) = (core::pin::pin!(future), core::task::Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            core::task::Poll::Ready(output) => return output,
            core::task::Poll::Pending => thread::park(),
        }
    }
}

/// Another thread schedules a due timer. At the same time a loop without timers turns and waits, as
/// `LoopShard::turn_as_task` does. The loop is a task, and waits for its bell, the flag that wakes it. Legal endings:
/// (a) the task finds the timer before it waits: in the turn, in the lowered word, or because the bell has rung; (b)
/// the task is woken.
#[cfg(feature = "async")]
#[test]
fn an_arming_elsewhere_races_with_a_task_that_waits() {
    const ENDINGS: &[&str] =
        &["it is found by a turn", "the bell has rung before the wait", "the task is woken"];
    model_with_endings("an_arming_elsewhere_races_with_a_task_that_waits", ENDINGS, |endings| {
        let (world, bell) = (World::joined(), StdArc::new(crate::future::Bell::new()));
        let rings = StdArc::clone(&bell);
        let function: StdArc<WakeFn> = StdArc::new(move || rings.ring());
        world.set.settings().roster.wake_by(0, Waking { function, is_of_task: true });
        let (task, noted) = (StdArc::clone(&world), StdArc::clone(endings));
        let task = thread::spawn(move || {
            let (mut seat, mut ending) = (Seat::new(0), ENDINGS[0]);
            loop {
                task.turn_by(&mut seat);
                if task.fired() == 1 {
                    noted.note(ending);
                    return;
                }
                if seat.next_look(&task.set, || {}).is_none() {
                    let has_waited = block_on(bell.rung_or(core::future::pending::<()>()));
                    ending = ENDINGS[1 + usize::from(has_waited)];
                }
            }
        });
        world.arm(DUE);
        task.join().unwrap();
        world.end();
    });
}

/// Another thread shuts an engine down while the engine's loop turns. A station is the engine's part of the shard.
/// Either the shutdown waits for the end of the turn and drops the station, or the turn has dropped the station.
#[test]
fn a_shutdown_elsewhere_races_with_a_turn() {
    model("looped::a_shutdown_elsewhere_races_with_a_turn", || {
        let (world, presence) = (World::new(), Presence::of(1));
        world.join(&presence);
        assert!(world.set.settings().roster.take_place(0));
        let other = StdArc::clone(&world);
        let looped = thread::spawn(move || {
            let mut seat = Seat::new(0);
            let _ = seat.turn(&other.set, NOW, BUDGET, || {});
        });
        world.end();
        assert_eq!(presence.stations(), 0, "the shutdown left the station");
        looped.join().unwrap();
    });
}
