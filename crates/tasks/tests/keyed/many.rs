//! Random calls that are compared with a plain model, and millions of keys.

use crate::support::{MS, Rng};
use crate::{SECOND, assert_empty, driven, logged};
use std::collections::HashMap;
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tourbillon::{Builder, Timestamp};
use tourbillon_tasks::keyed::{DueKey, MoveError, Placed};
use tourbillon_tasks::{DrivenTasks, IfPresent};

/// Random calls on an engine without threads must give the same answers as a plain map.
#[test]
fn calls_by_chance_agree_with_a_plain_model() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut tasks = driven();
        let (keyed, log) = logged::<u64>(tasks.handle());
        let mut model = HashMap::<u64, (Timestamp, u64)>::new();
        for value in 0..400 {
            let key = rng.below(5);
            let delay = MS * u32::try_from(rng.below(30)).unwrap();
            let deadline = tasks.handle().now() + delay;
            match rng.below(6) {
                0 => {
                    let before = model.insert(key, (deadline, value)).map(|(_, value)| value);
                    assert_eq!(keyed.schedule(key, delay, value).unwrap(), before);
                }
                1 => {
                    let mode = [IfPresent::Keep, IfPresent::Reject][rng.index(2)];
                    let is_new = !model.contains_key(&key);
                    model.entry(key).or_insert((deadline, value));
                    let placed = keyed.schedule_at(mode, key, deadline, value);
                    match (is_new, mode) {
                        (true, _) => assert_eq!(placed.unwrap(), Placed::New),
                        (false, IfPresent::Keep) => assert_eq!(placed.unwrap(), Placed::Kept(value)),
                        (false, _) => assert_eq!(placed.unwrap_err().value, value),
                    }
                }
                2 => assert_eq!(keyed.cancel(&key), model.remove(&key).map(|(_, value)| value)),
                3 => {
                    let moved = model.get_mut(&key).map(|entry| entry.0 = deadline);
                    assert_eq!(keyed.reschedule(&key, delay), moved.ok_or(MoveError::Absent));
                }
                4 if rng.chance(10) => {
                    let mut drained = keyed.drain();
                    drained.sort_unstable();
                    let mut expected: Vec<(u64, u64)> =
                        model.drain().map(|(key, entry)| (key, entry.1)).collect();
                    expected.sort_unstable();
                    assert_eq!(drained, expected);
                }
                _ => {
                    // Jobs that are due at once run before the clock moves.
                    let before = tasks.handle().now();
                    tasks.advance(MS);
                    let now = tasks.handle().now();
                    for (at, key, value) in log.take() {
                        let (deadline, expected) = model.remove(&key).expect("an entry");
                        assert_eq!((value, at), (expected, deadline.max(before)), "seed {seed}");
                    }
                    assert!(model.values().all(|&(deadline, _)| deadline > now), "seed {seed}");
                }
            }
            let (deadline, remaining) = (keyed.deadline(&key), keyed.remaining(&key));
            assert_eq!(deadline, model.get(&key).map(|entry| entry.0), "seed {seed}");
            assert_eq!(remaining, deadline.map(|deadline| deadline - tasks.handle().now()));
            assert_eq!(
                (keyed.len(), tasks.handle().stats().pending),
                (model.len(), model.len() as u64),
                "seed {seed}"
            );
        }
    }
}

/// Millions of keys come and go. A third of the entries fire, a third are cancelled, and a third are replaced. No entry
/// and no timer is left, and the map has given its memory back.
#[test]
fn no_entry_is_left_behind_of_millions_of_keys() {
    let keys: u64 = match env::var("TOURBILLON_KEYS") {
        Ok(keys) => keys.parse().expect("TOURBILLON_KEYS is a number of keys"),
        Err(_) => 300_000,
    };
    let capacity = u32::try_from(2 * keys + 1_000).expect("fewer keys");
    let mut tasks = DrivenTasks::start(Builder::new().capacity(capacity)).unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ran);
    let keyed = tasks.handle().keyed(move |_: DueKey<'_, u64, u64>| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let begin = Instant::now();
    let note = |phase: &str| {
        if env::var_os("TOURBILLON_KEYS").is_some() {
            eprintln!("{phase}: {:?}, {} MiB resident", begin.elapsed(), resident_mib());
        }
    };
    note("empty");
    for key in 0..keys {
        assert_eq!(
            keyed.schedule(key, MS * 100 + MS * u32::try_from(key % 1_000).unwrap(), key).unwrap(),
            None
        );
        if key % 32_768 == 0 {
            tasks.turn();
        }
    }
    note("scheduled");
    assert_eq!((keyed.len() as u64, tasks.handle().stats().pending), (keys, keys));
    for key in 0..keys {
        match key % 3 {
            0 => assert_eq!(keyed.cancel(&key), Some(key)),
            1 => assert_eq!(keyed.schedule(key, MS * 50, key + 1).unwrap(), Some(key)),
            _ => {}
        }
        if key % 32_768 == 0 {
            tasks.turn();
        }
    }
    note("cancelled and replaced");
    let left = keys - keys.div_ceil(3);
    assert_eq!((keyed.len() as u64, tasks.handle().stats().pending), (left, left));
    tasks.advance(2 * SECOND);
    note("fired");
    assert_eq!(ran.load(Ordering::Relaxed), left);
    assert_empty(&keyed, &mut tasks);
    assert_eq!(tasks.handle().stats().total.tickets, 0);
    note("empty again");
}

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok()).unwrap_or(0) / 1_024
}
