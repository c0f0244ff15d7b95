//! Asks a store that tells nothing of parked timers (timers held in the store) which queues have some, while receivers
//! wait at this node. Any node may have parked them.

use super::parked_index::ParkedIndex;
use super::pull_queues::PullQueues;
use super::reason::Reason;
use crate::state::ClusterStore;
use core::time::Duration;
use std::sync::Weak;

/// The pause between two questions. A timer that another node has parked waits for a receiver of this node for that
/// time.
const PAUSE: Duration = Duration::from_millis(250);

/// Asks until the index of parked timers is closed, or the service is dropped.
pub(super) async fn watch_parked(
    store: Weak<dyn ClusterStore>,
    queues: Weak<PullQueues>,
    parked: Weak<ParkedIndex>,
) {
    let mut owned = String::new();
    loop {
        tokio::time::sleep(PAUSE).await;
        let (Some(store), Some(queues)) = (store.upgrade(), queues.upgrade()) else { return };
        if parked.upgrade().is_none_or(|parked| parked.is_closed()) {
            return;
        }
        look(&*store, &queues, &mut owned).await;
    }
}

/// Asks once. After an error, the next question brings the answer.
async fn look(store: &dyn ClusterStore, queues: &PullQueues, owned: &mut String) {
    let now = store.owned_shards();
    if *owned != now {
        // The timers that are parked in the new shards are to be counted.
        *owned = now;
        queues.heard(None);
    }
    let awaited: Vec<Box<str>> = queues.awaited().iter().map(|reason| reason.to_string().into()).collect();
    if awaited.is_empty() {
        return;
    }
    for reason in store.parked_among(awaited).await.unwrap_or_default() {
        if let Some(reason) = Reason::parse(&reason) {
            queues.heard(Some(&reason));
        }
    }
}
