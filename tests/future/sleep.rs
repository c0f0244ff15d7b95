//! Sleeps, on a clock that the test moves.

use crate::support::{HOUR, Log, MS};
use crate::tasks::{
    SECOND, Task, YEAR, bell, driven, driven_with, due_tick, is_cut_off, poll_with, says_shut_down,
};
use std::future::Future;
use std::task::Poll;
use std::time::Duration;
use tourbillon::future::Sleep;
use tourbillon::{Builder, Timestamp};

// --- After tokio's cases ---

#[test]
fn a_sleep_until_now_is_over_when_it_is_first_polled() {
    let mut engine = driven();
    engine.advance(7 * MS + MS / 3);
    for deadline in
        [engine.handle().now(), Timestamp::ZERO, Timestamp::from_nanos(1), Timestamp::ZERO + 7 * MS]
    {
        let mut task = Task::new(engine.handle().sleep_until(deadline));
        assert!(task.future.is_elapsed());
        assert_eq!(task.poll(), Poll::Ready(()));
        assert_eq!(task.future.deadline(), deadline);
    }
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.posted), (0, 0));
}

#[test]
fn sleeps_without_a_delay_cost_no_time() {
    let engine = driven();
    for _ in 0..1_000 {
        assert_eq!(Task::new(engine.handle().sleep(Duration::ZERO)).poll(), Poll::Ready(()));
    }
    assert_eq!(engine.handle().now(), Timestamp::ZERO);
}

#[test]
fn it_has_elapsed_from_its_deadline_on() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(10 * MS));
    assert!(!task.future.is_elapsed());
    assert!(task.poll().is_pending());
    engine.advance(10 * MS - Duration::from_nanos(1));
    assert!(!task.future.is_elapsed());
    engine.advance(Duration::from_nanos(1));
    // The sleep has elapsed before its first poll and after it.
    assert!(task.future.is_elapsed());
    assert_eq!(task.poll(), Poll::Ready(()));
    assert!(task.future.is_elapsed());
}

#[test]
fn each_sleep_ends_at_the_tick_of_its_deadline() {
    // The deadlines are around the borders of the wheel's levels, and the starts are before and after these borders.
    let mut engine = driven();
    for from in [0, 5, 63, 64, 250, 4_095, 65_530] {
        engine.advance(from * MS);
        for ticks in [1, 2, 10, 59, 60, 63, 64, 65, 255, 256, 257, 4_095, 4_096, 70_000] {
            let start = engine.handle().now();
            Task::new(engine.handle().sleep(ticks * MS)).run(&mut engine);
            assert_eq!(engine.handle().now(), start + ticks * MS);
        }
    }
}

#[test]
fn a_nanosecond_more_is_a_tick_more() {
    let mut engine = driven();
    for _ in 0..5 {
        let start = engine.handle().now();
        Task::new(engine.handle().sleep(MS + Duration::from_nanos(1))).run(&mut engine);
        assert_eq!(engine.handle().now(), start + 2 * MS);
    }
    // The rest of the present tick also counts.
    engine.advance(MS / 2);
    let start = engine.handle().now();
    Task::new(engine.handle().sleep(MS / 4)).run(&mut engine);
    assert_eq!(engine.handle().now(), start + MS / 2);
}

#[test]
fn a_reset_to_a_later_deadline_wakes_at_that_one_alone() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(100 * MS));
    assert!(task.poll().is_pending());
    task.future.reset(Timestamp::ZERO + 200 * MS);
    engine.advance(199 * MS);
    assert_eq!(task.take_wakes(), 0);
    assert!(task.poll().is_pending());
    engine.advance(MS);
    assert_eq!(task.take_wakes(), 1);
    assert_eq!(task.poll(), Poll::Ready(()));
}

#[test]
fn a_reset_to_an_earlier_deadline_wakes_at_that_one() {
    // The reset comes before or after the shard has seen the first deadline, with or without a poll in between.
    for (turned, polled) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut engine = driven();
        let mut task = Task::new(engine.handle().sleep(100 * MS));
        assert!(task.poll().is_pending());
        if turned {
            engine.advance(10 * MS);
        }
        task.future.reset(Timestamp::ZERO + 80 * MS);
        if polled {
            assert!(task.poll().is_pending());
        }
        task.run_until_woken(&mut engine);
        assert_eq!(engine.handle().now(), Timestamp::ZERO + 80 * MS);
        assert_eq!(task.poll(), Poll::Ready(()));
        engine.advance(SECOND);
        assert_eq!(task.take_wakes(), 0, "the old deadline woke it too");
    }
}

/// Row R18 of the pitfalls in `src/DESIGN.md`: a sleep is reset after it has completed.
#[test]
fn a_reset_after_completion_begins_anew() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(100 * MS));
    task.run(&mut engine);
    assert_eq!(task.poll(), Poll::Ready(()));
    for round in 0..10 {
        let start = engine.handle().now();
        let delay = (10 + round) * MS;
        task.future.reset(start + delay);
        assert!(!task.future.is_elapsed());
        task.run(&mut engine);
        assert_eq!(engine.handle().now(), start + delay);
    }
    // The sleep is reset to another deadline than before, and polled twice.
    task.future.reset_after(600 * SECOND);
    assert!(task.poll().is_pending());
    assert!(task.poll().is_pending());
    assert_eq!(engine.handle().stats().owned.alive, 1);
}

/// Row R18 of the pitfalls in `src/DESIGN.md`: a sleep is reset to a moment that has passed.
#[test]
fn a_reset_to_the_past_ends_it_with_the_next_poll() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(100 * MS));
    assert!(task.poll().is_pending());
    engine.advance(50 * MS);
    assert_eq!(task.take_wakes(), 0);
    task.future.reset(Timestamp::ZERO + 40 * MS);
    assert!(task.future.is_elapsed());
    assert_eq!(task.poll(), Poll::Ready(()));
}

#[test]
fn a_reset_to_the_past_wakes_the_task_with_the_next_turn() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(100 * MS));
    assert!(task.poll().is_pending());
    engine.advance(50 * MS);
    task.future.reset(Timestamp::ZERO + 40 * MS);
    engine.turn();
    assert_eq!((task.take_wakes(), engine.handle().now()), (1, Timestamp::ZERO + 50 * MS));
    assert_eq!(task.poll(), Poll::Ready(()));
}

/// Row R3 of the pitfalls in `src/DESIGN.md`: no delay overflows. Row P14, for futures: a delay of years has not too
/// many ticks.
#[test]
fn sleeps_of_years_end_on_their_tick() {
    let mut engine = driven();
    for years in [1, 1, 1, 1, 1, 5, 10, 100] {
        let start = engine.handle().now();
        Task::new(engine.handle().sleep(years * YEAR)).run(&mut engine);
        assert_eq!(engine.handle().now(), start + years * YEAR);
    }
}

/// Sleeps until the end of time never end, and hide no short sleep.
#[test]
fn the_longest_sleeps_never_end_and_hide_no_short_one() {
    for delay in [Duration::MAX, Duration::MAX - MS, Duration::from_secs(u64::MAX / 10)] {
        let mut engine = driven();
        engine.advance(MS / 2);
        let mut longest = Task::new(engine.handle().sleep(delay));
        assert_eq!(longest.future.deadline(), Timestamp::MAX);
        assert!(longest.poll().is_pending());
        Task::new(engine.handle().sleep(Duration::from_nanos(1))).run(&mut engine);
        assert_eq!(engine.handle().now(), Timestamp::ZERO + MS);
        engine.advance(500 * YEAR);
        assert!(longest.poll().is_pending());
        engine.advance_to(Timestamp::MAX);
        assert_eq!(longest.take_wakes(), 0);
        longest.future.reset(Timestamp::ZERO);
        engine.turn();
        assert_eq!(longest.poll(), Poll::Ready(()));
    }
}

/// Row R2 of the pitfalls in `src/DESIGN.md`: deadlines near values that look like sentinels are ordinary deadlines.
#[test]
fn sleeps_end_up_to_the_last_tick() {
    let last_tick = u64::MAX / 1_000_000 * 1_000_000;
    for deadline in [1, 2, 1 << 20, (1 << 40) - 1, 1 << 40, 1 << 63, last_tick - 1, last_tick] {
        let mut engine = driven();
        let mut task = Task::new(engine.handle().sleep_until(Timestamp::from_nanos(deadline)));
        assert!(task.poll().is_pending());
        task.run_until_woken(&mut engine);
        assert_eq!(engine.handle().now(), due_tick(Timestamp::from_nanos(deadline), MS), "{deadline}");
        assert_eq!(task.poll(), Poll::Ready(()), "{deadline}");
    }
}

#[test]
fn one_that_was_moved_to_another_tick_is_dropped_there() {
    let mut engine = driven();
    let mut tasks = [5, 5, 10].map(|ticks| Task::new(engine.handle().sleep(ticks * MS)));
    for task in &mut tasks {
        assert!(task.poll().is_pending());
    }
    let [mut first, mut moved, mut last] = tasks;
    moved.future.reset(Timestamp::ZERO + 10 * MS);
    first.run(&mut engine);
    assert_eq!((engine.handle().now(), moved.take_wakes()), (Timestamp::ZERO + 5 * MS, 0));
    drop(moved);
    assert_eq!(engine.handle().stats().owned.alive, 2);
    last.run(&mut engine);
    assert_eq!(engine.handle().now(), Timestamp::ZERO + 10 * MS);
}

#[test]
fn a_sleep_keeps_to_its_own_engine() {
    let mut mine = driven();
    let mut other = driven();
    mine.advance(HOUR);
    let mut task = Task::new(mine.handle().sleep(MS));
    assert!(task.poll().is_pending());
    // The sleep is reset and polled while the other engine works.
    other.advance(10 * HOUR);
    task.future.reset_after(2 * MS);
    assert_eq!(task.future.deadline(), Timestamp::ZERO + HOUR + 2 * MS);
    assert!(task.poll().is_pending());
    other.advance(10 * HOUR);
    assert_eq!((task.take_wakes(), other.handle().stats().owned.posted), (0, 0));
    mine.advance(2 * MS);
    assert_eq!(task.take_wakes(), 1);
    assert_eq!(task.poll(), Poll::Ready(()));
}

/// Row R25 of the pitfalls in `src/DESIGN.md`, as far as it concerns this crate: a task that never rests still gets its
/// sleep's end in time.
#[test]
fn a_task_that_never_rests_sleeps_no_longer() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(10 * MS));
    for tenth in 0..100 {
        assert!(task.poll().is_pending(), "early at {tenth}");
        engine.advance(MS / 10);
    }
    assert_eq!(task.poll(), Poll::Ready(()));
    assert_eq!((task.take_wakes(), engine.handle().stats().owned.posted), (1, 1));
}

// --- The cost of a sleep ---

#[test]
fn a_sleep_that_is_not_polled_registers_nothing() {
    let mut engine = driven();
    let mut sleeps: Vec<Sleep> = (0..100).map(|n| engine.handle().sleep(n * MS)).collect();
    for sleep in &mut sleeps {
        sleep.reset_after(HOUR);
        assert!(!sleep.is_elapsed());
    }
    engine.advance(HOUR / 2);
    let stats = engine.handle().stats();
    assert_eq!((stats.owned.alive, stats.owned.posted, stats.total.tickets), (0, 0, 0));
    assert_eq!(stats.scheduled, 0);
}

#[test]
fn a_sleep_that_is_dropped_is_disarmed_and_leaves_nothing() {
    // The drop comes before the shard has seen the ticket (row R13), or after.
    for turned in [false, true] {
        let mut engine = driven();
        let mut tasks: Vec<_> = (1..=1_000).map(|n| Task::new(engine.handle().sleep(n * MS))).collect();
        for task in &mut tasks {
            assert!(task.poll().is_pending());
        }
        if turned {
            engine.turn();
        }
        assert_eq!(engine.handle().stats().owned.alive, 1_000);
        let kept = tasks.split_off(999).pop().unwrap();
        let bells: Vec<_> = tasks.into_iter().map(Task::drop_future).collect();
        assert_eq!(engine.handle().stats().owned.alive, 1);
        engine.advance(SECOND);
        assert!(bells.iter().all(|bell| bell.take() == 0));
        assert_eq!(kept.take_wakes(), 1);
        drop(kept);
        let stats = engine.handle().stats();
        assert_eq!((stats.owned.alive, stats.owned.fired, stats.total.tickets), (0, 1, 0));
    }
}

#[test]
fn slots_of_dropped_sleeps_are_used_again() {
    let engine = driven_with(Builder::new().capacity(1));
    for _ in 0..10_000 {
        let mut task = Task::new(engine.handle().sleep(HOUR));
        assert!(task.poll().is_pending());
        assert_eq!(task.take_wakes(), 0, "there was no room");
        assert_eq!(engine.handle().stats().owned.alive, 1);
    }
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn completion_lasts() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().sleep(10 * MS));
    task.run(&mut engine);
    for _ in 0..100 {
        assert_eq!(task.poll(), Poll::Ready(()));
        engine.advance(10 * MS);
    }
    assert_eq!((task.take_wakes(), engine.handle().stats().owned.fired), (0, 1));
}

// --- A clock that steps back (rows P11 and R9) ---

#[test]
fn a_sleep_waits_until_a_clock_that_stepped_back_has_caught_up() {
    let mut engine = driven();
    let mut old = Task::new(engine.handle().sleep(100 * MS));
    assert!(old.poll().is_pending());
    engine.advance(50 * MS);
    engine.clock().set(Timestamp::ZERO + 20 * MS);
    let mut new = Task::new(engine.handle().sleep(10 * MS));
    for now in 20..30 {
        engine.advance_to(Timestamp::ZERO + now * MS);
        assert!(old.poll().is_pending() && new.poll().is_pending(), "early at {now}");
    }
    engine.advance_to(Timestamp::ZERO + 51 * MS);
    assert_eq!((new.take_wakes(), new.poll()), (1, Poll::Ready(())));
    assert!(old.poll().is_pending());
    old.run(&mut engine);
    assert_eq!(engine.handle().now(), Timestamp::ZERO + 100 * MS);
}

#[test]
fn a_sleep_that_is_used_again_after_the_clock_stepped_back_is_not_early() {
    // The reset is to an earlier moment than the last end of the sleep, or to the same moment.
    for deadline in [60, 100] {
        let deadline = Timestamp::ZERO + deadline * MS;
        let mut engine = driven();
        let mut task = Task::new(engine.handle().sleep(100 * MS));
        task.run(&mut engine);
        engine.clock().set(Timestamp::ZERO + 50 * MS);
        task.future.reset(deadline);
        assert!(!task.future.is_elapsed());
        assert!(task.poll().is_pending(), "early");
        engine.advance_to(Timestamp::ZERO + 59 * MS);
        assert!(task.poll().is_pending(), "early");
        task.run(&mut engine);
        assert!(engine.handle().now() >= deadline);
    }
}

// --- Full, and shut down ---

#[test]
fn while_the_engine_is_full_a_sleep_keeps_polling_and_is_not_early() {
    let mut engine = driven_with(Builder::new().capacity(1));
    let mut holder = Task::new(engine.handle().sleep(HOUR));
    assert!(holder.poll().is_pending());
    let mut crowded = Task::new(engine.handle().sleep(10 * MS));
    for tenth in 0..100 {
        assert!(crowded.poll().is_pending(), "early at {tenth}");
        assert_eq!(crowded.take_wakes(), 1, "it would not poll again");
        engine.advance(MS / 10);
    }
    assert_eq!(crowded.poll(), Poll::Ready(()));
    assert_eq!(engine.handle().stats().owned.alive, 1);
}

#[test]
fn a_sleep_takes_the_slot_that_comes_free() {
    let mut engine = driven_with(Builder::new().capacity(1));
    let mut holder = Task::new(engine.handle().sleep(HOUR));
    assert!(holder.poll().is_pending());
    let mut crowded = Task::new(engine.handle().sleep(10 * MS));
    assert!(crowded.poll().is_pending());
    assert_eq!(crowded.take_wakes(), 1);
    crowded.future.reset_after(20 * MS);
    drop(holder);
    crowded.run(&mut engine);
    assert_eq!(engine.handle().now(), Timestamp::ZERO + 20 * MS);
    assert_eq!(engine.handle().stats().owned.fired, 1);
}

#[test]
fn a_sleep_that_was_under_way_when_its_engine_was_shut_down_is_woken_and_says_so() {
    let mut engine = driven();
    let mut early = Task::new(engine.handle().sleep(10 * MS));
    let mut over = Task::new(engine.handle().sleep(MS));
    for task in [&mut early, &mut over] {
        assert!(task.poll().is_pending());
    }
    engine.advance(5 * MS);
    assert_eq!((early.take_wakes(), over.take_wakes()), (0, 1));
    assert_eq!(engine.handle().shutdown().len(), 0, "what a handle owns comes back with nobody");
    assert_eq!(early.take_wakes(), 1, "it would wait for ever");
    for _ in 0..2 {
        assert!(says_shut_down(|| early.poll()) && is_cut_off(&mut early.future));
    }
    // The sleep had ended before the shutdown, and still reports its end.
    assert_eq!(over.poll(), Poll::Ready(()));
    drop((early, over));
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn a_sleep_that_begins_after_the_shutdown_says_so() {
    let engine = driven();
    let mut before = Task::new(engine.handle().sleep(10 * MS));
    assert_eq!(engine.handle().shutdown().len(), 0);
    let mut after = Task::new(engine.handle().sleep(10 * MS));
    for task in [&mut before, &mut after] {
        assert!(says_shut_down(|| task.poll()));
        task.future.reset_after(20 * MS);
        assert!(is_cut_off(&mut task.future));
        assert_eq!(task.take_wakes(), 0, "it would poll for ever");
    }
}

#[test]
fn a_sleep_whose_deadline_has_come_completes_without_its_engine() {
    let mut engine = driven();
    let mut polled = Task::new(engine.handle().sleep(10 * MS));
    assert!(polled.poll().is_pending());
    let mut fresh = Task::new(engine.handle().sleep(10 * MS));
    assert_eq!(engine.handle().shutdown().len(), 0);
    engine.advance(10 * MS - MS / 2);
    assert!(is_cut_off(&mut polled.future) && is_cut_off(&mut fresh.future), "early");
    engine.advance(MS / 2);
    assert_eq!((polled.poll(), fresh.poll()), (Poll::Ready(()), Poll::Ready(())));
}

/// A disarmed sleep waits for ever. After a reset to a far deadline, the sleep reports the engine's shutdown.
#[test]
fn a_sleep_that_is_disarmed_is_told_of_the_shutdown_by_its_reset() {
    let engine = driven();
    let mut task = Task::new(engine.handle().sleep(10 * MS));
    assert!(task.poll().is_pending());
    task.future.disarm();
    assert_eq!(engine.handle().shutdown().len(), 0);
    task.take_wakes();
    assert!(task.poll().is_pending());
    assert_eq!(task.take_wakes(), 0);
    task.future.reset_after(10 * MS);
    assert_eq!(task.take_wakes(), 1);
    assert!(says_shut_down(|| task.poll()));
}

// --- From async code ---

#[test]
fn sleeps_are_awaited_one_after_the_other() {
    let mut engine = driven();
    let handle = engine.handle().clone();
    let log = Log::new();
    let mut task = Task::new({
        let log = log.clone();
        async move {
            for n in 1..=5_u32 {
                handle.sleep(n * 10 * MS).await;
                log.push(handle.now() - Timestamp::ZERO);
            }
        }
    });
    task.run(&mut engine);
    assert_eq!(log.take(), [10, 30, 60, 100, 150].map(|ticks: u32| ticks * MS));
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

#[test]
fn of_two_sleeps_the_loser_may_be_polled_on() {
    // This is a select in a loop, by reference. The slow sleep goes on, and each round has a new fast sleep.
    let mut engine = driven();
    let (bell, waker) = bell();
    let mut slow = engine.handle().sleep(95 * MS);
    let mut rounds = 0;
    'slow: loop {
        let mut fast = engine.handle().sleep(10 * MS);
        loop {
            if poll_with(&mut slow, &waker).is_ready() {
                break 'slow;
            }
            if poll_with(&mut fast, &waker).is_ready() {
                rounds += 1;
                break;
            }
            while bell.take() == 0 {
                let next = engine.next_expiry().expect("somebody wakes it");
                engine.advance_to(next);
            }
        }
    }
    assert_eq!((rounds, engine.handle().now()), (9, Timestamp::ZERO + 95 * MS));
}

#[test]
fn a_sleep_says_what_it_is() {
    let engine = driven();
    let sleep = engine.handle().sleep(MS);
    assert_eq!(sleep.deadline(), Timestamp::ZERO + MS);
    assert!(format!("{sleep:?}").starts_with("Sleep { deadline: "));
    fn is_future<F: Future<Output = ()>>(_: &F) {}
    is_future(&sleep);
}
