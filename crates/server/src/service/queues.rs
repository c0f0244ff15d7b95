//! The queues: how many timers wait in each, for how long, and how many receivers.

use super::Service;
use crate::convert::{moment, unavailable};
use crate::delivery::Reason;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use std::collections::BTreeMap;
use tourbillon_api::{Problem, QueueView};
use tourbillon_durable::store::Filter;

/// The greatest number of queues that are shown.
const MOST: usize = 1_000;
/// The queues whose oldest timers are read at the same time.
const READ_AT_ONCE: usize = 16;

impl Service {
    /// The queues of the namespaces that are wanted, by namespace and name: those in which timers wait, and those at
    /// which receivers of this process do.
    pub(crate) async fn queues(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<QueueView>, Problem> {
        let mut queues: BTreeMap<(Box<str>, Box<str>), (u64, u64)> = BTreeMap::new();
        let mut note = |reason: Reason, depth: u64, receivers: u64| {
            if let Reason::Queue(namespace, queue) = reason {
                let of = queues.entry((namespace, queue)).or_default();
                *of = (of.0 + depth, of.1 + receivers);
            }
        };
        self.deliveries().parked().into_iter().for_each(|(reason, count)| note(reason, count, 0));
        self.deliveries().desk().receivers().into_iter().for_each(|(reason, count)| note(reason, 0, count));
        queues.retain(|(namespace, _), _| is_wanted(namespace));
        let views =
            queues.into_iter().take(MOST).map(|((namespace, queue), (depth, receivers))| async move {
                self.queue_view(&namespace, &queue, (depth, receivers)).await
            });
        stream::iter(views.collect::<Vec<_>>()).buffered(READ_AT_ONCE).try_collect().await
    }

    async fn queue_view(
        &self,
        namespace: &str,
        queue: &str,
        (depth, receivers): (u64, u64),
    ) -> Result<QueueView, Problem> {
        let reason = Reason::Queue(namespace.into(), queue.into());
        let waiting = Filter { reason: Some(reason.to_string().into()), ..Filter::default() };
        let page = self.timers().list(waiting, None, 1).await.map_err(|error| unavailable(&error))?;
        let oldest = page.timers.first().map(|timer| timer.due);
        let now = self.timers().timer_store().now();
        Ok(QueueView {
            namespace: namespace.to_owned(),
            queue: queue.to_owned(),
            // The count is believed until the usher looks again; that none waits is known by now.
            depth: if oldest.is_some() { depth.max(1) } else { 0 },
            oldest_due: oldest.map(moment),
            age_ms: oldest.map(|due| u64::try_from((now - due).as_millis()).unwrap_or(u64::MAX)),
            receivers,
        })
    }
}
