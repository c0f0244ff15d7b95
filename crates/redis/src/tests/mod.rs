//! Tests on real servers. Each test starts its own server, and is skipped with a message if there is no `redis-server`.

mod acting;
mod batches;
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
mod limit;
mod link;
mod lists;
mod losses;
mod lost_answers;
mod memory;
mod nodes;
mod once;
mod opening;
mod pairs;
mod plain;
mod recording;
mod set_back;
mod sweeps;
mod turns;
mod waits;

use tourbillon_durable::UtcMillis;

/// A due moment that is past by the clock of any server. Timers that a test needs to be due at once have this moment,
/// because a store's estimate may be ahead of the server's time.
const PAST: UtcMillis = UtcMillis::from_millis(5);
