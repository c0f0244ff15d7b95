//! Tests TLS: the modes of `sslmode`, certificates of servers and of clients, SCRAM, and a pool with TLS.

mod binding;
mod clients;
mod modes;
mod rig;
mod stores;
