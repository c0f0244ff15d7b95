//! Tests servers that break. No call may hide an unknown outcome, or repeat a request that must not be repeated.

use crate::rig::{Manner, Script, answer, json};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tourbillon_client::api::{Callback, NewTimer, PlaceOutcome, ProblemKind};
use tourbillon_client::{BuildError, Client, Error};

const PLACED: &str = r#"{"id":"0195a1c2-0000-7000-8000-000000000001","outcome":"created"}"#;
const CANCELLED: &str = r#"{"result":"cancelled"}"#;
const PAGE: &str = r#"{"items":[]}"#;

fn timer() -> NewTimer {
    NewTimer::callback(Callback::post("http://127.0.0.1:9/")).after_ms(60_000)
}

fn placed() -> Manner {
    json("201 Created", PLACED)
}

/// Returns the manner of a server whose answer breaks off in the body.
fn cut(status: &str) -> Manner {
    Manner::Half(format!("HTTP/1.1 {status}\r\ncontent-length: 1000\r\n\r\n{{\"id\":"))
}

fn problem(kind: ProblemKind, more: &str) -> Manner {
    let body = format!(
        r#"{{"type":"{}","title":"{}","status":{}{more}}}"#,
        kind.path(),
        kind.title(),
        kind.status()
    );
    answer(&format!("{} Problem", kind.status()), "application/problem+json", &body)
}

/// Sends a request that only reads. `cancel` sends a request that changes a timer, and `place` sends a creation.
async fn read(client: &Client) -> Result<(), Error> {
    client.namespace("default").list().pages().next_page().await.map(drop)
}

async fn cancel(client: &Client) -> Result<(), Error> {
    client.namespace("default").key("k").cancel().await.map(drop)
}

async fn place(client: &Client) -> Result<(), Error> {
    client.namespace("default").place(&timer()).await.map(drop)
}

#[tokio::test]
async fn a_creation_whose_connection_breaks_is_repeated_under_the_same_idempotency_key() {
    for broken in [
        Manner::Reset,
        cut("201 Created"),
        Manner::Half(String::new()),
        Manner::Half("HTTP/1.1 201 Cre".to_owned()),
        answer("502 Bad Gateway", "text/html", "<h1>oh</h1>"),
        problem(ProblemKind::StoreUnavailable, r#","outcome":"unknown","retry_after_ms":1"#),
        problem(ProblemKind::IdempotencyInProgress, ""),
    ] {
        let script = Script::start([broken.clone(), broken.clone(), placed()]).await;
        let client = script.client();
        let timers = client.namespace("default");
        let answer = timers.place(&timer()).key("order 17").await.unwrap();
        assert_eq!(answer.outcome, PlaceOutcome::Created);
        timers.place(&timer()).key("order 18").await.unwrap();
        let keys = script.headers("idempotency-key");
        assert_eq!(keys.len(), 4, "{broken:?}");
        assert!(keys[0].is_some() && keys[0] == keys[1] && keys[1] == keys[2], "{keys:?}");
        assert_ne!(keys[2], keys[3]);
        let requests = script.requests();
        assert!(requests[0].starts_with("PUT /v1/namespaces/default/timers/order%2017 HTTP/1.1\r\n"));
        assert_eq!(requests[0], requests[2]);
    }
}

#[tokio::test]
async fn a_creation_is_repeated_a_bounded_number_of_times() {
    for broken in [Manner::Reset, cut("201 Created"), answer("500 Oh", "text/html", "<h1>oh</h1>")] {
        for repeats in [0, 2] {
            let script = Script::start([broken.clone()]).await;
            let client = script.builder().repeats(repeats).build().unwrap();
            let error = place(&client).await.unwrap_err();
            assert!(matches!(error, Error::UnknownOutcome(_)), "{error:?}");
            assert_eq!(script.requests().len(), repeats as usize + 1, "{broken:?}");
        }
    }
}

#[tokio::test]
async fn no_other_change_is_repeated() {
    for broken in [
        Manner::Reset,
        cut("200 OK"),
        answer("500 Oh", "text/html", "<h1>oh</h1>"),
        answer("503 Oh", "text/html", "<h1>oh</h1>"),
        json("200 OK", r#"{"result":"eaten"}"#),
        answer("200 OK", "text/html", "<h1>sign in</h1>"),
    ] {
        let script = Script::start([broken.clone(), json("200 OK", CANCELLED)]).await;
        let error = cancel(&script.client()).await.unwrap_err();
        assert!(matches!(error, Error::UnknownOutcome(_)) && error.is_unknown_outcome(), "{error:?}");
        assert_eq!(script.requests().len(), 1, "{broken:?}");
    }
    // The service itself says that the outcome is unknown.
    let unknown = problem(ProblemKind::StoreUnavailable, r#","outcome":"unknown""#);
    let script = Script::start([unknown, json("200 OK", CANCELLED)]).await;
    let error = cancel(&script.client()).await.unwrap_err();
    assert!(
        error.problem() == Some(ProblemKind::StoreUnavailable) && error.is_unknown_outcome(),
        "{error:?}"
    );
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn a_read_is_repeated() {
    for broken in [
        Manner::Reset,
        cut("200 OK"),
        answer("503 Oh", "text/html", "<h1>oh</h1>"),
        problem(ProblemKind::Stopping, ""),
    ] {
        let script = Script::start([broken, json("200 OK", PAGE)]).await;
        read(&script.client()).await.unwrap();
        assert_eq!(script.requests().len(), 2);
    }
    let script = Script::start([Manner::Reset]).await;
    let error = read(&script.builder().repeats(1).build().unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Connection(_)) && !error.is_unknown_outcome(), "{error:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_error_with_its_beginning() {
    for (manner, status, part) in [
        (answer("500 Oh", "text/html", "<h1>oh\u{1b}[31m</h1>"), 500, "<h1>oh [31m</h1>"),
        (json("200 OK", "[1,2]"), 200, "[1,2]"),
        (json("200 OK", ""), 200, "empty"),
        (json("200 OK", r#"{"items":7}"#), 200, "invalid type"),
        (
            Manner::Answer("HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".to_owned()),
            302,
            "empty",
        ),
        (answer("404 Not Found", "text/plain", "no such vhost"), 404, "no such vhost"),
    ] {
        let script = Script::start([manner]).await;
        let error = read(&script.client()).await.unwrap_err();
        let Error::Decode { status: answered, reason } = &error else { panic!("{error:?}") };
        assert!(*answered == status && reason.contains(part), "{error:?}");
        assert_eq!(script.requests().len(), 1);
    }
    // A status from 400 to 499 means that the request was refused, even if the answer is not a problem.
    let script = Script::start([answer("403 Forbidden", "text/html", "<h1>firewall</h1>")]).await;
    let error = place(&script.client()).await.unwrap_err();
    assert!(matches!(error, Error::Decode { status: 403, .. }), "{error:?}");
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_read_to_its_end() {
    let script = Script::start([Manner::Flood]).await;
    let error = read(&script.builder().repeats(0).build().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("more than 16777216 bytes"), "{error}");
}

#[tokio::test]
async fn silence_is_a_timeout_and_for_a_change_an_unknown_outcome() {
    for silence in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
        let begin = Instant::now();
        let script = Script::start([Manner::Hang(silence.to_owned())]).await;
        let client = script.builder().timeout(Duration::from_millis(100)).repeats(1).build().unwrap();
        assert_eq!(read(&client).await, Err(Error::Timeout));
        assert!(matches!(cancel(&client).await, Err(Error::UnknownOutcome(_))));
        assert_eq!(script.requests().len(), 2);
        assert!(matches!(place(&client).await, Err(Error::UnknownOutcome(_))));
        assert_eq!(script.requests().len(), 4);
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_request_that_was_not_sent_has_changed_nothing() {
    // The socket keeps its port from others, and does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let client = Client::builder(format!("http://{address}")).repeats(1).build().unwrap();
    for error in [read(&client).await, cancel(&client).await, place(&client).await] {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_failed_repetition_does_not_hide_that_the_outcome_is_unknown() {
    for refusal in [ProblemKind::Unauthorised, ProblemKind::ReadOnly, ProblemKind::LimitReached] {
        let script = Script::start([Manner::Reset, problem(refusal, "")]).await;
        let error = place(&script.client()).await.unwrap_err();
        assert!(matches!(error, Error::UnknownOutcome(_)), "{error:?}");
        assert!(error.to_string().contains(refusal.title()), "{error}");
        assert_eq!(script.requests().len(), 2);
    }
    // The refusal holds for the first request, too. So the outcome is known.
    let script = Script::start([Manner::Reset, problem(ProblemKind::BlockedDestination, "")]).await;
    assert_eq!(place(&script.client()).await.unwrap_err().problem(), Some(ProblemKind::BlockedDestination));
    // If no earlier outcome is unknown, the refusal is the answer.
    let script = Script::start([problem(ProblemKind::ReadOnly, "")]).await;
    assert_eq!(place(&script.client()).await.unwrap_err().problem(), Some(ProblemKind::ReadOnly));
}

#[tokio::test]
async fn a_long_pause_that_the_service_asks_for_is_an_answer() {
    let busy = problem(ProblemKind::StoreUnavailable, r#","retry_after_ms":60000"#);
    let script = Script::start([busy, placed()]).await;
    let begin = Instant::now();
    let error = place(&script.client()).await.unwrap_err();
    assert_eq!(error.problem(), Some(ProblemKind::StoreUnavailable));
    assert!(begin.elapsed() < Duration::from_secs(10) && script.requests().len() == 1);
}

#[tokio::test]
async fn a_problem_of_a_later_version_has_the_kind_of_its_status() {
    let later = r#"{"type":"/problems/too-late","title":"Too late","status":404,"detail":"by a day"}"#;
    let script = Script::start([answer("404 Not Found", "application/problem+json", later)]).await;
    let error = cancel(&script.client()).await.unwrap_err();
    assert_eq!(error.problem(), Some(ProblemKind::NotFound));
    assert_eq!(error.to_string(), "Too late: by a day (/problems/too-late)");
}

#[tokio::test]
async fn a_list_that_gives_the_same_cursor_again_is_no_endless_list() {
    let page = json("200 OK", r#"{"items":[],"next":"same"}"#);
    let script = Script::start([page]).await;
    let mut pages = script.client().namespace("default").list().pages();
    assert_eq!(pages.next_page().await, Ok(Some(Vec::new())));
    assert!(matches!(pages.next_page().await, Err(Error::Decode { .. })));
}

#[tokio::test]
async fn the_token_is_sent_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "tb_reader_secret\n").unwrap();
    let script = Script::start([json("200 OK", PAGE)]).await;
    let builder = script.builder().token_file(&file);
    let client = builder.clone().build().unwrap();
    read(&client).await.unwrap();
    assert_eq!(script.headers("authorization"), [Some("Bearer tb_reader_secret".to_owned())]);
    let shown = format!("{client:?} {:?} {builder:?}", script.builder().token("tb_reader_secret"));
    assert!(!shown.contains("tb_reader"), "{shown}");
    for token in ["", " ", "a b", "a\nb", "ü"] {
        assert!(matches!(script.builder().token(token).build(), Err(BuildError::Token)), "{token:?}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(builder.build(), Err(BuildError::File { .. })));
}

#[tokio::test]
async fn a_url_is_one_of_a_service() {
    for url in [
        "",
        "127.0.0.1:7670",
        "ftp://host/",
        "http://",
        "http://a:b@host/",
        "http://host/?a=b",
        "http://host/#a",
    ] {
        assert!(matches!(Client::builder(url).build(), Err(BuildError::Url(_))), "{url}");
    }
    let script = Script::start([json("200 OK", PAGE)]).await;
    for path in ["", "/", "/timers", "/timers/"] {
        let client = Client::builder(format!("http://{}{path}", script.address)).build().unwrap();
        read(&client).await.unwrap();
        let start = format!("GET {}/v1/namespaces/default/timers HTTP/1.1\r\n", path.trim_end_matches('/'));
        assert!(script.requests().last().unwrap().starts_with(&start));
    }
}

#[tokio::test]
async fn tls_needs_a_certificate_that_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], made.signing_key.serialize_der().try_into().unwrap())
        .unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let script = Script::start_with([json("200 OK", PAGE)], Some(tls)).await;
    let builder = Client::builder(format!("https://localhost:{}", script.address.port())).repeats(0);
    let error = read(&builder.clone().build().unwrap()).await.unwrap_err();
    assert!(matches!(&error, Error::Connection(reason) if reason.contains("certificate")), "{error:?}");
    read(&builder.clone().ca_pem(made.cert.pem()).build().unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, made.cert.pem()).unwrap();
    read(&builder.clone().ca_file(&file).build().unwrap()).await.unwrap();
    assert_eq!(script.requests().len(), 2);
    for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(builder.clone().ca_pem(text).build(), Err(BuildError::Certificate(_))), "{text}");
    }
}

#[tokio::test]
async fn a_connection_that_is_not_agreed_upon_ends_in_time() {
    // The server accepts the connection and sends nothing, so the client cannot agree on TLS.
    let script = Script::start([Manner::Reset]).await;
    let client = Client::builder(format!("https://{}", script.address))
        .connect_timeout(Duration::from_millis(100))
        .repeats(0)
        .build()
        .unwrap();
    let error = cancel(&client).await.unwrap_err();
    assert!(matches!(&error, Error::Connection(reason) if reason.contains("in time")), "{error:?}");
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_an_error() {
    let script = Script::start([placed()]).await;
    let client = script.client();
    let timer = timer();
    let error = client.namespace("default").place(&timer).idempotency_key("a\r\nx: y").await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(script.requests().is_empty());
}
