//! Tests the lists over all namespaces, the timers that ended lately, the order and range of lists, and queues.

use crate::rig::{Page, Rig, percent};
use serde_json::{Value, json};

/// Returns the keys of the timers on a page, in the page's order.
fn keys(page: &Page) -> Vec<String> {
    let cells = page.text.split("<td class=\"key\"><a href=\"").skip(1);
    let key = |cell: &str| {
        let (_, rest) = cell.split_once("data-copy>").unwrap();
        rest.split('<').next().unwrap().to_owned()
    };
    cells.map(key).collect()
}

fn next(page: &Page) -> Option<String> {
    let (_, rest) = page.text.split_once(r#"rel="next" href=""#)?;
    Some(rest.split('"').next()?.replace("&#38;", "&"))
}

/// Follows the links to the next page of a list until the last page. Returns the keys of the timers on all pages.
async fn walk(rig: &Rig, path: &str) -> Vec<String> {
    let (mut all, mut address) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = address {
        let page = rig.get(&path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        all.extend(keys(&page));
        address = next(&page);
    }
    all
}

/// Finds the number named `name` on the overview. Returns the number, and the address of the list to which it links.
fn figure(page: &Page, name: &str) -> (usize, String) {
    let (before, rest) = page
        .text
        .split_once(&format!("\">{name}</a></dt>"))
        .unwrap_or_else(|| panic!("{name}: {}", page.text));
    let address = before.rsplit_once("href=\"").unwrap().1.to_owned();
    let (_, rest) = rest.split_once("<b>").unwrap();
    (rest.split('<').next().unwrap().replace(',', "").parse().unwrap(), address)
}

/// Makes pending, dead and parked timers in four namespaces. Each namespace gets more timers than the namespace before.
async fn spread(rig: &Rig) {
    for (at, namespace) in ["default", "a", "b", "quiet"].into_iter().enumerate() {
        let limits = json!({ "paused": namespace == "quiet" });
        rig.api("PUT", &format!("/v1/namespaces/{namespace}"), "", limits).await;
        let callback = |status: u16| json!({ "url": format!("http://{}/{status}", rig.receiver) });
        let mut changes = Vec::new();
        for number in 0..=30 * at {
            changes.push(json!({ "put": { "key": format!("far {namespace} {number:02}"), "timer": {
                "delay_ms": 3_600_000 + number, "labels": ["l"], "callback": callback(204),
            } } }));
        }
        for number in 0..2 {
            changes.push(json!({ "put": { "key": format!("dead {namespace} {number}"), "timer": {
                "policy": { "attempts": 1 }, "callback": callback(500),
            } } }));
        }
        rig.api("POST", &format!("/v1/namespaces/{namespace}/batch"), "", json!({ "changes": changes }))
            .await;
    }
    rig.schedule("daily", json!({ "cron": "30 2 * * *" })).await;
    rig.until("/ui/dead", "6 in all namespaces").await;
    rig.until("/ui/timers?phase=parked", "paused:quiet").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_figure_leads_to_a_list_of_what_it_counts() {
    let rig = Rig::start().await;
    spread(&rig).await;
    let overview = rig.get("/ui/").await;
    for (name, expected) in [("Dead", 6), ("Parked", 2), ("Pending", 1 + 31 + 61 + 91)] {
        let (count, address) = figure(&overview, name);
        assert_eq!((count, walk(&rig, &address).await.len()), (expected, expected), "{name}: {address}");
    }
    let (open, address) = figure(&overview, "Hosts that fail");
    assert_eq!((open, &*address), (0, "/ui/endpoints"));
    assert!(overview.text.contains(">Disk<") && overview.text.contains("free of "), "{}", overview.text);
    // Some lists read an index of each namespace. They also have each timer of all namespaces once, in both directions.
    for (condition, expected) in [("label=l", 184), ("q=far", 184), ("q=far+b", 61), ("label=l&q=far+a", 31)]
    {
        let path = format!("/ui/timers?{condition}");
        let all = walk(&rig, &path).await;
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((all.len(), distinct.len()), (expected, expected), "{path}");
        let back = walk(&rig, &format!("{path}&order=desc")).await;
        assert!(back.iter().eq(all.iter().rev()), "{path} turned round: {back:?}");
    }
    let rest = rig.api("GET", "/v1/timers?label=l&limit=200", "", Value::Null).await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 184);
    let dead = rig.api("GET", "/v1/timers?phase=dead&order=desc", "", Value::Null).await;
    assert_eq!(dead["items"].as_array().unwrap().len(), 6);
    // The list of schedules has those of all namespaces, too.
    assert_eq!(walk(&rig, "/ui/schedules").await, ["daily"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_of_one_namespace_sees_its_sums_and_nothing_of_others() {
    let (rig, tokens) =
        Rig::with_tokens(&[&["--role", "admin"], &["--role", "writer", "--namespace", "a"]]).await;
    for namespace in ["a", "b"] {
        let path = format!("/v1/namespaces/{namespace}");
        rig.api("PUT", &path, &tokens[0], json!({})).await;
        let timer = json!({ "delay_ms": 3_600_000, "pull": { "queue": "q" } });
        rig.api("PUT", &format!("{path}/timers/far-{namespace}"), &tokens[0], timer).await;
        let timer = json!({ "pull": { "queue": format!("queue-{namespace}") } });
        rig.api("PUT", &format!("{path}/timers/now-{namespace}"), &tokens[0], timer).await;
        let timer = json!({ "delay_ms": 3_600_000, "pull": { "queue": "q" } });
        rig.api("PUT", &format!("{path}/timers/gone-{namespace}"), &tokens[0], timer).await;
        rig.api("DELETE", &format!("{path}/timers/gone-{namespace}"), &tokens[0], Value::Null).await;
    }
    let (cookie, _) = rig.sign_in(&tokens[1]).await;
    let overview = rig.get_as("/ui/", &cookie).await;
    assert_eq!(figure(&overview, "Pending"), (1, "/ui/timers?phase=pending".to_owned()));
    for path in
        ["/ui/", "/ui/timers", "/ui/timers?q=far", "/ui/ended", "/ui/queues", "/ui/dead", "/ui/dead/groups"]
    {
        let page = rig.get_as(path, &cookie).await;
        assert_eq!(page.status, 200, "{path}");
        for others in ["far-b", "gone-b", "now-b", "queue-b"] {
            assert!(!page.text.contains(others), "{path} shows {others}");
        }
    }
    assert!(rig.get_as("/ui/ended", &cookie).await.text.contains("gone-a"));
    assert!(rig.get_as("/ui/queues", &cookie).await.text.contains("queue-a"));
    for path in ["/ui/timers?namespace=b", "/ui/ended?namespace=b", "/ui/queues?namespace=b"] {
        assert_eq!(rig.get_as(path, &cookie).await.status, 403, "{path}");
    }
    let queues = rig.api("GET", "/v1/queues", &tokens[1], Value::Null).await;
    assert_eq!(queues.as_array().unwrap().len(), 1, "{queues}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_lately_is_listed_and_found_by_its_key() {
    let rig = Rig::start().await;
    let delivered = rig.put("order 1", 204, json!({})).await;
    rig.until("/ui/ended", "order 1").await;
    rig.put("order 2", 204, json!({ "delay_ms": 3_600_000 })).await;
    rig.api("DELETE", "/v1/namespaces/default/timers/order%202", "", Value::Null).await;
    rig.put("refund 3", 500, json!({ "policy": { "attempts": 1 } })).await;
    rig.until("/ui/ended?how=dead", "refund 3").await;
    let page = rig.get("/ui/ended").await;
    assert_eq!(keys(&page), ["refund 3", "order 2", "order 1"], "the latest first");
    for (how, expected) in [
        ("delivered", &["order 1"][..]),
        ("cancelled", &["order 2"]),
        ("replaced", &[]),
        ("dead", &["refund 3"]),
    ] {
        assert_eq!(keys(&rig.get(&format!("/ui/ended?how={how}")).await), expected, "{how}");
    }
    assert_eq!(keys(&rig.get("/ui/ended?q=order").await), ["order 2", "order 1"]);
    // A search for the ended timer's key leads to its page, as a search for its id does.
    let path = format!("/ui/timers/default/{delivered}");
    assert_eq!(rig.get("/ui/timers?q=order+1").await.to(), path);
    assert_eq!(rig.get(&format!("/ui/timers?q={delivered}")).await.to(), path);
    // If stored timers have keys that begin with the searched text, the page lists them. It also names the ended timer.
    rig.put("order 11", 204, json!({ "delay_ms": 3_600_000 })).await;
    let page = rig.get("/ui/timers?q=order+1").await;
    assert!(page.text.contains(&path) && keys(&page) == ["order 11"], "{}", page.text);
    // An ended timer meets no other condition.
    for condition in ["phase=pending", "label=a", "reason=paused", "from=2020-01-01", "until=2099-01-01"] {
        let page = rig.get(&format!("/ui/timers?q=order+1&{condition}")).await;
        assert!(page.status == 200 && !page.text.contains(&path), "{condition}: {}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_have_a_range_of_time_and_two_directions() {
    let rig = Rig::start().await;
    for day in 1..=5 {
        rig.put(&format!("day {day}"), 204, json!({ "due": format!("2031-01-0{day}T09:00:00Z") })).await;
    }
    let days = async |query: &str| {
        let keys = walk(&rig, &format!("/ui/timers?{query}")).await;
        keys.iter().map(|key| key.trim_start_matches("day ").to_owned()).collect::<String>()
    };
    assert_eq!(days("phase=pending").await, "12345");
    assert_eq!(days("phase=pending&order=desc").await, "54321");
    assert_eq!(days("phase=pending&from=2031-01-02T09:00&until=2031-01-04T09:00").await, "23");
    assert_eq!(days("phase=pending&from=2031-01-02T09:01&order=desc").await, "543");
    assert_eq!(days("q=day&until=2031-01-03T00:00").await, "12");
    let page = rig.get("/ui/timers?phase=pending&from=2031-01-02T09:00").await;
    assert!(page.text.contains(r#"name="from" value="2031-01-02T09:00""#), "{}", page.text);
    assert_eq!(rig.get("/ui/timers?from=tomorrow").await.status, 400);
    assert_eq!(rig.get("/ui/timers?order=up").await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_have_their_depth_their_age_and_their_receivers() {
    let rig = Rig::start().await;
    for (queue, count) in [("emails", 3), ("letters", 1)] {
        for number in 0..count {
            let timer = json!({ "pull": { "queue": queue } });
            rig.api("PUT", &format!("/v1/namespaces/default/timers/{queue}{number}"), "", timer).await;
        }
    }
    let until = async |is_meant: fn(&Value) -> bool| {
        let begun = std::time::Instant::now();
        loop {
            let queues = rig.api("GET", "/v1/namespaces/default/queues", "", Value::Null).await;
            if is_meant(&queues) {
                return queues;
            }
            assert!(begun.elapsed() < crate::rig::SOON, "{queues}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let queues = until(|queues| queues[0]["depth"] == 3 && queues[1]["depth"] == 1).await;
    assert_eq!((&queues[0]["queue"], &queues[1]["queue"]), (&json!("emails"), &json!("letters")));
    assert!(queues[0]["oldest_due"].is_string() && queues[0]["age_ms"].is_u64(), "{queues}");
    assert_eq!(rig.api("GET", "/v1/queues", "", Value::Null).await.as_array().unwrap().len(), 2);
    let page = rig.get("/ui/queues").await;
    assert_eq!(keys(&page), ["emails", "letters"], "the one that waits longest first");
    // The timers that wait in the queue are listed.
    let list = format!("/ui/timers?namespace=default&reason={}", percent("queue:default/emails"));
    assert_eq!(walk(&rig, &list).await, ["emails0", "emails1", "emails2"]);
    // A receiver waits at an empty queue, which is therefore shown.
    let request = json!({ "max": 1, "wait_ms": 20_000 });
    let waiting = rig.api("POST", "/v1/namespaces/default/queues/fresh/claims", "", request);
    let seen = until(|queues| queues[1]["queue"] == "fresh" && queues[1]["receivers"] == 1);
    tokio::select! {
        _ = waiting => panic!("there is no timer"),
        queues = seen => assert_eq!(queues[1]["depth"], 0, "{queues}"),
    }
    // A timer that was fetched does not count as waiting in its queue.
    let request = json!({ "max": 10 });
    rig.api("POST", "/v1/namespaces/default/queues/emails/claims", "", request).await;
    until(|queues| {
        queues.as_array().unwrap().iter().all(|queue| queue["queue"] != "emails" || queue["depth"] == 0)
    })
    .await;
}
