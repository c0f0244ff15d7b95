//! Sleeps that are reset or disarmed.

use crate::support::{HOUR, Log, MS, Rng};
use crate::tasks::{SECOND, Shared, Task, YEAR, driven, due_tick, on_wake};
use std::task::{Poll, Waker};
use tourbillon::{Clock, Timestamp};

#[test]
fn a_reset_before_the_first_poll_is_all_that_counts() {
    let mut engine = driven();
    engine.advance(20 * MS);
    for (first, second) in [(10, 30), (30, 10), (10, 10)] {
        let start = engine.handle().now();
        let mut task = Task::new(engine.handle().sleep(first * MS));
        task.future.reset(start + second * MS);
        task.run(&mut engine);
        assert_eq!(engine.handle().now(), start + second * MS);
    }
    let mut past = Task::new(engine.handle().sleep(10 * MS));
    past.future.reset(Timestamp::ZERO);
    assert_eq!(past.poll(), Poll::Ready(()));
    // The deadline had passed, and was moved on before the first poll.
    let mut future = Task::new(engine.handle().sleep_until(Timestamp::ZERO));
    future.future.reset_after(10 * MS);
    assert!(future.poll().is_pending());
}

#[test]
fn the_last_of_many_resets_counts() {
    let mut engine = driven();
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let start = engine.handle().now();
        let mut task = Task::new(engine.handle().sleep(HOUR));
        assert!(task.poll().is_pending());
        let mut deadline = start;
        for _ in 0..rng.below(10) + 1 {
            deadline = start + MS + rng.nanos_below(SECOND);
            task.future.reset(deadline);
            if rng.chance(30) {
                engine.turn();
            }
        }
        task.run_until_woken(&mut engine);
        assert_eq!(engine.handle().now(), due_tick(deadline, MS));
        assert_eq!(task.poll(), Poll::Ready(()));
    }
}

/// Row R18 of the pitfalls in `src/DESIGN.md`: a sleep is reset when it is due or about to fire. The sleep ends at the
/// new deadline.
#[test]
fn a_sleep_that_is_moved_while_its_old_deadline_fires_ends_at_the_new_one() {
    let mut engine = driven();
    let (one, two) = (Shared::default(), Shared::default());
    let wakes = Log::new();
    let later = Timestamp::ZERO + 50 * MS;
    let wakers: Vec<Waker> = [(0, &two), (1, &one)]
        .map(|(n, other)| {
            let (other, wakes, clock) = (other.clone(), wakes.clone(), engine.clock().clone());
            on_wake(move || {
                wakes.push((n, clock.now()));
                // The other sleep is due in the same tick.
                if clock.now() < later {
                    other.with(|sleep| sleep.reset(later));
                }
            })
        })
        .into();
    for (shared, waker) in [&one, &two].into_iter().zip(&wakers) {
        shared.put(engine.handle().sleep(10 * MS));
        assert!(shared.poll(waker).is_pending());
    }
    engine.advance(10 * MS);
    let first = wakes.take();
    assert_eq!(first.len(), 1, "the one that was moved has fired: {first:?}");
    engine.advance(39 * MS);
    assert_eq!(wakes.len(), 0);
    engine.advance(MS);
    assert_eq!(wakes.take(), [(1 - first[0].0, later)]);
}

#[test]
fn a_sleep_that_is_disarmed_never_ends_and_may_be_reset() {
    // The cases: before the first poll, in the middle of the time, when the time has passed, and once the sleep is
    // over.
    for (polled, passes) in [(false, 0), (false, 20), (true, 0), (true, 5), (true, 10), (true, 20)] {
        let mut engine = driven();
        let mut task = Task::new(engine.handle().sleep(10 * MS));
        assert!(!polled || task.poll().is_pending());
        engine.advance(passes * MS);
        assert_eq!(task.take_wakes(), usize::from(polled && passes >= 10));
        if passes == 20 {
            assert_eq!(task.poll(), Poll::Ready(()));
        }
        task.future.disarm();
        assert!(!task.future.is_elapsed());
        engine.advance(HOUR);
        assert_eq!(task.take_wakes(), 0);
        assert!(task.poll().is_pending());
        engine.advance(YEAR);
        assert_eq!((task.take_wakes(), task.poll()), (0, Poll::Pending));
        let start = engine.handle().now();
        task.future.reset_after(10 * MS);
        task.run_until_woken(&mut engine);
        assert_eq!((engine.handle().now(), task.poll()), (start + 10 * MS, Poll::Ready(())));
    }
}

#[test]
fn a_sleep_that_is_disarmed_and_reset_wakes_who_polled_it_last() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(10 * MS));
    assert!(task.poll().is_pending());
    for _ in 0..100 {
        task.future.disarm();
        task.future.disarm();
        engine.advance(MS);
        task.future.reset_after(10 * MS);
        engine.advance(MS);
    }
    assert_eq!((task.take_wakes(), engine.handle().stats().owned.fired), (0, 0));
    engine.advance(9 * MS);
    assert_eq!((task.take_wakes(), task.poll()), (1, Poll::Ready(())));
}

#[test]
fn an_idle_timeout_that_each_event_resets_costs_next_to_nothing() {
    // A loop around a select does the same. Events come, and the sleep is reset and then polled with the other futures.
    let mut engine = driven();
    let mut idle = Task::new(engine.handle().sleep(30 * SECOND));
    for _event in 0..10_000 {
        assert!(idle.poll().is_pending());
        engine.advance(10 * MS);
        assert_eq!(idle.take_wakes(), 0);
        idle.future.reset_after(30 * SECOND);
    }
    let last = engine.handle().now();
    assert_eq!(engine.handle().stats().owned.posted, 1);
    assert!(engine.handle().stats().owned.postponed <= 5, "{:?}", engine.handle().stats().owned);
    idle.run_until_woken(&mut engine);
    assert_eq!(engine.handle().now(), last + 30 * SECOND);
    assert_eq!(idle.poll(), Poll::Ready(()));
}
