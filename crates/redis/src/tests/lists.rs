//! Tests lists of one namespace beside other namespaces, and the index entries of its timers.

use super::plain;
use crate::RedisStore;
use crate::layout::{Layout, Part, period_of, start_of};
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Death, DeathReason, Phase, State};
use tourbillon_durable::store::{Cursor, Durability, Filter, IfPresent, Op, Page, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Server;

/// The number of the small namespace's timers in each phase. It is more than a page holds.
const FEW: u64 = 80;
const PAGE: u32 = 50;
const PHASES: [Phase; 3] = [Phase::Pending, Phase::Parked, Phase::Dead];

fn timer(store: &RedisStore, namespace: &str, key: Option<String>, due: u64, phase: Phase) -> Timer {
    let due = UtcMillis::from_millis(store.now().as_millis() + 3_600_000 + due);
    let state = match phase {
        Phase::Parked => State::Parked("limit".into()),
        Phase::Dead => State::Dead(Death { reason: DeathReason::Attempts, at: due }),
        _ => State::Pending,
    };
    let id = store.fresh_id(namespace, key.as_deref());
    Timer { namespace: namespace.into(), key: key.map(Into::into), state, ..Timer::new(id, "mail", due) }
}

fn filter(namespace: &str, phase: Option<Phase>) -> Filter {
    Filter { namespace: Some(namespace.into()), phase, ..Filter::default() }
}

/// Reads a page five times, because other work of the machine may slow a read down. Returns the page of the fastest
/// read, and its time.
fn least_of_five(store: &RedisStore, filter: &Filter, cursor: Option<&Cursor>) -> (Page, Duration) {
    let read = |_| {
        let begun = Instant::now();
        let page = pollster::block_on(store.list(filter.clone(), cursor.cloned(), PAGE)).unwrap();
        (page, begun.elapsed())
    };
    (0..5).map(read).min_by_key(|(_, took)| *took).unwrap()
}

/// Tests lists of a small namespace beside a large namespace, whose timers are due earlier and died earlier.
/// `TOURBILLON_OTHERS` sets the number of timers of the large namespace, such as 1000000 for a release build.
#[test]
#[expect(clippy::print_stdout, reason = "figures")]
fn a_page_of_a_small_namespace_is_full_beside_many_others() {
    let others: u64 = std::env::var("TOURBILLON_OTHERS").map_or(10_000, |others| others.parse().unwrap());
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap();
    for start in (0..others).step_by(1_000) {
        let ops = (start..others.min(start + 1_000)).map(async |n| {
            let key = (n % 2 == 0).then(|| format!("order-{n:010}"));
            let timer = timer(&store, "large", key, n * 7_919 % 2_592_000, Phase::Pending);
            let op = Op::Place(Box::new(timer), IfPresent::Reject);
            store.apply(vec![op], Durability::ProcessCrash).await.unwrap();
        });
        pollster::block_on(join_all(ops));
    }
    for phase in PHASES {
        for (namespace, count) in [("others", 10 * FEW), ("small", FEW), ("large", FEW)] {
            let late = if namespace == "small" { 2_592_000_000 } else { 0 };
            let key = |n: u64| n.is_multiple_of(2).then(|| format!("few-{phase:?}-{n}"));
            let timers = (0..count).map(|n| timer(&store, namespace, key(n), late + n, phase));
            pollster::block_on(store.import(timers.collect())).unwrap();
        }
    }
    let mut slowest = Duration::ZERO;
    for phase in [None, Some(Phase::Pending), Some(Phase::Parked), Some(Phase::Dead), Some(Phase::Leased)] {
        let (mut listed, mut cursor, mut of_small) = (Vec::new(), None, Duration::ZERO);
        loop {
            let (page, took) = least_of_five(&store, &filter("small", phase), cursor.as_ref());
            of_small = of_small.max(took);
            assert!(page.next.is_none() || page.timers.len() == PAGE as usize, "{phase:?}");
            listed.extend(page.timers);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let of_phases = phase.map_or(3, |phase| u64::from(PHASES.contains(&phase)));
        assert_eq!(listed.len() as u64, of_phases * FEW, "{phase:?}");
        match phase {
            None => assert!(listed.is_sorted_by_key(|timer| timer.id)),
            Some(_) => assert!(listed.is_sorted_by_key(|timer| (timer.due, timer.id)), "{phase:?}"),
        }
        let (page, took) = least_of_five(&store, &filter("large", phase), None);
        let is_full = page.timers.len() == PAGE as usize;
        assert!(is_full || phase == Some(Phase::Leased), "{phase:?}: {}", page.timers.len());
        println!("{phase:?}: a page of the small namespace {of_small:.1?}, of the large one {took:.1?}");
        slowest = slowest.max(of_small).max(took);
    }
    println!("{FEW} timers of each phase beside {others}: the slowest page took {slowest:.1?}");
    let most = if cfg!(debug_assertions) { 1_000 } else { 20 };
    assert!(slowest < Duration::from_millis(most), "{slowest:?}");
    if others <= 100_000 {
        assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    }
}

/// Tests two namespaces, each with too many timers for a page to read all of them. The timers of one namespace are due
/// after all timers of the other namespace.
#[test]
fn the_timers_of_a_namespace_are_found_behind_thousands_of_others() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").shards(4).poll(None), server.port()).unwrap();
    for (namespace, due) in [("before", 0), ("behind", 10_000)] {
        let ops = (0..2_500).map(async |n| {
            let key = (n % 2 == 0).then(|| n.to_string());
            let op =
                Op::Place(Box::new(timer(&store, namespace, key, due, Phase::Pending)), IfPresent::Reject);
            store.apply(vec![op], Durability::ProcessCrash).await.unwrap();
        });
        pollster::block_on(join_all(ops));
    }
    for phase in [None, Some(Phase::Pending)] {
        for namespace in ["before", "behind"] {
            let (mut listed, mut cursor) = (Vec::new(), None);
            loop {
                let page = pollster::block_on(store.list(filter(namespace, phase), cursor, 200)).unwrap();
                assert!(page.next.is_none() || !page.timers.is_empty(), "{phase:?} of {namespace}");
                listed.extend(page.timers);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(listed.len(), 2_500, "{phase:?} of {namespace}");
            match phase {
                None => assert!(listed.is_sorted_by_key(|timer| timer.id)),
                Some(_) => assert!(listed.is_sorted_by_key(|timer| (timer.due, timer.id))),
            }
        }
    }
    // A list by keys has no timers without keys.
    let keyed = Filter { key_prefix: Some("".into()), ..filter("behind", None) };
    let (mut keys, mut pages, mut cursor) = (Vec::new(), 0, None);
    loop {
        let page = pollster::block_on(store.list(keyed.clone(), cursor, 200)).unwrap();
        pages += 1;
        keys.extend(page.timers.into_iter().filter_map(|timer| timer.key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert!(keys.len() == 1_250 && keys.is_sorted() && pages <= 8, "{} keys, {pages} pages", keys.len());
}

/// Removes or adds an entry of a timer in an index by namespace. Tests that the check finds this fault and names the
/// timer.
#[test]
fn an_entry_by_namespace_too_many_or_too_few_is_found() {
    const REMOVE: &str =
        "local m = redis.call('ZRANGE', KEYS[1], 0, 0)[1] return redis.call('ZREM', KEYS[1], m)";
    const ADD: &str = "local m = redis.call('ZRANGE', KEYS[1], 0, 0)[1] \
                       return redis.call('ZADD', KEYS[1], 0, '\\1b' .. string.sub(m, 3))";
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let (layout, id) = (Layout::new("d", 1), TimerId::from_u128(7));
    for (phase, change, part, table) in [
        (Phase::Pending, REMOVE, Part::Keys(layout.keyless_set(id)), "keyless"),
        (Phase::Pending, ADD, Part::Keys(layout.keyless_set(id)), "keyless"),
        (Phase::Pending, REMOVE, Part::Places, "places"),
        (Phase::Parked, REMOVE, Part::Stopped, "stopped"),
        (Phase::Parked, ADD, Part::Stopped, "stopped"),
        (Phase::Dead, REMOVE, Part::Stopped, "stopped"),
        (Phase::Dead, ADD, Part::Stopped, "stopped"),
    ] {
        server.command(&["FLUSHALL"]);
        let store = plain::open(RedisStore::builder("d").shards(1).poll(None), server.port()).unwrap();
        let one = Timer { id, ..timer(&store, "a", None, 0, phase) };
        pollster::block_on(store.import(vec![one])).unwrap();
        assert_eq!(pollster::block_on(store.check()).unwrap(), []);
        let name = String::from_utf8(layout.key(0, part)).unwrap();
        assert_eq!(link.ask(&["EVAL", change, "1", &name]), redis::Value::Int(1));
        let faults = pollster::block_on(store.check()).unwrap();
        let is_named =
            |fault: &tourbillon_durable::store::Fault| (fault.table, fault.timer) == (table, Some(id));
        assert!(faults.iter().any(is_named), "{phase:?}, {table}: {faults:?}");
    }
}

/// Tests a page after which the period of the last timer of the page becomes empty. The next page begins in a later
/// period, whose first timers are due at its first millisecond and have smaller ids.
#[test]
fn the_page_after_a_period_that_has_become_empty_skips_no_timer() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").shards(1).poll(None), server.port()).unwrap();
    let later = start_of(period_of(store.now().as_millis()) + 2);
    let due = |id, due| Timer::new(TimerId::from_u128(id), "mail", UtcMillis::from_millis(due));
    pollster::block_on(store.import(vec![due(9, later - 1), due(1, later), due(2, later)])).unwrap();
    let pending = Filter { phase: Some(Phase::Pending), ..Filter::default() };
    let page = |cursor, limit| pollster::block_on(store.list(pending.clone(), cursor, limit)).unwrap();
    let ids = |page: &Page| page.timers.iter().map(|timer| timer.id.as_u128()).collect::<Vec<_>>();
    let first = page(None, 1);
    assert_eq!(ids(&first), [9]);
    let cancel = vec![Op::Cancel(TimerId::from_u128(9).into(), None)];
    let _cancelled = pollster::block_on(store.apply(cancel, Durability::PowerLoss)).unwrap();
    assert_eq!(ids(&page(first.next, 10)), [1, 2]);
}
