//! The tally: how many connections came to which end.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the connections, by their ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) opened: u64,
    pub(crate) closed_by_timeout: u64,
    pub(crate) closed_by_client: u64,
    pub(crate) closed_early: u64,
    pub(crate) not_closed_in_time: u64,
    pub(crate) still_open: u64,
    /// Timers that were armed anew because bytes came.
    pub(crate) rearmed: u64,
    /// Timers that fired for connections that bytes, or their end, had saved from being closed.
    pub(crate) overtaken: u64,
    /// Timers that fired again without being armed.
    pub(crate) fired_twice: u64,
}

impl Tally {
    pub(crate) fn summary(&self) -> String {
        let Self { opened, closed_by_timeout, closed_by_client, .. } = self;
        format!("{opened} opened, {closed_by_timeout} timed out, {closed_by_client} left")
    }
}

/// The tally while it grows.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) opened: AtomicU64,
    pub(crate) closed_by_timeout: AtomicU64,
    pub(crate) closed_by_client: AtomicU64,
    pub(crate) closed_early: AtomicU64,
    pub(crate) not_closed_in_time: AtomicU64,
    pub(crate) still_open: AtomicU64,
    pub(crate) rearmed: AtomicU64,
    pub(crate) overtaken: AtomicU64,
    pub(crate) fired_twice: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(crate) fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tally {
            opened: read(&self.opened),
            closed_by_timeout: read(&self.closed_by_timeout),
            closed_by_client: read(&self.closed_by_client),
            closed_early: read(&self.closed_early),
            not_closed_in_time: read(&self.not_closed_in_time),
            still_open: read(&self.still_open),
            rearmed: read(&self.rearmed),
            overtaken: read(&self.overtaken),
            fired_twice: read(&self.fired_twice),
        }
    }
}
