//! Tests that each page loads, and shows the stored timers, schedules and namespaces.

use crate::rig::Rig;
use axum::http::{StatusCode, header};
use serde_json::json;

/// The addresses of the pages without a variable part in their address, such as a timer's id.
pub(crate) const PAGES: [&str; 10] = [
    "/ui/",
    "/ui/timers",
    "/ui/ended",
    "/ui/schedules",
    "/ui/queues",
    "/ui/endpoints",
    "/ui/nodes",
    "/ui/dead",
    "/ui/dead/groups",
    "/ui/access",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_loads_with_headers_that_forbid_what_it_does_not_do() {
    let rig = Rig::start().await;
    assert_eq!(rig.get("/").await.to(), "/ui/");
    assert_eq!(rig.get("/ui").await.to(), "/ui/");
    for path in PAGES.into_iter().chain(["/ui/style.css", "/ui/app.js", "/ui/icon.svg", "/ui/nowhere"]) {
        let page = rig.get(path).await;
        let expected = if path == "/ui/nowhere" { StatusCode::NOT_FOUND } else { StatusCode::OK };
        assert_eq!(page.status, expected, "{path}: {}", page.text);
        let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'), "{policy}");
        assert_eq!(page.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(page.headers[header::CACHE_CONTROL], "no-store");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_asks_for_anything_outside_of_the_service_or_has_a_style_or_script_of_its_own() {
    let rig = Rig::start().await;
    let id = rig.put("order 17", 204, json!({ "delay_ms": 60_000, "labels": ["a"] })).await;
    let timer = format!("/ui/timers/default/{id}");
    for path in PAGES.into_iter().chain([&*timer]) {
        let text = rig.get(path).await.text;
        for sign in [
            "<style",
            " style=",
            "<script>",
            "javascript:",
            " onclick=",
            "src=\"http",
            "href=\"http",
            "//cdn",
        ] {
            assert!(!text.contains(sign), "{path} has {sign}");
        }
    }
    let (style, script) = (rig.get("/ui/style.css").await.text, rig.get("/ui/app.js").await.text);
    assert!(!style.contains("url(") && !style.contains("@import"));
    assert!(!script.contains("http") && !script.contains("eval") && !script.contains("innerHTML = "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_shows_where_it_is_and_why_and_its_payload_as_it_came() {
    let rig = Rig::start().await;
    let body = r#"{"order":123456789012345678901234567890,"note":"<b>&"}"#;
    let callback = json!({
        "url": format!("http://{}/204", rig.receiver), "headers": { "x-own": "v\"1" }, "body": body,
    });
    let timer = json!({ "callback": callback, "delay_ms": 3_600_000, "labels": ["customer 4"] });
    let placed = rig.api("PUT", "/v1/namespaces/default/timers/order%2017", "", timer).await;
    let path = format!("/ui/timers/default/{}", placed["id"].as_str().unwrap());
    let page = rig.get(&path).await;
    assert_eq!(page.status, StatusCode::OK);
    for part in [
        "order 17",
        "It waits for its due moment, in ",
        "Scheduled for",
        "Cancel…",
        "{&#34;order&#34;:123456789012345678901234567890,&#34;note&#34;:&#34;&#60;b&#62;&#38;&#34;}",
        "x-own: v&#34;1",
        "/ui/timers?namespace=default&#38;label=customer+4",
    ] {
        assert!(page.text.contains(part), "{part} is not in {}", page.text);
    }
    // A timer is found by its id, and by the beginning of its key.
    let id = placed["id"].as_str().unwrap();
    assert_eq!(rig.get(&format!("/ui/timers?q={id}")).await.to(), path);
    assert!(rig.get("/ui/timers?q=order").await.text.contains(&path));
    // There is no page of an unknown timer, nor of a timer in another namespace.
    for other in
        ["/ui/timers/default/00000000-0000-4000-8000-000000000000", &path.replace("default", "other")]
    {
        assert_eq!(rig.get(other).await.status, StatusCode::NOT_FOUND, "{other}");
    }
    assert_eq!(rig.get("/ui/timers/default/nonsense").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_whose_attempts_failed_shows_them_and_a_dead_one_its_reason() {
    let rig = Rig::start().await;
    let backoff = json!({ "kind": "fixed", "pause_ms": 3_600_000 });
    let id = rig.put("slow", 503, json!({ "policy": { "backoff": backoff } })).await;
    let page = rig.until(&format!("/ui/timers/default/{id}"), "It waits for the next attempt").await;
    assert!(page.text.contains("503"), "{}", page.text);
    let id = rig.put("lost", 500, json!({ "policy": { "attempts": 1 } })).await;
    let page = rig.until(&format!("/ui/timers/default/{id}"), "Its only attempt failed").await;
    assert!(page.text.contains("Replay") && page.text.contains("Drop…"), "{}", page.text);
    let page = rig.until("/ui/dead", &id).await;
    assert!(page.text.contains("attempts") && page.text.contains("1 in the namespace"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_says_that_something_changed() {
    use http_body_util::BodyExt as _;
    let rig = Rig::start().await;
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("/ui/live")
        .header("host", rig.address.to_string())
        .body(http_body_util::Empty::<axum::body::Bytes>::new())
        .unwrap();
    let mut answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(answer.headers()["x-accel-buffering"], "no", "nginx passes events on as they come");
    // The stream sends its first event at once. It sends a second event although nothing happens.
    for _ in 0..2 {
        let frame = tokio::time::timeout(crate::rig::SOON, answer.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "event: tick\ndata: refresh\n\n");
    }
    // The stream ends when the service stops.
    rig.service.begin_stop();
    let end = tokio::time::timeout(crate::rig::SOON, answer.frame()).await.unwrap();
    assert!(end.is_none_or(|frame| frame.is_err() || frame.unwrap().into_data().is_ok()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn characters_that_turn_the_text_around_them_are_seen_and_forms_keep_them() {
    let rig = Rig::start().await;
    let key = "pay\u{202e}drawer\u{2066}";
    let label = "l\u{200f}";
    let id = rig.put(key, 204, json!({ "delay_ms": 600_000, "labels": [label] })).await;
    let listed = format!("/ui/timers?label={}", crate::rig::percent(label));
    for path in ["/ui/timers".to_owned(), format!("/ui/timers/default/{id}"), listed.clone()] {
        let page = rig.get(&path).await.text;
        assert!(page.contains("pay[U+202E]drawer[U+2066]") && page.contains("l[U+200F]"), "{path}: {page}");
        assert!(!page.contains(['\u{202e}', '\u{2066}']), "{path}: {page}");
    }
    // The form that cancels by a label sends the label unchanged. To confirm, the visitor types the label as the page
    // shows it.
    let page = rig.get(&listed).await;
    assert!(page.text.contains(&format!("name=\"label\" value=\"{label}\"")), "{}", page.text);
    let fields =
        [("mark", &*page.mark()), ("namespace", "default"), ("label", label), ("confirm", "l[U+200F]")];
    let begun = rig.post("/ui/many/cancel", "", &[], &fields).await;
    assert!(begun.to().starts_with("/ui/operations/"), "{}", begun.text);
    rig.until(begun.to(), "done").await;
    assert!(!rig.get("/ui/timers").await.text.contains("pay["));
}
