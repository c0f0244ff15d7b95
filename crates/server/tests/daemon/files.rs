//! Tests files of the data folder that are missing, empty, cut or older. Each start finds all timers, or names the file
//! that it misses.

use crate::clients::{Http, far};
use crate::process::{Daemon, folder, program, run, text};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The arguments with which a test starts the service. The process ends by itself if it refuses the data folder.
const START: &[&str] = &["--data", "data", "--listen", "127.0.0.1:0"];

fn path(number: usize) -> String {
    format!("/v1/namespaces/n/timers/k{number}")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let (from, to) = (file.path(), to.join(file.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Starts a service, makes ten timers, and kills the service. The service's data folder is `data`. The folder `older`
/// is a copy of `data` after the first five timers.
async fn killed(folder: &Path) {
    let daemon = Daemon::start(folder, &[]);
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", "/v1/namespaces/n", &json!({})).await.status, 201);
    for number in 0..10 {
        if number == 5 {
            copy(&folder.join("data"), &folder.join("older"));
        }
        assert_eq!(http.send("PUT", &path(number), &far()).await.status, 201);
    }
    daemon.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_missing_empty_or_cut_refuses_the_start_or_loses_no_timer() {
    let origin = folder();
    killed(origin.path()).await;
    for (file, damage, is_refused) in [
        ("timers.redb", "missing", true),
        ("timers.redb", "empty", true),
        ("timers.redb", "cut", true),
        ("timers.redb.ops", "missing", true),
        // The journal has no row `empty`: an empty file is how a user asks the service to go on without the journal.
        ("timers.redb.ops", "cut", true),
        ("namespaces.json", "missing", true),
        ("namespaces.json", "empty", true),
        ("namespaces.json", "cut", true),
        ("operations.json", "missing", false),
        ("history.ring", "missing", false),
        ("history.ring", "empty", false),
        ("history.ring", "cut", false),
        ("timers.redb.reserve", "missing", false),
        ("timers.redb.reserve", "empty", false),
    ] {
        let name = format!("{file} is {damage}");
        let damaged = folder();
        let data = damaged.path().join("data");
        copy(&origin.path().join("data"), &data);
        let at = data.join(file);
        match damage {
            "missing" => drop(fs::remove_file(&at)),
            "empty" => fs::write(&at, "").unwrap(),
            _ => {
                let bytes = fs::read(&at).unwrap_or_default();
                fs::write(&at, &bytes[..bytes.len() / 2]).unwrap();
            }
        }
        if is_refused {
            for _ in 0..2 {
                let ended = run(damaged.path(), START);
                let log = text(&ended.stderr);
                assert!(!ended.status.success(), "{name}: {log}");
                // redb panics at a file that is too short. The service catches the panic, but the log has its line.
                assert!(!log.contains("panicked") || damage == "cut", "{name}: {log}");
                // The messages of redb and of the JSON parser do not name the file.
                assert!(log.contains(file) || log.contains("journal") || damage == "cut", "{name}: {log}");
            }
        } else {
            let daemon = Daemon::start(damaged.path(), &[]);
            let http = Http::new(daemon.address);
            for number in 0..10 {
                assert_eq!(http.get(&path(number)).await.status, 200, "{name}: {number}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_namespaces_a_service_goes_on_if_it_is_asked_to_and_delivers() {
    let origin = folder();
    killed(origin.path()).await;
    let file = origin.path().join("data/namespaces.json");
    fs::remove_file(&file).unwrap();
    let log = text(&run(origin.path(), START).stderr);
    assert!(log.contains("the store has timers of the namespaces n: put the file back"), "{log}");
    fs::write(&file, "{}").unwrap();
    let daemon = Daemon::start(origin.path(), &[]);
    daemon.line("the namespace \"n\" has timers and is not in namespaces.json").await;
    let http = Http::new(daemon.address);
    let moved = http.send("PATCH", &path(3), &json!({ "delay_ms": 1 })).await;
    assert_eq!(moved.status, 200, "{}", moved.json);
    let stats = || async { http.send("GET", &path(3), &Value::Null).await.json };
    // The receiver's name is unknown, so an attempt fails. This shows that the timer is delivered and not held back.
    let begun = std::time::Instant::now();
    while stats().await["failures"].as_u64().unwrap_or(0) == 0 {
        assert!(begun.elapsed() < crate::process::SOON, "{}", stats().await);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Only `default` has limits: no name of a namespace shows that the file is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_file_of_the_namespaces_no_service_starts_whatever_timers_there_are() {
    let more: [(&str, &[&str]); 2] = [("a file", &[]), ("SQLite", &["--sqlite-path", "shop.db"])];
    for (store, more) in more {
        for has_timers in [false, true] {
            let place = folder();
            let callbacks: &[&str] = &["--callbacks-allow-http", "--callbacks-allow-private"];
            let start = [START, callbacks, more].concat();
            let daemon = Daemon::spawn(program(place.path(), &start));
            let http = Http::new(daemon.address);
            let file = place.path().join("data/namespaces.json");
            assert!(file.exists(), "{store}: the first start makes the file");
            let paused = http.send("PATCH", "/v1/namespaces/default", &json!({ "paused": true })).await;
            assert_eq!(paused.status, 200, "{}", paused.json);
            if has_timers {
                assert_eq!(http.send("PUT", "/v1/namespaces/default/timers/k", &far()).await.status, 201);
            }
            daemon.kill();
            fs::remove_file(&file).unwrap();
            for _ in 0..2 {
                let refused = run(place.path(), &start);
                let log = text(&refused.stderr);
                assert!(
                    !refused.status.success() && log.contains("namespaces.json is missing"),
                    "{store}: {log}"
                );
            }
            let check = run(place.path(), &[&["check", "--data", "data"], more].concat());
            assert!(text(&check.stdout).contains("the file is missing"), "{store}: {check:?}");
            fs::write(&file, "{}").unwrap();
            let daemon = Daemon::spawn(program(place.path(), &start));
            assert_eq!(Http::new(daemon.address).get("/readyz").await.status, 200);
        }
    }
}

/// Only the store was copied into a new folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_timers_without_the_other_files_of_its_folder_is_refused() {
    let place = folder();
    let daemon = Daemon::start(place.path(), &[]);
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", "/v1/namespaces/default/timers/k", &far()).await.status, 201);
    daemon.kill();
    fs::create_dir(place.path().join("new")).unwrap();
    for name in ["timers.redb", "timers.redb.ops"] {
        fs::copy(place.path().join("data").join(name), place.path().join("new").join(name)).unwrap();
    }
    let log = text(&run(place.path(), &["--data", "new", "--listen", "127.0.0.1:0"]).stderr);
    assert!(log.contains("timers of the namespaces default: put the file back"), "{log}");
}

/// The test removes the data folder of a running service.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_folder_that_is_removed_is_noticed_and_nothing_is_acknowledged_any_more() {
    let place = folder();
    let daemon = Daemon::start(place.path(), &[]);
    let http = Http::new(daemon.address);
    assert_eq!(http.get("/readyz").await.status, 200);
    fs::remove_dir_all(place.path().join("data")).unwrap();
    let begun = std::time::Instant::now();
    loop {
        let answer = http.send("PUT", "/v1/namespaces/default/timers/k", &far()).await;
        if answer.status == 503 {
            assert!(answer.json["detail"].as_str().unwrap().contains("was removed"), "{}", answer.json);
            break;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{}", answer.json);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(http.get("/readyz").await.status, 503);
}
