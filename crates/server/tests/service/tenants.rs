//! Tests a well-behaved tenant beside a tenant that does all that its limits permit.

use crate::rig::{Rig, eventually};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpListener, UdpSocket};
use tourbillon_server::{RedisSettings, Settings, StorePlace};

/// The greatest lateness that a test accepts for the well-behaved tenant's callbacks. The limit is high, because the
/// machine may be busy.
const SOON: Duration = Duration::from_secs(3);

/// A receiver of callbacks with three paths: `/ok` accepts, `/bad` refuses, and `/hang` never answers.
#[derive(Clone, Default)]
struct Host {
    /// How long after its scheduled moment each callback to the path `/ok` arrived.
    lateness: Arc<Mutex<Vec<Duration>>>,
    refused: Arc<Mutex<Vec<Instant>>>,
    /// The number of callbacks to the path `/hang`.
    hanging: Arc<AtomicUsize>,
}

impl Host {
    async fn start() -> (Self, SocketAddr) {
        let host = Self::default();
        let app = Router::new()
            .route("/ok", post(take))
            .route("/bad", post(refuse))
            .route("/hang", post(hang))
            .with_state(host.clone());
        // The host has all addresses of this machine. To the service, each address is a host of its own.
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        (host, address)
    }

    fn taken(&self) -> usize {
        self.lateness.lock().unwrap().len()
    }

    /// Returns the lateness that 99 % of the callbacks to the path `/ok` did not exceed.
    fn p99(&self) -> Duration {
        let mut lateness = self.lateness.lock().unwrap().clone();
        lateness.sort();
        lateness[(lateness.len() * 99).div_ceil(100) - 1]
    }
}

async fn take(State(host): State<Host>, headers: HeaderMap) -> StatusCode {
    let scheduled = headers["tourbillon-scheduled-for"].to_str().unwrap();
    let scheduled: tourbillon_api::Moment = scheduled.parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let late = now.saturating_sub(Duration::from_millis(scheduled.as_millis()));
    host.lateness.lock().unwrap().push(late);
    StatusCode::OK
}

async fn refuse(State(host): State<Host>) -> StatusCode {
    host.refused.lock().unwrap().push(Instant::now());
    StatusCode::SERVICE_UNAVAILABLE
}

async fn hang(State(host): State<Host>) -> StatusCode {
    host.hanging.fetch_add(1, Ordering::Relaxed);
    std::future::pending().await
}

/// Starts a service with the namespaces in `namespaces`. `change` first changes the usual settings of tests.
async fn start(namespaces: &[&str], change: impl FnOnce(&mut Settings)) -> Rig {
    let rig = Rig::start_with(change).await;
    for name in namespaces {
        let (status, answer) = rig.send("PUT", &format!("/v1/namespaces/{name}"), json!({})).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    rig
}

/// Stores at least `count` copies of `timer` in a namespace, at most a hundred with each request. Above a hundred, the
/// number is rounded up to full hundreds.
async fn place(rig: &Rig, namespace: &str, count: usize, timer: &Value) {
    let puts = vec![json!({ "put": { "timer": timer } }); 100.min(count)];
    for _ in 0..count.div_ceil(100) {
        let body = json!({ "changes": puts });
        let (status, answer) = rig.send("POST", &format!("/v1/namespaces/{namespace}/batch"), body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
}

/// Stores `count` timers, with a pause of 20 ms after each timer. Waits until the callbacks of all these timers have
/// arrived.
async fn go_on(rig: &Rig, namespace: &str, host: &Host, url: &str, count: usize) {
    let before = host.taken();
    for _ in 0..count {
        place(rig, namespace, 1, &json!({ "callback": { "url": url }, "delay_ms": 50 })).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eventually("all have come", async || (host.taken() >= before + count).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_shuts_a_host_for_no_other_and_a_path_for_no_other_path() {
    let rig = start(&["hostile", "other", "third"], |_| {}).await;
    let (host, address) = Host::start().await;
    let url = |path: &str| format!("http://{address}/{path}");
    let backoff = json!({ "kind": "fixed", "pause_ms": 0 });
    for (path, policy) in [
        ("bad", json!({ "attempts": 1_000, "backoff": backoff })),
        ("hang", json!({ "attempts": 1_000, "backoff": backoff, "timeout_ms": 100 })),
        ("hang", json!({ "attempts": 1_000, "backoff": backoff, "timeout_ms": 30_000 })),
    ] {
        place(&rig, "hostile", 200, &json!({ "callback": { "url": url(path) }, "policy": policy })).await;
    }
    go_on(&rig, "other", &host, &url("ok"), 100).await;
    assert!(host.p99() < SOON, "{:?}", host.p99());
    let (_, endpoints) = rig.send("GET", "/v1/endpoints", Value::Null).await;
    let breakers = &endpoints[0]["breakers"];
    assert!(
        breakers.as_array().is_some_and(|all| all.iter().all(|open| open["namespace"] == "hostile")),
        "{endpoints}"
    );
    // The breaker of a path that refuses does not affect another path in the same namespace.
    let refusing =
        json!({ "callback": { "url": url("bad") }, "policy": { "attempts": 1_000, "backoff": backoff } });
    place(&rig, "third", 100, &refusing).await;
    go_on(&rig, "third", &host, &url("ok"), 50).await;
    assert!(host.p99() < SOON, "{:?}", host.p99());
}

/// Namespaces whose receivers never answer. Their timers wait for an answer for half a minute.
const NEVER_STOP: [&str; 9] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];

/// Makes timers of the namespaces [`NEVER_STOP`], one namespace after the other, and waits each time until the
/// namespace has a callback that hangs. The namespace with the number `n` calls the URLs that `urls` returns for `n`.
async fn never_stop(rig: &Rig, host: &Host, urls: impl Fn(usize) -> Vec<String>) {
    let policy = json!({ "attempts": 1, "timeout_ms": 30_000 });
    for (number, namespace) in NEVER_STOP.iter().enumerate() {
        let before = host.hanging.load(Ordering::Relaxed);
        for url in urls(number) {
            place(rig, namespace, 30, &json!({ "callback": { "url": url }, "policy": policy })).await;
        }
        eventually("a callback of the namespace hangs", async || {
            (host.hanging.load(Ordering::Relaxed) > before).then_some(())
        })
        .await;
        // The namespace takes all that it can get before the next one comes.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_that_never_stop_leave_a_shared_host_to_each_other_tenant() {
    let rig = start(&[&NEVER_STOP[..], &["known", "new"]].concat(), |_| {}).await;
    let (host, address) = Host::start().await;
    let url = |path: &str| format!("http://{address}/{path}");
    go_on(&rig, "known", &host, &url("ok"), 5).await;
    never_stop(&rig, &host, |_| vec![url("hang")]).await;
    // One of these tenants has called the host before, and the other has not.
    go_on(&rig, "known", &host, &url("ok"), 50).await;
    go_on(&rig, "new", &host, &url("ok"), 50).await;
    assert!(host.p99() < SOON, "{:?}", host.p99());
    let hanging = host.hanging.load(Ordering::Relaxed);
    assert!(hanging >= 22, "the permits of the host are taken, {hanging}");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_that_never_stop_leave_permits_for_new_hosts_to_each_other_tenant() {
    // Of 128 permits, 96 are for hosts that are slow or not known. Twelve more are for first calls.
    let change = |settings: &mut Settings| settings.concurrency = 128;
    let rig = start(&[&NEVER_STOP[..], &["other"]].concat(), change).await;
    let (host, address) = Host::start().await;
    let at = |[a, b]: [usize; 2], path: &str| format!("http://127.{a}.{b}.1:{}/{path}", address.port());
    never_stop(&rig, &host, |number| (0..30).map(|other| at([number + 1, other], "hang")).collect()).await;
    let hanging = host.hanging.load(Ordering::Relaxed);
    assert!((96..=96 + 12).contains(&hanging), "{hanging}");
    for new in 0..30 {
        go_on(&rig, "other", &host, &at([100, new], "ok"), 1).await;
    }
    assert!(host.p99() < SOON, "{:?}", host.p99());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greater_limit_of_a_namespace_has_its_effect_at_once() {
    let rig = start(&[], |_| {}).await;
    let (host, address) = Host::start().await;
    let timer = |path: &str| json!({ "callback": { "url": format!("http://{address}/{path}") }, "policy": { "timeout_ms": 30_000 } });
    for (round, greater) in [json!(20), Value::Null].into_iter().enumerate() {
        let namespace = format!("n{round}");
        let path = format!("/v1/namespaces/{namespace}");
        assert_eq!(rig.send("PUT", &path, json!({ "concurrency": 1 })).await.0, StatusCode::CREATED);
        let (hanging, taken) = (host.hanging.load(Ordering::Relaxed), host.taken());
        place(&rig, &namespace, 1, &timer("hang")).await;
        eventually("one hangs", async || (host.hanging.load(Ordering::Relaxed) > hanging).then_some(()))
            .await;
        // Some of these deliveries wait in memory, and the others are parked.
        place(&rig, &namespace, 40, &timer("ok")).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(host.taken(), taken);
        let begun = Instant::now();
        let (status, answer) = rig.send("PATCH", &path, json!({ "concurrency": greater })).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        eventually("all have come", async || (host.taken() == taken + 40).then_some(())).await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_of_one_tenant_holds_up_no_other() {
    beside_a_herd(start(&["herd", "other"], |_| {}).await).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_of_one_tenant_holds_up_no_other_on_redis() {
    let Some(server) = tourbillon_fault::Server::start(&[]) else { return };
    let connect = tourbillon_redis::Connect::single(&server.url()).unwrap();
    let redis = RedisSettings::new(connect, "herds");
    let on_redis = |settings: &mut Settings| settings.store = StorePlace::Redis(redis);
    beside_a_herd(start(&["herd", "other"], on_redis).await).await;
}

async fn beside_a_herd(rig: Rig) {
    let ((_, herds), (host, others)) = (Host::start().await, Host::start().await);
    let due = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(8);
    let due = tourbillon_api::Moment::from_millis(u64::try_from(due.as_millis()).unwrap()).to_string();
    let herd = json!({ "callback": { "url": format!("http://{herds}/ok") }, "due": due });
    place(&rig, "herd", 20_000, &herd).await;
    let url = format!("http://{others}/ok");
    // Some of these timers are due before the herd of timers, some at the same moment, and some after it.
    go_on(&rig, "other", &host, &url, 300).await;
    assert!(host.p99() < SOON, "{:?}", host.p99());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_that_is_silent_holds_up_no_other_host_and_no_request() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = silent.local_addr().unwrap();
    let rig = start(&["hostile", "other"], |settings| settings.caller.name_servers = vec![server]).await;
    let (host, address) = Host::start().await;
    for name in 0..20 {
        let timer = json!({ "callback": { "url": format!("http://n{name}.silent.test/hook") } });
        place(&rig, "hostile", 100, &timer).await;
    }
    let begin = Instant::now();
    go_on(&rig, "other", &host, &format!("http://{address}/ok"), 50).await;
    assert!(host.p99() < SOON, "{:?}", host.p99());
    for _ in 0..20 {
        let begin = Instant::now();
        assert_eq!(rig.send("GET", "/v1/namespaces/other", Value::Null).await.0, StatusCode::OK);
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_refuses_is_called_once_a_second_whatever_the_policy() {
    let rig = start(&["n"], |settings| {
        settings.least_pause = Duration::from_secs(1);
        // The breaker must stay closed, since it would also hold the timer back.
        settings.caller.hosts.failures = 1_000;
    })
    .await;
    let (host, address) = Host::start().await;
    let backoff = json!({ "kind": "fixed", "pause_ms": 0 });
    let url = format!("http://{address}/bad");
    let timer = |policy: Value| json!({ "callback": { "url": url }, "policy": policy });
    place(&rig, "n", 1, &timer(json!({ "attempts": 1_000, "backoff": backoff }))).await;
    eventually("the third attempt", async || (host.refused.lock().unwrap().len() >= 3).then_some(())).await;
    let refused = host.refused.lock().unwrap().clone();
    let least = Duration::from_millis(990);
    assert!(refused.windows(2).all(|two| two[1] - two[0] >= least), "{refused:?}");
    for (policy, pointer) in [
        (json!({ "attempts": 1_001 }), "/policy/attempts"),
        (json!({ "timeout_ms": 99 }), "/policy/timeout_ms"),
    ] {
        let (status, problem) = rig.send("POST", "/v1/namespaces/n/timers", timer(policy)).await;
        assert_eq!(
            (status, &problem["errors"][0]["pointer"]),
            (StatusCode::BAD_REQUEST, &json!(pointer)),
            "{problem}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_makes_no_more_timers_in_a_second_than_it_may() {
    let rig = start(&["n", "m"], |settings| settings.max_schedules = 1).await;
    let limits = json!({ "creations_per_second": 5 });
    assert!(rig.send("PUT", "/v1/namespaces/n", limits).await.0.is_success());
    let timer = json!({ "delay_ms": 3_600_000, "pull": { "queue": "q" } });
    let mut refused = Vec::new();
    for _ in 0..50 {
        let (status, answer) = rig.send("POST", "/v1/namespaces/n/timers", timer.clone()).await;
        if status != StatusCode::CREATED {
            refused.push((status, answer));
        }
        assert_eq!(rig.send("POST", "/v1/namespaces/m/timers", timer.clone()).await.0, StatusCode::CREATED);
    }
    assert!(refused.len() >= 20, "{}", refused.len());
    for (status, answer) in refused {
        assert_eq!(
            (status, &answer["type"]),
            (StatusCode::TOO_MANY_REQUESTS, &json!("/problems/limit-reached"))
        );
        assert!(answer["retry_after_ms"].as_u64().is_some_and(|millis| millis <= 1_000), "{answer}");
    }
    // A limit of the service holds for namespaces that do not set this limit.
    let schedule = json!({ "every_ms": 60_000, "pull": { "queue": "q" } });
    let made = rig.send("PUT", "/v1/namespaces/m/schedules/a", schedule.clone()).await;
    assert_eq!(made.0, StatusCode::CREATED, "{}", made.1);
    let second = rig.send("PUT", "/v1/namespaces/m/schedules/b", schedule).await;
    assert_eq!(second.0, StatusCode::TOO_MANY_REQUESTS, "{}", second.1);
}
