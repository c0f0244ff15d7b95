//! Keeps the requested ends of claims until the store has confirmed or refused them.
//!
//! The runtime sends an event for each delivery after it has settled the delivery: the store has the end, the lease was
//! lost, or the store did not answer. The handler adds a requested end here before it returns its verdict, and then
//! checks whether the delivery is settled already. If not, the event comes later and answers the receiver. If the
//! delivery is settled already, it has ended in another way, and the receiver's request came too late.

use super::pull_queues::EndTicket;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Delivery, Ending, Event, Verdict};

/// Identifies a delivery: the timer's id, and the number of the delivery ([`Delivery::delivery`]).
pub(super) type DeliveryKey = (TimerId, u32);

#[derive(Debug, Default)]
pub(crate) struct PendingEnds(Mutex<HashMap<DeliveryKey, (Verdict, EndTicket)>>);

impl PendingEnds {
    fn lock(&self) -> MutexGuard<'_, HashMap<DeliveryKey, (Verdict, EndTicket)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, key: DeliveryKey) -> Option<(Verdict, EndTicket)> {
        self.lock().remove(&key)
    }

    /// Keeps the request of a receiver that wants to end its claim (its hold on a fetched timer). `verdict` is the
    /// requested end, which the timer's handler is about to return. Once the runtime reports whether the store has
    /// recorded this verdict, the receiver gets its answer through `ticket`. If the delivery has already ended in
    /// another way, the receiver gets the answer at once.
    pub(super) fn expect(&self, delivery: &Delivery, verdict: &Verdict, ticket: EndTicket) {
        let key = (delivery.id, delivery.delivery);
        // A replaced ticket is dropped after the lock is released, because its drop takes the lock of the endings.
        let former = self.lock().insert(key, (verdict.clone(), ticket));
        drop(former);
        if delivery.is_over()
            && let Some((_, ticket)) = self.take(key)
        {
            ticket.came_late();
        }
    }

    /// Handles an event of the runtime. If the event reports how a delivery has ended, answers the receiver that has
    /// asked to end this delivery. Does nothing if no receiver has asked.
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
