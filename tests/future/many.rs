//! Many sleeps at a time, with random operations.

use crate::support::{HOUR, Log, MS, Rng};
use crate::tasks::{SECOND, driven, driven_with, due_tick, on_wake, poll_with};
use std::task::{Poll, Waker};
use std::time::Duration;
use tourbillon::future::Sleep;
use tourbillon::{Builder, Clock, Timestamp};

#[test]
fn thousands_with_random_deadlines_are_each_woken_once_on_their_tick() {
    for (seed, tick, shards) in [(1, MS, 1), (2, Duration::from_micros(1), 1), (3, 17 * MS, 3)] {
        let mut engine = driven_with(Builder::new().tick(tick).shards(shards));
        let mut rng = Rng::new(seed);
        let wakes = Log::new();
        engine.advance(rng.nanos_below(SECOND));
        let mut sleeps: Vec<(Sleep, Waker)> = (0..5_000_usize)
            .map(|n| {
                let (wakes, clock) = (wakes.clone(), engine.clock().clone());
                let delay = match rng.below(3) {
                    0 => rng.nanos_below(20 * tick),
                    1 => rng.nanos_below(SECOND),
                    _ => rng.nanos_below(HOUR),
                };
                let sleep = engine.handle().sleep(delay + Duration::from_nanos(1));
                (sleep, on_wake(move || wakes.push((n, clock.now()))))
            })
            .collect();
        for (sleep, waker) in &mut sleeps {
            assert!(poll_with(sleep, waker).is_pending());
        }
        engine.advance(HOUR + SECOND);
        let expected: Vec<_> =
            sleeps.iter().enumerate().map(|(n, (sleep, _))| (n, due_tick(sleep.deadline(), tick))).collect();
        assert_eq!(wakes.take_sorted(), expected);
        for (sleep, waker) in &mut sleeps {
            assert_eq!(poll_with(sleep, waker), Poll::Ready(()));
        }
        assert_eq!(engine.handle().stats().owned.alive, 5_000);
        drop(sleeps);
        assert_eq!(engine.handle().stats().owned.alive, 0);
    }
}

/// A sleep of the test `sleeps_do_what_a_list_of_deadlines_does`, and its expected state.
struct Known {
    sleep: Sleep,
    /// The moment at which the sleep's deadline was set.
    set_at: Timestamp,
    turned_since: bool,
    /// The number of the task that waits for the sleep. `None` if no task waits.
    waiting: Option<usize>,
    /// Whether the waiting task must still be woken. A task that has seen the sleep's end by polling needs no wake-up.
    owes_a_wake: bool,
}

impl Known {
    /// Returns the moment by which the sleep is over and its task woken. If the deadline had passed when it was set,
    /// the moment is the next turn (a pass of the shard's loop).
    fn due(&self) -> Timestamp {
        due_tick(self.sleep.deadline(), MS).max(self.set_at)
    }

    /// Checks the tasks that a step of the clock to `now` has woken. A deadline that was moved within the past may fire
    /// by the ticket (a request to check a timer) of an earlier deadline, before its own tick.
    fn check(&mut self, mine: &[(usize, Timestamp)], now: Timestamp, case: &str) {
        let due = self.due();
        match mine {
            [] => assert!(!self.owes_a_wake || due > now, "not woken: {case}"),
            &[(task, at)] => {
                assert_eq!(self.waiting.take(), Some(task), "{case}");
                self.owes_a_wake = false;
                assert!(at >= self.sleep.deadline(), "woken early: {case}");
                assert!(at == due || at == self.set_at, "woken at {at}, not at {due}: {case}");
            }
            _ => panic!("woken twice: {case}"),
        }
        self.turned_since = true;
    }
}

/// Goal: no sleep is ready before its deadline, or pending after its deadline's tick. The task that polled last is
/// woken once, on the deadline's tick. Method: several tasks poll at random, reset and drop sleeps, and step the clock.
/// The deadlines alone decide the expected result.
#[test]
fn sleeps_do_what_a_list_of_deadlines_does() {
    for seed in 0..300 {
        simulate(seed);
    }
}

fn simulate(seed: u64) {
    const TASKS: usize = 3;
    let mut rng = Rng::new(seed);
    let mut engine = driven();
    let wakes = Log::new();
    let wakers: Vec<Vec<Waker>> = (0..8)
        .map(|sleep: usize| {
            let waker = |task| {
                let (wakes, clock) = (wakes.clone(), engine.clock().clone());
                on_wake(move || wakes.push((sleep, task, clock.now())))
            };
            (0..TASKS).map(waker).collect()
        })
        .collect();
    let mut delay = {
        let mut rng = Rng::new(seed ^ 0xdead);
        move || match rng.below(4) {
            0 => Duration::ZERO,
            1 => rng.nanos_below(3 * MS),
            2 => Duration::from_millis(rng.below(20)),
            _ => rng.nanos_below(100 * MS),
        }
    };
    let fresh = |sleep: Sleep, now| Known {
        sleep,
        set_at: now,
        turned_since: false,
        waiting: None,
        owes_a_wake: false,
    };
    let mut all: Vec<Known> =
        (0..8).map(|_| fresh(engine.handle().sleep(delay()), engine.handle().now())).collect();
    for step in 0..400 {
        let at = rng.index(all.len());
        let now = engine.handle().now();
        let known = &mut all[at];
        match rng.below(10) {
            0..4 => {
                let task = rng.index(TASKS);
                let deadline = known.sleep.deadline();
                match poll_with(&mut known.sleep, &wakers[at][task]) {
                    Poll::Ready(()) => {
                        assert!(now >= deadline, "early: seed {seed}, step {step}, sleep {at}");
                        known.owes_a_wake = false;
                    }
                    Poll::Pending => {
                        let is_over = now >= known.due() && known.turned_since;
                        assert!(!is_over, "pending when over: seed {seed}, step {step}, sleep {at}");
                        known.waiting = Some(task);
                        known.owes_a_wake = true;
                    }
                }
            }
            4 | 5 => {
                let deadline = match rng.below(8) {
                    0 => Timestamp::from_nanos(now.as_nanos().saturating_sub(rng.below(20_000_000))),
                    1 => known.sleep.deadline(),
                    _ => now + delay(),
                };
                known.sleep.reset(deadline);
                (known.set_at, known.turned_since) = (now, false);
            }
            6 => *known = fresh(engine.handle().sleep(delay()), now),
            _ => {
                engine.advance(if rng.chance(50) { rng.nanos_below(3 * MS) } else { delay() });
                let wakes = wakes.take();
                for (at, known) in all.iter_mut().enumerate() {
                    let mine: Vec<_> =
                        wakes.iter().filter(|wake| wake.0 == at).map(|wake| (wake.1, wake.2)).collect();
                    known.check(
                        &mine,
                        engine.handle().now(),
                        &format!("seed {seed}, step {step}, sleep {at}"),
                    );
                }
            }
        }
        assert!(wakes.len() == 0, "woken by none: seed {seed}, step {step}");
    }
    drop(all);
    assert_eq!(engine.handle().stats().owned.alive, 0, "seed {seed}");
}
