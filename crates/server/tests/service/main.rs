//! The service: over real sockets, with a client on one side and a receiver of callbacks on the other, and without sockets.

mod api;
mod bad_input;
mod document;
mod faulty;
mod fuzz;
mod idempotency;
mod inside;
mod operations;
mod report;
mod rig;
