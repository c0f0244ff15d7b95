//! Starts a service that has much to show, and takes pictures of its pages.
//!
//! The pictures are for people, and are taken if `TOURBILLON_PICTURES` names a folder for them. A test by itself checks
//! only that nothing is wider than the window, and that the browser reports no fault.

use crate::driver::Browser;
use crate::rig::{Rig, percent};
use axum::http::{StatusCode, Uri};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

/// The namespaces of the service under test. The last namespace is paused.
const NAMESPACES: [&str; 5] = [
    "default",
    "billing",
    "shop",
    "a-name.that-is-as-long_as-the-names-of-namespaces-may-be-0123456",
    "quiet",
];

/// Returns keys that are hard to show: written from right to left, with marks above and below each letter, wide, long,
/// or with markup.
fn odd_keys() -> Vec<String> {
    let marks: String = (0..40).map(|mark| char::from_u32(0x300 + mark).unwrap()).collect();
    [
        "طلب/٤٢ تجديد الاشتراك",
        "הזמנה 17",
        "\u{202e}turned round",
        "<b>no markup</b> & \"quotes\"",
        "👩‍👩‍👧‍👦🏳️‍🌈 family",
        "﷽﷽﷽﷽﷽﷽﷽﷽",
        "注文番号一二三四五六七八九十注文番号一二三四五六七八九十",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("Z{marks}algo"), "long-".to_owned() + &"x".repeat(250)])
    .collect()
}

/// Starts a receiver of callbacks on all addresses of this machine. The receiver answers with the status at the end of
/// the path. If the path begins with `/slow`, the answer comes late. Returns the receiver's port.
async fn receiver() -> u16 {
    let answer = async |uri: Uri| {
        if uri.path().starts_with("/slow") {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }
        let status = uri.path().rsplit('/').next().and_then(|status| status.parse().ok());
        status.unwrap_or(StatusCode::NO_CONTENT)
    };
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    port
}

/// Writes a history of the service's last 71 hours, with busy days and quiet nights. In one hour the service did not
/// run, and in another hour callbacks failed.
fn write_history(folder: &Path) {
    const STEP: u64 = 10_000;
    const SAMPLES: u64 = 25_920;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let last = u64::try_from(now).unwrap() / STEP;
    let mut bytes = vec![0; 64 + 48 * usize::try_from(SAMPLES).unwrap()];
    bytes[..16].copy_from_slice(b"tourbillon hist1");
    for number in last - 71 * 360..last {
        let ago = last - number;
        if (20 * 360..21 * 360).contains(&ago) {
            continue;
        }
        let hour = number / 360 % 24;
        let busy = 1 + 20 * hour.min(24 - hour) + number * 7 % 23;
        let is_bad = (30 * 360..31 * 360).contains(&ago);
        let (failed, dead) = if is_bad { (busy / 2, busy / 20) } else { (busy / 90, 0) };
        let overdue = if is_bad { 40_000 + number % 7 * 1_000 } else { number % 5 * 20 };
        let mut record = number.to_le_bytes().to_vec();
        for count in [busy, busy - failed, failed, busy / 50, dead] {
            record.extend(u32::try_from(count).unwrap().to_le_bytes());
        }
        record.extend(overdue.to_le_bytes());
        record.extend((20_000 + busy * 40).to_le_bytes());
        record.extend(crc32fast::hash(&record).to_le_bytes());
        let at = 64 + 48 * usize::try_from(number % SAMPLES).unwrap();
        bytes[at..at + 48].copy_from_slice(&record);
    }
    std::fs::write(folder.join("history.ring"), bytes).unwrap();
}

/// Starts a service with `count` timers in several namespaces, and with everything else that pages can show. If
/// `has_past` is true, the service also has a history of three days.
pub(crate) async fn seeded(count: usize, has_past: bool) -> Rig {
    let rig = Rig::start_with(|settings| {
        if has_past {
            write_history(&settings.data);
        }
    })
    .await;
    let port = receiver().await;
    // The address of a listener that is closed at once, so nobody listens there.
    let nobody = TcpListener::bind("127.0.0.5:0").await.unwrap().local_addr().unwrap();
    let url = |host: u8, path: &str| format!("http://127.0.0.{host}:{port}{path}");
    for (namespace, limits) in [
        ("billing", json!({ "rate_per_second": 50, "max_body_bytes": 65_536, "keep_answers": true })),
        ("shop", json!({ "max_timers": 1_000_000, "allowed_hosts": ["127.0.0.1", "*.example.com"] })),
        (NAMESPACES[3], json!({ "concurrency": 4, "max_delay_ms": 5 * 366 * 86_400_000_u64 })),
        ("quiet", json!({ "paused": true })),
    ] {
        rig.api("PUT", &format!("/v1/namespaces/{namespace}"), "", limits).await;
    }
    let put = async |namespace: &str, changes: Vec<Value>| {
        for part in changes.chunks(1_000) {
            let path = format!("/v1/namespaces/{namespace}/batch");
            rig.api("POST", &path, "", json!({ "changes": part })).await;
        }
    };
    let change = |key: String, delay: u64, labels: Value, url: String, policy: Value| {
        json!({ "put": { "key": key, "timer": { "delay_ms": delay, "labels": labels, "policy": policy, "callback": {
            "url": url, "headers": { "x-trace": "0af7651916cd43dd" }, "json": { "key": key, "amount": "12.50" },
        } } } })
    };
    // The timers are due in seconds to three years. Each doubling of the time has about the same number of timers.
    for (at, namespace) in NAMESPACES.into_iter().enumerate() {
        let share = count / (1 << at) / 2;
        let changes = (0..share as u64).map(|number| {
            let delay = (1_000 + number * 37 % 1_000) << (number % 27);
            let labels = if number % 3 == 0 {
                json!([format!("customer {}", number % 50), "invoice"])
            } else {
                json!([])
            };
            change(format!("order {number:06}"), delay, labels, url(1, "/hooks/orders/204"), json!({}))
        });
        put(namespace, changes.collect()).await;
    }
    let far = 30_000_000;
    let mut changes: Vec<Value> = odd_keys()
        .into_iter()
        .map(|key| change(key, far, json!(["سمة"]), url(1, "/204"), json!({})))
        .collect();
    let long = format!("/{}?{}", "a-part-of-a-path/".repeat(40), "parameter=value&".repeat(40));
    let labels: Vec<String> = (0..8).map(|label| format!("label-{label}-{}", "y".repeat(56))).collect();
    changes.push(change(
        "a long address and long labels".to_owned(),
        far,
        json!(labels),
        url(1, &long),
        json!({}),
    ));
    // Timers with trouble: their receiver fails once or again and again, is slow, or does not listen at all.
    let once = json!({ "attempts": 1 });
    let patient = json!({ "attempts": 5, "backoff": { "kind": "fixed", "pause_ms": 3_600_000 } });
    for number in 0..60 {
        changes.push(change(
            format!("refund {number:03}"),
            0,
            json!(["refund"]),
            url(2, "/v2/refunds/500"),
            once.clone(),
        ));
        changes.push(change(format!("reminder {number:03}"), 0, json!([]), url(3, "/503"), patient.clone()));
        changes.push(change(
            format!("slow {number:03}"),
            number * 40,
            json!([]),
            url(4, "/slow/200"),
            json!({}),
        ));
        changes.push(change(
            format!("gone {number:03}"),
            0,
            json!([]),
            format!("http://{nobody}/{number}"),
            patient.clone(),
        ));
    }
    changes.extend(
        odd_keys()
            .into_iter()
            .map(|key| change(format!("dead {key}"), 0, json!(["سمة"]), url(6, "/422"), once.clone())),
    );
    // A key of 200 bytes that cannot be broken into lines, the longest labels, and characters that change the direction
    // of text.
    for number in 0..3 {
        let key = format!("{number}{}\u{202e}", "y".repeat(200));
        changes.push(change(key, 0, json!(labels), url(6, &long.replace('?', "/500?")), once.clone()));
    }
    changes.push(change("paused by hand".to_owned(), far, json!([]), url(1, "/204"), json!({})));
    put("default", changes).await;
    let pulls = (0..20).map(|number| {
        json!({ "put": { "key": format!("mail {number}"), "timer": { "delay_ms": 0, "pull": { "queue": "emails", "body": "hello" } } } })
    });
    put("default", pulls.collect()).await;
    rig.api("POST", "/v1/namespaces/default/timers/paused%20by%20hand/pause", "", Value::Null).await;
    for (key, schedule) in schedules(&url(4, "/slow/200")) {
        let mut schedule = schedule;
        if schedule.get("callback").is_none() && schedule.get("pull").is_none() {
            schedule["callback"] = json!({ "url": url(1, "/reports/204") });
        }
        rig.api("PUT", &format!("/v1/namespaces/default/schedules/{}", percent(&key)), "", schedule).await;
    }
    rig.api("POST", "/v1/namespaces/default/schedules/paused%20for%20the%20holidays/pause", "", Value::Null)
        .await;
    rig
}

/// Returns schedules of all kinds: with clock changes in three zones, by month, by period, with limits, and with
/// skipped instants. `slow` is the URL of a receiver that answers late.
fn schedules(slow: &str) -> Vec<(String, Value)> {
    let key = str::to_owned;
    vec![
        (
            key("daily report"),
            json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich", "start": "2031-03-26T00:00:00Z", "jitter_ms": 60_000 }),
        ),
        (
            key("autumn"),
            json!({ "cron": "30 1,2 * * *", "zone": "Europe/Zurich", "start": "2031-10-24T00:00:00Z" }),
        ),
        (
            key("left out"),
            json!({ "cron": "15 2 * * *", "zone": "America/New_York", "gap": "skip", "start": "2031-03-06T00:00:00Z" }),
        ),
        (
            key("half an hour"),
            json!({ "cron": "10 2 * * *", "zone": "Australia/Lord_Howe", "start": "2031-10-03T00:00:00Z" }),
        ),
        (
            key("month's end"),
            json!({ "monthly": { "day": 31, "time": "09:00" }, "zone": "Asia/Kathmandu", "missed": "all" }),
        ),
        (key("leap day"), json!({ "cron": "0 0 29 2 *", "zone": "Pacific/Auckland" })),
        (key("each second, slow receiver"), json!({ "every_ms": 1_000, "callback": { "url": slow } })),
        (key("paused for the holidays"), json!({ "cron": "*/15 8-18 * * MON-FRI", "zone": "Europe/Zurich" })),
        (
            key("ends soon"),
            json!({ "cron": "0 12 1 1 *", "end": "2031-01-02T00:00:00Z", "pull": { "queue": "new-year" } }),
        ),
        (key("تقرير يومي"), json!({ "cron": "0 9 * * *", "zone": "Africa/Cairo" })),
        ("plan-".to_owned() + &"x".repeat(123), json!({ "every_ms": 86_400_000_u64 * 7 })),
    ]
}

/// Returns the addresses of a service's pages, each with a name for the page's pictures. The service must come from
/// [`seeded`].
pub(crate) async fn pages(rig: &Rig) -> Vec<(&'static str, String)> {
    // The address of the first timer in a list. Its phase may have changed by now.
    let first = async |path: &str| {
        let page = rig.until(path, r#"<td class="key"><a href=""#).await.text;
        let (_, rest) = page.split_once(r#"<td class="key"><a href=""#).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let timer = async |key: &str| first(&format!("/ui/timers?q={}", percent(key))).await;
    let schedule = |key: &str| format!("/ui/schedules/default/{}", percent(key));
    let odd = odd_keys();
    let long = "a long address and long labels";
    rig.until("/ui/timers?phase=parked&q=mail", "queue:default/emails").await;
    rig.until("/ui/timers?q=reminder", "503").await;
    rig.until(&schedule("each second, slow receiver"), "The last occurrence came").await;
    let pages = [
        ("overview", "/ui/".to_owned()),
        ("overview-1", "/ui/?hours=1".to_owned()),
        ("timers", "/ui/timers".to_owned()),
        ("timers-pending", "/ui/timers?phase=pending".to_owned()),
        ("timers-parked", "/ui/timers?phase=parked".to_owned()),
        ("timers-odd", format!("/ui/timers?label={}", percent("سمة"))),
        ("timers-long", format!("/ui/timers?q={}", percent(long))),
        ("timers-none", "/ui/timers?q=nothing".to_owned()),
        ("timer-pending", timer("order 000026").await),
        ("timer-failed", timer("reminder").await),
        ("timer-dead", first("/ui/dead").await),
        ("timer-host", first("/ui/timers?phase=parked").await),
        ("timer-paused", timer("paused by hand").await),
        ("timer-long", timer(long).await),
        ("timer-arabic", timer(&odd[0]).await),
        ("timer-turned", timer(&odd[2]).await),
        ("timer-long-key", timer(&odd[8]).await),
        ("schedules", "/ui/schedules".to_owned()),
        ("schedules-none", "/ui/schedules?namespace=billing".to_owned()),
        ("schedule-moved", schedule("daily report")),
        ("schedule-doubled", schedule("autumn")),
        ("schedule-skipped", schedule("left out")),
        ("schedule-half", schedule("half an hour")),
        ("schedule-month", schedule("month's end")),
        ("schedule-every", schedule("each second, slow receiver")),
        ("schedule-paused", schedule("paused for the holidays")),
        ("schedule-arabic", schedule("تقرير يومي")),
        ("dead", "/ui/dead".to_owned()),
        ("dead-one", "/ui/dead?namespace=default".to_owned()),
        ("dead-groups", "/ui/dead/groups".to_owned()),
        ("ended", "/ui/ended".to_owned()),
        ("queues", "/ui/queues".to_owned()),
        ("timers-default", "/ui/timers?namespace=default".to_owned()),
        ("nodes", "/ui/nodes".to_owned()),
        ("endpoints", "/ui/endpoints".to_owned()),
        ("access", "/ui/access".to_owned()),
        ("audit", "/ui/audit".to_owned()),
        ("fault", "/ui/nowhere".to_owned()),
    ];
    pages.map(|(name, path)| (name, rig.url(&path))).into()
}

/// The widths of the browser windows in the test, in pixels: from the width of a telephone to the width of a desktop.
const WIDTHS: [u32; 5] = [360, 390, 768, 1_280, 1_920];

/// A script that finds the parts of a page that lie outside of their window or box. The script finds a page that is too
/// wide, and a text that is cut and cannot be scrolled. The script also finds buttons in rows that a user cannot see
/// without scrolling.
const OUTSIDE: &str = r#"(() => {
    const found = [], wide = document.documentElement.scrollWidth - innerWidth;
    if (wide > 0) found.push(`the page is ${wide} too wide`);
    for (const text of document.querySelectorAll("td.key .clip, td.error .clip, td.labels .clip")) {
        const lines = text.clientHeight / parseFloat(getComputedStyle(text).lineHeight);
        if (lines > 2.9) found.push(`${lines} lines: ${text.textContent}`);
    }
    for (const button of document.querySelectorAll("td.act button, td.pick input, .bar button")) {
        const box = button.getBoundingClientRect();
        if (box.width > 0 && (box.left < 0 || box.right > innerWidth)) found.push(`out of sight: ${button.outerHTML}`);
    }
    for (const part of document.querySelectorAll("main section, .figures > div, .notice, .card, .bar")) {
        if (part.scrollWidth > part.clientWidth + 1) found.push(`too wide inside: ${part.id} ${part.className}`);
    }
    return found;
})()"#;

/// Checks each page in both themes and at all widths. Also takes pictures of each page in both themes, at the widths of
/// a telephone and of a desktop.
async fn look(browser: &Browser, rig: &Rig) {
    let pages = pages(rig).await;
    let mut faults = Vec::new();
    for (name, url) in &pages {
        browser.go(url).await;
        browser.until("document.querySelector('main h1')").await;
        for width in WIDTHS {
            browser.width(width).await;
            for scheme in ["light", "dark"] {
                browser.scheme(scheme).await;
                let found = browser.value(OUTSIDE).await;
                if found != json!([]) {
                    faults.push(format!("{name} at {width}, {scheme}: {found}"));
                }
                if (scheme == "light" && width != 390) || width == 1_280 {
                    browser.picture(&format!("{name}-{scheme}-{width}")).await;
                }
            }
        }
        let mut reports = browser.reports().await;
        // The browser reports the status of the page that does not exist. This report is expected.
        reports.retain(|report| !(*name == "fault" && report.contains("404")));
        assert!(reports.is_empty(), "{name}: {reports:?}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_loads_in_both_themes_and_in_a_narrow_window_and_the_browser_reports_nothing() {
    let Some(browser) = Browser::start().await else { return };
    let rig = seeded(400, false).await;
    look(&browser, &rig).await;
    // The background is light in the first theme and dark in the second.
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        grounds.push(browser.value("getComputedStyle(document.documentElement).backgroundColor").await);
    }
    assert_ne!(grounds[0], grounds[1]);
    // Violate the content security policy on purpose, to see that the browser reports it.
    browser.value("document.body.setAttribute('style', 'color: red')").await;
    let reports = browser.reports().await;
    assert!(reports.iter().any(|report| report.contains("Content Security Policy")), "{reports:?}");
}

/// Checks the pages of a service with 20,000 timers and a history of three days. The service works for
/// `TOURBILLON_SECONDS` seconds before the test takes pictures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; its pictures are for people"]
async fn much_of_everything_by_hand() {
    let Some(browser) = Browser::start().await else { return };
    let rig = seeded(20_000, true).await;
    let seconds = std::env::var("TOURBILLON_SECONDS").ok().map_or(60, |seconds| seconds.parse().unwrap());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    look(&browser, &rig).await;
}
