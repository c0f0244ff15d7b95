//! Maps whose entries expire: the cost of a read and of a replacement.

use super::below;
use crate::case::Case;
use crate::common::{Chance, payload};
use crate::results::{Column, Figures};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::time::{Duration, Instant};
use tourbillon_book::figure::thousands;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::Lifetime;

pub(super) const WORKLOAD: Workload = Workload {
    name: "cache",
    operation: "a random entry of 16 bytes, which lives for a minute, is read, or replaced (ns each)",
    family: Family::Tasks,
    about: "The two maps do not do quite the same. moka also bounds its size by a policy that sees each \
        read, and keeps its entries in order for that. moka removes expired entries when a thread calls it; \
        our entries go when their timers fire. Checked: each value that was inserted, and the count.",
    reading: "",
    cases,
    columns: |_| vec![Column::new("get", "read", "ns"), Column::new("insert", "replaced", "ns")],
    rounds: |scale, _| scale.pick(5, 1, 1),
    entrants,
};

fn entrants() -> Vec<Entrant> {
    vec![
        Entrant::here("ExpiryMap", true, |case| ours(case, Lifetime::of(MINUTE))),
        Entrant::here("ExpiryMap, refreshed on access", true, |case| {
            ours(case, Lifetime::of(MINUTE).refreshed_on_access())
        }),
        Entrant::here("moka, time to live", false, |case| {
            moka(case, moka::sync::Cache::builder().time_to_live(MINUTE).build())
        }),
        Entrant::here("moka, time to idle", false, |case| {
            moka(case, moka::sync::Cache::builder().time_to_idle(MINUTE).build())
        }),
    ]
}

const MINUTE: Duration = Duration::from_secs(60);

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(100_000, 10_000, 100);
    let operations = scale.pick(1_000_000, 50_000, 200);
    vec![Case { timers, operations, ..Case::named(format!("{} entries", thousands(timers))) }]
}

fn time(case: &Case, mut insert: impl FnMut(u64), mut get: impl FnMut(u64)) -> Figures {
    (0..case.timers as u64).for_each(&mut insert);
    let mut chance = Chance::new(1);
    let keys: Vec<u64> = (0..case.operations).map(|_| below(&mut chance, case.timers).into()).collect();
    let each = |f: &mut dyn FnMut(u64)| {
        let start = Instant::now();
        keys.iter().copied().for_each(f);
        start.elapsed().as_secs_f64() * 1e9 / case.operations as f64
    };
    let read = each(&mut get);
    Figures::default().number("get", read).number("insert", each(&mut insert))
}

fn ours(case: &Case, lifetime: Lifetime) -> Figures {
    let tasks = TaskEngine::new().expect("the system gives us threads");
    let map = tasks.handle().expiry_map(lifetime);
    let figures = time(
        case,
        |key| {
            map.insert(key, payload(key)).expect("there is room");
        },
        |key| assert_eq!(map.get(&key), Some(payload(key))),
    );
    assert_eq!(map.len(), case.timers);
    figures
}

fn moka(case: &Case, cache: moka::sync::Cache<u64, [u64; 2]>) -> Figures {
    let figures = time(
        case,
        |key| cache.insert(key, payload(key)),
        |key| assert_eq!(cache.get(&key), Some(payload(key))),
    );
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), case.timers as u64);
    figures
}
