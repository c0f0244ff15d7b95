//! Records changes of timers in events, counters and histories.

use super::names::Named;
use crate::record::InFlight;
use crate::state::{Counters, Events, event};
use std::sync::Arc;
use tourbillon_api::{Event, EventKind, PlaceOutcome, Placed};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Cancelled, UtcMillis};

/// Records changes of timers in events, counters and histories. Clones share the state.
#[derive(Clone)]
pub(super) struct ChangeRecorder {
    events: Events,
    counters: Arc<Counters>,
    in_flight: Arc<InFlight>,
}

impl ChangeRecorder {
    pub(super) fn new(events: Events, counters: Arc<Counters>, in_flight: Arc<InFlight>) -> Self {
        Self { events, counters, in_flight }
    }

    /// Returns the present moment by the clock of the store.
    pub(super) fn now(&self) -> UtcMillis {
        self.in_flight.now()
    }

    /// Counts `count` timers that were created in a namespace.
    pub(super) fn count_created(&self, namespace: &str, count: u64) {
        self.counters.created.add(count);
        self.in_flight.metrics().tenants.of(namespace).created.add(count);
    }

    fn count_cancelled(&self, namespace: &str) {
        self.counters.cancelled.add(1);
        self.in_flight.metrics().tenants.of(namespace).cancelled.add(1);
    }

    /// Records a creation that the store has confirmed, and the end of a timer that the new timer replaces. Records
    /// nothing if no timer was created.
    pub(super) fn placed(&self, namespace: &str, placed: &Placed) {
        if !matches!(placed.outcome, PlaceOutcome::Created | PlaceOutcome::Replaced) {
            return;
        }
        self.count_created(namespace, 1);
        if let Some(old) = &placed.replaced {
            self.counters.replaced.add(1);
            if let Ok(id) = old.id.parse() {
                self.in_flight.replaced(namespace, placed.key.as_deref(), id, &placed.id);
            }
            self.events.show(|| Event {
                id: Some(old.id.clone()),
                key: placed.key.clone(),
                detail: Some(format!("by {}", placed.id)),
                ..event(EventKind::Replaced, namespace)
            });
        }
        self.events.show(|| Event {
            id: Some(placed.id.clone()),
            key: placed.key.clone(),
            ..event(EventKind::Created, namespace)
        });
    }

    /// Records a cancellation that the store has confirmed. `named` is the timer's name in the request. Records nothing
    /// if no timer was cancelled.
    pub(super) fn cancelled(&self, namespace: &str, named: Named<'_>, cancelled: &Cancelled) {
        let (Cancelled::Cancelled(_) | Cancelled::InFlight) = cancelled else { return };
        self.count_cancelled(namespace);
        // A delivery that has begun may still succeed, so its end decides how the history of the timer ends.
        if let Cancelled::Cancelled(timer) = cancelled {
            self.in_flight.cancelled(timer);
        }
        self.events.show(|| {
            let mut shown = event(EventKind::Cancelled, namespace);
            match named {
                Named::Key(key) => shown.key = Some(key.to_owned()),
                Named::Id(id) => shown.id = Some(id.to_string()),
            }
            match cancelled {
                Cancelled::Cancelled(timer) => {
                    shown.id = Some(timer.id.to_string());
                    shown.key = timer.key.as_deref().map(str::to_owned);
                }
                _ => shown.detail = Some("a delivery has begun or is about to begin".to_owned()),
            }
            shown
        });
    }

    /// Counts a timer that an operation on many timers has cancelled, and shows the cancellation to readers of events.
    /// `key` is the key of the removed timer. If a delivery of the timer has begun, the store does not return the
    /// timer, and `key` is `None`.
    pub(super) fn cancelled_in_bulk(&self, namespace: &str, id: TimerId, key: Option<&str>) {
        self.count_cancelled(namespace);
        self.events.show(|| Event {
            id: Some(id.to_string()),
            key: key.map(str::to_owned),
            ..event(EventKind::Cancelled, namespace)
        });
    }

    /// Adds a cancellation to the history of a timer that an operation on many timers has cancelled.
    pub(super) fn remember_cancelled(&self, timer: &Timer) {
        self.in_flight.cancelled(timer);
    }

    /// Records that a dead timer was replayed, which makes it pending again. Removes the death, an end before `begun`,
    /// from the timer's history. `begun` must be a moment before the replay, because a later moment could also remove
    /// the end of the next delivery.
    pub(super) fn replayed(&self, timer: &Timer, begun: UtcMillis) {
        self.in_flight.replayed(timer, begun);
    }

    /// Records that the due moment of a timer was changed.
    pub(super) fn moved(&self, namespace: &str, id: TimerId, key: Option<&str>) {
        self.events.show(|| Event {
            id: Some(id.to_string()),
            key: key.map(str::to_owned),
            ..event(EventKind::Moved, namespace)
        });
    }
}
