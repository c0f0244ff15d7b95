//! The service over real sockets: a client on one side, a receiver of callbacks on the other.

mod api;
mod deliveries;
mod limits;
mod pull;
mod receivers;
mod rig;
