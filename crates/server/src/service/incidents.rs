//! Logs incidents that an administrator must look into.

use crate::clock::millis;
use tourbillon_durable::Incident;
use tracing::{error, warn};

/// Logs an incident of the runtime that delivers timers.
///
/// Does not log the death of a timer, because another place knows more facts about the timer. Does not log a failure of
/// the store, because the check of the store's condition logs it.
pub(super) fn log(incident: &Incident) {
    match incident {
        Incident::ClockStepped { from, to } => {
            let (size, word) = if from < to { (*to - *from, "ahead") } else { (*from - *to, "back") };
            let seconds = size.as_secs_f64();
            warn!(target: "clock", "the clock stepped {word} by {seconds} s, from {from} to {to}");
        }
        Incident::Quarantined { count } => {
            error!(target: "damage", count, "records of the store are damaged, and were set aside");
        }
        Incident::Skipped { id, key, lateness, .. } => {
            let (key, late_ms) = (key.as_deref(), millis(*lateness));
            warn!(target: "timer-skipped", %id, key, late_ms, "a delivery was left out: it was too late by its policy");
        }
        _ => {}
    }
}
