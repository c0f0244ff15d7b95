//! Counts of connections, by the way in which they ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of connections that ended in each way, and the numbers of the timers' calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) opened: u64,
    pub(crate) closed_by_timeout: u64,
    pub(crate) closed_by_client: u64,
    pub(crate) closed_early: u64,
    pub(crate) not_closed_in_time: u64,
    pub(crate) still_open: u64,
    /// The number of times that a timer was armed again because bytes had come.
    pub(crate) rearmed: u64,
    /// The number of firings that came too late to close their connection. Bytes had come, or the connection had ended.
    pub(crate) overtaken: u64,
    /// The number of timers that fired again without a new arming.
    pub(crate) fired_twice: u64,
}

impl Tally {
    pub(crate) fn summary(&self) -> String {
        let Self { opened, closed_by_timeout, closed_by_client, .. } = self;
        format!("{opened} opened, {closed_by_timeout} timed out, {closed_by_client} left")
    }
}

/// The counts of a [`Tally`] to which several threads add.
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
