//! The state of a runtime that its threads share, under one lock.

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

/// The life of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Running,
    /// Nothing is claimed. Deliveries that are still under way at the moment are given back.
    Stopping { until: Instant },
    /// The loop has ended.
    Ended,
}

/// The present work of the loop's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It chooses its next step, or sleeps.
    #[default]
    Choosing,
    /// It calls the observer.
    Emitting,
    /// It makes a step that needs the store, since this moment.
    AtStore { since: Instant },
}

/// The signals that wake the loop's thread, besides the stop and the wakers of calls. A wake-up for a signal that the
/// loop cannot serve yet would cost a turn of the thread for each delivery. All of them while the loop does not sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wakes {
    /// An end is settled.
    pub(crate) on_ends: bool,
    /// Any other signal.
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
    /// A waker of a call was called.
    pub(crate) poll: bool,
    /// Timers may be due.
    pub(crate) look: bool,
    pub(crate) renewal: RenewalAlarm,
    pub(crate) fetches: VecDeque<Fetch>,
}

/// The alarm of the next renewal (R4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RenewalAlarm {
    /// No lease is known that needs one.
    #[default]
    Unset,
    /// The alarm will ring.
    Set,
    /// A renewal is wanted.
    Rung,
}

/// A caller's request for timers that are parked for a reason: this number, and at most the other. The caller that
/// gets no answer learns that the runtime has stopped.
pub(crate) struct Fetch {
    pub(crate) reason: Box<str>,
    pub(crate) wanted: u32,
    pub(crate) most: u32,
    pub(crate) reply: oneshot::Sender<Result<Option<u32>, StoreError>>,
}

/// The results of deliveries that the loop has not taken yet.
#[derive(Default)]
pub(crate) struct Settled {
    /// Ends for the store.
    pub(crate) ends: Vec<DeliveryEnd>,
    /// Events on other threads than the loop's, for an observer.
    pub(crate) events: Vec<Event>,
}

/// The calls beside the loop that have no answer, as the loop last published them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    /// The number of ends that were taken by the loop and are not reported.
    pub(crate) ends: usize,
    /// A renewal, or the reap after it, is in progress.
    pub(crate) is_renewing: bool,
    /// The beginning of the longest call.
    pub(crate) since: Option<Instant>,
}

/// The pending timers of the store, as the last claim found them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) has_claimed: bool,
    /// The due moment of the first pending timer.
    pub(crate) next_due: Option<UtcMillis>,
    /// Timers that are due wait since their namespaces have their shares.
    pub(crate) is_withheld: bool,
}

impl RuntimeState {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stage != Stage::Running
    }

    /// Whether no timer is due, no handler runs, and the store has answered everything.
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
