//! The service: over real sockets, with a client on one side and a receiver of callbacks on the other, and without sockets.

mod api;
mod deliveries;
mod document;
mod inside;
mod limits;
mod pull;
mod receivers;
mod rig;
