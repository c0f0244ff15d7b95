//! Tests that a service moves from any store into any other by a backup: a file, an SQLite database, PostgreSQL and
//! Redis. Without PostgreSQL or Redis, the tests say what was skipped.

use crate::clients::{Http, far, timer};
use crate::process::{Daemon, SOON, folder, program, run, text};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;
use tourbillon_fault::{Postgres, Server};

/// A kind of store.
enum Kind {
    File,
    Sqlite,
    Postgres(Postgres),
    Redis(Server),
}

impl Kind {
    /// Returns the kinds of stores whose servers are installed. The file comes first.
    fn all() -> Vec<Self> {
        let servers = [Postgres::start(&[]).map(Self::Postgres), Server::start(&[]).map(Self::Redis)];
        [Self::File, Self::Sqlite].into_iter().chain(servers.into_iter().flatten()).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Sqlite => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Redis(_) => "redis",
        }
    }

    /// Returns the arguments for a store of this kind. Each number stands for a store of its own.
    fn store(&self, number: usize) -> Vec<String> {
        let of_kind = match self {
            Self::File => Vec::new(),
            Self::Sqlite => vec!["--sqlite-path".to_owned(), format!("{number}.db")],
            Self::Postgres(server) => {
                let schema = ["--postgres-schema".to_owned(), format!("s{number}")];
                ["--postgres-server".to_owned(), server.url()].into_iter().chain(schema).collect()
            }
            Self::Redis(server) => {
                let deployment = ["--redis-deployment".to_owned(), format!("d{number}")];
                ["--redis-servers".to_owned(), server.url()].into_iter().chain(deployment).collect()
            }
        };
        ["--data".to_owned(), format!("data{number}")].into_iter().chain(of_kind).collect()
    }
}

/// Stores timers, a schedule and a namespace with a secret. Returns the bytes of a backup of them.
pub(crate) async fn fill(http: &Http) -> Vec<u8> {
    let limits = json!({ "max_timers": 100_000, "allowed_hosts": ["receiver.test"] });
    assert_eq!(http.send("PUT", "/v1/namespaces/shop", &limits).await.status, 201);
    assert_eq!(http.send("POST", "/v1/namespaces/shop/secrets", &Value::Null).await.status, 201);
    for number in 0..300 {
        assert_eq!(http.send("PUT", &timer(&format!("k{number}")), &far()).await.status, 201);
    }
    let paused = http.send("POST", &format!("{}/pause", timer("k0")), &Value::Null).await;
    assert_eq!(paused.status, 200, "{}", paused.json);
    let callback = json!({ "url": "http://receiver.test:9999/" });
    let schedule = json!({ "cron": "0 3 1 1 *", "zone": "Europe/Berlin", "callback": callback });
    let made = http.send("PUT", "/v1/namespaces/shop/schedules/yearly", &schedule).await;
    assert!(made.status.is_success(), "{}", made.json);
    let (status, backup) = http.bytes("POST", "/v1/backup").await.expect("a whole answer");
    assert_eq!(status, 200);
    backup
}

/// Returns the timers of a backup sorted by id, and the namespaces of the backup.
pub(crate) fn contents(backup: &[u8]) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> =
        text(backup).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, first) = (lines.pop().unwrap(), lines.remove(0));
    lines.sort_by_key(|line| line["id"].to_string());
    assert_eq!(last["timers"], lines.len());
    (lines, first["attached"].clone())
}

fn with<'a>(words: &[&'a str], store: &'a [String]) -> Vec<&'a str> {
    words.iter().copied().chain(store.iter().map(String::as_str)).collect()
}

fn start(folder: &Path, store: &[String]) -> Daemon {
    let words = ["--callbacks-allow-http", "--callbacks-allow-private", "--listen", "127.0.0.1:0"];
    Daemon::spawn(program(folder, &with(&words, store)))
}

fn stop(mut daemon: Daemon) {
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
}

/// Restores a backup into a new store, checks the store, and makes a backup of the service on it.
async fn moved(folder: &Path, backup: &[u8], store: &[String]) -> Vec<u8> {
    std::fs::write(folder.join("backup"), backup).unwrap();
    let restore = || {
        let ended = run(folder, &with(&["restore", "backup"], store));
        (ended.status.code(), text(&ended.stdout) + &text(&ended.stderr))
    };
    let (code, said) = restore();
    assert!(code == Some(0) && said.contains(" timers restored"), "{said}");
    let (code, said) = restore();
    assert!(code == Some(1) && said.contains("has timers; a restore needs an empty store"), "{said}");
    let check = run(folder, &with(&["check", "--json"], store));
    let found: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
    let timers = contents(backup).0.len();
    assert_eq!((&found["faults"], &found["timers"]), (&json!([]), &json!(timers)), "{found}");
    let daemon = start(folder, store);
    let (status, again) =
        Http::new(daemon.address).bytes("POST", "/v1/backup").await.expect("a whole answer");
    assert_eq!(status, 200);
    stop(daemon);
    again
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_moves_from_any_store_into_any_other_with_all_its_timers() {
    let (folder, kinds) = (folder(), Kind::all());
    let daemon = start(folder.path(), &kinds[0].store(0));
    let mut backups = vec![fill(&Http::new(daemon.address)).await];
    stop(daemon);
    let wanted = contents(&backups[0]);
    assert!(wanted.0.len() > 300, "{}", wanted.0.len());
    let mut number = 0;
    for from in 0..kinds.len() {
        for (into, kind) in kinds.iter().enumerate().filter(|(into, _)| *into != from) {
            number += 1;
            let again = moved(folder.path(), &backups[from], &kind.store(number)).await;
            assert!(contents(&again) == wanted, "from {} into {}", kinds[from].name(), kind.name());
            if into == backups.len() {
                backups.push(again);
            }
        }
    }
}

/// The store came back empty, and the service manager has started the service before the restore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_after_a_mere_start_brings_the_limits_and_secrets_of_all_namespaces() {
    let (folder, kinds) = (folder(), Kind::all());
    let daemon = start(folder.path(), &kinds[0].store(0));
    let http = Http::new(daemon.address);
    let default = "/v1/namespaces/default";
    let limits = json!({ "paused": true, "allowed_hosts": ["receiver.test"], "max_timers": 100_000 });
    assert_eq!(http.send("PUT", default, &limits).await.status, 200);
    assert_eq!(http.send("POST", &format!("{default}/secrets"), &Value::Null).await.status, 201);
    std::fs::write(folder.path().join("backup"), fill(&http).await).unwrap();
    let wanted = http.get(default).await.json;
    stop(daemon);
    for (number, kind) in kinds.iter().enumerate() {
        let store = kind.store(number + 1);
        stop(start(folder.path(), &store));
        let mut restored = run(folder.path(), &with(&["restore", "backup"], &store));
        // A node in PostgreSQL counts as running until its time is over.
        let begun = std::time::Instant::now();
        while text(&restored.stderr).contains("stop its nodes first") && begun.elapsed() < 2 * SOON {
            std::thread::sleep(std::time::Duration::from_millis(200));
            restored = run(folder.path(), &with(&["restore", "backup"], &store));
        }
        assert!(restored.status.success(), "{}: {restored:?}", kind.name());
        let said = text(&restored.stderr);
        assert!(!said.contains("stays as it is"), "{}: {said}", kind.name());
        let daemon = start(folder.path(), &store);
        let http = Http::new(daemon.address);
        let there = http.get(default).await.json;
        assert_eq!((&there["limits"], &there["secrets"]), (&limits, &wanted["secrets"]), "{}", kind.name());
        let shop = http.get("/v1/namespaces/shop").await.json;
        assert_eq!(shop["secrets"].as_array().map(Vec::len), Some(1), "{}: {shop}", kind.name());
        stop(daemon);
    }
}
