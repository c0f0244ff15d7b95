//! Reads the changes that other nodes make to shared state, about once a second. Each part of the table has a task of
//! its own, because a part that waits for an answer of the store must not delay the other parts:
//!
//! | part | about once a second |
//! |---|---|
//! | the note of a restore (a document in Redis) | revokes the permission of a restore beside this node to remove timers |
//! | the namespaces | reads them. Their listener (`Namespaces::on_change`) does the rest |
//! | the others | take over operations, log the shards that were taken over, and end removals of namespaces that were abandoned |

use super::operations::Operations;
use super::reports::Takeovers;
use super::restore::revoke;
use crate::settings::{Settings, StorePlace};
use crate::state::{Namespaces, Stop, end_removals};
use crate::task;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::timeout;
use tourbillon_durable::Timers;

/// The time between two calls of a part, such as the part that reads the namespaces.
const RENEWED: Duration = Duration::from_secs(1);
/// The longest time for which a part waits for a read. Without this limit, a read on a broken connection would delay
/// all later reads for as long as the store waits for the answer.
const LONGEST_READ: Duration = Duration::from_secs(2);
/// The number of seconds, roughly, between two searches for operations of nodes that have stopped or died.
const TURNS_OF_OPERATIONS: u32 = 3;
/// The number of seconds, roughly, between two checks for shards that this node has taken over.
const TURNS_OF_TAKEOVERS: u32 = 5;

/// Reads the changes that other nodes make: see the documentation of this module.
#[derive(Clone)]
pub(super) struct Renewal {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) operations: Arc<Operations>,
    pub(super) stop: Stop,
    pub(super) settings: Arc<Settings>,
    /// The age at which the mark of a removal counts as abandoned: see [`STALE`](crate::state::STALE).
    pub(super) stale: Duration,
}

impl Renewal {
    /// Starts the tasks that read the changes of other nodes until the service stops or is dropped. Does nothing if no
    /// other nodes share the timers.
    pub(super) fn begin(self: &Arc<Self>) {
        if !self.namespaces.is_shared() {
            return;
        }
        self.repeat(|this, _| async move { this.revoke().await });
        self.repeat(|this, _| async move { this.read_namespaces().await });
        let takeovers = Arc::<Mutex<Takeovers>>::default();
        self.repeat(move |this, turn| {
            let takeovers = Arc::clone(&takeovers);
            async move { this.take_over(turn, &takeovers).await }
        });
    }

    /// Starts a task that calls `part` about once a second, with the number of the call, from 0 on.
    fn repeat<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        part: impl Fn(Arc<Self>, u32) -> F + Send + 'static,
    ) {
        // The task holds only a weak reference, so a service that is dropped without being closed still drops its
        // parts.
        let (this, stop) = (Arc::downgrade(self), self.stop.clone());
        task::start(async move {
            for turn in 0_u32.. {
                tokio::select! {
                    () = tokio::time::sleep(RENEWED) => {}
                    () = stop.begun() => return,
                }
                let Some(this) = this.upgrade() else { return };
                part(this, turn).await;
            }
        });
    }

    /// Revokes the permission of a restore beside this node to remove timers, because they may be timers of this node.
    async fn revoke(&self) {
        // Only a restore into Redis has a note.
        if let (StorePlace::Redis(_), Some(store)) = (&self.settings.store, self.namespaces.shared()) {
            // If the servers do not answer, the next call tries again.
            let _revoked = timeout(LONGEST_READ, revoke(&*store, &self.stop)).await;
        }
    }

    async fn read_namespaces(&self) {
        // If the servers do not answer, the known namespaces stay in use.
        let _renewed = timeout(LONGEST_READ, self.namespaces.renew()).await;
    }

    async fn take_over(&self, turn: u32, takeovers: &Mutex<Takeovers>) {
        if turn.is_multiple_of(TURNS_OF_OPERATIONS) {
            self.operations.take_over().await;
        }
        if turn.is_multiple_of(TURNS_OF_TAKEOVERS)
            && let Ok(Some(nodes)) = self.timers.timer_store().nodes().await
        {
            takeovers.lock().unwrap_or_else(PoisonError::into_inner).look(&nodes);
        }
        let left = self.namespaces.stale_removals(self.stale);
        if !left.is_empty() {
            let namespaces = Arc::clone(&self.namespaces);
            // If the servers do not answer, the next call tries again.
            let _ended = task::blocking(move || end_removals(&namespaces, &left)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::InFlight;
    use crate::service::Service;
    use crate::settings::RedisSettings;
    use crate::state::double::{self, Documents, Looks, Node};
    use crate::state::{Namespace, NamespaceStorage, mark};
    use core::task::{Context, Waker};
    use tempfile::TempDir;
    use tokio::sync::oneshot;
    use tourbillon_durable::store::Hooked;
    use tourbillon_durable::timer::TimerId;
    use tourbillon_redis::Connect;

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
        let mut settings = Settings::new(folder.path());
        // A node on Redis also looks for the note of a restore.
        let connect = Connect::single("redis://127.0.0.1:1").unwrap();
        settings.store = StorePlace::Redis(RedisSettings::new(connect, "d"));
        let service = Service::open_on_double(settings, Arc::clone(&store) as _).unwrap();
        let other = Namespaces::open(NamespaceStorage::Shared(double::node(&documents, 2))).unwrap();
        Nodes { _folder: folder, store, service, other }
    }

    impl Nodes {
        fn make(&self, name: &str) {
            self.other
                .change(|stored| drop(stored.namespaces.insert(name.into(), Namespace::default())))
                .unwrap();
        }

        fn in_flight(&self) -> &InFlight {
            &self.service.0.condition.in_flight
        }

        async fn close(self) {
            tokio::task::spawn_blocking(move || self.service.close(Duration::ZERO)).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_ends_a_dead_removal_and_forgets_the_histories_of_a_namespace_that_is_new() {
        let nodes = nodes();
        nodes.make("left");
        nodes.other.try_change(|stored| mark(stored, "left", 5)).unwrap().unwrap();
        let (namespaces, in_flight) = (nodes.service.namespaces(), nodes.in_flight());
        namespaces.renew().await.unwrap();
        nodes.make("new");
        let (of_left, of_new) = (TimerId::from_u128(7), TimerId::from_u128(8));
        in_flight.replaced("left", None, of_left, "a timer");
        in_flight.replaced("new", None, of_new, "a timer");
        let renewal = Renewal { stale: Duration::ZERO, ..Renewal::clone(&nodes.service.0.renewal) };
        renewal.take_over(1, &Mutex::default()).await;
        assert!(namespaces.get("left").is_some(), "the removal has not ended");
        // Any read takes the new namespace in, for example that of a creation.
        namespaces.renew().await.unwrap();
        assert_eq!(in_flight.namespace_of(of_left).as_deref(), Some("left"));
        assert_eq!(in_flight.namespace_of(of_new), None);
        drop(renewal);
        nodes.close().await;
    }

    /// Tests that the histories are forgotten although the client of the request has gone before its answer.
    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_client_has_gone_sees_no_earlier_histories() {
        let nodes = nodes();
        let (id, in_flight) = (TimerId::from_u128(7), nodes.in_flight());
        in_flight.replaced("new", None, id, "a timer");
        let mut put = Box::pin(nodes.service.namespace_admin().make("new"));
        let mut context = Context::from_waker(Waker::noop());
        while nodes.service.namespaces().get("new").is_none() && put.as_mut().poll(&mut context).is_pending()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(put);
        assert_eq!(in_flight.namespace_of(id), None);
        nodes.close().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_without_an_answer_does_not_hold_up_reads_of_the_namespaces() {
        // In the first round the node reads the note of a restore, the namespaces, and the operations.
        for unanswered in 0..3 {
            let nodes = nodes();
            let answered = (0..unanswered).map(|_| {
                let (answer, signal) = oneshot::channel();
                answer.send(()).unwrap();
                signal
            });
            let (_never, signal) = oneshot::channel();
            let signals = answered.chain([signal]).map(|signal| (Looks::Before, signal));
            nodes.store.hook().waits.lock().unwrap().extend(signals.collect::<Vec<_>>());
            tokio::time::sleep(RENEWED + RENEWED / 2).await;
            assert!(nodes.store.hook().waits.lock().unwrap().is_empty(), "the reads of the first round");
            nodes.make("new");
            tokio::time::sleep(2 * (LONGEST_READ + RENEWED)).await;
            assert!(nodes.service.namespaces().get("new").is_some(), "read {unanswered}");
            nodes.close().await;
        }
    }
}
