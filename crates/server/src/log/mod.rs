//! Writes the log of a service to the standard error. Each event that this crate emits with `tracing` makes a line.
//!
//! A line has the moment in UTC, a level, a kind, a message and fields. The kind is the event's target, and the guide
//! lists all kinds. The following rules hold for every line, so callers need not care about them:
//!
//! - Many events of the same kind make few lines: [`storm`].
//! - A value with line breaks still fits into its line, because control characters are escaped: [`line`].
//! - Events of other crates make no lines. For example, a line about a connection would show the headers of requests,
//!   which contain tokens.

mod line;
mod storm;

pub(crate) use storm::{finish, settle};

use crate::asker;
use crate::request_id::RequestId;
use std::panic;
use std::time::Instant;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber, error};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::{fmt, registry};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines of plain text with the moment, the level, the event's kind (its `tracing` target), the message and the
    /// fields.
    Text,
    /// Lines with a JSON object each.
    Json,
}

/// Begins to log panics, and the events of `level` and of more severe levels. Only the first call in a process has an
/// effect.
pub(crate) fn begin(level: LevelFilter, form: Form) {
    let lines = fmt::layer().with_ansi(false).with_writer(line::Stderr);
    let lines = match form {
        Form::Text => lines.boxed(),
        Form::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    if set_global_default(registry().with(lines).with(Own(level))).is_ok() {
        panic::set_hook(Box::new(|panic| {
            let at = panic.location().map(ToString::to_string);
            let payload = panic.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let message = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let request = asker::request_id();
            let request = request.as_ref().map(RequestId::text);
            error!(target: "panic", request, at, message, "a part of the service panicked");
        }));
    }
}

/// Selects the events that become log lines: this crate's events of this severity or a greater severity. [`storm`] then
/// limits the number of lines for events with the same target.
struct Own(LevelFilter);

impl Own {
    fn takes(&self, event: &Metadata<'_>) -> bool {
        // The module decides and not the target, because the target names the event's kind.
        let is_own = event.module_path().is_some_and(|path| path.starts_with(env!("CARGO_CRATE_NAME")));
        is_own && *event.level() <= self.0
    }
}

impl<S: Subscriber> Layer<S> for Own {
    fn register_callsite(&self, event: &'static Metadata<'static>) -> Interest {
        if self.takes(event) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, event: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.takes(event)
    }

    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        // Lines are counted here and not in `enabled`, because `tracing` skips `enabled` for the events to which
        // `register_callsite` has answered `always`.
        storm::admits(event.metadata(), Instant::now())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }
}
