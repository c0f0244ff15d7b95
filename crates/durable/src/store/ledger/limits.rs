//! Checks that the arguments of operations are within their limits.

use crate::state::State;
use crate::store::Op;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::timer::Timer;

/// Fails if an argument of the operation exceeds a limit, or if a new timer is neither pending nor parked. A store that
/// runs the operations of several callers in one transaction checks each operation first, so that an invalid operation
/// fails only for its own caller.
pub(crate) fn admit(op: &Op) -> Result<(), StoreError> {
    match op {
        Op::Place(timer, _) => match timer.state {
            State::Pending | State::Parked(_) => admit_timer(timer),
            _ => Err(StoreError::new(StoreErrorKind::Limit, "a new timer is pending or parked")),
        },
        Op::Return(timer, _) => admit_timer(timer),
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

/// Fails if a text has more than 255 bytes, because the keys of tables have a single byte for the length of a text.
/// `part` names the text in the error's message.
fn admit_text(part: &str, text: &str) -> Result<(), StoreError> {
    if text.len() > usize::from(u8::MAX) {
        let message = format!("{part} has {} bytes, the most are 255", text.len());
        return Err(StoreError::new(StoreErrorKind::Limit, message));
    }
    Ok(())
}
