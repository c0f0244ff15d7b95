//! Faults of processes, servers and connections, by the names of the store's design: F-13 to F-35, T-10 and T-18, and
//! the eight defects of the reference wheel.
#![cfg(unix)]
#![allow(clippy::tests_outside_test_module, reason = "a test of its own")]

mod common;
mod crashes;
mod damage;
mod many;
mod reference;
mod runs;
mod servers;
