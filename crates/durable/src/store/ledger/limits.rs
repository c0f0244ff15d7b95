//! Checks that the arguments of operations are within their limits.

use crate::state::State;
use crate::store::Op;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::timer::Timer;

/// Fails if an argument of the operation is beyond a limit, or if a new timer is neither pending nor parked. A store
/// that gathers operations of several callers into one transaction checks each operation first. So an error in the
/// operation of a single caller does not fail the other callers.
pub(crate) fn admit(op: &Op) -> Result<(), StoreError> {
    match op {
        Op::Place(timer, _) => match timer.state {
            State::Pending | State::Parked(_) => admit_timer(timer),
            _ => Err(StoreError::new(StoreErrorKind::Limit, "a new timer is pending or parked")),
        },
        Op::Park(_, _, reason) => admit_text("the reason to park", reason),
        _ => Ok(()),
    }
}

pub(super) fn admit_timer(timer: &Timer) -> Result<(), StoreError> {
    admit_text("the namespace", &timer.namespace)?;
    if let State::Parked(reason) = &timer.state {
        admit_text("the reason to park", reason)?;
    }
    timer.labels.iter().try_for_each(|label| admit_text("a label", label))
}

/// Returns an error if a text has more than 255 bytes. The keys of tables have one byte for the length of a text.
fn admit_text(part: &str, text: &str) -> Result<(), StoreError> {
    if text.len() > usize::from(u8::MAX) {
        let message = format!("{part} has {} bytes, the most are 255", text.len());
        return Err(StoreError::new(StoreErrorKind::Limit, message));
    }
    Ok(())
}
