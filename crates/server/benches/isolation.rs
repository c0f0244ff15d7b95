//! Measures the cost of a tenant for another tenant. First a well-behaved tenant runs alone. Then it runs beside a
//! tenant that does all that its limits permit. Two numbers are measured: the lateness of the first tenant's callbacks,
//! and the time that the service takes for a request.
//!
//! Run it with `cargo bench -p tourbillon-server --bench isolation`. With `-- --quick` it makes a hundredth of the
//! timers. The rows on Redis need `redis-server`.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, UdpSocket};
use tourbillon_api::Moment;
use tourbillon_redis::Connect;
use tourbillon_server::{RedisSettings, Service, Settings, StorePlace, router};
use tower::ServiceExt as _;

/// The number of timers that the well-behaved tenant makes.
const TIMERS: usize = 1_000;
/// The pause between two creations of the well-behaved tenant.
const PAUSE: Duration = Duration::from_millis(10);

/// The number of timers in a herd. All timers of a herd are due at the same moment.
const HERD: usize = 200_000;
/// The number of host names whose name server never answers. A hundred timers call each name.
const NAMES: usize = 100;

type Lateness = Arc<Mutex<Vec<Duration>>>;

/// Starts a receiver of callbacks with three paths: `/ok` accepts, `/bad` refuses, and `/hang` never answers. Returns
/// the lateness of the accepted callbacks, and the receiver's address.
async fn receiver() -> (Lateness, SocketAddr) {
    let lateness = Lateness::default();
    let app = Router::new()
        .route("/ok", post(take))
        .route("/bad", post(async || StatusCode::SERVICE_UNAVAILABLE))
        .route("/hang", post(std::future::pending::<StatusCode>))
        .with_state(Arc::clone(&lateness));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (lateness, address)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970")
}

async fn take(State(lateness): State<Lateness>, headers: HeaderMap) -> StatusCode {
    let scheduled = headers.get("tourbillon-scheduled-for").and_then(|value| value.to_str().ok());
    if let Some(Ok(moment)) = scheduled.map(str::parse::<Moment>) {
        let late = now().saturating_sub(Duration::from_millis(moment.as_millis()));
        lateness.lock().expect("no panic").push(late);
    }
    StatusCode::OK
}

/// Sends a request to the service, without a socket. Returns the time that it took.
async fn send(app: &Router, method: &str, path: &str, body: Option<&Value>) -> Duration {
    let begin = Instant::now();
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = app.clone().oneshot(request.body(body).expect("a request")).await.expect("an answer");
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    begin.elapsed()
}

async fn place(app: &Router, namespace: &str, count: usize, timer: &Value) {
    let changes = |count: usize| json!({ "changes": vec![json!({ "put": { "timer": timer } }); count] });
    let path = format!("/v1/namespaces/{namespace}/batch");
    for placed in (0..count).step_by(100) {
        send(app, "POST", &path, Some(&changes(100.min(count - placed)))).await;
    }
}

/// Sorts the numbers. Returns their percentile `of_hundred`, from 1 to 100.
fn percentile(numbers: &mut [Duration], of_hundred: usize) -> Duration {
    numbers.sort_unstable();
    numbers[(numbers.len() * of_hundred).div_ceil(100).saturating_sub(1)]
}

/// The kind of load that a hostile tenant makes beside the well-behaved tenant. Its limits permit this load.
#[derive(Clone, Copy)]
enum Hostile {
    Nobody,
    /// The hostile tenant makes timers for the well-behaved tenant's host. Their paths refuse or never answer.
    Host,
    /// The hostile tenant makes timers for another host. All of them are due at the same moment.
    Herd,
    /// The hostile tenant makes timers for host names whose name server never answers.
    Names,
}

impl Hostile {
    async fn act(self, app: &Router, (shared, other): (SocketAddr, SocketAddr), part: usize) {
        let policy = json!({ "attempts": 1_000, "backoff": { "kind": "fixed", "pause_ms": 0 } });
        match self {
            Self::Nobody => {}
            Self::Host => {
                for (path, timeout) in [("bad", 15_000), ("hang", 100), ("hang", 30_000), ("nowhere", 15_000)]
                {
                    let mut policy = policy.clone();
                    policy["timeout_ms"] = json!(timeout);
                    let callback = json!({ "url": format!("http://{shared}/{path}") });
                    place(app, "hostile", 125, &json!({ "callback": callback, "policy": policy })).await;
                }
            }
            Self::Herd => {
                // The due moment is late enough that all timers are stored before it.
                let due = now() + Duration::from_secs(60) / u32::try_from(part).expect("a small part");
                let due = Moment::from_millis(u64::try_from(due.as_millis()).expect("a moment")).to_string();
                let callback = json!({ "url": format!("http://{other}/ok") });
                place(app, "hostile", HERD / part, &json!({ "callback": callback, "due": due })).await;
                let rest = Duration::from_secs(60) / u32::try_from(part).expect("a small part");
                tokio::time::sleep(rest.saturating_sub(Duration::from_secs(30))).await;
            }
            Self::Names => {
                for name in 0..NAMES {
                    let callback = json!({ "url": format!("http://n{name}.silent.test/hook") });
                    place(app, "hostile", 100 / part, &json!({ "callback": callback, "policy": policy }))
                        .await;
                }
            }
        }
    }
}

async fn measure(name: &str, hostile: Hostile, part: usize, redis: Option<&str>) {
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(folder.path());
    settings.rules.allow_http = true;
    settings.caller.guard.allowed = vec!["127.0.0.0/8".parse().expect("a range")];
    settings.caller.name_servers = vec![silent.local_addr().expect("an address")];
    if let Some(url) = redis {
        let connect = Connect::single(url).expect("an address");
        settings.store = StorePlace::Redis(RedisSettings::new(connect, format!("isolation-{}", name.len())));
    }
    // Opening a store on Redis blocks.
    let service = tokio::task::block_in_place(|| Service::open(settings)).expect("a service");
    let app = router(service.clone());
    for name in ["hostile", "other"] {
        send(&app, "PUT", &format!("/v1/namespaces/{name}"), Some(&json!({}))).await;
    }
    let ((lateness, shared), (_, other)) = (receiver().await, receiver().await);
    hostile.act(&app, (shared, other), part).await;
    let url = format!("http://{shared}/ok");
    let mut requests = Vec::new();
    let begin = Instant::now();
    let count = TIMERS / part.min(10);
    // The measurement lasts at least as long as the herd.
    let until = Instant::now()
        + if matches!(hostile, Hostile::Herd) { Duration::from_secs(60) } else { Duration::ZERO };
    let mut placed = 0;
    while placed < count || part == 1 && Instant::now() < until {
        place(&app, "other", 1, &json!({ "callback": { "url": url }, "delay_ms": 50 })).await;
        requests.push(send(&app, "GET", "/v1/namespaces/other", None).await);
        placed += 1;
        tokio::time::sleep(PAUSE).await;
    }
    while lateness.lock().expect("no panic").len() < placed && begin.elapsed() < Duration::from_secs(180) {
        tokio::time::sleep(PAUSE).await;
    }
    let mut late = lateness.lock().expect("no panic").clone();
    let came = late.len();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "| {name} | {came} of {placed} | {:.1} | {:.1} | {:.1} | {:.1} |",
        millis(percentile(&mut late, 50)),
        millis(percentile(&mut late, 99)),
        millis(percentile(&mut late, 100)),
        millis(percentile(&mut requests, 99)),
    );
    tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.expect("its end");
}

fn main() {
    let part = if std::env::args().any(|argument| argument == "--quick") { 100 } else { 1 };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    println!("| beside | came | lateness p50, ms | p99 | greatest | a request, p99, ms |");
    println!("|---|---|---|---|---|---|");
    runtime.block_on(async {
        measure("nobody", Hostile::Nobody, part, None).await;
        measure("500 timers that fail, to the same host", Hostile::Host, part, None).await;
        let herd = format!("{} timers due at once", HERD / part);
        measure(&herd, Hostile::Herd, part, None).await;
        let names = format!("{} timers to names whose server is silent", NAMES * (100 / part));
        measure(&names, Hostile::Names, part, None).await;
        #[cfg(unix)]
        if let Some(server) = tourbillon_fault::Server::start(&[]) {
            let url = server.url();
            let url = Some(url.as_str());
            measure("nobody, on Redis", Hostile::Nobody, part, url).await;
            measure(&format!("{herd}, on Redis"), Hostile::Herd, part, url).await;
        }
    });
}
