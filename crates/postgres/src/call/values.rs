//! Writes moments, labels and addresses as values of a statement.

use super::error::CallError;
use super::statement::{Value, zero_byte};
use core::time::Duration;
use serde::Serialize;
use tourbillon_durable::timer::Address;
use tourbillon_durable::{Due, Rejection};

/// The longest delay that this crate sends to the server. This crate itself refuses a longer delay. The SQL functions
/// have a lower limit, which the server checks.
const LONGEST_DELAY: Duration = Duration::from_secs(101 * 366 * 86_400);

/// Returns the values for the parameters `due` and `delay`. A delay is written as hours, minutes and seconds. It is not
/// written as days, because a day of PostgreSQL may have 23 hours.
///
/// # Errors
///
/// Fails with [`CallErrorKind::DueTooFar`] if the delay is too long.
pub(super) fn moment(due: Option<Due>) -> Result<[Value; 2], CallError> {
    Ok(match due {
        None => [Value::Text(None), Value::Text(None)],
        Some(Due::At(moment)) => [Value::text(moment.to_string()), Value::Text(None)],
        Some(Due::After(delay)) if delay > LONGEST_DELAY => return Err(Rejection::DueTooFar.into()),
        Some(Due::After(delay)) => {
            let micros = delay.as_nanos().div_ceil(1_000);
            let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
            let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
            let delay = format!("{hours}:{minutes:02}:{seconds:02}.{micros:06}");
            [Value::Text(None), Value::text(delay)]
        }
    })
}

/// Returns the labels as a JSON list. NULL if there are no labels.
///
/// # Errors
///
/// Fails if a label has a zero byte.
pub(super) fn labels<T: AsRef<str> + Serialize>(labels: &[T]) -> Result<Value, CallError> {
    if labels.iter().any(|label| label.as_ref().contains('\0')) {
        return Err(zero_byte());
    }
    // A list of texts can always be written.
    let list = || serde_json::to_string(labels).unwrap_or_default();
    Ok(Value::Text((!labels.is_empty()).then(list)))
}

/// Returns the values by which the SQL functions find a timer: the key, the namespace and the id.
pub(super) fn named(at: Address) -> [Value; 3] {
    match at {
        Address::Id(id) => [Value::Text(None), Value::text(""), Value::text(id.to_string())],
        Address::Key(at) => [Value::text(at.key), Value::text(at.namespace), Value::Text(None)],
    }
}
