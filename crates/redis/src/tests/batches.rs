//! Tests operations that fail or find changes of other clients, while other calls of the same operation are under
//! way.

use super::acting::Act;
use super::faults::{Two, apply, id, kind, now, place, start, start_split, timer};
use crate::layout::Layout;
use tourbillon_durable::store::{Durability, IfPresent, Op, Outcome, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Address, KeyOf, Timer};

/// Tests that no operation of a failed batch takes effect after the batch has returned.
#[test]
fn a_batch_that_fails_waits_for_its_other_operations() {
    let Some(Two { store, other, link, server: _server, .. }) = start(1) else { return };
    let create = |number| Op::Place(Box::new(timer(number, 1 << 40)), IfPresent::Reject);
    link.at("commit", 1, Act::Late);
    link.also_at("commit", 2, Act::Fail);
    let failed = kind(store.apply(vec![create(1), create(2)], Durability::PowerLoss));
    assert_eq!(failed, StoreErrorKind::Unknown);
    assert!(now(other.get(id(1).into())).is_some(), "the first operation has ended");
    assert!(now(other.get(id(2).into())).is_none());
}

#[test]
fn an_operation_by_key_asks_one_shard_after_the_id_of_its_timer_has_gone_to_another_key() {
    let Some(Two { store, other, link, server: _server, .. }) = start_split() else { return };
    let layout = Layout::new("d", 4);
    let mut keys = (0..).map(|n| format!("key {n}"));
    let far = keys.find(|key| layout.shard_of_key("", key) != layout.shard_of_key("", "k")).unwrap();
    let of_key = |key: &str| Timer { key: Some(key.into()), ..timer(1, 1 << 40) };
    place(&store, of_key("k"));
    let next = of_key(&far);
    let act = move || {
        assert!(matches!(apply(&other, Op::Cancel(id(1).into(), None)), Outcome::Cancelled(_)));
        place(&other, next);
    };
    link.at("commit", 1, Act::First(Box::new(act)));
    let key = Address::Key(KeyOf { namespace: "".into(), key: "k".into() });
    assert_eq!(apply(&store, Op::Cancel(key, None)), Outcome::NotFound);
    assert_eq!(now(store.check()), []);
}

/// Tests a replacement in a cluster that fails before its commit: it has reserved the id of the new timer, and the
/// answer about the id of the old timer is lost.
#[test]
fn an_operation_that_fails_before_its_commit_leaves_no_redirect() {
    let Some(Two { store, link, server, .. }) = start_split() else { return };
    let layout = Layout::new("d", 4);
    let home = layout.shard_of_key("", "k");
    let mut numbers = (1..).filter(|number| layout.shard_of_id(id(*number)) != home);
    let first = numbers.next().unwrap();
    let second = numbers.find(|n| layout.shard_of_id(id(*n)) != layout.shard_of_id(id(first))).unwrap();
    let of_key = |n| Timer { key: Some("k".into()), has_chosen_id: true, ..timer(n, 1 << 40) };
    place(&store, of_key(first));
    let redirects = |n| {
        let key = layout.key(layout.shard_of_id(id(n)), Layout::redirects_of(id(n)));
        server.query::<u64>(&["HLEN", &String::from_utf8(key).unwrap()])
    };
    let replace = || vec![Op::Place(Box::new(of_key(second)), IfPresent::Replace)];
    link.at("announce", 1, Act::Lose);
    assert_eq!(kind(store.apply(replace(), Durability::PowerLoss)), StoreErrorKind::Unknown);
    assert_eq!((redirects(first), redirects(second)), (1, 0));
    // The timer of a commit with a lost answer is stored, so its redirect stays.
    link.at("commit", 2, Act::Lose);
    assert_eq!(kind(store.apply(replace(), Durability::PowerLoss)), StoreErrorKind::Unknown);
    assert_eq!(redirects(second), 1);
    assert!(now(store.get(id(second).into())).is_some());
}
