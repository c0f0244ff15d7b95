//! Writes a policy as JSON for the SQL functions. The JSON has the same form as in the HTTP API.

use super::error::{CallError, CallErrorKind};
use core::time::Duration;
use tourbillon_api as api;
use tourbillon_durable::policy::{Backoff, Misfire, Policy};

/// Returns the milliseconds of a time, rounded up. A time that does not fit becomes `u64::MAX`, which the SQL functions
/// refuse.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn unsupported(part: &str) -> CallError {
    CallError::new(CallErrorKind::Unsupported, format!("the functions of PostgreSQL take no {part}"))
}

/// Returns the policy as JSON. `None` if it is the default policy.
///
/// # Errors
///
/// Fails with [`CallErrorKind::Unsupported`] if the SQL functions do not support a part of the policy: a jitter, a
/// limit of deliveries, or an unknown kind of backoff.
pub(super) fn in_json(policy: &Policy) -> Result<Option<String>, CallError> {
    let default = Policy::default();
    if policy.jitter != default.jitter {
        return Err(unsupported("jitter"));
    }
    if policy.deliveries != default.deliveries {
        return Err(unsupported("limit of deliveries"));
    }
    let backoff = match &policy.backoff {
        Backoff::Standard => None,
        Backoff::Fixed(pause) => Some(api::Backoff::Fixed { pause_ms: ms(*pause) }),
        Backoff::Exponential { first, max } => {
            Some(api::Backoff::Exponential { first_ms: ms(*first), max_ms: ms(*max) })
        }
        Backoff::Ladder(pauses) => {
            Some(api::Backoff::Ladder { pauses_ms: pauses.iter().copied().map(ms).collect() })
        }
        _ => return Err(unsupported("such backoff")),
    };
    let misfire_within_ms = match policy.misfire {
        Misfire::Fire => None,
        Misfire::Within(grace) => Some(ms(grace)),
    };
    let policy = api::Policy {
        attempts: (policy.attempts != default.attempts).then_some(policy.attempts),
        max_age_ms: policy.max_age.map(ms),
        timeout_ms: (policy.timeout != default.timeout).then(|| ms(policy.timeout)),
        backoff,
        misfire_within_ms,
        jitter_ms: None,
        guarantee: (policy.guarantee != default.guarantee).then_some(policy.guarantee),
    };
    Ok(api_in_json(&policy))
}

/// Returns a policy of the HTTP API as JSON. `None` if it is the default policy.
pub(super) fn api_in_json(policy: &api::Policy) -> Option<String> {
    let is_default = *policy == api::Policy::default();
    // Writing JSON fails only for maps whose keys are not texts, and a policy has no map.
    (!is_default).then(|| serde_json::to_string(policy).unwrap_or_default())
}
