//! Tests operations whose calls fail or meet the changes of others, while other calls of the same operation are under
//! way.

use super::faults::{Act, Two, id, kind, now, start, timer};
use tourbillon_durable::store::{Durability, IfPresent, Op, StoreErrorKind, TimerStore};

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
