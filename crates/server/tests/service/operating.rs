//! Tests `/metrics`, the page with the service's numbers for programs that watch it.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use crate::receivers::{Manner, Rough};
use axum::body::Body;
use axum::http::Request;
use prometheus_parse::{Scrape, Value as Number};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const TIMERS: &str = "/v1/namespaces/default/timers";

/// Reads the service's `/metrics` with a parser from another project.
pub(crate) async fn scrape(inside: &Inside) -> Scrape {
    let page = inside.send("GET", "/metrics", Value::Null).await;
    assert_eq!(page.status, 200);
    let page = String::from_utf8(page.bytes).unwrap();
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

/// Returns the value of the counter or gauge `name` with the label `label`. If `label` is `None`, the metric may have
/// any labels.
pub(crate) fn number(scrape: &Scrape, name: &str, label: Option<(&str, &str)>) -> f64 {
    let fits = |sample: &&prometheus_parse::Sample| {
        sample.metric == name && label.is_none_or(|(label, value)| sample.labels.get(label) == Some(value))
    };
    let mut samples = scrape.samples.iter().filter(fits);
    let sample = samples.next().unwrap_or_else(|| panic!("{name} {label:?} is missing"));
    assert!(samples.next().is_none(), "{name} {label:?} is there twice");
    match sample.value {
        Number::Counter(value) | Number::Gauge(value) | Number::Untyped(value) => value,
        ref other => panic!("{name} is {other:?}"),
    }
}

/// Returns the number of values that the histogram `name` with the label `label` has counted.
fn count(scrape: &Scrape, name: &str, label: (&str, &str)) -> f64 {
    let fits = |sample: &&prometheus_parse::Sample| {
        sample.metric == name && sample.labels.get(label.0) == Some(label.1)
    };
    let sample = scrape.samples.iter().find(fits).unwrap_or_else(|| panic!("{name} {label:?} is missing"));
    let Number::Histogram(buckets) = &sample.value else { panic!("{name} is {:?}", sample.value) };
    assert!(buckets.is_sorted_by(|a, b| a.less_than < b.less_than && a.count <= b.count), "{buckets:?}");
    let last = buckets.last().unwrap();
    assert!(last.less_than.is_infinite());
    last.count
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_the_service_makes_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let (new, there) = (folder.path().join("a/b"), folder.path().join("there"));
    std::fs::create_dir(&there).unwrap();
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (data, expected) in [(&new, 0o700), (&there, 0o755)] {
        let rig = crate::rig::Rig::start_with(|settings| settings.data.clone_from(data)).await;
        assert_eq!(rig.send("PUT", "/v1/namespaces/n", json!({})).await.0, 201);
        drop(rig);
        assert_eq!(mode(data), expected, "{data:?}");
        let files = std::fs::read_dir(data).unwrap().map(|file| file.unwrap().path());
        let files: Vec<_> = files.inspect(|path| assert_eq!(mode(path) & 0o077, 0, "{path:?}")).collect();
        for name in ["timers.redb", "namespaces.json", "history.ring"] {
            assert!(files.contains(&data.join(name)), "{name} is not in {files:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_those_of_what_has_happened() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    let gone = Rough::start(Manner::answer("410 Gone", "")).await;
    let broken = Rough::start(Manner::answer("503 Away", "")).await;
    for (url, count) in [(receiver.url(), 3), (gone.url(), 2), (broken.url(), 1)] {
        for _ in 0..count {
            let timer = json!({ "callback": { "url": url }, "policy": { "attempts": 1 } });
            assert_eq!(inside.send("POST", TIMERS, timer).await.status, 201);
        }
    }
    let far = json!({ "delay_ms": 600_000, "pull": { "queue": "q" } });
    inside.send("PUT", &format!("{TIMERS}/far"), far).await;
    inside.until("/v1/stats", |stats| stats["delivered"] == 3 && stats["dead"] == 3).await;
    // The counters by outcome change just after the store's counters. So read until they have changed.
    let begun = std::time::Instant::now();
    let scrape = loop {
        let scrape = scrape(&inside).await;
        let fired: f64 = ["delivered", "dead"]
            .iter()
            .map(|outcome| number(&scrape, "tourbillon_fired_total", Some(("outcome", outcome))))
            .sum();
        if fired >= 6.0 {
            break scrape;
        }
        assert!(begun.elapsed().as_secs() < 20, "{fired}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    for (name, label, value) in [
        ("tourbillon_timers", Some(("state", "pending")), 1.0),
        ("tourbillon_timers", Some(("state", "dead")), 3.0),
        ("tourbillon_created_total", None, 7.0),
        ("tourbillon_fired_total", Some(("outcome", "delivered")), 3.0),
        ("tourbillon_fired_total", Some(("outcome", "dead")), 3.0),
        ("tourbillon_dead_total", Some(("reason", "gone")), 2.0),
        ("tourbillon_dead_total", Some(("reason", "failures")), 1.0),
        ("tourbillon_duplicates_total", Some(("cause", "no-answer")), 0.0),
        ("tourbillon_skipped_total", Some(("reason", "late")), 0.0),
        ("tourbillon_lease_lost_total", None, 0.0),
        ("tourbillon_breaker_open", None, 0.0),
        ("tourbillon_callback_hosts", None, 3.0),
        ("tourbillon_parked", Some(("why", "queue")), 0.0),
        ("tourbillon_alive", None, 1.0),
        ("tourbillon_overdue_seconds", None, 0.0),
    ] {
        assert_eq!(number(&scrape, name, label).to_bits(), f64::to_bits(value), "{name} {label:?}");
    }
    for (name, label, value) in [
        ("tourbillon_lateness_seconds", ("to", "start"), 6.0),
        ("tourbillon_lateness_seconds", ("to", "ack"), 3.0),
        ("tourbillon_callback_seconds", ("class", "2xx"), 3.0),
        ("tourbillon_callback_seconds", ("class", "4xx"), 2.0),
        ("tourbillon_callback_seconds", ("class", "5xx"), 1.0),
        ("tourbillon_callback_seconds", ("class", "timeout"), 0.0),
    ] {
        assert_eq!(count(&scrape, name, label).to_bits(), f64::to_bits(value), "{name} {label:?}");
    }
    assert!(count(&scrape, "tourbillon_store_seconds", ("op", "apply")) >= 7.0);
    assert!(count(&scrape, "tourbillon_store_seconds", ("op", "claim")) >= 1.0);
    let (up, last) = ("tourbillon_up_seconds", "tourbillon_last_fire_seconds");
    assert!(number(&scrape, last, None) <= number(&scrape, up, None));
}

/// `/metrics` shows the age of the oldest overdue timer, even if `/readyz` reports no fault. So an alarm can use the
/// age. `/metrics` also shows the moment of the last delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_overdue_timer_and_the_last_delivery_have_ages() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    let due = json!({ "callback": { "url": receiver.url() } });
    let stats = inside.send("GET", "/v1/stats", Value::Null).await.json();
    assert_eq!(stats.get("last_fire"), None, "{stats}");
    inside.send("POST", TIMERS, due.clone()).await;
    let stats = inside.until("/v1/stats", |stats| stats["delivered"] == 1).await;
    let last: tourbillon_api::Moment = stats["last_fire"].as_str().unwrap().parse().unwrap();
    let now: tourbillon_api::Moment = stats["now"].as_str().unwrap().parse().unwrap();
    assert!(last <= now && stats["overdue_ms"] == 0, "{stats}");

    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    // The loop that delivers timers hangs, so the service must not be dropped: this would wait for the loop.
    let stuck = std::mem::ManuallyDrop::new(Inside::on(&folder, store.clone()));
    store.hook().fail(Fails::ClaimsHang);
    stuck.send("POST", TIMERS, due).await;
    let stats = stuck.until("/v1/stats", |stats| stats["overdue_ms"].as_u64() > Some(50)).await;
    assert_eq!((&stats["pending"], stats.get("last_fire")), (&json!(1), None), "{stats}");
    assert_eq!(stuck.send("GET", "/readyz", Value::Null).await.status, 200, "the store can be read");
    // The age grows, although the loop itself has not yet seen a due timer.
    let begun = std::time::Instant::now();
    let scrape = loop {
        let scrape = scrape(&stuck).await;
        if number(&scrape, "tourbillon_poll_age_seconds", None) > 0.1 {
            break scrape;
        }
        assert!(begun.elapsed().as_secs() < 20);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert!(number(&scrape, "tourbillon_overdue_seconds", None) >= 0.1);
    assert!(number(&scrape, "tourbillon_last_fire_seconds", None) > 0.0);
    let horizon = stuck.send("GET", "/v1/horizon", Value::Null).await.json();
    assert_eq!(
        (&horizon["buckets"][0]["within_ms"], &horizon["buckets"][0]["count"]),
        (&json!(0), &json!(1))
    );
    stuck.service.begin_stop();
}

/// `/metrics` has numbers for each namespace. The numbers of a namespace disappear when the namespace is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_has_its_own_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    inside.send("PUT", "/v1/namespaces/shop", json!({})).await;
    inside.send("PUT", "/v1/namespaces/gone", json!({})).await;
    let due = json!({ "callback": { "url": receiver.url() } });
    assert_eq!(inside.send("POST", "/v1/namespaces/shop/timers", due).await.status, 201);
    let far = json!({ "delay_ms": 600_000, "pull": { "queue": "q" } });
    for key in ["a", "b"] {
        inside.send("PUT", &format!("/v1/namespaces/shop/timers/{key}"), far.clone()).await;
    }
    inside.send("DELETE", "/v1/namespaces/shop/timers/b", Value::Null).await;
    inside.send("PUT", &format!("{TIMERS}/k"), far).await;
    inside.until("/v1/stats", |stats| stats["delivered"] == 1).await;
    inside.send("DELETE", "/v1/namespaces/gone", Value::Null).await;
    let begun = std::time::Instant::now();
    let value = async |name: &str, labels: [(&str, &str); 2]| {
        let scrape = scrape(&inside).await;
        let fits = |sample: &&prometheus_parse::Sample| {
            sample.metric == name
                && labels.iter().all(|(label, value)| sample.labels.get(label) == Some(value))
        };
        let sample = scrape.samples.into_iter().find(|sample| fits(&sample))?;
        match sample.value {
            Number::Counter(value) | Number::Gauge(value) => Some(value.to_bits()),
            other => panic!("{other:?}"),
        }
    };
    let shop = ("namespace", "shop");
    // The counter by outcome changes just after the store's counter. So read until it has changed.
    while value("tourbillon_namespace_fired_total", [shop, ("outcome", "delivered")]).await
        != Some(f64::to_bits(1.0))
    {
        assert!(begun.elapsed().as_secs() < 20);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for (name, labels, expected) in [
        ("tourbillon_namespace_created_total", [shop, shop], Some(3.0)),
        ("tourbillon_namespace_cancelled_total", [shop, shop], Some(1.0)),
        ("tourbillon_namespace_timers", [shop, ("state", "pending")], Some(1.0)),
        ("tourbillon_namespace_timers", [("namespace", "default"), ("state", "pending")], Some(1.0)),
        ("tourbillon_namespace_timers", [("namespace", "(other)"), ("state", "pending")], Some(0.0)),
        ("tourbillon_namespace_created_total", [("namespace", "default"); 2], Some(1.0)),
        ("tourbillon_namespace_created_total", [("namespace", "gone"); 2], None),
    ] {
        assert_eq!(value(name, labels).await, expected.map(f64::to_bits), "{name} {labels:?}");
    }
}

/// A backup counts as made once its reader has received all bytes. The service remembers the moment of the last backup
/// over a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_backup_has_its_moment() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(tourbillon_durable::store::MemoryStore::default());
    let inside = Inside::on(&folder, store.clone());
    let last = async |inside: &Inside| {
        number(&scrape(inside).await, "tourbillon_last_backup_timestamp_seconds", None)
    };
    assert_eq!(last(&inside).await.to_bits(), 0.0_f64.to_bits());
    // A reader that leaves has not received all of the backup.
    let request = Request::post("/v1/backup").body(Body::empty()).unwrap();
    drop(tower::ServiceExt::oneshot(inside.router.clone(), request).await.unwrap());
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(last(&inside).await.to_bits(), 0.0_f64.to_bits());

    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64().floor();
    assert_eq!(inside.send("POST", "/v1/backup", Value::Null).await.status, 200);
    let begun = std::time::Instant::now();
    while last(&inside).await < before {
        assert!(begun.elapsed().as_secs() < 20);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let known = last(&inside).await;
    inside.stop().await;
    let inside = Inside::on(&folder, store);
    assert_eq!(last(&inside).await.to_bits(), known.to_bits());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_and_the_disk_have_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("timers.redb"), [0; 1_000]).unwrap();
    let inside = Inside::start(&folder);
    let scrape = scrape(&inside).await;
    let value = |name| number(&scrape, name, None);
    assert!((1e6..1e11).contains(&value("process_resident_memory_bytes")));
    assert!(value("process_open_fds") > 2.0 && value("process_open_fds") < value("process_max_fds"));
    assert!(value("process_threads") > 1.0 && value("process_cpu_seconds_total") >= 0.0);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((now - 86_400.0..now + 2.0).contains(&value("process_start_time_seconds")));
    assert!(value("tourbillon_disk_free_bytes") > 0.0);
    assert!(value("tourbillon_disk_free_bytes") <= value("tourbillon_disk_bytes"));
    let part = |part| number(&scrape, "tourbillon_store_bytes", Some(("part", part)));
    assert_eq!(part("timers").to_bits(), 1_000.0_f64.to_bits());
    assert_eq!(part("journal").to_bits(), 0.0_f64.to_bits());
}
