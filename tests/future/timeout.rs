//! Timeouts, which limit the time of other futures.

use crate::support::{HOUR, MS};
use crate::tasks::{Answer, SECOND, Task, YEAR, driven, driven_with, expect_panic};
use std::error::Error;
use std::future::{IntoFuture, pending, poll_fn, ready};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tourbillon::future::{Elapsed, Wakeup};
use tourbillon::{Builder, DrivenEngine, Timestamp};

// --- After tokio's cases ---

#[test]
fn what_is_ready_is_never_timed_out() {
    let mut engine = driven();
    engine.advance(5 * SECOND);
    for deadline in [engine.handle().now(), Timestamp::ZERO, Timestamp::ZERO + 4 * SECOND, Timestamp::MAX] {
        assert_eq!(Task::new(engine.handle().timeout_at(deadline, async { 17 })).poll(), Poll::Ready(Ok(17)));
    }
    for delay in [Duration::ZERO, HOUR, Duration::MAX] {
        assert_eq!(
            Task::new(engine.handle().timeout(delay, ready("at once"))).poll(),
            Poll::Ready(Ok("at once"))
        );
    }
    let owned = engine.handle().stats().owned;
    assert_eq!((owned.alive, owned.posted), (0, 0), "a timer was made for nothing");
}

/// Polls a timeout of 100 ms whose inner future answers after 90 ms.
fn an_answer_in_time(
    engine: &mut DrivenEngine<Wakeup>,
    answer: &Answer<u32>,
    mut task: Task<impl Future<Output = Result<u32, Elapsed>>>,
) {
    assert!(task.poll().is_pending());
    engine.advance(90 * MS);
    assert_eq!(task.take_wakes(), 0);
    assert!(task.poll().is_pending());
    answer.give(17);
    assert_eq!(task.take_wakes(), 1);
    assert_eq!(task.poll(), Poll::Ready(Ok(17)));
    // A timeout that was dropped does nothing at its deadline.
    let bell = task.drop_future();
    engine.advance(SECOND);
    assert_eq!(
        (bell.take(), engine.handle().stats().owned.alive, engine.handle().stats().owned.fired),
        (0, 0, 0)
    );
}

#[test]
fn an_answer_before_the_deadline_is_given_on() {
    let (mut engine, answer) = (driven(), Answer::new());
    let task = Task::new(engine.handle().timeout(100 * MS, answer.clone()));
    an_answer_in_time(&mut engine, &answer, task);
    let (mut engine, answer) = (driven(), Answer::new());
    let task = Task::new(engine.handle().timeout_at(Timestamp::ZERO + 100 * MS, answer.clone()));
    an_answer_in_time(&mut engine, &answer, task);
    let (mut engine, answer) = (driven(), Answer::new());
    let mut timeout = engine.handle().reusable_timeout();
    let task = Task::new({
        let answer = answer.clone();
        async move { timeout.timeout(100 * MS, answer).await }
    });
    an_answer_in_time(&mut engine, &answer, task);
}

#[test]
fn a_very_large_timeout_is_one() {
    for delay in [Duration::MAX, Duration::from_secs(u64::MAX)] {
        let (mut engine, answer) = (driven(), Answer::new());
        let mut task = Task::new(engine.handle().timeout(delay, answer.clone()));
        assert!(task.poll().is_pending());
        engine.advance(10 * YEAR);
        assert!(task.poll().is_pending());
        answer.give(17);
        assert_eq!((task.take_wakes(), task.poll()), (1, Poll::Ready(Ok(17))));
    }
}

#[test]
fn what_never_ends_is_timed_out_at_its_deadline() {
    let mut engine = driven();
    let mut task = Task::new(engine.handle().timeout(300 * MS, pending::<()>()));
    assert!(task.poll().is_pending());
    engine.advance(300 * MS - Duration::from_nanos(1));
    assert_eq!((task.take_wakes(), task.poll()), (0, Poll::Pending));
    engine.advance(Duration::from_nanos(1));
    assert_eq!(task.take_wakes(), 1);
    assert!(matches!(task.poll(), Poll::Ready(Err(Elapsed { .. }))));
}

#[test]
fn a_deadline_that_has_come_elapses_with_the_first_poll() {
    let mut engine = driven();
    engine.advance(SECOND);
    for deadline in [engine.handle().now(), Timestamp::ZERO, Timestamp::ZERO + MS] {
        let mut task = Task::new(engine.handle().timeout_at(deadline, pending::<()>()));
        assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    }
    assert!(matches!(
        Task::new(engine.handle().timeout(Duration::ZERO, pending::<()>())).poll(),
        Poll::Ready(Err(_))
    ));
    let mut reusable = engine.handle().reusable_timeout();
    assert!(matches!(
        Task::new(reusable.timeout(Duration::ZERO, pending::<()>())).poll(),
        Poll::Ready(Err(_))
    ));
    assert_eq!(engine.handle().stats().owned.alive, 0);
}

/// Row R25 of the pitfalls in `src/DESIGN.md`: a timeout polls its future before it checks the deadline. The future may
/// demand to be polled for ever, and still times out.
#[test]
fn a_future_that_never_rests_is_timed_out_all_the_same() {
    let mut engine = driven();
    let mut polls = 0;
    let mut task = Task::new(engine.handle().timeout(
        10 * MS,
        poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }),
    ));
    while task.poll().is_pending() {
        assert!(task.take_wakes() > 0 && engine.handle().now() < Timestamp::ZERO + 10 * MS);
        engine.advance(MS / 10);
    }
    drop(task);
    assert_eq!((engine.handle().now(), polls), (Timestamp::ZERO + 10 * MS, 101));
}

// --- Edges ---

#[test]
fn a_timeout_that_is_not_polled_registers_nothing() {
    let mut engine = driven();
    let timeouts: Vec<_> = (0..100).map(|n| engine.handle().timeout(n * MS, pending::<()>())).collect();
    engine.advance(SECOND);
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.posted), (0, 0));
    drop(timeouts);
    let mut reusable = engine.handle().reusable_timeout();
    drop(reusable.timeout(MS, pending::<()>()));
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.posted), (0, 0));
}

#[test]
fn an_answer_that_came_with_the_deadline_is_taken() {
    // By the next poll the answer is there and the deadline has passed. The future is polled first.
    let (mut engine, answer) = (driven(), Answer::new());
    let mut task = Task::new(engine.handle().timeout(10 * MS, answer.clone()));
    assert!(task.poll().is_pending());
    engine.advance(20 * MS);
    answer.give(17);
    assert_eq!(task.poll(), Poll::Ready(Ok(17)));
}

#[test]
fn the_future_outlives_its_time() {
    // The future is not dropped when the deadline passes. It can be taken back and awaited again.
    let (mut engine, answer) = (driven(), Answer::new());
    let kept = Arc::new(());
    let mut task = Task::new(engine.handle().timeout(10 * MS, {
        let (answer, kept) = (answer.clone(), Arc::clone(&kept));
        Box::pin(async move {
            let _kept = kept;
            answer.await
        })
    }));
    assert!(task.run(&mut engine).is_err());
    assert_eq!(Arc::strong_count(&kept), 2);
    let mut again = Task::new(engine.handle().timeout(10 * MS, task.into_future().into_inner()));
    assert!(again.poll().is_pending());
    answer.give(17);
    assert_eq!(again.poll(), Poll::Ready(Ok(17)));
    drop(again);
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn the_future_is_within_reach() {
    let engine = driven();
    let mut timeout = engine.handle().timeout(MS, ready(1));
    assert_eq!(timeout.get_ref().clone().into_inner(), 1);
    *timeout.get_mut() = ready(2);
    assert_eq!(timeout.into_inner().into_inner(), 2);
}

#[test]
fn a_timeout_that_is_dropped_in_the_middle_cancels_both() {
    let mut engine = driven();
    let kept = Arc::new(());
    let bells: Vec<_> = (1..=100)
        .map(|n| {
            let kept = Arc::clone(&kept);
            let mut task = Task::new(engine.handle().timeout(n * MS, async move {
                pending::<()>().await;
                drop(kept);
            }));
            assert!(task.poll().is_pending());
            engine.advance(MS / 100);
            task.drop_future()
        })
        .collect();
    assert_eq!((Arc::strong_count(&kept), engine.handle().stats().owned.alive), (1, 0));
    engine.advance(SECOND);
    assert!(bells.iter().all(|bell| bell.take() == 0));
    assert_eq!((engine.handle().stats().owned.fired, engine.handle().stats().total.tickets), (0, 0));
}

/// Row R21 of the pitfalls in `src/DESIGN.md`: the future inside a timeout panics.
#[test]
fn a_future_that_panics_leaves_nothing_behind() {
    let mut engine = driven();
    let mut polls = 0;
    let mut task = Task::new(engine.handle().timeout(
        10 * MS,
        poll_fn(|_| {
            polls += 1;
            assert!(polls < 2, "the second poll panics");
            Poll::<()>::Pending
        }),
    ));
    assert!(task.poll().is_pending());
    expect_panic(|| task.poll());
    assert_eq!(engine.handle().stats().owned.alive, 1);
    drop(task);
    engine.advance(SECOND);
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.fired), (0, 0));
}

#[test]
fn timeouts_nest_and_the_shorter_one_wins() {
    for (outer, inner) in [(10, 20), (20, 10)] {
        let mut engine = driven();
        let timeout =
            engine.handle().timeout(outer * MS, engine.handle().timeout(inner * MS, pending::<()>()));
        let outcome = Task::new(timeout).run(&mut engine);
        assert_eq!(engine.handle().now(), Timestamp::ZERO + 10 * MS);
        assert_eq!(
            (outcome.is_err(), outcome.is_ok_and(|inner| inner.is_err())),
            (outer < inner, inner < outer)
        );
    }
}

#[test]
fn whatever_becomes_a_future_may_be_limited() {
    struct Seventeen;
    impl IntoFuture for Seventeen {
        type Output = u32;
        type IntoFuture = std::future::Ready<u32>;

        fn into_future(self) -> Self::IntoFuture {
            ready(17)
        }
    }
    let engine = driven();
    let mut reusable = engine.handle().reusable_timeout();
    assert_eq!(Task::new(engine.handle().timeout(MS, Seventeen)).poll(), Poll::Ready(Ok(17)));
    assert_eq!(Task::new(engine.handle().timeout_at(Timestamp::MAX, Seventeen)).poll(), Poll::Ready(Ok(17)));
    assert_eq!(Task::new(reusable.timeout(MS, Seventeen)).poll(), Poll::Ready(Ok(17)));
}

#[test]
fn elapsed_is_an_error_that_turns_into_an_io_error() {
    let engine = driven();
    let Poll::Ready(Err(elapsed)) =
        Task::new(engine.handle().timeout(Duration::ZERO, pending::<()>())).poll()
    else {
        panic!("it has not elapsed")
    };
    assert_eq!(elapsed.to_string(), "the deadline has elapsed");
    assert!((&elapsed as &dyn Error).source().is_none());
    let error = io::Error::from(elapsed);
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::TimedOut, elapsed.to_string()));
    assert_eq!(error.get_ref().and_then(|inner| inner.downcast_ref::<Elapsed>()), Some(&elapsed));
    // A function that reads and writes uses the error in this way.
    fn read(outcome: Result<io::Result<()>, Elapsed>) -> io::Result<()> {
        outcome?
    }
    assert_eq!(read(Err(elapsed)).unwrap_err().kind(), io::ErrorKind::TimedOut);
}

// --- Full, and shut down ---

#[test]
fn while_the_engine_is_full_a_timeout_keeps_polling_and_is_not_early() {
    let mut engine = driven_with(Builder::new().capacity(1));
    let mut holder = Task::new(engine.handle().sleep(HOUR));
    assert!(holder.poll().is_pending());
    let mut task = Task::new(engine.handle().timeout(10 * MS, pending::<()>()));
    let answer = Answer::new();
    let mut other = Task::new(engine.handle().timeout(10 * MS, answer.clone()));
    for tenth in 0..100 {
        assert!(task.poll().is_pending() && other.poll().is_pending(), "early at {tenth}");
        assert_eq!((task.take_wakes(), other.take_wakes()), (1, 1), "they would not poll again");
        engine.advance(MS / 10);
    }
    answer.give(17);
    assert_eq!(other.poll(), Poll::Ready(Ok(17)));
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
}

#[test]
fn while_the_engine_is_full_a_reusable_timeout_is_no_worse() {
    let mut engine = driven_with(Builder::new().capacity(1));
    let mut holder = Task::new(engine.handle().sleep(HOUR));
    assert!(holder.poll().is_pending());
    let mut timeout = engine.handle().reusable_timeout();
    let mut task = Task::new(timeout.timeout(10 * MS, pending::<()>()));
    for tenth in 0..100 {
        assert!(task.poll().is_pending(), "early at {tenth}");
        assert_eq!(task.take_wakes(), 1, "it would not poll again");
        engine.advance(MS / 10);
    }
    assert!(matches!(task.poll(), Poll::Ready(Err(_))), "it polls for ever");
}

#[test]
fn after_a_shutdown_a_timeout_takes_an_answer_or_says_that_it_was() {
    let mut engine = driven();
    let answers = [Answer::new(), Answer::new(), Answer::new()];
    let mut polled = Task::new(engine.handle().timeout(10 * MS, answers[0].clone()));
    let mut answered = Task::new(engine.handle().timeout(10 * MS, answers[1].clone()));
    assert!(polled.poll().is_pending() && answered.poll().is_pending());
    assert_eq!(engine.handle().shutdown().len(), 0);
    assert_eq!((polled.take_wakes(), answered.take_wakes()), (1, 1));
    let mut fresh = Task::new(engine.handle().timeout(10 * MS, answers[2].clone()));
    let mut reusable = engine.handle().reusable_timeout();
    let mut reused = Task::new(reusable.timeout(10 * MS, answers[2].clone()));
    answers[1].give(17);
    assert_eq!(answered.poll(), Poll::Ready(Ok(17)));
    for outcome in [polled.poll(), fresh.poll(), reused.poll()] {
        let Poll::Ready(Err(elapsed)) = outcome else { panic!("{outcome:?}") };
        assert!(elapsed.is_shut_down());
        assert_eq!(elapsed.to_string(), "the engine of this sleep was shut down");
        assert_eq!(io::Error::from(elapsed).kind(), io::ErrorKind::Other);
    }
    engine.advance(SECOND);
    let Poll::Ready(Err(elapsed)) = polled.poll() else { panic!("its deadline has come") };
    assert!(!elapsed.is_shut_down());
}

// --- One timeout for many requests ---

#[test]
fn a_thousand_requests_answered_in_time_post_next_to_nothing() {
    // Answers come soon, or near their deadlines. An answer near its deadline comes after the shard has checked the
    // ticket.
    for (takes, most_postponed) in [(MS, 1), (4_999 * MS, 5_000)] {
        let mut engine = driven();
        let mut timeout = engine.handle().reusable_timeout();
        for request in 0..1_000 {
            let answer = Answer::new();
            let mut task = Task::new(timeout.timeout(5 * SECOND, answer.clone()));
            assert!(task.poll().is_pending());
            engine.advance(takes);
            assert_eq!(task.take_wakes(), 0);
            answer.give(request);
            assert_eq!(task.poll(), Poll::Ready(Ok(request)));
        }
        let owned = engine.handle().stats().owned;
        assert_eq!((owned.alive, owned.fired), (1, 0));
        assert!(owned.posted <= 2 && owned.postponed <= most_postponed, "{owned:?}");
        drop(timeout);
        engine.advance(HOUR);
        assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().total.tickets), (0, 0));
    }
}

#[test]
fn requests_may_have_deadlines_instead_of_delays() {
    let mut engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    for round in 0..10 {
        let start = engine.handle().now();
        // The deadline is in the past or now. The answer is ready, or never comes.
        for deadline in [Timestamp::ZERO, start] {
            assert_eq!(Task::new(timeout.timeout_at(deadline, ready(round))).poll(), Poll::Ready(Ok(round)));
            let mut late = Task::new(timeout.timeout_at(deadline, pending::<()>()));
            assert!(matches!(late.poll(), Poll::Ready(Err(_))));
        }
        let mut first = Task::new(timeout.timeout_at(start + 20 * MS, pending::<()>()));
        assert!(first.poll().is_pending());
        drop(first);
        // The new deadline is earlier than the deadline before.
        let mut second = Task::new(timeout.timeout_at(start + 10 * MS, pending::<()>()));
        assert!(second.run(&mut engine).is_err());
        assert_eq!(engine.handle().now(), start + 10 * MS);
    }
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.fired), (1, 10));
}

#[test]
fn requests_whose_answers_are_there_at_once_make_no_timer() {
    let engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    for request in 0..1_000 {
        assert_eq!(Task::new(timeout.timeout(SECOND, ready(request))).poll(), Poll::Ready(Ok(request)));
    }
    assert_eq!((engine.handle().stats().owned.alive, engine.handle().stats().owned.posted), (0, 0));
}

#[test]
fn a_request_that_has_elapsed_does_not_shorten_the_next_one() {
    let mut engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    for round in 0..20 {
        let start = engine.handle().now();
        let elapses = (10 + round) * MS;
        assert!(Task::new(timeout.timeout(elapses, pending::<()>())).run(&mut engine).is_err());
        assert_eq!(engine.handle().now(), start + elapses);
        // After the elapsed request come longer and shorter timeouts, whose answers are in time.
        for (delay, takes) in [(SECOND, 999 * MS), (5 * MS, 4 * MS), (MS, Duration::ZERO)] {
            let answer = Answer::new();
            let mut task = Task::new(timeout.timeout(delay, answer.clone()));
            assert!(task.poll().is_pending());
            engine.advance(takes);
            assert_eq!((task.take_wakes(), task.poll()), (0, Poll::Pending));
            answer.give(round);
            assert_eq!(task.poll(), Poll::Ready(Ok(round)));
        }
    }
    assert_eq!(engine.handle().stats().owned.fired, 20);
}

#[test]
fn a_request_that_is_dropped_disarms_the_timer() {
    let mut engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    let mut task = Task::new(timeout.timeout(10 * MS, pending::<()>()));
    assert!(task.poll().is_pending());
    let bell = task.drop_future();
    engine.advance(SECOND);
    assert_eq!((bell.take(), engine.handle().stats().owned.fired), (0, 0));
    // The dropped request does not disturb the next request either. That request has the same deadline or a later
    // deadline.
    for delay in [10 * MS, 30 * MS] {
        let start = engine.handle().now();
        let mut first = Task::new(timeout.timeout(10 * MS, pending::<()>()));
        assert!(first.poll().is_pending());
        let bell = first.drop_future();
        let mut second = Task::new(timeout.timeout(delay, pending::<()>()));
        assert!(second.run(&mut engine).is_err());
        assert_eq!((engine.handle().now(), bell.take()), (start + delay, 0));
    }
    assert_eq!(engine.handle().stats().owned.alive, 1);
}

/// A program may leak a future by `mem::forget`, so the drop of a request's future must not be needed. The next request
/// costs nothing more.
#[test]
fn a_request_that_is_forgotten_costs_the_next_one_nothing() {
    let mut engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    let mut forgotten = Task::new(timeout.timeout(10 * MS, pending::<()>()));
    assert!(forgotten.poll().is_pending());
    let bell = forgotten.forget_future();
    let mut task = Task::new(timeout.timeout(30 * MS, pending::<()>()));
    engine.advance(20 * MS);
    assert_eq!(bell.take(), 1);
    assert!(task.run(&mut engine).is_err());
    assert_eq!(engine.handle().now(), Timestamp::ZERO + 30 * MS);
}

#[test]
fn a_request_that_is_first_polled_after_its_time_elapses_within_a_tick() {
    let mut engine = driven();
    let mut timeout = engine.handle().reusable_timeout();
    let mut late = Task::new(timeout.timeout(10 * MS, pending::<()>()));
    engine.advance(SECOND + MS / 2);
    if late.poll().is_pending() {
        engine.advance(MS / 2);
        assert_eq!(late.take_wakes(), 1);
        assert!(matches!(late.poll(), Poll::Ready(Err(_))));
    }
}
