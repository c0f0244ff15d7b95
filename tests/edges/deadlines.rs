//! Deadlines that have passed, and the farthest deadlines.

use crate::support::{HOUR, Log, MS, payloads, recording, wait_until, within_patience};
use crate::{SECOND, at};
use std::time::Duration;
use tourbillon::{Builder, Cancel, Engine, Fired, Timestamp};

#[test]
fn zero_and_past_deadlines_fire_on_the_next_turn() {
    let (mut engine, log) = recording(Builder::new());
    engine.advance(5 * SECOND);
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_at(engine.handle().now(), 1).unwrap();
    engine.handle().schedule_at(at(SECOND), 2).unwrap();
    engine.handle().schedule_at(Timestamp::ZERO, 3).unwrap();
    engine.turn();
    let shots = log.take();
    assert_eq!(payloads(&shots), [0, 1, 2, 3]);
    assert!(shots.iter().all(|shot| shot.at == at(5 * SECOND)));
    assert!(engine.handle().stats().total.lateness.max >= 5 * SECOND);
}

#[test]
fn a_deadline_inside_the_present_tick_fires_with_the_next_one() {
    // Every deadline is rounded up, even if it has passed.
    let (mut engine, log) = recording(Builder::new());
    engine.advance(MS / 2);
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_at(at(MS / 4), 1).unwrap();
    engine.turn();
    assert_eq!(log.len(), 0);
    engine.advance(MS / 2);
    assert_eq!(payloads(&log.take()), [0, 1]);
}

#[test]
fn a_turn_ends_though_every_timer_rearms_itself_at_once() {
    // There are more timers than one slice of work takes.
    let fired = within_patience(|| {
        let mut engine = Builder::new()
            .driven(|timer: Fired<'_, u64>| {
                timer.engine().schedule(Duration::ZERO, timer.payload).unwrap();
            })
            .unwrap();
        for n in 0..20_000 {
            engine.handle().schedule(Duration::ZERO, n).unwrap();
        }
        engine.turn();
        engine.handle().stats().fired
    });
    assert_eq!(fired, 20_000);
}

#[test]
fn zero_and_past_deadlines_fire_in_a_threaded_engine() {
    let log = Log::new();
    let sink = log.clone();
    let engine = Engine::new(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    engine.handle().schedule(Duration::ZERO, 0).unwrap();
    engine.handle().schedule_at(Timestamp::ZERO, 1).unwrap();
    wait_until("both have fired", || log.len() == 2);
}

#[test]
fn the_longest_delay_saturates_and_stays_cancellable() {
    let (mut engine, log) = recording(Builder::new().tick(Duration::from_micros(1)));
    let longest = engine.handle().schedule(Duration::MAX, 0).unwrap();
    let last = engine.handle().schedule_at(Timestamp::MAX, 1).unwrap();
    assert_eq!(engine.handle().deadline(longest), Some(Timestamp::MAX));
    engine.advance(100_000 * HOUR);
    let last = engine.handle().reschedule(last, Duration::MAX).unwrap();
    assert_eq!(engine.handle().cancel(longest), Cancel::Cancelled(0));
    assert_eq!(engine.handle().cancel(last), Cancel::Cancelled(1));
    assert_eq!(log.len(), 0);
}
