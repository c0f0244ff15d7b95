//! A shard that a loop of the program leads, by the functions that are shipped: `Seat::turn` and `Seat::next_look`
//! with a real wheel, lanes and parker, against the threads that arm timers elsewhere.
//!
//! The loop's poll is a park. A wake that is lost leaves the loop parked for ever, which loom reports as a deadlock:
//! the poll has no time limit if the loop announces none, and the clock of a model stands still.
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
//! | W5: a seat that knows a station takes a second one for known | `an_arming_of_a_second_station_races_with_the_loop` |
//! | W5: a seat leaves out the word of the shard's own parker | both models of a station that joins |
//! | the bell forgets a ring that comes before the wait, or a ring does not wake the task that waits | `an_arming_elsewhere_races_with_a_task_that_waits` |

use super::{Endings, model, model_with_endings};
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
use std::sync::atomic::{AtomicBool, AtomicUsize};

const EARLIER: Timestamp = Timestamp::from_nanos(100);
const NOW: Timestamp = Timestamp::from_nanos(1_000);
const DUE: Timestamp = Timestamp::from_nanos(500);
const AHEAD: Timestamp = Timestamp::from_nanos(5_000);
const BUDGET: usize = 64;

/// An engine on the shard of one loop.
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
            clock: EngineClock::Custom(StdArc::new(ManualClock::new())),
            dispatcher: Dispatcher::Inline,
            roster: Roster::of_loops(1),
            stall_after: Duration::from_secs(1),
            scheduling: Scheduling { slice: None, ..Scheduling::default() },
            leaders: Leaders::Loops,
        });
        Self::at(set)
    }

    /// Another engine on the shard, which has joined.
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

    /// An engine whose station is at the shard.
    fn joined() -> StdArc<Self> {
        let world = Self::new();
        world.join(&Presence::of(1));
        world
    }

    /// Runs the loop on a thread of its own, which is woken by its unpark, until `last` timers have fired.
    fn spawn_loop(self: &StdArc<Self>, mut seat: Seat, last: u64) -> thread::JoinHandle<()> {
        let world = StdArc::clone(self);
        thread::spawn(move || {
            world.be_woken_here();
            world.run(&mut seat, last);
        })
    }

    /// Sets that the loop is woken by the unpark of the calling thread.
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

    /// Schedules a timer from the calling thread.
    fn arm(&self, deadline: Timestamp) {
        self.schedule(&mut self.shared.inbox.register(), &mut Magazines::new(), deadline);
    }

    /// Schedules a timer as the engine does. Returns the word by which it may be cancelled.
    fn schedule(&self, lane: &mut LaneWriter, magazines: &mut Magazines, deadline: Timestamp) {
        let index = magazines.take(&self.slots).unwrap();
        let (_, stamp) = self.slots.control(index).arm(index, deadline);
        let _ = lane.push(Insertion { deadline, index, stamp });
        let _: Notified = self.shared.parker.notify(deadline);
    }

    /// The turns of a loop that has not turned before.
    fn turn(&self) {
        self.turn_by(&mut Seat::new(0));
    }

    fn turn_by(&self, seat: &mut Seat) {
        self.turn_at(seat, NOW);
    }

    fn turn_at(&self, seat: &mut Seat, now: Timestamp) {
        while seat.turn(&self.set, (now, BUDGET), || {}) == LoopLeft::More {}
    }

    /// The loop of a program, until `last` timers have fired: it polls until the next look, or until it is woken. The
    /// calls are those of `LoopShard::turn` and `LoopShard::next_deadline`.
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
                && let Some((ticket, _)) = chunk.take()
            {
                called += 1;
                if matches!(self.slots.control(ticket.index).claim(ticket.stamp, NOW), Claim::Won { .. }) {
                    self.fired.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        called
    }

    fn job_dropped(&self, _: usize) {}

    fn batch_taken(&self, _: usize) {}
}

/// A due timer is scheduled elsewhere while the loop, which has none, turns and goes to its poll. Legal endings: (a)
/// the turn drains the ticket; (b) the drain after the announcement finds it; (c) the loop reads the lowered word; (d)
/// it is woken out of its poll.
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

/// A loop that is a task of a runtime has read its words. Another task arms a timer on its thread before it waits, and
/// a third one on another thread does so as well. The loop does not read the words again: both wake it.
#[test]
fn a_task_arms_before_it_waits() {
    model("a_task_arms_before_it_waits", || {
        let world = World::joined();
        let task = StdArc::clone(&world);
        let task = thread::spawn(move || {
            // A thread of a model does not unpark itself.
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
            // The wait of the task, by the look that it read before.
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

/// A seat knows one engine's station when another engine joins. A timer of the second engine is scheduled elsewhere
/// while the loop turns and goes to its poll. Legal endings: as with one engine.
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

/// The same while another timer is ahead, and the announcement stands over turns at which nothing is due.
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

/// Two threads arm timers for a loop that is asleep, the later one first or second: the word is the earlier moment, and
/// each timer fires in the first turn. The loop is woken for each moment that was earlier when it came.
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

/// A loop that reads a lowered word finds the ticket in the turn at that moment, without another fence.
#[test]
fn push_lowers_the_word() {
    model("push_lowers_the_word", || {
        let world = World::joined();
        world.turn();
        let looped = StdArc::clone(&world);
        let looped = thread::spawn(move || {
            let mut seat = Seat::new(0);
            if seat.next_look(&looped.set, || {}).is_some() {
                let _ = seat.turn(&looped.set, (NOW, BUDGET), || {});
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

/// A thread that has filled its lane drains the lanes of the loop itself, before it wakes the loop for its timer. Legal
/// endings: (a) the loop's turn finds the ticket in the wheel; (b) it found it in the lane, and the other thread finds
/// nothing; (c) the other thread finds the shard led, and leaves the lane to the turn.
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

/// A timer is cancelled elsewhere while the loop turns at its deadline: it fires, or it is cancelled.
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

/// Wakes the thread that polls a future.
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

/// A due timer is scheduled elsewhere while a loop that is a task, with no timer, turns and waits by its bell, as
/// `LoopShard::turn_as_task` does. Legal endings: (a) the task finds the timer before it waits: in the turn, in the
/// lowered word, or since the bell has rung; (b) it is woken.
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

/// A loop moves to another thread while its former thread arms a timer for it. Legal endings: (a) the loop reads the
/// lowered word on its new thread; (b) it is woken there.
#[test]
fn a_loop_moves_while_its_former_thread_arms() {
    model("a_loop_moves_while_its_former_thread_arms", || {
        let (world, mut seat) = (World::joined(), Seat::new(0));
        world.turn_by(&mut seat);
        let looped = world.spawn_loop(seat, 1);
        world.arm(DUE);
        looped.join().unwrap();
        world.end();
    });
}

const FIRED_AT_THE_END: &str = "the loop that ends fires the timer";
const ARMED_BEFORE: &str = "the timer is armed before the loop ends, for the next loop";
const ARMED_IN_BETWEEN: &str = "the timer is armed while no loop has the place";
const NEXT_IS_WOKEN: &str = "the next loop is woken out of its poll";
const CANCELLED_BEFORE: &str = "the timer is cancelled before the first loop has ended";
const CANCELLED_AFTERWARDS: &str = "the timer is cancelled after the first loop has ended";
const FIRED_AFTERWARDS: &str = "the next loop fires the timer";

/// A loop that ends, and the next loop.
struct Succession {
    world: StdArc<World>,
    /// Which loop has the place: 0 the first one, 1 none, 2 the next one. For the endings, and no part of the model.
    stage: AtomicUsize,
    is_armed: AtomicBool,
    endings: StdArc<Endings>,
}

impl Succession {
    /// The first loop has the place.
    fn new(endings: &StdArc<Endings>) -> StdArc<Self> {
        let world = World::joined();
        assert!(world.set.settings().roster.take_place(0));
        let (stage, is_armed) = (AtomicUsize::new(0), AtomicBool::new(false));
        StdArc::new(Self { world, stage, is_armed, endings: StdArc::clone(endings) })
    }

    fn stage(&self) -> usize {
        self.stage.load(Ordering::Relaxed)
    }

    fn next_stage(&self) {
        self.stage.fetch_add(1, Ordering::Relaxed);
    }

    /// The first loop on the calling thread: it turns at `now`, asks for its next look, and ends. The calls are those
    /// of `LoopShard`, as in `World::run`.
    fn end_loop(&self, now: Timestamp) {
        self.leave_place(self.turn_first_loop(now));
    }

    fn turn_first_loop(&self, now: Timestamp) -> Seat {
        let mut seat = Seat::new(0);
        self.world.turn_at(&mut seat, now);
        let _look = seat.next_look(&self.world.set, || {});
        seat
    }

    fn leave_place(&self, seat: Seat) {
        let roster = &self.world.set.settings().roster;
        assert!(!roster.take_place(0), "two loops have a place");
        drop(seat);
        roster.leave_place(0);
        self.next_stage();
        if self.world.fired() == 1 {
            self.endings.note(FIRED_AT_THE_END);
        } else if self.is_armed.load(Ordering::Relaxed) {
            self.endings.note(ARMED_BEFORE);
        }
    }

    /// The next loop takes the place on the calling thread, once no loop has it.
    fn take_place(&self) -> Seat {
        while !self.world.set.settings().roster.take_place(0) {
            thread::yield_now();
        }
        self.next_stage();
        Seat::new(0)
    }

    /// The next loop on the calling thread, until the timer has fired. It polls before its first turn.
    fn begin_loop(&self) {
        let mut seat = self.take_place();
        self.world.be_woken_here();
        while self.world.fired() == 0 {
            match seat.next_look(&self.world.set, || {}) {
                Some(look) if look <= NOW => thread::yield_now(),
                _ => {
                    thread::park();
                    self.endings.note(NEXT_IS_WOKEN);
                }
            }
            self.world.turn_by(&mut seat);
        }
    }

    /// Arms a timer that is due, and notes when.
    fn arm(&self) {
        let (mut lane, mut magazines) = (self.world.shared.inbox.register(), Magazines::new());
        self.world.schedule(&mut lane, &mut magazines, DUE);
        self.is_armed.store(true, Ordering::Relaxed);
        if self.stage() == 1 {
            self.endings.note(ARMED_IN_BETWEEN);
        }
    }

    fn end(&self) {
        assert_eq!(self.world.fired(), 1, "the timer was not fired once");
        self.world.end();
    }
}

/// A loop turns, asks for its next look and ends, and another loop takes its place on the same thread. Meanwhile a
/// timer is armed elsewhere that is due before the moment that the first loop announces. Legal endings: (a) the first
/// loop fires the timer; (b) the word is lowered before the first loop ends, or while no loop has the place, and the
/// next loop reads the word before its first poll; (c) the next loop is woken out of its poll.
#[test]
fn a_loop_ends_while_a_timer_is_armed() {
    const ENDINGS: &[&str] = &[FIRED_AT_THE_END, ARMED_BEFORE, ARMED_IN_BETWEEN, NEXT_IS_WOKEN];
    model_with_endings("a_loop_ends_while_a_timer_is_armed", ENDINGS, |endings| {
        let loops = Succession::new(endings);
        loops.world.arm(AHEAD);
        let looped = StdArc::clone(&loops);
        let looped = thread::spawn(move || {
            looped.world.be_woken_here();
            looped.end_loop(NOW);
            looped.begin_loop();
        });
        loops.arm();
        looped.join().unwrap();
        loops.end();
    });
}

/// A loop ends on its thread, which arms a timer afterwards, while another loop takes the place on its own thread.
/// Legal endings: (a) the next loop reads the lowered word before its first poll; (b) it is woken out of its poll.
#[test]
fn a_loop_takes_a_place_while_its_former_thread_arms() {
    const ENDINGS: &[&str] = &[ARMED_IN_BETWEEN, NEXT_IS_WOKEN];
    model_with_endings("a_loop_takes_a_place_while_its_former_thread_arms", ENDINGS, |endings| {
        let loops = Succession::new(endings);
        loops.world.arm(AHEAD);
        let next = StdArc::clone(&loops);
        let next = thread::spawn(move || next.begin_loop());
        loops.world.be_woken_here();
        loops.end_loop(NOW);
        loops.arm();
        next.join().unwrap();
        loops.end();
    });
}

/// The same with a third thread that arms the timer, which may do so before the first loop ends.
#[test]
fn a_loop_takes_a_place_while_a_third_thread_arms() {
    const ENDINGS: &[&str] = &[ARMED_BEFORE, ARMED_IN_BETWEEN, NEXT_IS_WOKEN];
    model_with_endings("a_loop_takes_a_place_while_a_third_thread_arms", ENDINGS, |endings| {
        let loops = Succession::new(endings);
        loops.world.arm(AHEAD);
        loops.world.be_woken_here();
        let seat = loops.turn_first_loop(NOW);
        let (next, arming) = (StdArc::clone(&loops), StdArc::clone(&loops));
        let next = thread::spawn(move || next.begin_loop());
        let arming = thread::spawn(move || arming.arm());
        loops.leave_place(seat);
        arming.join().unwrap();
        next.join().unwrap();
        loops.end();
    });
}

/// A timer is cancelled elsewhere while its loop ends before the deadline, and the next loop turns after the deadline:
/// the timer fires, or it is cancelled.
#[test]
fn a_loop_ends_while_a_timer_is_cancelled() {
    const ENDINGS: &[&str] = &[CANCELLED_BEFORE, CANCELLED_AFTERWARDS, FIRED_AFTERWARDS];
    model_with_endings("a_loop_ends_while_a_timer_is_cancelled", ENDINGS, |endings| {
        let loops = Succession::new(endings);
        let World { shared, slots, .. } = &*loops.world;
        let index = Magazines::new().take(slots).unwrap();
        let (id, stamp) = slots.control(index).arm(index, DUE);
        let _ = shared.inbox.register().push(Insertion { deadline: DUE, index, stamp });
        let _: Notified = shared.parker.notify(DUE);
        let looped = StdArc::clone(&loops);
        let looped = thread::spawn(move || {
            looped.end_loop(EARLIER);
            looped.world.turn_by(&mut looped.take_place());
        });
        let cancelled = u64::from(slots.control(index).cancel(id) == Cancel::Won);
        let has_ended = loops.stage() > 0;
        looped.join().unwrap();
        endings.note(match (cancelled, has_ended) {
            (0, _) => FIRED_AFTERWARDS,
            (_, false) => CANCELLED_BEFORE,
            (_, true) => CANCELLED_AFTERWARDS,
        });
        assert_eq!(loops.world.fired() + cancelled, 1, "the timer did not end once");
        loops.world.end();
    });
}

/// An engine joins the shard, with a timer that is due, while the loop goes to its poll.
#[test]
fn a_station_joins_while_the_loop_goes_to_its_poll() {
    model("looped::a_station_joins_while_the_loop_goes_to_its_poll", || {
        let world = World::new();
        let looped = world.spawn_loop(Seat::new(0), 1);
        world.arm(DUE);
        world.join(&Presence::of(1));
        looped.join().unwrap();
        world.end();
    });
}

/// The same at a loop that has turned, and reads the words that it knows outside of the lock.
#[test]
fn a_station_joins_while_the_loop_reads_the_words_that_it_knows() {
    model("a_station_joins_while_the_loop_reads_the_words_that_it_knows", || {
        let (world, mut seat) = (World::new(), Seat::new(0));
        world.turn_by(&mut seat);
        let looped = world.spawn_loop(seat, 1);
        world.arm(DUE);
        world.join(&Presence::of(1));
        looped.join().unwrap();
        world.end();
    });
}

/// An engine is shut down elsewhere while its loop turns: the shutdown waits for the end of the turn and drops the
/// station, or the turn has dropped it.
#[test]
fn a_shutdown_elsewhere_races_with_a_turn() {
    model("looped::a_shutdown_elsewhere_races_with_a_turn", || {
        let (world, presence) = (World::new(), Presence::of(1));
        world.join(&presence);
        assert!(world.set.settings().roster.take_place(0));
        let other = StdArc::clone(&world);
        let looped = thread::spawn(move || {
            let mut seat = Seat::new(0);
            let _ = seat.turn(&other.set, (NOW, BUDGET), || {});
        });
        world.end();
        assert_eq!(presence.stations(), 0, "the shutdown left the station");
        looped.join().unwrap();
    });
}
