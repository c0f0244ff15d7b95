//! Ends and prolongs open claims (receivers' holds on fetched timers).

use super::endings::{ClaimVerdict, EndAnswer, EndTicket, ended, unknown};
use super::open_claims::{ClaimRequest, OpenEntry};
use super::queues::PullQueues;
use core::time::Duration;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tourbillon_api::{Moment, Problem};

/// The longest time for which a request to end a claim waits for the store. Clients wait longer, so they get an answer
/// that explains the delay.
const PATIENCE: Duration = Duration::from_secs(8);

/// Whether a request to end a claim is the first such request. The channel gets the answer to the request.
enum EndBegun {
    /// No earlier request has asked to end the claim. The claim no longer counts as open. The request must send the
    /// ticket to the timer's handler, which ends the delivery.
    Now(OpenEntry, EndTicket, watch::Receiver<EndAnswer>),
    /// An earlier request has asked to end the claim, and both requests get the same answer. If the earlier request
    /// asked for another outcome of the delivery, the new request gets a problem instead.
    Before(Result<watch::Receiver<EndAnswer>, Problem>),
}

impl PullQueues {
    /// Ends the delivery of an open claim with `verdict`. Returns once the store has recorded the end. Returns `None`
    /// if the claim is not open at this node. Fails if the timer is to be put off and is delivered at most once: the
    /// store has the timer no longer. The claim then stays open.
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the claim still ends.
    pub(crate) async fn end(
        &self,
        namespace: &str,
        claim: &str,
        verdict: impl Into<ClaimVerdict>,
    ) -> Option<Result<(), Problem>> {
        let verdict = verdict.into();
        let mut answer = match self.begin_end(namespace, claim, &verdict)? {
            EndBegun::Now(open, ticket, answer) => {
                // If the handler has gone, the channel returns the ticket in its error. The drop of the ticket then
                // answers the receiver.
                let _the_handler_has_gone = open.requests.send(ClaimRequest::End(verdict, ticket));
                answer
            }
            EndBegun::Before(Ok(answer)) => answer,
            EndBegun::Before(Err(problem)) => return Some(Err(problem)),
        };
        let answered = tokio::time::timeout(PATIENCE, answer.wait_for(Option::is_some)).await;
        match answered {
            Ok(Ok(answer)) => answer.clone(),
            Ok(Err(_)) => None,
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let detail = format!(
                    "the store has not answered within {seconds} s; the timer is delivered again unless it gets the end"
                );
                Some(Err(unknown(&detail)))
            }
        }
    }

    fn begin_end(&self, namespace: &str, claim: &str, verdict: &ClaimVerdict) -> Option<EndBegun> {
        let mut state = self.lock();
        // `state` stays locked until `endings` has the claim. So a repeated request finds the claim either open or
        // ending.
        if let Some(before) = self.endings.again(namespace, claim, verdict) {
            return Some(EndBegun::Before(before));
        }
        // Only `get` compares the namespace. Without `get`, a client could end a claim of another namespace.
        let open = state.claims.get(namespace, claim)?;
        if open.is_once && matches!(verdict, ClaimVerdict::PutOff(_)) {
            let message = "a timer that is delivered at most once cannot be put off";
            return Some(EndBegun::Before(Err(Problem::field("/snooze_ms", message))));
        }
        let open = state.claims.remove(claim)?;
        let (ticket, answer) = self.endings.begin(namespace, claim, verdict);
        Some(EndBegun::Now(open, ticket, answer))
    }

    /// Prolongs an open claim. Returns the moment at which the claim expires.
    pub(crate) async fn renew(&self, namespace: &str, claim: &str) -> Result<Moment, Problem> {
        let (sender, until) = oneshot::channel();
        {
            let state = self.lock();
            let open = state.claims.get(namespace, claim).ok_or_else(ended)?;
            open.requests.send(ClaimRequest::Renew(sender)).map_err(|_| ended())?;
        }
        until.await.map_err(|_| ended())
    }
}

/// An open claim. The timer's handler keeps this value, and closes the claim by dropping it.
#[derive(Debug)]
pub(crate) struct OpenClaim {
    pub(super) queues: Arc<PullQueues>,
    pub(super) name: Box<str>,
    pub(super) requests: mpsc::UnboundedReceiver<ClaimRequest>,
}

impl OpenClaim {
    /// Waits until the receiver gets the claim. Returns false if the claim was removed before. A timer that is
    /// delivered at most once is handed over only if the future `begins`, which begins its delivery, returns true.
    pub(crate) async fn is_handed_over(&mut self, begins: impl Future<Output = bool>) -> bool {
        let mut request = self.request().await;
        if let Some(ClaimRequest::Remove(mut removed)) = request {
            let has_begun = tokio::select! {
                biased;
                has_begun = begins => has_begun,
                // The receiver has gone away, or waits no longer.
                () = removed.closed() => false,
            };
            if !has_begun {
                return false;
            }
            let _receiver_has_gone = removed.send(());
            request = self.request().await;
        }
        matches!(request, Some(ClaimRequest::Begin))
    }

    /// Waits for the next request about the claim. Returns `None` if the claim was removed before its receiver has got
    /// it, so that the timer must be parked again.
    pub(crate) async fn request(&mut self) -> Option<ClaimRequest> {
        self.requests.recv().await
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        let starved = {
            let mut state = self.queues.lock();
            // The claim may be gone already: a request to end the claim removes it, and so does a receiver that goes
            // away.
            state.claims.remove(&self.name);
            state.claims.take_starved()
        };
        starved.iter().for_each(|reason| self.queues.look_at(reason));
    }
}
