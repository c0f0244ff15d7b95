//! Notes the timers that a transaction makes due, so that later claims find them. The *frontier* is the due moment up
//! to which claims have read the index.

use super::entries::due_entry;
use crate::state::State;
use crate::timer::Timer;
use tourbillon_words::UtcMillis;

/// Notes the pending timers that a transaction stores.
#[derive(Debug, Default)]
pub(crate) struct MadeDue {
    /// The earliest due moment of the pending timers that the transaction has stored.
    pub(crate) first: Option<UtcMillis>,
    /// The stored timers that are due up to the frontier, the due moment up to which claims have read the index. Each
    /// timer has its namespace and its index entry (L7).
    pub(crate) entries: Vec<(Box<str>, Vec<u8>)>,
    /// The due moment up to which claims have read the index. `None` if no claim has read the index.
    frontier: Option<UtcMillis>,
}

impl MadeDue {
    /// Sets the frontier, the due moment up to which claims have read the index. Each later timer that is due up to the
    /// frontier is noted with its index entry.
    pub(super) fn follow(&mut self, frontier: Option<UtcMillis>) {
        self.frontier = frontier;
    }

    /// Notes a timer that the transaction has stored. Ignores a timer that is not pending.
    pub(super) fn note(&mut self, timer: &Timer) {
        if timer.state == State::Pending {
            self.first = Some(self.first.map_or(timer.due, |first| first.min(timer.due)));
            if self.frontier.is_some_and(|frontier| timer.due <= frontier) {
                self.entries.push((timer.namespace.clone(), due_entry(timer.due, timer.id)));
            }
        }
    }
}
