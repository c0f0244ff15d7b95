//! Random programs on a paused clock see the same events, at the same moments and in the same order, by the timers of
//! this crate and by tokio's.
#![cfg(feature = "test-util")]

mod support;

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Rng, lock};
use tokio::runtime::Builder;
use tokio::time::Instant;

/// An event: the task, the kind of the event, and its time since the program's start.
type Event = (u64, u64, Duration);

/// Names a function that runs the program of a seed with the timers of the module `$time`.
macro_rules! programs {
    ($name:ident, $time:path) => {
        async fn $name(seed: u64) -> Vec<Event> {
            use $time as time;
            let (log, start, mut rng) = (Arc::new(Mutex::new(Vec::new())), Instant::now(), Rng::new(seed));
            let mut tasks = Vec::new();
            for task in 0..=rng.below(4) {
                let (log, mut rng) = (Arc::clone(&log), Rng::new(rng.next()));
                tasks.push(tokio::spawn(async move {
                    let ms = Duration::from_millis;
                    let note = |event, at: Instant| {
                        lock(&log).push((task, event, at.saturating_duration_since(start)));
                    };
                    for _ in 0..=rng.below(6) {
                        match rng.below(9) {
                            0 => time::sleep(ms(rng.below(50))).await,
                            1 => {
                                let inner = time::sleep(ms(rng.below(40)));
                                let outcome = time::timeout(ms(rng.below(40)), inner).await;
                                note(u64::from(outcome.is_err()), Instant::now());
                            }
                            2 => {
                                let mut ticks = time::interval(ms(1 + rng.below(20)));
                                ticks.set_missed_tick_behavior(match rng.below(3) {
                                    0 => time::MissedTickBehavior::Burst,
                                    1 => time::MissedTickBehavior::Delay,
                                    _ => time::MissedTickBehavior::Skip,
                                });
                                for _ in 0..5 {
                                    note(2, ticks.tick().await);
                                    note(3, Instant::now());
                                    if rng.chance(33) {
                                        time::sleep(ms(rng.below(60))).await;
                                    }
                                    match rng.below(20) {
                                        0 => ticks.reset(),
                                        1 => ticks.reset_immediately(),
                                        2 => ticks.reset_after(ms(rng.below(30))),
                                        3 => ticks.reset_at(Instant::now() + ms(rng.below(30))),
                                        _ => {}
                                    }
                                }
                            }
                            3 => {
                                let mut sleep = std::pin::pin!(time::sleep(ms(rng.below(30))));
                                if rng.chance(50) {
                                    drop(time::timeout(ms(rng.below(10)), sleep.as_mut()).await);
                                }
                                sleep.as_mut().reset(Instant::now() + ms(rng.below(30)));
                                sleep.await;
                            }
                            4 => tokio::time::advance(ms(rng.below(25))).await,
                            5 => tokio::task::yield_now().await,
                            6 => {
                                let (first, second) = (ms(rng.below(30)), ms(rng.below(30)));
                                tokio::select! {
                                    biased;
                                    () = time::sleep(first) => note(4, Instant::now()),
                                    () = time::sleep(second) => note(5, Instant::now()),
                                }
                            }
                            7 => {
                                let deadline = Instant::now() + ms(rng.below(20));
                                drop(time::timeout_at(deadline, pending::<()>()).await);
                            }
                            _ => time::sleep(Duration::from_micros(rng.below(3_000))).await,
                        }
                        note(6, Instant::now());
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            let events = lock(&log).clone();
            events
        }
    };
}

programs!(by_this_crate, tourbillon::time);
programs!(by_tokio, tokio::time);

fn on_a_standing_clock(program: impl Future<Output = Vec<Event>>) -> Vec<Event> {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(program)
}

#[test]
fn random_programs_see_the_events_of_tokio() {
    let (mut differ, mut first) = (0, None);
    for seed in 0..4_000 {
        let (ours, tokios) = (on_a_standing_clock(by_this_crate(seed)), on_a_standing_clock(by_tokio(seed)));
        if ours != tokios {
            differ += 1;
            first.get_or_insert((seed, ours, tokios));
        }
    }
    assert!(first.is_none(), "{differ} programs differ, the first is {first:?}");
}
