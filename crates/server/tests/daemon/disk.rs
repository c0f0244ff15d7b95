//! A disk that is full, by a limit of the size of files.

use crate::clients::{Http, callback, timer};
use crate::process::{Daemon, clean, folder, is_installed, text};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{RedbStore, TimerStore as _};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_timers_loses_none_and_is_left_behind() {
    if !is_installed("bash") {
        return;
    }
    let folder = folder();
    // A write beyond the limit fails as on a full disk, once the signal for it is ignored. Only the soft limit is set.
    let script = r#"trap '' XFSZ; ulimit -S -f 8192; exec "$0" "$@""#;
    let program = env!("CARGO_BIN_EXE_tourbillond");
    let daemon = Daemon::spawn(clean(
        Command::new("bash"),
        folder.path(),
        &["-c", script, program, "--data", "data", "--listen", "127.0.0.1:0", "--callbacks-allow-http"],
    ));
    let http = Http::new(daemon.address);
    let mut far = callback("http://receiver.test:9999/", 3_600_000);
    far["callback"]["body"] = json!("x".repeat(60_000));
    let mut made = Vec::new();
    let refused = loop {
        let key = format!("k{}", made.len());
        let answer = http.send("PUT", &timer(&key), &far).await;
        if answer.status != 201 {
            break answer;
        }
        made.push(key);
        assert!(made.len() < 2_000, "the limit is never reached");
    };
    assert_eq!(refused.status, 503, "{}", refused.json);
    assert_eq!(refused.json["type"], "/problems/store-unavailable", "{}", refused.json);
    assert!(made.len() > 10, "{}", made.len());
    assert_eq!(http.get("/healthz").await.status, 200, "a new start would not help");

    // There is room again.
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(Some(daemon.id()), Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
    let begun = Instant::now();
    while http.send("PUT", &timer("later"), &far).await.status.as_u16() / 100 == 5 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    made.push("later".to_owned());
    for key in &made {
        assert_eq!(http.get(&timer(key)).await.status, 200, "{key} was acknowledged");
    }
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!(
            "{} timers before the disk was full; usable again after {:?}",
            made.len() - 1,
            begun.elapsed()
        );
    }
    daemon.kill();
    let daemon = Daemon::start(folder.path(), &[]);
    for key in &made {
        assert_eq!(Http::new(daemon.address).get(&timer(key)).await.status, 200, "{key} was acknowledged");
    }
}

/// The payloads alone are more than the memory that the program may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_needs_no_memory_for_the_timers() {
    if !is_installed("bash") {
        return;
    }
    let folder = folder();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let store = RedbStore::open(folder.path().join("data/timers.redb")).unwrap();
    let timer = |number| {
        let payload = Payload(vec![7; 64 << 10].into());
        Timer { payload, ..Timer::new(TimerId::from_u128(number), "k", UtcMillis::from_millis(1 << 41)) }
    };
    for first in [0, 500, 1_000, 1_500] {
        store.import((first..first + 500).map(timer).collect()).await.unwrap();
    }
    store.close().unwrap();
    let script = r#"ulimit -d 98304; exec "$0" "$@""#;
    let program = env!("CARGO_BIN_EXE_tourbillond");
    let arguments = ["-c", script, program, "check", "--data", "data", "--store-cache", "8MiB"];
    let check = clean(Command::new("bash"), folder.path(), &arguments).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    assert!(text(&check.stdout).contains("2000 timers, 0 faults"), "{check:?}");
}
