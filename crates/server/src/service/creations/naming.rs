//! Determines the ids of new timers.

use crate::state::Trace;
use tourbillon_durable::timer::TimerId;
use uuid::Uuid;

/// The UUID namespace of timer ids that are derived from idempotency keys.
const IDEMPOTENCY: Uuid = Uuid::from_u128(0x6b0d_6d3c_0a83_4f5e_9d0c_52f1_5b1d_0d7e);

/// Returns the id of the timer that a request with this idempotency key creates. The id depends only on the namespace
/// and the key, so a repeated request names the same timer. `number` is the number of the namespace: the store
/// remembers ids for an hour after the ends of their timers, and a later namespace of the same name must not find them.
fn id_of(namespace: &str, number: u64, idempotency_key: &str) -> TimerId {
    let mut owner = Uuid::new_v5(&IDEMPOTENCY, namespace.as_bytes());
    // A namespace that no client has made has no number.
    if number != 0 {
        owner = Uuid::new_v5(&owner, &number.to_be_bytes());
    }
    TimerId::from_u128(Uuid::new_v5(&owner, idempotency_key.as_bytes()).as_u128())
}

/// The key, the idempotency key and the trace context that a request gives to a new timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Naming<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) trace: Option<Trace>,
    /// The random number of the timer's namespace, set by the service. A later namespace of this name has a different
    /// number.
    pub(crate) number: u64,
}

impl Naming<'_> {
    /// Returns the id of the timer, or `None` if the request has no idempotency key.
    pub(super) fn id(&self, namespace: &str) -> Option<TimerId> {
        self.idempotency_key.map(|key| id_of(namespace, self.number, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_names_one_timer_in_each_namespace_that_ever_had_the_name() {
        let id = |namespace, number| {
            let idempotency_key = Some("k");
            Naming { idempotency_key, number, ..Naming::default() }.id(namespace).unwrap()
        };
        assert_eq!(id("a", 7), id("a", 7));
        let ids = [id("a", 0), id("a", 7), id("a", 8), id("b", 0), id("b", 7)];
        assert!((1..ids.len()).all(|at| !ids[..at].contains(&ids[at])));
    }
}
