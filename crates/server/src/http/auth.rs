//! Determines the permission of a request from its token.
//!
//! Also refuses changes that a browser sends for a page of another site. While the service has no tokens, also refuses
//! requests that seem to come from another machine. A request by DNS rebinding counts as such a request: a page of
//! another site has a host name that the site's own name server resolves to this machine.

use super::answer::Refused;
use crate::asker::{self, log_refused_token};
use crate::bodies::Hold;
use crate::client::note_known;
use crate::service::Service;
use crate::state::{Principal, TokenHash, hash, role_name};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use core::net::IpAddr;
use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use tourbillon_api::{Problem, ProblemKind, Role};

/// The permissions of a request. Each handler first checks these permissions.
#[derive(Debug)]
pub(super) struct Permission {
    principal: Principal,
    /// The hash of the request's token. `None` while the service has no tokens.
    token: Option<TokenHash>,
    /// Counts the bytes of the request's body towards the memory limit for bodies until this value is dropped.
    pub(super) hold: Hold<Option<TokenHash>>,
}

impl Permission {
    /// Fails unless the request has at least the role `role` in the namespace. If `namespace` is `None`, the request
    /// needs the role in all namespaces.
    pub(super) fn require(&self, role: Role, namespace: Option<&str>) -> Result<(), Refused> {
        if self.permits(role, namespace) {
            return Ok(());
        }
        let role = role_name(role);
        let detail = match namespace {
            Some(namespace) => format!("this needs the role {role} in the namespace {namespace:?}"),
            None => format!("this needs the role {role} in all namespaces"),
        };
        Err(Refused(Problem::new(ProblemKind::Forbidden, detail)))
    }

    /// Returns whether the request has at least the role `role` in the namespace. If `namespace` is `None`, the request
    /// needs the role in all namespaces.
    pub(super) fn permits(&self, role: Role, namespace: Option<&str>) -> bool {
        self.principal.permits(role, namespace)
    }

    /// Returns whether the request may see the payloads of timers in the given namespace.
    pub(super) fn sees_payloads(&self, namespace: &str) -> bool {
        self.permits(Role::Writer, Some(namespace))
    }

    /// Returns the hash of the request's token. `None` while the service has no tokens.
    pub(super) fn token(&self) -> Option<TokenHash> {
        self.token
    }

    /// Waits until the request's permissions change, for example because somebody revokes the request's token.
    pub(super) fn ended(&self, service: &Service) -> impl Future<Output = ()> + Send + use<> {
        service.tokens().ended(self.token, self.principal.clone())
    }
}

impl FromRequestParts<Service> for Permission {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Refused> {
        let (principal, token) = if service.tokens().is_open() {
            (Principal::ALL, None)
        } else {
            let unauthorised = |detail: &str| Refused(Problem::new(ProblemKind::Unauthorised, detail));
            let refused = |reason: &str| {
                log_refused_token(reason);
                unauthorised(reason)
            };
            let token = match token(&parts.headers) {
                Ok(token) => hash(token.ok_or_else(|| unauthorised("the request has no token"))?),
                Err(reason) => return Err(refused(reason)),
            };
            let principal = service.tokens().principal_of(&token).map_err(|fault| refused(fault.words()))?;
            asker::present().iter().for_each(|asker| asker.signed(&token));
            (principal, Some(token))
        };
        // The call follows the checks, because the server may close a connection whose requests are not authenticated.
        note_known(&parts.extensions, token);
        Ok(Self { principal, token, hold: service.bodies().hold(token) })
    }
}

/// Returns the token of a request. `None` if the request has no header `Authorization`. Fails with a reason if the
/// header has no bearer token.
fn token(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().map_err(|_| "the header is not a bearer token")?,
        (Some(_), Some(_)) => return Err("the request has more than one token"),
    };
    let (scheme, token) = value.split_once(' ').ok_or("the header is not a bearer token")?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err("the header is not a bearer token");
    }
    // RFC 9110 permits several spaces after the scheme.
    Ok(Some(token.trim_start_matches(' ')))
}

/// Checks a request before its handler runs. Fails if the request is a change that a browser sends for a page of
/// another site. While the service has no tokens, also fails if the request seems to come from another machine.
pub(super) fn admit(service: &Service, request: &Request) -> Result<(), Problem> {
    let (uri, headers) = (request.uri(), request.headers());
    if service.tokens().is_open()
        && let Some(refusal) = is_from_elsewhere(request.version(), uri, headers)
    {
        return Err(Problem::new(ProblemKind::Forbidden, refusal));
    }
    if is_from_another_site(request.method(), uri, headers) {
        let detail = "a page of another site must not change anything here";
        return Err(Problem::new(ProblemKind::Forbidden, detail));
    }
    Ok(())
}

/// Adds the header `WWW-Authenticate` to an answer with the status 401. The header says that the service expects a
/// bearer token. Leaves other answers unchanged.
pub(super) fn challenge(response: &mut Response, has_token: bool) {
    if response.status() != StatusCode::UNAUTHORIZED {
        return;
    }
    // RFC 6750 advises against an error code in the answer to a request without a token.
    let challenge = if has_token {
        r#"Bearer realm="tourbillon", error="invalid_token""#
    } else {
        r#"Bearer realm="tourbillon""#
    };
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
}

/// Returns the host name and port by which the client calls the service. `None` if the request does not name a host,
/// and `Some(Err)` if the host is invalid.
fn authority(uri: &Uri, headers: &HeaderMap) -> Option<Result<Authority, ()>> {
    // HTTP/2 names the host in the URI. In HTTP/1.1, a request line with a full URL overrides the header.
    if let Some(authority) = uri.authority() {
        return Some(Ok(authority.clone()));
    }
    let mut values = headers.get_all(HOST).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return Some(Err(()));
    }
    Some(Authority::try_from(value.as_bytes()).map_err(drop))
}

/// Returns whether a host name always means this machine: no resolver can give the name another address.
fn is_this_machine(authority: &Authority) -> bool {
    // A final dot only marks the name as absolute.
    let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns whether proxies usually add the header `name` to requests.
fn is_of_a_proxy(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "forwarded"
            | "via"
            | "x-forwarded-for"
            | "x-forwarded-host"
            | "x-forwarded-proto"
            | "x-forwarded-server"
            | "x-real-ip"
            | "x-envoy-external-address"
            | "x-envoy-expected-rq-timeout-ms"
    )
}

/// The header in which a browser names the relation of the requesting site to the service, such as `same-origin`.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns a reason to believe that a request comes from another machine. `None` if the request seems to come from this
/// machine. Only a service without tokens refuses requests for this reason.
///
/// By default nginx sends HTTP/1.0 requests to the service behind it, with the service's own address as the host. nginx
/// adds no header that names the client. But clients of today do not speak HTTP/1.0, so an HTTP/1.0 request comes from
/// a proxy.
fn is_from_elsewhere(version: Version, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
    if version < Version::HTTP_11 || headers.keys().any(is_of_a_proxy) {
        return Some("a service behind a proxy needs tokens");
    }
    match authority(uri, headers) {
        // Browsers always name the host, so a request without a host does not come from a page.
        None => None,
        Some(Ok(authority)) if is_this_machine(&authority) => None,
        Some(_) => Some("a service without tokens is called by a name or an address of this machine only"),
    }
}

/// Returns whether the request is a change that a browser sends for a page of another site. The checked headers come
/// only from browsers, and pages cannot change them.
fn is_from_another_site(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    if method.is_safe() {
        return false;
    }
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        // `none` stands for an act of the user, such as a typed address. `same-site` is refused, because it includes
        // other ports and other hosts of the same domain.
        return site != "same-origin" && site != "none";
    }
    // Browsers send `Sec-Fetch-Site` only over HTTPS or to this machine. For other addresses, `Origin` decides.
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let origin = origin.and_then(|origin| origin.into_parts().authority);
    match (origin, authority(uri, headers)) {
        (Some(origin), Some(Ok(authority))) => origin != authority,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn names_of_this_machine_are_known_whatever_they_resolve_to() {
        for name in [
            "localhost",
            "LOCALHOST:7670",
            "localhost.",
            "a.localhost:1",
            "127.0.0.1:7670",
            "127.9.9.9",
            "[::1]:7670",
        ] {
            assert!(is_this_machine(&name.parse().unwrap()), "{name}");
        }
        for name in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "2130706433",
            "169.254.169.254",
        ] {
            assert!(!is_this_machine(&name.parse().unwrap()), "{name}");
        }
    }

    #[test]
    fn a_request_from_elsewhere_is_known() {
        let uri = Uri::from_static("/v1");
        let is_from_elsewhere =
            |uri: &Uri, headers: &HeaderMap| is_from_elsewhere(Version::HTTP_11, uri, headers);
        assert!(is_from_elsewhere(&uri, &headers(&[])).is_none());
        assert!(is_from_elsewhere(&uri, &headers(&[("host", "localhost")])).is_none());
        let of_a_proxy = super::is_from_elsewhere(Version::HTTP_10, &uri, &headers(&[("host", "localhost")]));
        assert!(of_a_proxy.is_some(), "a bare proxy_pass of nginx");
        for list in [
            &[("host", "evil.example")][..],
            &[("host", "")],
            &[("host", "localhost"), ("forwarded", "for=1.2.3.4")],
            &[("host", "localhost"), ("x-forwarded-for", "1.2.3.4")],
            &[("host", "localhost"), ("x-real-ip", "1.2.3.4")],
            &[("host", "localhost"), ("via", "1.1 varnish")],
        ] {
            assert!(is_from_elsewhere(&uri, &headers(list)).is_some(), "{list:?}");
        }
        let mut two = headers(&[("host", "localhost")]);
        two.append(HOST, HeaderValue::from_static("evil.example"));
        assert!(is_from_elsewhere(&uri, &two).is_some());
        assert!(is_from_elsewhere(&Uri::from_static("http://evil.example/"), &headers(&[])).is_some());
    }

    #[test]
    fn a_request_from_another_site_is_known() {
        let uri = Uri::from_static("/v1");
        let host = ("host", "localhost:7670");
        for (list, expected) in [
            (&[host][..], false),
            (&[host, ("sec-fetch-site", "same-origin")], false),
            (&[host, ("sec-fetch-site", "none")], false),
            (&[host, ("origin", "http://localhost:7670")], false),
            (&[host, ("sec-fetch-site", "same-site")], true),
            (&[host, ("sec-fetch-site", "cross-site")], true),
            (&[host, ("origin", "http://evil.example")], true),
            (&[host, ("origin", "http://localhost:8000")], true),
            (&[host, ("origin", "null")], true),
            (&[("origin", "http://localhost:7670")], true),
        ] {
            assert_eq!(is_from_another_site(&Method::POST, &uri, &headers(list)), expected, "{list:?}");
            assert!(!is_from_another_site(&Method::GET, &uri, &headers(list)));
        }
    }
}
