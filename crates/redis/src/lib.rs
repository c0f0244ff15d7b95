#![doc = include_str!("../README.md")]

mod check;
#[cfg_attr(not(test), allow(dead_code, reason = "the store calls it"))]
mod connect;
#[cfg_attr(not(test), allow(dead_code, reason = "the store calls it"))]
mod script;

pub use check::{Grade, Line, Report, check};
pub use connect::{Connect, ConnectError, SyncPolicy, Tls};
