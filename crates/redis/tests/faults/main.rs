//! Faults of processes, servers and connections, by the names of the store's design: F-13 to F-34. The other suites
//! prove further rows of the table in `crates/fault/DESIGN.md`.
#![cfg(unix)]
#![allow(clippy::tests_outside_test_module, reason = "a test of its own")]

mod common;
mod crashes;
mod damage;
mod many;
mod reference;
mod runs;
mod servers;
