//! Passes facts about a request between its connection and the HTTP interface.

use crate::asker::RequestId;
use axum::extract::FromRequestParts;
use core::convert::Infallible;
use core::net::{IpAddr, Ipv6Addr};
use http::Extensions;
use http::request::Parts;
use std::sync::Arc;

/// Receives facts about a request, for the connection that the request came over.
pub(crate) trait Notes: Send + Sync + 'static {
    /// Records that the request waits for an event that may never come.
    fn waits(&self);

    /// Records that the request was permitted: its token is valid, or the service needs no tokens.
    fn is_known(&self);
}

/// The client that sent a request. The connection adds it to the request's extensions.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) peer: IpAddr,
    /// The id of the request.
    pub(crate) id: RequestId,
    pub(crate) notes: Arc<dyn Notes>,
}

/// Returns the address of the client that sent a request. `None` if the connection has not added it.
pub(crate) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Client>().map(|client| client.peer)
}

/// Returns the network that an address belongs to. Limits count networks, since an IPv6 host has as many addresses as
/// it likes.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into()
        }
        other => other,
    }
}

/// Tells the connection that a request was permitted.
pub(crate) fn note_known(extensions: &Extensions) {
    if let Some(client) = extensions.get::<Client>() {
        client.notes.is_known();
    }
}

/// Marks a request that may wait without end, such as a long poll. If a handler extracts this, its request ends once
/// the client closes its half of the connection.
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
