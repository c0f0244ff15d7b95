//! Tests the whole life of tokens: they are made, used, expired and revoked.

use crate::clients::{Answer, Http, far, timer};
use crate::process::{Daemon, folder, of_crate, program, run, text, token};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::Duration;

fn problem(answer: &Answer) -> (u16, &str) {
    (answer.status.as_u16(), answer.json["type"].as_str().unwrap_or(""))
}

const FORBIDDEN: (u16, &str) = (403, "/problems/forbidden");
const UNAUTHORISED: (u16, &str) = (401, "/problems/unauthorised");

#[test]
fn a_token_that_is_made_in_the_wrong_folder_says_where_it_is() {
    let folder = folder();
    let made = || run(folder.path(), &["token", "new", "--role", "admin"]);
    let file = folder.path().canonicalize().unwrap().join("tourbillon-data/tokens.json");
    for is_new in [true, false] {
        let made = made();
        let said = text(&made.stderr);
        assert!(made.status.success() && said.contains(file.to_str().unwrap()), "{said}");
        assert_eq!(said.contains("this file is new"), is_new, "{said}");
    }
    assert!(file.exists());
}

#[test]
fn no_token_is_made_that_nobody_could_use() {
    let folder = folder();
    let long = "n".repeat(101);
    for (flag, value) in [("--namespace", "../x"), ("--name", &long)] {
        let refused = run(folder.path(), &["token", "new", "--role", "admin", flag, value]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    assert!(!folder.path().join("tourbillon-data").exists());
}

#[test]
fn a_service_does_not_start_without_its_tokens() {
    let folder = folder();
    let made = run(folder.path(), &["token", "new", "--role", "admin"]);
    assert!(made.status.success(), "{made:?}");
    fs::remove_file(folder.path().join("tourbillon-data/tokens.json")).unwrap();
    let refused = run(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("tokens.lock"), "{said}");
}

#[test]
fn a_token_in_a_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = folder();
    let new = |out: &str| run(folder.path(), &["token", "new", "--role", "admin", "--out", out]);
    let count = || text(&run(folder.path(), &["token", "list"]).stdout).lines().count() - 1;
    let made = new("admin.token");
    assert!(made.status.success() && made.stdout.is_empty(), "{made:?}");
    let path = folder.path().join("admin.token");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&path).unwrap();
    assert!(token.starts_with("tb_") && token.ends_with('\n'), "{token}");
    assert!(!text(&made.stderr).contains(token.trim()), "the token is in the log");
    // An existing file is not overwritten. If the file cannot be written, no token is made.
    for out in ["admin.token", "none/admin.token"] {
        let refused = new(out);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(text(&refused.stderr).contains(out), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), token);
    assert_eq!((count(), fs::read_dir(folder.path()).unwrap().count()), (1, 2));
}

/// Checks that a folder that cannot be synced keeps the file of a token. The folder may not be read, but its owner may
/// write into it.
#[test]
fn a_token_goes_into_a_folder_that_cannot_be_synced() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::process::CommandExt as _;

    let folder = folder();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o300)).unwrap();
    let mut command = program(folder.path(), &["token", "new", "--role", "admin", "--out", "closed/token"]);
    // The user root may read every folder, so the program runs as another user.
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65_534;
        for path in [folder.path(), &closed] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    let made = command.output().unwrap();
    let said = text(&made.stderr);
    assert!(made.status.success() && said.contains("not synced"), "{made:?}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(fs::read_to_string(closed.join("token")).unwrap().starts_with("tb_"));
    let list = text(&run(folder.path(), &["token", "list"]).stdout);
    assert_eq!(list.lines().count(), 2, "the token is not revoked: {list}");
}

#[test]
fn a_list_of_tokens_shows_no_character_that_a_terminal_obeys() {
    let folder = folder();
    token(folder.path(), &["--role", "reader", "--name", "a\u{1b}[2Jb\u{202e}c\nd\u{2028}"]);
    let list = text(&run(folder.path(), &["token", "list"]).stdout);
    assert!(list.ends_with("a\\u001b[2Jb\\u202ec\\u000ad\\u2028\n"), "{list:?}");
}

#[test]
fn a_token_that_nobody_reads_is_revoked() {
    let folder = folder();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let made = program(folder.path(), &["token", "new", "--role", "admin"]).stdout(writer).output().unwrap();
    assert_eq!(made.status.code(), Some(1), "{made:?}");
    let list = run(folder.path(), &["token", "list", "--json"]);
    assert_eq!(text(&list.stdout).trim(), "[]");
    let trail = fs::read_to_string(folder.path().join("tourbillon-data/audit/000001.jsonl")).unwrap();
    let actions: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<_> = actions.iter().map(|entry| (&entry["action"], &entry["outcome"])).collect();
    assert_eq!(actions, [(&"make-token".into(), &"done".into()), (&"revoke-token".into(), &"done".into())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_token_permits_what_its_role_does_in_its_namespace() {
    let folder = folder();
    let make_token = |arguments: &[&str]| token(folder.path(), &[&["--data", "data"], arguments].concat());
    let (reader, writer) =
        (make_token(&["--role", "reader"]), make_token(&["--role", "writer", "--namespace", "default"]));
    let other = make_token(&["--role", "admin", "--namespace", "other"]);
    let expired = make_token(&["--role", "admin", "--expires", "0s"]);
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
    // The refused requests have not changed the timer. No token is in the log or in a file.
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

    // Once the first token is made, the service demands tokens. It needs no signal for this.
    let first = token(folder.path(), &["--role", "writer", "--name", "first", "--data", "data"]);
    daemon.line("tokens were read again").await;
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

/// Returns all routes in the OpenAPI document. Each route has a method, a path, and an example of the body.
fn routes() -> Vec<(String, String, Value)> {
    let document: Value = serde_json::from_slice(&fs::read(of_crate("openapi.json")).unwrap()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(_, member)| member.is_object()) {
            let content = &operation["requestBody"]["content"]["application/json"];
            let examples = content["examples"].as_object().into_iter().flat_map(|examples| examples.values());
            let mut examples = examples.map(|example| &example["value"]).chain(content.get("example"));
            let empty = if content.is_null() { Value::Null } else { Value::Object(Default::default()) };
            let body = examples.next().cloned().unwrap_or(empty);
            routes.push((method.to_uppercase(), path.clone(), body));
        }
    }
    routes
}

/// Replaces each parameter in a path by an example. The example for the namespace is `default`.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{namespace}" => "default",
        "{id}" => "0192d3f8-6c1a-7c3e-9a54-3f1f0a7b2c11",
        part if part.starts_with('{') => "x",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Each route of the OpenAPI document refuses a request without a token, and a token of another namespace. Each route
/// that makes changes also refuses a reader's token. A new route that does not check the role fails this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_asks_for_its_role() {
    let folder = folder();
    let make_token = |arguments: &[&str]| token(folder.path(), &[&["--data", "data"], arguments].concat());
    let (reader, reader_of_all) =
        (make_token(&["--role", "reader", "--namespace", "default"]), make_token(&["--role", "reader"]));
    let (writer, other) = (
        make_token(&["--role", "writer", "--namespace", "default"]),
        make_token(&["--role", "admin", "--namespace", "other"]),
    );
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let writer = http.with_token(&writer);
    assert_eq!(writer.send("PUT", &timer("x"), &far()).await.status, 201);
    let before = writer.get(&timer("x")).await.json;
    let (mut changes, mut looks) = (0, 0);
    for (method, route, body) in routes() {
        // The first route needs no token. The answer of the second, a stream of events, does not end.
        if route == "/healthz" || route == "/v1/events" {
            continue;
        }
        let (place, path) = (format!("{method} {route}"), filled(&route));
        let none = http.send(&method, &path, &body).await;
        assert_eq!(problem(&none), UNAUTHORISED, "{place}: {}", none.json);
        if route.contains("{namespace}") {
            let elsewhere = http.with_token(&other).send(&method, &path, &body).await;
            assert_eq!(problem(&elsewhere), FORBIDDEN, "{place}: {}", elsewhere.json);
        }
        let (own, all) = (http.with_token(&reader), http.with_token(&reader_of_all));
        if route == "/v1/audit" {
            // Only administrators may see the changes that others have made.
            for reader in [own, all] {
                assert_eq!(problem(&reader.get(&path).await), FORBIDDEN, "{place}");
            }
        } else if method == "GET" || route.ends_with("/previews") {
            looks += 1;
            let answer = all.try_send(&method, &path, &[], &body).await;
            // The answer may be a text that is not JSON. Then there is no answer here.
            let status = answer.map_or(200, |answer| answer.status.as_u16());
            assert!(status != 401 && status != 403, "{place}: {status}");
        } else {
            changes += 1;
            for reader in [own, all] {
                let answer = reader.send(&method, &path, &body).await;
                assert_eq!(problem(&answer), FORBIDDEN, "{place}: {}", answer.json);
            }
        }
    }
    assert!(changes > 10 && looks > 5, "{changes} routes that change something, {looks} that show something");
    assert_eq!(writer.get(&timer("x")).await.json, before, "nothing has changed");
}
