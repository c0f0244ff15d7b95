//! The engine as quinn's timer, without a connection.

use quinn::{AsyncTimer, Runtime as _};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tourbillon::OwnedStats;
use tourbillon_quinn::TokioRuntime;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

type Timer = Pin<Box<dyn AsyncTimer>>;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn is_over(timer: &mut Timer) -> bool {
    timer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

async fn end_of(mut timer: Timer) {
    poll_fn(|cx| timer.as_mut().poll(cx)).await;
}

/// Returns a timer that a poll has armed for an hour from now.
fn armed() -> Timer {
    let mut timer = TokioRuntime.new_timer(Instant::now() + HOUR);
    assert!(!is_over(&mut timer));
    timer
}

/// Returns the counters of the timers of the runtime that the caller is in.
fn timers() -> OwnedStats {
    tourbillon::time::shards().expect("inside a runtime").futures().stats().owned
}

fn address(timer: &Timer) -> *const () {
    ptr::from_ref(&**timer).cast()
}

/// Counts how often a task was woken.
#[derive(Default)]
struct Bell(AtomicU64);

impl Bell {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until the bell has rung.
    async fn rings(&self) {
        let begin = Instant::now();
        while self.count() == 0 {
            assert!(begin.elapsed() < PATIENCE);
            tokio::time::sleep(MS).await;
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// --- Deadlines ---

#[test]
fn a_timer_is_not_over_before_its_deadline() {
    for runtime in [one_thread(), two_workers()] {
        runtime.block_on(async {
            for delay in [Duration::ZERO, MS / 10, MS, 20 * MS] {
                let deadline = Instant::now() + delay;
                end_of(TokioRuntime.new_timer(deadline)).await;
                assert!(Instant::now() >= deadline);
                // quinn computes its deadlines from the runtime's own moment.
                let (begin, deadline) = (Instant::now(), TokioRuntime.now() + delay);
                end_of(TokioRuntime.new_timer(deadline)).await;
                assert!(begin.elapsed() >= delay);
            }
        });
    }
}

#[test]
fn a_deadline_in_the_past_is_over_at_once() {
    one_thread().block_on(async {
        let now = Instant::now();
        for past in [now, now.checked_sub(MS).unwrap_or(now), now.checked_sub(48 * HOUR).unwrap_or(now)] {
            assert!(is_over(&mut TokioRuntime.new_timer(past)));
            let mut timer = armed();
            timer.as_mut().reset(past);
            assert!(is_over(&mut timer));
        }
    });
}

/// Returns the last moment that an [`Instant`] shows.
fn last_moment() -> Instant {
    let (mut moment, mut step) = (Instant::now(), Duration::MAX);
    while !step.is_zero() {
        match moment.checked_add(step) {
            Some(later) => moment = later,
            None => step /= 2,
        }
    }
    moment
}

#[test]
fn a_deadline_far_in_the_future_does_not_come_and_may_be_brought_forward() {
    one_thread().block_on(async {
        let now = Instant::now();
        for far in [now + 30 * 365 * 24 * HOUR, now + 1_000 * 365 * 24 * HOUR, last_moment()] {
            let mut timer = TokioRuntime.new_timer(far);
            assert!(!is_over(&mut timer));
            tokio::time::sleep(2 * MS).await;
            assert!(!is_over(&mut timer));
            let deadline = Instant::now() + 2 * MS;
            timer.as_mut().reset(deadline);
            poll_fn(|cx| timer.as_mut().poll(cx)).await;
            assert!(Instant::now() >= deadline);
            timer.as_mut().reset(far);
            assert!(!is_over(&mut timer));
        }
    });
}

// --- Resets ---

#[test]
fn resets_move_one_timer_in_one_place() {
    one_thread().block_on(async {
        let mut timer = armed();
        let (place, before) = (address(&timer), timers());
        for n in 0..1_000 {
            timer.as_mut().reset(Instant::now() + HOUR + n * MS);
            assert!(!is_over(&mut timer));
        }
        let after = timers();
        assert_eq!(address(&timer), place);
        assert_eq!((after.alive, after.fired), (1, 0));
        assert_eq!(after.posted, before.posted, "resets to later deadlines post nothing");
    });
}

#[test]
fn a_timer_wakes_its_task_once_and_at_the_last_deadline() {
    one_thread().block_on(async {
        let bell = Arc::new(Bell::default());
        let waker = Arc::clone(&bell).into();
        let mut timer = TokioRuntime.new_timer(Instant::now() + HOUR);
        assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        timer.as_mut().reset(Instant::now() + HOUR / 2);
        // quinn does not poll again until it is woken.
        let deadline = Instant::now() + 10 * MS;
        timer.as_mut().reset(deadline);
        bell.rings().await;
        assert!(Instant::now() >= deadline);
        assert_eq!(bell.count(), 1);
        assert!(is_over(&mut timer));
    });
}

#[test]
fn a_timer_may_be_reset_before_its_first_poll() {
    one_thread().block_on(async {
        let mut timer = TokioRuntime.new_timer(Instant::now() + HOUR);
        let deadline = Instant::now() + 5 * MS;
        timer.as_mut().reset(deadline);
        end_of(timer).await;
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn a_timer_that_is_over_stays_over_until_it_is_reset() {
    one_thread().block_on(async {
        let mut timer = TokioRuntime.new_timer(Instant::now() + MS);
        let place = address(&timer);
        for _ in 0..3 {
            poll_fn(|cx| timer.as_mut().poll(cx)).await;
            assert!(is_over(&mut timer));
            let deadline = Instant::now() + 3 * MS;
            timer.as_mut().reset(deadline);
            assert!(!is_over(&mut timer) || Instant::now() >= deadline);
            poll_fn(|cx| timer.as_mut().poll(cx)).await;
            assert!(Instant::now() >= deadline);
        }
        assert_eq!(address(&timer), place);
        assert_eq!(timers().alive, 1);
    });
}

#[test]
fn a_task_that_has_used_its_budget_still_sees_a_deadline_that_has_come() {
    one_thread().block_on(async {
        let mut timers: Vec<Timer> = (0..1_000).map(|_| TokioRuntime.new_timer(Instant::now())).collect();
        assert!(timers.iter_mut().all(is_over));
    });
}

// --- Drops and ends ---

#[test]
fn a_timer_that_is_dropped_in_another_thread_leaves_nothing() {
    let runtime = two_workers();
    let timer = runtime.block_on(async { tokio::spawn(async { armed() }).await.unwrap() });
    assert_eq!(runtime.block_on(async { timers().alive }), 1);
    thread::spawn(move || drop(timer)).join().unwrap();
    let begin = Instant::now();
    while runtime.block_on(async { timers().alive }) > 0 {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(MS);
    }
    assert_eq!(runtime.block_on(async { timers().fired }), 0);
}

#[test]
fn a_timer_may_be_reset_and_dropped_after_the_end_of_its_runtime() {
    for runtime in [one_thread(), two_workers()] {
        let mut timers =
            runtime.block_on(async { [armed(), armed(), TokioRuntime.new_timer(Instant::now() + HOUR)] });
        drop(runtime);
        for timer in &mut timers {
            timer.as_mut().reset(Instant::now() + 2 * HOUR);
        }
        thread::spawn(move || drop(timers)).join().unwrap();
    }
}

#[test]
fn a_poll_after_the_end_of_the_runtime_panics_unless_the_deadline_has_come() {
    for runtime in [one_thread(), two_workers()] {
        let mut timer = runtime.block_on(async { armed() });
        drop(runtime);
        assert!(catch_unwind(AssertUnwindSafe(|| is_over(&mut timer))).is_err());
        timer.as_mut().reset(Instant::now());
        assert!(is_over(&mut timer));
    }
}

// --- Several runtimes ---

#[test]
fn each_runtime_has_its_own_timers() {
    let (short, long) = (one_thread(), two_workers());
    let (mut first, second) = (short.block_on(async { armed() }), long.block_on(async { armed() }));
    for runtime in [&short, &long] {
        assert_eq!(runtime.block_on(async { timers().alive }), 1);
    }
    // The end of a runtime ends only its own timers.
    drop(short);
    let deadline = Instant::now() + 5 * MS;
    let mut second = second;
    second.as_mut().reset(deadline);
    long.block_on(end_of(second));
    assert!(Instant::now() >= deadline);
    first.as_mut().reset(deadline);
    assert!(is_over(&mut first));
}

#[test]
fn a_task_of_one_runtime_awaits_a_timer_of_another() {
    let (owner, other) = (two_workers(), one_thread());
    let deadline = Instant::now() + 10 * MS;
    let timer = owner.block_on(async { TokioRuntime.new_timer(deadline) });
    other.block_on(end_of(timer));
    assert!(Instant::now() >= deadline);
}

#[test]
fn many_timers_of_tasks_on_several_runtimes_end_in_time() {
    let runtimes = [two_workers(), two_workers(), two_workers()];
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            runtimes[n % runtimes.len()].spawn(async move {
                let mut timer = armed();
                for _ in 0..20 {
                    let deadline = Instant::now() + MS;
                    timer.as_mut().reset(deadline);
                    poll_fn(|cx| timer.as_mut().poll(cx)).await;
                    assert!(Instant::now() >= deadline);
                }
            })
        })
        .collect();
    for task in tasks {
        pollster::block_on(task).unwrap();
    }
}

// --- Without a runtime's timer ---

#[test]
fn timers_work_outside_of_a_runtime() {
    let deadline = Instant::now() + 5 * MS;
    pollster::block_on(end_of(TokioRuntime.new_timer(deadline)));
    assert!(Instant::now() >= deadline);
}

#[test]
fn timers_work_in_a_runtime_that_has_no_timer() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let deadline = Instant::now() + 5 * MS;
    runtime.block_on(async { end_of(TokioRuntime.new_timer(deadline)).await });
    assert!(Instant::now() >= deadline);
}

// --- A clock that a test pauses ---

#[cfg(feature = "test-util")]
#[test]
fn a_timer_follows_a_paused_clock() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let begin = Instant::now();
    runtime.block_on(async {
        let start = TokioRuntime.now();
        let mut timer = TokioRuntime.new_timer(start + HOUR);
        assert!(!is_over(&mut timer));
        tokio::time::advance(HOUR - MS).await;
        assert!(!is_over(&mut timer));
        tokio::time::advance(MS).await;
        assert!(is_over(&mut timer));
        // An idle runtime moves its clock to the timer.
        timer.as_mut().reset(start + 1_000 * HOUR);
        end_of(timer).await;
        assert_eq!(TokioRuntime.now(), start + 1_000 * HOUR);
    });
    assert!(begin.elapsed() < PATIENCE);
}

/// quinn's deadlines are moments of the machine's clock, whichever clock the shards have that the thread has entered.
#[test]
fn a_timer_on_shards_with_another_clock_waits_for_as_long() {
    let runtime = one_thread();
    for is_inside in [false, true] {
        let _inside = is_inside.then(|| runtime.enter());
        let mut driven = tourbillon::Builder::new().driven_shards().unwrap();
        let scope = driven.shards().enter();
        let mut timer = TokioRuntime.new_timer(Instant::now() + HOUR);
        drop(scope);
        for _ in 0..2 {
            assert!(!is_over(&mut timer));
            driven.advance(HOUR / 2);
            assert!(!is_over(&mut timer));
            driven.advance(HOUR / 2);
            assert!(is_over(&mut timer));
            timer.as_mut().reset(Instant::now() + HOUR);
        }
    }
}
