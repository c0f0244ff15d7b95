//! Redis servers for tests, and faults between them and their clients.
//!
//! [`Server`] is one `redis-server`, [`Watched`] a primary with a replica and a Sentinel, [`Cluster`] six nodes. All
//! run on free ports of the loopback interface, in temporary folders, and end when their value is dropped, in a test
//! that panics, too. [`Proxy`] stands between a client and a server, and delays, cuts, silences, or loses replies.
//!
//! Each `start` returns `None`, and writes a line to standard error, where no `redis-server` is installed.
//!
//! [`history`] has the records of clients, receivers and faults in a run, and finds the violations. With the feature
//! `runner`, `run` has the parts of such a run: nodes as processes, clients, and a receiver. The program of this
//! package runs a list of scenarios: `cargo run -p tourbillon-fault --release --features runner -- --minutes 10`.
//!
//! The functions panic if a server fails unexpectedly: a test has no use for such an error.
#![cfg(unix)]
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "all of them are for tests")]

// Floors: a module uses only modules of its own floor and of the floors below it (`tests/tidy`).

// Floor 0: ports, waits, proxies, clocks, and histories of timers.
pub mod history;
mod ports;
mod proxy;
mod shift;
mod wait;

// Floor 1: one server.
mod server;

// Floor 2: servers together.
mod cluster;
mod watched;

// Floor 3: parts of a run under faults.
#[cfg(feature = "runner")]
pub mod run;

pub use cluster::Cluster;
pub use ports::free_port;
pub use proxy::{Fate, Proxy};
pub use server::Server;
pub use shift::Shift;
pub use wait::{eventually, eventually_some};
pub use watched::Watched;
