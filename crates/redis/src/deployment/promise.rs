//! Promises to callers that their changes are durable. An operation with a promise ends when its changes are as durable
//! as the connection's [`SyncPolicy`](crate::SyncPolicy) requires. All other operations end when the server has made
//! their changes.
//!
//! | promised | not promised |
//! |---|---|
//! | operations of [`apply`](tourbillon_durable::store::TimerStore::apply) with `Durability::PowerLoss`, imports, shared documents | operations with less durability, such as the ends of deliveries that the runtime reports |
//! | the removal of a timer that is delivered at most once, which is such an operation | claims, polls, renewals, reaps of expired leases, signs of life, all reads |
//!
//! Each script's answer comes with the [`Witness`] of its server, which can confirm that the changes are durable. An
//! operation with a promise runs in a scope that collects the witnesses. At its end, the operation asks each witness
//! once, for all of its scripts. It also asks the witnesses of scripts that have changed nothing: a call that is
//! repeated after a lost answer finds its own change, which may be on no replica yet.
//!
//! A change is made before it is confirmed, so a removal without a confirmation loses a timer that is delivered at most
//! once. So its server must first show that it confirms changes at present
//! ([`Deployment::unconfirmed`](super::Deployment::unconfirmed)). While it does not, the removal is refused, and the
//! timer stays leased. The runtime gives it back after a pause.

use crate::link::Witness;
use futures_util::future::join_all;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tourbillon_durable::store::StoreError;

tokio::task_local! {
    /// Collects the [`Witness`] of each server on which the current operation runs a script. The set belongs to the
    /// operation's future, not to a thread or a task.
    static SEEN: Witnesses;
}

/// The witnesses of several servers. Each witness can confirm that the changes of its server are durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witnesses(Arc<Mutex<Vec<Arc<Witness>>>>);

impl Witnesses {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Witness>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, witness: Arc<Witness>) {
        let mut all = self.all();
        if !all.iter().any(|known| Arc::ptr_eq(known, &witness)) {
            all.push(witness);
        }
    }

    /// Runs the future `work`. When a script of this future has run on a server, the [`Witness`] of that server is
    /// added to `self`. The witness can confirm that the changes of its server are durable.
    pub(crate) async fn collect<T>(&self, work: impl Future<Output = T>) -> T {
        SEEN.scope(self.clone(), work).await
    }

    /// Adds each [`Witness`] in `self` to the set that the current operation collects with [`collect`](Self::collect).
    /// The witnesses come from another task that has made changes for the operation. With them, the operation can wait
    /// until these changes are durable. Does nothing if the operation collects no witnesses.
    pub(crate) fn pass_on(&self) {
        self.all().iter().cloned().for_each(|witness| note(Some(witness)));
    }

    /// Waits until the changes of all servers in this set are as durable as the connection's
    /// [`SyncPolicy`](crate::SyncPolicy) requires.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreErrorKind::Unknown`](tourbillon_durable::store::StoreErrorKind::Unknown) if the changes do not
    /// become durable in time. The changes were made, but a failover may lose them.
    pub(crate) async fn confirm(&self) -> Result<(), StoreError> {
        let all = self.all().clone();
        let answers = join_all(all.iter().map(Witness::confirm)).await;
        Ok(answers.into_iter().collect::<Result<(), _>>()?)
    }

    /// Returns whether any server in this set has recently failed to make its changes durable in time.
    pub(super) fn have_just_failed(&self) -> bool {
        self.all().iter().any(|witness| witness.has_just_failed())
    }
}

/// Adds `witness` to the set that the current operation collects with [`Witnesses::collect`]. A [`Witness`] can confirm
/// that the changes of its server are durable. `witness` belongs to a server on which a script of the operation has
/// run. Does nothing if `witness` is `None`, or if the operation collects no witnesses.
pub(crate) fn note(witness: Option<Arc<Witness>>) {
    if let Some(witness) = witness {
        // Outside a scope, no promise was made.
        let _noted = SEEN.try_with(|seen| seen.add(witness));
    }
}

/// Runs an operation, and then waits until its changes are as durable as the connection's
/// [`SyncPolicy`](crate::SyncPolicy) requires.
pub(crate) async fn kept<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let seen = Witnesses::default();
    // A failed operation promises nothing to its caller, so the failure does not wait for replicas.
    let done = seen.collect(work).await?;
    seen.confirm().await?;
    Ok(done)
}
