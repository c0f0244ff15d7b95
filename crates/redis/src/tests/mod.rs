//! Tests on a real server, which each test starts for itself. Without `redis-server` they say that they were skipped.

mod cluster;
mod conformance;
mod faults;
mod figures;
mod keys;
mod life;
mod nodes;
mod notes;
mod pairs;
mod plain;
