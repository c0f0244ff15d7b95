//! Observes the runtime's events about deliveries. Shows these events to the clients that read events, and adds parked
//! timers to the [`ParkedIndex`].

use super::died::Died;
use super::parked_index::ParkedIndex;
use super::pending_ends::PendingEnds;
use super::pull_queues::EndTicket;
use super::reason::Reason;
use super::reconciler::Reconciler;
use crate::clock::millis;
use crate::record::{Answered, InFlight, LOST, is_lost};
use crate::state::{Counters, Events, event};
use std::sync::Arc;
use tourbillon_api::{self as api, EventKind};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::state::Phase;
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Delivery, Ending, Event, Verdict};

#[derive(Debug)]
pub(crate) struct Observer {
    pub(super) events: Events,
    pub(super) parked: Arc<ParkedIndex>,
    pub(super) reconciler: Arc<Reconciler>,
    pub(super) counters: Arc<Counters>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) ends: PendingEnds,
}

impl Observer {
    /// Begins a delivery ([`Delivery::begin`]), and reports its start. Returns false if the delivery must not go on:
    /// the receiver then does not get the timer, and no start is reported. Called once the delivery has all its
    /// permits. `work` is the stored form of the timer's work.
    pub(super) async fn begin(&self, delivery: &Delivery, work: &[u8]) -> bool {
        self.in_flight.begins(delivery, work);
        let begins = delivery.begin().await;
        if begins {
            self.in_flight.begun(delivery, work);
            self.started(delivery);
        }
        begins
    }

    /// Reports the start of a delivery to the clients that read events.
    pub(super) fn started(&self, delivery: &Delivery) {
        let late = self.in_flight.started(delivery);
        self.events.show(|| api::Event {
            id: Some(delivery.id.to_string()),
            key: delivery.key.as_deref().map(str::to_owned),
            attempt: Some(delivery.attempt),
            late_ms: Some(millis(late)),
            ..event(EventKind::Started, &delivery.namespace)
        });
    }

    /// Adds the receiver's answer to a callback, or the fact that no answer came, to the record of the running
    /// delivery.
    pub(crate) fn answered(&self, id: TimerId, answered: Answered<'_>) {
        self.in_flight.answered(id, answered);
    }

    /// Records the verdict on a delivery, and returns it. `work` is the stored form of the timer's work.
    pub(super) fn handled(&self, delivery: &Delivery, work: &[u8], verdict: Verdict) -> Verdict {
        self.in_flight.handled(delivery, work, &verdict);
        verdict
    }

    /// Records the end of a delivery that another node has begun.
    pub(super) fn handled_remotely(&self, timer: &Timer, phase: Phase) {
        self.in_flight.handled_remotely(timer, phase);
    }

    /// Notes that a receiver has asked to end its claim (its hold on a fetched timer) with `verdict`. Keeps `ticket`
    /// until the runtime reports how the delivery has ended. [`observe`](Self::observe) then answers the receiver. Must
    /// be called before the timer's handler returns the verdict.
    pub(crate) fn expect_end(&self, delivery: &Delivery, verdict: &Verdict, ticket: EndTicket) {
        self.ends.expect(delivery, verdict, ticket);
    }

    /// Handles an event of the runtime that delivers timers. Returns without blocking.
    pub(crate) fn observe(&self, happened: &Event) {
        if is_of_schedule(happened) {
            // A schedule's internal timer has created the schedule's next timer. The metrics count this as a decision.
            // Readers get the events of schedules elsewhere.
            if let Event::Ended { ending: Ending::Answered(Verdict::Done), .. } = happened {
                self.counters.decisions.add(1);
            }
            return;
        }
        let status = self.in_flight.observe(happened);
        // The receiver gets its answer once the end of its claim is recorded.
        self.ends.observe(happened);
        match happened {
            Event::Ended { attempt, ending, took, phase, .. } => {
                // A timer that was withdrawn during its delivery ends, even if the handler has asked to park it.
                if let (Phase::Parked, Ending::Answered(Verdict::Park(reason))) = (phase, ending)
                    && let Some(reason) = Reason::parse(reason)
                {
                    self.parked.add(reason);
                }
                let status = status.map(|status| status.to_string());
                let Some((kind, detail)) = shown(ending, *phase, status) else { return };
                if kind == EventKind::Dead {
                    Died {
                        namespace: &attempt.namespace,
                        id: attempt.id,
                        key: attempt.key.as_deref(),
                        attempt: Some(attempt.attempt),
                        error: detail.as_deref(),
                    }
                    .log();
                }
                self.events.show(|| api::Event {
                    id: Some(attempt.id.to_string()),
                    key: attempt.key.as_deref().map(str::to_owned),
                    attempt: Some(attempt.attempt),
                    took_ms: took.map(millis),
                    detail,
                    ..event(kind, &attempt.namespace)
                });
            }
            Event::LeaseLost { attempt, at, may_be_removed }
            | Event::EndLost { attempt, at, may_be_removed } => {
                let removed = may_be_removed.then(|| self.in_flight.may_be_removed(attempt, *at));
                self.reconciler.add(attempt.id, removed);
            }
            Event::Expired { id, phase: Phase::Dead, .. } => self.reconciler.add(*id, None),
            _ => {}
        }
    }
}

/// Returns whether the event is about the internal timer of a schedule, which delivers nothing to a receiver.
fn is_of_schedule(event: &Event) -> bool {
    match event {
        Event::Began { attempt, .. }
        | Event::Ended { attempt, .. }
        | Event::LeaseLost { attempt, .. }
        | Event::EndLost { attempt, .. } => *attempt.kind == *Schedules::KIND,
        _ => false,
    }
}

/// Returns the kind of the event that is shown to the clients that read events when a delivery ends, and a detail such
/// as the error. Returns `None` if no event is shown.
pub(super) fn shown(
    ending: &Ending,
    phase: Phase,
    status: Option<String>,
) -> Option<(EventKind, Option<String>)> {
    Some(match ending {
        _ if is_lost(ending, phase) => (EventKind::Failed, Some(LOST.to_owned())),
        Ending::Answered(Verdict::Done) => (EventKind::Delivered, status),
        Ending::Answered(Verdict::Park(reason)) => (EventKind::Parked, Some(reason.to_string())),
        Ending::Answered(Verdict::Retry { error, .. } | Verdict::Dead(error)) => {
            // The last permitted attempt also answers `Retry`. Only the phase shows that the timer has died.
            let kind = if phase == Phase::Dead { EventKind::Dead } else { EventKind::Failed };
            (kind, Some(error.to_string()))
        }
        // A cancellation or a replacement is shown at the call that made it.
        Ending::GivenBack | Ending::Answered(Verdict::Snooze(_)) if phase == Phase::Withdrawn => return None,
        // The timer would be due at a moment that its policy does not permit.
        Ending::Answered(Verdict::Snooze(_)) if phase == Phase::Dead => (EventKind::Dead, None),
        Ending::Answered(Verdict::Snooze(_)) => {
            (EventKind::Parked, Some("the receiver has put it off".to_owned()))
        }
        Ending::GivenBack => (EventKind::Parked, Some("given back".to_owned())),
        _ => return None,
    })
}
