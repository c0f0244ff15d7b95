//! TLS by rustls: the modes of libpq, certificates, the handshake, and the binding of SCRAM to the channel.

mod binding;
mod client;
mod der;
mod fault;
mod handshake;
mod pem;
mod settings;
mod validity;

pub(crate) use client::client_config;
pub(crate) use fault::{Fault, refusal};
pub(crate) use handshake::{Connector, Handshake, Stream};
pub use settings::Tls;
pub(crate) use settings::{Mode, effective};
