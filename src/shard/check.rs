//! Checks owned timers whose tickets are due at a shard.

use crate::base::tick::Timestamp;
use crate::base::ticket::{Insertion, Ticket};
use crate::lockfree::slab::Slots;
use crate::lockfree::state::owned::Check;

/// Checks the deadlines of the owned timers to which `tickets` belong. Keeps the tickets of timers that are due at
/// `now`, and drops stale tickets. Passes the ticket of a postponed timer to `insert_again`, for the moment that
/// `next_check` chooses.
///
/// The call passes a single heavy fence for all timers. An arming after the fence sees that its timer is being checked.
pub(crate) fn keep_due(
    slots: &Slots,
    tickets: &mut Vec<Ticket>,
    now: Timestamp,
    next_check: impl Fn(Timestamp) -> Timestamp,
    mut insert_again: impl FnMut(Insertion),
) {
    for ticket in &*tickets {
        slots.prefetch(ticket.index());
    }
    tickets.retain(|ticket| slots.owned(ticket.index()).begin_check(ticket.stamp()));
    if tickets.is_empty() {
        return;
    }
    // Ordering: heavy fence [F3 of `state::owned`]: each timer is checking before its deadline is read.
    slots.barrier().heavy();
    tickets.retain(|ticket| {
        let index = ticket.index();
        match slots.owned(index).check(ticket.stamp(), now, &next_check) {
            Check::Due => true,
            Check::AtRest => false,
            Check::Later { stamp, check } => {
                insert_again(Insertion { deadline: check, index, stamp });
                false
            }
        }
    });
}
