//! Tests labels of timers, and cancels by label.

use crate::bench::{Bench, Case, LEASE, Make};
use crate::lists::pages;
use std::collections::BTreeSet;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Filter, Op, Outcome};
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    ("timers are cancelled by label in bounded batches", timers_are_cancelled_by_label),
    ("a cancel by label with a limit of 0 comes to its end", a_cancel_by_label_with_a_limit_of_0),
    ("texts beyond the limits name no timer", texts_beyond_the_limits_name_no_timer),
    ("a label belongs to its namespace", a_label_belongs_to_its_namespace),
    ("a cancel by label while timers are in flight", a_cancel_by_label_while_timers_are_in_flight),
    ("the least and the greatest id are ids like others", the_least_and_the_greatest_id),
];

fn labelled(bench: &Bench, namespace: &str, labels: &[&str]) -> Timer {
    Timer {
        namespace: namespace.into(),
        labels: labels.iter().map(|label| (*label).into()).collect(),
        ..bench.timer(10_000)
    }
}

fn cancel(namespace: &str, label: &str, limit: u32) -> Op {
    Op::CancelLabelled { namespace: namespace.into(), label: label.into(), limit }
}

fn many(cancelled: u32, in_flight: u32, more: bool) -> Outcome {
    Outcome::CancelledMany { cancelled, in_flight, more }
}

fn timers_are_cancelled_by_label(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(cancel("", "l", 5)), many(0, 0, false));
    let place = |timer: Timer| Op::Place(Box::new(timer), tourbillon_durable::store::IfPresent::Reject);
    let with_label = (0..600).map(|_| labelled(&bench, "", &["l", "other"]));
    let _created = bench.apply_all(with_label.map(place).collect());
    let without = labelled(&bench, "", &["other"]);
    bench.create(&without);
    let mut left = 600;
    loop {
        let Outcome::CancelledMany { cancelled, in_flight: 0, more } = bench.apply(cancel("", "l", 250))
        else {
            panic!("no answer to a cancel by label")
        };
        left -= cancelled;
        assert!(cancelled <= 250, "a batch is bounded");
        assert_eq!(bench.all().len(), left as usize + 1);
        if !more {
            break;
        }
        assert!(cancelled > 0, "each batch makes progress");
    }
    assert_eq!(left, 0);
    assert_eq!(bench.get(without.id).map(|timer| timer.id), Some(without.id));
}

/// A limit of 0 counts as 1. If a store cancelled nothing, and said that more timers are left, a caller that repeats
/// the call would never end.
fn a_cancel_by_label_with_a_limit_of_0(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(cancel("", "l", 0)), many(0, 0, false));
    for _ in 0..3 {
        bench.create(&labelled(&bench, "", &["l"]));
    }
    bench.set(10_000);
    assert_eq!(bench.claim(1, u64::MAX).leased.len(), 1);
    let (mut cancelled, mut in_flight) = (0, 0);
    for round in 0.. {
        assert!(round < 10, "a cancel by label does not come to its end");
        let Outcome::CancelledMany { cancelled: now, in_flight: flying, more } =
            bench.apply(cancel("", "l", 0))
        else {
            panic!("no answer to a cancel by label")
        };
        assert!(now <= 1, "a limit of 0 counts as 1");
        (cancelled, in_flight) = (cancelled + now, in_flight + flying);
        if !more {
            break;
        }
    }
    assert_eq!((cancelled, in_flight), (3, 1));
}

/// A stored text has at most 255 bytes. So a longer text finds no timer, even if it contains the text of a timer.
fn texts_beyond_the_limits_name_no_timer(make: Make<'_>) {
    let bench = Bench::new(make);
    let long = "n".repeat(255);
    let timer = Timer { key: Some("k".into()), ..labelled(&bench, &long, &[long.as_str()]) };
    bench.create(&timer);
    let longer = format!("{long}k");
    let key = |namespace: &str, key: &str| KeyOf { namespace: namespace.into(), key: key.into() };
    for beyond in [&longer, &"n".repeat(256), &"n".repeat(600)] {
        for name in ["", "k"] {
            assert_eq!(bench.get(Address::Key(key(beyond, name))), None);
            assert_eq!(bench.apply(Op::Cancel(Address::Key(key(beyond, name)), None)), Outcome::NotFound);
        }
        assert_eq!(bench.apply(cancel(beyond, &long, 9)), many(0, 0, false));
        assert_eq!(bench.apply(cancel(&long, beyond, 9)), many(0, 0, false));
        let name = || Some(beyond.as_str().into());
        let filters = [
            Filter { namespace: name(), ..Filter::default() },
            Filter { namespace: name(), key_prefix: Some("".into()), ..Filter::default() },
            Filter { namespace: name(), label: Some(long.as_str().into()), ..Filter::default() },
            Filter { namespace: Some(long.as_str().into()), label: name(), ..Filter::default() },
            Filter { namespace: name(), phase: Some(Phase::Dead), ..Filter::default() },
            Filter { reason: name(), ..Filter::default() },
        ];
        for filter in filters {
            assert_eq!(pages(&bench, &filter, 9), [], "{filter:?}");
        }
    }
    bench.set(10_000);
    let leased = bench.the_due();
    let _parked = bench.apply(Op::Park(timer.id, leased.token, long.as_str().into()));
    for beyond in ["n".repeat(256), "n".repeat(600)] {
        assert_eq!(bench.apply(Op::Unpark(beyond.into(), 9)), Outcome::Unparked(0));
    }
    assert_eq!(bench.phase(timer.id), Some(Phase::Parked));
    assert_eq!(bench.apply(Op::Unpark(long.as_str().into(), 9)), Outcome::Unparked(1));
    assert_eq!(bench.apply(cancel(&long, &long, 9)), many(1, 0, false));
}

fn a_label_belongs_to_its_namespace(make: Make<'_>) {
    let bench = Bench::new(make);
    let places = [("", "ab"), ("a", "b"), ("", "abc"), ("ab", ""), ("", "")];
    let ids: Vec<TimerId> =
        places.iter().map(|(space, label)| bench.create(&labelled(&bench, space, &[*label]))).collect();
    for (gone, (namespace, label)) in places.iter().enumerate() {
        assert_eq!(bench.apply(cancel(namespace, label, 9)), many(1, 0, false));
        for (nth, id) in ids.iter().enumerate() {
            assert_eq!(bench.get(*id).is_some(), nth > gone);
        }
    }
}

fn a_cancel_by_label_while_timers_are_in_flight(make: Make<'_>) {
    let bench = Bench::new(make);
    for _ in 0..6 {
        bench.create(&labelled(&bench, "", &["l"]));
    }
    bench.set(10_000);
    let leased = bench.claim(4, u64::MAX).leased;
    assert_eq!(leased.len(), 4);
    let (mut cancelled, mut in_flight) = (0, 0);
    for round in 0.. {
        assert!(round < 10, "a cancel by label does not come to its end");
        match bench.apply(cancel("", "l", 2)) {
            Outcome::CancelledMany { cancelled: now, in_flight: flying, more } => {
                (cancelled, in_flight) = (cancelled + now, in_flight + flying);
                if !more {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((cancelled, in_flight), (6, 4));
    assert_eq!(bench.due_ids(), []);
    let ended = bench.apply(Op::Release(leased[0].timer.id, leased[0].token));
    assert!(matches!(ended, Outcome::Ended { phase: Phase::Withdrawn, .. }));
    bench.set(10_000 + LEASE);
    assert_eq!(bench.reap(9).withdrawn, 3);
    assert_eq!(bench.all(), []);
}

/// Checks timers with the least and the greatest possible ids. A store loses such a timer if a search begins after the
/// least id, or ends before the greatest id.
fn the_least_and_the_greatest_id(make: Make<'_>) {
    let bench = Bench::new(make);
    let ids = [u128::MIN, u128::MAX].map(TimerId::from_u128);
    let create = |namespace: &str| {
        for id in ids {
            bench.create(&Timer { id, ..labelled(&bench, namespace, &["l"]) });
        }
    };
    create("a");
    for descending in [false, true] {
        for label in [None, Some("l".into())] {
            let filter = Filter { namespace: Some("a".into()), label, descending, ..Filter::default() };
            let page = pollster::block_on(bench.store.list(filter, None, 9)).expect("a list");
            let found: BTreeSet<TimerId> = page.timers.iter().map(|timer| timer.id).collect();
            assert_eq!(found, ids.into());
        }
    }
    assert_eq!(bench.apply(cancel("a", "l", 9)), many(2, 0, false));
    create("a");
    bench.set(10_000);
    let leased = bench.due();
    assert_eq!(leased.len(), 2);
    assert_eq!(bench.renew(leased.iter().map(|leased| (leased.timer.id, leased.token)).collect()), []);
    bench.set(10_000 + LEASE);
    assert_eq!(bench.reap(9).returned.len(), 2);
    let ends = bench.due().into_iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let outcomes = bench.apply_all(ends);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Ended { phase: Phase::Done, .. })));
    assert_eq!(bench.all(), []);
}
