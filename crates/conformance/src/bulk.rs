//! Tests labels of timers, and cancels by label.

use crate::bench::{Bench, Case, LEASE, Make};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Op, Outcome};
use tourbillon_durable::timer::{Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    ("timers are cancelled by label in bounded batches", timers_are_cancelled_by_label),
    ("a label belongs to its namespace", a_label_belongs_to_its_namespace),
    ("a cancel by label while timers are in flight", a_cancel_by_label_while_timers_are_in_flight),
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
