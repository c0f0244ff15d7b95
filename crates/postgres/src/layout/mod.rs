//! The stored form of timers: rows, the values of their columns, and the name of their schema.

mod id;
mod row;
mod schema_name;

pub(crate) use id::Id;
pub(crate) use row::{COLUMNS, Stored, millis, moment, read};
pub(crate) use schema_name::SchemaName;
