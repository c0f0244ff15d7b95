//! Keeps spans while they are open, and sends ended spans to the collector.
//!
//! The service never waits for the collector. An ended span is put into a queue. If the queue is full, the span is
//! dropped and counted. If a batch cannot be sent, it is sent once more, provided that OTLP permits this. A batch that
//! fails again is dropped, and its spans are counted.

use super::collector::{Collector, Failed};
use super::counts::Counts;
use crate::settings::TelemetrySettings;
use crate::state::Trace;
use crate::text::cut;
use core::fmt;
use core::time::Duration;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message as _;
use std::sync::mpsc::Receiver as Ended;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use url::Url;

/// The greatest number of ended spans that wait to be sent to the collector.
const WAITING: usize = 2_048;
/// The greatest length of a text in a span, in bytes. A longer text is cut, to bound the memory for waiting spans. The
/// longest callback URL that the default rules permit is not cut.
const LONGEST: usize = 2_048;
/// The greatest number of spans in one request to the collector.
const BATCH: usize = 512;
/// The longest time for which a span waits for further spans before it is sent.
const PERIOD: Duration = Duration::from_secs(5);
/// The longest pause before a batch of spans is sent again, even if the collector asks for a longer pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A bit in the flags of a span. If it is set, the bit [`IS_REMOTE`] says whether the parent span is in another
/// process. Otherwise the flags do not say this.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The kind of a span, as OpenTelemetry defines it. A producer makes work for a later consumer, and a client calls a
/// server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Producer,
    Client,
}

/// Takes ended spans, and sends them to the collector in its own task. Clones share the task.
#[derive(Clone)]
pub(super) struct Exporter(Arc<Shared>);

struct Shared {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
    /// The error of the last batch of spans. `None` if the collector took the last batch.
    fault: Mutex<Option<Box<str>>>,
    stop: watch::Sender<bool>,
    /// A channel without messages. The channel closes when the task that sends spans ends.
    ended: Mutex<Option<Ended<()>>>,
}

impl Exporter {
    pub(super) fn start(
        endpoint: &str,
        settings: &TelemetrySettings,
        certificates: &[Vec<u8>],
        counts: &Arc<Counts>,
    ) -> Result<Self, Box<str>> {
        let collector = Collector::new(endpoint, &settings.headers, certificates)?;
        let (queue, waiting) = mpsc::channel(WAITING);
        let (alive, ended) = std::sync::mpsc::channel();
        let stop = watch::Sender::new(false);
        let stopping = stop.subscribe();
        let shared = Arc::new(Shared {
            queue,
            counts: Arc::clone(counts),
            fault: Mutex::default(),
            stop,
            ended: Mutex::new(Some(ended)),
        });
        let resource = Resource {
            attributes: vec![
                text("service.name", &settings.service_name),
                text("service.version", env!("CARGO_PKG_VERSION")),
            ],
            ..Resource::default()
        };
        let task = Task {
            collector,
            resource,
            waiting,
            stopping,
            // `Shared` has the queue's sender. With a strong reference here, the queue would never close by itself, and
            // the task would never end.
            shared: Arc::downgrade(&shared),
            counts: Arc::clone(counts),
        };
        drop(tokio::spawn(async move {
            task.run().await;
            drop(alive);
        }));
        Ok(Self(shared))
    }

    /// Opens a span. `own` is the trace context of the new span. `parent` is the id of the span that caused the new
    /// span.
    pub(super) fn open(
        &self,
        name: &'static str,
        kind: Kind,
        own: Trace,
        parent: Option<u64>,
        is_parent_remote: bool,
    ) -> Box<Open> {
        let remote = if parent.is_some() && is_parent_remote { IS_REMOTE } else { 0 };
        let kind = match kind {
            Kind::Producer => SpanKind::Producer,
            Kind::Client => SpanKind::Client,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let span = Span {
            trace_id: own.id().to_be_bytes().to_vec(),
            span_id: own.span().to_be_bytes().to_vec(),
            parent_span_id: parent.map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
            flags: u32::from(own.is_sampled()) | HAS_IS_REMOTE | remote,
            name: name.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            // This status stays if the span is dropped before its outcome is noted.
            status: Some(status(StatusCode::Error, "the work was given up")),
            ..Span::default()
        };
        Box::new(Open { span, begun: Instant::now(), exporter: Some(self.clone()) })
    }

    pub(super) fn fault(&self) -> Option<Box<str>> {
        self.0.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the task that sends spans. The task first sends the waiting spans. Blocks the calling thread for at most
    /// `patience` until the task ends.
    pub(super) fn close(&self, patience: Duration) {
        self.0.stop.send_replace(true);
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            // The task sends no messages on this channel. It drops the sender when it ends.
            let _ended_or_late = ended.recv_timeout(patience);
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("room", &self.0.queue.capacity()).finish_non_exhaustive()
    }
}

/// A span that has not ended. Dropping the value ends the span, and queues it for the collector.
pub(super) struct Open {
    span: Span,
    begun: Instant,
    /// The exporter that gets the ended span. `None` once the span is discarded, because a discarded span is not sent.
    exporter: Option<Exporter>,
}

impl Open {
    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        self.span.attributes.push(text(name, value));
    }

    pub(super) fn number(&mut self, name: &'static str, value: u64) {
        let value = Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX));
        self.span.attributes.push(attribute(name, value));
    }

    /// Adds a URL to the span, without the parts that may be secret: user, password, query and fragment.
    pub(super) fn url(&mut self, url: &str) {
        let Ok(mut url) = Url::parse(url) else { return };
        url.set_query(None);
        url.set_fragment(None);
        let _has_a_host = (url.set_username(""), url.set_password(None));
        self.text("url.full", url.as_str());
        self.text("server.address", url.host_str().unwrap_or_default());
        if let Some(port) = url.port_or_known_default() {
            self.number("server.port", port.into());
        }
    }

    pub(super) fn succeed(&mut self) {
        // OpenTelemetry reserves the status "ok" for developers of applications, so the status stays unset.
        self.span.status = None;
    }

    pub(super) fn fail(&mut self, class: &str, error: &str) {
        self.text("error.type", class);
        self.span.status = Some(status(StatusCode::Error, error));
    }

    pub(super) fn discard(&mut self) {
        self.exporter = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(Exporter(shared)) = self.exporter.take() else { return };
        let mut span = core::mem::take(&mut self.span);
        // The end is computed from the duration, because the system's clock may have been set since the start.
        let took = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        span.end_time_unix_nano = span.start_time_unix_nano.saturating_add(took);
        if shared.queue.try_send(span).is_err() {
            shared.counts.dropped.add(1);
        }
    }
}

fn status(code: StatusCode, message: &str) -> Status {
    Status { message: cut(message, LONGEST), code: code.into() }
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(name: &str, value: &str) -> KeyValue {
    attribute(name, Value::StringValue(cut(value, LONGEST)))
}

/// The task that sends waiting spans to the collector in batches.
struct Task {
    collector: Collector,
    resource: Resource,
    waiting: mpsc::Receiver<Span>,
    stopping: watch::Receiver<bool>,
    shared: std::sync::Weak<Shared>,
    counts: Arc<Counts>,
}

impl Task {
    async fn run(mut self) {
        loop {
            let (batch, is_last) = self.batch().await;
            if !batch.is_empty() {
                self.export(batch).await;
            }
            if is_last {
                return;
            }
        }
    }

    /// Waits for the next batch of spans. Also returns whether the batch is the last.
    async fn batch(&mut self) -> (Vec<Span>, bool) {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            let is_open = !self.waiting.is_closed();
            let period = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => core::future::pending().await,
                }
            };
            tokio::select! {
                count = self.waiting.recv_many(&mut batch, room) => match count {
                    0 => return (batch, true),
                    _ => until = until.or_else(|| Some(tokio::time::Instant::now() + PERIOD)),
                },
                // A closed queue still returns its remaining spans, and then reports its end. This branch is then
                // disabled, because it would be ready at each turn of the loop.
                _stops = self.stopping.wait_for(|stops| *stops), if is_open => self.waiting.close(),
                () = period => break,
            }
        }
        (batch, false)
    }

    async fn export(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        let body = bytes::Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        let mut sent = self.collector.send(body.clone()).await;
        if let Err(Failed { again_after: Some(pause), .. }) = sent {
            tokio::select! {
                () = tokio::time::sleep(pause.min(LONGEST_PAUSE)) => {}
                // The end of the service does not wait for the pause.
                _stops = self.stopping.wait_for(|stops| *stops) => {}
            }
            sent = self.collector.send(body).await;
        }
        let fault = match sent {
            Ok(refused) => {
                // The number comes from the collector, and may be wrong.
                let refused = refused.min(count);
                self.counts.exported.add(count - refused);
                self.counts.failed.add(refused);
                None
            }
            Err(failed) => {
                self.counts.failed.add(count);
                Some(failed.error)
            }
        };
        if let Some(shared) = self.shared.upgrade() {
            *shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_a_span_has_a_bounded_length() {
        let long = "\u{e9}".repeat(10_000);
        let Some(Value::StringValue(kept)) = text("key", &long).value.and_then(|value| value.value) else {
            panic!("no text");
        };
        assert!(kept.len() <= LONGEST && long.starts_with(&kept) && kept.len() > LONGEST - 4);
        assert!(status(StatusCode::Error, &long).message.len() <= LONGEST);
    }
}
