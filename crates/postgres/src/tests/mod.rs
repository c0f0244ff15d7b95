//! Tests on a server. Each test starts a server of its own, and is skipped with a message if PostgreSQL is not
//! installed.

mod bulk;
mod conformance;
mod disk;
mod documents;
mod figures;
mod functions;
mod held;
mod isolation;
mod late;
mod life;
mod marks;
mod network;
mod opening;
mod parked;
mod plans;
mod pooled;
mod races;
mod restores;
mod server;
mod session;
mod through_functions;
mod tls;
mod turns;
mod wakes;
