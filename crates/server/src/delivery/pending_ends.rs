//! The ends of claims that receivers have asked for, on their way from the handler to the store.
//!
//! The runtime reports by an event that the store has an end, that the lease was lost, or that the store did not
//! answer: one event for each settled delivery, after its settlement. An end is added here before its handler returns.
//! So a delivery that is not settled by then has its event later, and a delivery that is settled by then has ended in
//! another way.

use super::pull_queues::EndTicket;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Delivery, Ending, Event, Verdict};

/// A timer, and the number of its delivery.
type DeliveryKey = (TimerId, u32);

#[derive(Debug, Default)]
pub(crate) struct PendingEnds(Mutex<HashMap<DeliveryKey, (Verdict, EndTicket)>>);

impl PendingEnds {
    fn lock(&self) -> MutexGuard<'_, HashMap<DeliveryKey, (Verdict, EndTicket)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, key: DeliveryKey) -> Option<(Verdict, EndTicket)> {
        self.lock().remove(&key)
    }

    /// Answers the ticket once the store has this end, with which the handler is about to answer.
    pub(super) fn expect(&self, delivery: &Delivery, verdict: &Verdict, ticket: EndTicket) {
        let key = (delivery.id, delivery.delivery);
        let former = self.lock().insert(key, (verdict.clone(), ticket));
        drop(former);
        if delivery.is_over()
            && let Some((_, ticket)) = self.take(key)
        {
            ticket.came_late();
        }
    }

    /// Takes an event of the runtime.
    pub(super) fn observe(&self, event: &Event) {
        let (Event::Ended { attempt, .. }
        | Event::LeaseLost { attempt, .. }
        | Event::EndLost { attempt, .. }) = event
        else {
            return;
        };
        let Some((verdict, ticket)) = self.take((attempt.id, attempt.delivery)) else { return };
        match event {
            Event::Ended { ending: Ending::Answered(answered), .. } if *answered == verdict => {
                ticket.stored()
            }
            Event::EndLost { .. } => ticket.lost(),
            _ => ticket.came_late(),
        }
    }
}
