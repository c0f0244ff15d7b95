//! Checks that the arguments of operations are within their limits.

use crate::state::State;
use crate::store::Op;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::timer::Timer;

/// Returns an error if the operation has an argument beyond a limit, or that no store can keep. A store that gathers
/// operations of several callers into one transaction calls this first, so that the error of a caller does not fail the
/// others.
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

/// Returns an error if a text has more than 255 bytes. Its length takes one byte in the keys of tables.
fn admit_text(part: &str, text: &str) -> Result<(), StoreError> {
    if text.len() > usize::from(u8::MAX) {
        let message = format!("{part} has {} bytes, the most are 255", text.len());
        return Err(StoreError::new(StoreErrorKind::Limit, message));
    }
    Ok(())
}
