#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod fast_timeout;
mod future;
mod limit;
pub mod timer;
#[path = "../../wait.rs"]
mod wait;

pub use fast_timeout::fast_sleep as sleep;
pub use fast_timeout::fast_timeout as timeout;
pub use future::{Elapsed, Timeout, ToTimeout, TokioTimeout, tokio_timeout};

use tourbillon::future::sleep as start;
