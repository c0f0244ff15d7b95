//! The timers that a transaction has made due: news for the claims of its store.

use super::entries::due_entry;
use crate::state::State;
use crate::timer::Timer;
use tourbillon_words::UtcMillis;

/// The timers that a transaction has made due.
#[derive(Debug, Default)]
pub(crate) struct MadeDue {
    /// The earliest moment for which a timer was made due.
    pub(crate) first: Option<UtcMillis>,
    /// The namespaces and entries of timers that are due before the frontier (L7).
    pub(crate) entries: Vec<(Box<str>, Vec<u8>)>,
    /// The moment up to which claims have come.
    frontier: Option<UtcMillis>,
}

impl MadeDue {
    /// Notes the entries of timers that are made due until this moment, up to which claims have come.
    pub(super) fn follow(&mut self, frontier: Option<UtcMillis>) {
        self.frontier = frontier;
    }

    /// Notes a timer that was stored, if it is pending.
    pub(super) fn note(&mut self, timer: &Timer) {
        if timer.state == State::Pending {
            self.first = Some(self.first.map_or(timer.due, |first| first.min(timer.due)));
            if self.frontier.is_some_and(|frontier| timer.due <= frontier) {
                self.entries.push((timer.namespace.clone(), due_entry(timer.due, timer.id)));
            }
        }
    }
}
