//! Keeps the open claims, and limits the number of each namespace's claims.

use super::endings::{ClaimVerdict, EndTicket};
use crate::clock::millis;
use crate::delivery::reason::Reason;
use crate::share::Shares;
use std::collections::{HashMap, HashSet};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tourbillon_api::{Claim, Moment};

/// A receiver's request about its open claim, for the timer's handler.
#[derive(Debug)]
pub(crate) enum ClaimRequest {
    /// The receiver is about to get the claim of a timer that is delivered at most once. The handler first has the
    /// timer removed from the store, and then answers on this channel. Without an answer, the receiver does not get
    /// the claim.
    Remove(oneshot::Sender<()>),
    /// The receiver gets the claim now, so the claim's time begins. Only [`Remove`](Self::Remove) comes before this
    /// request.
    Begin,
    /// Ends the delivery with this verdict. The ticket answers the receiver once the store has recorded the end.
    End(ClaimVerdict, EndTicket),
    /// Prolongs the claim. The handler sends the new moment of expiry on this channel.
    Renew(oneshot::Sender<Moment>),
    /// The service stops, so the claim has ended. The receiver has got the timer.
    Stop,
}

/// The open claims (receivers' holds on fetched timers), by their names.
#[derive(Debug)]
pub(super) struct OpenClaims {
    by_name: HashMap<Box<str>, OpenEntry>,
    by_namespace: Shares<Box<str>>,
    /// The queues whose receivers want more timers than their namespace may claim now. Once a claim ends, the unparker
    /// checks these queues again.
    starved: HashSet<Reason>,
}

#[derive(Debug)]
pub(super) struct OpenEntry {
    namespace: Box<str>,
    /// Whether the timer is delivered at most once.
    pub(super) is_once: bool,
    /// Whether the receiver has got the claim. Until then, the claim is only reserved for the receiver.
    is_handed_over: bool,
    /// The moment at which the claim was opened.
    opened: Instant,
    pub(super) requests: mpsc::UnboundedSender<ClaimRequest>,
}

impl OpenEntry {
    /// Informs the timer's handler that the service stops.
    pub(super) fn stop(&self) {
        if self.is_handed_over {
            let _the_handler_has_gone = self.requests.send(ClaimRequest::Stop);
        }
    }
}

impl OpenClaims {
    pub(super) fn new(most: usize) -> Self {
        Self { by_name: HashMap::new(), by_namespace: Shares::new(most), starved: HashSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns how many further claims a namespace may open.
    pub(super) fn free(&self, namespace: &str) -> usize {
        self.by_namespace.free_for(namespace)
    }

    /// Returns how many further claims the namespace of the queue `reason` may open.
    pub(super) fn free_at(&self, reason: &Reason) -> usize {
        match reason {
            Reason::Queue(namespace, _) => self.free(namespace),
            _ => 0,
        }
    }

    /// Opens a claim of a timer. The namespace must have room ([`free`](Self::free)). Returns the channel from which
    /// the timer's handler reads the requests of the client that has the claim.
    pub(super) fn open(
        &mut self,
        name: &str,
        namespace: &str,
        is_once: bool,
    ) -> mpsc::UnboundedReceiver<ClaimRequest> {
        let (sender, requests) = mpsc::unbounded_channel();
        let entry = OpenEntry {
            namespace: namespace.into(),
            is_once,
            is_handed_over: false,
            opened: Instant::now(),
            requests: sender,
        };
        // The caller has checked under the same lock that the namespace has room.
        if self.by_name.insert(name.into(), entry).is_none() {
            self.by_namespace.take(namespace, 1);
        }
        requests
    }

    /// Makes the handler of a timer that is delivered at most once have the timer removed from the store. The returned
    /// channel gets a message once the store has removed the timer. Returns `None` if the timer stays stored.
    pub(super) fn remove_timer(&self, name: &str) -> Option<oneshot::Receiver<()>> {
        let open = self.by_name.get(name).filter(|open| open.is_once)?;
        let (sender, removed) = oneshot::channel();
        // If the handler has gone, the channel fails.
        let _the_handler_has_gone = open.requests.send(ClaimRequest::Remove(sender));
        Some(removed)
    }

    /// Begins the time of a claim that its receiver gets now, and moves the claim's end accordingly. Returns false if
    /// the claim has ended. The receiver must not get it then.
    pub(super) fn hand_over(&mut self, claim: &mut Claim) -> bool {
        let Some(open) = self.by_name.get_mut(&*claim.claim) else { return false };
        open.is_handed_over = true;
        let until = claim.until.as_millis().saturating_add(millis(open.opened.elapsed()));
        claim.until = Moment::from_millis(until);
        // If the handler has gone, it drops the claim, and a request of the receiver finds it ended.
        let _the_handler_has_gone = open.requests.send(ClaimRequest::Begin);
        true
    }

    /// Returns the claim with this name, or `None` if no such claim is open in the namespace.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&OpenEntry> {
        self.by_name.get(name).filter(|open| *open.namespace == *namespace)
    }

    /// Removes an open claim. Returns `None` if the claim is not open.
    pub(super) fn remove(&mut self, name: &str) -> Option<OpenEntry> {
        let open = self.by_name.remove(name)?;
        self.by_namespace.give_back(&*open.namespace, 1);
        Some(open)
    }

    /// Removes all open claims, and returns them by their names.
    pub(super) fn close(&mut self) -> HashMap<Box<str>, OpenEntry> {
        let all = core::mem::take(&mut self.by_name);
        all.values().for_each(|open| self.by_namespace.give_back(&*open.namespace, 1));
        all
    }

    /// Notes a queue whose receivers cannot get more timers until a claim of the namespace ends.
    pub(super) fn starve(&mut self, reason: &Reason) {
        self.starved.insert(reason.clone());
    }

    /// Takes the queues that [`starve`](Self::starve) has noted. Called when a claim has ended, because receivers of
    /// these queues may now get timers.
    pub(super) fn take_starved(&mut self) -> HashSet<Reason> {
        core::mem::take(&mut self.starved)
    }

    /// Returns whether all claims and all counts of namespaces are gone.
    #[cfg(test)]
    pub(super) fn are_gone(&self) -> bool {
        self.by_name.is_empty() && self.by_namespace.are_gone()
    }

    #[cfg(test)]
    pub(super) fn starved(&self) -> &HashSet<Reason> {
        &self.starved
    }
}
