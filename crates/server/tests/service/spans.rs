//! Tests the spans of traces. A collector on a port of its own gets the spans of creations and of attempts. It delays
//! neither creations nor deliveries.

use crate::inside::Inside;
use crate::operating::{number, scrape};
use crate::rig::{Received, Receiver, SOON, eventually, settings};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as State_;
use prost::Message as _;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tourbillon_durable::store::MemoryStore;
use tourbillon_server::{Service, router};

const TIMERS: &str = "/v1/namespaces/default/timers";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// The spans that the collector has received, and the requests that contained the spans. Each request has its path, its
/// headers and the service's attributes.
#[derive(Default)]
struct Taken {
    requests: Vec<(String, HeaderMap, Vec<KeyValue>)>,
    spans: Vec<Span>,
    /// The statuses of the collector's next answers. Each status has the pause of the header `retry-after`, in seconds.
    /// Further answers have the status 200.
    answers: Vec<(StatusCode, &'static str)>,
}

#[derive(Clone)]
struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Taken>>,
}

impl Collector {
    async fn start() -> Self {
        let taken = Arc::<Mutex<Taken>>::default();
        let app = axum::Router::new().fallback(take).with_state(Arc::clone(&taken));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, taken }
    }

    /// Waits until the collector has `count` spans. Returns the spans, sorted by their start times.
    async fn spans(&self, count: usize) -> Vec<Span> {
        let are_there = async || (self.taken.lock().unwrap().spans.len() >= count).then_some(());
        eventually("the spans", are_there).await;
        let mut spans = self.taken.lock().unwrap().spans.clone();
        assert_eq!(spans.len(), count, "{spans:?}");
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }
}

async fn take(State(taken): State<Arc<Mutex<Taken>>>, request: Request) -> (StatusCode, HeaderMap) {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let mut taken = taken.lock().unwrap();
    let resource = request.resource_spans[0].resource.clone().unwrap();
    taken.requests.push((parts.uri.path().to_owned(), parts.headers, resource.attributes));
    let mut headers = HeaderMap::new();
    if !taken.answers.is_empty() {
        let (status, pause) = taken.answers.remove(0);
        headers.insert("retry-after", pause.parse().unwrap());
        return (status, headers);
    }
    let spans = request
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans);
    taken.spans.extend(spans);
    (StatusCode::OK, headers)
}

/// Starts a service that sends its spans to the collector at the address `collector`.
fn start(folder: &TempDir, collector: SocketAddr) -> Inside {
    start_with(folder, collector, 1.0)
}

/// Starts a service that sends spans to a collector. `share` is the fraction of new traces that the service records,
/// from 0 to 1.
fn start_with(folder: &TempDir, collector: SocketAddr, share: f64) -> Inside {
    let mut settings = settings(folder.path());
    settings.telemetry.share = share;
    settings.telemetry.endpoint = Some(format!("http://{collector}/v1/traces"));
    settings.telemetry.service_name = "timers-of-a-test".to_owned();
    settings.telemetry.headers = vec![("api-key".to_owned(), "secret".to_owned())];
    assert!(!format!("{settings:?}").contains("secret"));
    let service = Service::open_on(settings, Arc::new(MemoryStore::default())).unwrap();
    Inside { router: router(service.clone()), service }
}

/// Ends the service. Returns the time that the end took.
async fn close(inside: &Inside) -> Duration {
    let (begun, service) = (Instant::now(), inside.service.clone());
    tokio::task::spawn_blocking(move || service.close(SOON)).await.unwrap();
    begun.elapsed()
}

fn text(span: &Span, name: &str) -> String {
    attribute(&span.attributes, name).unwrap_or_else(|| panic!("{name} is missing: {span:?}"))
}

fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let mut found = attributes.iter().filter(|attribute| attribute.key == name);
    let value = found.next()?.value.clone()?.value?;
    assert!(found.next().is_none(), "{name} is there twice");
    match value {
        Any::StringValue(text) => Some(text),
        Any::IntValue(number) => Some(number.to_string()),
        other => panic!("{name} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == i32::from(State_::Error))
}

/// Splits a `traceparent` into its trace, its span and its flags.
fn parts(context: &str) -> [&str; 3] {
    let parts: Vec<_> = context.split('-').collect();
    assert_eq!((parts.len(), parts[0]), (4, "00"), "{context}");
    [parts[1], parts[2], parts[3]]
}

fn context(received: &Received) -> String {
    received.headers["traceparent"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_and_each_attempt_are_spans_of_the_callers_trace_and_the_end_sends_them() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let inside = start(&folder, collector.address);
    let mut receiver = Receiver::start().await;
    receiver.statuses.lock().unwrap().push(StatusCode::INTERNAL_SERVER_ERROR);
    let timer = json!({
        "callback": { "url": receiver.url("/t?token=hidden") },
        "policy": { "backoff": { "kind": "fixed", "pause_ms": 5 } },
    });
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let answer = inside.with("PUT", &format!("{TIMERS}/k"), &[("traceparent", &caller)], timer).await;
    assert_eq!(answer.status, 201);
    let (first, second) = (context(&receiver.next().await), context(&receiver.next().await));
    let took = close(&inside).await;
    // The end of the service waits for the spans to be sent, but at most five seconds.
    if took < Duration::from_secs(4) {
        assert_eq!(collector.taken.lock().unwrap().spans.len(), 3, "the end sends what waits");
    }
    let spans = collector.spans(3).await;
    let [create, failed, delivered] = &spans[..] else { unreachable!() };
    for span in &spans {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert!(span.start_time_unix_nano > 0 && span.end_time_unix_nano >= span.start_time_unix_nano);
        assert_eq!(span.flags & 1, 1, "{span:?}");
        assert_eq!(text(span, "tourbillon.timer.id"), answer.json()["id"]);
        assert_eq!(
            (text(span, "tourbillon.namespace"), text(span, "tourbillon.timer.key")),
            ("default".into(), "k".into())
        );
    }
    assert_eq!((&*create.name, create.kind), ("create", SpanKind::Producer.into()));
    assert_eq!((hex(&create.parent_span_id), is_error(create)), (CALLER.to_owned(), false));
    assert_eq!(text(create, "tourbillon.outcome"), "created");
    assert_eq!(text(create, "messaging.operation.name"), "create");
    for (span, sent, attempt) in [(failed, &first, "1"), (delivered, &second, "2")] {
        assert_eq!((&*span.name, span.kind), ("deliver", SpanKind::Client.into()));
        assert_eq!(span.parent_span_id, create.span_id, "an attempt is a child of the creation");
        // The callback names the span of the attempt as the parent of the receiver's span.
        assert_eq!(parts(sent), [TRACE, &hex(&span.span_id), "01"]);
        assert_eq!(text(span, "tourbillon.attempt"), attempt);
        assert_eq!(text(span, "url.full"), receiver.url("/t"), "a query may be secret");
        assert_eq!(text(span, "server.port"), receiver.address.port().to_string());
        assert_eq!(text(span, "http.request.method"), "POST");
        assert!(text(span, "tourbillon.lateness_ms").parse::<u64>().is_ok());
    }
    assert!(is_error(failed) && !is_error(delivered));
    assert_eq!(
        (text(failed, "error.type"), text(failed, "http.response.status_code")),
        ("500".into(), "500".into())
    );
    assert_eq!(text(delivered, "http.response.status_code"), "204");
    assert_eq!(text(delivered, "http.request.resend_count"), "1");
    assert_eq!(
        (
            attribute(&delivered.attributes, "error.type"),
            attribute(&failed.attributes, "http.request.resend_count")
        ),
        (None, None)
    );

    for (path, headers, resource) in &collector.taken.lock().unwrap().requests {
        assert_eq!(
            (&**path, &headers["content-type"]),
            ("/v1/traces", &"application/x-protobuf".parse().unwrap())
        );
        assert_eq!(headers["api-key"], "secret");
        assert_eq!(attribute(resource, "service.name").as_deref(), Some("timers-of-a-test"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_its_caller_does_not_record_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let inside = start(&folder, collector.address);
    let mut receiver = Receiver::start().await;
    let timer = json!({ "callback": { "url": receiver.url("/t") } });
    let not_recorded = format!("00-{TRACE}-{CALLER}-00");
    inside.with("POST", TIMERS, &[("traceparent", &not_recorded)], timer.clone()).await;
    let sent = context(&receiver.next().await);
    assert_eq!((parts(&sent)[0], parts(&sent)[2]), (TRACE, "00"), "the trace goes on all the same");
    let other = "1af7651916cd43dd8448eb211c80319c";
    inside.with("POST", TIMERS, &[("traceparent", &format!("00-{other}-{CALLER}-01"))], timer).await;
    receiver.next().await;
    close(&inside).await;
    for span in collector.spans(2).await {
        assert_eq!(hex(&span.trace_id), other);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_of_the_traces_that_begin_here_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let inside = start_with(&folder, collector.address, 0.0);
    let mut receiver = Receiver::start().await;
    let timer = json!({ "callback": { "url": receiver.url("/t") } });
    inside.send("POST", TIMERS, timer.clone()).await;
    let sent = context(&receiver.next().await);
    assert_eq!(parts(&sent)[2], "00", "the receiver does not record it either: {sent}");
    // The caller's own flag for recording wins over the service's share.
    inside.with("POST", TIMERS, &[("traceparent", &format!("00-{TRACE}-{CALLER}-01"))], timer).await;
    receiver.next().await;
    close(&inside).await;
    for span in collector.spans(2).await {
        assert_eq!(hex(&span.trace_id), TRACE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_without_a_trace_begins_one_and_so_does_each_creation_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let inside = start(&folder, collector.address);
    let pull = |queue: &str| json!({ "pull": { "queue": queue } });
    inside.send("POST", TIMERS, pull("q")).await;
    let claims = json!({ "max": 1, "wait_ms": 20_000 });
    let claims = inside.send("POST", "/v1/namespaces/default/queues/q/claims", claims).await.json();
    let claim = &claims["claims"][0];
    let sent = claim["trace"].as_str().unwrap_or_else(|| panic!("{claims}")).to_owned();
    let name = claim["claim"].as_str().unwrap();
    let ended = inside.send("POST", &format!("/v1/namespaces/default/claims/{name}/ack"), Value::Null).await;
    assert!(ended.status.is_success(), "{ended:?}");
    let late = json!({ "delay_ms": 600_000, "pull": { "queue": "late" } });
    let refused = json!({ "callback": { "url": "ftp://127.0.0.1/" } });
    let puts: Vec<_> =
        [late.clone(), refused, late].iter().map(|timer| json!({ "put": { "timer": timer } })).collect();
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let changes = json!({ "changes": puts });
    let headers = [("traceparent", &*caller)];
    let batch = inside.with("POST", "/v1/namespaces/default/batch", &headers, changes).await;
    assert_eq!(batch.status, 200);
    close(&inside).await;

    let spans = collector.spans(5).await;
    let (of_batch, rest): (Vec<_>, Vec<_>) = spans.iter().partition(|span| hex(&span.trace_id) == TRACE);
    let [create, deliver] = rest[..] else { panic!("{rest:?}") };
    assert_eq!((&*create.name, create.parent_span_id.len()), ("create", 0), "{create:?}");
    assert_eq!((&*deliver.name, &deliver.parent_span_id), ("deliver", &create.span_id));
    assert_eq!(parts(&sent), [&hex(&create.trace_id), &hex(&deliver.span_id), "01"]);
    assert_eq!(
        (text(deliver, "messaging.destination.name"), deliver.kind),
        ("q".into(), SpanKind::Producer.into())
    );
    assert!(!is_error(deliver), "{deliver:?}");
    assert_eq!(of_batch.len(), 3);
    for span in &of_batch {
        assert_eq!((&*span.name, hex(&span.parent_span_id)), ("create", CALLER.to_owned()));
    }
    let errors: Vec<_> = of_batch.iter().map(|span| is_error(span)).collect();
    assert_eq!(errors.iter().filter(|is_error| **is_error).count(), 1, "one was refused: {of_batch:?}");
}

/// Returns the number of spans with the export outcome `outcome` in `/metrics`.
async fn count(inside: &Inside, outcome: &str) -> f64 {
    number(&scrape(inside).await, "tourbillon_spans_total", Some(("outcome", outcome)))
}

async fn until_some(inside: &Inside, outcome: &str) {
    eventually(outcome, async || (count(inside, outcome).await >= 1.0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_delays_no_delivery_and_what_is_too_much_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    // The collector accepts connections, but reads nothing.
    let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = start(&folder, hangs.local_addr().unwrap());
    let mut receiver = Receiver::start().await;
    let late = json!({ "put": { "timer": { "delay_ms": 6_000_000, "pull": { "queue": "late" } } } });
    let batch = json!({ "changes": vec![late; 1_000] });
    let begun = Instant::now();
    while count(&inside, "dropped").await < 1.0 {
        assert!(begun.elapsed() < SOON, "no span is dropped");
        let answer = inside.send("POST", "/v1/namespaces/default/batch", batch.clone()).await;
        assert_eq!(answer.status, 200);
    }
    let timer = json!({ "callback": { "url": receiver.url("/t") } });
    for _ in 0..3 {
        assert_eq!(inside.send("POST", TIMERS, timer.clone()).await.status, 201);
        receiver.next().await;
    }
    assert_eq!(count(&inside, "exported").await.to_bits(), 0_f64.to_bits());
    // The end of the service does not hang although the collector does.
    tokio::time::timeout(SOON, close(&inside)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_collector_delays_no_delivery_and_its_spans_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let inside = start(&folder, dead);
    let mut receiver = Receiver::start().await;
    let timer = json!({ "callback": { "url": receiver.url("/t") } });
    assert_eq!(inside.send("POST", TIMERS, timer.clone()).await.status, 201);
    receiver.next().await;
    until_some(&inside, "failed").await;
    assert_eq!(inside.send("POST", TIMERS, timer).await.status, 201);
    receiver.next().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_the_collector_has_no_time_for_is_sent_once_more_and_one_that_it_refuses_is_not() {
    for (answers, exported, requests) in [
        (vec![(StatusCode::SERVICE_UNAVAILABLE, "0")], true, 2),
        (vec![(StatusCode::TOO_MANY_REQUESTS, "0"), (StatusCode::SERVICE_UNAVAILABLE, "0")], false, 2),
        (vec![(StatusCode::BAD_REQUEST, "0")], false, 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::start().await;
        collector.taken.lock().unwrap().answers = answers;
        let inside = start(&folder, collector.address);
        let late = json!({ "delay_ms": 600_000, "pull": { "queue": "late" } });
        assert_eq!(inside.send("POST", TIMERS, late).await.status, 201);
        // `/metrics` can be read after the end of the service, too.
        close(&inside).await;
        until_some(&inside, if exported { "exported" } else { "failed" }).await;
        let taken = collector.taken.lock().unwrap();
        assert_eq!((taken.requests.len(), taken.spans.len()), (requests, usize::from(exported)));
    }
}
