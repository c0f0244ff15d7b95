//! Writes a line to the log when a timer dies. A dead timer is not delivered again.

use crate::text::cut;
use tourbillon_durable::timer::TimerId;
use tracing::warn;

/// The greatest length of a timer's error in a log line, in bytes.
const LONGEST_ERROR: usize = 200;

/// The facts about a dead timer that its log line shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Died<'a> {
    pub(super) namespace: &'a str,
    pub(super) id: TimerId,
    pub(super) key: Option<&'a str>,
    /// The number of the timer's last attempt, counted from 1.
    pub(super) attempt: Option<u32>,
    /// The error of the timer's last attempt. The error does not quote the receiver's answer.
    pub(super) error: Option<&'a str>,
}

impl Died<'_> {
    pub(super) fn log(self) {
        let Self { namespace, id, key, attempt, error } = self;
        let error = error.map(|error| cut(error, LONGEST_ERROR));
        warn!(target: "timer-died", namespace, %id, key, attempt, error, "a timer died: its deliveries were given up");
    }
}
