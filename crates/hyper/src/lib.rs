#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fallback;
mod sleep;
mod source;
mod timer;

pub use timer::TourbillonTimer;
