//! Checks that the arguments of operations are within their limits.

use crate::state::State;
use crate::store::Op;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::texts::has_zero_byte;
use crate::timer::{Address, Timer};

/// The reason why an argument is refused, in words.
type Fault = String;

/// Fails if an argument of the operation exceeds a limit, if a text has a zero byte, or if a new timer is neither
/// pending nor parked. A store that runs the operations of several callers in one transaction checks each operation
/// first, so that an invalid operation fails only for its own caller.
pub(crate) fn admit(op: &Op) -> Result<(), StoreError> {
    check(op).map_err(|fault| StoreError::new(StoreErrorKind::Limit, fault))
}

/// Fails as [`admit`] does for a new timer, but permits every phase. The error names the timer, because a single timer
/// that is refused ends the restore of a whole backup.
pub(crate) fn admit_import(timer: &Timer) -> Result<(), StoreError> {
    check_timer(timer)
        .map_err(|fault| StoreError::new(StoreErrorKind::Limit, format!("timer {}: {fault}", timer.id)))
}

fn check(op: &Op) -> Result<(), Fault> {
    match op {
        Op::Place(timer, _) => match timer.state {
            State::Pending | State::Parked(_) => check_timer(timer),
            _ => Err("a new timer is pending or parked".to_owned()),
        },
        Op::Park(_, _, reason) => {
            check_length("the reason to park", reason)?;
            check_bytes("the reason to park", reason)
        }
        Op::Unpark(reason, _) => check_bytes("the reason to park", reason),
        Op::CancelLabelled { namespace, label, .. } => {
            check_bytes("the namespace", namespace)?;
            check_bytes("the label", label)
        }
        Op::Cancel(at, _) | Op::Move(at, _) | Op::Pause(at) | Op::Resume(at) | Op::Fire(at) => {
            check_address(at)
        }
        // A failed delivery loses the zero bytes of its error when the timer takes the step.
        Op::Fail(..) => Ok(()),
        Op::Ack(..) | Op::Skip(..) | Op::Snooze(..) | Op::Release(..) | Op::Replay(_) => Ok(()),
    }
}

fn check_timer(timer: &Timer) -> Result<(), Fault> {
    check_length("the namespace", &timer.namespace)?;
    check_length("the kind's name", &timer.kind)?;
    check_length("the key", timer.key.as_deref().unwrap_or(""))?;
    check_length("the trace context", timer.trace.as_deref().unwrap_or(""))?;
    if let State::Parked(reason) = &timer.state {
        check_length("the reason to park", reason)?;
    }
    timer.labels.iter().try_for_each(|label| check_length("a label", label))?;
    timer.part_with_zero_byte().map_or(Ok(()), |part| Err(zero_byte(part)))
}

fn check_address(at: &Address) -> Result<(), Fault> {
    at.part_with_zero_byte().map_or(Ok(()), |part| Err(zero_byte(part)))
}

/// Fails if a text has more than 255 bytes. The keys of tables have a single byte for the length of a text, and the
/// indexes of database servers also limit the length. `part` names the text in the error's message.
fn check_length(part: &str, text: &str) -> Result<(), Fault> {
    if text.len() > usize::from(u8::MAX) {
        return Err(format!("{part} has {} bytes, the most are 255", text.len()));
    }
    Ok(())
}

fn check_bytes(part: &str, text: &str) -> Result<(), Fault> {
    if has_zero_byte(text) { Err(zero_byte(part)) } else { Ok(()) }
}

fn zero_byte(part: &str) -> Fault {
    format!("{part} has a zero byte")
}
