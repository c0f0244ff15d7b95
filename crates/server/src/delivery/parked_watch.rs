//! Polls a store that does not report parked timers by itself. Each poll asks the store for the queues that have parked
//! timers, among the queues at which receivers of this node wait. Any node may have parked the timers.

use super::parked_index::ParkedIndex;
use super::pull_queues::PullQueues;
use super::reason::Reason;
use crate::state::ClusterStore;
use core::time::Duration;
use std::sync::Weak;

/// The pause between two polls. If another node parks a timer while a receiver waits at this node, the receiver gets
/// the timer up to this time later.
const PAUSE: Duration = Duration::from_millis(250);

/// Polls the store for parked timers until the index of parked timers is closed, or the service is dropped.
pub(super) async fn watch_parked(
    store: Weak<dyn ClusterStore>,
    queues: Weak<PullQueues>,
    parked: Weak<ParkedIndex>,
) {
    let mut owned = String::new();
    loop {
        tokio::time::sleep(PAUSE).await;
        // These handles are made for each poll. A handle that is held during the pause would keep a dropped service's
        // store.
        let (Some(store), Some(queues)) = (store.upgrade(), queues.upgrade()) else { return };
        if parked.upgrade().is_none_or(|parked| parked.is_closed()) {
            return;
        }
        poll(&*store, &queues, &mut owned).await;
    }
}

/// Asks the store once which of the queues with waiting receivers have parked timers, so that these timers are fetched.
/// Ignores an error, because the next poll asks again. `owned` is the store's description of this node's shards (its
/// parts of the timers) at the last poll. If the shards have changed, all queues with waiting receivers are fetched.
async fn poll(store: &dyn ClusterStore, queues: &PullQueues, owned: &mut String) {
    let now = store.owned_shards();
    if *owned != now {
        // A pass, which reads the numbers of parked timers from the store, must count the timers of the new shards.
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
