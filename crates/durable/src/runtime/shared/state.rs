//! Holds the state of a runtime that its threads share, under one lock.

use super::deliveries::Deliveries;
use super::delivery::DeliveryEnd;
use super::plans::Plans;
use crate::runtime::event::Event;
use crate::store::StoreError;
use futures_channel::oneshot;
use std::collections::VecDeque;
use std::time::Instant;
use tourbillon_words::UtcMillis;

#[derive(Default)]
pub(crate) struct RuntimeState {
    pub(crate) stage: Stage,
    pub(crate) activity: Activity,
    pub(crate) wakes: Wakes,
    pub(crate) requests: Requests,
    pub(crate) settled: Settled,
    pub(crate) unanswered: Unanswered,
    pub(crate) deliveries: Deliveries,
    pub(crate) backlog: Backlog,
    pub(crate) plans: Plans,
}

/// The stages of a runtime's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Running,
    /// Nothing is claimed any more. Deliveries that are still under way at `until` are given back.
    Stopping { until: Instant },
    /// The loop has ended.
    Ended,
}

/// The present work of the loop's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The thread chooses its next step, or sleeps.
    #[default]
    Choosing,
    /// The thread calls the observer.
    Emitting,
    /// The thread has been in a step that needs the store since this moment.
    AtStore { since: Instant },
}

/// The signals that wake the loop while it sleeps. The loop sets them before it sleeps, and leaves out signals that it
/// could not act on yet, so that it does not wake in vain for each delivery. A stop, and a call to the store that must
/// be polled, always wake it. While the loop is awake, both fields are true.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakes {
    /// Whether the end of a delivery wakes the loop.
    pub(crate) on_ends: bool,
    /// Whether any other request wakes the loop.
    pub(crate) on_requests: bool,
}

impl Default for Wakes {
    fn default() -> Self {
        Self { on_ends: true, on_requests: true }
    }
}

/// The requests to the loop from other threads.
#[derive(Default)]
pub(crate) struct Requests {
    /// A call at the store may have made progress, and must be polled.
    pub(crate) poll: bool,
    /// Timers may be due, so the loop must claim.
    pub(crate) look: bool,
    pub(crate) renewal: RenewalAlarm,
    pub(crate) fetches: VecDeque<Fetch>,
}

/// The state of the alarm for the next renewal of leases (R4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RenewalAlarm {
    /// No lease is known that needs a renewal.
    #[default]
    Unset,
    /// The alarm is armed.
    Set,
    /// The alarm has rung: the leases must be renewed.
    Rung,
}

/// A caller's request to claim timers that are parked for a reason: `wanted` of them, or up to `most` if enough are
/// left for other processes. If the request is dropped without an answer, the caller learns that the runtime has
/// stopped.
pub(crate) struct Fetch {
    pub(crate) reason: Box<str>,
    pub(crate) wanted: u32,
    pub(crate) most: u32,
    pub(crate) reply: oneshot::Sender<Result<Option<u32>, StoreError>>,
}

/// The results of settled deliveries that the loop has not taken yet.
#[derive(Default)]
pub(crate) struct Settled {
    /// The ends that must be reported to the store.
    pub(crate) ends: Vec<DeliveryEnd>,
    /// Events from threads other than the loop's, for an observer.
    pub(crate) events: Vec<Event>,
}

/// Tells which calls at the store have no answer, as the loop last published it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    /// The number of ends that the loop has taken and not reported yet.
    pub(crate) ends: usize,
    /// Whether a renewal, or the reap after it, is in progress.
    pub(crate) is_renewing: bool,
    /// The moment at which the oldest unfinished report of ends (a call, or the pause after its error) or unanswered
    /// renewal began; `None` if there is none.
    pub(crate) since: Option<Instant>,
}

/// Describes the pending timers of the store, as the last claim found them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) has_claimed: bool,
    /// The due moment of the first pending timer.
    pub(crate) next_due: Option<UtcMillis>,
    /// Whether due timers were left because their namespaces have their shares.
    pub(crate) is_withheld: bool,
}

impl RuntimeState {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stage != Stage::Running
    }

    /// Returns whether no timer is due, no handler runs, and the store has answered everything.
    pub(crate) fn is_idle(&self, now: UtcMillis) -> bool {
        let is_clear = !self.backlog.is_withheld && self.backlog.next_due.is_none_or(|due| due > now);
        is_clear
            && self.backlog.has_claimed
            && !self.requests.look
            && self.requests.fetches.is_empty()
            && self.activity == Activity::Choosing
            && self.settled.ends.is_empty()
            && self.settled.events.is_empty()
            && self.unanswered.ends == 0
            && !self.unanswered.is_renewing
            && self.deliveries.running() == 0
            && self.deliveries.is_empty()
            && self.plans == Plans::Followed
    }
}
