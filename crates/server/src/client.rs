//! Passes facts about a request between its connection and the HTTP interface.

use crate::request_id::RequestId;
use axum::extract::FromRequestParts;
use core::convert::Infallible;
use core::net::{IpAddr, Ipv6Addr};
use http::Extensions;
use http::request::Parts;
use std::sync::Arc;

/// Tells a connection facts about a request that arrived on it. The request's handler calls these methods.
pub(crate) trait Notes: Send + Sync + 'static {
    /// Notes that the request may wait without end for an event, as a long poll does.
    fn waits(&self);

    /// Notes that the request is authenticated: its token or its session is valid, or the service needs no tokens.
    fn is_known(&self);
}

/// The client that sent a request. The connection adds this value to the request's extensions.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) peer: IpAddr,
    /// The id of the request.
    pub(crate) id: RequestId,
    pub(crate) notes: Arc<dyn Notes>,
}

/// Returns the address of the client that sent a request. Returns `None` if the request's extensions have no
/// [`Client`].
pub(crate) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Client>().map(|client| client.peer)
}

/// Returns the network of an address: the first 64 bits of an IPv6 address, or the whole IPv4 address. Limits apply to
/// networks, because an IPv6 host can use any address of its network.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        // The network of `::1` would be `::`. Callers could then no longer see that the client is on this machine.
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
        }
        other => other,
    }
}

/// Tells a request's connection that the request is authenticated: its token or its session is valid, or the service
/// needs no tokens. `extensions` are the extensions of the request.
pub(crate) fn note_known(extensions: &Extensions) {
    if let Some(client) = extensions.get::<Client>() {
        client.notes.is_known();
    }
}

/// An extractor with which a handler marks its request as one that may wait without end, such as a long poll. The
/// connection ends a marked request when the client closes its half of the connection.
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
