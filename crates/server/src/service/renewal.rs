//! Reads the changes that other nodes make to shared state, in *rounds* of about a second.

use super::operations::Operations;
use super::reports::Takeovers;
use super::restore::revoke;
use crate::delivery::Deliveries;
use crate::record::InFlight;
use crate::settings::Settings;
use crate::state::{Namespaces, STALE, Stop, end_removals};
use crate::task;
use core::time::Duration;
use std::sync::Arc;
use tourbillon_durable::Timers;

/// The time between two rounds. In a round, the node reads the changes that other nodes have made.
const RENEWED: Duration = Duration::from_secs(1);
/// The number of rounds (reads of other nodes' changes, once a second) between two searches for operations of nodes
/// that have stopped or died.
const TURNS_OF_OPERATIONS: u32 = 3;
/// The number of rounds (reads of other nodes' changes, once a second) between two checks for shards that this node has
/// taken over.
const TURNS_OF_TAKEOVERS: u32 = 5;

/// Reads the changes that other nodes make to namespaces, operations and shards. Also looks for a restore that runs
/// beside this node.
pub(super) struct Renewal {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) operations: Arc<Operations>,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) stop: Stop,
    pub(super) settings: Arc<Settings>,
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
        if let Some(store) = self.namespaces.shared().filter(|_| self.settings.redis.is_some()) {
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
        let stale = self.namespaces.stale_removals(STALE);
        if !stale.is_empty() {
            let namespaces = Arc::clone(&self.namespaces);
            // If the servers do not answer, the next round tries again.
            let _ended = task::blocking(move || end_removals(&namespaces, &stale)).await;
            self.deliveries.look_everywhere();
        }
        let before = self.namespaces.all();
        // If the servers do not answer, the known namespaces stay in use.
        if self.namespaces.renew().await.unwrap_or(false) {
            let now = self.namespaces.all();
            // An earlier namespace may have had the same name. A new namespace must not see its histories.
            now.keys()
                .filter(|name| !before.contains_key(*name))
                .for_each(|name| self.in_flight.forget(name));
            self.deliveries.look_everywhere();
        }
    }
}
