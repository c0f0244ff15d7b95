//! Reads a timer from the store again if its delivery has ended, but the service does not know how.
//!
//! If the store does not confirm the end of a delivery, the runtime counts the lease as lost, although the store may
//! have the end. The timer may then be dead, or parked without an entry in the index of parked timers. So the
//! reconciler reads such timers from the store. It also reads timers that died when their lease expired, because the
//! event about such a death has only the id. A timer at most once that is not found, and that the store was asked to
//! remove, is lost, unless another node has delivered it.

use super::died::Died;
use super::parked_index::ParkedIndex;
use super::reason::Reason;
use super::unparker::Unparker;
use crate::record::{InFlight, MayBeRemoved, PERHAPS_LOST};
use crate::state::{Events, event};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tourbillon_api::{self as api, EventKind};
use tourbillon_durable::state::State;
use tourbillon_durable::store::TimerStore;
use tourbillon_durable::timer::{Timer, TimerId};

/// The greatest number of timers that wait until the reconciler reads them from the store. Further timers are not
/// added. Instead the reconciler reads the reasons of all parked timers, once it has read the waiting timers.
const MOST: usize = 10_000;
/// The pause after a failed read from the store.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Reconciler {
    unknown: Mutex<Unknown>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Unknown {
    timers: VecDeque<(TimerId, Option<MayBeRemoved>)>,
    are_too_many: bool,
}

/// The next read from the store: a timer, or the reasons of all parked timers.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    One(TimerId, Option<MayBeRemoved>),
    AllParked,
}

impl Reconciler {
    fn lock(&self) -> MutexGuard<'_, Unknown> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the reconciler read a timer from the store again. `removed` is the delivery for which the store may have
    /// removed the timer. Returns without blocking.
    pub(crate) fn add(&self, id: TimerId, removed: Option<MayBeRemoved>) {
        let mut unknown = self.lock();
        if unknown.timers.len() < MOST {
            unknown.timers.push_back((id, removed));
        } else {
            unknown.are_too_many = true;
        }
        drop(unknown);
        self.changed.notify_one();
    }

    /// Wakes [`run`](Self::run), so that it ends. The caller must already have closed the index of parked timers
    /// ([`ParkedIndex::close`]).
    pub(crate) fn close(&self) {
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Read> {
        let mut unknown = self.lock();
        let one = unknown.timers.pop_front().map(|(id, removed)| Read::One(id, removed));
        one.or_else(|| core::mem::take(&mut unknown.are_too_many).then_some(Read::AllParked))
    }

    /// Reads from the store each timer that was passed to [`add`](Self::add). If the timer is parked, adds it to the
    /// index `parked`. If the timer is dead, logs its death and sends an event. If it is not stored, and its end is not
    /// known here, records that it is perhaps lost, and sends an event. Ends once the service stops and closes the
    /// index `parked`.
    pub(crate) async fn run(
        self: Arc<Self>,
        store: Arc<dyn TimerStore>,
        parked: Arc<ParkedIndex>,
        unparker: Arc<Unparker>,
        in_flight: Arc<InFlight>,
        events: Events,
    ) {
        while !parked.is_closed() {
            match self.next() {
                // `notify_one` keeps its signal until the next wait. So a call of `add` between `next` and this wait is
                // not missed.
                None => self.changed.notified().await,
                Some(Read::AllParked) => unparker.find_parked(&*store).await,
                Some(Read::One(id, removed)) => match store.get(id.into()).await {
                    Ok(Some(timer)) => settle(&timer, &parked, &events),
                    Ok(None) => removed.iter().for_each(|removed| end(removed, &in_flight, &events)),
                    Err(_) => {
                        self.lock().timers.push_front((id, removed));
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Records the end of a timer that has left the store without a known delivery.
fn end(removed: &MayBeRemoved, in_flight: &InFlight, events: &Events) {
    let attempt = &removed.attempt;
    if in_flight.removed(removed) {
        events.show(|| api::Event {
            id: Some(attempt.id.to_string()),
            key: attempt.key.as_deref().map(str::to_owned),
            attempt: Some(attempt.attempt),
            detail: Some(PERHAPS_LOST.to_owned()),
            ..event(EventKind::Failed, &attempt.namespace)
        });
    }
}

fn settle(timer: &Timer, parked: &ParkedIndex, events: &Events) {
    match &timer.state {
        State::Parked(reason) => Reason::parse(reason).into_iter().for_each(|reason| parked.add(reason)),
        State::Dead(_) => {
            Died {
                namespace: &timer.namespace,
                id: timer.id,
                key: timer.key.as_deref(),
                attempt: Some(timer.failures),
                error: timer.last_error.as_deref(),
            }
            .log();
            events.show(|| api::Event {
                id: Some(timer.id.to_string()),
                key: timer.key.as_deref().map(str::to_owned),
                detail: timer.last_error.as_deref().map(str::to_owned),
                ..event(EventKind::Dead, &timer.namespace)
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_timers_to_read_is_bounded() {
        let reconciler = Reconciler::default();
        for number in 0..MOST as u128 + 5 {
            reconciler.add(TimerId::from_u128(number), None);
        }
        for number in 0..MOST as u128 {
            assert_eq!(reconciler.next(), Some(Read::One(TimerId::from_u128(number), None)));
        }
        assert_eq!((reconciler.next(), reconciler.next()), (Some(Read::AllParked), None));
    }
}
