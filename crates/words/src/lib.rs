#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod moment;
mod terms;

pub use moment::{InvalidMoment, UtcMillis};
pub use terms::{Guarantee, Missed, Overlap, Phase};
