//! The methods of a task engine's handle that make the ready-made uses.

use super::batch::IdleBatch;
use super::delay_queue::DelayQueue;
use super::error::RateError;
use super::expiry_map::{ExpiryMap, Lifetime};
use super::idle::{Expired, IdleTimeouts, Limits};
use super::rate_limiter::{Rate, RateLimiter};
use crate::task::{Key, Tasks};

impl Tasks {
    /// Makes a set of connections with these limits on this engine. `on_expired` runs on a worker, once for each
    /// connection that reaches a limit. For an event loop, see [`idle_batches`](Self::idle_batches).
    ///
    /// A callback that holds a clone of the `IdleTimeouts`, or one of the connections, keeps the whole set alive for
    /// ever.
    #[must_use]
    pub fn idle_timeouts<I: Key>(
        &self,
        limits: Limits,
        on_expired: impl Fn(Expired<I>) + Send + Sync + 'static,
    ) -> IdleTimeouts<I> {
        IdleTimeouts::new(self.core(), limits, Box::new(on_expired))
    }

    /// Works as [`idle_timeouts`](Self::idle_timeouts), but collects expired connections in a batch until an event loop
    /// fetches them. `wake` runs for the first connection that expires after the batch was drained. `wake` runs on a
    /// worker, or on the shard's thread if handlers run inline.
    #[must_use]
    pub fn idle_batches<I: Key>(
        &self,
        limits: Limits,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (IdleTimeouts<I>, IdleBatch<I>) {
        let (batch, on_expired) = IdleBatch::new(wake);
        (self.idle_timeouts(limits, on_expired), batch)
    }

    /// Makes a map on this engine whose entries have this lifetime.
    #[must_use]
    pub fn expiry_map<K: Key, V: Send + Sync + 'static>(&self, lifetime: Lifetime) -> ExpiryMap<K, V> {
        ExpiryMap::new(self.core(), lifetime, None)
    }

    /// Works as [`expiry_map`](Self::expiry_map), but passes each expired entry to the listener `on_expired`. The
    /// listener runs on a worker, or in an insert that finds an expired entry whose timer is late. The listener may use
    /// the map, because no lock is held.
    ///
    /// A listener that holds a clone of the map keeps the map alive for ever.
    #[must_use]
    pub fn expiry_map_with_listener<K: Key, V: Send + Sync + 'static>(
        &self,
        lifetime: Lifetime,
        on_expired: impl Fn(K, V) + Send + Sync + 'static,
    ) -> ExpiryMap<K, V> {
        ExpiryMap::new(self.core(), lifetime, Some(Box::new(on_expired)))
    }

    /// Makes a queue on this engine whose items can be received after a delay.
    #[must_use]
    pub fn delay_queue<T: Send + 'static>(&self) -> DelayQueue<T> {
        DelayQueue::new(self.core())
    }

    /// Makes a rate limiter whose waiting closures run on this engine.
    ///
    /// # Errors
    ///
    /// Fails if the rate's interval or burst is zero. A limiter with a zero interval would limit nothing, and a limiter
    /// with a zero burst would never give out a permit.
    pub fn rate_limiter(&self, rate: Rate) -> Result<RateLimiter, RateError> {
        RateLimiter::new(self.core(), rate)
    }
}
