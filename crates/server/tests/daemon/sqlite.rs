//! Tests the service with its timers in an SQLite database: deliveries, a kill, `check`, and backups into it and out of
//! it.

use crate::backup::filled;
use crate::clients::{Http, callback, far, timer};
use crate::process::{Daemon, SOON, folder, program, run, text, until};
use crate::receiver::Receiver;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tourbillon_sqlite::rusqlite::Connection;

const ON_SQLITE: [&str; 4] = ["--data", "data", "--config", "sqlite.toml"];

const ON_SQLITE_HERE: [&str; 4] = ["--data", "data", "--sqlite-path", "./shop.db"];

fn settings(folder: &Path) {
    std::fs::write(folder.join("sqlite.toml"), "[sqlite]\npath = \"shop.db\"\n").unwrap();
}

fn start(folder: &Path) -> Daemon {
    let more = ["--listen", "127.0.0.1:0", "--callbacks-allow-http", "--callbacks-allow-private"];
    Daemon::spawn(program(folder, &[&ON_SQLITE[..], &more].concat()))
}

fn stop(mut daemon: Daemon) {
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
}

/// Returns the number of timers that `tourbillond check` counts. The check must find no fault.
fn checked(folder: &Path, arguments: &[&str]) -> Value {
    let check = run(folder, &[&["check", "--json"], arguments].concat());
    let found: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
    assert_eq!(found["faults"], serde_json::json!([]), "{found}");
    found["timers"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_in_sqlite_are_delivered_survive_a_kill_and_move_by_backups() {
    let folder = folder();
    settings(folder.path());
    let daemon = start(folder.path());
    let http = Http::new(daemon.address);
    let receiver = Receiver::start(Duration::ZERO).await;
    assert_eq!(http.send("PUT", &timer("due"), &callback(&receiver.url("/"), 50)).await.status, 201);
    for number in 0..20 {
        assert_eq!(http.send("PUT", &timer(&format!("k{number}")), &far()).await.status, 201);
    }
    until("the timer is delivered", || receiver.count() == 1).await;
    assert_eq!(http.send("DELETE", &timer("k0"), &Value::Null).await.status, 200);
    daemon.kill();

    let daemon = start(folder.path());
    let http = Http::new(daemon.address);
    assert_eq!(http.get(&timer("k1")).await.status, 200);
    assert_eq!(http.get(&timer("k0")).await.status, 404);
    let (status, backup) = http.bytes("POST", "/v1/backup").await.unwrap();
    assert_eq!(status, 200);
    std::fs::write(folder.path().join("backup"), backup).unwrap();
    // A second service on the same folder, and one on the same database, are refused.
    for data in ["data", "other"] {
        let arguments = ["--listen", "127.0.0.1:0", "--data", data, "--config", "sqlite.toml"];
        assert!(!run(folder.path(), &arguments).status.success());
    }
    stop(daemon);
    assert_eq!(checked(folder.path(), &ON_SQLITE), 19);
    assert!(!folder.path().join("data/timers.redb").exists());

    // From SQLite to a file, and to another database.
    let to_file = ["restore", "backup", "--data", "file"];
    assert!(run(folder.path(), &to_file).status.success());
    assert_eq!(checked(folder.path(), &["--data", "file"]), 19);
    let other = ["--data", "copy", "--sqlite-path", "copy.db"];
    let restored = run(folder.path(), &[&["restore", "backup"][..], &other].concat());
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert_eq!(checked(folder.path(), &other), 19);
    let again = run(folder.path(), &[&["restore", "backup"][..], &other].concat());
    assert!(text(&again.stderr).contains("the store has timers"), "{}", text(&again.stderr));
}

/// A restore into an SQLite database is killed. The data folder also has an older store in a file, with timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_killed_lets_the_next_restore_remove_no_timers_of_another_store() {
    let folder = folder();
    let data = ["--data", "data"];
    filled(folder.path(), 20).await;
    let other = ["--data", "data", "--sqlite-path", "other.db"];
    let restore = |to: &[&str]| run(folder.path(), &[&["restore", "backup"][..], to].concat());
    for to in [&other[..], &ON_SQLITE_HERE] {
        let restored = restore(to);
        assert!(restored.status.success(), "{}", text(&restored.stderr));
    }
    let shop = folder.path().canonicalize().unwrap().join("shop.db");
    let name = shop.display();
    let mark = format!("A restore into {name} has not ended. Run `tourbillond restore` again.\n");
    let path = folder.path().join("data/restoring");
    std::fs::write(&path, &mark).unwrap();
    for to in [&data[..], &other] {
        let refused = restore(to);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains(&format!("into {name} has not")), "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), mark);
    }
    // The restore into the database of the mark removes the timers of the killed restore, and the mark.
    let restored = restore(&ON_SQLITE_HERE);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert!(!path.exists());
    for store in [&data[..], &other, &ON_SQLITE_HERE] {
        assert_eq!(checked(folder.path(), store), 20);
    }
}

#[test]
fn a_check_makes_no_tables_in_the_database_of_another_program() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE orders (number INTEGER)").unwrap();
    for _ in 0..2 {
        let check = run(folder.path(), &[&["check"][..], &ON_SQLITE_HERE].concat());
        let said = text(&check.stderr);
        assert!(!check.status.success() && said.contains("the database has no timers"), "{said}");
    }
    assert_eq!(tourbillon_sqlite::schema(&connection).unwrap(), None);
}

#[test]
fn sqlite_and_redis_are_not_set_together() {
    let folder = folder();
    let arguments = ["--sqlite-path", "shop.db", "--redis-servers", "redis://127.0.0.1:1"];
    let ended = run(folder.path(), &arguments);
    assert_eq!(ended.status.code(), Some(2));
    let message = text(&ended.stderr) + &text(&ended.stdout);
    assert!(message.contains("sqlite.path and redis.servers are not set together"), "{message}");
    assert!(!folder.path().join("shop.db").exists());
}

/// The namespaces, the tokens and other files are in the data folder whatever the store is, so a folder has one service
/// or restore at a time. A folder in use is refused before a server of Redis or PostgreSQL is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_folder_has_one_service_whatever_the_stores_are() {
    let folder = folder();
    filled(folder.path(), 3).await;
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    let stores: [&[&str]; 4] = [
        &[],
        &["--sqlite-path", "other.db"],
        &["--redis-servers", "redis://127.0.0.1:1"],
        &["--postgres-server", "postgres://tourbillon@127.0.0.1:1/timers"],
    ];
    for first in [&[][..], &["--sqlite-path", "shop.db"]] {
        let daemon = Daemon::start(folder.path(), first);
        let http = Http::new(daemon.address);
        assert_eq!(http.send("PUT", "/v1/namespaces/shop", &serde_json::json!({})).await.status, 201);
        for second in stores {
            let serve = [&["--listen", "127.0.0.1:0", "--data", "data"][..], second].concat();
            let ended = run(folder.path(), &serve);
            let said = text(&ended.stderr);
            assert!(ended.status.code() == Some(1), "{first:?} {second:?}: {said}");
            assert!(said.contains("another service uses this folder"), "{first:?} {second:?}: {said}");
        }
        for second in &stores[..2] {
            let restore = [&["restore", "backup", "--data", "data"][..], second].concat();
            let ended = run(folder.path(), &restore);
            let said = text(&ended.stderr);
            assert!(ended.status.code() == Some(1), "{first:?} {second:?}: {said}");
            assert!(said.contains("a service uses this folder"), "{first:?} {second:?}: {said}");
        }
        assert!(!folder.path().join("other.db").exists(), "a refused process makes no store");
        assert!(first.is_empty() || !folder.path().join("data/timers.redb").exists());
        stop(daemon);
        std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    }
}
