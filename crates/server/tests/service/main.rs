//! The service: over real sockets, with a client on one side and a receiver of callbacks on the other, and without sockets.

mod api;
mod document;
mod inside;
mod rig;
