//! Tests the alarms, the dashboard, and the guide's page about them. All three name only series that the service
//! prints. Prometheus' own tool fires each alarm.

use crate::faulty::{Fails, Faulty};
use crate::inside::Inside;
use crate::operating::{TIMERS, number, scrape};
use crate::rig::settings;
use prometheus_parse::{Scrape, Value as Number};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tourbillon_durable::store::{MemoryStore, StoreErrorKind};
use yaml_rust2::{Yaml, YamlLoader};

fn operations(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("operations").join(file)
}

/// The beginnings of the names of the service's metrics.
const PREFIXES: [&str; 2] = ["tourbillon_", "process_"];
/// The labels that Prometheus itself adds to every metric.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// Returns the names of the metrics in an expression of Prometheus. Each name comes with the labels and values that the
/// expression demands.
fn series(expression: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    let first = |text: &str| PREFIXES.iter().filter_map(|prefix| text.find(prefix)).min();
    while let Some(at) = first(rest) {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let labels = after.strip_prefix('{').map_or("", |inside| &inside[..inside.find('}').unwrap()]);
        // Prometheus adds the labels for the job and the instance, so the service does not print them.
        let is_own = |label: &&str| {
            !label.is_empty() && !OF_PROMETHEUS.iter().any(|prefix| label.trim().starts_with(prefix))
        };
        let labels = labels.split(',').filter(is_own).map(|label| {
            assert!(!label.contains("=~") && !label.contains("!~"), "a pattern is not checked: {label}");
            let (name, value) = label.split_once('=').unwrap();
            (name.trim().trim_end_matches('!').to_owned(), value.trim().trim_matches('"').to_owned())
        });
        found.push((name.to_owned(), labels.collect()));
        rest = after;
    }
    found
}

/// Fails unless the service's `/metrics` has each metric in an expression, with the values of labels that the
/// expression demands. Each metric must also have the labels by which the expression groups.
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
        // Finds the labels in a part such as `sum by (le, op) (…)`.
        let groups = expression.split("by (").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or("");
        let is_own = |label: &&str| !label.is_empty() && *label != "le" && !OF_PROMETHEUS.contains(label);
        for label in groups.split(',').map(str::trim).filter(is_own) {
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

/// Returns the Prometheus rules of the alarms, each with its name.
fn rules() -> Vec<(String, Yaml)> {
    let alarms = std::fs::read_to_string(operations("alerts.yml")).unwrap();
    let alarms = YamlLoader::load_from_str(&alarms).unwrap().remove(0);
    let groups = alarms["groups"].as_vec().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_vec().unwrap());
    rules.map(|rule| (rule["alert"].as_str().unwrap().to_owned(), rule.clone())).collect()
}

/// Starts a service with a TLS certificate and a store in memory.
fn with_certificate(folder: &Path) -> Inside {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut settings = settings(folder);
    settings.tls = Some(tourbillon_server::Tls::open(certificate, key).unwrap());
    Inside::open(settings, Arc::new(MemoryStore::default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_series_of_the_alarms_and_of_the_dashboard_is_on_the_page_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let scrape = scrape(&with_certificate(folder.path())).await;
    let mut names = BTreeSet::new();
    for (name, rule) in rules() {
        assert!(names.insert(name.clone()), "{name} is there twice");
        assert_eq!(check(rule["expr"].as_str().unwrap(), &scrape), Ok(()), "{name}");
        for text in ["summary", "action"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| text.ends_with('.')), "{name}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}");
    }
    assert!(names.len() >= 10 && names.contains("TourbillonOverdue"), "{names:?}");

    let dashboard: Value =
        serde_json::from_slice(&std::fs::read(operations("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            assert_eq!(check(expression, &scrape), Ok(()), "{}", panel["title"]);
            // Each series is restricted to the chosen deployment, so no panel adds up several deployments.
            let chosen = expression.matches(r#"{job="$job", instance=~"$instance""#).count();
            assert_eq!(chosen, series(expression).len(), "{}: {expression}", panel["title"]);
        }
    }
    assert!(panels.len() >= 12);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
    // `check` must find the fault in each of these expressions.
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

fn guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/monitoring.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn each_alarm_links_to_its_paragraph_of_the_guide() {
    let guide = guide();
    let mut paragraphs = BTreeSet::new();
    for paragraph in guide.split("\n### ").skip(1) {
        let (title, text) = paragraph.split_once('\n').unwrap();
        assert!(text.trim().ends_with('.'), "{title}");
        paragraphs.insert(title.to_owned());
    }
    for (name, rule) in rules() {
        let anchor = format!("docs/guide/monitoring.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"].as_str(), Some(&*anchor), "{name}");
        assert!(paragraphs.remove(&name), "{name} has no paragraph");
    }
    assert!(paragraphs.is_empty(), "no alarm has the name {paragraphs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_has_each_series_of_the_page_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let inside = with_certificate(folder.path());
    let page = inside.send("GET", "/metrics", Value::Null).await.bytes;
    let page = String::from_utf8(page).unwrap();
    let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let (of_engine, printed): (BTreeSet<_>, BTreeSet<_>) =
        names.partition(|name| name.starts_with("tourbillon_engine_"));
    let guide = guide();
    let cells = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let documented: BTreeSet<_> = cells
        .flat_map(|cell| cell.split(',').map(|name| name.trim_matches(['`', ' '])))
        .filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert_eq!(printed, documented);
    assert!(printed.len() > 50 && of_engine.len() > 20);
}

/// One Prometheus may scrape the service and a program with an engine. If a series of the one had the name of a series
/// of the other, an alarm of the service would fire for that program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_series_of_an_engine_has_the_name_of_a_series_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let page = with_certificate(folder.path()).send("GET", "/metrics", Value::Null).await.bytes;
    let page = String::from_utf8(page).unwrap();
    let engine = tourbillon::future::global().stats().prometheus().to_string();
    let families = |page: &str| -> Vec<String> {
        let named = |line: &str| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned());
        page.lines().filter_map(named).collect()
    };
    let of_engine: BTreeSet<String> = families(&engine).into_iter().collect();
    assert!(of_engine.len() > 20);
    // The page ends with the series of the service's own engine.
    let (service, own) = families(&page).into_iter().partition::<Vec<_>, _>(|name| !of_engine.contains(name));
    assert_eq!(own, families(&engine), "a name is there twice, or is missing");
    // The text format appends these to the name of a histogram.
    let clashes = service.iter().filter(|name| {
        let plain = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        name.starts_with("tourbillon_engine_") || plain.is_some_and(|name| of_engine.contains(name))
    });
    assert_eq!(clashes.collect::<Vec<_>>(), [""; 0]);
}

/// Checks the rules of the alarms and the text of `/metrics` with Prometheus' own tool. The test needs the tool on the
/// machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_own_tool_accepts_the_rules_and_the_page() {
    let Some(rules) = promtool(&["check", "rules"], &operations("alerts.yml")) else { return };
    assert!(rules.status.success(), "{rules:?}");
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    let page = inside.send("GET", "/metrics", Value::Null).await.bytes;
    let path = folder.path().join("page");
    std::fs::write(&path, page).unwrap();
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let checked = Command::new(tool)
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    // The exit code 3 means that the tool has only remarks on names.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_the_store_refuses_are_counted() {
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
    // A creation that a limit refuses does not count as refused by the store.
    let none = json!({ "delay_ms": i64::MAX, "pull": { "queue": "q" } });
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), none).await.status.as_u16() / 100, 4);
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 200);
    store.hook().fail(Fails::Changes(StoreErrorKind::Full, 0));
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), far.clone()).await.status, 507);
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 503);
    let [full, ..] = refused().await;
    assert!(full >= 1.0, "{full}");
    store.hook().fail(Fails::Nothing);
    assert_eq!(inside.send("PUT", &format!("{TIMERS}/k"), far).await.status, 201);
    assert_eq!(inside.send("GET", "/readyz", Value::Null).await.status, 200);
}

/// An alarm, and metrics that are quiet for half an hour and then loud. Each metric has a name, its quiet values and
/// its loud values, as Prometheus' tool writes them.
type Case = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

const CASES: [Case; 31] = [
    ("TourbillonGone", &[("tourbillon_up_seconds", "1", "_")]),
    ("TourbillonInstanceMissing", &[("up", "1", "0"), ("tourbillon_up_seconds", "1", "_")]),
    ("TourbillonLoopStands", &[("tourbillon_alive", "1", "0")]),
    ("TourbillonOverdue", &[("tourbillon_overdue_seconds", "1", "61")]),
    // Another queue, whose timers do not wait, does not hide the one that waits.
    (
        "TourbillonQueueWaits",
        &[
            (r#"tourbillon_queue_oldest_seconds{namespace="shop",queue="mail"}"#, "299", "301"),
            (r#"tourbillon_queue_oldest_seconds{namespace="shop",queue="print"}"#, "1", "1"),
            (r#"tourbillon_parked_oldest_seconds{why="queue"}"#, "299", "9000"),
        ],
    ),
    (
        "TourbillonPauseHolds",
        &[
            (r#"tourbillon_namespace_paused_oldest_seconds{namespace="shop"}"#, "3599", "3601"),
            (r#"tourbillon_parked_oldest_seconds{why="paused"}"#, "3599", "9000"),
        ],
    ),
    (
        "TourbillonLimitHolds",
        &[
            (r#"tourbillon_parked_oldest_seconds{why="rate"}"#, "899", "901"),
            (r#"tourbillon_parked_oldest_seconds{why="share"}"#, "1", "1"),
        ],
    ),
    ("TourbillonLimitHolds", &[(r#"tourbillon_parked_oldest_seconds{why="slow"}"#, "899", "901")]),
    (
        "TourbillonLate",
        &[
            (r#"tourbillon_lateness_seconds_bucket{to="start",le="5"}"#, "0+10", "310+0"),
            (r#"tourbillon_lateness_seconds_bucket{to="start",le="10"}"#, "0+10", "310+10"),
            (r#"tourbillon_lateness_seconds_bucket{to="start",le="+Inf"}"#, "0+10", "310+10"),
        ],
    ),
    (
        "TourbillonNothingFires",
        &[
            ("tourbillon_last_fire_seconds", "1", "3601"),
            (r#"tourbillon_timers{state="pending"}"#, "1", "1"),
            ("tourbillon_overdue_seconds", "0", "11"),
        ],
    ),
    ("TourbillonShardsWithoutNode", &[("tourbillon_shards_without_node", "0", "1")]),
    ("TourbillonShardsLost", &[("tourbillon_shards_lost", "0", "1")]),
    ("TourbillonDataWentBack", &[("tourbillon_set_backs_total", "0", "1+1")]),
    ("TourbillonTakeovers", &[("tourbillon_takeovers_total", "0", "1+1")]),
    ("TourbillonDeadLetters", &[(r#"tourbillon_dead_total{reason="gone"}"#, "0", "1+1")]),
    (
        "TourbillonReceiversGetTimersTwice",
        &[
            (r#"tourbillon_duplicates_total{cause="no-answer"}"#, "0+1", "31+1"),
            (r#"tourbillon_duplicates_total{cause="lease-lost"}"#, "0", "1+1"),
        ],
    ),
    ("TourbillonLeasesLost", &[("tourbillon_lease_lost_total", "0", "1+1")]),
    ("TourbillonSkips", &[(r#"tourbillon_skipped_total{reason="late"}"#, "0", "1+1")]),
    ("TourbillonBreakerOpen", &[("tourbillon_breaker_open", "0", "1")]),
    (
        "TourbillonStoreFails",
        &[
            ("tourbillon_durable_store_errors_total", "0", "1+1"),
            ("tourbillon_durable_ends_lost_total", "0", "0"),
        ],
    ),
    (
        "TourbillonStoreRefuses",
        &[
            (r#"tourbillon_store_refused_total{reason="full"}"#, "0", "1+1"),
            ("tourbillon_store_refuses", "0", "0"),
        ],
    ),
    (
        "TourbillonStoreSlow",
        &[
            (r#"tourbillon_store_seconds_bucket{op="apply",le="1"}"#, "0+10", "310+0"),
            (r#"tourbillon_store_seconds_bucket{op="apply",le="2.5"}"#, "0+10", "310+10"),
            (r#"tourbillon_store_seconds_bucket{op="apply",le="+Inf"}"#, "0+10", "310+10"),
        ],
    ),
    (
        "TourbillonServerErrors",
        &[
            (r#"tourbillon_http_answers_total{class="2xx"}"#, "0+100", "3100+100"),
            (r#"tourbillon_http_answers_total{class="5xx"}"#, "0", "0+2"),
        ],
    ),
    (
        "TourbillonDiskFills",
        &[("tourbillon_disk_free_bytes", "50", "9"), ("tourbillon_disk_bytes", "100", "100")],
    ),
    // Moments are small numbers here, since the clock of the tool's test begins at 0.
    ("TourbillonCertificateEnds", &[("tourbillon_certificate_expiry_timestamp_seconds", "700000", "600000")]),
    ("TourbillonBackupOld", &[("tourbillon_last_backup_timestamp_seconds", "0", "-180000")]),
    ("TourbillonRecordsDamaged", &[("tourbillon_quarantined", "0", "1")]),
    ("TourbillonPanics", &[("tourbillon_http_panics_total", "0", "1+1")]),
    ("TourbillonHistoryNotWritten", &[("tourbillon_history_errors_total", "0", "1+1")]),
    ("TourbillonClockStepped", &[("tourbillon_durable_clock_steps_ahead_total", "0", "1+1")]),
    ("TourbillonClockStepped", &[("tourbillon_durable_clock_steps_back_total", "0", "1+1")]),
];

/// Writes a test of an alarm in the form of Prometheus' own tool. The alarm must not fire while its metrics are quiet,
/// and must fire once the metrics are loud. No other alarm may fire for them.
fn promtool_test((alarm, inputs): &Case) -> String {
    let mut test = String::from("- interval: 1m\n  input_series:\n");
    for (series, quiet, loud) in *inputs {
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let series = format!("{name}{{job=\"tourbillon\",instance=\"a\",{labels}").replace(",}", "}");
        test.push_str(&format!("  - series: '{series}'\n    values: {quiet}x30 {loud}x90\n"));
    }
    // Without this instance, the alarm for a deployment of which nothing is seen would fire beside each other alarm.
    if *alarm != "TourbillonGone" {
        test.push_str(
            "  - series: 'tourbillon_up_seconds{job=\"tourbillon\",instance=\"b\"}'\n    values: 1x121\n",
        );
    }
    test.push_str("  promql_expr_test:\n");
    for (at, names, count) in [("30m", "=", 0), ("2h", "=", 1), ("30m", "!=", 0), ("2h", "!=", 0)] {
        let firing = format!("ALERTS{{alertname{names}\"{alarm}\",alertstate=\"firing\"}}");
        let expected = format!("exp_samples: [{{ value: {count} }}]");
        let expression = format!("count({firing}) or vector(0)");
        test.push_str(&format!("  - expr: {expression}\n    eval_time: {at}\n    {expected}\n"));
    }
    test
}

/// Runs Prometheus' tool `promtool` on a file. If the tool is not installed, prints that the test is skipped and
/// returns `None`.
fn promtool(arguments: &[&str], path: &Path) -> Option<std::process::Output> {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let ended = Command::new(tool).args(arguments).arg(path).output().ok();
    if ended.is_none() {
        eprintln!("skipped: promtool is not installed (Debian's package prometheus has it)");
    }
    ended
}

#[test]
fn each_alarm_fires_after_its_cause_and_not_before() {
    let tested: BTreeSet<_> = CASES.iter().map(|(alarm, _)| *alarm).collect();
    assert_eq!(tested, rules().iter().map(|(name, _)| &**name).collect());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alarms.test.yml");
    let begin = format!("rule_files: [{:?}]\nevaluation_interval: 1m\ntests:\n", operations("alerts.yml"));
    for case in &CASES {
        let test = format!("{begin}{}", promtool_test(case));
        std::fs::write(&path, &test).unwrap();
        let Some(tested) = promtool(&["test", "rules"], &path) else { return };
        assert!(tested.status.success(), "{tested:?}\n{test}");
    }
    // The tool must notice an alarm that does not fire, and another one that fires beside it.
    const WRONG: [Case; 2] = [
        ("TourbillonPanics", &[("tourbillon_http_panics_total", "0", "0")]),
        (
            "TourbillonPanics",
            &[("tourbillon_http_panics_total", "0", "1+1"), ("tourbillon_shards_lost", "0", "1")],
        ),
    ];
    for wrong in &WRONG {
        std::fs::write(&path, format!("{begin}{}", promtool_test(wrong))).unwrap();
        assert!(!promtool(&["test", "rules"], &path).unwrap().status.success(), "{wrong:?}");
    }
}
