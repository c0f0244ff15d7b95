//! Counts of the connections, by the way in which they ended.

use std::fmt;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) accepted: u64,
    pub(crate) accept_errors: u64,
    pub(crate) echoed_bytes: u64,
    pub(crate) closed_idle: u64,
    pub(crate) closed_by_peer: u64,
    pub(crate) closed_on_error: u64,
    pub(crate) still_open: u64,
    pub(crate) wake_ups: u64,
    pub(crate) worst_lateness: Duration,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("accepted", self.accepted),
            ("errors of accept", self.accept_errors),
            ("echoed bytes", self.echoed_bytes),
            ("closed idle", self.closed_idle),
            ("closed by peer", self.closed_by_peer),
            ("closed on error", self.closed_on_error),
            ("still open", self.still_open),
            ("poll wake-ups", self.wake_ups),
        ];
        for (label, count) in counts {
            writeln!(f, "{label:<30}{count:>12}")?;
        }
        let millis = self.worst_lateness.as_secs_f64() * 1e3;
        write!(f, "{:<30}{millis:>12.3} ms", "worst lateness of idle closes")
    }
}
