//! Futures on threads, in real time. They use the process's own engine, and engines whose shards race with the tasks.

use crate::support::{Log, MS, PATIENCE, Rng, block_on, lock, wait_until, within_patience};
use crate::tasks::{Answer, bell, on_wake, poll_with};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::future::{self, Sleep, Wakeup};
use tourbillon::{Builder, Engine, Missed, Timestamp};

/// A time that exceeds any wait of some milliseconds, even on a slow machine.
const LONG: Duration = Duration::from_secs(10);

/// Waits for all futures. Each wake-up polls all of them.
async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs = Vec::new();
    poll_fn(|cx| {
        futures.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Ready(output) => {
                outputs.push(output);
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs
}

fn engine(shards: usize, tick: Duration) -> Engine<Wakeup> {
    Builder::new().shards(shards).tick(tick).start_futures().unwrap()
}

// --- The process's own engine ---

#[test]
fn a_sleep_takes_its_time_and_not_much_more() {
    within_patience(|| {
        block_on(async {
            for delay in [MS / 2, MS, 10 * MS, 20 * MS + MS / 3] {
                let (start, deadline) = (Instant::now(), future::now() + delay);
                future::sleep_until(deadline).await;
                assert!(future::now() >= deadline);
                let sleep = future::sleep(delay);
                assert!(sleep.deadline() >= deadline + delay);
                let deadline = sleep.deadline();
                sleep.await;
                assert!(future::now() >= deadline);
                assert!(start.elapsed() < LONG);
            }
        });
    });
}

#[test]
fn a_timeout_elapses_or_gives_the_answer() {
    within_patience(|| {
        block_on(async {
            let deadline = future::now() + 10 * MS;
            assert!(future::timeout(10 * MS, pending::<()>()).await.is_err());
            assert!(future::now() >= deadline);
            assert!(future::timeout_at(deadline, pending::<()>()).await.is_err());
            let slow = async {
                future::sleep(MS).await;
                17
            };
            assert_eq!(future::timeout(LONG, slow).await, Ok(17));
            assert_eq!(future::timeout_at(Timestamp::MAX, future::sleep(MS)).await, Ok(()));
            let mut reusable = future::reusable_timeout();
            for _ in 0..5 {
                let deadline = future::now() + 2 * MS;
                assert!(reusable.timeout(2 * MS, pending::<()>()).await.is_err());
                assert!(future::now() >= deadline);
                assert_eq!(reusable.timeout(LONG, future::sleep(MS)).await, Ok(()));
            }
        });
    });
}

#[test]
fn the_process_has_one_engine() {
    within_patience(|| {
        let sleep = future::sleep(MS);
        assert!(future::global().now() <= sleep.deadline() + LONG);
        block_on(future::global().sleep_until(sleep.deadline()));
        assert!(sleep.is_elapsed() && future::now() >= sleep.deadline());
        let threads: Vec<_> =
            (0..4).map(|_| thread::spawn(|| std::ptr::from_ref(future::global()).addr())).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), std::ptr::from_ref(future::global()).addr());
        }
        assert!(!future::global().is_shut_down());
    });
}

#[test]
fn an_answer_from_another_thread_is_in_time() {
    within_patience(|| {
        let answer = Answer::new();
        let other = answer.clone();
        let thread = thread::spawn(move || {
            block_on(future::sleep(10 * MS));
            other.give(17);
        });
        assert_eq!(block_on(future::timeout(PATIENCE, answer)), Ok(17));
        thread.join().unwrap();
    });
}

#[test]
fn a_thousand_sleeps_over_several_threads_end_in_time() {
    within_patience(|| {
        let start = Instant::now();
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                thread::spawn(move || {
                    let mut rng = Rng::new(seed);
                    let sleeps = (0..250).map(|_| {
                        let deadline = future::now() + rng.nanos_below(50 * MS);
                        async move {
                            future::sleep_until(deadline).await;
                            assert!(future::now() >= deadline);
                        }
                    });
                    block_on(join_all(sleeps)).len()
                })
            })
            .collect();
        assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>(), 1_000);
        assert!(start.elapsed() < LONG);
    });
}

#[test]
fn an_interval_is_never_early_and_keeps_step() {
    within_patience(|| {
        block_on(async {
            for behavior in [Missed::Burst, Missed::Delay, Missed::Skip] {
                let begin = Instant::now();
                let start = future::now();
                let mut interval = future::interval_at(start, 5 * MS).unwrap();
                interval.set_missed(behavior);
                let mut before = None;
                for n in 0..10 {
                    let tick = interval.tick().await;
                    assert!(future::now() >= tick);
                    assert!(
                        tick >= start + n * 5 * MS && before.is_none_or(|before| tick >= before + 5 * MS)
                    );
                    if behavior == Missed::Burst {
                        assert_eq!(tick, start + n * 5 * MS);
                    }
                    before = Some(tick);
                }
                assert!(begin.elapsed() < LONG);
            }
            assert!(future::interval(Duration::ZERO).is_err());
            let now = future::now();
            assert!(future::interval(MS).unwrap().tick().await >= now);
        });
    });
}

/// Row R25 of the pitfalls in `src/DESIGN.md`: the thread of a sleep never rests. The sleep still ends in time.
#[test]
fn a_thread_that_never_rests_sleeps_no_longer() {
    within_patience(|| {
        let deadline = future::now() + 10 * MS;
        let mut sleep = future::sleep_until(deadline);
        let mut polls = 0_u64;
        block_on(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Pin::new(&mut sleep).poll(cx)
        }));
        assert!(future::now() >= deadline && polls > 1);
    });
}

// --- Tasks that move, and races with the shard ---

/// Row R26 of the pitfalls in `src/DESIGN.md`: a sleep moves from thread to thread and stays with its engine. The sleep
/// wakes the thread that polled it last.
#[test]
fn a_sleep_that_moves_from_thread_to_thread_wakes_where_it_is() {
    within_patience(|| {
        let engine = engine(3, MS);
        let mut sleep = engine.handle().sleep(LONG);
        let (bell, waker) = bell();
        for hop in 0..20_u32 {
            assert!(poll_with(&mut sleep, &waker).is_pending());
            let handle = engine.handle().clone();
            sleep = thread::spawn(move || {
                assert!(poll_with(&mut sleep, Waker::noop()).is_pending());
                // The new deadline is earlier than the deadline that the thread before has set.
                if hop % 2 == 0 {
                    let deadline = handle.now() + 3 * MS;
                    sleep.reset(deadline);
                    block_on(&mut sleep);
                    assert!(handle.now() >= deadline);
                }
                sleep.reset_after(LONG);
                sleep
            })
            .join()
            .unwrap();
        }
        assert_eq!(bell.take(), 0);
        drop(sleep);
        wait_until("its slot is free", || engine.handle().stats().owned.alive == 0);
    });
}

/// Goal: a reset that meets the firing of the old deadline loses neither the new deadline nor the wake. Method:
/// deadlines are a few ticks of 10 µs ahead, and are moved at about their time.
#[test]
fn a_reset_that_races_with_the_old_deadline_loses_no_wake() {
    within_patience(|| {
        let tick = Duration::from_micros(10);
        let engine = engine(1, tick);
        let mut rng = Rng::new(7);
        let mut sleep = engine.handle().sleep(tick);
        for _ in 0..3_000 {
            let old = engine.handle().now() + 3 * tick + rng.nanos_below(3 * tick);
            sleep.reset(old);
            let _ = poll_with(&mut sleep, Waker::noop());
            let act = old + rng.nanos_below(8 * tick);
            while engine.handle().now() + 3 * tick < act {
                std::hint::spin_loop();
            }
            let new = engine.handle().now() + rng.nanos_below(10 * tick);
            sleep.reset(new);
            block_on(&mut sleep);
            assert!(engine.handle().now() >= new, "early");
        }
        drop(sleep);
        // The last wake of the sleep may not have ended.
        wait_until("its slot is free", || engine.handle().stats().owned.alive == 0);
        assert_eq!(engine.handle().stats().total.panics, 0);
    });
}

/// Row R12 of the pitfalls in `src/DESIGN.md`: a sleep is dropped at the moment at which it fires. The sleep's slot
/// becomes free.
#[test]
fn a_drop_that_races_with_the_firing_frees_the_slot() {
    within_patience(|| {
        let tick = Duration::from_micros(10);
        let engine = engine(2, tick);
        let threads: Vec<_> = (0..2)
            .map(|seed| {
                let handle = engine.handle().clone();
                thread::spawn(move || {
                    let mut rng = Rng::new(seed);
                    let (_bell, waker) = bell();
                    for _ in 0..3_000 {
                        let mut sleep = handle.sleep(rng.nanos_below(5 * tick));
                        let _ = poll_with(&mut sleep, &waker);
                        let act = handle.now() + rng.nanos_below(8 * tick);
                        while handle.now() < act {
                            std::hint::spin_loop();
                        }
                        drop(sleep);
                    }
                    drop(waker);
                    _bell
                })
            })
            .collect();
        for thread in threads {
            let bell = thread.join().unwrap();
            wait_until("nobody has its waker", || Arc::strong_count(&bell) == 1);
        }
        wait_until("all slots are free", || engine.handle().stats().owned.alive == 0);
        assert_eq!(engine.handle().stats().total.panics, 0);
    });
}

/// Row R20 of the pitfalls in `src/DESIGN.md`: in a wake, the shard waits for a lock of the user's. The thread that has
/// the lock polls, resets and drops the sleep. None of these calls waits for the shard.
#[test]
fn a_wake_that_waits_for_a_lock_holds_up_none_of_its_own_sleep() {
    within_patience(|| {
        let engine = engine(1, MS);
        let lock_of_the_user = Arc::new(Mutex::new(()));
        for round in 0..20 {
            let (begun, ended) = (Log::new(), Log::new());
            let waker = on_wake({
                let (user, begun, ended) = (Arc::clone(&lock_of_the_user), begun.clone(), ended.clone());
                move || {
                    begun.push(());
                    drop(lock(&user));
                    ended.push(());
                }
            });
            let guard = lock(&lock_of_the_user);
            let mut sleep = engine.handle().sleep(20 * MS);
            if poll_with(&mut sleep, &waker).is_ready() {
                // This thread did not run before the sleep was over, so this round shows nothing.
                continue;
            }
            wait_until("the wake has begun", || begun.len() == 1);
            match round % 4 {
                0 => assert_eq!(poll_with(&mut sleep, &waker), Poll::Ready(())),
                1 => {
                    sleep.reset_after(LONG);
                    assert!(poll_with(&mut sleep, &waker).is_pending());
                }
                2 => drop(sleep),
                _ => {
                    let mut other = engine.handle().sleep(LONG);
                    assert!(poll_with(&mut other, &waker).is_pending());
                    assert!(engine.handle().stats().owned.alive >= 2);
                }
            }
            assert_eq!(ended.len(), 0);
            drop(guard);
            wait_until("the wake has ended", || ended.len() == 1);
        }
        wait_until("all slots are free", || engine.handle().stats().owned.alive == 0);
    });
}

/// Row R15 of the pitfalls in `src/DESIGN.md`, for wakers: the shutdown wakes each sleeping task once. Afterwards no
/// task is woken, and nothing hangs.
#[test]
fn nobody_is_woken_after_a_shutdown_has_woken_all() {
    within_patience(|| {
        let engine = engine(2, MS);
        let (bell, waker) = bell();
        let mut sleeps: Vec<Sleep> = (0..100).map(|n| engine.handle().sleep(n % 20 * MS)).collect();
        let waiting =
            sleeps.iter_mut().filter_map(|sleep| poll_with(sleep, &waker).is_pending().then_some(())).count();
        block_on(engine.handle().sleep(5 * MS));
        assert_eq!(engine.handle().shutdown().len(), 0);
        assert!(bell.take() >= waiting);
        thread::sleep(30 * MS);
        assert_eq!(bell.take(), 0);
        let elapsed = block_on(engine.handle().timeout(LONG, pending::<()>())).unwrap_err();
        assert!(elapsed.is_shut_down());
        drop(sleeps);
        assert_eq!(engine.handle().stats().owned.alive, 0);
    });
}

/// A sleep's engine is dropped at once after its start. The sleep does not hang.
#[test]
fn a_sleep_on_an_engine_that_was_dropped_does_not_hang() {
    within_patience(|| {
        let handle = engine(1, MS).handle().clone();
        assert!(block_on(handle.sleep(LONG).try_wait()).is_err());
        assert!(block_on(handle.timeout(LONG, pending::<()>())).unwrap_err().is_shut_down());
    });
}

/// Sleeps begin, are moved and are woken while their engine is shut down. All of them end.
#[test]
fn a_shutdown_leaves_no_sleep_waiting_whatever_it_races_with() {
    within_patience(|| {
        for round in 0..200_u64 {
            let engine = engine(1, MS);
            let sleepers: Vec<_> = (0..3)
                .map(|seed| {
                    let handle = engine.handle().clone();
                    thread::spawn(move || {
                        let mut rng = Rng::new(round * 3 + seed);
                        let mut sleep = handle.sleep(MS);
                        while block_on(sleep.try_wait()).is_ok() {
                            sleep.reset_after(if rng.below(2) == 0 { LONG } else { MS / 20 });
                        }
                    })
                })
                .collect();
            thread::sleep(MS / 10 * u32::try_from(round % 20).unwrap());
            drop(engine);
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        }
    });
}

/// A sleep on a full engine makes its task poll repeatedly. The sleep goes on when a slot is free.
#[test]
fn more_sleeps_than_an_engine_has_room_for_end_all_the_same() {
    within_patience(|| {
        let engine = Builder::new().shards(1).capacity(4).start_futures().unwrap();
        let sleeps = (0..100).map(|n| {
            let sleep = engine.handle().sleep(n % 10 * MS + MS);
            let (deadline, handle) = (sleep.deadline(), engine.handle().clone());
            async move {
                sleep.await;
                assert!(handle.now() >= deadline);
            }
        });
        assert_eq!(block_on(join_all(sleeps)).len(), 100);
        wait_until("all slots are free", || engine.handle().stats().owned.alive == 0);
    });
}
