//! Serves the web pages of the service, under `/ui`.
//!
//! The service renders each page, and the page can be read without a script. The script refreshes the changing parts of
//! a page when the stream of `live` says so. The templates escape all values. Headers forbid scripts, styles and frames
//! of any other origin.
//!
//! Each handler checks the visitor's permission. Then it calls the same functions of the service as the HTTP interface
//! does.

mod access;
mod act;
mod assets;
mod audit;
mod chart;
mod chosen;
mod conditions;
mod dead;
mod ended;
mod endpoints;
mod escape;
mod fault;
mod groups;
mod live;
mod many;
mod nodes;
mod overview;
mod posted;
mod queues;
mod rows;
mod schedule;
mod schedules;
mod session;
mod sign;
mod text;
mod timer;
mod timers;
mod view;
mod visitor;

use crate::service::Service;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use fault::Fault;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS};
use http::{HeaderName, HeaderValue};
use session::Sessions;
use std::sync::Arc;
use visitor::Seen;

/// Returns the routes of all pages.
pub(crate) fn routes() -> Router<Service> {
    let pages = Router::new()
        .route("/ui", get(async || Redirect::to("/ui/")))
        .route("/ui/", get(overview::show_overview))
        .route("/ui/timers", get(timers::show_timers))
        .route("/ui/timers/{namespace}/{id}", get(timer::show_timer))
        .route("/ui/timers/{namespace}/{id}/{verb}", post(act::one))
        .route("/ui/ended", get(ended::show_ended))
        .route("/ui/queues", get(queues::show_queues))
        .route("/ui/dead", get(dead::show_dead))
        .route("/ui/dead/groups", get(groups::show_groups))
        .route("/ui/dead/chosen/{verb}", post(chosen::change))
        .route("/ui/many/{verb}", post(many::begin))
        .route("/ui/operations/{namespace}/{id}", get(many::show_operation))
        .route("/ui/schedules", get(schedules::show_schedules))
        .route("/ui/schedules/{namespace}/{key}", get(schedule::show_schedule))
        .route("/ui/schedules/{namespace}/{key}/{verb}", post(schedule::change))
        .route("/ui/endpoints", get(endpoints::show_endpoints))
        .route("/ui/audit", get(audit::show_audit))
        .route("/ui/endpoints/reopen", post(endpoints::reopen))
        .route("/ui/nodes", get(nodes::show_nodes))
        .route("/ui/access", get(access::show_access))
        .route("/ui/access/namespaces/{verb}", post(access::change_namespace))
        .route("/ui/access/tokens/{verb}", post(access::change_token))
        .route("/ui/sign-in", get(sign::form).post(sign::sign_in).layer(DefaultBodyLimit::max(sign::LONGEST)))
        .route("/ui/sign-out", post(sign::sign_out))
        .route("/ui/live", get(live::stream))
        .route("/ui/style.css", get(assets::style))
        .route("/ui/app.js", get(assets::script))
        .route("/ui/icon.svg", get(assets::icon))
        // A fallback would not work here: the HTTP interface replaces it by its own fallback when it adds these routes.
        .route("/ui/{*rest}", get(async || Fault::no_page().into_response()))
        .method_not_allowed_fallback(async || Fault::wrong_method().into_response())
        // Layers apply only to the routes and fallbacks before them, so the layers come last. Without `guard`, a fault
        // would be an empty response with the status 200.
        .layer(Extension(Arc::new(Sessions::new())))
        .layer(from_fn(guard));
    Router::new().route("/", get(async || Redirect::to("/ui/"))).merge(pages)
}

/// The content security policy of all pages. It permits a page to load files only from its own service, and to send
/// requests only there.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Passes a request for a page to its handler. If the response has a fault, renders the fault as a page. Also adds
/// headers that restrict the browser.
async fn guard(mut request: axum::extract::Request, next: Next) -> Response {
    let seen = Seen::default();
    request.extensions_mut().insert(seen.clone());
    let mut response = next.run(request).await;
    if let Some(fault) = response.extensions_mut().remove::<Fault>() {
        response = fault.page(seen.0.get());
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        // Addresses contain keys and labels, so the browser must not show them to other sites. The value `no-referrer`
        // would do that too, but then browsers send forms with the origin `null`.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
