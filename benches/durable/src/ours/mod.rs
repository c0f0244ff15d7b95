//! A turn of our store: the same work as in `peers/run.mjs`, in its own process.

pub(crate) mod caller;
mod deliveries;
mod figures;
mod load;
mod subject;
mod tools;
pub(crate) mod workloads;

pub(crate) use self::deliveries::{Deliveries, Noted, Payload};
pub(crate) use self::figures::{Numbers, Pace};
pub(crate) use self::tools::{Chance, check, key, millis, now, per};

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::PathBuf;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The description of a measurement that its process gets: the case, the sizes and the folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) workload: String,
    pub(crate) sizes: Sizes,
    pub(crate) config: Config,
    pub(crate) dir: PathBuf,
    /// The moment at which this measurement began, in seconds from 1970 on. Zero, except in the measurement after a
    /// kill.
    #[serde(default)]
    pub(crate) begin: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sizes {
    one: usize,
    pub(crate) waiting: usize,
    /// The number of concurrent callers, in the part of the measurement that has several callers. 0 stands for 64.
    callers: usize,
    batch: usize,
    pub(crate) rate: usize,
    pub(crate) seconds: u64,
    pub(crate) lead: u64,
    pub(crate) timers: usize,
    /// The number of timers that are due at one moment, in the case of the service.
    pub(crate) herd: usize,
    pub(crate) quiet: u64,
    pub(crate) idle: u64,
    churn: usize,
    replaces: usize,
    overdue: usize,
    /// The number of nodes (processes with a runtime) that share a server. 0 stands for 1.
    nodes: usize,
    /// The seconds of each part of a measurement whose parts have figures of their own. 0 for none.
    part: usize,
    /// The number of pairs of blocks of transactions: one block with creations of timers, one without.
    pairs: usize,
    /// The number of transactions of a block on each connection.
    each: usize,
    /// The number of creations in transactions of their own.
    alone: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    durability: String,
    ends: String,
    /// Whether the measurement is of the service instead of the library.
    #[serde(default)]
    pub(crate) service: bool,
    /// The setting `appendfsync` of the Redis server that has the store. `None` for a store in a file.
    #[serde(default)]
    appendfsync: Option<String>,
    /// The database of a store in PostgreSQL, on a server that the book has started.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// The first process of that server.
    #[serde(default)]
    pub(crate) server: u32,
    /// Whether the store in PostgreSQL listens for notifications.
    #[serde(default)]
    listens: bool,
    /// Whether the store is in a database of SQLite.
    #[serde(default)]
    sqlite: bool,
}
