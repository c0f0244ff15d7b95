//! Queues and the timers that wait in them.

use crate::Moment;
use serde::{Deserialize, Serialize};

/// A queue from which receivers fetch timers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueView {
    /// The queue's namespace.
    pub namespace: String,
    /// The queue's name.
    pub queue: String,
    /// The number of due timers that wait for a receiver. If nodes share the timers, the number of those in the shards
    /// of the answering node. The number follows a change of a waiting timer, such as a cancellation, usually within
    /// three seconds, and a change through another node or by SQL within a minute.
    pub depth: u64,
    /// The due moment of the timer that has waited longest. None if no timer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_due: Option<Moment>,
    /// The time since `oldest_due`. None if no timer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// The number of receivers that wait for timers at the answering node.
    pub receivers: u64,
}
