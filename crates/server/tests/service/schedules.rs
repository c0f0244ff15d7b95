//! Tests schedules over HTTP and in namespaces. The store's own tests, with a manual clock, cover the moments at which
//! schedules fire.

use crate::faulty::{Fails, Faulty};
use crate::inside::{Answered, Inside};
use crate::rig::{Receiver, Rig};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules};
use tourbillon_durable::store::{Call, Hook, Hooked, MemoryStore, StoreFuture, TimerStore};

const PREVIEWS: &str = "/v1/namespaces/default/previews";
const SCHEDULES: &str = "/v1/namespaces/default/schedules";

fn path(rest: &str) -> String {
    format!("{SCHEDULES}/{rest}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_calls_its_receiver_again_and_again_until_it_is_removed() {
    let (rig, mut receiver) = (Rig::start().await, Receiver::start().await);
    let schedule = json!({
        "every_ms": 200, "labels": ["x"], "overlap": "allow",
        "callback": { "url": receiver.url("/hook"), "json": { "n": 7 } }
    });
    let (status, made) = rig.send("PUT", &path("a%20b"), schedule).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!((&made["key"], &made["state"]), (&json!("a b"), &json!("active")));
    assert_eq!(made["upcoming"].as_array().unwrap().len(), 10);
    assert_eq!(made["schedule"]["callback"]["body"], "{\"n\":7}");
    assert_eq!(made["schedule"]["missed"], "once");
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        let received = receiver.next().await;
        assert_eq!((received.path.as_str(), &received.body[..]), ("/hook", &b"{\"n\":7}"[..]));
        ids.insert(received.headers["webhook-id"].to_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 3);
    let seen = rig.until(&path("a%20b"), |view| view["fired"].as_u64() >= Some(3)).await;
    assert!(seen["last_fired"].is_string() && seen["last_scheduled"].is_string(), "{seen}");
    // The records that the store keeps for a schedule do not count as timers of the namespace.
    let (_, stats) = rig.send("GET", "/v1/stats", Value::Null).await;
    assert!(stats["pending"].as_u64().unwrap() <= 1, "{stats}");
    let (status, removed) = rig.send("DELETE", &path("a%20b"), Value::Null).await;
    assert_eq!((status, removed), (StatusCode::OK, json!({ "removed": true })));
    assert_eq!(rig.send("GET", &path("a%20b"), Value::Null).await.0, StatusCode::NOT_FOUND);
    assert_eq!(rig.send("DELETE", &path("a%20b"), Value::Null).await.1, json!({ "removed": false }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preview_shows_local_times_and_clock_changes() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let new = json!({ "cron": "30 2 29 3 *", "zone": "Europe/Zurich", "start": "2030-01-01T00:00:00.000Z" });
    let shown = inside.send("POST", PREVIEWS, new).await.json();
    let upcoming = shown["upcoming"].as_array().unwrap();
    assert_eq!(upcoming.len(), 10, "{shown}");
    // In 2037 the clocks of Zurich skip 2:30 on the 29th of March.
    let moved: Vec<_> = upcoming.iter().filter(|one| !one["clock_change"].is_null()).collect();
    assert_eq!(moved.len(), 1, "{shown}");
    assert_eq!(moved[0]["local"], "2037-03-29T03:00:00+02:00");
    assert_eq!(
        (&moved[0]["clock_change"], &moved[0]["at"]),
        (&json!("moved"), &json!("2037-03-29T01:00:00.000Z"))
    );
    let monthly = json!({ "monthly": { "day": 31, "time": "18:00" }, "start": "2027-01-15T00:00:00.000Z" });
    let shown = inside.send("POST", PREVIEWS, monthly).await.json();
    assert_eq!(shown["upcoming"][1]["planned"], "2027-02-28T18:00:00", "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preview_needs_nothing_to_do_and_refuses_what_a_creation_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let preview = async |body: Value| inside.send("POST", PREVIEWS, body).await;
    let with = |name: &str, value: Value| {
        let mut body = json!({ "every_ms": 60_000 });
        body[name] = value;
        body
    };
    let queue = json!({ "queue": "q" });
    for body in [
        json!({ "every_ms": 60_000 }),
        json!({ "every_ms": 60_000, "callback": null, "pull": null }),
        with("pull", queue.clone()),
        with("policy", json!({ "attempts": 3 })),
        with("labels", json!(["a"])),
    ] {
        assert_eq!(preview(body.clone()).await.status, StatusCode::OK, "{body}");
    }
    for (name, value, status) in [
        ("callback", json!({ "url": "no address" }), 400),
        ("callback", json!({ "url": "https://a.example/", "method": "TRACE" }), 400),
        ("callback", json!({ "url": "ftp://a.example/" }), 422),
        ("pull", json!({ "queue": "a/b" }), 400),
        ("policy", json!({ "attempts": 1_001 }), 400),
        ("policy", json!({ "jitter_ms": 5 }), 400),
        ("labels", json!(["x".repeat(65)]), 413),
    ] {
        let mut body = with(name, value);
        assert_eq!(preview(body.clone()).await.problem().0, status, "{body}");
        if name != "callback" && name != "pull" {
            body["pull"] = queue.clone();
        }
        assert_eq!(inside.send("PUT", &path("a"), body.clone()).await.problem().0, status, "{body}");
    }
    let (start, end) = ("2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z");
    let mut body = json!({ "every_ms": 60_000, "start": start, "end": end });
    let shown = preview(body.clone()).await.problem();
    body["pull"] = queue;
    assert_eq!(shown, inside.send("PUT", &path("a"), body).await.problem());
    assert_eq!(shown.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_has_any_key_that_a_timer_has() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let new = json!({ "every_ms": 60_000, "pull": { "queue": "q" } });
    for key in ["preview", "previews", "pause", "a%2Fb", "%C3%A9"] {
        assert_eq!(inside.send("PUT", &path(key), new.clone()).await.status, StatusCode::CREATED, "{key}");
        assert_eq!(inside.send("GET", &path(key), Value::Null).await.status, StatusCode::OK, "{key}");
        let paused = inside.send("POST", &path(&format!("{key}/pause")), Value::Null).await;
        assert_eq!(paused.status, StatusCode::OK, "{key}");
        assert_eq!(inside.send("DELETE", &path(key), Value::Null).await.json()["removed"], true, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_that_cannot_be_kept_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let pull = json!({ "queue": "q" });
    for (body, status, kind) in [
        (json!({ "cron": "0 9 * * *", "zone": "Europe/Atlantis", "pull": pull }), 422, "zone-unknown"),
        (json!({ "cron": "0 99 * * *", "pull": pull }), 400, "bad-request"),
        (json!({ "cron": "0 9 * * *", "every_ms": 1_000, "pull": pull }), 400, "bad-request"),
        (json!({ "pull": pull }), 400, "bad-request"),
        (json!({ "every_ms": 1_000 }), 400, "bad-request"),
        (json!({ "every_ms": 0, "pull": pull }), 400, "bad-request"),
        (json!({ "every_ms": 1_000, "zone": "UTC", "pull": pull }), 400, "bad-request"),
        (json!({ "monthly": { "day": 32 }, "pull": pull }), 400, "bad-request"),
        (json!({ "monthly": { "day": 3, "time": "25:00" }, "pull": pull }), 400, "bad-request"),
        (json!({ "every_ms": 1_000, "pull": pull, "policy": { "jitter_ms": 5 } }), 400, "bad-request"),
        (json!({ "every_ms": 1_000, "pull": pull, "labels": ["x".repeat(65)] }), 413, "too-large"),
        (json!({ "every_ms": 1_000, "pull": pull, "oops": 1 }), 400, "bad-request"),
        (
            json!({ "every_ms": 1_000, "pull": pull, "start": "2030-01-01T00:00:00Z", "end": "2029-01-01T00:00:00Z" }),
            400,
            "bad-request",
        ),
        (json!({ "every_ms": 1_000, "callback": { "url": "http://10.0.0.1/" } }), 422, "blocked-destination"),
    ] {
        let answer = inside.send("PUT", &path("a"), body.clone()).await;
        assert_eq!(answer.problem(), (status, kind.to_owned()), "{body}");
    }
    let good = json!({ "every_ms": 60_000, "pull": pull });
    assert_eq!(inside.send("PUT", &path(&"k".repeat(129)), good.clone()).await.problem().0, 400);
    assert_eq!(inside.send("PUT", "/v1/namespaces/none/schedules/a", good).await.problem().0, 404);
    for verb in ["pause", "resume", "trigger"] {
        assert_eq!(inside.send("POST", &path(&format!("a/{verb}")), Value::Null).await.problem().0, 404);
    }
    assert_eq!(inside.send("PATCH", &path("a"), json!({ "overlap": "allow" })).await.problem().0, 404);
    assert_eq!(inside.send("GET", &format!("{SCHEDULES}?cursor=AAAA"), Value::Null).await.problem().0, 400);
    assert_eq!(inside.send("GET", &format!("{SCHEDULES}?limit=0"), Value::Null).await.problem().0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_changed_paused_resumed_and_triggered() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let new = json!({
        "cron": "0 9 * * *", "zone": "Europe/Zurich",
        "pull": { "queue": "q", "body": "hello" }, "policy": { "attempts": 3, "timeout_ms": 5_000 }
    });
    let made = inside.send("PUT", &path("a"), new.clone()).await;
    assert_eq!(made.status, StatusCode::CREATED);
    assert_eq!(inside.send("PUT", &path("a"), new).await.status, StatusCode::OK);
    let patched =
        inside.send("PATCH", &path("a"), json!({ "overlap": "queue-one", "cron": "0 10 * * *" })).await;
    let rule = patched.json()["schedule"].clone();
    assert_eq!((&rule["cron"], &rule["overlap"]), (&json!("0 10 * * *"), &json!("queue-one")), "{rule}");
    assert_eq!((&rule["pull"]["body"], &rule["zone"]), (&json!("hello"), &json!("Europe/Zurich")));
    assert_eq!((&rule["policy"]["attempts"], &rule["policy"]["timeout_ms"]), (&json!(3), &json!(5_000)));
    let paused = inside.send("POST", &path("a/pause"), Value::Null).await.json();
    assert_eq!((&paused["state"], &paused["next"]), (&json!("paused"), &Value::Null));
    let triggered = inside.send("POST", &path("a/trigger"), Value::Null).await.json();
    let claims = json!({ "max": 9, "wait_ms": 20_000 });
    let claims = inside.send("POST", "/v1/namespaces/default/queues/q/claims", claims).await.json();
    assert_eq!(claims["claims"][0]["id"], triggered["id"], "{claims}");
    let resumed = inside.send("POST", &path("a/resume"), Value::Null).await.json();
    assert_eq!((&resumed["state"], &resumed["asked"]), (&json!("active"), &json!(1)));
    assert!(resumed["next"].is_string());
    let every = inside.send("PATCH", &path("a"), json!({ "every_ms": 3_600_000 })).await.json();
    assert_eq!(
        (&every["schedule"]["cron"], &every["schedule"]["zone"]),
        (&Value::Null, &Value::Null),
        "{every}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_paged_and_a_namespace_with_schedules_stays() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    inside.send("PUT", "/v1/namespaces/other", json!({})).await;
    let new = json!({ "every_ms": 3_600_000, "pull": { "queue": "q" } });
    for n in 0..5 {
        inside.send("PUT", &format!("/v1/namespaces/other/schedules/k{n}"), new.clone()).await;
    }
    inside.send("PUT", &path("k9"), new).await;
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let list = format!("/v1/namespaces/other/schedules?key_prefix=k&limit=2{cursor}");
        let page = inside.send("GET", &list, Value::Null).await.json();
        keys.extend(
            page["items"].as_array().unwrap().iter().map(|view| view["key"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4"]);
    assert_eq!(inside.send("DELETE", "/v1/namespaces/other", Value::Null).await.problem().0, 409);
    for key in keys {
        inside.send("DELETE", &format!("/v1/namespaces/other/schedules/{key}"), Value::Null).await;
    }
    assert_eq!(
        inside.send("DELETE", "/v1/namespaces/other", Value::Null).await.status,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backfill_is_an_operation_and_its_repetition_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let new = json!({ "cron": "0 0 * * *", "pull": { "queue": "q" } });
    inside.send("PUT", &path("a"), new).await;
    let range = json!({ "from": "2025-01-01T00:00:00Z", "until": "2025-09-01T00:00:00Z" });
    let ended = async || {
        let begun = inside.send("POST", &path("a/backfill"), range.clone()).await;
        assert_eq!(begun.status, StatusCode::ACCEPTED, "{:?}", begun.json());
        let at = begun.header("location").to_owned();
        inside.until(&at, |operation| operation["state"] != "running").await
    };
    let first = ended().await;
    assert_eq!((&first["state"], &first["changed"]), (&json!("done"), &json!(244)), "{first}");
    let again = ended().await;
    assert_eq!((&again["changed"], &again["refused"]), (&json!(0), &json!(244)), "{again}");
    let listed = "/v1/namespaces/default/timers?label=schedule:a&limit=200";
    let page = inside.send("GET", listed, Value::Null).await.json();
    assert_eq!(page["items"].as_array().unwrap().len(), 200);
    assert!(page["next"].is_string());
    let wide = json!({ "from": "2015-01-01T00:00:00Z", "until": "2025-01-01T00:00:00Z" });
    assert_eq!(inside.send("POST", &path("a/backfill"), wide).await.problem().0, 400);
    for (range, pointer) in [
        (json!({ "from": "2025-02-01T00:00:00Z", "until": "2025-01-01T00:00:00Z" }), "/until"),
        (json!({ "from": "2999-01-01T00:00:00Z" }), "/from"),
        (json!({ "from": "2999-01-01T00:00:00Z", "until": "2999-02-01T00:00:00Z" }), "/from"),
    ] {
        let refused = inside.send("POST", &path("a/backfill"), range.clone()).await;
        assert_eq!(refused.problem().0, 400, "{range}");
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{range}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_survives_a_restart_and_reports_what_it_missed() {
    let rig = Rig::start().await;
    let new = json!({
        "every_ms": 100, "missed": "skip", "grace_ms": 1, "overlap": "allow", "pull": { "queue": "q" }
    });
    assert_eq!(rig.send("PUT", &path("a"), new).await.0, StatusCode::CREATED);
    // On a busy machine, each instant may be later than the schedule's grace. So it may be missed instead of made.
    let decided = |view: &Value| view["last_scheduled"].is_string();
    rig.until(&path("a"), decided).await;
    let rig = rig.restart_after(|_| std::thread::sleep(Duration::from_millis(500))).await;
    let seen = rig.until(&path("a"), |view| view["missed"].as_u64() >= Some(3)).await;
    assert_eq!(seen["state"], "active", "{seen}");
}

/// A hook that calls a function of the test before one of the next calls to the store.
#[derive(Default)]
pub(crate) struct Interposed(Mutex<Option<Interposition>>);

struct Interposition {
    is_wanted: fn(Call<'_>) -> bool,
    /// The number of calls that `is_wanted` accepts before the call at which `act` is called.
    after: u32,
    act: Box<dyn FnOnce() + Send>,
}

impl Interposed {
    /// Calls `act` before a call to the store. `is_wanted` says which calls are meant, and `after` is the number of
    /// such calls that come before.
    pub(crate) fn at(
        &self,
        is_wanted: fn(Call<'_>) -> bool,
        after: u32,
        act: impl FnOnce() + Send + 'static,
    ) {
        *self.0.lock().unwrap() = Some(Interposition { is_wanted, after, act: Box::new(act) });
    }
}

impl Hook for Interposed {
    type Seen = ();

    fn see(&self, call: Call<'_>) {
        let mut interposed = self.0.lock().unwrap();
        let Some(next) = interposed.as_mut().filter(|next| (next.is_wanted)(call)) else { return };
        if next.after > 0 {
            next.after -= 1;
            return;
        }
        let now = interposed.take();
        // The function may wait, and other calls go on in that time.
        drop(interposed);
        (now.unwrap().act)();
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        (): (),
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        pass_on()
    }
}

pub(crate) fn interposed(folder: &tempfile::TempDir) -> (Arc<Hooked<Interposed>>, Arc<Inside>) {
    let store = Arc::new(Hooked::new(Arc::new(MemoryStore::default()), Interposed::default()));
    let inside = Inside::on(folder, Arc::clone(&store) as Arc<dyn TimerStore>);
    (store, Arc::new(inside))
}

/// A patch reads the schedule, and then stores all of its fields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_undoes_no_change_that_came_after_its_read_and_makes_no_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    let new = json!({ "every_ms": 3_600_000, "pull": { "queue": "q" } });
    assert_eq!(inside.send("PUT", &path("a"), new).await.status, StatusCode::CREATED);
    let other = Schedules::new(Arc::clone(store.inner()));
    let name = ScheduleKey::new("default", "a");
    let is_get: fn(Call<'_>) -> bool = |call| call == Call::Get;

    let (another, at) = (other.clone(), name.clone());
    store.hook().at(is_get, 1, move || {
        let before = another.get(&at).unwrap();
        let jitter = Duration::from_millis(7);
        another.put(&at, Schedule { jitter, ..before.schedule }, before.template).unwrap();
    });
    let patched = inside.send("PATCH", &path("a"), json!({ "overlap": "queue-one" })).await.json();
    let rule = &patched["schedule"];
    assert_eq!((&rule["overlap"], &rule["jitter_ms"]), (&json!("queue-one"), &json!(7)), "{patched}");

    store.hook().at(is_get, 1, move || assert!(other.remove(&name).unwrap()));
    let patched = inside.send("PATCH", &path("a"), json!({ "overlap": "skip" })).await;
    assert_eq!(patched.problem().0, 404);
    assert_eq!(inside.send("GET", &path("a"), Value::Null).await.problem().0, 404);
}

const NAMESPACE: &str = "/v1/namespaces/n";

/// A request that has begun to store a schedule in the namespace `n`.
struct UnderWay {
    put: tokio::task::JoinHandle<()>,
    /// Lets the store have the schedule.
    goes_on: mpsc::Sender<()>,
}

async fn put_under_way(inside: &Arc<Inside>, store: &Hooked<Interposed>) -> UnderWay {
    assert_eq!(inside.send("PUT", NAMESPACE, json!({})).await.status, StatusCode::CREATED);
    let (comes, has_come) = mpsc::channel();
    let (goes_on, may_go_on) = mpsc::channel::<()>();
    let wait = move || {
        comes.send(()).unwrap();
        // The test may have failed and dropped the sender.
        let _may_go_on = may_go_on.recv();
    };
    store.hook().at(|call| matches!(call, Call::Apply(_)), 0, wait);
    let at = Arc::clone(inside);
    let put = tokio::spawn(async move {
        let new = json!({ "every_ms": 3_600_000, "pull": { "queue": "q" } });
        at.send("PUT", "/v1/namespaces/n/schedules/a", new).await;
    });
    tokio::task::spawn_blocking(move || has_come.recv()).await.unwrap().unwrap();
    UnderWay { put, goes_on }
}

/// Begins to remove the namespace `n`. Returns the request once other requests about the namespace are refused.
async fn removal(inside: &Arc<Inside>) -> tokio::task::JoinHandle<Answered> {
    let at = Arc::clone(inside);
    let removal = tokio::spawn(async move { at.send("DELETE", NAMESPACE, Value::Null).await });
    inside.until(NAMESPACE, |answer| answer["status"] == 429).await;
    removal
}

/// Removes the namespace `n`, and then lets the store have the schedule. Checks that the removal finds the schedule.
async fn remove_during(goes_on: mpsc::Sender<()>, inside: &Arc<Inside>) {
    let removal = removal(inside).await;
    goes_on.send(()).unwrap();
    assert_eq!(removal.await.unwrap().problem(), (409, "namespace-not-empty".to_owned()));
    inside.until("/v1/namespaces/n/schedules/a", |schedule| schedule["state"] == "active").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_namespace_finds_a_schedule_whose_client_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    let UnderWay { put, goes_on } = put_under_way(&inside, &store).await;
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    remove_during(goes_on, &inside).await;
}

/// The disk becomes full during the removal.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_namespace_is_undone_although_the_namespaces_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    let UnderWay { put: _put, goes_on } = put_under_way(&inside, &store).await;
    let removal = removal(&inside).await;
    std::fs::create_dir(folder.path().join("namespaces.new")).unwrap();
    goes_on.send(()).unwrap();
    let removed = tokio::time::timeout(Duration::from_secs(10), removal).await.expect("an answer").unwrap();
    assert_eq!(removed.problem(), (409, "namespace-not-empty".to_owned()));
    inside.until("/v1/namespaces/n/schedules/a", |schedule| schedule["state"] == "active").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_namespace_finds_a_schedule_that_began_before_a_change_of_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    let UnderWay { put: _put, goes_on } = put_under_way(&inside, &store).await;
    assert_eq!(inside.send("PUT", NAMESPACE, json!({ "max_timers": 7 })).await.status, StatusCode::OK);
    let secret = inside.send("POST", &format!("{NAMESPACE}/secrets"), Value::Null).await;
    assert_eq!(secret.status, StatusCode::CREATED);
    remove_during(goes_on, &inside).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_during_the_removal_of_a_namespace_loses_no_limits_and_no_secrets() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, inside) = interposed(&folder);
    let UnderWay { put, goes_on } = put_under_way(&inside, &store).await;
    assert_eq!(inside.send("PUT", NAMESPACE, json!({ "max_timers": 7 })).await.status, StatusCode::OK);
    let secret = inside.send("POST", &format!("{NAMESPACE}/secrets"), Value::Null).await;
    assert_eq!(secret.status, StatusCode::CREATED);
    let removal = removal(&inside).await;
    // The copy has the namespaces as a process leaves them that dies now.
    let name = "namespaces.json";
    std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    goes_on.send(()).unwrap();
    assert_eq!(removal.await.unwrap().problem(), (409, "namespace-not-empty".to_owned()));
    put.await.unwrap();
    drop(inside);
    let inside = Inside::on(&copy, store as Arc<dyn TimerStore>);
    let view = inside.send("GET", NAMESPACE, Value::Null).await.json();
    assert_eq!((&view["limits"]["max_timers"], &view["schedules"]), (&json!(7), &json!(1)), "{view}");
    assert_eq!(view["secrets"].as_array().unwrap().len(), 1, "{view}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_namespace_with_a_schedule_is_undone_although_its_client_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    let UnderWay { put: _put, goes_on } = put_under_way(&inside, &store).await;
    let removal = removal(&inside).await;
    removal.abort();
    assert!(removal.await.unwrap_err().is_cancelled());
    goes_on.send(()).unwrap();
    inside.until("/v1/namespaces/n/schedules/a", |schedule| schedule["state"] == "active").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_a_namespace_is_undone_if_its_timers_cannot_be_counted() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(Faulty::default());
    let store = Arc::new(Hooked::new(Arc::clone(&faulty) as Arc<dyn TimerStore>, Interposed::default()));
    let inside = Inside::on(&folder, Arc::clone(&store) as Arc<dyn TimerStore>);
    assert_eq!(inside.send("PUT", NAMESPACE, json!({})).await.status, StatusCode::CREATED);
    // The timers are counted before the removal, and after it.
    let fails = Arc::clone(&faulty);
    store.hook().at(|call| call == Call::Counts, 1, move || fails.hook().fail(Fails::Reads));
    assert_eq!(inside.send("DELETE", NAMESPACE, Value::Null).await.problem().0, 503);
    faulty.hook().fail(Fails::Nothing);
    assert_eq!(inside.send("GET", NAMESPACE, Value::Null).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_panics_before_its_mark_or_after_it_leaves_the_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let (store, inside) = interposed(&folder);
    assert_eq!(inside.send("PUT", NAMESPACE, json!({})).await.status, StatusCode::CREATED);
    // The timers are counted before the mark, and after it.
    for count in 0..2 {
        store.hook().at(|call| call == Call::Counts, count, || panic!("a count panics"));
        assert_eq!(inside.send("DELETE", NAMESPACE, Value::Null).await.problem().0, 500);
        assert_eq!(inside.send("GET", NAMESPACE, Value::Null).await.status, StatusCode::OK);
    }
    assert_eq!(inside.send("DELETE", NAMESPACE, Value::Null).await.status, StatusCode::NO_CONTENT);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_cannot_be_stored_is_answered_and_leaves_the_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    assert_eq!(inside.send("PUT", NAMESPACE, json!({})).await.status, StatusCode::CREATED);
    let in_the_way = folder.path().join("namespaces.new");
    std::fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        let removal = inside.send("DELETE", NAMESPACE, Value::Null);
        let removed = tokio::time::timeout(Duration::from_secs(10), removal).await.expect("an answer");
        assert_eq!(removed.problem(), (503, "store-unavailable".to_owned()));
        assert_eq!(inside.send("GET", NAMESPACE, Value::Null).await.status, StatusCode::OK);
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(inside.send("DELETE", NAMESPACE, Value::Null).await.status, StatusCode::NO_CONTENT);
}
