//! Lets the handler of a request report facts about the request to the connection on which the request arrived.

use crate::request_id::RequestId;
use axum::extract::FromRequestParts;
use core::convert::Infallible;
use core::net::{IpAddr, Ipv6Addr};
use http::Extensions;
use http::request::Parts;
use std::sync::Arc;
use tourbillon_api::{Problem, ProblemKind};

/// The time, in milliseconds, after which a client should repeat a request that would make too many connections wait.
const AGAIN_MS: u64 = 1_000;

/// The methods by which the handler of a request reports facts about the request to the request's connection.
pub(crate) trait Notes: Send + Sync + 'static {
    /// Records that the request may wait for an event without a time limit, as a long poll does.
    fn waits(&self);

    /// Counts the connection as waiting until the request ends. Returns false if too many connections are waiting, in
    /// total or for the request's token.
    fn begin_wait(&self) -> bool;

    /// Records that the request is authenticated: its token or its session is valid, or the service needs no tokens.
    /// `token` is the SHA-256 of the token, or `None` if the service needs no tokens.
    fn is_known(&self, token: Option<[u8; 32]>);
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

/// Reports to a request's connection that the request is authenticated: its token or its session is valid, or the
/// service needs no tokens. `extensions` are those of the request. `token` is the SHA-256 of the token, or `None` if
/// the service needs no tokens.
pub(crate) fn note_known(extensions: &Extensions, token: Option<[u8; 32]>) {
    if let Some(client) = extensions.get::<Client>() {
        client.notes.is_known(token);
    }
}

/// An extractor by which a handler marks its request as a request that may wait without a time limit, such as a long
/// poll. If the client closes its half of the connection, the connection ends a marked request.
pub(crate) struct Waits(Option<Arc<dyn Notes>>);

impl Waits {
    /// Counts the connection as waiting. Must be called before the handler waits. Fails if too many connections are
    /// waiting: the server never closes them to make room for connections of other clients, so their number is limited.
    pub(crate) fn begin(&self) -> Result<(), Problem> {
        if self.0.as_ref().is_none_or(|notes| notes.begin_wait()) {
            return Ok(());
        }
        let detail = "as many connections wait as the service permits, or as the token's share of them";
        Err(Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(AGAIN_MS))
    }
}

impl<S: Sync> FromRequestParts<S> for Waits {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let notes = parts.extensions.get::<Client>().map(|client| Arc::clone(&client.notes));
        notes.iter().for_each(|notes| notes.waits());
        Ok(Self(notes))
    }
}
