//! Holds the state of a runtime that its threads share, under one lock.

use super::deliveries::Deliveries;
use super::delivery::DeliveryEnd;
use super::plans::Plans;
use crate::runtime::event::Event;
use crate::store::StoreError;
use crate::timer::TimerId;
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
    /// The thread chooses the loop's next step (for example a claim of due timers), polls the loop's calls to the
    /// store, or sleeps.
    #[default]
    Choosing,
    /// The thread passes events to the program's observer.
    Emitting,
    /// The thread makes a step of the loop that may call the store, for example a claim of due timers. The step began
    /// at `since`.
    AtStore { since: Instant },
}

/// The signals that wake the delivery loop while it sleeps. The field of a signal is false if the loop cannot act on
/// the signal yet, and must not be woken by it. The loop sets the fields before it sleeps. For example, the end of a
/// delivery does not wake the loop if the report of this end must wait for the store's answer to earlier reports. Two
/// other signals always wake the loop: a stop, and a call to the store that must be polled. While the loop is awake,
/// all fields are true.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakes {
    /// True if the loop must wake when a delivery ends, to report the result of the delivery to the store.
    pub(crate) on_ends: bool,
    /// True if the loop must wake when another thread leaves an event for the program's observer, or a request
    /// ([`Requests`]), for example to claim due timers.
    pub(crate) on_requests: bool,
    /// True if the loop must wake when a delivery asks for the removal of its timer.
    pub(crate) on_removals: bool,
}

impl Wakes {
    /// Returns true for any of the signals. A delivery that is put off by another thread changes the moment until which
    /// the loop may sleep.
    pub(crate) fn any(self) -> bool {
        true
    }
}

impl Default for Wakes {
    fn default() -> Self {
        Self { on_ends: true, on_requests: true, on_removals: true }
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
    /// The deliveries that want to begin, and whose timers the store must remove first.
    pub(crate) removals: Vec<AskedRemoval>,
}

/// A delivery that wants to begin, and whose timer the store must remove first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedRemoval {
    /// The number of the delivery.
    pub(crate) number: u64,
    pub(crate) id: TimerId,
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

/// A caller's request to claim due timers that are parked for the reason `reason`
/// ([`Verdict::Park`](crate::Verdict::Park)). The delivery loop claims `wanted` of these timers, or half of all such
/// timers if this is more, but at most `most`. If the request is dropped without an answer, the caller gets the error
/// that the runtime has stopped.
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
    /// Events that other threads have made for the program's observer. The delivery loop passes these events to the
    /// observer.
    pub(crate) events: Vec<Event>,
}

/// Describes the delivery loop's calls to the store that the store has not answered. The loop publishes these values
/// here for other threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    /// The number of results of deliveries that the delivery loop has taken from [`Settled::ends`], and that the store
    /// has not confirmed yet.
    pub(crate) ends: usize,
    /// True if a renewal of leases was sent, and the delivery loop has not taken the store's answer yet.
    pub(crate) is_renewing: bool,
    /// True while the delivery loop still unparks timers (makes them pending again) that were parked because there was
    /// no handler for their kinds. This runtime has handlers for these kinds.
    pub(crate) is_unparking: bool,
    /// The moment at which the oldest unanswered call to the store began. Only two kinds of calls count: reports of the
    /// results of deliveries, and renewals of leases. The pause after a failed report counts like a report. `None` if
    /// no such call is unanswered.
    pub(crate) since: Option<Instant>,
}

/// Describes the pending timers of the store, as the last claim found them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) has_claimed: bool,
    /// The due moment of the first pending timer. `None` if no timer is pending.
    pub(crate) next_due: Option<UtcMillis>,
    /// True if the last claim has left due timers in the store because of a limit for each namespace. With the setting
    /// [`in_turn`](crate::Builder::in_turn), a namespace gets only a part of the handlers, and late timers only at the
    /// [`catch_up_rate`](crate::Builder::catch_up_rate). If the field is true when a handler returns, the loop claims
    /// again. With this setting, the field is also true during a claim, because the claim still counts a handler that
    /// returns during the claim.
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
            // Before the first claim, `next_due` says nothing about the store.
            && self.backlog.has_claimed
            && !self.requests.look
            && self.requests.fetches.is_empty()
            && self.activity == Activity::Choosing
            && self.settled.ends.is_empty()
            && self.settled.events.is_empty()
            && self.unanswered.ends == 0
            && !self.unanswered.is_renewing
            && !self.unanswered.is_unparking
            // A handler may run after its delivery has ended, and a delivery is under way before its handler runs.
            && self.deliveries.running() == 0
            && self.deliveries.is_empty()
            && self.plans == Plans::Followed
    }
}
