//! Reads the changes that other nodes make to shared state, in *rounds* of about a second.

use super::operations::Operations;
use super::reports::Takeovers;
use super::restore::revoke;
use crate::delivery::Deliveries;
use crate::record::InFlight;
use crate::settings::{Settings, StorePlace};
use crate::state::{Namespaces, Stop, end_removals};
use crate::task;
use core::time::Duration;
use std::sync::Arc;
use tokio::time::timeout;
use tourbillon_durable::Timers;

/// The time between two rounds. In a round, the node reads the changes that other nodes have made.
const RENEWED: Duration = Duration::from_secs(1);
/// The longest time for which a round waits for the namespaces. A read on a broken connection would otherwise hold up
/// all later reads for as long as the store waits for its answer.
const LONGEST_READ: Duration = Duration::from_secs(2);
/// The number of rounds (reads of other nodes' changes, once a second) between two searches for operations of nodes
/// that have stopped or died.
const TURNS_OF_OPERATIONS: u32 = 3;
/// The number of rounds (reads of other nodes' changes, once a second) between two checks for shards that this node has
/// taken over.
const TURNS_OF_TAKEOVERS: u32 = 5;

/// Reads the changes that other nodes make to namespaces, operations and shards. Also looks for a restore that runs
/// beside this node.
#[derive(Clone)]
pub(super) struct Renewal {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) operations: Arc<Operations>,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) stop: Stop,
    pub(super) settings: Arc<Settings>,
    /// The time after which a removal counts as dead: see [`STALE`](crate::state::STALE).
    pub(super) stale: Duration,
}

impl Renewal {
    /// Starts a task that reads the changes of other nodes until the service stops or is dropped. Does nothing if no
    /// other nodes share the timers.
    pub(super) fn begin(self: &Arc<Self>) {
        if !self.namespaces.is_shared() {
            return;
        }
        // The task holds only a weak reference, so a service that is dropped without being closed still drops its
        // parts.
        let (this, stop) = (Arc::downgrade(self), self.stop.clone());
        task::start(async move {
            let mut takeovers = Takeovers::default();
            for turn in 0_u32.. {
                tokio::select! {
                    () = tokio::time::sleep(RENEWED) => {}
                    () = stop.begun() => return,
                }
                let Some(this) = this.upgrade() else { return };
                this.take(turn, &mut takeovers).await;
            }
        });
    }

    /// Revokes the permission of a restore that runs beside this node, so that it removes no timers of this node.
    async fn revoke(&self) {
        // Only a restore into Redis has a note.
        if let (StorePlace::Redis(_), Some(store)) = (&self.settings.store, self.namespaces.shared()) {
            // If the servers do not answer, the next round looks again.
            let _revoked = revoke(&*store, &self.stop).await;
        }
    }

    async fn take(&self, turn: u32, takeovers: &mut Takeovers) {
        // This comes first, because the other steps may take long.
        self.revoke().await;
        if turn.is_multiple_of(TURNS_OF_OPERATIONS) {
            self.operations.take_over().await;
        }
        if turn.is_multiple_of(TURNS_OF_TAKEOVERS)
            && let Ok(Some(nodes)) = self.timers.timer_store().nodes().await
        {
            takeovers.look(&nodes);
        }
        let before = self.namespaces.all();
        let stale = self.namespaces.stale_removals(self.stale);
        if !stale.is_empty() {
            let (namespaces, stale) = (Arc::clone(&self.namespaces), stale.clone());
            // If the servers do not answer, the next round tries again.
            let _ended = task::blocking(move || end_removals(&namespaces, &stale)).await;
        }
        // If the servers do not answer, the known namespaces stay in use.
        let renewed = timeout(LONGEST_READ, self.namespaces.renew()).await;
        // The end of removals also reads the changes of other nodes.
        if matches!(renewed, Ok(Ok(true))) || !stale.is_empty() {
            let now = self.namespaces.all();
            let is_back = |name: &str| stale.iter().any(|(removed, _)| **removed == *name);
            // An earlier namespace may have had the same name. A new namespace must not see its histories.
            now.keys()
                .filter(|name| !before.contains_key(*name) && !is_back(name))
                .for_each(|name| self.in_flight.forget(name));
            self.deliveries.look_everywhere();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Service;
    use crate::state::double::{self, Documents, Looks, Node};
    use crate::state::{NamespaceStorage, mark};
    use tempfile::TempDir;
    use tokio::sync::oneshot;
    use tourbillon_durable::store::Hooked;
    use tourbillon_durable::timer::TimerId;

    /// Two nodes of a deployment: the first is a whole service, and of the second only the namespaces are there.
    struct Nodes {
        _folder: TempDir,
        store: Arc<Hooked<Node>>,
        service: Service,
        other: Namespaces,
    }

    fn nodes() -> Nodes {
        let (documents, folder) = (Documents::default(), tempfile::tempdir().unwrap());
        let store = double::node(&documents, 1);
        let service = Service::open_on_double(Settings::new(folder.path()), Arc::clone(&store) as _).unwrap();
        let other = Namespaces::open(NamespaceStorage::Shared(double::node(&documents, 2))).unwrap();
        Nodes { _folder: folder, store, service, other }
    }

    impl Nodes {
        fn make(&self, name: &str) {
            self.other.change(|map| drop(map.insert(name.into(), Arc::default()))).unwrap();
        }

        async fn close(self) {
            tokio::task::spawn_blocking(move || self.service.close(Duration::ZERO)).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_ends_a_dead_removal_and_forgets_the_histories_of_a_namespace_that_is_new() {
        let nodes = nodes();
        nodes.make("left");
        assert!(nodes.other.try_change(|map| mark(map, "left", 5)).unwrap().unwrap().is_some());
        nodes.service.namespaces().renew().await.unwrap();
        nodes.make("new");
        let renewal = Renewal { stale: Duration::ZERO, ..Renewal::clone(&nodes.service.0.renewal) };
        let (of_left, of_new) = (TimerId::from_u128(7), TimerId::from_u128(8));
        renewal.in_flight.replaced("left", None, of_left, "a timer");
        renewal.in_flight.replaced("new", None, of_new, "a timer");
        renewal.take(1, &mut Takeovers::default()).await;
        assert!(nodes.service.namespaces().get("left").is_some(), "the removal has not ended");
        assert_eq!(renewal.in_flight.namespace_of(of_left).as_deref(), Some("left"));
        assert_eq!(renewal.in_flight.namespace_of(of_new), None);
        drop(renewal);
        nodes.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_without_an_answer_does_not_hold_up_later_reads() {
        let nodes = nodes();
        nodes.make("new");
        let (_never, signal) = oneshot::channel();
        nodes.store.hook().waits.lock().unwrap().push_back((Looks::Before, signal));
        let (renewal, mut takeovers) = (Arc::clone(&nodes.service.0.renewal), Takeovers::default());
        timeout(2 * LONGEST_READ, renewal.take(1, &mut takeovers)).await.expect("the end of the round");
        nodes.service.namespaces().renew().await.unwrap();
        assert!(nodes.service.namespaces().get("new").is_some());
        drop(renewal);
        nodes.close().await;
    }
}
