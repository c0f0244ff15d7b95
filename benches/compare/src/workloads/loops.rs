//! One event loop. Its caller knows the time, and its timers are owned by the loop.
//!
//! Operations come in groups, like the events of a poll. Before each group the loop reads the clock. Ours also turns
//! and asks for its next deadline, as its program must do. The loops in C do the same work in the same order:
//! `crates/c/benches/peers.c`.

use crate::case::Case;
use crate::common::{Chance, Payload, payload};
use crate::contestants::{Clock, Fires, PER_ITERATION, Reads};
use crate::foreign;
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Disarm, Engine, LoopShard, Timer, TimerId, Timestamp};
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "loops",
    operation: "timers of one event loop that knows the time: armed and disarmed, scheduled and cancelled, moved (ns each)",
    family: Family::Arming,
    about: "Operations come in groups of 64, as the events of one poll do. Between groups each loop reads its \
        clock anew. Ours also turns its shard and asks for its next deadline there, as its program must; a turn \
        of libuv or libevent would make a call to the system, and is left out. One timer is armed for 5 s and \
        disarmed. A one-shot is due in some minutes, as the others are, at random. A timer that is moved is one \
        of them at random, is armed for more than a minute, and gets one second more. libuv and libevent have \
        no one-shots: one handle or event is used again and again. A common timeout of libevent is a queue of \
        timers of one length, and cannot take part where lengths differ. Checked: each call does what it \
        should, no timer fires, and the other timers are pending at the end.",
    reading: "libuv and libevent keep their timers in a heap, in which an operation takes the longer the more \
        timers are pending. In ours an operation takes as many steps with a million others as with none, and \
        more misses of the cache.",
    cases,
    columns: |case| {
        vec![
            Column::new("arm", "arm + disarm", "ns"),
            Column::new("arm100k", format!("arm + disarm, {} pending", thousands(case.timers / 10)), "ns"),
            Column::new("among", "a one-shot among all", "ns"),
            Column::new("refresh", "move one of all", "ns"),
        ]
    },
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants: || {
        let ours = Entrant {
            clock: Reads::EachIteration(Clock::Tsc).to_string(),
            ..Entrant::here("engine, LoopShard", true, turn)
        };
        [ours].into_iter().chain(foreign::LOOPS.iter().map(Entrant::foreign)).collect()
    },
};

const SECOND: Duration = Duration::from_secs(1);
const BUDGET: usize = 1_024;

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(1_000_000, 100_000, 500);
    let operations = scale.pick(4_000_000, 400_000, 640);
    vec![Case { timers, operations, ..Case::named(format!("{} timers", thousands(timers))) }]
}

/// An event loop that turns a shard of the engine, and the loop's present moment.
struct Loop {
    shard: LoopShard,
    engine: Engine<Payload>,
    fires: Fires,
    now: Timestamp,
}

const MUST: &str = "there is room, and the engine is not shut down";

impl Loop {
    fn new() -> Self {
        let (shards, mut loops) = Builder::new().loops(1).expect("one loop");
        let fires = Fires::default();
        let on_fire = fires.handler();
        let engine = shards.engine().start(move |timer| on_fire(timer.payload));
        let engine = engine.expect("there are no threads to start");
        let now = engine.handle().now();
        Self { shard: loops.remove(0), engine, fires, now }
    }

    /// Reads the present moment and fires due timers, as an event loop does between two groups of operations.
    #[inline]
    fn turn(&mut self) {
        self.now = self.engine.handle().now();
        let _ = black_box(self.shard.turn(self.now, BUDGET));
        black_box(self.shard.next_deadline());
    }

    /// Runs `operation` `operations` times, and turns the loop after each group of operations. Returns the nanoseconds
    /// for one operation.
    fn time(&mut self, operations: usize, mut operation: impl FnMut(&Self)) -> f64 {
        let begin = Instant::now();
        for _ in 0..operations / PER_ITERATION {
            self.turn();
            for _ in 0..PER_ITERATION {
                operation(self);
            }
        }
        begin.elapsed().as_secs_f64() * 1e9 / operations as f64
    }

    /// Warms up with as many operations as are measured, and then measures `operation`. Checks that no timer fired.
    /// Returns the nanoseconds for an operation.
    fn measure(&mut self, case: &Case, mut operation: impl FnMut(&Self)) -> f64 {
        let operations = case.operations / PER_ITERATION * PER_ITERATION;
        self.time(operations, &mut operation);
        let nanos = self.time(operations, &mut operation);
        assert_eq!(self.fires.count(), 0, "nothing was due");
        nanos
    }

    /// Schedules `count` one-shots with deadlines after the end of the measurement.
    fn fill(&mut self, count: usize, chance: &mut Chance) {
        for number in 0..count as u64 {
            let _ = self.schedule(far(chance), payload(number));
        }
        self.turn();
    }

    #[inline]
    fn schedule(&self, delay: Duration, payload: Payload) -> TimerId {
        self.engine.handle().schedule_at(self.now + delay, payload).expect(MUST)
    }

    fn timer(&self, number: u64) -> Timer<Payload> {
        self.engine.handle().timer(payload(number)).expect(MUST)
    }
}

/// Returns a random delay of 100 to 200 s.
#[inline]
fn far(chance: &mut Chance) -> Duration {
    100 * SECOND + Duration::from_nanos(chance.next() % 100_000_000_000)
}

/// Measures the arming of a timer while `pending` other timers are pending.
fn arm(case: &Case, pending: usize) -> f64 {
    let mut this = Loop::new();
    this.fill(pending, &mut Chance::new(1));
    let timer = this.timer(0);
    let nanos = this.measure(case, |this| {
        timer.arm_at(this.now + 5 * SECOND).expect(MUST);
        assert_eq!(timer.disarm(), Disarm::Disarmed);
    });
    assert_eq!(this.engine.handle().len(), pending, "pending");
    nanos
}

/// Measures scheduling and cancelling a one-shot while many other one-shots are pending.
fn among(case: &Case) -> f64 {
    let (mut this, mut chance) = (Loop::new(), Chance::new(1));
    this.fill(case.timers, &mut chance);
    let nanos = this.measure(case, |this| {
        let id = this.schedule(far(&mut chance), payload(1));
        assert!(this.engine.handle().cancel(id).payload().is_some(), "it was pending");
    });
    assert_eq!(this.engine.handle().len(), case.timers, "pending");
    nanos
}

/// Measures giving a random pending timer a new deadline.
fn refresh(case: &Case) -> f64 {
    let (mut this, mut chance) = (Loop::new(), Chance::new(1));
    let timers: Vec<_> = (0..case.timers as u64).map(|number| this.timer(number)).collect();
    for timer in &timers {
        timer.arm_at(this.now + 100 * SECOND).expect(MUST);
    }
    this.turn();
    let nanos = this.measure(case, |this| {
        let at = usize::try_from(chance.within(&(0..timers.len() as u64))).expect("an index");
        timers[at].arm_at(this.now + 101 * SECOND).expect(MUST);
    });
    assert!(timers.iter().all(Timer::is_armed), "all are armed");
    nanos
}

fn turn(case: &Case) -> Figures {
    Figures::default()
        .number("arm", arm(case, 0))
        .number("arm100k", arm(case, case.timers / 10))
        .number("among", among(case))
        .number("refresh", refresh(case))
}
