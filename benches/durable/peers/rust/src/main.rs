//! One turn of a peer that is written in Rust: `tourbillon-durable-peers '{"peer": ..., "sizes": {...}, ...}'`.
//!
//! The work and the dialogue with the book are those of `peers/run.mjs`. Prints a line of JSON with the figures. A
//! check that fails ends the turn with an error.

mod awa_peer;
mod deliveries;
mod river_peer;
mod tools;
mod workloads;

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::future::Future;
use std::sync::Arc;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The description of a turn.
#[derive(Debug, Deserialize)]
pub(crate) struct Task {
    peer: String,
    config: Config,
    workload: String,
    sizes: Sizes,
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

/// The arguments of a job: JSON of 64 bytes.
#[derive(Clone, Debug, Deserialize, Serialize, riverqueue::JobArgs)]
#[river(kind = "timer")]
pub(crate) struct Payload {
    pub(crate) due: u64,
    pub(crate) n: usize,
    pad: String,
}

impl awa::JobArgs for Payload {
    fn kind() -> &'static str {
        "timer"
    }
}

impl Payload {
    pub(crate) fn new(n: usize, due: u64) -> Self {
        let bare = format!("{{\"due\":{due},\"n\":{n},\"pad\":\"\"}}").len();
        Self { due, n, pad: "x".repeat(64 - bare) }
    }
}

/// A library of jobs.
pub(crate) trait Peer: Send + Sync + 'static {
    /// Stores a job that is due at a moment, in milliseconds since 1970.
    fn create(&self, payload: Payload) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Stores jobs by one call.
    fn create_many(&self, payloads: Vec<Payload>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Cancels the job of a timer. Returns whether the job has not begun before.
    fn cancel(&self, _n: usize) -> impl Future<Output = Result<bool, Failure>> + Send {
        std::future::ready(Err("cancels of this peer are not measured".into()))
    }

    /// Returns the number of jobs that have not begun.
    fn pending(&self) -> impl Future<Output = Result<usize, Failure>> + Send;

    /// Starts the workers.
    fn consume(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends the workers.
    fn stop(&self) -> impl Future<Output = ()> + Send;
}

async fn run(task: Task) -> Result<tools::Numbers, Failure> {
    let deliveries = Arc::new(deliveries::Deliveries::default());
    match &*task.peer {
        "river" => {
            let peer = river_peer::River::open(&task.config, Arc::clone(&deliveries)).await?;
            workloads::run(&task, Arc::new(peer), deliveries).await
        }
        "awa" => {
            let peer = awa_peer::Awa::open(&task.config, Arc::clone(&deliveries)).await?;
            workloads::run(&task, Arc::new(peer), deliveries).await
        }
        other => Err(format!("no peer {other}").into()),
    }
}

impl Task {
    pub(crate) fn workload(&self) -> &str {
        &self.workload
    }

    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

fn main() -> Result<(), Failure> {
    let text = std::env::args().nth(1).ok_or("no task")?;
    let task: Task = serde_json::from_str(&text)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let numbers = runtime.block_on(run(task))?;
    println!("{}", serde_json::json!({ "numbers": numbers }));
    // The connections end with the process.
    std::process::exit(0);
}
