//! Tests each function as C calls it.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

#[path = "../support/mod.rs"]
mod support;

mod callbacks;
mod clocks;
mod errors;
mod layouts;
mod nulls;

const MS: u64 = 1_000_000;
