//! Identifies the sender and the id of the request that a task serves. Log lines and audit entries name the sender and
//! the id. The sender and the id are task-local values, so functions need not pass them on.

use crate::client::Client;
use crate::request_id::RequestId;
use core::net::IpAddr;
use http::{HeaderMap, HeaderName, Request};
use std::sync::{Arc, OnceLock};
use tracing::{field, warn};

/// The header in which proxies list the addresses of their clients.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The sender of a request: its address, its token, and whether it used a page for browsers.
#[derive(Debug)]
pub(crate) struct Asker {
    id: RequestId,
    peer: Option<IpAddr>,
    is_page: bool,
    /// The SHA-256 of the token that authorized the request. Unset until the request is authorized, and if the request
    /// needs no token.
    token: OnceLock<[u8; 32]>,
}

tokio::task_local! {
    static PRESENT: Arc<Asker>;
}

/// Returns the sender of the request that the current task serves, or `None` if the task serves no request.
pub(crate) fn present() -> Option<Arc<Asker>> {
    PRESENT.try_with(Arc::clone).ok()
}

/// Returns the id of the request that the current task serves, or `None` if the task serves no request.
pub(crate) fn request_id() -> Option<RequestId> {
    PRESENT.try_with(|asker| asker.id.clone()).ok()
}

impl Asker {
    /// Determines the sender of a request. With `behind_proxy`, the sender's address is the last address in
    /// `X-Forwarded-For`, which the proxy has added. The client may have forged the earlier addresses.
    pub(crate) fn of<B>(request: &Request<B>, behind_proxy: bool) -> Self {
        let (peer, id) = match request.extensions().get::<Client>() {
            // A dual-stack socket reports an IPv4 client by an IPv4-mapped IPv6 address.
            Some(client) => (Some(client.peer.to_canonical()), client.id.clone()),
            None => (None, RequestId::of(request.headers())),
        };
        let peer = if behind_proxy { forwarded(request.headers()).or(peer) } else { peer };
        let path = request.uri().path();
        let is_page = path == "/ui" || path.starts_with("/ui/");
        Self { id, peer, is_page, token: OnceLock::new() }
    }

    /// Runs `work`, the future that serves a request of this sender. While `work` runs, [`present`] returns this
    /// sender.
    pub(crate) async fn await_with<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        PRESENT.scope(Arc::clone(self), work).await
    }

    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }

    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Returns whether the request was for a page for browsers, as its path shows.
    pub(crate) fn is_page(&self) -> bool {
        self.is_page
    }

    /// Stores the SHA-256 of the token that authorized the request.
    pub(crate) fn signed(&self, token: &[u8; 32]) {
        // A request is authorized only once, so no token is stored yet.
        let _is_first = self.token.set(*token);
    }

    pub(crate) fn token(&self) -> Option<&[u8; 32]> {
        self.token.get()
    }
}

/// Logs that the service refused the token of the current request for the given reason. Reveals no part of the token.
pub(crate) fn log_refused_token(reason: &str) {
    let asker = present();
    let peer = asker.as_ref().and_then(|asker| asker.peer()).map(field::display);
    let request = asker.as_ref().map(|asker| asker.id().text());
    warn!(target: "token-refused", peer, request, reason, "a token was refused");
}

/// Returns the last address in the header `X-Forwarded-For`, which the nearest proxy has added.
fn forwarded(headers: &HeaderMap) -> Option<IpAddr> {
    // A proxy may add a header line of its own instead of extending a line of the client.
    let value = headers.get_all(X_FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn a_proxy_names_the_address_of_its_client_last() {
        let peer_of = |value| forwarded(&headers(&[("x-forwarded-for", value)]));
        assert_eq!(peer_of("10.0.0.1"), Some([10, 0, 0, 1].into()));
        assert_eq!(peer_of("the client's own, 10.0.0.1 , 192.0.2.7"), Some([192, 0, 2, 7].into()));
        assert_eq!(peer_of("10.0.0.1, unknown"), None);
    }
}
