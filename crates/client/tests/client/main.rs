//! Tests the client over real sockets, with the service itself and with servers that break.

mod broken;
mod events;
mod rig;
mod routes;
mod service;
mod whole;
