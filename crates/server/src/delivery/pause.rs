//! The pause before a timer is delivered again.

use core::time::Duration;
use tourbillon_durable::Verdict;

/// The verdict with a pause that is no shorter than the policy's. A receiver may ask for more time, and not for less:
/// it would spend all attempts of a timer in a moment.
pub(super) fn patient(verdict: Verdict, policys: Duration) -> Verdict {
    match verdict {
        Verdict::Retry { error, after } => {
            Verdict::Retry { error, after: after.map(|after| after.max(policys)) }
        }
        other => other,
    }
}
