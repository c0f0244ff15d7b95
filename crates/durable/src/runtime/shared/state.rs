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
    /// The delivery loop claims no more timers. At `until` it gives back the timers whose deliveries are still under
    /// way.
    Stopping { until: Instant },
    /// The delivery loop has ended.
    Ended,
}

/// The present work of the delivery loop's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The thread chooses its next step, or sleeps.
    #[default]
    Choosing,
    /// The thread passes events to the observer.
    Emitting,
    /// The thread makes a step that calls the store. The step began at `since`.
    AtStore { since: Instant },
}

/// The signals that wake the delivery loop while it sleeps. The field of a signal is false if the loop cannot act on
/// the signal yet, and must not be woken by it. The loop sets the fields before it sleeps. For example, the end of a
/// delivery does not wake the loop if the end must wait for the store's answer to earlier ends. Two other signals
/// always wake the loop: a stop, and a call at the store that must be polled. While the loop is awake, all fields are
/// true.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakes {
    /// True if the end of a delivery wakes the delivery loop.
    pub(crate) on_ends: bool,
    /// True if a request of another thread wakes the delivery loop. The end of a delivery does not count as a request.
    pub(crate) on_requests: bool,
}

impl Default for Wakes {
    fn default() -> Self {
        Self { on_ends: true, on_requests: true }
    }
}

/// The requests that other threads make to the delivery loop.
#[derive(Default)]
pub(crate) struct Requests {
    /// True if a call to the store may have made progress: the delivery loop must poll the futures of its calls.
    pub(crate) poll: bool,
    /// True if timers may be due: the delivery loop must claim due timers.
    pub(crate) look: bool,
    pub(crate) renewal: RenewalAlarm,
    pub(crate) fetches: VecDeque<Fetch>,
}

/// The state of the alarm for the next renewal of leases (invariant R4 of
/// [`delivery_loop`](crate::runtime::delivery_loop)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RenewalAlarm {
    /// The alarm is not set. Either no lease needs a renewal, or a renewal has been sent.
    #[default]
    Unset,
    /// The alarm is set, and will ring.
    Set,
    /// The alarm has rung: the leases must be renewed.
    Rung,
}

/// A caller's request to claim due timers that are parked for a reason. The delivery loop claims `wanted` of these
/// timers. If half of all these timers are more than `wanted`, the loop claims this half instead. It never claims more
/// than `most` timers. If the request is dropped without an answer, the caller gets the error that the runtime has
/// stopped.
pub(crate) struct Fetch {
    pub(crate) reason: Box<str>,
    pub(crate) wanted: u32,
    pub(crate) most: u32,
    pub(crate) reply: oneshot::Sender<Result<Option<u32>, StoreError>>,
}

/// The results of ended deliveries for the store, and events for the observer. They stay here until the delivery loop
/// takes them.
#[derive(Default)]
pub(crate) struct Settled {
    /// The results of deliveries that the delivery loop must report to the store.
    pub(crate) ends: Vec<DeliveryEnd>,
    /// Events for the observer that other threads have made. The delivery loop passes them to the observer.
    pub(crate) events: Vec<Event>,
}

/// Describes the calls that the store has not answered. The delivery loop publishes these values here for other
/// threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    /// The number of results of deliveries that the delivery loop has taken from [`Settled::ends`], and that the store
    /// has not confirmed yet.
    pub(crate) ends: usize,
    /// True if a renewal of leases was sent, and the delivery loop has not taken the store's answer yet.
    pub(crate) is_renewing: bool,
    /// True while the delivery loop still makes parked timers pending again, because the runtime now has a handler for
    /// their kinds.
    pub(crate) is_unparking: bool,
    /// The moment at which the oldest unanswered call began. Only reports of results and renewals of leases count. The
    /// pause after a failed report counts like a report. `None` if the delivery loop waits for no answer.
    pub(crate) since: Option<Instant>,
}

/// Describes the pending timers of the store, as the last claim found them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) has_claimed: bool,
    /// The due moment of the first pending timer. `None` if no timer is pending.
    pub(crate) next_due: Option<UtcMillis>,
    /// True if the last claim has left due timers in the store on purpose: the namespaces of these timers have used up
    /// their shares of the handlers, or their permits for late timers. If the field is true when a handler returns, the
    /// loop claims again. The field is also true during a claim that divides the handlers between namespaces, because
    /// the claim does not notice that a handler returns.
    pub(crate) is_withheld: bool,
}

impl RuntimeState {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stage != Stage::Running
    }

    /// Returns true if the runtime has nothing to do: no timer is due, no handler runs, and the store has answered all
    /// calls.
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
            && !self.unanswered.is_unparking
            && self.deliveries.running() == 0
            && self.deliveries.is_empty()
            && self.plans == Plans::Followed
    }
}
