//! Tests on a real server, which each test starts for itself. Without `redis-server` they say that they were skipped.

mod conformance;
mod faults;
mod figures;
mod keys;
mod life;
mod notes;
mod plain;
