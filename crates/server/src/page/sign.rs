//! Signs visitors in and out.

use super::conditions::Search;
use super::fault::Fault;
use super::posted::{Fields, Posted};
use super::session::LASTS;
use super::view::{Frame, show};
use super::visitor::{Open, cookie, cookie_name};
use crate::asker::log_refused_token;
use crate::client::{network, peer};
use crate::service::Service;
use crate::state::hash;
use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::header::SET_COOKIE;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tourbillon_api::{Problem, ProblemKind};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    frame: Frame<'a>,
    to: &'a str,
    has_failed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    /// The address of the page for which the visitor asked. After signing in, the visitor is redirected to this page.
    to: String,
}

/// Returns the address to which a visitor is redirected after signing in. If `to` is not an address of this service's
/// pages, returns the overview.
fn destination(to: &str) -> &str {
    // The address comes from the client and becomes the header `Location`, so it may have only characters that are
    // valid in a header.
    let is_ours =
        to.starts_with("/ui/") && to.len() <= 4_096 && to.bytes().all(|byte| byte.is_ascii_graphic());
    if is_ours && !to.contains('\\') { to } else { "/ui/" }
}

fn page(to: &str, has_failed: bool) -> Response {
    let frame = Frame { visitor: None, at: "", is_live: false };
    show(&SignIn { frame, to: destination(to), has_failed })
}

/// Shows the form in which a visitor signs in. While the service has no tokens, redirects at once to the page for which
/// the visitor asked.
pub(super) async fn form(State(service): State<Service>, asked: Result<Search<Query>, Fault>) -> Response {
    let to = asked.map(|Search(asked)| asked.to).unwrap_or_default();
    if service.tokens().is_open() { Redirect::to(destination(&to)).into_response() } else { page(&to, false) }
}

/// Returns the value of the header `Set-Cookie` for a session's cookie. The browser keeps the cookie for `seconds`, and
/// deletes it if `seconds` is 0.
fn set_cookie(service: &Service, value: &str, seconds: u64) -> String {
    let over_tls = service.settings().over_tls;
    let secure = if over_tls { "; Secure" } else { "" };
    // Browsers accept a cookie whose name begins with `__Host-` only with `Secure`, with `Path=/` and without a domain.
    format!("{}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}", cookie_name(over_tls))
}

/// The greatest size of the form in which a visitor signs in, in bytes. The limit is low, because anybody may send this
/// form.
pub(super) const LONGEST: usize = 4 << 10;

/// Begins a session if the form contains a valid token. Otherwise shows the form again. A form from another site is
/// refused before this handler runs.
pub(super) async fn sign_in(
    State(service): State<Service>,
    Extension(sessions): Open,
    request: Request,
) -> Result<Response, Fault> {
    let former = cookie(request.headers(), service.settings().over_tls).map(str::to_owned);
    // The sender is not known before the token is checked, so the memory of the form counts for the sender's network.
    let hold = service.forms().hold(peer(request.extensions()).map(network));
    let fields = Fields::read(request, &hold).await?;
    let token = fields.get("token").trim();
    if let Err(fault) = service.tokens().principal(token) {
        log_refused_token(fault.words());
        return Ok((StatusCode::FORBIDDEN, page(fields.get("to"), true)).into_response());
    }
    // The new cookie replaces the former cookie in the browser, so nobody could sign out of the former session.
    if let Some(former) = former {
        sessions.end(&former);
    }
    let cookie = sessions
        .begin(hash(token))
        .ok_or_else(|| Problem::new(ProblemKind::Internal, "the system gives no random numbers"))?;
    let header = [(SET_COOKIE, set_cookie(&service, &cookie, LASTS.as_secs()))];
    Ok((header, Redirect::to(destination(fields.get("to")))).into_response())
}

/// Ends the visitor's session, and makes the browser delete the session's cookie.
pub(super) async fn sign_out(
    State(service): State<Service>,
    Extension(sessions): Open,
    headers: HeaderMap,
    _form: Posted,
) -> Response {
    if let Some(cookie) = cookie(&headers, service.settings().over_tls) {
        sessions.end(cookie);
    }
    ([(SET_COOKIE, set_cookie(&service, "", 0))], Redirect::to("/ui/sign-in")).into_response()
}

#[cfg(test)]
mod tests {
    use super::destination;

    #[test]
    fn nobody_is_led_to_another_site() {
        assert_eq!(destination("/ui/timers?q=a"), "/ui/timers?q=a");
        for to in [
            "",
            "//evil.example",
            "https://evil.example/ui/",
            "/ui",
            "/\\evil.example",
            "/ui/\\e",
            "/ui/\r\nx: y",
        ] {
            assert_eq!(destination(to), "/ui/", "{to:?}");
        }
    }
}
