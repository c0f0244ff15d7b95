//! Limits how many timers a namespace may create in a second. Without this limit, one namespace could use the whole
//! capacity of the store.

use crate::rate::{Rate, Window, step};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The greatest number of namespaces whose rates are remembered. Beyond this number, namespaces without a creation in
/// the last second are forgotten.
const MOST: usize = 10_000;
const SECOND: Duration = Duration::from_secs(1);

/// Limits the rate at which each namespace creates timers.
#[derive(Debug, Default)]
pub(super) struct CreationRate(Mutex<HashMap<Box<str>, Rate>>);

impl CreationRate {
    /// Counts a creation in a namespace that may create `per_second` timers in a second. A namespace may create these
    /// timers at once if it has created none in the last second. If the namespace has used up its rate, fails with the
    /// time until the next creation is possible.
    pub(super) fn take(&self, namespace: &str, per_second: u32, now: Instant) -> Result<(), Duration> {
        let mut rates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // On some systems an `Instant` cannot be earlier than the start of the machine.
        let second_ago = now.checked_sub(SECOND).unwrap_or(now);
        if !rates.contains_key(namespace) {
            if rates.len() >= MOST {
                // A rate that is not used since then is equal to a new rate.
                rates.retain(|_, rate| rate.is_used_since(second_ago));
            }
            rates.insert(namespace.into(), Rate::new(per_second, second_ago));
        }
        let Some(rate) = rates.get_mut(namespace) else { return Ok(()) };
        rate.set(per_second);
        // The slots within the lag and the slot at `now` are together the slots of one second.
        let window = Window { lag: SECOND - step(per_second), lead: Duration::ZERO };
        rate.take(now, window).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_makes_as_many_in_a_second_as_it_may_and_others_make_theirs() {
        let rate = CreationRate::default();
        let begin = Instant::now();
        let count = |namespace: &str, at: Instant| {
            (0..1_000).take_while(|_| rate.take(namespace, 100, at).is_ok()).count()
        };
        assert_eq!((count("a", begin), count("a", begin), count("b", begin)), (100, 0, 100));
        let rest = rate.take("a", 100, begin).unwrap_err();
        assert!(rest <= Duration::from_millis(10), "{rest:?}");
        assert_eq!(count("a", begin + Duration::from_millis(500)), 50);
        assert_eq!(count("a", begin + Duration::from_secs(60)), 100, "no more is saved than for a second");
    }
}
