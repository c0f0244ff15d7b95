//! Builds the parts that all pages share: the frame with the navigation, the display of moments, and the response.

use super::text::{ago_or_in, plain};
use super::visitor::Visitor;
use crate::convert::moment;
use crate::service::Service;
use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};
use http::StatusCode;
use tourbillon_api::Moment;

/// The data that the frame around each page shows: the navigation and the visitor.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// The visitor who sees the page. `None` if the visitor has not signed in.
    pub(super) visitor: Option<&'a Visitor>,
    /// The name of the page's entry in the navigation. If the name is empty, the navigation marks no entry.
    pub(super) at: &'a str,
    /// Whether the page's script refreshes the page again and again.
    pub(super) is_live: bool,
}

impl<'a> Frame<'a> {
    pub(super) fn new(visitor: &'a Visitor, at: &'a str) -> Self {
        Self { visitor: Some(visitor), at, is_live: true }
    }

    /// Makes the frame of a page that no script refreshes.
    pub(super) fn still(visitor: &'a Visitor, at: &'a str) -> Self {
        Self { visitor: Some(visitor), at, is_live: false }
    }

    /// Returns whether several nodes share the timers. If so, the navigation links to the page of nodes.
    pub(super) fn has_nodes(&self) -> bool {
        self.visitor.is_some_and(|visitor| visitor.has_nodes)
    }

    /// Returns the CSRF token that each form of the page must carry.
    pub(super) fn mark(&self) -> &str {
        self.visitor.map_or("", |visitor| &visitor.mark)
    }

    /// Returns whether the visitor may change the timers of a namespace.
    pub(super) fn writes(&self, namespace: &str) -> bool {
        self.visitor.is_some_and(|visitor| visitor.writes(namespace))
    }

    pub(super) fn is_at(&self, at: &str) -> bool {
        self.at == at
    }
}

/// Renders a page as a response.
pub(super) fn show(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        // Rendering writes to a string, which cannot fail. So this arm is never reached.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A moment as pages show it: in UTC, together with its distance from now.
#[derive(Debug, Template)]
#[template(
    ext = "html",
    source = r#"<time datetime="{{ at }}" title="{{ plain }} UTC">{{ plain }}</time> <span class="rel" data-at="{{ millis }}">{{ relative }}</span>"#
)]
pub(super) struct When {
    at: String,
    plain: String,
    relative: String,
    millis: u64,
}

impl When {
    pub(super) fn new(at: Moment, now: Moment) -> Self {
        let millis = at.as_millis();
        Self { at: at.to_string(), plain: plain(at), relative: ago_or_in(millis, now.as_millis()), millis }
    }
}

/// Returns the present moment by the store's clock.
pub(super) fn now(service: &Service) -> Moment {
    moment(service.timers().timer_store().now())
}

/// Returns the word for a phase in pages and addresses, such as "pending".
pub(super) fn phase_name(phase: tourbillon_api::Phase) -> &'static str {
    use tourbillon_api::Phase::{Dead, Done, Leased, Parked, Pending, Withdrawn};
    match phase {
        Pending => "pending",
        Leased => "leased",
        Parked => "parked",
        Dead => "dead",
        Done => "done",
        Withdrawn => "withdrawn",
    }
}

/// Returns the message that a page shows after a change. `done` is the word for the change, such as `cancel`. Returns
/// `None` for an unknown word.
pub(super) fn done_words(done: &str) -> Option<&'static str> {
    Some(match done {
        "fire" => "The timer is due now.",
        "pause" => "The timer is paused.",
        "resume" => "The timer was resumed.",
        "replay" => "The timer is delivered again.",
        "cancel" => "The timer was cancelled.",
        "cancel-in-flight" => {
            "The timer was cancelled after a delivery had begun. No further delivery follows."
        }
        "replay-chosen" => "The chosen timers are delivered again.",
        "drop-chosen" => "The chosen timers were dropped.",
        "part" => {
            "Some of the chosen timers stayed as they are: others have changed them, or their keys are taken."
        }
        "gone" => "There was no such timer any more.",
        _ => return None,
    })
}
