//! Tests the bounds on the work of a call: pages of lists that few timers meet, horizons of many timers, and claims in
//! turn among many namespaces.

use pollster::block_on;
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_conformance::Turns;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, Filter, IfPresent, Limit, Op, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_sqlite::SqliteStore;

const START: u64 = 1_800_000_000_000;
const TIMERS: u128 = 55_000;
/// Every timer whose number is a multiple of this has the rare kind.
const RARE: u128 = 11_000;

fn in_memory(clock: ManualClock) -> Arc<dyn TimerStore> {
    Arc::new(SqliteStore::builder().clock(clock).in_memory().unwrap())
}

fn filled() -> Arc<dyn TimerStore> {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(START * 1_000_000));
    let store = in_memory(clock);
    let all: Vec<Op> = (1..=TIMERS)
        .map(|n| {
            let kind = if n.is_multiple_of(RARE) { "rare" } else { "frequent" };
            let due = UtcMillis::from_millis(START + 86_400_000 + u64::try_from(n).unwrap());
            Op::Place(Box::new(Timer::new(TimerId::from_u128(n), kind, due)), IfPresent::Reject)
        })
        .collect();
    for some in all.chunks(5_000) {
        block_on(store.apply(some.to_vec(), Durability::Volatile)).unwrap();
    }
    store
}

#[test]
fn the_pages_of_a_rare_kind_are_bounded_and_complete() {
    let store = filled();
    for phase in [None, Some(Phase::Pending)] {
        for descending in [false, true] {
            let filter = Filter { kind: Some("rare".into()), phase, descending, ..Filter::default() };
            let (mut found, mut pages, mut cursor) = (Vec::new(), 0, None);
            loop {
                let page = block_on(store.list(filter.clone(), cursor, 100)).unwrap();
                found.extend(page.timers.iter().map(|timer| timer.id.as_u128()));
                pages += 1;
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            let mut wanted: Vec<u128> = (1..=TIMERS / RARE).map(|n| n * RARE).collect();
            if descending {
                wanted.reverse();
            }
            assert_eq!(found, wanted, "{filter:?}");
            assert_eq!(pages, 3, "a page reads at most 20,000 rows");
        }
    }
    let horizon = block_on(store.horizon()).unwrap();
    assert_eq!(u128::from(horizon.placed() + horizon.unplaced), TIMERS);
    assert!(horizon.placed() >= 50_000 && horizon.spans.iter().any(|span| !span.is_exact));
}

#[test]
fn each_of_many_namespaces_is_served_although_one_has_a_herd() {
    let all = Limit { timers: 512, bytes: u64::MAX };
    let mut turns = Turns::new(&in_memory, 4_000);
    turns.place("herd", 0, 4_000);
    for number in 0..600 {
        turns.place(&format!("namespace {number}"), 1 + number, 2);
    }
    turns.set(10_000);
    let (mut others, mut claims) = (0, 0);
    while others < 1_200 {
        let (counts, claimed) = turns.claim(all);
        others += counts.iter().filter(|(name, _)| ***name != *"herd").map(|(_, count)| count).sum::<usize>();
        claims += 1;
        assert!(claims < 30, "{others} of the others after {claims} claims");
        assert!(claimed.next_claim.is_some_and(|next| next <= claimed.now + Duration::from_millis(10)));
        // The deliveries of the herd end at once.
        let herd = turns.under_way.get("herd").map_or(0, Vec::len);
        turns.end("herd", herd, Op::Ack);
    }
    assert_eq!(block_on(turns.store.check()).unwrap(), []);
}
