//! Tokens over their whole life: made, used, expired, revoked.

use crate::clients::{Answer, Http, far, timer};
use crate::process::{Daemon, folder, run, text, token, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::Duration;

fn problem(answer: &Answer) -> (u16, &str) {
    (answer.status.as_u16(), answer.json["type"].as_str().unwrap_or(""))
}

const FORBIDDEN: (u16, &str) = (403, "/problems/forbidden");
const UNAUTHORISED: (u16, &str) = (401, "/problems/unauthorised");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t15_each_token_permits_what_its_role_does_in_its_namespace() {
    let folder = folder();
    let of = |arguments: &[&str]| token(folder.path(), &[&["--data", "data"], arguments].concat());
    let (reader, writer) = (of(&["--role", "reader"]), of(&["--role", "writer", "--namespace", "default"]));
    let other = of(&["--role", "admin", "--namespace", "other"]);
    let expired = of(&["--role", "admin", "--expires", "0s"]);
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let (path, mut far) = (timer("k"), far());
    far["callback"]["body"] = "of the customer".into();

    let created = http.with_token(&writer).send("PUT", &path, &far).await;
    assert_eq!(created.status, 201, "{}", created.json);
    assert!(http.with_token(&writer).get(&path).await.json.to_string().contains("of the customer"));
    let shown = http.with_token(&reader).get(&path).await;
    assert_eq!(shown.status, 200);
    assert!(!shown.json.to_string().contains("of the customer"), "readers see no payloads: {}", shown.json);
    for (method, body) in [("PUT", &far), ("DELETE", &Value::Null)] {
        assert_eq!(problem(&http.with_token(&reader).send(method, &path, body).await), FORBIDDEN);
    }
    for method in ["GET", "DELETE"] {
        let answer = http.with_token(&other).send(method, &path, &Value::Null).await;
        assert_eq!(problem(&answer), FORBIDDEN, "another namespace");
    }
    assert_eq!(problem(&http.with_token(&writer).get(&path.replace("default", "other")).await), FORBIDDEN);

    let none = http.get(&path).await;
    assert_eq!(
        (problem(&none), &none.headers["www-authenticate"]),
        (UNAUTHORISED, &r#"Bearer realm="tourbillon""#.parse().unwrap())
    );
    let expired = http.with_token(&expired).get(&path).await;
    assert_eq!(problem(&expired), UNAUTHORISED);
    assert!(expired.headers["www-authenticate"].to_str().unwrap().contains("invalid_token"));
    assert!(expired.json["detail"].as_str().unwrap().contains("expired"));
    let unknown = "tb_admin_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for wrong in [unknown, &writer[1..], &writer.to_uppercase(), ""] {
        assert_eq!(problem(&http.with_token(wrong).get(&path).await), UNAUTHORISED, "{wrong}");
    }
    for header in ["Basic dTpw", "Bearer", "bearer", &writer] {
        let answer = http.try_send("GET", &path, &[("authorization", header)], &Value::Null).await.unwrap();
        assert_eq!(problem(&answer), UNAUTHORISED, "{header}");
    }
    let two = [("authorization", "Bearer x"), ("authorization", "Bearer y")];
    assert_eq!(problem(&http.try_send("GET", &path, &two, &Value::Null).await.unwrap()), UNAUTHORISED);
    // Nothing of all this has changed the timer, and no token is in a log or a file.
    assert_eq!(http.with_token(&writer).get(&path).await.json["id"], created.json["id"]);
    let file = fs::read_to_string(folder.path().join("data/tokens.json")).unwrap();
    for secret in [&reader, &writer, &other] {
        let digits = secret.rsplit('_').next().unwrap();
        assert!(!file.contains(digits) && !daemon.log().contains(digits));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_made_and_revoked_while_the_service_runs() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let is = async |http: &Http, status: u16| http.get(&timer("k")).await.status == status;
    assert!(is(&http, 404).await, "no token is needed");

    // The first token ends the time without tokens, without a signal.
    let first = token(folder.path(), &["--role", "writer", "--name", "first", "--data", "data"]);
    until("the tokens are read", || daemon.find("tokens were read again").is_some()).await;
    assert!(is(&http, 401).await);
    let first = http.with_token(&first);
    assert!(is(&first, 404).await);

    let second = token(folder.path(), &["--role", "reader", "--name", "second", "--data", "data"]);
    daemon.signal(Signal::HUP);
    let second = http.with_token(&second);
    let begun = std::time::Instant::now();
    while !is(&second, 404).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", daemon.log());
    }

    let listed = run(folder.path(), &["token", "list", "--json", "--data", "data"]);
    let listed: Value = serde_json::from_str(&text(&listed.stdout)).unwrap();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|token| token["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
    let id = listed[1]["id"].as_str().unwrap();
    for which in ["first", id] {
        let revoked = run(folder.path(), &["token", "revoke", which, "--data", "data"]);
        assert!(revoked.status.success(), "{revoked:?}");
    }
    assert!(!run(folder.path(), &["token", "revoke", "first", "--data", "data"]).status.success());
    daemon.signal(Signal::HUP);
    let begun = std::time::Instant::now();
    while !is(&first, 401).await || !is(&second, 401).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", daemon.log());
    }
    assert!(is(&http, 401).await, "a file without tokens permits nothing");
    fs::remove_file(folder.path().join("data/tokens.json")).unwrap();
    daemon.signal(Signal::HUP);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(is(&http, 401).await, "no file permits nothing once there were tokens");
}
