//! The calls that a library of jobs has, and the arguments of a job.

use crate::task::Failure;
use serde::{Deserialize, Serialize};
use std::future::Future;

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
