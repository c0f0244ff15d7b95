//! The task of a turn, which the book describes in JSON.

use serde::Deserialize;
use std::error::Error;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The description of a turn.
#[derive(Debug, Deserialize)]
pub(crate) struct Task {
    pub(crate) peer: String,
    pub(crate) config: Config,
    pub(crate) workload: String,
    pub(crate) sizes: Sizes,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Config {
    /// The database of the turn.
    pub(crate) url: String,
    /// The first process of the server.
    pub(crate) server: u32,
    /// The pause between two looks of the peer for due jobs, in milliseconds.
    pub(crate) poll: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sizes {
    pub(crate) one: usize,
    pub(crate) waiting: usize,
    pub(crate) batch: usize,
    pub(crate) rate: usize,
    pub(crate) seconds: u64,
    pub(crate) lead: u64,
    pub(crate) timers: usize,
    pub(crate) quiet: u64,
    pub(crate) churn: usize,
    pub(crate) overdue: usize,
}
