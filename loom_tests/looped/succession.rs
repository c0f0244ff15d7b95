//! Loops that move to another thread, end, and take the place of another loop. A *place* is a loop's entry in the
//! roster of a shard set. Also stations that join.

use super::super::{Endings, model, model_with_endings};
use super::{AHEAD, DUE, EARLIER, NOW, World};
use crate::base::sync::{Ordering, StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::Magazines;
use crate::lockfree::state::Cancel;
use crate::shard::{Presence, Seat};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A loop moves to another thread while its former thread arms a timer for the loop. The word is the moment until which
/// the loop waits. Legal endings: (a) the loop reads the lowered word on its new thread; (b) the loop is woken there.
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

/// Two loops that lead the same shard, one after the other.
struct Succession {
    world: StdArc<World>,
    /// Says which loop leads the shard: 0 for the first loop, 1 for none, 2 for the next loop. The number only names
    /// the endings, and the model does not depend on it.
    stage: AtomicUsize,
    is_armed: AtomicBool,
    endings: StdArc<Endings>,
}

impl Succession {
    /// Makes a world in which the first loop leads the shard.
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

    /// Runs the first loop on the calling thread. The loop turns at `now`, asks for its next moment, and ends. The
    /// calls are those of `LoopShard`, as in `World::run`.
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

    /// Waits until no loop leads the shard. Then the next loop leads the shard, on the calling thread.
    fn take_place(&self) -> Seat {
        while !self.world.set.settings().roster.take_place(0) {
            thread::yield_now();
        }
        self.next_stage();
        Seat::new(0)
    }

    /// Runs the next loop on the calling thread until the timer has fired. The loop waits before its first turn.
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

    /// Arms a due timer, and notes whether no loop led the shard at that moment.
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

/// A loop turns, asks for its next moment and ends. Another loop takes its place on the same thread. At the same time
/// another thread arms a timer. The timer is due before the first loop's word, the moment until which that loop waits.
/// Legal endings: (a) the first loop fires the timer; (b) the arming lowers the word before the next loop begins, and
/// the next loop reads the word before it waits; (c) the next loop is woken.
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

/// A loop ends on its thread, which then arms a timer. At the same time another loop takes the place on its own thread.
/// The word is the moment until which a loop waits. Legal endings: (a) the next loop reads the lowered word before it
/// waits; (b) the next loop is woken.
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

/// A loop takes the place of another loop, while a third thread arms a timer. The timer may be armed before the first
/// loop has ended.
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

/// Another thread cancels a timer. At the same time the timer's loop ends before the deadline, and the next loop turns
/// after the deadline. Either the timer fires, or it is cancelled.
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

/// An engine with a due timer joins the shard of a loop, while the loop begins to wait.
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

/// An engine joins the shard of a loop that has turned. The loop reads the words that it knows, the moments until which
/// it waits, without the shard's lock.
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
