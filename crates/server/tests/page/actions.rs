//! Tests the changes that visitors make on the pages.

use crate::rig::Rig;
use axum::http::StatusCode;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_is_paused_resumed_fired_and_cancelled_once_it_is_confirmed() {
    let rig = Rig::start().await;
    let far =
        json!({ "delay_ms": 3_600_000, "policy": { "backoff": { "kind": "fixed", "pause_ms": 3_600_000 } } });
    let id = rig.put("k", 503, far).await;
    let path = format!("/ui/timers/default/{id}");
    let mark = rig.get(&path).await.mark();
    let act = async |verb: &str, confirm: &str| {
        rig.post(&format!("{path}/{verb}"), "", &[], &[("mark", &mark), ("confirm", confirm)]).await
    };
    for (verb, words) in [
        ("pause", "It was paused"),
        ("resume", "It waits for its due moment"),
        ("fire", "It waits for the next attempt"),
    ] {
        let page = act(verb, "").await;
        assert_eq!((page.status, page.to()), (StatusCode::SEE_OTHER, &*format!("{path}?done={verb}")));
        rig.until(&path, words).await;
    }
    assert_eq!(act("resume", "").await.status, StatusCode::CONFLICT, "it is not paused");
    for wrong in ["", "Cancel", "k"] {
        let page = act("cancel", wrong).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST);
        assert!(page.text.contains("Nothing was changed"), "{}", page.text);
    }
    assert!(rig.get(&path).await.text.contains("pending"));
    assert_eq!(act("cancel", "cancel").await.status, StatusCode::SEE_OTHER);
    assert_eq!(
        rig.api("DELETE", "/v1/namespaces/default/timers/k", "", Value::Null).await["result"],
        "not-found"
    );
    assert_eq!(act("explode", "cancel").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_timers_are_cancelled_by_a_label_once_it_is_typed() {
    let rig = Rig::start().await;
    for number in 0..3 {
        rig.put(&format!("k{number}"), 204, json!({ "delay_ms": 3_600_000, "labels": ["a & b"] })).await;
    }
    rig.put("other", 204, json!({ "delay_ms": 3_600_000 })).await;
    let page = rig.get("/ui/timers?label=a+%26+b").await;
    assert!(page.text.contains("Cancel all timers with the label <b>a &#38; b</b>"), "{}", page.text);
    let mark = page.mark();
    let cancel = async |fields: &[(&str, &str)]| {
        let fields = [&[("mark", &*mark), ("namespace", "default")], fields].concat();
        rig.post("/ui/many/cancel", "", &[], &fields).await
    };
    for wrong in [
        &[("label", "a & b"), ("confirm", "a")][..],
        &[("label", "a & b")],
        &[("confirm", "")],
        &[("label", ""), ("key_prefix", ""), ("confirm", "")],
        &[("label", "a & b"), ("key_prefix", "k"), ("confirm", "a & b")],
    ] {
        assert_eq!(cancel(wrong).await.status, StatusCode::BAD_REQUEST, "{wrong:?}");
    }
    let begun = cancel(&[("label", "a & b"), ("confirm", "a & b")]).await;
    assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
    rig.until(begun.to(), r#"<td id="changed">3</td>"#).await;
    let page = rig.get("/ui/timers").await.text;
    assert!(page.contains(">other<") && !page.contains(">k0<"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_replayed_one_by_one_and_all_together() {
    let rig = Rig::start().await;
    for key in ["a", "b", "c"] {
        rig.put(key, 500, json!({ "policy": { "attempts": 1 } })).await;
    }
    let page = rig.until("/ui/dead", "3 in the namespace").await;
    let mark = page.mark();
    let (_, rest) = page.text.split_once(r#"<td class="key"><a href=""#).unwrap();
    let first = rest.split('"').next().unwrap();
    let fields = [("mark", &*mark), ("from", "dead")];
    let replayed = rig.post(&format!("{first}/replay"), "", &[], &fields).await;
    assert_eq!(replayed.to(), "/ui/dead?namespace=default&done=replay");
    assert!(rig.get(replayed.to()).await.text.contains("delivered again"));
    // The timer's timeline has both attempts, in their order. The second attempt is called the first after the replay.
    let page = rig.until(first, "Attempt 1 after the replay failed for good").await.text;
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    let order =
        ["<b>Created", "<b>Attempt 1 failed", "<b>Replayed", "<b>Attempt 1 after the replay", "<b>Dead"];
    assert!(order.map(at).is_sorted(), "{page}");
    rig.until("/ui/dead", "3 in the namespace").await;
    let fields = [("mark", &*mark), ("namespace", "default"), ("confirm", "all")];
    assert_eq!(rig.post("/ui/many/replay", "", &[], &fields).await.status, StatusCode::BAD_REQUEST);
    let fields = [("mark", &*mark), ("namespace", "default"), ("confirm", "replay")];
    let begun = rig.post("/ui/many/replay", "", &[], &fields).await;
    rig.until(begun.to(), r#"<td id="changed">3</td>"#).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_is_closed_by_hand_and_the_timers_that_waited_for_it_go_on() {
    // A receiver that fails until the test lets it succeed.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let is_mended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mended = std::sync::Arc::clone(&is_mended);
    let answer = async move || match mended.load(std::sync::atomic::Ordering::SeqCst) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    // Settings keep the breaker open for longer than the test lasts.
    let rig = Rig::start_with(|settings| {
        settings.caller.hosts.first_pause = std::time::Duration::from_secs(600);
        settings.caller.hosts.longest_pause = std::time::Duration::from_secs(600);
    })
    .await;
    let policy = json!({ "attempts": 20, "backoff": { "kind": "fixed", "pause_ms": 1_000 } });
    for number in 0..20 {
        let callback = json!({ "url": format!("http://{host}/") });
        let timer = json!({ "policy": policy, "callback": callback });
        rig.api("PUT", &format!("/v1/namespaces/default/timers/k{number}"), "", timer).await;
    }
    let page = rig.until("/ui/endpoints", "Close the breaker").await;
    let (mark, host) = (page.mark(), &*host);
    let reopen = async |host: &str| {
        rig.post("/ui/endpoints/reopen", "", &[], &[("mark", &mark), ("host", host)]).await
    };
    assert_eq!(reopen("other:80").await.status, StatusCode::BAD_REQUEST);
    is_mended.store(true, std::sync::atomic::Ordering::SeqCst);
    let begun = std::time::Instant::now();
    while rig.api("GET", "/v1/stats", "", Value::Null).await["delivered"] != 20 {
        // Failures of callbacks that were under way may open the breaker again. So close it repeatedly.
        assert_eq!(reopen(host).await.to(), "/ui/endpoints?done=reopen");
        assert!(begun.elapsed() < crate::rig::SOON, "{}", rig.get("/ui/endpoints").await.text);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_are_made_paused_and_removed() {
    let rig = Rig::start().await;
    let mark = rig.get("/ui/access").await.mark();
    let act = async |verb: &str, fields: &[(&str, &str)]| {
        let fields = [&[("mark", &*mark)], fields].concat();
        rig.post(&format!("/ui/access/namespaces/{verb}"), "", &[], &fields).await
    };
    assert_eq!(act("make", &[("name", "shop")]).await.status, StatusCode::SEE_OTHER);
    assert_eq!(act("make", &[("name", "shop")]).await.status, StatusCode::CONFLICT);
    assert_eq!(act("make", &[("name", "a/b")]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(act("pause", &[("name", "shop")]).await.status, StatusCode::SEE_OTHER);
    let view = rig.api("GET", "/v1/namespaces/shop", "", Value::Null).await;
    assert_eq!(view["limits"], json!({ "paused": true }));
    act("resume", &[("name", "shop")]).await;
    let view = rig.api("GET", "/v1/namespaces/shop", "", Value::Null).await;
    assert_eq!(view["limits"], json!({}));
    let page = act("secret", &[("name", "shop")]).await;
    assert!(page.text.contains("whsec_"), "{}", page.text);
    assert!(!rig.get("/ui/access").await.text.contains("whsec_"));
    assert_eq!(act("remove", &[("name", "shop")]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(act("remove", &[("name", "shop"), ("confirm", "shop")]).await.status, StatusCode::SEE_OTHER);
    assert!(!rig.get("/ui/access").await.text.contains("shop"));
    // On a service without tokens, the page does not make a token. The first token would lock out the visitor who made
    // it.
    let fields = [("mark", &*mark), ("name", "me"), ("role", "admin")];
    assert_eq!(rig.post("/ui/access/tokens/make", "", &[], &fields).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_page_changes_is_in_the_audit_trail_with_the_name_of_the_sessions_token() {
    let (rig, tokens) = Rig::with_tokens(&[&["--role", "admin", "--name", "Ada"]]).await;
    let (cookie, mark) = rig.sign_in(&tokens[0]).await;
    let far = json!({ "delay_ms": 3_600_000, "pull": { "queue": "q" } });
    let made = rig.api("PUT", "/v1/namespaces/default/timers/k", &tokens[0], far).await;
    let id = made["id"].as_str().unwrap();
    let post = async |path: &str, fields: &[(&str, &str)]| {
        let fields = [&[("mark", &*mark)], fields].concat();
        rig.post(path, &cookie, &[], &fields).await.status
    };
    let timer = format!("/ui/timers/default/{id}");
    assert_eq!(post(&format!("{timer}/resume"), &[]).await, StatusCode::CONFLICT);
    assert_eq!(post(&format!("{timer}/pause"), &[]).await, StatusCode::SEE_OTHER);
    assert_eq!(post(&format!("{timer}/cancel"), &[("confirm", "cancel")]).await, StatusCode::SEE_OTHER);
    assert_eq!(post("/ui/access/namespaces/pause", &[("name", "default")]).await, StatusCode::SEE_OTHER);
    let new = [("role", "reader"), ("name", "Grace")];
    assert_eq!(post("/ui/access/tokens/make", &new).await, StatusCode::OK);
    assert_eq!(post("/ui/schedules/default/none/pause", &[]).await, StatusCode::NOT_FOUND);

    let trail = rig.api("GET", "/v1/audit", &tokens[0], Value::Null).await;
    let entries: Vec<_> = trail["items"].as_array().unwrap().iter().rev().collect();
    let seen = |entry: &&Value| {
        let text = |name: &str| entry[name].as_str().unwrap().to_owned();
        format!("{} {}", text("action"), text("outcome"))
    };
    assert_eq!(
        entries.iter().map(seen).collect::<Vec<_>>(),
        [
            "make-token done",
            "change-timer failed",
            "change-timer done",
            "change-timer done",
            "set-namespace done",
            "make-token done",
            "change-schedule failed",
        ]
    );
    for entry in &entries[1..] {
        assert_eq!((&entry["by"]["via"], &entry["by"]["token"]), (&"page".into(), &"Ada".into()), "{entry}");
        assert!(entry["by"]["token_id"].is_string() && entry["by"]["request_id"].is_string(), "{entry}");
    }
    assert_eq!((&entries[2]["target"], &entries[2]["detail"]), (&id.into(), &"pause".into()));
    assert!(entries[5]["detail"].as_str().unwrap().contains("Grace"), "{}", entries[5]);
    assert!(!trail.to_string().contains("tb_reader"), "{trail}");

    let page = rig.get_as("/ui/audit?action=change-timer", &cookie).await;
    for part in ["Ada", "the page", "pause", "failed", id] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    assert!(!page.text.contains("Grace"), "only what was asked for: {}", page.text);
    assert!(rig.get_as("/ui/audit", &cookie).await.text.contains("Grace"));
    assert_eq!(rig.get_as("/ui/audit?action=explode", &cookie).await.status, StatusCode::BAD_REQUEST);
}
