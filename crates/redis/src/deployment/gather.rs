//! Makes one call for each of several groups of shards, some of which might not answer. A *group* is the shards that
//! one script can read.

use super::handle::Deployment;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tourbillon_durable::store::{StoreError, StoreErrorKind};

/// The time within which the other groups of shards must answer after the first group has answered.
const GRACE: Duration = Duration::from_millis(300);

/// The answers and the failures of calls to several groups of shards.
pub(crate) struct Gathered<G, T> {
    pub(crate) answers: Vec<(G, T)>,
    /// The groups whose calls failed, each with the error of its call. The error is `None` if the group did not answer
    /// in time: the call may still take effect.
    pub(crate) failed: Vec<(G, Option<StoreError>)>,
}

impl<G, T> Gathered<G, T> {
    /// Returns the answers and the failures if at least one group of shards has answered.
    ///
    /// # Errors
    ///
    /// Fails if no group has answered, or if the error of any group says that the store is closed
    /// ([`StoreErrorKind::Closed`]). A store is closed, for example, once its servers have lost the deployment's data.
    pub(crate) fn any(self) -> Result<Self, StoreError> {
        let of_lost = |error: &&StoreError| error.kind() == StoreErrorKind::Closed;
        let errors = || self.failed.iter().filter_map(|(_, error)| error.as_ref());
        let error = match self.answers.is_empty() {
            // Without an answer there was no time limit, so each group has an error.
            true => errors().find(of_lost).or_else(|| errors().next()),
            false => errors().find(of_lost),
        };
        match error.cloned() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }
}

/// Waits for all calls, even after an error, and returns their results or the first error. A call that is dropped
/// could still take effect later, so none is dropped.
pub(crate) async fn join_or_fail<T, F: Future<Output = Result<T, StoreError>>>(
    calls: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, StoreError> {
    join_all(calls).await.into_iter().collect()
}

impl Deployment {
    /// Makes all calls at the same time, each to one group of shards. Waits for the first answer without a limit, and
    /// then [`GRACE`] for the other answers. A group that has not answered by then counts as failed.
    pub(crate) async fn gather<G: Clone, T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        calls: impl IntoIterator<Item = (G, F)>,
    ) -> Gathered<G, T> {
        let (groups, calls): (Vec<G>, Vec<F>) = calls.into_iter().unzip();
        let mut is_open = vec![true; groups.len()];
        let numbered = calls.into_iter().enumerate();
        let calls: FuturesUnordered<_> =
            numbered.map(|(place, call)| async move { (place, call.await) }).collect();
        let mut calls = pin!(calls);
        let mut gathered = Gathered { answers: Vec::new(), failed: Vec::new() };
        let mut grace = None;
        loop {
            let next = match &mut grace {
                None => calls.next().await,
                Some(grace) => match select(calls.next(), grace).await {
                    Either::Left((next, _)) => next,
                    Either::Right(_) => None,
                },
            };
            let Some((place, answer)) = next else { break };
            is_open[place] = false;
            let group = groups[place].clone();
            match answer {
                Ok(answer) => {
                    gathered.answers.push((group, answer));
                    // `wait` starts a task on the connection's runtime, so the last answer does not call it.
                    if !calls.is_empty() {
                        grace.get_or_insert_with(|| self.link.wait(GRACE));
                    }
                }
                // An error starts no time limit. Otherwise a server that fails at once could cut off all slower
                // servers.
                Err(error) => gathered.failed.push((group, Some(error))),
            }
        }
        let late = groups.into_iter().zip(is_open).filter(|(_, is_open)| *is_open);
        gathered.failed.extend(late.map(|(group, _)| (group, None)));
        gathered
    }

    /// Makes all calls at the same time, each to one group of shards. On one server, waits for all calls and fails if
    /// any call fails. In a cluster, does the same as [`gather`](Self::gather).
    pub(crate) async fn gather_or_fail<G: Clone, T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        calls: Vec<(G, F)>,
    ) -> Result<Gathered<G, T>, StoreError> {
        if self.topology.fails_in_parts() {
            return Ok(self.gather(calls).await);
        }
        let calls = calls.into_iter().map(async |(group, call)| Ok::<_, StoreError>((group, call.await?)));
        Ok(Gathered { answers: join_or_fail(calls).await?, failed: Vec::new() })
    }
}
