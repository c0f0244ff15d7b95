//! A pool of connections, and the runtime that drives them.

use super::connect::Connect;
use super::error::{Failure, io};
use super::session::{Session, long_wait};
use super::shelf::Shelf;
use crate::layout::SchemaName;
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// The number of connections that stay free for urgent calls: claims, renewals of leases, signs of life (heartbeats),
/// and ends of deliveries. Other calls use the remaining connections, or one connection if the pool is very small.
const RESERVED: usize = 2;

/// The number of connections that serve reads and shared documents, but no changes of timers. A lock of a caller's
/// transaction may block all changes of timers at once. Reads never wait for such a lock.
const FOR_READS: usize = 2;

/// The connections to a server. The settings limit their number. A call waits for a free connection.
pub(crate) struct Pool {
    connect: Connect,
    shelf: Arc<Shelf>,
    /// Limits the number of connections that are in use.
    permits: Arc<Semaphore>,
    /// Limits the number of connections that serve calls which are not urgent. So [`RESERVED`] connections stay free
    /// for urgent calls.
    calls: Arc<Semaphore>,
    /// Limits the number of connections that serve changes of timers. So [`FOR_READS`] connections stay free for reads.
    changes: Arc<Semaphore>,
    /// Limits the number of connections that serve changes which wait for a lock of another transaction. Half of the
    /// connections for changes stay free for other changes.
    waits: Arc<Semaphore>,
    /// The runtime that drives the connections. `None` once the pool is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Pool {
    /// Makes a pool without a connection.
    pub(crate) fn new(connect: Connect, schema: SchemaName) -> Result<Arc<Self>, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tourbillon-postgres")
            .enable_all()
            .build()
            .map_err(|error| StoreError::caused_by(StoreErrorKind::Io, error))?;
        let permits = Arc::new(Semaphore::new(connect.connections));
        let shelf = Arc::new(Shelf::new(schema, connect.clone()));
        let for_calls = connect.connections.saturating_sub(RESERVED).max(1);
        let for_changes = for_calls.saturating_sub(FOR_READS).max(1);
        let [calls, changes, waits] = [for_calls, for_changes, (for_changes / 2).max(1)]
            .map(|connections| Arc::new(Semaphore::new(connections)));
        Ok(Arc::new(Self { connect, shelf, permits, calls, changes, waits, runtime: Some(runtime) }))
    }

    /// Runs a future on the runtime of the connections, and waits for its result. If the returned future is dropped,
    /// the inner future still ends.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        // The boxed futures of all calls with this type of result have the same type. So the runtime's code for tasks
        // is not compiled for each call. Besides, the future is moved only once.
        let future: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>> = Box::pin(future);
        let task = self.runtime.as_ref().map(|runtime| runtime.spawn(future));
        async move {
            let Some(task) = task else { return Err(closed()) };
            match task.await {
                Ok(result) => result,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(closed()),
            }
        }
    }

    pub(crate) fn schema(&self) -> &SchemaName {
        self.shelf.schema()
    }

    pub(crate) fn patience(&self) -> Duration {
        self.connect.patience
    }

    /// Returns the longest time for which a change waits for locks of other transactions.
    pub(crate) fn lock_patience(&self) -> Duration {
        Duration::from_millis(long_wait(self.connect.response_timeout).into())
    }

    /// Returns a connection as [`session`](Self::session) does, for a read or for a shared document. However many such
    /// calls there are, [`RESERVED`] connections stay free for urgent calls.
    pub(crate) async fn session_for_call(self: &Arc<Self>) -> Result<Session, Failure> {
        let permits = vec![self.permit(&self.calls).await?];
        self.session_with(permits).await
    }

    /// Returns a connection as [`session`](Self::session) does, for a change of timers that must not wait long for a
    /// lock of another transaction.
    pub(crate) async fn session_for_change(self: &Arc<Self>) -> Result<Session, Failure> {
        let permits = vec![self.permit(&self.changes).await?, self.permit(&self.calls).await?];
        self.session_with(permits).await
    }

    /// Returns a connection as [`session`](Self::session) does, for a change of timers that waits for a lock of another
    /// transaction. Few such changes get a connection at the same time: the others wait, for at most the time `left`.
    /// The change should return the connection between its waits, since the other changes need it.
    pub(crate) async fn session_for_wait(self: &Arc<Self>, left: Duration) -> Result<Session, Failure> {
        let others = |_| Failure::Held(io("many other calls wait for transactions of callers"));
        let waits = timeout(left, self.permit(&self.waits)).await.map_err(others)??;
        let permits = vec![waits, self.permit(&self.changes).await?, self.permit(&self.calls).await?];
        self.session_with(permits).await
    }

    /// Acquires a permit from `permits`, one of the semaphores of this pool. The permit stands for the use of a
    /// connection. Fails if no permit becomes free within the response timeout.
    async fn permit(&self, permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
        match timeout(self.connect.response_timeout, Arc::clone(permits).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Failure::Failed(closed())),
            Err(_) => Err(Failure::Lost(io("all connections are in use"))),
        }
    }

    /// Returns a free connection, or makes a new connection. Repeats a failed attempt to connect for the time that
    /// [`Connect::patience`] sets.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Session, Failure> {
        self.session_with(Vec::new()).await
    }

    /// Returns a connection as [`session`](Self::session) does. The given permits are released with the session.
    async fn session_with(
        self: &Arc<Self>,
        mut permits: Vec<OwnedSemaphorePermit>,
    ) -> Result<Session, Failure> {
        let begin = Instant::now();
        permits.push(self.permit(&self.permits).await?);
        loop {
            match self.shelf.take() {
                Some(client) if client.is_closed() => {}
                Some(client) => return Ok(Session::new(Arc::clone(&self.shelf), client, permits)),
                None => match self.dial().await {
                    Ok(client) => return Ok(Session::new(Arc::clone(&self.shelf), client, permits)),
                    Err(failure @ Failure::Failed(_)) => return Err(failure),
                    Err(failure) if begin.elapsed() >= self.connect.patience => return Err(failure),
                    Err(_) => sleep(PAUSE).await,
                },
            }
        }
    }

    async fn dial(&self) -> Result<Client, Failure> {
        let (client, connection) = self.connect.dial().await?;
        // This task ends when the client is dropped.
        let _driven = tokio::spawn(connection);
        Ok(client)
    }
}

fn closed() -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "the store is closed")
}
