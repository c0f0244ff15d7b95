//! Tests that a creation whose path has escaped characters is answered like the same creation with a plain path.

use crate::inside::{Answered, Inside};
use axum::body::Body;
use axum::http::Request;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Makes a token by `tourbillond token new` with further `arguments`. Returns the token.
fn token(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tourbillond"))
        .args(["token", "new", "--data"])
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A request of a test: the name of its kind, its headers, and its body.
type Row = (&'static str, Vec<(&'static str, String)>, Vec<u8>);

const TIMER: &str = r#"{"delay_ms": 600000, "callback": {"url": "http://127.0.0.1:9999/", "body": "b"}}"#;

/// Returns requests to create a timer. Some of the requests are refused, at different steps of the creation.
fn rows() -> Vec<Row> {
    let json = ("content-type", "application/json".to_owned());
    let with = |name, value: &str| vec![json.clone(), (name, value.to_owned())];
    vec![
        ("a whole one", vec![json.clone()], TIMER.into()),
        ("the same once more", vec![json.clone()], TIMER.into()),
        ("no type", vec![], TIMER.into()),
        ("another type", vec![("content-type", "text/plain".to_owned())], TIMER.into()),
        ("no body", vec![json.clone()], vec![]),
        ("no JSON", vec![json.clone()], b"{".to_vec()),
        ("an unknown field", vec![json.clone()], br#"{"x": 1}"#.to_vec()),
        ("too large", vec![json.clone()], vec![b' '; 1 << 20]),
        ("a blocked address", vec![json.clone()], TIMER.replace("127.0.0.1", "169.254.169.254").into()),
        ("a context", with("traceparent", "nonsense"), TIMER.into()),
        ("an idempotency key", with("idempotency-key", "i"), TIMER.into()),
        ("no idempotency key", with("idempotency-key", ""), TIMER.into()),
        ("another site", with("sec-fetch-site", "cross-site"), TIMER.into()),
        ("another host", with("host", "evil.example"), TIMER.into()),
        ("a proxy", with("forwarded", "for=1.2.3.4"), TIMER.into()),
        ("no token", with("authorization", "Bearer nonsense"), TIMER.into()),
    ]
}

async fn ask(inside: &Inside, method: &str, path: &str, row: &Row, token: Option<&str>) -> Answered {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in &row.1 {
        request = request.header(*name, value);
    }
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    inside.ask(request.body(Body::from(row.2.clone())).unwrap()).await
}

/// Writes an answer as a text for a comparison. Leaves out the parts that differ from timer to timer, such as ids.
fn same(answer: &Answered) -> String {
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| *name != "content-length" && *name != "x-request-id")
        .collect();
    headers.sort_by_key(|(name, _)| name.as_str());
    let mut json = answer.json();
    for name in ["id", "key", "request_id"] {
        json.as_object_mut().and_then(|members| members.remove(name));
    }
    // If the key is taken, the detail names the timer that has the key. This name differs, too.
    let detail = json["detail"].as_str().and_then(|detail| detail.split_once(" has the key"));
    if let Some((_timer, rest)) = detail {
        json["detail"] = format!("has the key{rest}").into();
    }
    format!("{} {headers:?} {json}", answer.status)
}

/// Sends each request of the test twice, with a plain path and with an escaped path. Fails unless both answers are
/// equal. Returns the statuses of the answers.
async fn compare(inside: &Inside, token: Option<&str>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for row in rows() {
        for namespace in ["default", "absent"] {
            // The plain and the escaped path have different keys. So only the second of two equal requests finds its
            // key taken.
            let plain = format!("/v1/namespaces/{namespace}/timers");
            let escaped =
                plain.replace("/namespaces/", "/namespaces/%").replace("%d", "%64").replace("%a", "%61");
            for (method, plain, escaped) in [
                ("PUT", format!("{plain}/k"), format!("{escaped}/r")),
                ("POST", plain.clone(), escaped.clone()),
            ] {
                let row = match (&row, method) {
                    // The service would take two requests with the same idempotency key for one. So each path gets its
                    // own.
                    ((name @ "an idempotency key", headers, body), _) => {
                        let with = |way: &str| {
                            let mut headers = headers.clone();
                            headers[1].1 = format!("{way} {method}");
                            (*name, headers, body.clone())
                        };
                        (with("plain"), with("escaped"))
                    }
                    (row, _) => ((*row).clone(), (*row).clone()),
                };
                let first = ask(inside, method, &plain, &row.0, token).await;
                let second = ask(inside, method, &escaped, &row.1, token).await;
                assert_eq!(same(&first), same(&second), "{}: {method} {plain}", row.0.0);
                statuses.push(first.status.as_u16());
            }
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn start() -> (TempDir, Inside) {
    let folder = tempfile::tempdir().unwrap();
    let inside = Inside::start(&folder);
    (folder, inside)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_with_escapes_is_answered_as_one_without() {
    let (_folder, inside) = start();
    assert_eq!(compare(&inside, None).await, [201, 400, 403, 404, 409, 413, 415, 422]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_with_escapes_needs_the_same_right() {
    let folder = tempfile::tempdir().unwrap();
    let reader = token(folder.path(), &["--role", "reader"]);
    let writer = token(folder.path(), &["--role", "writer", "--namespace", "default"]);
    let inside = Inside::start(&folder);
    assert_eq!(compare(&inside, None).await, [401, 403]);
    assert_eq!(compare(&inside, Some(&reader)).await, [401, 403]);
    assert_eq!(compare(&inside, Some(&writer)).await, [201, 400, 401, 403, 409, 413, 415, 422]);
}
