#![doc = include_str!("../README.md")]

#[cfg_attr(not(test), allow(dead_code, reason = "the store calls it"))]
mod connect;
mod examine;
#[cfg_attr(not(test), allow(dead_code, reason = "the store calls it"))]
mod script;

pub use connect::{Connect, ConnectError, SyncPolicy, Tls};
pub use examine::{Grade, Line, Report, check};
