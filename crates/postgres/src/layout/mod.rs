//! The stored form of timers: rows, and the values of their columns.

mod id;
mod row;

pub(crate) use id::Id;
pub(crate) use row::{COLUMNS, Stored, admit_texts, millis, moment, read};
