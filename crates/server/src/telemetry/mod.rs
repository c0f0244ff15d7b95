//! Makes spans of creations and deliveries, and sends them to an OpenTelemetry collector. A *span* is the record of one
//! piece of work. The spans of related work form a *trace*.
//!
//! ```text
//!   creation ──► span "create"  ─┐ try_send                          OTLP over HTTP
//!   attempt  ──► span "deliver" ─┴──────────► queue ──► one task ──────────────────► collector
//!                                             full: the span is dropped and counted
//! ```
//!
//! The caller's header `traceparent` decides whether a trace is recorded. A creation without this header begins a new
//! trace. A configured share of the new traces is recorded. The context of the creation's span consists of the trace's
//! id and the span's id, and is stored with the timer. The span of each attempt is a child of the creation's span.
//!
//! A timer that a schedule makes has no stored context. The id of its trace is the timer's id, so all attempts of the
//! timer belong to a single trace.
//!
//! Without the feature `otel` or without a collector, no spans are made. Contexts are still passed from creations to
//! deliveries. The names of spans and attributes follow OpenTelemetry's conventions for messaging and for HTTP clients.
//! Names that begin with `tourbillon.` belong to the service.

#[cfg(feature = "otel")]
mod collector;
mod counts;
#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
#[path = "none.rs"]
mod export;

pub(crate) use counts::Counts;

use crate::clock::millis;
use crate::settings::TelemetrySettings;
use crate::state::Trace;
use core::fmt;
use core::time::Duration;
use export::{Exporter, Kind, Open};
use std::sync::Arc;
use tourbillon_api::{Placed, Problem};
use tourbillon_durable::{Delivery, Verdict};

/// The least and the greatest time limit for sending the waiting spans when the service ends.
const LAST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Makes a span for each creation of a timer, and for each attempt to deliver a timer. Clones share the exporter, which
/// sends the spans to the collector.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    exporter: Option<Exporter>,
    /// The fraction of new traces that is recorded, from 0 to 1. A trace that a caller has begun is not new.
    share: f64,
    counts: Arc<Counts>,
}

impl Telemetry {
    /// Begins to send spans to the collector that the settings name. Does nothing if the settings name no collector.
    /// `certificates` are trusted besides the public certificate authorities. Must be called on a tokio runtime.
    pub(crate) fn start(settings: &TelemetrySettings, certificates: &[Vec<u8>]) -> Result<Self, Box<str>> {
        let counts = Arc::<Counts>::default();
        let exporter = match &settings.endpoint {
            Some(endpoint) => Some(Exporter::start(endpoint, settings, certificates, &counts)?),
            None => None,
        };
        Ok(Self { exporter, share: settings.share, counts })
    }

    /// Begins the span of a request that creates a timer. `caller` is the trace context in the request. `None` begins a
    /// new trace.
    pub(crate) fn creation(&self, caller: Option<Trace>, namespace: &str, key: Option<&str>) -> Span {
        let (exporter, own) = match self.recording(caller, Trace::root) {
            Ok(recording) => recording,
            Err(trace) => return Span { trace, open: None },
        };
        let parent = caller.map(Trace::span);
        let mut open = exporter.open("create", Kind::Producer, own, parent, true);
        open.text("messaging.system", "tourbillon");
        open.text("messaging.operation.name", "create");
        open.text("messaging.operation.type", "create");
        open.text("tourbillon.namespace", namespace);
        if let Some(key) = key {
            open.text("tourbillon.timer.key", key);
        }
        Span { trace: Some(own), open: Some(open) }
    }

    /// Begins the span of an attempt to send a timer's callback.
    pub(crate) fn callback(&self, delivery: &Delivery, method: &str, url: &str) -> Span {
        let mut span = self.delivery(delivery, Kind::Client);
        if let Some(open) = &mut span.open {
            open.text("http.request.method", method);
            open.url(url);
            // By OpenTelemetry's conventions, only a repeated request has this attribute.
            if delivery.attempt > 1 {
                open.number("http.request.resend_count", u64::from(delivery.attempt - 1));
            }
        }
        span
    }

    /// Begins the span of an attempt to deliver a timer to a receiver that has fetched the timer from the queue
    /// `queue`.
    pub(crate) fn claim(&self, delivery: &Delivery, queue: &str) -> Span {
        // The receiver makes a span of the kind consumer, so this side is the producer.
        let mut span = self.delivery(delivery, Kind::Producer);
        if let Some(open) = &mut span.open {
            open.text("messaging.system", "tourbillon");
            open.text("messaging.operation.name", "deliver");
            open.text("messaging.destination.name", queue);
            open.text("messaging.message.id", &delivery.id.to_string());
        }
        span
    }

    fn delivery(&self, delivery: &Delivery, kind: Kind) -> Span {
        let stored = delivery.trace.as_deref().and_then(Trace::parse);
        let (exporter, own) = match self.recording(stored, |share| Trace::of(delivery.id.as_u128(), share)) {
            Ok(recording) => recording,
            Err(trace) => return Span { trace: trace.and_then(Trace::child), open: None },
        };
        let mut open = exporter.open("deliver", kind, own, stored.map(Trace::span), false);
        open.text("tourbillon.namespace", &delivery.namespace);
        open.text("tourbillon.timer.id", &delivery.id.to_string());
        if let Some(key) = &delivery.key {
            open.text("tourbillon.timer.key", key);
        }
        open.number("tourbillon.attempt", delivery.attempt.into());
        open.number("tourbillon.lateness_ms", millis(delivery.lateness));
        Span { trace: Some(own), open: Some(open) }
    }

    /// Returns the exporter and the trace context for a new span. The span belongs to the trace of `before`, the
    /// context that came with the request or is stored with the timer. If `before` is `None`, the span begins a new
    /// trace with the context that `new` makes.
    ///
    /// Returns an error if no span is recorded. The error contains the trace context of the work without a span, if the
    /// work belongs to a trace. The creation of a timer stores this context with the timer. A delivery derives another
    /// context from it, and sends that context to the timer's receiver.
    fn recording(
        &self,
        before: Option<Trace>,
        new: impl FnOnce(f64) -> Option<Trace>,
    ) -> Result<(&Exporter, Trace), Option<Trace>> {
        let Some(exporter) = &self.exporter else { return Err(before) };
        let own = match before {
            Some(before) if !before.is_sampled() => return Err(Some(before)),
            Some(before) => before.child(),
            None => new(self.share),
        };
        match own {
            Some(own) if own.is_sampled() => Ok((exporter, own)),
            Some(own) => Err(Some(own)),
            None => Err(before),
        }
    }

    /// Returns the numbers of spans that were exported, that failed, and that were dropped.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the error of the last request to the collector. Returns `None` if the last request succeeded, or if no
    /// request was sent.
    pub(crate) fn fault(&self) -> Option<Box<str>> {
        self.exporter.as_ref().and_then(Exporter::fault)
    }

    /// Sends the waiting spans to the collector, and accepts no further spans. Blocks the calling thread for at most
    /// `patience`, which is raised to at least half a second and limited to five seconds. A second call returns at
    /// once.
    pub(crate) fn close(&self, patience: Duration) {
        if let Some(exporter) = &self.exporter {
            exporter.close(patience.clamp(LAST.0, LAST.1));
        }
    }
}

/// The span of a timer's creation or of an attempt to deliver a timer, with the trace context of this work. Dropping
/// the value ends the span. If no outcome was noted before, the span says that the work was given up.
pub(crate) struct Span {
    trace: Option<Trace>,
    open: Option<Box<Open>>,
}

impl Span {
    /// Returns the trace context that the creation stores with the timer, or that the delivery sends to the timer's
    /// receiver. There is a context even if the trace is not recorded. Returns `None` if the creation or the delivery
    /// belongs to no trace.
    pub(crate) const fn trace(&self) -> Option<Trace> {
        self.trace
    }

    /// Notes the outcome of a timer's creation in the span. `answer` is the answer to the client.
    pub(crate) fn created(&mut self, answer: &Result<Placed, Problem>) {
        match (answer, &mut self.open) {
            (Ok(placed), Some(open)) => {
                open.text("messaging.message.id", &placed.id);
                open.text("tourbillon.timer.id", &placed.id);
                open.text("tourbillon.outcome", &format!("{:?}", placed.outcome).to_lowercase());
                open.succeed();
            }
            (Err(problem), _) => self.refused(problem),
            _ => {}
        }
    }

    /// Notes in the span that the creation of a timer was refused.
    pub(crate) fn refused(&mut self, problem: &Problem) {
        if let Some(open) = &mut self.open {
            let word = problem.kind.path();
            open.fail(word.strip_prefix("/problems/").unwrap_or(word), &problem.detail);
        }
    }

    /// Notes in the span how a callback ended. `class` is the word by which metrics count the outcome.
    pub(crate) fn answered(&mut self, status: Option<u16>, class: &str, error: Option<&str>) {
        let Some(open) = &mut self.open else { return };
        if let Some(status) = status {
            open.number("http.response.status_code", status.into());
        }
        match (status, error) {
            (_, None) => open.succeed(),
            // By OpenTelemetry's conventions, the error type of an answered request is its status.
            (Some(status), Some(error)) => open.fail(&status.to_string(), error),
            (None, Some(error)) => open.fail(class, error),
        }
    }

    /// Notes in the span how a receiver's claim ended. `None` means that the timer went back to its queue.
    pub(crate) fn ended(&mut self, verdict: Option<&Verdict>) {
        let Some(open) = &mut self.open else { return };
        match verdict {
            Some(Verdict::Done) => open.succeed(),
            Some(Verdict::Retry { error, .. }) => open.fail("retry", error),
            Some(Verdict::Dead(error)) => open.fail("dead", error),
            Some(Verdict::Snooze(_)) => open.fail("snoozed", "the receiver has put the timer off"),
            _ => open.fail("given-back", "the timer was given back"),
        }
    }

    /// Drops the span without sending it. Called if the attempt did not take place.
    pub(crate) fn discard(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.discard();
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("trace", &self.trace).finish_non_exhaustive()
    }
}
