//! Starts servers for tests, and does harm to them and to their connections.
//!
//! [`Server`] is one `redis-server`. [`Watched`] is a primary with a replica and a Sentinel. [`Cluster`] is six nodes.
//! All these servers listen on free ports of the loopback interface, and keep their files in temporary folders. A
//! server ends when its value is dropped, even if the test panics. [`Proxy`] stands between a client and a server. It
//! delays data, cuts or silences connections, or loses replies.
//!
//! [`Postgres`] is a PostgreSQL server. [`Bouncer`] is a pgbouncer in front of it. [`Script`] is a program in Python or
//! Node.js with its libraries.
//!
//! If the server is not installed, each `start` writes a line to standard error and returns `None`.
//!
//! [`history`] collects the records of a run, which are calls of clients, deliveries and faults, and finds violations
//! in them. With the feature `runner`, the module `run` provides the parts of a run: nodes as processes, clients, and a
//! receiver. The program of this package runs a list of scenarios: `cargo run -p tourbillon-fault --release --features
//! runner -- --minutes 10`.
//!
//! The functions panic if a server fails unexpectedly, since a test can do nothing with such an error.
#![cfg(unix)]
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "all of them are for tests")]

// Floors: a module uses only modules of its own floor and of the floors below it (`tests/tidy`).

// Floor 0: ports, waits, proxies, clocks, disks, certificates, scripts, skipped tests, and histories of timers.
#[cfg(feature = "tls")]
mod authority;
mod disk;
pub mod history;
mod ports;
mod proxy;
mod script;
mod shift;
mod skip;
mod wait;

// Floor 1: one server.
mod postgres;
mod server;

// Floor 2: servers together.
mod bouncer;
mod cluster;
mod watched;

// Floor 3: parts of a run under faults.
#[cfg(feature = "runner")]
pub mod run;

#[cfg(feature = "tls")]
pub use authority::{Authority, Issued};
pub use bouncer::Bouncer;
pub use cluster::Cluster;
pub use disk::SmallDisk;
pub use ports::free_port;
pub use postgres::Postgres;
pub use proxy::{Fate, Proxy};
pub use script::Script;
pub use server::Server;
pub use shift::Shift;
pub use wait::{eventually, eventually_some};
pub use watched::{Watched, watch};
