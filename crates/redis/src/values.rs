//! The parts of a server's answer.

use redis::Value;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

fn unexpected(wanted: &str, value: &Value) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("a script answered {value:?}, and not {wanted}"))
}

pub(crate) fn array(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected("an array", &other)),
    }
}

/// The bytes; `None` for nil.
pub(crate) fn bytes(value: Value) -> Result<Option<Vec<u8>>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        Value::Nil => Ok(None),
        other => Err(unexpected("bytes", &other)),
    }
}

/// The bytes; `None` for nil, and where there are none.
pub(crate) fn filled(value: Value) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(bytes(value)?.filter(|bytes| !bytes.is_empty()))
}

/// A whole number that is not negative, as an integer or as text.
pub(crate) fn number(value: &Value) -> Result<u64, StoreError> {
    let of_text = |text: &[u8]| core::str::from_utf8(text).ok()?.parse().ok();
    let number = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => of_text(text),
        Value::SimpleString(text) => of_text(text.as_bytes()),
        _ => None,
    };
    number.ok_or_else(|| unexpected("a number", value))
}

/// A number of an answer's text, or `None` where there is none.
pub(crate) fn maybe_number(value: Value) -> Result<Option<u64>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(text) if text.is_empty() => Ok(None),
        value => number(&value).map(Some),
    }
}

/// The values of an answer one after the other.
pub(crate) struct Values(std::vec::IntoIter<Value>);

impl Values {
    pub(crate) fn of(value: Value) -> Result<Self, StoreError> {
        Ok(Self(array(value)?.into_iter()))
    }

    pub(crate) fn next(&mut self) -> Result<Value, StoreError> {
        let short = || StoreError::new(StoreErrorKind::Corrupt, "the answer of a script is too short");
        self.0.next().ok_or_else(short)
    }

    /// The next value, which stays the next one.
    pub(crate) fn peek(&self) -> Option<&Value> {
        self.0.as_slice().first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}
