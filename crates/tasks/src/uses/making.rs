//! The making of uses on the handle of a task engine.

use super::batch::IdleBatch;
use super::delay_queue::DelayQueue;
use super::error::RateError;
use super::expiry_map::{ExpiryMap, Lifetime};
use super::idle::{Expired, IdleTimeouts, Limits};
use super::rate_limiter::{Rate, RateLimiter};
use crate::task::{Key, Tasks};

impl Tasks {
    /// Makes a set of connections with these limits, on this engine. `on_expired` runs on a worker, once for each
    /// connection that reaches a limit. For an event loop, see [`idle_batches`](Self::idle_batches).
    ///
    /// A callback that has a clone of the `IdleTimeouts`, or a connection, keeps them alive for ever.
    #[must_use]
    pub fn idle_timeouts<I: Key>(
        &self,
        limits: Limits,
        on_expired: impl Fn(Expired<I>) + Send + Sync + 'static,
    ) -> IdleTimeouts<I> {
        IdleTimeouts::new(self.core(), limits, Box::new(on_expired))
    }

    /// As [`idle_timeouts`](Self::idle_timeouts), but expired connections are kept until the event loop fetches them.
    /// `wake` runs when the first connection has expired since the batch was drained. It runs on a worker, or on the
    /// shard's thread if handlers run inline.
    #[must_use]
    pub fn idle_batches<I: Key>(
        &self,
        limits: Limits,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (IdleTimeouts<I>, IdleBatch<I>) {
        let (batch, on_expired) = IdleBatch::new(wake);
        (self.idle_timeouts(limits, on_expired), batch)
    }

    /// Makes a map whose entries have this lifetime, on this engine.
    #[must_use]
    pub fn expiry_map<K: Key, V: Send + Sync + 'static>(&self, lifetime: Lifetime) -> ExpiryMap<K, V> {
        ExpiryMap::new(self.core(), lifetime, None)
    }

    /// As [`expiry_map`](Self::expiry_map); `on_expired` gets each entry that has expired. The listener runs on a
    /// worker, and in an insert that finds an entry whose timer is late. No lock is held then, so the listener may use
    /// the map.
    ///
    /// A listener that has a clone of the map keeps the map alive for ever.
    #[must_use]
    pub fn expiry_map_with_listener<K: Key, V: Send + Sync + 'static>(
        &self,
        lifetime: Lifetime,
        on_expired: impl Fn(K, V) + Send + Sync + 'static,
    ) -> ExpiryMap<K, V> {
        ExpiryMap::new(self.core(), lifetime, Some(Box::new(on_expired)))
    }

    /// Makes a queue whose items wait for their time on this engine.
    #[must_use]
    pub fn delay_queue<T: Send + 'static>(&self) -> DelayQueue<T> {
        DelayQueue::new(self.core())
    }

    /// Makes a rate limiter whose closures run on this engine.
    ///
    /// # Errors
    ///
    /// Fails if the rate's interval is zero, or its burst. Such a rate is often the quotient of two settings, and a
    /// limiter that limits nothing would hide the mistake.
    pub fn rate_limiter(&self, rate: Rate) -> Result<RateLimiter, RateError> {
        RateLimiter::new(self.core(), rate)
    }
}
