//! Sends bad texts in every parameter of every page.

use crate::counting::Counting;
use crate::rig::{Rig, percent};
use serde_json::json;
use std::sync::Arc;

/// The addresses of all pages, each with the names of its query parameters.
const PARAMETERS: [(&str, &[&str]); 16] = [
    ("/ui/", &["hours", "done"]),
    (
        "/ui/timers",
        &["namespace", "q", "label", "phase", "reason", "from", "until", "order", "cursor", "done"],
    ),
    (
        "/ui/dead",
        &["namespace", "q", "label", "phase", "from", "until", "order", "place", "error", "cursor", "done"],
    ),
    ("/ui/dead/groups", &["namespace"]),
    ("/ui/ended", &["namespace", "q", "how", "before"]),
    ("/ui/queues", &["namespace"]),
    ("/ui/timers/default/{id}", &["done"]),
    ("/ui/schedules", &["namespace", "q", "cursor", "done"]),
    ("/ui/schedules/default/k", &["done"]),
    ("/ui/operations/default/x", &["done"]),
    ("/ui/endpoints", &["done"]),
    ("/ui/nodes", &["done"]),
    ("/ui/access", &["done"]),
    ("/ui/audit", &["namespace", "token", "action", "cursor"]),
    ("/ui/sign-in", &["to"]),
    ("/ui/nowhere", &["to"]),
];

/// Texts with markup. Each text would change the page around it if the page did not escape the text.
const MARKED: [&str; 8] = [
    "<script>zqx</script>",
    "\"><img src=zqx onerror=zqx>",
    "' onmouseover='zqx",
    "</title><zqx>",
    "{{zqx<b>}}",
    "javascript:zqx<a>",
    "zqx\r\nset-cookie: zqx=1<b>",
    "--><zqx>",
];

/// Returns unusual texts without markup, such as very long texts.
fn odd() -> Vec<String> {
    let mut odd: Vec<String> = [
        "",
        " ",
        "\0",
        "\u{feff}",
        "\u{202e}",
        "ä",
        "💥",
        "-1",
        "0",
        "NaN",
        "18446744073709551616",
        "../..",
        "%",
        "%00",
        "%ff",
        "null",
        "[]",
        "true",
        "999999999999999999999999",
        "dead",
        "PENDING",
        "*",
        "a,b",
        "00000000-0000-0000-0000-000000000000",
        "72",
        "073",
        "1e9",
        "schedule:k",
    ]
    .map(str::to_owned)
    .into();
    odd.extend([255, 256, 1_024, 1_025, 4_000].map(|length| "x".repeat(length)));
    odd
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_parameter_breaks_a_page_or_comes_back_unescaped() {
    let store = Arc::new(Counting::default());
    let rig = Rig::on(Arc::clone(&store) as _).await;
    let id = rig.put("k", 204, json!({ "delay_ms": 3_600_000 })).await;
    rig.schedule("k", json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" })).await;
    let mut refused = 0;
    for (path, parameters) in PARAMETERS {
        let path = path.replace("{id}", &id);
        for parameter in parameters {
            let marked = MARKED.iter().map(|text| ((*text).to_owned(), true));
            for (text, is_marked) in marked.chain(odd().into_iter().map(|text| (text, false))) {
                let value = percent(&text);
                for query in [
                    format!("{parameter}={value}"),
                    format!("{value}={value}"),
                    format!("{parameter}={value}&{parameter}={value}"),
                ] {
                    store.hook().work();
                    let page = rig.get(&format!("{path}?{query}")).await;
                    let [lists, listed, whole, _] = store.hook().work();
                    assert!(!page.status.is_server_error(), "{path}?{query}: {}: {}", page.status, page.text);
                    assert!(
                        lists <= 10 && listed <= 500 && whole == 0,
                        "{path}?{query}: {lists} lists of {listed}"
                    );
                    refused += usize::from(page.status.is_client_error());
                    if is_marked {
                        assert!(!page.text.contains(&text), "{path}?{query}: {}", page.text);
                        for sign in [
                            "<script>z",
                            "<img src=zqx",
                            "<zqx",
                            "onmouseover='",
                            "set-cookie: zqx=1<b>",
                            "href=\"javascript",
                        ] {
                            assert!(!page.text.contains(sign), "{path}?{query} has {sign}: {}", page.text);
                        }
                    }
                    assert!(!page.headers.contains_key("set-cookie"), "{path}?{query}");
                    assert!(
                        page.to().is_empty() || page.to().starts_with("/ui/"),
                        "{path}?{query}: {}",
                        page.to()
                    );
                }
            }
        }
    }
    assert!(refused > 100, "the texts were read: {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_of_a_path_breaks_a_page_or_comes_back_unescaped() {
    let store = Arc::new(Counting::default());
    let rig = Rig::on(Arc::clone(&store) as _).await;
    rig.schedule("k", json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" })).await;
    for path in [
        "/ui/timers/{}/00000000-0000-4000-8000-000000000000",
        "/ui/timers/default/{}",
        "/ui/schedules/{}/k",
        "/ui/schedules/default/{}",
        "/ui/operations/{}/x",
        "/ui/operations/default/{}",
        "/ui/{}",
    ] {
        for text in MARKED.map(str::to_owned).into_iter().chain(odd()).filter(|text| !text.is_empty()) {
            let path = path.replace("{}", &percent(&text));
            store.hook().work();
            let page = rig.get(&path).await;
            let [lists, listed, whole, _] = store.hook().work();
            let is_refused = page.status.is_client_error() || path == "/ui/dead";
            assert!(is_refused, "{path}: {}: {}", page.status, page.text);
            assert!(lists <= 10 && listed <= 500 && whole == 0, "{path}: {lists} lists of {listed}");
            assert!(!page.text.contains("zqx>") && !page.text.contains("zqx<"), "{path}: {}", page.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_callers_have_stored_is_escaped_on_every_page() {
    let rig = Rig::start().await;
    let bad = "<script>zqx</script>\"'><img src=zqx>";
    let body = json!({ "delay_ms": 3_600_000, "labels": [bad], "callback": {
        "url": format!("http://{}/500?{}", rig.receiver, "<script>zqx"), "headers": { "x-bad": bad }, "body": bad,
    } });
    let mut paths: Vec<String> = crate::pages::PAGES.map(str::to_owned).into();
    for (key, policy) in [("living", json!({})), ("dead", json!({ "attempts": 1 }))] {
        let mut timer = body.clone();
        timer["policy"] = policy;
        if key == "dead" {
            timer["delay_ms"] = json!(0);
        }
        let key = format!("{key}{bad}");
        let placed =
            rig.api("PUT", &format!("/v1/namespaces/default/timers/{}", percent(&key)), "", timer).await;
        paths.push(format!("/ui/timers/default/{}", placed["id"].as_str().unwrap()));
    }
    let key = format!("plan{bad}");
    rig.schedule(&key, json!({ "cron": "30 2 * * *", "zone": "Europe/Zurich" })).await;
    paths.push(format!("/ui/schedules/default/{}", percent(&key)));
    rig.until("/ui/dead", "1 in the namespace").await;
    paths.push(format!("/ui/timers?label={}", percent(bad)));
    paths.push(format!("/ui/timers?q=living{}", percent(bad)));
    let mut shown = 0;
    for path in paths {
        let page = rig.get(&path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        assert!(
            !page.text.contains("<script>zqx") && !page.text.contains("<img src=zqx"),
            "{path}: {}",
            page.text
        );
        shown += page.text.matches("&#60;script&#62;zqx").count();
    }
    assert!(shown >= 10, "the texts are on the pages: {shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_forms_are_refused() {
    let rig = Rig::start().await;
    let mark = rig.get("/ui/access").await.mark();
    rig.schedule("k", json!({ "cron": "@daily" })).await;
    for path in [
        "/ui/many/cancel",
        "/ui/many/replay",
        "/ui/many/other",
        "/ui/access/namespaces/make",
        "/ui/access/namespaces/remove",
        "/ui/access/tokens/revoke",
        "/ui/timers/default/x/cancel",
        "/ui/schedules/default/k/delete",
        "/ui/schedules/default/k/other",
        "/ui/schedules/default/none/trigger",
        "/ui/sign-in",
    ] {
        for name in ["name", "label", "key_prefix", "namespace", "id", "confirm", "token", "to"] {
            for text in odd().iter().map(String::as_str).chain(MARKED) {
                if text.is_empty() || (path.ends_with("make") && name == "name" && text.len() <= 64) {
                    continue;
                }
                let page = rig.post(path, "", &[], &[("mark", &*mark), (name, text)]).await;
                assert!(
                    page.status.is_client_error(),
                    "{path} {name}={text:?}: {}: {}",
                    page.status,
                    page.text
                );
                assert!(
                    !page.text.contains("<zqx") && !page.text.contains("<script>zqx"),
                    "{path} {name}={text:?}: {}",
                    page.text
                );
            }
        }
        let page = rig.post(path, "", &[("content-type", "text/plain")], &[("mark", &mark)]).await;
        assert!(page.status.is_client_error(), "{path}");
    }
}
