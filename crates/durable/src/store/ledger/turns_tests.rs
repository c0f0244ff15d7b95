//! The cases of claims in turn are those of `tourbillon-conformance`.

use super::super::entries::due_entry;
use super::*;

#[test]
fn what_claims_remember_is_bounded() {
    let mut waiting = Waiting::nothing();
    for number in 0..3 * EXACT as u128 {
        waiting.add(due_entry(UtcMillis::from_millis(1_000_000), TimerId::from_u128(number)));
    }
    assert!(matches!(waiting, Waiting::From(first) if id_at_end(&first) == Some(TimerId::from_u128(0))));
}
