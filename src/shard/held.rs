//! A shard's look at the owned timers whose tickets are due.

use crate::slab::Slots;
use crate::state::owned::Look;
use crate::tick::Timestamp;
use crate::ticket::{Posting, Ticket};

/// Takes the timers of `tickets`, all owned, so that the shard holds them, and looks at their deadlines. Keeps the
/// tickets of timers that are due at `now`. Passes the tickets of timers that were put off to `post_again`, for the
/// moment that `next_look` chooses.
///
/// One heavy fence serves all of them: an arming that comes after it sees that its timer is held.
pub(crate) fn keep_due(
    slots: &Slots,
    tickets: &mut Vec<Ticket>,
    now: Timestamp,
    next_look: impl Fn(Timestamp) -> Timestamp,
    mut post_again: impl FnMut(Posting),
) {
    for ticket in &*tickets {
        slots.prefetch(ticket.index);
    }
    tickets.retain(|ticket| slots.owned(ticket.index).hold(ticket.stamp));
    if tickets.is_empty() {
        return;
    }
    // Ordering: heavy fence [F3 of `state::owned`]: each timer is held before its deadline is read.
    slots.barrier().heavy();
    tickets.retain(|&Ticket { index, stamp, .. }| match slots.owned(index).look(stamp, now, &next_look) {
        Look::Due => true,
        Look::AtRest => false,
        Look::Later { stamp, look } => {
            post_again(Posting { deadline: look, index, stamp });
            false
        }
    });
}
