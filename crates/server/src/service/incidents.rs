//! Logs incidents that an administrator must look into.

use crate::clock::millis;
use tourbillon_durable::Incident;
use tracing::{error, warn};

/// Logs an incident of the runtime that delivers timers.
///
/// Does not log two kinds of incidents, because other parts of the service log them. The delivery logs the death of a
/// timer, with more facts. The check of the service's condition logs a failure of the store.
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
