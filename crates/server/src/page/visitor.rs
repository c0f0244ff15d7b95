//! Determines who has sent a request for a page, and which permissions the sender has.

use super::session::Sessions;
use crate::asker;
use crate::client::note_known;
use crate::service::Service;
use crate::state::{Principal, TokenHash, role_name};
use axum::Extension;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::{Arc, OnceLock};
use tourbillon_api::Role;

/// The sender of a request for a page, with the sender's permissions and CSRF token.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    principal: Principal,
    /// The hash of the token with which the visitor has signed in. `None` while the service has no tokens.
    token: Option<TokenHash>,
    /// The CSRF token that each of the visitor's forms must carry. Pages of other sites do not know this token.
    pub(super) mark: Box<str>,
    /// Whether the service has no token file, and so needs no access tokens. Then nobody signs in, and everybody may do
    /// everything.
    pub(super) is_open: bool,
    /// Whether several nodes share the timers.
    pub(super) has_nodes: bool,
}

impl Visitor {
    /// Returns whether the visitor may see the timers of a namespace.
    pub(super) fn reads(&self, namespace: &str) -> bool {
        self.principal.permits(Role::Reader, Some(namespace))
    }

    /// Returns whether the visitor may see all namespaces, and the service as a whole.
    pub(super) fn reads_all(&self) -> bool {
        self.principal.permits(Role::Reader, None)
    }

    /// Returns whether the visitor may change a namespace's timers. Only such a visitor sees the payloads of the
    /// timers.
    pub(super) fn writes(&self, namespace: &str) -> bool {
        self.principal.permits(Role::Writer, Some(namespace))
    }

    /// Returns whether the visitor may change the timers of all namespaces.
    pub(super) fn writes_all(&self) -> bool {
        self.principal.permits(Role::Writer, None)
    }

    /// Returns whether the visitor is an administrator of the whole service, who may change namespaces and tokens.
    pub(super) fn rules(&self) -> bool {
        self.principal.permits(Role::Admin, None)
    }

    /// Returns the namespace to which the visitor's token is limited. `None` if the token is for all namespaces.
    pub(super) fn only_namespace(&self) -> Option<&str> {
        self.principal.namespace.as_deref()
    }

    /// Returns the hash of the token with which the visitor has signed in. `None` while the service has no tokens.
    pub(super) fn token(&self) -> Option<TokenHash> {
        self.token
    }

    /// Waits until the visitor's permissions change, for example because somebody revokes the visitor's token.
    pub(super) fn ended(&self, service: &Service) -> impl Future<Output = ()> + Send + use<> {
        service.tokens().ended(self.token, self.principal.clone())
    }

    /// Describes the visitor's permissions in words, such as "writer of shop".
    pub(super) fn right(&self) -> String {
        let role = role_name(self.principal.role);
        match self.only_namespace() {
            Some(namespace) => format!("{role} of {namespace}"),
            None => role.to_owned(),
        }
    }
}

/// Returns the name of the session's cookie. Over TLS the name begins with `__Host-`, because browsers send such a
/// cookie only to the host that has set it.
pub(super) fn cookie_name(over_tls: bool) -> &'static str {
    if over_tls { "__Host-tourbillon" } else { "tourbillon" }
}

/// Returns the value of the session's cookie from the headers of a request. `None` if the request has no such cookie.
pub(super) fn cookie(headers: &HeaderMap, over_tls: bool) -> Option<&str> {
    // Over HTTP/2, a browser may send each cookie in a header of its own.
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == cookie_name(over_tls)).map(|(_, value)| value)
}

/// Returns the sessions of all browsers. The routes attach the sessions to each request.
pub(super) fn sessions(parts: &Parts) -> Option<Arc<Sessions>> {
    parts.extensions.get::<Arc<Sessions>>().cloned()
}

/// Returns the sender of a request. `None` if the sender has not signed in, or if the session has ended.
fn visitor(parts: &Parts, service: &Service) -> Option<Visitor> {
    let sessions = sessions(parts)?;
    let has_nodes = service.namespaces().is_shared();
    if service.tokens().is_open() {
        let (principal, mark) = (Principal::ALL, sessions.mark());
        return Some(Visitor { principal, token: None, mark, is_open: true, has_nodes });
    }
    let session = sessions.find(cookie(&parts.headers, service.settings().over_tls)?)?;
    // The token is looked up for each request, so a revoked or expired token ends its sessions.
    let principal = service.tokens().principal_of(&session.token).ok()?;
    asker::present().iter().for_each(|asker| asker.signed(&session.token));
    let (token, mark) = (Some(session.token), session.mark);
    Some(Visitor { principal, token, mark, is_open: false, has_nodes })
}

/// A slot in the extensions of a request for the sender of the request. The extractor of [`Visitor`] fills it, and the
/// page about a fault reads it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(pub(super) Arc<OnceLock<Visitor>>);

impl FromRequestParts<Service> for Visitor {
    type Rejection = Response;

    /// Determines the sender of a request. If the sender has not signed in, fails with a redirect to the form in which
    /// visitors sign in.
    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Response> {
        let visitor = visitor(parts, service).inspect(|visitor| {
            note_known(&parts.extensions, visitor.token);
            if let Some(Seen(seen)) = parts.extensions.get() {
                seen.get_or_init(|| visitor.clone());
            }
        });
        visitor.ok_or_else(|| {
            let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
            if path.starts_with("/ui/live") {
                // A stream of events cannot use a form, so it gets a status and not a redirect.
                return StatusCode::UNAUTHORIZED.into_response();
            }
            // The address of a form permits no `GET`, so the visitor could not open it after signing in. The overview
            // is the default page.
            if parts.method != Method::GET || path == "/ui/" {
                return Redirect::to("/ui/sign-in").into_response();
            }
            let to = utf8_percent_encode(path, NON_ALPHANUMERIC);
            Redirect::to(&format!("/ui/sign-in?to={to}")).into_response()
        })
    }
}

/// An extractor that gives a handler the sessions of all browsers.
pub(super) type Open = Extension<Arc<Sessions>>;
