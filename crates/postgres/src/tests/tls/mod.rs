//! Tests TLS: the modes of `sslmode`, certificates of servers and of clients, SCRAM, a pool with TLS, and a
//! network with faults.

mod binding;
mod clients;
mod faults;
mod modes;
mod rig;
mod stores;
