//! The client of a request: the facts that pass between its connection and the HTTP interface.

use axum::extract::FromRequestParts;
use core::convert::Infallible;
use core::net::{IpAddr, Ipv6Addr};
use http::Extensions;
use http::request::Parts;
use std::sync::Arc;

/// The facts that a connection learns from its requests.
pub(crate) trait Notes: Send + Sync + 'static {
    /// The request waits for an event that may never come.
    fn waits(&self);

    /// The request has a right.
    fn is_known(&self);
}

/// The client of a request. The connection adds it to the request's extensions.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) peer: IpAddr,
    pub(crate) notes: Arc<dyn Notes>,
}

/// The address of a request's client, if a connection has shown it.
pub(crate) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Client>().map(|client| client.peer)
}

/// The network that an address stands for: a host with IPv6 has as many addresses as it likes.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
        }
        other => other,
    }
}

/// Notes that a request has a right.
pub(crate) fn note_known(extensions: &Extensions) {
    if let Some(client) = extensions.get::<Client>() {
        client.notes.is_known();
    }
}

/// Marks a request that may wait without end, such as a long poll. A handler that extracts it has its request ended
/// once the client closes its half of the connection.
#[derive(Debug)]
pub(crate) struct Waits;

impl<S: Sync> FromRequestParts<S> for Waits {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if let Some(client) = parts.extensions.get::<Client>() {
            client.notes.waits();
        }
        Ok(Self)
    }
}
