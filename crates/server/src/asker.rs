//! Identifies the sender of the request that a task fulfils, and gives each request an id. Log lines, stored timers and
//! entries of the audit trail name the request by this id. Sender and id are task-local values, so functions need not
//! pass them on.

use crate::client::Client;
use axum::extract::Request;
use core::net::IpAddr;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::{Arc, OnceLock};
use tracing::{field, warn};
use uuid::Uuid;

/// The header that carries the id of a request. Requests and answers may have this header.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header in which a proxy names the addresses of its clients.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The longest id that a client may give, in bytes.
pub(crate) const LONGEST_ID: usize = 128;

/// The id of a request. Remembers whether the client gave the id or the service made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId {
    text: Arc<str>,
    is_given: bool,
}

impl RequestId {
    /// Takes the id from the request's header, or makes a random id. The client's id must be in a single header, and
    /// have 1 to 128 letters, digits and characters of `-_.:/+=@`. Any other id is ignored.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(REQUEST_ID).iter();
        match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
            (Some(text), None) if is_id(text) => Self { text: text.into(), is_given: true },
            _ => {
                let random = Uuid::from_u128(fastrand::u128(..)).simple();
                Self { text: (*random.encode_lower(&mut [0; 32])).into(), is_given: false }
            }
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the id if the client gave it. Returns `None` if the service made the id.
    pub(crate) fn given(&self) -> Option<&str> {
        self.is_given.then_some(&self.text)
    }

    /// Returns the id as a value for the header [`REQUEST_ID`].
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.text).ok()
    }
}

/// Returns whether a client may give this text as the id of a request.
fn is_id(text: &str) -> bool {
    let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(is_permitted)
}

/// The sender of a request: its address, its token, and whether it used a browser page.
#[derive(Debug)]
pub(crate) struct Asker {
    id: RequestId,
    peer: Option<IpAddr>,
    is_page: bool,
    /// The hash of the token that permitted the request. Unset if the request needed no token, or is not permitted yet.
    token: OnceLock<[u8; 32]>,
}

tokio::task_local! {
    static PRESENT: Arc<Asker>;
}

/// Returns the sender of the request that the current task fulfils. Returns `None` in a task without a request.
pub(crate) fn present() -> Option<Arc<Asker>> {
    PRESENT.try_with(Arc::clone).ok()
}

/// Returns the id of the request that the current task fulfils. Returns `None` in a task without a request.
pub(crate) fn request_id() -> Option<RequestId> {
    PRESENT.try_with(|asker| asker.id.clone()).ok()
}

impl Asker {
    /// Determines the sender of a request. Behind a proxy, the last address in `X-Forwarded-For` counts, since the
    /// proxy has added it. The client may have made up the addresses before it.
    pub(crate) fn of(request: &Request, behind_proxy: bool) -> Self {
        let (peer, id) = match request.extensions().get::<Client>() {
            Some(client) => (Some(client.peer.to_canonical()), client.id.clone()),
            None => (None, RequestId::of(request.headers())),
        };
        let peer = if behind_proxy { forwarded(request.headers()).or(peer) } else { peer };
        let path = request.uri().path();
        let is_page = path == "/ui" || path.starts_with("/ui/");
        Self { id, peer, is_page, token: OnceLock::new() }
    }

    /// Runs the work that fulfils this sender's request. Within the work, [`present`] returns this sender.
    pub(crate) async fn await_with<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        PRESENT.scope(Arc::clone(self), work).await
    }

    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }

    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Returns whether the request's path belongs to the pages for browsers.
    pub(crate) fn is_page(&self) -> bool {
        self.is_page
    }

    /// Records the hash of the token that permitted the request.
    pub(crate) fn signed(&self, token: &[u8; 32]) {
        // A request is permitted only once, so no token is recorded yet.
        let _is_first = self.token.set(*token);
    }

    pub(crate) fn token(&self) -> Option<&[u8; 32]> {
        self.token.get()
    }
}

/// Logs that the service refused the token of the current request. The line reveals nothing of the token.
pub(crate) fn log_refused_token(reason: &str) {
    let asker = present();
    let peer = asker.as_ref().and_then(|asker| asker.peer()).map(field::display);
    let request = asker.as_ref().map(|asker| asker.id().text());
    warn!(target: "token-refused", peer, request, reason, "a token was refused");
}

/// Returns the last address in `X-Forwarded-For`, which the nearest proxy has added.
fn forwarded(headers: &HeaderMap) -> Option<IpAddr> {
    let value = headers.get_all(X_FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn an_id_is_the_clients_if_it_can_be_taken() {
        let longest = "a".repeat(LONGEST_ID);
        for text in ["a", "6f1c0f3e-5f0a-4a3e", "Root=1-67891233-abcdef", "a/b:c+d@e.f_g", &longest] {
            let id = RequestId::of(&headers(&[("x-request-id", text)]));
            assert_eq!((id.text(), id.given()), (text, Some(text)));
        }
        let too_long = "a".repeat(LONGEST_ID + 1);
        for text in ["", "a b", "a\"b", "a,b", "<b>", "{}", &too_long] {
            let id = RequestId::of(&headers(&[("x-request-id", text)]));
            assert!(id.given().is_none() && id.text().len() == 32 && is_id(id.text()), "{text}: {id:?}");
        }
        let two = headers(&[("x-request-id", "a"), ("x-request-id", "b")]);
        assert!(RequestId::of(&two).given().is_none());
        assert_ne!(RequestId::of(&HeaderMap::new()), RequestId::of(&HeaderMap::new()));
    }

    #[test]
    fn a_proxy_names_the_address_of_its_client_last() {
        let peer_of = |value| forwarded(&headers(&[("x-forwarded-for", value)]));
        assert_eq!(peer_of("10.0.0.1"), Some([10, 0, 0, 1].into()));
        assert_eq!(peer_of("the client's own, 10.0.0.1 , 192.0.2.7"), Some([192, 0, 2, 7].into()));
        assert_eq!(peer_of("10.0.0.1, unknown"), None);
    }
}
