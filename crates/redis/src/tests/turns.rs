//! Tests claims with shares: by the cases of the suite, and by cases about lanes, slices and the number of scripts.

use super::conformance::{maker, on};
use crate::layout::{PERIOD, lane_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_conformance::{Case, TURNS, Turns, failures};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{Late, Leased, Limit, Op};
use tourbillon_fault::Server;

const ALL: Limit = Limit { timers: 512, bytes: u64::MAX };
/// The kinds of deployments in these tests: the number of shards, and true if each script names one shard, as in a
/// cluster.
const KINDS: [(u16, bool); 3] = [(1, false), (16, false), (4, true)];

/// The only cases of the suite that this store does not pass. A claim takes the timers that have been due for longest,
/// from the lanes that have not used up their shares. So the namespace whose timers are due last gets less than an
/// equal part.
const EQUAL_PARTS: [&str; 2] =
    ["turns: namespaces that wait are served in turn", "turns: namespaces behind many herds get their parts"];

/// Runs a case on a deployment of each kind.
fn on_each_kind(room: usize, case: impl Fn((u16, bool), Turns)) {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        case(kind, Turns::new(&maker(on(&server), kind.0, kind.1), room));
    }
}

#[test]
fn the_store_conforms_in_turns() {
    let Some(server) = Server::start(&[]) else { return };
    let cases: Vec<&'static Case> = TURNS.iter().filter(|(name, _)| !EQUAL_PARTS.contains(name)).collect();
    assert_eq!(cases.len() + EQUAL_PARTS.len(), TURNS.len());
    for kind in KINDS {
        assert_eq!(failures(cases.iter().copied(), &maker(on(&server), kind.0, kind.1)), [""; 0], "{kind:?}");
    }
}

/// Tests that the first claim finds timers that are due after a *herd*: 3,000 timers of another namespace that are due
/// at the same moment. The suite permits other stores a few more claims.
#[test]
fn timers_behind_a_herd_are_claimed_at_once() {
    on_each_kind(100, |kind, mut turns| {
        turns.place("herd", 0, 3_000);
        turns.place("other", 1, 5);
        turns.set(10);
        let (counts, claimed) = turns.claim(ALL);
        assert_eq!(counts, BTreeMap::from([("herd".into(), 75), ("other".into(), 5)]), "{kind:?}");
        assert!(claimed.next_due.is_some_and(|due| due <= claimed.now));
        assert_eq!(claimed.next_claim, None, "no timer of another namespace is due: {kind:?}");
        turns.end("herd", 10, Op::Ack);
        let (counts, _) = turns.claim(ALL);
        assert!(counts["herd"] > 5, "{kind:?}: {counts:?}");
        turns.place("later", 11, 3);
        turns.set(11);
        let (counts, _) = turns.claim(ALL);
        assert_eq!(counts, BTreeMap::from([("later".into(), 3)]), "{kind:?}");
    });
}

#[test]
fn many_namespaces_are_claimed_in_their_order_and_all_of_them() {
    on_each_kind(10_000, |kind, mut turns| {
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let lanes: BTreeSet<u64> = names.iter().map(|name| lane_of(name)).collect();
        assert!(lanes.len() > 40);
        for (nth, name) in (0..).zip(&names) {
            turns.place(name, nth, 3);
        }
        turns.set(1_000);
        let mut dues: BTreeMap<u64, Vec<UtcMillis>> = BTreeMap::new();
        let (mut claims, mut first_dues) = (0, Vec::new());
        while dues.values().map(Vec::len).sum::<usize>() < 300 {
            let (counts, claimed) = turns.claim(Limit { timers: 100, ..ALL });
            claims += 1;
            assert!(!counts.is_empty() && claims <= 5, "{kind:?}");
            first_dues.extend(claimed.leased.first().map(|leased| leased.timer.due));
            for Leased { timer, .. } in claimed.leased {
                dues.entry(lane_of(&timer.namespace)).or_default().push(timer.due);
            }
        }
        assert!(first_dues.is_sorted(), "the longest due first: {kind:?}");
        assert!(dues.values().all(|dues| dues.is_sorted()), "each lane in its order: {kind:?}");
    });
}

#[test]
fn namespaces_whose_timers_are_due_at_the_same_moment_are_all_claimed() {
    on_each_kind(9_999, |kind, mut turns| {
        for number in 0..100 {
            turns.place(&format!("n{number}"), 1_000, 4);
        }
        turns.set(1_000);
        let mut claimed = 0;
        for _ in 0..8 {
            let (counts, _) = turns.claim(Limit { timers: 100, ..ALL });
            claimed += counts.values().sum::<usize>();
        }
        assert_eq!(claimed, 400, "{kind:?}");
    });
}

#[test]
fn hundreds_of_slices_that_are_passed_over_hide_no_other_namespace() {
    on_each_kind(9_998, |kind, mut turns| {
        for period in 0..60 {
            for number in 0..16 {
                turns.place(&format!("n{number}"), PERIOD * period, 1);
            }
        }
        turns.place("quiet", PERIOD * 60, 1);
        turns.set(PERIOD * 60);
        let left = (0..16).map(|number| (format!("n{number}").into(), 0)).collect();
        turns.late = Some(Late::new(Duration::from_secs(5), 10, Arc::new(left)));
        let (counts, claimed) = turns.claim(ALL);
        assert_eq!(counts, BTreeMap::from([("quiet".into(), 1)]), "{kind:?}");
        assert_eq!(claimed.next_claim, None);
    });
}

#[test]
fn timers_of_a_namespace_wait_behind_its_late_ones_over_the_end_of_a_period() {
    on_each_kind(9_997, |kind, mut turns| {
        let start = turns.store.now();
        turns.place("a", 0, 5);
        turns.place("a", PERIOD, 1);
        turns.place("b", PERIOD, 1);
        turns.set(PERIOD);
        turns.late = Some(Late::new(Duration::from_secs(5), 3, Arc::default()));
        let (counts, claimed) = turns.claim(ALL);
        // A shard counts only its own timers.
        let shards_of_a = if kind.0 == 1 { 0 } else { 1 };
        assert_eq!(counts["b"], 1);
        assert!((3..=3 + shards_of_a).contains(&counts["a"]), "{kind:?}: {counts:?}");
        let late = claimed.leased.iter().filter(|leased| leased.timer.due == start).count();
        assert_eq!(late, 3, "{kind:?}");
        turns.late = None;
        turns.claim(ALL);
        assert_eq!(turns.under_way["a"].len(), 6, "{kind:?}");
    });
}

#[test]
fn a_herd_that_is_passed_over_costs_each_claim_one_script() {
    let Some(server) = Server::start(&[]) else { return };
    let mut turns = Turns::new(&maker(on(&server), 16, false), 100);
    turns.place("herd", 0, 3_000);
    turns.claim(ALL);
    turns.claim(ALL);
    let scripts = || {
        let stats: String = server.query(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap()
    };
    let before = scripts();
    for _ in 0..20 {
        turns.claim(ALL);
    }
    assert!(scripts() - before <= 21, "{}", scripts() - before);
    let before = scripts();
    for _ in 0..20 {
        turns.end("herd", 5, Op::Ack);
        let (counts, _) = turns.claim(ALL);
        assert!(counts.contains_key("herd"), "{counts:?}");
    }
    // Each round makes a claim, and ends five deliveries.
    assert!(scripts() - before <= 100, "{}", scripts() - before);
}
