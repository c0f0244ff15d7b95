#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod runtime;
mod timer;

pub use runtime::TokioRuntime;
