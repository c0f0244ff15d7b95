//! Reads the values in the answers of scripts.

use redis::Value;
use std::collections::HashMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

fn unexpected(wanted: &str, value: &Value) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("a script answered {value:?}, and not {wanted}"))
}

/// Makes the error for an answer that no script of this version gives, or for stored data that no script of this
/// version writes.
pub(crate) fn damaged(found: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, found)
}

fn array(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected("an array", &other)),
    }
}

/// Returns the bytes of a value, or `None` for nil.
pub(crate) fn bytes(value: Value) -> Result<Option<Vec<u8>>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        Value::Nil => Ok(None),
        other => Err(unexpected("bytes", &other)),
    }
}

/// Returns the bytes of a value, or `None` for nil or an empty text.
pub(crate) fn filled(value: Value) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(bytes(value)?.filter(|bytes| !bytes.is_empty()))
}

/// Returns a value as a number. The value is a non-negative integer, or a text with its decimal digits.
pub(crate) fn number(value: &Value) -> Result<u64, StoreError> {
    let of_text = |text: &[u8]| core::str::from_utf8(text).ok()?.parse().ok();
    let number = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        // Redis gives scores and the fields of hashes to a script as text, and the script passes the text on.
        Value::BulkString(text) => of_text(text),
        Value::SimpleString(text) => of_text(text.as_bytes()),
        _ => None,
    };
    number.ok_or_else(|| unexpected("a number", value))
}

/// Returns a value as a number, or `None` for nil or an empty text.
pub(crate) fn maybe_number(value: Value) -> Result<Option<u64>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        // A nil inside a Lua table would end the answer early, so some scripts answer an empty text instead.
        Value::BulkString(text) if text.is_empty() => Ok(None),
        value => number(&value).map(Some),
    }
}

/// Formats a number in decimal digits as an argument of a script.
pub(crate) fn decimal(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The values of a script's answer that are not yet read. The methods read the values in order.
pub(crate) struct Values(std::vec::IntoIter<Value>);

impl Values {
    pub(crate) fn of(value: Value) -> Result<Self, StoreError> {
        Ok(Self(array(value)?.into_iter()))
    }

    pub(crate) fn next(&mut self) -> Result<Value, StoreError> {
        let short = || StoreError::new(StoreErrorKind::Corrupt, "the answer of a script is too short");
        self.0.next().ok_or_else(short)
    }

    /// Takes the next value, which must be a list.
    pub(crate) fn list(&mut self) -> Result<Self, StoreError> {
        Self::of(self.next()?)
    }

    /// Takes the next value as bytes. Nil becomes empty bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        Ok(bytes(self.next()?)?.unwrap_or_default())
    }

    /// Takes the next value as bytes. Nil and an empty text become `None`.
    pub(crate) fn filled(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        filled(self.next()?)
    }

    /// Takes the next value as a number.
    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        number(&self.next()?)
    }

    /// Takes the next value as a number. Nil and an empty text become `None`.
    pub(crate) fn maybe_number(&mut self) -> Result<Option<u64>, StoreError> {
        maybe_number(self.next()?)
    }

    /// Takes the next value as a moment. Nil and an empty text become `None`.
    pub(crate) fn moment(&mut self) -> Result<Option<UtcMillis>, StoreError> {
        Ok(self.maybe_number()?.map(UtcMillis::from_millis))
    }

    /// Takes the next value, an index that counts from 1, and returns it counted from 0. Returns `None` for 0.
    pub(crate) fn index(&mut self) -> Result<Option<usize>, StoreError> {
        let place = usize::try_from(self.number()?).unwrap_or_default();
        Ok(place.checked_sub(1))
    }

    /// Returns the next value without taking it.
    pub(crate) fn peek(&self) -> Option<&Value> {
        self.0.as_slice().first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Takes the next value, a list of alternating fields and values, as a map.
    pub(crate) fn pairs(&mut self) -> Result<HashMap<Vec<u8>, Vec<u8>>, StoreError> {
        let (mut list, mut pairs) = (self.list()?, HashMap::new());
        while !list.is_empty() {
            let field = list.bytes()?;
            pairs.insert(field, list.bytes()?);
        }
        Ok(pairs)
    }

    /// Takes the next value, a list of alternating members and scores of a sorted set.
    pub(crate) fn scored(&mut self) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        let (mut list, mut scored) = (self.list()?, Vec::new());
        while !list.is_empty() {
            let member = list.bytes()?;
            scored.push((member, list.number()?));
        }
        Ok(scored)
    }
}
