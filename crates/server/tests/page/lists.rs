//! Tests lists: their conditions, their pages, and the bound on their work.

use crate::counting::Counting;
use crate::rig::Rig;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tourbillon_server::StorePlace;

/// Stores `count` timers that are due far in the future. The key of a timer is `k` and a number. Each fifth timer has
/// the label `five`.
async fn fill(rig: &Rig, count: usize) {
    let store = async |first: usize| {
        let numbers = first..count.min(first + 1_000);
        let changes: Vec<Value> = numbers
            .map(|number| {
                let labels: &[&str] = if number % 5 == 0 { &["five"] } else { &[] };
                json!({ "put": { "key": format!("k{number:08}"), "timer": {
                    "delay_ms": 86_400_000 + number, "labels": labels, "pull": { "queue": "q" },
                } } })
            })
            .collect();
        rig.api("POST", "/v1/namespaces/default/batch", "", json!({ "changes": changes })).await;
    };
    stream::iter((0..count).step_by(1_000)).for_each_concurrent(4, store).await;
}

/// Returns the keys of the timers on a page, in the page's order.
fn keys(text: &str) -> Vec<&str> {
    text.split("<td class=\"key\"><a href=\"")
        .skip(1)
        .map(|row| {
            let (_, row) = row.split_once("data-copy>").unwrap();
            row.split('<').next().unwrap()
        })
        .collect()
}

/// Returns the address of the list's next page. `None` on the last page.
fn next(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(r#"rel="next" href=""#)?;
    Some(rest.split('"').next()?.replace("&#38;", "&"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_hold_and_pages_go_on_without_a_gap() {
    let rig = Rig::start().await;
    fill(&rig, 230).await;
    for (path, expected) in [
        ("/ui/timers?q=k", 230),
        ("/ui/timers?phase=pending", 230),
        ("/ui/timers?label=five", 46),
        ("/ui/timers?label=five&phase=pending", 46),
        ("/ui/timers?q=k0000001", 10),
        ("/ui/timers?q=k00000017", 1),
        ("/ui/timers?phase=dead", 0),
        ("/ui/timers?q=x", 0),
        ("/ui/timers?q=k&label=six", 0),
        ("/ui/dead", 0),
    ] {
        let (mut all, mut address) = (Vec::new(), Some(path.to_owned()));
        while let Some(path) = address {
            let page = rig.get(&path).await;
            assert_eq!(page.status, 200, "{path}");
            let on_page = keys(&page.text);
            assert!(on_page.len() <= 50);
            all.extend(on_page.into_iter().map(str::to_owned));
            address = next(&page.text);
        }
        let found = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((found, all.len()), (expected, expected), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_says_what_to_do_next() {
    let rig = Rig::start().await;
    for (path, words) in [
        ("/ui/", "curl -X PUT"),
        ("/ui/timers", "Make one over HTTP"),
        ("/ui/timers?q=a", "Show all timers"),
        ("/ui/dead", "stays until it is replayed"),
        ("/ui/dead?label=a", "Show all dead letters"),
        ("/ui/ended", "No timer has ended"),
        ("/ui/ended?how=dead", "Show all that ended lately"),
        ("/ui/queues", "Nothing waits in a queue"),
        ("/ui/dead/groups", "stays until it is replayed"),
        ("/ui/endpoints", "with its first callback"),
        ("/ui/nodes", "a file of its own"),
    ] {
        let text = rig.get(path).await.text;
        assert!(text.contains(words), "{path} has no {words:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_parked_timers_names_the_order_of_its_store() {
    for (is_sql, order) in [(false, "by reason"), (true, "by due moment")] {
        let rig = Rig::start_with(|settings| {
            if is_sql {
                settings.store = StorePlace::Sqlite(settings.data.join("timers.db"));
            }
        })
        .await;
        // Nobody fetches, so the timer waits for its queue.
        let timer = json!({ "delay_ms": 0, "pull": { "queue": "q" } });
        rig.api("PUT", "/v1/namespaces/default/timers/k", "", timer).await;
        let page = rig.until("/ui/timers?phase=parked", "1 on this page").await;
        assert!(page.text.contains(&format!("1 on this page, {order}")), "{}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_parked_timers_names_the_order_of_a_store_that_no_setting_names() {
    let folder = tempfile::tempdir().unwrap();
    let store = tourbillon_sqlite::SqliteStore::builder().open(folder.path().join("own.db")).unwrap();
    let rig = Rig::on(Arc::new(store)).await;
    let timer = json!({ "delay_ms": 0, "pull": { "queue": "q" } });
    rig.api("PUT", "/v1/namespaces/default/timers/k", "", timer).await;
    let page = rig.until("/ui/timers?phase=parked", "1 on this page").await;
    assert!(page.text.contains("1 on this page, by due moment"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_link_to_the_first_page_of_the_trail_keeps_its_conditions() {
    let rig = Rig::start().await;
    rig.api("PUT", "/v1/namespaces/n", "", json!({})).await;
    let page = rig.get("/ui/audit?namespace=n&action=set-namespace&cursor=1-0-0-0").await.text;
    let link = r#"href="/ui/audit?namespace=n&#38;action=set-namespace">First page"#;
    assert!(page.contains(link), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_link_to_the_first_page_of_a_list_without_conditions_has_no_question_mark() {
    let rig = Rig::start().await;
    // With a single namespace, the list of ended timers would have it as a condition.
    rig.api("PUT", "/v1/namespaces/n", "", json!({})).await;
    for (path, list) in [("/ui/audit?cursor=1-0-0-0", "/ui/audit"), ("/ui/ended?before=9", "/ui/ended")] {
        let page = rig.get(path).await.text;
        assert!(page.contains(&format!(r#"href="{list}">First page"#)), "{path}: {page}");
    }
}

/// A page asks the store for a bounded number of timers, by an index. The bound does not depend on the number of stored
/// timers. No page reads the whole store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_asks_for_a_bounded_number_of_timers_however_many_there_are() {
    let store = Arc::new(Counting::default());
    let rig = Rig::on(Arc::clone(&store) as _).await;
    for count in [100, 20_000] {
        fill(&rig, count).await;
        for path in [
            "/ui/",
            "/ui/timers",
            "/ui/timers?q=k",
            "/ui/timers?label=five",
            "/ui/timers?label=five&q=k0001",
            "/ui/timers?phase=pending",
            "/ui/timers?phase=parked",
            "/ui/timers?phase=dead&q=k",
            "/ui/timers?phase=pending&order=desc",
            "/ui/timers?reason=queue:default/q",
            "/ui/dead",
            "/ui/ended",
            "/ui/queues",
            "/ui/endpoints",
            "/ui/nodes",
            "/ui/access",
            "/ui/audit",
        ] {
            store.hook().work();
            assert_eq!(rig.get(path).await.status, 200);
            let [lists, listed, whole, gets] = store.hook().work();
            // If timers do not meet the conditions, a list reads further pages of the store, but at most ten.
            let most =
                if path.contains("phase=p") || path.contains("dead") || path.contains('&') { 10 } else { 1 };
            assert!(lists <= most && listed <= 50 * most, "{path}: {lists} lists of {listed} timers");
            assert!(whole == 0 && gets <= 2, "{path}: {whole} reads of the whole store, {gets} of a timer");
        }
    }
}

/// Measures the time that the service takes for a page, with the store on the disk. The environment variable
/// `TOURBILLON_TIMERS` is the number of timers, ten million by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and gigabytes of disk"]
async fn ten_million_timers_by_hand() {
    let count = std::env::var("TOURBILLON_TIMERS").ok().map_or(10_000_000, |count| count.parse().unwrap());
    let rig = Rig::start().await;
    let begun = Instant::now();
    fill(&rig, count).await;
    eprintln!("{count} timers were stored in {:.0?}", begun.elapsed());
    rig.schedule("k", json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" })).await;
    let middle = format!("k{:08}", count / 2);
    let timer = rig.api("GET", &format!("/v1/namespaces/default/timers/{middle}"), "", Value::Null).await;
    let second = next(&rig.get("/ui/timers?phase=pending").await.text).unwrap();
    for path in [
        "/ui/",
        "/ui/timers",
        "/ui/timers?q=k",
        &format!("/ui/timers?q={middle}"),
        "/ui/timers?label=five",
        "/ui/timers?label=five&phase=parked",
        "/ui/timers?phase=pending",
        &second,
        "/ui/timers?phase=parked",
        "/ui/timers?phase=dead&q=k",
        &format!("/ui/timers/default/{}", timer["id"].as_str().unwrap()),
        "/ui/schedules",
        "/ui/dead",
        "/ui/endpoints",
        "/ui/access",
    ] {
        let mut times = Vec::new();
        for _ in 0..20 {
            let begun = Instant::now();
            assert_eq!(rig.get(path).await.status, 200);
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        let path = path.split("&cursor").next().unwrap();
        eprintln!("{path}: median {:.1?}, slowest {:.1?}, with {count} timers", times[10], times[19]);
    }
}
