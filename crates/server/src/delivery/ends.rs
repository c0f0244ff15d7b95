//! The ends that receivers have ordered, on their way from the handler to the store.
//!
//! The runtime says by an event that the store has an end, that the lease was lost, or that the store did not answer:
//! one event for each delivery that is settled, after its settlement. An end is noted here before its handler answers.
//! So a delivery that is not settled once the end is noted has its event later, and one that is settled by then has
//! ended in another way.

use super::desk::Ticket;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Delivery, Ending, Event, Verdict};

/// A timer, and the number of its delivery.
type Which = (TimerId, u32);

#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<HashMap<Which, (Verdict, Ticket)>>);

impl Ends {
    fn lock(&self) -> MutexGuard<'_, HashMap<Which, (Verdict, Ticket)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, which: Which) -> Option<(Verdict, Ticket)> {
        self.lock().remove(&which)
    }

    /// Answers the ticket once the store has this end, with which the handler is about to answer.
    pub(super) fn expect(&self, delivery: &Delivery, verdict: &Verdict, ticket: Ticket) {
        let which = (delivery.id, delivery.delivery);
        let former = self.lock().insert(which, (verdict.clone(), ticket));
        drop(former);
        if delivery.is_over()
            && let Some((_, ticket)) = self.take(which)
        {
            ticket.came_late();
        }
    }

    /// Takes an event of the runtime.
    pub(super) fn observe(&self, event: &Event) {
        let (Event::Ended { attempt: of, .. }
        | Event::LeaseLost { attempt: of, .. }
        | Event::EndLost { attempt: of, .. }) = event
        else {
            return;
        };
        let Some((verdict, ticket)) = self.take((of.id, of.delivery)) else { return };
        match event {
            Event::Ended { ending: Ending::Answered(answered), .. } if *answered == verdict => {
                ticket.stored()
            }
            Event::EndLost { .. } => ticket.lost(),
            _ => ticket.came_late(),
        }
    }
}
