//! Tests the outcomes of callbacks, as the receiver records them and as the HTTP interface shows them.

use crate::receivers::{Manner, Rough, dead, resolver};
use crate::rig::{Receiver, Rig, eventually};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon_api::Moment;

const TIMERS: &str = "/v1/namespaces/default/timers";

/// Makes a timer with the key `key` that calls `url`. Returns the timer once a delivery has ended.
async fn deliver(rig: &Rig, key: &str, url: &str, policy: Value) -> Value {
    let path = format!("{TIMERS}/{key}");
    let timer = json!({ "callback": { "url": url, "json": {} }, "policy": policy });
    let (status, placed) = rig.send("PUT", &path, timer).await;
    assert_eq!(status, StatusCode::CREATED, "{placed}");
    eventually(key, async || {
        let (status, timer) = rig.send("GET", &path, Value::Null).await;
        if status == StatusCode::NOT_FOUND {
            let id = placed["id"].as_str().unwrap();
            return Some(dead(rig, "default", id).await.unwrap_or_default());
        }
        (timer["failures"].as_u64() > Some(0)).then_some(timer)
    })
    .await
}

/// A JSON body arrives at its receiver byte for byte as the client wrote it. This holds for every request that makes
/// timers, and for every kind of receiver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_in_json_arrives_byte_for_byte() {
    const SCHEDULE: &str = "/v1/namespaces/default/schedules/s";
    let rig = Rig::start().await;
    let mut receiver = Receiver::start().await;
    for body in [
        r#"{ "b" : 1.10,"a":[1e400, 1E+2 ,-0.0, 12345678901234567890123] }"#,
        r#"{"twice": 1, "twice": {"tw\u0069ce": 2}}"#,
        r#""\u00e4\u00E4ä\/\ud800""#,
        "[\n\t1,\r\n 2 ]",
        "0.1234567890123456789",
        "false",
        "\"\"",
        &format!("{}{}", "[".repeat(500), "]".repeat(500)),
    ] {
        // The spaces around the value are not part of the body, so they do not arrive.
        let callback =
            format!("\"callback\": {{\"url\": \"{}\", \"json\": \n {body}\t }}", receiver.url("/"));
        let schedule = format!(r#"{{"every_ms": 86400000, {callback}}}"#);
        let batch = format!(r#"{{"changes": [{{"put": {{"timer": {{{callback}}}}}}}]}}"#);
        for (method, path, request, is_due) in [
            ("POST", TIMERS.to_owned(), format!("{{{callback}}}"), true),
            ("PUT", format!("{TIMERS}/k"), format!("{{{callback}}}"), true),
            ("POST", "/v1/namespaces/default/batch".to_owned(), batch, true),
            ("PUT", SCHEDULE.to_owned(), schedule, false),
            ("POST", format!("{SCHEDULE}/trigger"), String::new(), true),
        ] {
            let (status, answer) = rig.send_text(method, &path, request).await;
            assert!(status.is_success(), "{method} {path} {body}: {answer}");
            if is_due {
                let received = receiver.next().await;
                assert_eq!(received.body, body.as_bytes(), "{method} {path}");
                assert_eq!(received.headers["content-type"], "application/json");
            }
        }
        let pull = format!(r#"{{"pull": {{"queue": "q", "json": {body}}}}}"#);
        assert_eq!(rig.send_text("POST", TIMERS, pull).await.0, StatusCode::CREATED);
        let claims = "/v1/namespaces/default/queues/q/claims";
        let (_, answer) = rig.send("POST", claims, json!({ "wait_ms": 10_000 })).await;
        assert_eq!(answer["claims"][0]["body"], body);
        let ack =
            format!("/v1/namespaces/default/claims/{}/ack", answer["claims"][0]["claim"].as_str().unwrap());
        assert_eq!(rig.send("POST", &ack, Value::Null).await.0, StatusCode::NO_CONTENT);
    }
}

/// The receiver keeps its connection after the first callback, and closes each connection when the next callback has
/// come, as if that callback had killed the receiver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_at_most_once_is_not_sent_again_after_its_connection_ended() {
    for (guarantee, times) in [("at-most-once", 1), ("at-least-once", 2)] {
        let rig = Rig::start().await;
        let receiver = Rough::start(Manner::answer("200 OK", "")).await;
        deliver(&rig, "first", &receiver.url(), json!({})).await;
        receiver.behave(Manner::Reset);
        let policy = json!({ "guarantee": guarantee, "attempts": 1 });
        deliver(&rig, "second", &receiver.url(), policy).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(receiver.requests().len(), 1 + times, "{guarantee}");
    }
}

/// A receiver answers or stays silent in many ways. For each way, the service must store the outcome that the table
/// names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_silences_come_to_what_the_table_says() {
    let rig = Rig::start().await;
    rig.send("PUT", "/v1/namespaces/default", json!({ "keep_answers": true })).await;
    let inner = Rough::start(Manner::answer("200 OK", "")).await;
    let policy = json!({ "timeout_ms": 400 });
    for (key, manner, phase, error) in [
        // Nobody listens at this address any more.
        ("refused", Manner::Away, "pending", "the connection failed"),
        ("ok", Manner::answer("200 OK", ""), "done", ""),
        ("accepted", Manner::answer("202 Accepted", ""), "done", ""),
        ("flood", Manner::Flood, "done", ""),
        ("gone", Manner::answer("410 Gone", ""), "dead", "410"),
        ("error", Manner::answer("500 Bad", ""), "pending", "500 Internal Server Error"),
        ("away", Manner::answer("503 Away", "retry-after: 120\r\n"), "pending", "503"),
        ("many", Manner::answer("429 Many", "retry-after: 120\r\n"), "pending", "429"),
        ("early", Manner::answer("425 Early", "retry-after: 120\r\n"), "pending", "425"),
        ("none", Manner::answer("404 None", ""), "pending", "404"),
        ("hang", Manner::Hang, "pending", "did not answer in time"),
        // The head of the answer decides the outcome, although the body never ends.
        ("drip", Manner::Drip, "done", ""),
        ("reset", Manner::Reset, "pending", "the connection failed"),
        (
            "meta",
            Manner::answer("302 Found", "location: http://169.254.169.254/latest/\r\n"),
            "pending",
            "redirects (302",
        ),
        (
            "inner",
            Manner::answer("307 Away", &format!("location: {}\r\n", inner.url())),
            "pending",
            "redirects (307",
        ),
    ] {
        let (asks, floods) = (error.len() == 3 && key != "none", key == "flood");
        let receiver = Rough::start(manner).await;
        let begin = Instant::now();
        let timer = deliver(&rig, key, &receiver.url(), policy.clone()).await;
        assert!(begin.elapsed() < Duration::from_secs(20), "{key}: {:?}", begin.elapsed());
        assert_eq!(
            receiver.requests().len(),
            usize::from(key != "refused"),
            "{key}: not sent again by itself"
        );
        if phase == "done" {
            assert_eq!(timer, Value::Null, "{key}");
        } else {
            let last_error = timer["last_error"].as_str().unwrap_or("");
            assert!(timer["phase"] == phase && last_error.contains(error), "{key}: {timer}");
            assert!(timer["failures"] == 1 && timer["deliveries"] == 1, "{key}: {timer}");
            assert!(!timer.to_string().contains("not today"), "readers see the answer: {timer}");
        }
        if asks && phase == "pending" {
            let due: Moment = timer["due"].as_str().unwrap().parse().unwrap();
            let scheduled: Moment = timer["scheduled"].as_str().unwrap().parse().unwrap();
            let pause = due.as_millis() - scheduled.as_millis();
            assert!((120_000..130_000).contains(&pause), "{key}: the receiver asked for 120 s: {pause}");
        }
        if floods {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(receiver.sent() < 64 << 20, "the connection was closed: {}", receiver.sent());
        }
    }
    assert_eq!(inner.requests().len(), 0, "a redirection was followed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_asks_for_more_time_than_the_policy_gives_and_not_for_less() {
    let rig = Rig::start().await;
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 60_000 }, "timeout_ms": 2_000 });
    for (key, asked, seconds) in [
        ("zero", "0", 60),
        ("one", "1", 60),
        ("past", "Sun, 06 Nov 1994 08:49:37 GMT", 60),
        ("nonsense", "soon", 60),
        ("more", "120", 120),
    ] {
        let manner = Manner::answer("503 Away", &format!("retry-after: {asked}\r\n"));
        let receiver = Rough::start(manner).await;
        let timer = deliver(&rig, key, &receiver.url(), policy.clone()).await;
        let moment = |field: &str| timer[field].as_str().unwrap().parse::<Moment>().unwrap().as_millis();
        let pause = moment("due") - moment("scheduled");
        let wanted = seconds * 1_000;
        assert!((wanted..wanted + 10_000).contains(&pause), "{key}: {pause} ms");
        assert_eq!(receiver.requests().len(), 1, "{key}");
    }
}

/// Returns whether `text`, a text in an answer, contains `words`.
fn names(text: &Value, words: &str) -> bool {
    text.as_str().is_some_and(|text| text.contains(words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_destinations_are_refused_or_dead_at_once() {
    // The name first has only a permitted address. From then on, it also has an address in a private network, which
    // callbacks must not reach.
    let permitted = Rough::start(Manner::answer("500 Bad", "connection: close\r\n")).await;
    let rig = Rig::start_with(|settings| {
        settings.caller.resolver = Some(resolver(vec![vec!["127.0.0.1"], vec!["127.0.0.1", "10.0.0.1"]]));
    })
    .await;
    let own = format!("http://{}/v1/namespaces/default/timers", rig.address);
    for url in
        ["http://10.0.0.1/", "http://[::1]:8080/", "http://0xa9fea9fe/latest/", "http://127.0.0.1:22/", &own]
    {
        let (status, problem) = rig.send("POST", TIMERS, json!({ "callback": { "url": url } })).await;
        let expected = (StatusCode::UNPROCESSABLE_ENTITY, &json!("/problems/blocked-destination"));
        assert_eq!((status, &problem["type"]), expected, "{url}: {problem}");
        assert_eq!(problem["errors"][0]["pointer"], "/callback/url", "{problem}");
        assert!(
            url != "http://10.0.0.1/" || names(&problem["detail"], "`callbacks.allow_private`"),
            "{problem}"
        );
    }
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 10 }, "timeout_ms": 2_000 });
    let url = format!("http://rebinding.example:{}/", permitted.address.port());
    let timer = deliver(&rig, "rebinding", &url, policy).await;
    let id = timer["id"].as_str().unwrap();
    let timer = eventually("the second attempt", async || dead(&rig, "default", id).await).await;
    assert_eq!((&timer["reason"], &timer["failures"]), (&json!("blocked-destination"), &json!(2)), "{timer}");
    assert!(!names(&timer["last_error"], "10.0.0.1"), "what the name resolves to is not shown: {timer}");
    assert!(names(&timer["last_error"], "`callbacks.allow_private`"), "{timer}");
    assert_eq!(permitted.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_a_namespace_does_not_allow_are_refused_and_those_it_allows_no_more_are_dead() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    let set = async |hosts: Value| {
        let answer = rig.send("PUT", "/v1/namespaces/n", json!({ "allowed_hosts": hosts })).await;
        assert!(answer.0.is_success(), "{answer:?}");
    };
    set(json!(["127.0.0.1", "*.example.com"])).await;
    let timer = |url: &str| json!({ "delay_ms": 60_000, "callback": { "url": url } });
    for (url, expected) in [
        (receiver.url(), StatusCode::CREATED),
        ("http://a.example.com/".to_owned(), StatusCode::CREATED),
        ("http://example.org/".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        ("http://127.0.0.2:8080/".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let (status, answer) = rig.send("POST", "/v1/namespaces/n/timers", timer(&url)).await;
        assert_eq!(status, expected, "{url}: {answer}");
        assert!(status.is_success() || names(&answer["detail"], "`allowed_hosts`"), "{answer}");
    }
    let (_, placed) = rig.send("PUT", "/v1/namespaces/n/timers/late", timer(&receiver.url())).await;
    set(json!(["example.com"])).await;
    rig.send("POST", "/v1/namespaces/n/timers/late/fire", Value::Null).await;
    let id = placed["id"].as_str().unwrap();
    let timer = eventually("its death", async || dead(&rig, "n", id).await).await;
    assert_eq!(timer["reason"], "blocked-destination", "{timer}");
    assert!(names(&timer["last_error"], "`allowed_hosts`"), "{timer}");
    assert_eq!(receiver.requests().len(), 0);
}

/// Makes `count` timers without keys that all call `url`.
async fn place(rig: &Rig, namespace: &str, count: usize, url: &str, policy: &Value) {
    let path = format!("/v1/namespaces/{namespace}/timers");
    let timer = json!({ "callback": { "url": url }, "policy": policy });
    for group in 0..count.div_ceil(50) {
        let some = (group * 50..count.min((group + 1) * 50)).map(|_| rig.send("POST", &path, timer.clone()));
        for (status, answer) in futures(some).await {
            assert_eq!(status, StatusCode::CREATED, "{answer}");
        }
    }
}

/// Runs futures at the same time. Returns the outputs of all futures.
async fn futures<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut outputs = Vec::new();
    core::future::poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            core::task::Poll::Ready(output) => {
                outputs.push(output);
                false
            }
            core::task::Poll::Pending => true,
        });
        if futures.is_empty() { core::task::Poll::Ready(()) } else { core::task::Poll::Pending }
    })
    .await;
    outputs
}

/// A host that hangs takes only its own share of the deliveries at a time. Other hosts keep their shares. The service
/// parks the further timers for the host, and does not check again and again whether they may go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_hangs_holds_up_no_other_and_costs_no_polling() {
    let rig = Rig::start_with(|settings| settings.concurrency = 48).await;
    let (bad, good) = (Rough::start(Manner::Hang).await, Rough::start(Manner::answer("200 OK", "")).await);
    place(&rig, "default", 300, &bad.url(), &json!({ "timeout_ms": 30_000 })).await;
    bad.await_requests(4).await;
    let parked = async || rig.send("GET", "/v1/namespaces/default", Value::Null).await.1["parked"].as_u64();
    eventually("the rest is parked", async || (parked().await == Some(296)).then_some(())).await;
    for count in 1..=40 {
        place(&rig, "default", 1, &good.url(), &json!({})).await;
        good.await_requests(count).await;
    }
    assert_eq!(
        (bad.requests().len(), bad.most_at_a_time()),
        (4, 4),
        "a host that is not known gets a quarter"
    );
    let service = rig.service.clone();
    let stats = tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap().unwrap();
    assert!(stats.parked < 320, "300 timers, and a few that were put back: {stats:?}");
}

/// Thirty hosts hang, more hosts than deliveries may run at a time. But the service calls a host at once if the host
/// has answered before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_hosts_that_hang_leave_places_to_those_that_answer() {
    let rig = Rig::start_with(|settings| settings.concurrency = 32).await;
    let good = Rough::start(Manner::answer("200 OK", "")).await;
    place(&rig, "default", 1, &good.url(), &json!({})).await;
    good.await_requests(1).await;
    rig.send("PUT", "/v1/namespaces/n", json!({})).await;
    let mut bad = Vec::new();
    for _ in 0..30 {
        let receiver = Rough::start(Manner::Hang).await;
        place(&rig, "n", 4, &receiver.url(), &json!({ "timeout_ms": 30_000 })).await;
        bad.push(receiver);
    }
    let taken = || bad.iter().map(|receiver| receiver.requests().len()).sum::<usize>();
    eventually("three quarters of three quarters are taken", async || (taken() == 18).then_some(())).await;
    for count in 2..=21 {
        // Make timers in both namespaces. The timers for the hanging hosts are in one of them.
        let namespace = if count % 2 == 0 { "n" } else { "default" };
        place(&rig, namespace, 1, &good.url(), &json!({})).await;
        good.await_requests(count).await;
    }
    // In the namespace without hanging hosts, even a host that was never called before is called at once.
    let new = Rough::start(Manner::answer("200 OK", "")).await;
    place(&rig, "default", 1, &new.url(), &json!({})).await;
    new.await_requests(1).await;
    assert_eq!(taken(), 18);
}

/// After some failures, the host's circuit breaker opens. Then the host's timers use up no attempts, and the service
/// delivers them once the host works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_fails_is_left_alone_and_gets_all_once_it_works() {
    let rig = Rig::start_with(|settings| {
        settings.caller.hosts.first_pause = Duration::from_millis(400);
        settings.caller.hosts.longest_pause = Duration::from_millis(800);
    })
    .await;
    let (bad, good) =
        (Rough::start(Manner::answer("500 Bad", "")).await, Rough::start(Manner::answer("200 OK", "")).await);
    let policy = json!({ "backoff": { "kind": "fixed", "pause_ms": 100 }, "attempts": 3 });
    place(&rig, "default", 200, &bad.url(), &policy).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    place(&rig, "default", 5, &good.url(), &policy).await;
    good.await_requests(5).await;
    let tries = bad.requests().len();
    assert!((10..60).contains(&tries), "ten, those under way then, and one for each pause: {tries}");
    bad.behave(Manner::answer("200 OK", ""));
    eventually("all have ended", async || {
        let (_, view) = rig.send("GET", "/v1/namespaces/default", Value::Null).await;
        (view["pending"] == 0 && view["parked"] == 0 && view["leased"] == 0).then_some(())
    })
    .await;
    let (_, view) = rig.send("GET", "/v1/namespaces/default", Value::Null).await;
    assert_eq!(view["dead"], 0, "a host that is left alone uses up no attempts: {view}");
    let mut ids = BTreeMap::<String, usize>::new();
    for request in &bad.requests()[tries..] {
        *ids.entry(request.header("webhook-id").to_owned()).or_default() += 1;
    }
    assert_eq!(ids.len(), 200);
}

/// A host is down for longer than the timers' policies permit. One timer dies because its attempts are used up, and
/// another timer because it is too old. The test replays both timers, and they arrive once the host works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_and_age_end_and_dead_letters_are_replayed() {
    let rig = Rig::start_with(|settings| {
        settings.caller.hosts.failures = 2;
        settings.caller.hosts.first_pause = Duration::from_millis(50);
        settings.caller.hosts.longest_pause = Duration::from_millis(50);
    })
    .await;
    let bad = Rough::start(Manner::answer("503 Away", "")).await;
    let backoff = json!({ "kind": "fixed", "pause_ms": 10 });
    let mut ids = Vec::new();
    for (key, policy) in [
        ("attempts", json!({ "backoff": backoff, "attempts": 4 })),
        ("age", json!({ "backoff": backoff, "attempts": 1_000, "max_age_ms": 500 })),
    ] {
        let timer = json!({ "callback": { "url": bad.url() }, "policy": policy });
        let (status, placed) = rig.send("PUT", &format!("{TIMERS}/{key}"), timer).await;
        assert_eq!(status, StatusCode::CREATED, "{placed}");
        ids.push(placed["id"].as_str().unwrap().to_owned());
    }
    let mut dead_timers = Vec::new();
    for id in &ids {
        dead_timers.push(eventually("its death", async || dead(&rig, "default", id).await).await);
    }
    let words: Vec<_> = dead_timers.iter().map(|timer| timer["reason"].as_str().unwrap()).collect();
    assert_eq!((words, &dead_timers[0]["failures"]), (vec!["attempts", "age"], &json!(4)), "{dead_timers:?}");
    assert!(dead_timers[1]["failures"].as_u64().unwrap() < 1_000, "{dead_timers:?}");

    bad.behave(Manner::answer("200 OK", ""));
    let before = bad.requests().len();
    let (status, answer) = rig.send("POST", "/v1/namespaces/default/replays", json!({})).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let mut came: Vec<_> = bad.await_requests(before + 2).await[before..]
        .iter()
        .map(|request| request.header("webhook-id").to_owned())
        .collect();
    came.sort();
    ids.sort();
    assert_eq!(came, ids);
}

/// Many timers for a host are due at the same moment. Each timer arrives once, and the host gets at most sixteen
/// callbacks at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_to_one_host_arrives_once_and_in_rows() {
    let rig = Rig::start_with(|settings| settings.prompt_host_concurrency = settings.host_concurrency).await;
    let answer = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let receiver = Rough::start(Manner::Answer(answer, Duration::from_millis(1))).await;
    let (status, _) = rig.send("PUT", "/v1/namespaces/n", json!({ "paused": true })).await;
    assert_eq!(status, StatusCode::CREATED);
    place(&rig, "n", 1_000, &receiver.url(), &json!({})).await;
    rig.send("PUT", "/v1/namespaces/n", json!({})).await;
    let requests = receiver.await_requests(1_000).await;
    let ids: std::collections::BTreeSet<_> =
        requests.iter().map(|request| request.header("webhook-id").to_owned()).collect();
    assert_eq!((requests.len(), ids.len()), (1_000, 1_000));
    assert!(receiver.most_at_a_time() <= 16, "{}", receiver.most_at_a_time());
    eventually("none is left", async || {
        let (_, view) = rig.send("GET", "/v1/namespaces/n", Value::Null).await;
        (view["pending"] == 0 && view["parked"] == 0 && view["leased"] == 0).then_some(())
    })
    .await;
    assert_eq!(receiver.requests().len(), 1_000);
}

// --- Signatures ---

async fn secret(rig: &Rig) -> String {
    let (status, answer) = rig.send("POST", "/v1/namespaces/default/secrets", Value::Null).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    answer["secret"].as_str().unwrap().to_owned()
}

/// Says for each of `secrets` whether it verifies the signature of the next callback. The check uses the library of the
/// Standard Webhooks' authors.
async fn verified(rig: &Rig, receiver: &Rough, secrets: &[&str]) -> Vec<bool> {
    let before = receiver.requests().len();
    rig.send("POST", TIMERS, json!({ "callback": { "url": receiver.url(), "json": { "order": 17 } } })).await;
    let request = receiver.await_requests(before + 1).await.pop().unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        headers.insert(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
    }
    let verify = |secret: &&str| {
        standardwebhooks::Webhook::new(secret).unwrap().verify(request.body.as_bytes(), &headers).is_ok()
    };
    secrets.iter().map(verify).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_are_signed_and_secrets_are_changed_without_a_gap() {
    let rig = Rig::start().await;
    let receiver = Rough::start(Manner::answer("200 OK", "")).await;
    let first = secret(&rig).await;
    assert_eq!(verified(&rig, &receiver, &[&first]).await, [true]);
    let second = secret(&rig).await;
    assert_eq!(verified(&rig, &receiver, &[&first, &second]).await, [true, true]);
    let (_, view) = rig.send("GET", "/v1/namespaces/default", Value::Null).await;
    let shown = view.to_string();
    assert!(!shown.contains(&first[6..]) && !shown.contains(&second[6..]), "secrets are shown once: {shown}");
    let moment = |value: &Value| value.as_str().unwrap().parse::<Moment>().unwrap().as_millis();
    let lasts = moment(&view["secrets"][1]["until"]) - moment(&view["secrets"][0]["made"]);
    assert!((86_395_000..=86_405_000).contains(&lasts), "a day: {view}");
    assert_eq!(view["secrets"][0]["until"], Value::Null);
    // The former secret signs for a day. Let this day pass: set the end of the secret in the service's file into the
    // past.
    let rig = rig
        .restart_after(|folder| {
            let path = folder.join("namespaces.json");
            let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            file["default"]["secrets"][1]["until"] = json!("2020-01-01T00:00:00Z");
            std::fs::write(&path, file.to_string()).unwrap();
        })
        .await;
    assert_eq!(verified(&rig, &receiver, &[&first, &second]).await, [false, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_go_over_tls_to_receivers_with_a_trusted_certificate() {
    let made = rcgen::generate_simple_self_signed(vec!["receiver.example".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let receiver = Rough::start_with(Manner::answer("200 OK", ""), Some(Arc::new(config).into())).await;
    let rig = Rig::start_with(|settings| {
        settings.rules.allow_http = false;
        settings.caller.resolver = Some(resolver(vec![vec!["127.0.0.1"]]));
        settings.caller.certificates = vec![certificate.to_vec()];
    })
    .await;
    let url = |host: &str| format!("https://{host}:{}/hook", receiver.address.port());
    assert_eq!(deliver(&rig, "good", &url("receiver.example"), json!({})).await, Value::Null);
    let other = deliver(&rig, "other", &url("other.example"), json!({})).await;
    assert!(other["last_error"].as_str().unwrap().contains("the connection failed"), "{other}");
    assert_eq!(receiver.requests().len(), 1);
}
