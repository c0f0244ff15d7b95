//! The observer of deliveries: their events for readers, and the parks for the board.

use super::board::Board;
use super::desk::Ticket;
use super::died::Died;
use super::doubt::Doubts;
use super::ends::Ends;
use super::reason::Reason;
use crate::record::{Answered, Flights};
use crate::service::{Counters, Events, event};
use core::time::Duration;
use std::sync::Arc;
use tourbillon_api::{self as api, EventKind};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::state::Phase;
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Delivery, Ending, Event, Verdict};

#[derive(Debug)]
pub(crate) struct Watch {
    pub(super) events: Events,
    pub(super) board: Arc<Board>,
    pub(super) doubts: Arc<Doubts>,
    pub(super) counters: Arc<Counters>,
    pub(super) flights: Arc<Flights>,
    pub(super) ends: Ends,
}

impl Watch {
    /// Shows that a delivery has begun, after the gates.
    pub(crate) fn started(&self, delivery: &Delivery) {
        let late = self.flights.started(delivery);
        self.events.show(|| api::Event {
            id: Some(delivery.id.to_string()),
            key: delivery.key.as_deref().map(str::to_owned),
            attempt: Some(delivery.attempt),
            late_ms: Some(millis(late)),
            ..event(EventKind::Started, &delivery.namespace)
        });
    }

    /// Notes the answer to a callback, or that there was none.
    pub(crate) fn answered(&self, id: TimerId, answered: Answered<'_>) {
        self.flights.answered(id, answered);
    }

    /// Answers a receiver once the store has the end that its handler is about to give.
    pub(crate) fn expect_end(&self, delivery: &Delivery, verdict: &Verdict, ticket: Ticket) {
        self.ends.expect(delivery, verdict, ticket);
    }

    /// Takes an event of the runtime. Does not block.
    pub(crate) fn observe(&self, event_of: &Event) {
        if is_of_schedule(event_of) {
            // A decision of a schedule, which has its own events.
            if let Event::Ended { ending: Ending::Answered(Verdict::Done), .. } = event_of {
                self.counters.decisions.add(1);
            }
            return;
        }
        self.ends.observe(event_of);
        let status = self.flights.observe(event_of);
        match event_of {
            Event::Ended { attempt: of, ending, took, phase, .. } => {
                if let (Phase::Parked, Ending::Answered(Verdict::Park(reason))) = (phase, ending)
                    && let Some(reason) = Reason::parse(reason)
                {
                    self.board.parked(reason);
                }
                let status = status.map(|status| status.to_string());
                let Some((kind, detail)) = shown(ending, *phase, status) else { return };
                if kind == EventKind::Dead {
                    Died {
                        namespace: &of.namespace,
                        id: of.id,
                        key: of.key.as_deref(),
                        attempt: Some(of.attempt),
                        error: detail.as_deref(),
                    }
                    .log();
                }
                self.events.show(|| api::Event {
                    id: Some(of.id.to_string()),
                    key: of.key.as_deref().map(str::to_owned),
                    attempt: Some(of.attempt),
                    took_ms: took.map(millis),
                    detail,
                    ..event(kind, &of.namespace)
                });
            }
            Event::LeaseLost { attempt: of, .. } | Event::EndLost { attempt: of, .. } => {
                self.doubts.add(of.id)
            }
            Event::Expired { id, phase: Phase::Dead, .. } => self.doubts.add(*id),
            _ => {}
        }
    }
}

/// Whether the event is about the timer by which a schedule decides, and about no delivery.
fn is_of_schedule(event: &Event) -> bool {
    match event {
        Event::Began { attempt: of, .. }
        | Event::Ended { attempt: of, .. }
        | Event::LeaseLost { attempt: of, .. }
        | Event::EndLost { attempt: of, .. } => *of.kind == *Schedules::KIND,
        _ => false,
    }
}

/// What readers see of an end.
fn shown(ending: &Ending, phase: Phase, status: Option<String>) -> Option<(EventKind, Option<String>)> {
    Some(match ending {
        Ending::Answered(Verdict::Done) => (EventKind::Delivered, status),
        Ending::Answered(Verdict::Park(reason)) => (EventKind::Parked, Some(reason.to_string())),
        Ending::Answered(Verdict::Retry { error, .. } | Verdict::Dead(error)) => {
            let kind = if phase == Phase::Dead { EventKind::Dead } else { EventKind::Failed };
            (kind, Some(error.to_string()))
        }
        Ending::GivenBack => (EventKind::Parked, Some("given back".to_owned())),
        _ => return None,
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
