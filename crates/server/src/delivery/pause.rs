//! The pause before a timer is delivered again.

use core::time::Duration;
use tourbillon_durable::Verdict;

/// Lengthens a pause that is shorter than the policy's. A receiver that asked for no pause would spend all attempts of
/// a timer in a moment.
pub(super) fn patient(verdict: Verdict, policys: Duration) -> Verdict {
    match verdict {
        Verdict::Retry { error, after } => {
            Verdict::Retry { error, after: after.map(|after| after.max(policys)) }
        }
        other => other,
    }
}
