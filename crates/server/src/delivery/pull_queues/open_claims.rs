//! The open claims, and the share of them that each namespace has.

use super::endings::EndTicket;
use super::tally::Tally;
use crate::delivery::reason::Reason;
use crate::share::free_for;
use std::collections::{HashMap, HashSet};
use tokio::sync::{mpsc, oneshot};
use tourbillon_api::Moment;
use tourbillon_durable::Verdict;

/// A receiver's request about its open claim.
#[derive(Debug)]
pub(crate) enum ClaimRequest {
    /// The delivery's end. The receiver gets its answer once the store has the end.
    End(Verdict, EndTicket),
    /// More time. The sender gets the moment at which the time is over.
    Renew(oneshot::Sender<Moment>),
}

/// The open claims by their names.
#[derive(Debug)]
pub(super) struct OpenClaims {
    by_name: HashMap<Box<str>, OpenEntry>,
    by_namespace: Tally,
    most: usize,
    /// The queues whose receivers could not get all that they asked for, since a namespace had its share of claims.
    starved: HashSet<Reason>,
}

#[derive(Debug)]
pub(super) struct OpenEntry {
    namespace: Box<str>,
    pub(super) requests: mpsc::UnboundedSender<ClaimRequest>,
}

impl OpenClaims {
    pub(super) fn new(most: usize) -> Self {
        Self { by_name: HashMap::new(), by_namespace: Tally::default(), most, starved: HashSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The number of claims that a namespace may open.
    pub(super) fn free(&self, namespace: &str) -> usize {
        free_for(self.by_namespace.get(namespace), self.most.saturating_sub(self.by_name.len()))
    }

    /// The number of claims that the namespace of a queue may open.
    pub(super) fn free_at(&self, reason: &Reason) -> usize {
        match reason {
            Reason::Queue(namespace, _) => self.free(namespace),
            _ => 0,
        }
    }

    /// Opens a claim. The delivery gets the requests of its receiver.
    pub(super) fn open(&mut self, name: &str, namespace: &str) -> mpsc::UnboundedReceiver<ClaimRequest> {
        let (sender, requests) = mpsc::unbounded_channel();
        let entry = OpenEntry { namespace: namespace.into(), requests: sender };
        if self.by_name.insert(name.into(), entry).is_none() {
            self.by_namespace.add(namespace);
        }
        requests
    }

    /// The open claim of a namespace.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&OpenEntry> {
        self.by_name.get(name).filter(|open| *open.namespace == *namespace)
    }

    /// Removes an open claim.
    pub(super) fn remove(&mut self, name: &str) -> Option<OpenEntry> {
        let open = self.by_name.remove(name)?;
        self.by_namespace.remove(&open.namespace);
        Some(open)
    }

    /// Removes all open claims.
    pub(super) fn close(&mut self) -> HashMap<Box<str>, OpenEntry> {
        self.by_namespace = Tally::default();
        core::mem::take(&mut self.by_name)
    }

    /// Notes a queue whose receivers cannot get more now.
    pub(super) fn starve(&mut self, reason: &Reason) {
        self.starved.insert(reason.clone());
    }

    /// Takes the queues whose receivers may get more once a claim has ended.
    pub(super) fn take_starved(&mut self) -> HashSet<Reason> {
        core::mem::take(&mut self.starved)
    }

    /// Whether neither a claim nor the number of a namespace is left.
    #[cfg(test)]
    pub(super) fn are_gone(&self) -> bool {
        self.by_name.is_empty() && self.by_namespace.is_empty()
    }

    #[cfg(test)]
    pub(super) fn starved(&self) -> &HashSet<Reason> {
        &self.starved
    }
}
