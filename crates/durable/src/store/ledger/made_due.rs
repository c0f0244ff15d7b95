//! Notes the pending timers that a transaction stores, so that later claims find them. Claims read the index by due
//! moment from its start to the *frontier*, and do not read that part again.

use super::entries::due_entry;
use crate::state::State;
use crate::timer::Timer;
use tourbillon_words::UtcMillis;

/// Describes the pending timers that a transaction has stored. Claims read the index by due moment in its order. The
/// *frontier* is the due moment up to which they have read the index. If the transaction stores a timer that is due at
/// the frontier or before, later claims find the timer through this description.
#[derive(Debug, Default)]
pub(crate) struct MadeDue {
    /// The earliest due moment of the pending timers that the transaction has stored. `None` without such timers.
    pub(crate) first: Option<UtcMillis>,
    /// The namespace and the index entry of each stored timer that is due at or before the frontier (the due moment up
    /// to which claims have read the index). Without this list, claims would find these timers only when they next read
    /// the index from its start. So the transaction must report them (invariant L7 of [`ledger`](super)).
    pub(crate) entries: Vec<(Box<str>, Vec<u8>)>,
    /// The due moment up to which claims have read the index by due moment. `None` if no claim has read the index.
    frontier: Option<UtcMillis>,
}

impl MadeDue {
    /// Sets the frontier (the due moment up to which claims have read the index by due moment). If the transaction
    /// afterwards stores a pending timer that is due at the frontier or before, [`note`](Self::note) adds the index
    /// entry of this timer to [`entries`](Self::entries).
    pub(super) fn follow(&mut self, frontier: Option<UtcMillis>) {
        self.frontier = frontier;
    }

    /// Notes a timer that the transaction has stored, if the timer is pending.
    pub(super) fn note(&mut self, timer: &Timer) {
        if timer.state == State::Pending {
            self.first = Some(self.first.map_or(timer.due, |first| first.min(timer.due)));
            if self.frontier.is_some_and(|frontier| timer.due <= frontier) {
                self.entries.push((timer.namespace.clone(), due_entry(timer.due, timer.id)));
            }
        }
    }
}
