//! Limits how many timers a namespace may create in a second. Without this limit, one namespace could use the whole
//! capacity of the store.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The greatest number of namespaces whose rates are remembered. Beyond this number, namespaces without a creation in
/// the last second are forgotten.
const MOST: usize = 10_000;

/// Limits the rate at which each namespace creates timers.
#[derive(Debug, Default)]
pub(super) struct CreationRate(Mutex<HashMap<Box<str>, Bucket>>);

/// A token bucket: the creations that a namespace may make now. A full bucket has the creations of one second.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The number of creations that the namespace could still make at the moment `at`. The number may have a fraction,
    /// because it grows steadily with the time.
    left: f64,
    /// The moment of the namespace's last attempt to create a timer.
    at: Instant,
}

impl CreationRate {
    /// Counts a creation in a namespace that may create `per_second` timers in a second. If the namespace has used up
    /// its rate, fails with the time until the next creation is possible.
    pub(super) fn take(&self, namespace: &str, per_second: u32, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The setting may be 0, and the pause below is divided by `most`.
        let most = f64::from(per_second.max(1));
        let Some(bucket) = buckets.get_mut(namespace) else {
            if buckets.len() >= MOST {
                // After a second without a creation, a bucket is full. So the removal of the bucket changes nothing.
                let is_recent = |at: Instant| now.saturating_duration_since(at) < Duration::from_secs(1);
                buckets.retain(|_, bucket| is_recent(bucket.at));
            }
            buckets.insert(namespace.into(), Bucket { left: most - 1.0, at: now });
            return Ok(());
        };
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        // `now` was read before the lock, so another thread may have stored a later moment.
        *bucket = Bucket { left: (bucket.left + since * most).min(most), at: now.max(bucket.at) };
        if bucket.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.left) / most));
        }
        bucket.left -= 1.0;
        Ok(())
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
