//! Intervals, whose ticks have a fixed period.

use crate::support::{HOUR, Log, MS, Rng};
use crate::tasks::{SECOND, Task, YEAR, driven, driven_with, due_tick, says_shut_down};
use std::error::Error;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tourbillon::future::{Interval, Wakeup, ZeroPeriod};
use tourbillon::{Builder, DrivenEngine, Missed, Timestamp};

const NANO: Duration = Duration::from_nanos(1);
const ALL: [Missed; 3] = [Missed::Burst, Missed::Delay, Missed::Skip];

impl Task<Interval> {
    fn tick(&mut self) -> Poll<Timestamp> {
        self.with(Interval::poll_tick)
    }

    /// Returns all ticks of the interval that are ready now.
    fn ticks(&mut self) -> Vec<Timestamp> {
        let mut ticks = Vec::new();
        while let Poll::Ready(tick) = self.tick() {
            ticks.push(tick);
            assert!(ticks.len() < 100_000, "ticks without end");
        }
        ticks
    }

    /// Waits for the interval's next tick, and returns it.
    fn next(&mut self, engine: &mut DrivenEngine<Wakeup>) -> Timestamp {
        loop {
            match self.tick() {
                Poll::Ready(tick) => return tick,
                Poll::Pending => self.run_until_woken(engine),
            }
        }
    }
}

fn every(engine: &DrivenEngine<Wakeup>, period: Duration) -> Task<Interval> {
    Task::new(engine.handle().interval(period).unwrap())
}

/// An interval of 40 ms that starts at 3 ms. The tests count ticks in milliseconds after the interval's start.
struct Forty {
    engine: DrivenEngine<Wakeup>,
    task: Task<Interval>,
}

impl Forty {
    fn new(behavior: Missed) -> Self {
        let mut engine = driven();
        engine.advance(3 * MS);
        let mut task = every(&engine, 40 * MS);
        task.future.set_missed(behavior);
        Self { engine, task }
    }

    /// Advances the clock by `ms` milliseconds. Returns the ticks that are ready then.
    fn after(&mut self, ms: u32) -> Vec<u128> {
        self.engine.advance(ms * MS);
        self.task.ticks().into_iter().map(|tick| (tick - (Timestamp::ZERO + 3 * MS)).as_millis()).collect()
    }
}

// --- After tokio's cases ---

#[test]
fn a_period_of_zero_is_refused() {
    let engine = driven();
    let errors: [ZeroPeriod; 2] = [
        engine.handle().interval(Duration::ZERO).unwrap_err(),
        engine.handle().interval_at(Timestamp::MAX, Duration::ZERO).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.to_string(), "the period of an interval must not be zero");
        assert!((&error as &dyn Error).source().is_none());
    }
    assert!(engine.handle().interval(NANO).is_ok());
}

#[test]
fn the_first_tick_is_at_the_start() {
    let mut engine = driven();
    engine.advance(MS / 2);
    let start = engine.handle().now();
    let mut now = every(&engine, 10 * MS);
    let mut later = Task::new(engine.handle().interval_at(start + 5 * MS, 10 * MS).unwrap());
    let mut earlier = Task::new(engine.handle().interval_at(Timestamp::ZERO, 10 * MS).unwrap());
    assert_eq!((now.ticks(), earlier.ticks(), later.ticks()), (vec![start], vec![Timestamp::ZERO], vec![]));
    assert_eq!(later.next(&mut engine), start + 5 * MS);
    assert_eq!(earlier.next(&mut engine), Timestamp::ZERO + 10 * MS);
    assert_eq!(now.next(&mut engine), start + 10 * MS);
}

/// An interval makes up for missed ticks at once after a stall. This is row P15 of the pitfalls in `src/DESIGN.md`. The
/// next two tests are for the same row.
#[test]
fn burst_makes_up_for_missed_ticks_at_once() {
    let mut forty = Forty::new(Missed::Burst);
    assert_eq!(forty.after(0), [0]);
    assert_eq!(forty.after(15), []);
    assert_eq!(forty.after(25), [40]);
    assert_eq!(forty.after(95), [80, 120]);
    assert_eq!(forty.after(24), []);
    assert_eq!(forty.after(1), [160]);
    assert_eq!(forty.after(400), [200, 240, 280, 320, 360, 400, 440, 480, 520, 560]);
    assert_eq!(forty.after(40), [600]);
}

#[test]
fn delay_begins_anew_when_a_late_tick_was_taken() {
    let mut forty = Forty::new(Missed::Delay);
    assert_eq!(forty.after(0), [0]);
    assert_eq!(forty.after(40), [40]);
    assert_eq!(forty.after(95), [80]);
    assert_eq!(forty.after(39), []);
    assert_eq!(forty.after(1), [175]);
    assert_eq!(forty.after(40), [215]);
    // The poll is 400 ms after the last tick. The next tick was due 360 ms before.
    assert_eq!(forty.after(400), [255]);
    assert_eq!(forty.after(40), [655]);
}

#[test]
fn skip_leaves_missed_ticks_out_and_keeps_step() {
    let mut forty = Forty::new(Missed::Skip);
    assert_eq!(forty.after(0), [0]);
    assert_eq!(forty.after(40), [40]);
    assert_eq!(forty.after(95), [80]);
    assert_eq!(forty.after(24), []);
    assert_eq!(forty.after(1), [160]);
    assert_eq!(forty.after(400), [200]);
    assert_eq!(forty.after(40), [600]);
    // The stall ends exactly at the moment of a tick, and this tick does not come.
    assert_eq!(forty.after(120), [640]);
    assert_eq!(forty.after(39), []);
    assert_eq!(forty.after(1), [760]);
}

#[test]
fn a_reset_ticks_next_after_a_period() {
    let mut forty = Forty::new(Missed::Burst);
    assert_eq!(forty.after(0), [0]);
    assert_eq!(forty.after(40), [40]);
    assert_eq!(forty.after(15), []);
    forty.task.future.reset();
    assert_eq!(forty.after(39), []);
    assert_eq!(forty.after(1), [95]);
    assert_eq!(forty.after(40), [135]);
}

#[test]
fn a_reset_for_at_once_ticks_with_the_next_poll() {
    let mut forty = Forty::new(Missed::Burst);
    assert_eq!(forty.after(40), [0, 40]);
    forty.task.future.reset_immediately();
    assert_eq!(forty.task.ticks(), [Timestamp::ZERO + 43 * MS]);
    assert_eq!(forty.after(15), []);
    // The reset comes in the middle of a period in which the interval was already polled.
    forty.task.future.reset_immediately();
    assert_eq!(forty.after(0), [55]);
    assert_eq!(forty.after(39), []);
    assert_eq!(forty.after(1), [95]);
}

#[test]
fn a_reset_after_a_delay_ticks_after_that() {
    for (delay, first) in [(0, 55), (7, 62), (40, 95), (300, 355)] {
        let mut forty = Forty::new(Missed::Burst);
        assert_eq!(forty.after(40), [0, 40]);
        assert_eq!(forty.after(15), []);
        forty.task.future.reset_after(delay * MS);
        if delay > 0 {
            // The waiting task is woken at that moment, without another poll.
            forty.engine.advance((delay - 1) * MS);
            assert_eq!(forty.task.take_wakes(), 0);
            forty.engine.advance(MS);
            assert_eq!(forty.task.take_wakes(), 1);
        } else {
            forty.engine.turn();
        }
        assert_eq!(forty.after(0), [first]);
        assert_eq!(forty.after(39), []);
        assert_eq!(forty.after(1), [first + 40]);
    }
}

#[test]
fn a_reset_to_a_moment_ticks_then_and_every_period_from_then_on() {
    // The new moment is earlier, later than a period, or in the past. A moment in the past counts as missed.
    for (behavior, at, expected) in [
        (Missed::Skip, 60, vec![60, 100, 140]),
        (Missed::Skip, 1_000, vec![1_000, 1_040, 1_080]),
        (Missed::Burst, 7, vec![7, 47, 87]),
        (Missed::Skip, 7, vec![7, 87, 127]),
        (Missed::Delay, 7, vec![7, 95, 135]),
    ] {
        let mut forty = Forty::new(behavior);
        assert_eq!(forty.after(0), [0]);
        assert_eq!(forty.after(40), [40]);
        assert_eq!(forty.after(15), []);
        forty.task.future.reset_at(Timestamp::ZERO + (3 + at) * MS);
        forty.engine.turn();
        let mut ticks = Vec::new();
        for _ in 0..1_200 {
            ticks.extend(forty.after(1));
        }
        ticks.truncate(3);
        // If the moment is in the past, its tick is taken 1 ms after the reset.
        let late = u128::from(behavior == Missed::Delay);
        let expected: Vec<u128> =
            expected.into_iter().enumerate().map(|(n, tick)| tick + if n > 0 { late } else { 0 }).collect();
        assert_eq!(ticks, expected, "{behavior:?} {at}");
    }
}

#[test]
fn a_tick_that_was_taken_wakes_nobody_before_the_next_poll() {
    // A task may get a tick and return `Pending` for its own reasons. Then the task must arrange its waking itself.
    let mut engine = driven();
    let mut task = every(&engine, 10 * MS);
    assert!(task.tick().is_ready());
    engine.advance(SECOND);
    assert_eq!((task.take_wakes(), engine.handle().stats().owned.alive), (0, 0));
    // A stream returns every fourth tick, and wakes itself for the other ticks.
    let given = Log::new();
    let mut stream = every(&engine, 10 * MS);
    let mut count = 0;
    let mut polled = Task::new(poll_fn(|cx| {
        while let Poll::Ready(_tick) = stream.future.poll_tick(cx) {
            count += 1;
            if count % 4 != 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            given.push(count);
        }
        if count < 12 { Poll::Pending } else { Poll::Ready(()) }
    }));
    polled.run(&mut engine);
    drop(polled);
    assert_eq!(given.take(), [4, 8, 12]);
}

#[test]
fn the_longest_period_ticks_once() {
    for behavior in ALL {
        let mut engine = driven();
        engine.advance(SECOND);
        let mut task = every(&engine, Duration::MAX);
        task.future.set_missed(behavior);
        assert_eq!(task.future.period(), Duration::MAX);
        assert_eq!(task.ticks(), [Timestamp::ZERO + SECOND]);
        engine.advance(500 * YEAR);
        assert_eq!(task.ticks(), []);
        task.future.reset();
        task.future.reset_immediately();
        engine.turn();
        assert_eq!(task.ticks(), [Timestamp::ZERO + SECOND + 500 * YEAR]);
    }
}

// --- Periods ---

#[test]
fn a_period_of_a_century_is_kept() {
    for behavior in ALL {
        let mut engine = driven();
        let mut task = every(&engine, 100 * YEAR);
        task.future.set_missed(behavior);
        for n in 0..5 {
            assert_eq!(task.next(&mut engine), Timestamp::ZERO + n * 100 * YEAR);
            assert_eq!(engine.handle().now(), Timestamp::ZERO + n * 100 * YEAR);
        }
    }
}

/// Rows P15 and R31 of the pitfalls in `src/DESIGN.md`: an interval does not drift, for any period and any phase
/// between period and engine ticks.
#[test]
fn ten_thousand_ticks_do_not_drift() {
    for nanos in [300_000, 700_000, 999_999, 1_000_000, 1_000_001, 16_666_667, 333_333_333] {
        let period = Duration::from_nanos(nanos);
        // If a period is not longer than the engine's tick, `Delay` and `Skip` find each tick missed.
        for behavior in if nanos > 1_000_000 { &ALL[..] } else { &ALL[..1] } {
            for phase in [0, 1, 333_333, 999_999] {
                no_drift(period, Duration::from_nanos(phase), *behavior);
            }
        }
    }
}

fn no_drift(period: Duration, phase: Duration, behavior: Missed) {
    let mut engine = driven();
    engine.advance(phase);
    let start = engine.handle().now();
    let mut task = every(&engine, period);
    task.future.set_missed(behavior);
    let mut due = start;
    for tick in 0..10_000 {
        assert_eq!(task.next(&mut engine), due, "tick {tick} of {period:?} from {phase:?}, {behavior:?}");
        assert!(engine.handle().now() >= due && engine.handle().now() <= due_tick(due, MS).max(start));
        due = due + period;
    }
}

/// Row R31 of the pitfalls in `src/DESIGN.md`: each tick is taken a little late, because a task is never quite on time.
/// This does not delay the following ticks.
#[test]
fn delay_does_not_drift_by_what_is_not_a_stall() {
    let mut rng = Rng::new(3);
    for behavior in ALL {
        let mut engine = driven();
        let mut task = every(&engine, 50 * MS);
        task.future.set_missed(behavior);
        for n in 0..10_000 {
            let due = Timestamp::ZERO + n * 50 * MS;
            if task.tick().is_pending() {
                task.run_until_woken(&mut engine);
                engine.advance(if n % 7 == 0 { 5 * MS } else { rng.nanos_below(5 * MS) });
                assert_eq!(task.tick(), Poll::Ready(due), "{behavior:?}");
            }
        }
    }
}

/// Row R31 of the pitfalls in `src/DESIGN.md`: the engine's own ticks are long. The rounding to engine ticks does not
/// delay the following ticks of the interval.
#[test]
fn delay_does_not_drift_by_what_the_engine_rounds_up() {
    let mut engine = driven_with(Builder::new().tick(10 * MS));
    let mut task = every(&engine, 51 * MS);
    task.future.set_missed(Missed::Delay);
    for n in 0..100 {
        assert_eq!(task.next(&mut engine), Timestamp::ZERO + n * 51 * MS);
    }
}

/// Row P15 of the pitfalls in `src/DESIGN.md`: the interval's period is below a tick of the engine. No thread spins,
/// and no tick is lost.
#[test]
fn ticks_that_are_shorter_than_the_engines_come_in_bunches() {
    let mut engine = driven();
    let mut task = every(&engine, MS / 10);
    assert_eq!(task.ticks().len(), 1);
    for n in 1..=1_000 {
        task.run_until_woken(&mut engine);
        assert_eq!(engine.handle().now(), Timestamp::ZERO + n * MS);
        assert_eq!((task.ticks().len(), task.take_wakes()), (10, 0));
    }
    // With `Skip`, each wake brings one tick.
    task.future.set_missed(Missed::Skip);
    task.run_until_woken(&mut engine);
    assert_eq!(task.ticks().len(), 1);
    task.run_until_woken(&mut engine);
    assert_eq!(task.ticks().len(), 1);
}

#[test]
fn a_nanosecond_is_a_period() {
    let mut engine = driven();
    let mut task = every(&engine, NANO);
    assert_eq!(task.ticks().len(), 1);
    engine.advance(MS / 100);
    // Within a tick of the engine no task is woken, even if several ticks of the interval have come.
    assert_eq!(task.take_wakes(), 0);
    task.run_until_woken(&mut engine);
    task.future.set_missed(Missed::Skip);
    assert_eq!(task.ticks(), [Timestamp::ZERO + NANO]);
}

// --- Stalls ---

/// Returns the next tick of an interval by the table in `Missed`. Counts up period by period.
fn next_by_the_book(behavior: Missed, due: u64, now: u64, period: u64) -> u64 {
    let is_missed = now - due > period.min(5_000_000);
    match behavior {
        Missed::Delay if is_missed => now + period,
        Missed::Skip if is_missed => {
            let mut next = due;
            while next <= now {
                next += period;
            }
            next
        }
        _ => due + period,
    }
}

/// Goal: after a stall of any length, each tick is the tick that the table in `Missed` demands. Each tick is ready as
/// soon as it is due, and not before. Method: the clock makes steps of many lengths, and a plain count gives the
/// expected ticks.
#[test]
fn stalls_of_all_lengths_end_by_the_book() {
    let mut rng = Rng::new(11);
    let periods = [250_000, 1_000_000, 3_000_000, 5_000_000, 5_000_001, 7_123_457, 40_000_000];
    for round in 0..300 {
        let behavior = ALL[round % 3];
        let period = periods[rng.index(periods.len())];
        let mut engine = driven();
        engine.advance(rng.nanos_below(3 * MS));
        let mut due = engine.handle().now();
        let mut task = every(&engine, Duration::from_nanos(period));
        task.future.set_missed(behavior);
        assert_eq!(task.future.missed(), behavior);
        // Whether the shard knows the tick. Then the tick may take until the engine's next tick. Ticks that came before
        // are ready at once.
        let mut is_armed = false;
        for _ in 0..200 {
            let now = engine.handle().now();
            while let Poll::Ready(tick) = task.tick() {
                assert_eq!(tick, due, "{behavior:?} of {period}");
                assert!(due <= now, "early: {behavior:?} of {period}");
                let next = next_by_the_book(behavior, due.as_nanos(), now.as_nanos(), period);
                due = Timestamp::from_nanos(next);
                is_armed = false;
            }
            let latest = if is_armed { due_tick(due, MS) } else { due };
            assert!(now < latest, "late: {behavior:?} of {period}");
            is_armed = true;
            engine.advance(match rng.below(5) {
                0 => MS,
                1 => rng.nanos_below(2 * MS),
                2 => Duration::from_nanos(period),
                3 => rng.nanos_below(Duration::from_nanos(4 * period)),
                _ => rng.nanos_below(Duration::from_nanos(30 * period)),
            });
        }
    }
}

#[test]
fn what_is_done_about_missed_ticks_may_be_changed_at_any_time() {
    let mut forty = Forty::new(Missed::Burst);
    assert_eq!(forty.task.future.missed(), Missed::Burst);
    assert_eq!(forty.after(100), [0, 40, 80]);
    forty.engine.advance(200 * MS);
    forty.task.future.set_missed(Missed::Skip);
    assert_eq!(forty.after(0), [120]);
    assert_eq!(forty.after(20), [320]);
}

#[test]
fn an_interval_makes_up_for_missed_ticks_by_default() {
    let engine = driven();
    assert_eq!(engine.handle().interval(MS).unwrap().missed(), Missed::Burst);
}

// --- Cancellation ---

#[test]
fn a_tick_is_not_lost_with_the_future_that_waited_for_it() {
    let mut engine = driven();
    let mut interval = engine.handle().interval(10 * MS).unwrap();
    let mut ticks = Vec::new();
    for step in 0..100 {
        // A task waits for the tick and gives up, before the tick has come and after it.
        let mut given_up = Task::new(interval.tick());
        if let Poll::Ready(tick) = given_up.poll() {
            ticks.push(tick);
        }
        drop(given_up);
        if step % 2 == 0 {
            drop(Task::new(interval.tick()));
        }
        engine.advance(MS);
    }
    assert_eq!(ticks, (0..10).map(|n| Timestamp::ZERO + n * 10 * MS).collect::<Vec<_>>());
    assert_eq!(engine.handle().stats().owned.alive, 1);
    drop(interval);
    engine.advance(SECOND);
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().total.tickets), (0, 0));
}

#[test]
fn an_interval_that_is_not_polled_registers_nothing() {
    let mut engine = driven();
    let mut interval = engine.handle().interval(10 * MS).unwrap();
    interval.reset();
    engine.advance(HOUR);
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.posted), (0, 0));
}

#[test]
fn after_a_shutdown_an_interval_says_so() {
    let engine = driven();
    let mut task = Task::new(engine.handle().interval(10 * MS).unwrap());
    let poll = |task: &mut Task<Interval>| task.with(|interval, cx| interval.poll_tick(cx));
    assert!(poll(&mut task).is_ready() && poll(&mut task).is_pending());
    assert_eq!(engine.handle().shutdown().len(), 0);
    assert_eq!(task.take_wakes(), 1);
    assert!(says_shut_down(|| poll(&mut task)));
    let mut interval = task.into_future();
    assert!(matches!(Task::new(interval.try_tick()).poll(), Poll::Ready(Err(_))));
}
