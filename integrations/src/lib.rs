//! tourbillon beside async runtimes: hyper's timer on an engine, and an HTTP server whose every timeout is the engine's.

mod hyper_timer;

pub mod http_server;

pub use hyper_timer::TourbillonTimer;
