//! No entry is hidden before its time has passed, by the caller's own `Instant`.

use crate::threads;
use std::time::{Duration, Instant};
use tourbillon_tasks::uses::Lifetime;

/// The number of entries that live at a time. The deadlines of these entries are some microseconds apart.
const TOGETHER: u64 = 20;
const ROUNDS: u64 = 400;
const MS: Duration = Duration::from_millis(1);

/// Returns the `n`th time to live. All times to live differ, so that the test can read each entry just when its
/// deadline comes.
fn time_to_live(n: u64) -> Duration {
    MS + Duration::from_micros(60 * n)
}

#[test]
fn an_entry_is_seen_until_its_time_to_live_has_passed_by_the_callers_instant() {
    let tasks = threads();
    let map = tasks.handle().expiry_map(Lifetime::of(MS));
    for round in 0..ROUNDS {
        let starts: Vec<Instant> = (0..TOGETHER)
            .map(|n| {
                let start = Instant::now();
                map.insert_for((round, n), n, time_to_live(n)).unwrap();
                start
            })
            .collect();
        for (n, start) in (0..).zip(starts) {
            let is_hidden = || match n % 4 {
                0 => map.get(&(round, n)).is_none(),
                1 => !map.contains(&(round, n)),
                2 => map.remaining(&(round, n)).is_none(),
                _ => map.read(&(round, n), |_| ()).is_none(),
            };
            while !is_hidden() {}
            let seen_for = start.elapsed();
            assert!(
                seen_for >= time_to_live(n),
                "an entry for {:?} was hidden after {seen_for:?}",
                time_to_live(n)
            );
        }
    }
}

#[test]
fn what_has_come_by_the_true_clock_has_come_by_the_callers_instant() {
    let tasks = threads();
    for _ in 0..500 {
        let (start, deadline) = (Instant::now(), tasks.handle().now() + MS / 4);
        while !tasks.handle().has_come(deadline) {}
        assert!(start.elapsed() >= MS / 4);
    }
}
