#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod refuge;
mod sleep;
mod source;
mod timer;

pub use timer::TourbillonTimer;
