//! Tests lists in the order of each index of a store.

use crate::bench::{Bench, Case, HOUR, Make, at};
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Failure, Phase};
use tourbillon_durable::store::{Cursor, Filter, IfPresent, Leased, Op, Outcome, Page, ReasonCount};
use tourbillon_durable::timer::{Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    ("lists by every index", lists_by_every_index),
    ("a list while timers come and go", a_list_while_timers_come_and_go),
    ("a list in its order", a_list_in_its_order),
    ("a small namespace beside a large one", a_small_namespace_beside_a_large_one),
    ("a cursor survives as bytes", a_cursor_survives_as_bytes),
    ("a page of no timers is a page of one", a_page_of_no_timers_is_a_page_of_one),
    ("reasons are counted and put back", reasons_are_counted_and_put_back),
];

/// Reads all pages of a list, each with at most `limit` timers. Returns the timers of the list.
#[track_caller]
pub(crate) fn pages(bench: &Bench, filter: &Filter, limit: u32) -> Vec<Timer> {
    walk(bench, filter, limit, &mut || ())
}

/// Reads all pages of a list, and returns its timers. Calls `between` after each page except the last page.
#[track_caller]
fn walk(bench: &Bench, filter: &Filter, limit: u32, between: &mut dyn FnMut()) -> Vec<Timer> {
    let (mut timers, mut cursor) = (Vec::new(), None);
    for turn in 0.. {
        assert!(turn < 10_000, "a list has no end");
        let page =
            pollster::block_on(bench.store.list(filter.clone(), cursor, limit)).expect("a read failed");
        assert!(page.timers.len() <= limit.max(1) as usize, "a page is too long");
        timers.extend(page.timers);
        let Some(next) = page.next else { break };
        cursor = Some(next);
        between();
    }
    timers
}

/// Stores timers in all phases, in three namespaces, with various labels and kinds.
fn fill(bench: &Bench) {
    let created = (0..96_usize).map(|n| {
        let timer = Timer {
            namespace: ["", "a", "ab"][n % 3].into(),
            key: (n % 2 == 0).then(|| format!("{}{n}", ["k", "key", "ke"][n % 5 % 3]).into()),
            labels: [vec![], vec!["l".into()], vec!["l".into(), "m".into()]][n % 7 % 3].clone(),
            kind: ["mail", "call"][n % 11 % 2].into(),
            ..bench.timer(n as u64 / 5)
        };
        bench.create(&timer)
    });
    let ids: Vec<TimerId> = created.collect();
    bench.set(10);
    for (nth, leased) in bench.due().into_iter().enumerate() {
        let (id, token) = (leased.timer.id, leased.token);
        let _outcome = bench.apply(match nth % 4 {
            0 => Op::Fail(id, token, Failure { is_final: true, ..Failure::default() }),
            1 => Op::Park(id, token, ["limit", "lim"][nth / 4 % 2].into()),
            2 => Op::Release(id, token),
            _ => Op::Cancel(id.into(), None),
        });
    }
    let _leased = bench.claim(7, u64::MAX);
    let _paused = bench.apply(Op::Pause(ids[90].into()));
}

fn filters() -> Vec<Filter> {
    let mut filters = Vec::new();
    for namespace in [None, Some(""), Some("a"), Some("nowhere")] {
        for label in [None, Some("l"), Some("m")] {
            for key_prefix in [None, Some(""), Some("k"), Some("key"), Some("key7")] {
                for phase in [
                    None,
                    Some(Phase::Pending),
                    Some(Phase::Leased),
                    Some(Phase::Parked),
                    Some(Phase::Dead),
                    Some(Phase::Done),
                ] {
                    for kind in [None, Some("call")] {
                        filters.push(Filter {
                            namespace: namespace.map(Into::into),
                            label: label.map(Into::into),
                            key_prefix: key_prefix.map(Into::into),
                            phase,
                            kind: kind.map(Into::into),
                            ..Filter::default()
                        });
                    }
                }
            }
        }
    }
    for phase in [None, Some(Phase::Pending)] {
        let after = |moment: u64| Filter { phase, due_after: Some(at(moment)), ..Filter::default() };
        filters.extend([after(0), after(10), after(HOUR)]);
        let made = |moment: u64| Filter { phase, created_after: Some(at(moment)), ..Filter::default() };
        filters.extend([made(0), made(HOUR)]);
    }
    for (phase, namespace) in [(None, None), (Some(Phase::Pending), None), (Some(Phase::Pending), Some("a"))]
    {
        let namespace = namespace.map(Into::into);
        let between = |from: u64, until: u64| Filter {
            namespace: namespace.clone(),
            phase,
            due_after: Some(at(from)),
            due_before: Some(at(until)),
            ..Filter::default()
        };
        filters.extend([between(0, 15), between(12, 14), between(14, HOUR)]);
    }
    for reason in ["limit", "lim", "li", "paused"] {
        let parked = |phase| Filter { reason: Some(reason.into()), phase, ..Filter::default() };
        filters.extend([parked(None), parked(Some(Phase::Parked)), parked(Some(Phase::Dead))]);
        filters.push(Filter { namespace: Some("ab".into()), ..parked(None) });
    }
    filters
}

fn lists_by_every_index(make: Make<'_>) {
    let bench = Bench::new(make);
    fill(&bench);
    let all = bench.all();
    for filter in filters() {
        let wanted: BTreeSet<TimerId> =
            all.iter().filter(|timer| filter.admits(timer)).map(|timer| timer.id).collect();
        for limit in [1, 5, 1_000] {
            let listed: Vec<TimerId> =
                pages(&bench, &filter, limit).into_iter().map(|timer| timer.id).collect();
            let distinct: BTreeSet<TimerId> = listed.iter().copied().collect();
            assert_eq!(distinct.len(), listed.len(), "{filter:?} has a timer twice");
            assert_eq!(distinct, wanted, "{filter:?} in pages of {limit}");
            let back = Filter { descending: true, ..filter.clone() };
            let back: Vec<TimerId> = pages(&bench, &back, limit).into_iter().map(|timer| timer.id).collect();
            assert!(back.iter().eq(listed.iter().rev()), "{filter:?} turned round in pages of {limit}");
        }
    }
}

/// An empty page without a cursor would look like the end of the list.
fn a_page_of_no_timers_is_a_page_of_one(make: Make<'_>) {
    let bench = Bench::new(make);
    fill(&bench);
    let phases = [None, Some(Phase::Pending), Some(Phase::Leased), Some(Phase::Parked), Some(Phase::Dead)];
    let by_phase = phases.map(|phase| Filter { phase, ..Filter::default() });
    let labelled = Filter { label: Some("l".into()), ..Filter::default() };
    let keyed = Filter { key_prefix: Some("k".into()), ..Filter::default() };
    let parked = Filter { reason: Some("limit".into()), ..Filter::default() };
    for filter in by_phase.into_iter().chain([labelled, keyed, parked]) {
        for descending in [false, true] {
            let filter = Filter { descending, ..filter.clone() };
            let ids = |limit| pages(&bench, &filter, limit).into_iter().map(|timer| timer.id);
            assert!(ids(0).eq(ids(1_000)), "{filter:?}");
        }
    }
}

fn a_list_in_its_order(make: Make<'_>) {
    let bench = Bench::new(make);
    fill(&bench);
    let listed = |filter: Filter| pages(&bench, &filter, 4);
    let in_phase = |phase| Filter { phase: Some(phase), ..Filter::default() };
    assert!(listed(Filter::default()).iter().map(|timer| timer.id).is_sorted());
    assert!(listed(in_phase(Phase::Pending)).iter().map(|timer| (timer.due, timer.id)).is_sorted());
    let labelled = Filter { label: Some("l".into()), ..Filter::default() };
    assert!(listed(labelled).iter().map(|timer| timer.id).is_sorted());
    let keyed = Filter { key_prefix: Some("".into()), ..Filter::default() };
    assert!(listed(keyed).iter().map(|timer| timer.key.clone()).is_sorted());
    let parked = Filter { reason: Some("limit".into()), ..Filter::default() };
    assert!(listed(parked).iter().map(|timer| (timer.due, timer.id)).is_sorted());
    let all = listed(in_phase(Phase::Parked));
    let is_by_due = all.iter().map(|timer| (timer.due, timer.id)).is_sorted();
    assert_eq!(is_by_due, bench.store.lists_parked_by_due(), "the parked timers have several reasons");
}

/// Stores `number` timers of a namespace. The timers become due within about a second, which begins `delay`
/// milliseconds after the start of the test case. Two of three timers have a key.
fn crowd(bench: &Bench, namespace: &str, number: u64, delay: u64) {
    let ops = (0..number).map(|n| {
        let timer = Timer {
            namespace: namespace.into(),
            key: (n % 3 > 0).then(|| format!("k{}", bench.ids.get()).into()),
            ..bench.timer(delay + n * 7_919 % 1_009)
        };
        Op::Place(Box::new(timer), IfPresent::Reject)
    });
    for outcome in bench.apply_all(ops.collect()) {
        assert!(matches!(outcome, Outcome::Created(_)), "{outcome:?}");
    }
}

/// Claims all due timers, by several claims if necessary.
fn claim_all(bench: &Bench) -> Vec<Leased> {
    let mut all = Vec::new();
    loop {
        let leased = bench.due();
        if leased.is_empty() {
            return all;
        }
        all.extend(leased);
    }
}

/// Checks the lists of a small namespace in a store that also has a large namespace. In each phase, the timers of the
/// small namespace come after the timers of the large namespace.
fn a_small_namespace_beside_a_large_one(make: Make<'_>) {
    const LARGE: [(Phase, u64); 4] =
        [(Phase::Dead, 500), (Phase::Parked, 400), (Phase::Leased, 300), (Phase::Pending, 1_800)];
    const SMALL: [(Phase, u64); 4] =
        [(Phase::Dead, 7), (Phase::Parked, 8), (Phase::Leased, 9), (Phase::Pending, 80)];
    let bench = Bench::new(make);
    for ((phase, of_large), (_, of_small)) in LARGE.into_iter().zip(SMALL) {
        let delay = if phase == Phase::Pending { HOUR } else { 0 };
        crowd(&bench, "large", of_large, delay);
        crowd(&bench, "small", of_small, delay + 2_000);
        if phase == Phase::Pending {
            break;
        }
        bench.set(3_009 + phase as u64);
        let leased = claim_all(&bench);
        assert_eq!(leased.len() as u64, of_large + of_small);
        let ops = leased.iter().filter_map(|leased| match (phase, leased.timer.id, leased.token) {
            (Phase::Dead, id, token) => {
                Some(Op::Fail(id, token, Failure { is_final: true, ..Failure::default() }))
            }
            (Phase::Parked, id, token) => Some(Op::Park(id, token, "limit".into())),
            _ => None,
        });
        let _ended = bench.apply_all(ops.collect());
    }
    let count = |counts: [(Phase, u64); 4], wanted: Option<Phase>| -> u64 {
        counts
            .into_iter()
            .filter(|(phase, _)| wanted.is_none_or(|wanted| wanted == *phase))
            .map(|(_, count)| count)
            .sum()
    };
    for phase in [None, Some(Phase::Pending), Some(Phase::Leased), Some(Phase::Parked), Some(Phase::Dead)] {
        for (namespace, stored, limit) in
            [("small", count(SMALL, phase), 5), ("large", count(LARGE, phase), 50)]
        {
            let filter = Filter { namespace: Some(namespace.into()), phase, ..Filter::default() };
            let (mut listed, mut cursor) = (Vec::new(), None);
            loop {
                let page = pollster::block_on(bench.store.list(filter.clone(), cursor, limit));
                let page = page.expect("a read failed");
                let (has, is_last) = (page.timers.len(), page.next.is_none());
                assert!(is_last || has > 0, "{phase:?} of {namespace}: an empty page is not the last");
                let is_full = has == limit as usize;
                assert!(is_last || is_full || namespace == "large", "{phase:?}: a page of {has}");
                listed.extend(page.timers);
                cursor = page.next;
                if is_last {
                    break;
                }
            }
            assert!(listed.iter().all(|timer| *timer.namespace == *namespace));
            assert_eq!(listed.len() as u64, stored, "{phase:?} of {namespace}");
            match phase {
                None => assert!(listed.is_sorted_by_key(|timer| timer.id), "the order is that of the ids"),
                Some(Phase::Pending) => {
                    assert!(
                        listed.is_sorted_by_key(|timer| (timer.due, timer.id)),
                        "the order is by due moment"
                    );
                }
                Some(_) => {}
            }
            let distinct: BTreeSet<TimerId> = listed.iter().map(|timer| timer.id).collect();
            assert_eq!(distinct.len(), listed.len(), "{phase:?} of {namespace} has a timer twice");
        }
        let nowhere = Filter { namespace: Some("nowhere".into()), phase, ..Filter::default() };
        assert_eq!(
            pollster::block_on(bench.store.list(nowhere, None, 5)).expect("a read failed"),
            Page::default()
        );
    }
}

fn a_list_while_timers_come_and_go(make: Make<'_>) {
    let labelled = Filter { label: Some("l".into()), ..Filter::default() };
    let keyed = Filter { key_prefix: Some("k".into()), ..Filter::default() };
    let pending = Filter { phase: Some(Phase::Pending), ..Filter::default() };
    for filter in [Filter::default(), labelled, keyed, pending] {
        let bench = Bench::new(make);
        let timer = |n: u64| Timer {
            labels: vec!["l".into()],
            key: Some(format!("k{:03}", n * 37 % 200).into()),
            ..bench.timer(n * 53 % 97)
        };
        let ids: Vec<TimerId> = (0..100).map(|n| bench.create(&timer(n))).collect();
        let (stay, go): (Vec<_>, Vec<_>) = ids.iter().enumerate().partition(|(nth, _)| nth % 3 == 0);
        let (mut go, mut fresh) = (go.into_iter(), 100..200);
        let listed = walk(&bench, &filter, 5, &mut || {
            // For each page, two timers are cancelled and a timer is created.
            for (_, id) in go.by_ref().take(2) {
                let _cancelled = bench.apply(Op::Cancel((*id).into(), None));
            }
            if let Some(n) = fresh.next() {
                let _placed = bench.place(&timer(n), IfPresent::Keep);
            }
        });
        let ids: Vec<TimerId> = listed.iter().map(|timer| timer.id).collect();
        let distinct: BTreeSet<TimerId> = ids.iter().copied().collect();
        assert_eq!(distinct.len(), ids.len(), "{filter:?} has a timer twice");
        for (_, id) in stay {
            assert!(distinct.contains(id), "{filter:?} misses a timer that stayed");
        }
    }
}

fn a_cursor_survives_as_bytes(make: Make<'_>) {
    let bench = Bench::new(make);
    for _ in 0..3 {
        bench.create(&bench.timer(HOUR));
    }
    let page =
        |cursor| pollster::block_on(bench.store.list(Filter::default(), cursor, 2)).expect("a read failed");
    let first = page(None);
    let cursor = Cursor::from_bytes(first.next.as_ref().expect("there is more").as_bytes());
    let second = page(Some(cursor));
    assert_eq!((first.timers.len(), second.timers.len(), second.next), (2, 1, None));
    assert!(second.timers.iter().all(|timer| timer.due == at(HOUR)));
}

/// Reads all pages of the list of reasons for which timers are parked. Returns the number of parked timers and their
/// earliest due moment for each reason.
#[track_caller]
fn reasons(bench: &Bench, limit: u32) -> BTreeMap<Box<str>, (u64, UtcMillis)> {
    let (mut counts, mut cursor) = (BTreeMap::<_, (u64, UtcMillis)>::new(), None);
    for turn in 0.. {
        assert!(turn < 10_000, "the reasons have no end");
        let page = pollster::block_on(bench.store.reasons(cursor, limit)).expect("a read failed");
        for ReasonCount { reason, timers, first_due } in page.counts {
            let (sum, first) = counts.entry(reason).or_insert((0, first_due));
            (*sum, *first) = (*sum + timers, first_due.min(*first));
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    counts
}

fn reasons_are_counted_and_put_back(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(reasons(&bench, 1), BTreeMap::new());
    let names = ["a", "ab", "b", "", "\u{ff}"];
    for n in 0..40_u64 {
        bench.create(&bench.timer(n));
    }
    bench.set(40);
    let mut wanted = BTreeMap::<Box<str>, (u64, UtcMillis)>::new();
    // The first timer of a reason that is parked is not the first that is due.
    for (nth, leased) in bench.due().into_iter().enumerate().rev() {
        let reason = names[nth % 7 % names.len()];
        let _parked = bench.apply(Op::Park(leased.timer.id, leased.token, reason.into()));
        let (timers, first_due) = wanted.entry(reason.into()).or_insert((0, leased.timer.due));
        (*timers, *first_due) = (*timers + 1, leased.timer.due.min(*first_due));
    }
    let moments: BTreeSet<UtcMillis> = wanted.values().map(|(_, first_due)| *first_due).collect();
    assert_eq!(moments.len(), names.len(), "the timers of each reason have a first due moment of their own");
    for limit in [0, 1, 2, 3, 1_000] {
        assert_eq!(reasons(&bench, limit), wanted, "in pages of {limit}");
    }
    let put_back = |reason: &str, limit| {
        let found = pollster::block_on(bench.store.put_back(reason.into(), limit)).expect("a change failed");
        bench.audit();
        u64::from(found)
    };
    let (all, _) = wanted.remove("a").unwrap_or_default();
    assert_eq!((put_back("a", 3), put_back("a", 100), put_back("a", 100)), (3, all - 3, 0));
    assert_eq!((put_back("nothing", 5), put_back("ab", 0)), (0, 0));
    assert_eq!(reasons(&bench, 2), wanted);
    assert_eq!(bench.due_ids().len() as u64, all, "the timers that were put back are due");
}
