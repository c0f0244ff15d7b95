//! Reports on each queue: the number of its waiting timers, their age, and the number of waiting receivers.

use super::Reports;
use crate::clock::millis;
use crate::convert::{moment, unavailable};
use crate::delivery::Reason;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::BTreeMap;
use tourbillon_api::{Problem, QueueView};
use tourbillon_durable::store::Filter;

/// The greatest number of queues in a report.
const MOST: usize = 1_000;
/// The greatest number of queues whose oldest timers are read at the same time.
const READ_AT_ONCE: usize = 16;

/// The numbers of timers and of receivers that wait at a queue.
#[derive(Clone, Copy, Default)]
struct Waiting {
    timers: u64,
    receivers: u64,
}

impl Reports {
    /// Returns the queues of the namespaces that `is_wanted` selects, ordered by namespace and name. A queue is
    /// included if timers wait in it, or if receivers at this process wait for its timers.
    pub(crate) async fn queues(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<QueueView>, Problem> {
        let mut queues: BTreeMap<(Box<str>, Box<str>), Waiting> = BTreeMap::new();
        let mut note = |reason: Reason, timers: u64, receivers: u64| {
            if let Reason::Queue(namespace, queue) = reason {
                let waiting = queues.entry((namespace, queue)).or_default();
                waiting.timers += timers;
                waiting.receivers += receivers;
            }
        };
        self.deliveries.parked().into_iter().for_each(|(reason, timers)| note(reason, timers.count, 0));
        self.deliveries.queues().receivers().into_iter().for_each(|(reason, count)| note(reason, 0, count));
        queues.retain(|(namespace, _), _| is_wanted(namespace));
        let views = queues.into_iter().take(MOST).map(|((namespace, queue), waiting)| async move {
            self.queue_view(&namespace, &queue, waiting).await
        });
        // `buffer_unordered` would lose the order by namespace and name.
        stream::iter(views.collect::<Vec<_>>()).buffered(READ_AT_ONCE).try_collect().await
    }

    async fn queue_view(
        &self,
        namespace: &str,
        queue: &str,
        Waiting { timers, receivers }: Waiting,
    ) -> Result<QueueView, Problem> {
        let reason = Reason::Queue(namespace.into(), queue.into());
        let parked = Filter { reason: Some(reason.to_string().into()), ..Filter::default() };
        let page = self.timers.list(parked, None, 1).await.map_err(|error| unavailable(&error))?;
        let oldest = page.timers.first().map(|timer| timer.due);
        let now = self.timers.timer_store().now();
        Ok(QueueView {
            namespace: namespace.to_owned(),
            queue: queue.to_owned(),
            // The count of the parked index may be too high for a while. An empty list from the store is exact.
            depth: if oldest.is_some() { timers.max(1) } else { 0 },
            oldest_due: oldest.map(moment),
            age_ms: oldest.map(|due| millis(now - due)),
            receivers,
        })
    }
}
