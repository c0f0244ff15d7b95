//! Tests errors that leave open whether a change has had its effect.

use crate::faults::clock;
use crate::machine::{machine_with, open};
use crate::{apply, assert_whole, get, place, timer};
use tourbillon_durable::store::{Durability, StoreErrorKind};

/// Tests a journal without room, so that the store makes a checkpoint in place of a write to the journal. A sync of the
/// checkpoint fails.
#[test]
fn an_error_that_promises_no_effect_has_none_even_after_a_checkpoint_that_failed() {
    let clock = clock();
    let mut kinds = Vec::new();
    for sync in 0..6 {
        let machine = machine_with(&[], &[]);
        let store = open(&machine, &clock).unwrap();
        machine.lock().unwrap().cannot_grow = true;
        machine.lock().unwrap().fails_at = Some(sync);
        let answer = apply(&store, place(timer(1, 5_000)), Durability::PowerLoss).map(drop);
        machine.lock().unwrap().fails_at = None;
        let is_stored = get(&store, 1).is_some();
        let kind = answer.map_err(|error| error.kind());
        match kind {
            Ok(()) => assert!(is_stored),
            Err(StoreErrorKind::Unknown) => {}
            Err(kind) => assert!(!is_stored, "sync {sync}: the timer is stored in spite of {kind:?}"),
        }
        assert_whole(&store);
        kinds.push(kind);
    }
    // Some of the failing syncs belong to the checkpoint. The others come later or not at all.
    assert!(kinds.contains(&Ok(())) && kinds.contains(&Err(StoreErrorKind::Full)), "{kinds:?}");
}
