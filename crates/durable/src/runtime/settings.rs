//! Holds the settings of a running runtime.

use super::report::{Observe, OnIncident};
use crate::executor::Executor;
use crate::spec::Limits;
use crate::store::{Durability, StoreError};
use core::time::Duration;
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) struct Settings {
    /// The greatest number of handlers that run at a time.
    pub(crate) concurrency: usize,
    /// True if namespaces share the handlers, so that no namespace can occupy all handlers.
    pub(crate) in_turn: bool,
    pub(crate) lease: Duration,
    pub(crate) limits: Limits,
    pub(crate) catch_up_rate: Option<u32>,
    /// The durability with which the store must confirm the end of a delivery.
    pub(crate) end_durability: Durability,
    /// The kinds whose handlers begin deliveries by themselves ([`Builder::begins_itself`](crate::Builder)).
    pub(crate) begin_themselves: HashSet<&'static str>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
    pub(crate) on_incident: Option<OnIncident>,
    pub(crate) observe: Option<Observe>,
    /// The function that recomputes the next instants of schedules by the store's present time. `None` for a runtime
    /// without schedules.
    pub(crate) follow_clock: Option<Arc<FollowClock>>,
}

type FollowClock = dyn Fn() -> Result<(), StoreError> + Send + Sync;
