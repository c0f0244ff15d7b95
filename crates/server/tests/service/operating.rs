//! The page of numbers for machines, and the alarms and the dashboard that are made of them.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use crate::receivers::{Manner, Rough};
use prometheus_parse::{Scrape, Value as Number};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use tourbillon_durable::store::StoreErrorKind;
use yaml_rust2::YamlLoader;

const TIMERS: &str = "/v1/namespaces/default/timers";

/// The page, as a parser reads it that is not this project's.
pub(crate) async fn scrape(inside: &Inside) -> Scrape {
    let page = inside.send("GET", "/metrics", Value::Null).await;
    assert_eq!(page.status, 200);
    let page = String::from_utf8(page.bytes).unwrap();
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

/// The value of a counter or gauge with this label, or without labels.
pub(crate) fn number(scrape: &Scrape, name: &str, label: Option<(&str, &str)>) -> f64 {
    let fits = |of: &&prometheus_parse::Sample| {
        of.metric == name && label.is_none_or(|(label, value)| of.labels.get(label) == Some(value))
    };
    let mut samples = scrape.samples.iter().filter(fits);
    let sample = samples.next().unwrap_or_else(|| panic!("{name} {label:?} is missing"));
    assert!(samples.next().is_none(), "{name} {label:?} is there twice");
    match sample.value {
        Number::Counter(value) | Number::Gauge(value) | Number::Untyped(value) => value,
        ref other => panic!("{name} is {other:?}"),
    }
}

/// The number of times in a histogram.
fn count(scrape: &Scrape, name: &str, label: (&str, &str)) -> f64 {
    let fits = |of: &&prometheus_parse::Sample| of.metric == name && of.labels.get(label.0) == Some(label.1);
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
    // The numbers by outcome are noted just after those of the store.
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

/// T-19: an alarm by age, which a readiness that is green does not give, and the moment of the last delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t19_the_oldest_overdue_timer_and_the_last_delivery_have_ages() {
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
    // The loop cannot be ended, nor does this test wait for it.
    let stuck = std::mem::ManuallyDrop::new(Inside::on(&folder, store.clone()));
    store.fail(Fails::ClaimsHang);
    stuck.send("POST", TIMERS, due).await;
    let stats = stuck.until("/v1/stats", |stats| stats["overdue_ms"].as_u64() > Some(50)).await;
    assert_eq!((&stats["pending"], stats.get("last_fire")), (&json!(1), None), "{stats}");
    assert_eq!(stuck.send("GET", "/readyz", Value::Null).await.status, 200, "the store can be read");
    // The age grows, although the loop itself knows of no due timer.
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

// --- Alarms and dashboard ---

fn operations(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("operations").join(file)
}

/// The series of an expression, each with the labels that must be equal to a value.
fn series(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("tourbillon_") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let labels = after.strip_prefix('{').map_or("", |inside| &inside[..inside.find('}').unwrap()]);
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
            assert!(!label.contains("=~") && !label.contains("!~"), "a pattern is not checked: {label}");
            let (name, value) = label.split_once('=').unwrap();
            (name.trim().trim_end_matches('!').to_owned(), value.trim().trim_matches('"').to_owned())
        });
        found.push((name.to_owned(), labels.collect()));
        rest = after;
    }
    found
}

/// Fails unless the page has the series, with these values of labels, and all labels by which the expression groups.
fn check(expression: &str, scrape: &Scrape) -> Result<(), String> {
    let all = series(expression);
    if all.is_empty() {
        return Err(format!("no series of this service in {expression}"));
    }
    for (name, labels) in all {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let is_there = |sample: &prometheus_parse::Sample| {
            let is_histogram = matches!(sample.value, Number::Histogram(_));
            let is_name =
                if is_histogram { Some(&*sample.metric) == of_histogram } else { sample.metric == name };
            is_name && labels.iter().all(|(label, value)| sample.labels.get(label) == Some(value))
        };
        if !scrape.samples.iter().any(is_there) {
            return Err(format!("{name} with {labels:?} is not on the page: {expression}"));
        }
        // `sum by (le, op) (…)`
        let groups = expression.split("by (").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or("");
        for label in groups.split(',').map(str::trim).filter(|label| !label.is_empty() && *label != "le") {
            let has = |sample: &prometheus_parse::Sample| {
                (sample.metric == name || Some(&*sample.metric) == of_histogram)
                    && sample.labels.get(label).is_some()
            };
            if !scrape.samples.iter().any(has) {
                return Err(format!("{name} has no label {label}: {expression}"));
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_series_of_the_alarms_and_of_the_dashboard_is_on_the_page_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let scrape = scrape(&inside).await;

    let alarms = std::fs::read_to_string(operations("alerts.yml")).unwrap();
    let alarms = YamlLoader::load_from_str(&alarms).unwrap().remove(0);
    let mut names = BTreeSet::new();
    for group in alarms["groups"].as_vec().unwrap() {
        for rule in group["rules"].as_vec().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            assert_eq!(check(rule["expr"].as_str().unwrap(), &scrape), Ok(()), "{name}");
            for text in ["summary", "action"] {
                assert!(rule["annotations"][text].as_str().is_some_and(|text| text.ends_with('.')), "{name}");
            }
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["critical", "warning", "info"].contains(&severity), "{name}");
        }
    }
    assert!(names.len() >= 10 && names.contains("TourbillonOverdue"), "{names:?}");

    let dashboard: Value =
        serde_json::from_slice(&std::fs::read(operations("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let result = check(target["expr"].as_str().unwrap(), &scrape);
            assert_eq!(result, Ok(()), "{}", panel["title"]);
        }
    }
    assert!(panels.len() >= 12);
    // The check finds what is wrong.
    for wrong in [
        "tourbillon_overdue_second > 1",
        "tourbillon_timers{state=\"asleep\"}",
        "sum by (shard) (tourbillon_timers)",
        "rate(tourbillon_overdue_seconds_bucket[5m])",
        "up == 0",
    ] {
        assert!(check(wrong, &scrape).is_err(), "{wrong}");
    }
}

/// Prometheus' own tool reads the rules and the page, if it is installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_own_tool_accepts_the_rules_and_the_page() {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let Ok(rules) = Command::new(&tool).args(["check", "rules"]).arg(operations("alerts.yml")).output()
    else {
        eprintln!("skipped: promtool is not installed (Debian's package prometheus has it)");
        return;
    };
    assert!(rules.status.success(), "{rules:?}");
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let page = inside.send("GET", "/metrics", Value::Null).await.bytes;
    let path = folder.path().join("page");
    std::fs::write(&path, page).unwrap();
    let checked = Command::new(&tool)
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    // The status 3 stands for remarks on names.
    let text = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(matches!(checked.status.code(), Some(0 | 3)), "{text}");
    assert!(!text.contains("error while linting"), "{text}");
    let remarks = text.lines().filter(|line| {
        let is_own =
            ["tourbillon_durable_", "tourbillon_engine_"].iter().all(|other| !line.starts_with(other));
        is_own && line.starts_with("tourbillon_")
    });
    assert_eq!(remarks.collect::<Vec<_>>(), [""; 0]);
}

/// Prometheus' own tool evaluates the alarm on the numbers of a service whose store refuses a creation, if it is
/// installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_fires_when_the_store_refuses_changes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::default());
    let inside = Inside::on(&folder, store.clone());
    let refused = async || {
        let scrape = scrape(&inside).await;
        ["full", "read-only", "damaged", "io"]
            .map(|reason| number(&scrape, "tourbillon_store_refused_total", Some(("reason", reason))))
    };
    assert_eq!(refused().await.map(f64::to_bits), [0.0; 4].map(f64::to_bits));
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 200);
    let far = json!({ "delay_ms": 600_000, "pull": { "queue": "q" } });
    // A limit is none of the store's reasons.
    let none = json!({ "delay_ms": u64::MAX, "pull": { "queue": "q" } });
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), none).await.status.as_u16() / 100, 4);
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 200);
    store.fail(Fails::Changes(StoreErrorKind::Full, 0));
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), far.clone()).await.status, 507);
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 503);
    let [full, ..] = refused().await;
    assert!(full >= 1.0, "{full}");
    store.fail(Fails::Nothing);
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), far).await.status, 201);
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 200);

    fires(&folder, "TourbillonStoreRefuses", "tourbillon_store_refused_total{reason=\"full\"}", full);
}

/// Lets Prometheus' own tool evaluate an alarm, if it is installed: the series rises from 0 to a value.
fn fires(folder: &tempfile::TempDir, alarm: &str, series: &str, value: f64) {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let count = format!("count(ALERTS{{alertname=\"{alarm}\",alertstate=\"firing\"}}) or vector(0)");
    let test = format!(
        "rule_files: [{:?}]\n\
         evaluation_interval: 15s\n\
         tests:\n\
         - interval: 15s\n  \
           input_series:\n  \
           - series: {series}\n    \
             values: 0 0 0 0 {value} {value} {value} {value}\n  \
           promql_expr_test:\n  \
           - expr: {count}\n    \
             eval_time: 45s\n    \
             exp_samples: [{{ value: 0 }}]\n  \
           - expr: {count}\n    \
             eval_time: 75s\n    \
             exp_samples: [{{ value: 1 }}]\n",
        operations("alerts.yml")
    );
    let path = folder.path().join("alarms.test.yml");
    std::fs::write(&path, &test).unwrap();
    let Ok(tested) = Command::new(&tool).args(["test", "rules"]).arg(&path).output() else {
        eprintln!("skipped: promtool is not installed (Debian's package prometheus has it)");
        return;
    };
    assert!(tested.status.success(), "{tested:?}\n{test}");
}

#[test]
fn alarms_fire_when_a_server_has_lost_shards_and_when_its_data_went_back() {
    let folder = tempfile::tempdir().unwrap();
    fires(&folder, "TourbillonShardsLost", "tourbillon_shards_lost", 1.0);
    fires(&folder, "TourbillonDataWentBack", "tourbillon_set_backs_total", 1.0);
}
