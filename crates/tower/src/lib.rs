#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "http-body")]
mod body;
mod error;
mod future;
mod rate_limit;
#[cfg(feature = "retry")]
mod retry;
mod service;
mod slot;
mod slots;
mod timers;

#[cfg(feature = "http-body")]
pub use body::TimeoutBody;
pub use error::{Elapsed, Part, TimeoutError};
pub use future::ResponseFuture;
pub use rate_limit::{InvalidRate, RateLimit, RateLimitLayer};
#[cfg(feature = "retry")]
pub use retry::ExponentialBackoff;
pub use service::{Timeout, TimeoutLayer};
