//! Tests on a real server, which each test starts for itself. Without `redis-server` they say that they were skipped.

mod bounds;
mod cluster;
mod conformance;
mod creations;
mod dead_primary;
mod documents;
mod ends;
mod failover;
mod faults;
mod figures;
mod keys;
mod life;
mod link;
mod lists;
mod losses;
mod memory;
mod nodes;
mod opening;
mod pairs;
mod plain;
mod returns;
mod set_back;
mod sweeps;
mod turns;
mod waits;

use tourbillon_durable::UtcMillis;

/// Due by the clock of every server, and at once: the time that a store knows may be ahead of its server's.
const PAST: UtcMillis = UtcMillis::from_millis(5);
