//! Ready-made uses of timers: idle connections, maps whose entries expire, queues of delayed items, rate limits.
//!
//! A [`Tasks`](crate::Tasks) makes each use, and the use runs on the threads of that engine. So a process needs only
//! one set of threads, for any number of maps and queues.
//!
//! | | made by | for | alternative |
//! |---|---|---|---|
//! | [`IdleTimeouts`] | [`Tasks::idle_timeouts`](crate::Tasks::idle_timeouts) | connections that are closed when they are silent for too long, or when they are old | a [`Timer`](tourbillon::Timer) in each connection, if connections are not looked up by an id |
//! | [`ExpiryMap`] | [`Tasks::expiry_map`](crate::Tasks::expiry_map) | sessions, caches, tokens | a [`Timer`](tourbillon::Timer) in each value, if the values live elsewhere anyway |
//! | [`DelayQueue`] | [`Tasks::delay_queue`](crate::Tasks::delay_queue) | retries, reminders: items for the next receiver | [`Tasks::after`](crate::Tasks::after), if a closure can do it on a worker |
//! | [`RateLimiter`] | [`Tasks::rate_limiter`](crate::Tasks::rate_limiter) | calls that must not come faster than a rate, with a closure for each that has to wait | a semaphore, to bound the number of calls under way, not their rate |
//!
//! # During and after a shutdown
//!
//! During and after a shutdown, insertions, touches, refreshes and pushes are refused, and the refused values are
//! returned. Nothing expires any more. The present entries can still be read and removed.

mod batch;
pub(crate) mod delay_queue;
mod error;
mod expiry_map;
pub(crate) mod idle;
mod making;
mod rate_limiter;

pub use batch::IdleBatch;
pub use delay_queue::{DelayQueue, Delayed, DueItem, Receiver};
pub use error::{
    ConnectError, ConnectErrorKind, PushError, PushErrorKind, RateError, RecvError, TryRecvError,
};
pub use expiry_map::{ExpiryMap, Lifetime};
pub use idle::{Connection, Expired, IdleTimeouts, Limit, Limits};
pub use rate_limiter::{Acquired, Rate, RateLimiter};
