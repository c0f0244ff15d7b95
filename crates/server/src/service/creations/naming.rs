//! Determines the ids of new timers.

use crate::state::Trace;
use tourbillon_durable::timer::TimerId;
use uuid::Uuid;

/// The UUID namespace of timer ids that are derived from idempotency keys.
const IDEMPOTENCY: Uuid = Uuid::from_u128(0x6b0d_6d3c_0a83_4f5e_9d0c_52f1_5b1d_0d7e);

/// Returns the id of the timer that a request with this idempotency key creates. The id depends only on the namespace
/// and the key, so a repeated request names the same timer.
pub(super) fn id_of(namespace: &str, idempotency_key: &str) -> TimerId {
    let namespace = Uuid::new_v5(&IDEMPOTENCY, namespace.as_bytes());
    TimerId::from_u128(Uuid::new_v5(&namespace, idempotency_key.as_bytes()).as_u128())
}

/// The key, the idempotency key and the trace context that a request gives to a new timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Naming<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) trace: Option<Trace>,
}
