//! Tests the service. Some tests use real sockets, with a client and a receiver of callbacks. Others call the service's
//! router without sockets.

mod alarms;
mod api;
mod bad_input;
#[cfg(unix)]
mod costs;
mod deliveries;
mod document;
mod escapes;
mod faulty;
mod fuzz;
mod generator;
mod idempotency;
mod inside;
mod limits;
mod nodes;
mod once;
mod operating;
mod operations;
mod parked;
mod pull;
mod receivers;
mod report;
mod requests;
mod rig;
mod schedules;
mod schema;
#[cfg(unix)]
mod shared;
mod slow_disk;
#[cfg(feature = "otel")]
mod spans;
mod tenants;
mod view;
