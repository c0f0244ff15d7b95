#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "http-body")]
mod body;
mod error;
mod future;
mod service;
mod timers;

#[cfg(feature = "http-body")]
pub use body::TimeoutBody;
pub use error::{Elapsed, Part, TimeoutError};
pub use future::ResponseFuture;
pub use service::{Timeout, TimeoutLayer};
