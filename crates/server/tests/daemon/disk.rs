//! Tests a full disk. Some tests limit the size of files instead, and others use a small file system.

use crate::clients::{Http, callback, timer};
use crate::process::{Daemon, clean, folder, is_installed, text, until};
#[cfg(target_os = "linux")]
use crate::receiver::Receiver;
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
    // With its signal ignored, a write beyond the limit fails as on a full disk. Only the soft limit is set, so the
    // test can lift it.
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
    assert_eq!(refused.status, 507, "{}", refused.json);
    assert_eq!(refused.json["type"], "/problems/storage-full", "{}", refused.json);
    assert!(made.len() > 10, "{}", made.len());
    assert_eq!(http.get("/healthz").await.status, 200, "a new start would not help");

    // Lift the limit, so there is room again.
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

/// The payloads of the timers together are larger than the memory that `tourbillond check` may use.
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

/// A small file system in memory. Dropping the value unmounts it.
#[cfg(target_os = "linux")]
struct Small(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl Small {
    /// Mounts a file system of `mebibytes` MiB in memory. `None` if this process may not mount file systems.
    fn mount(mebibytes: u64) -> Option<Self> {
        let folder = folder();
        let size = format!("size={mebibytes}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        let is_mounted = mount.output().is_ok_and(|mounted| mounted.status.success());
        is_mounted.then(|| Self(folder))
    }

    /// Fills the file system to the last byte. Stands for another program that fills a disk.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.path().join("others")).unwrap();
        let block = vec![1; 1 << 16];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&block[..512]).is_ok() {}
    }
}

#[cfg(target_os = "linux")]
impl Drop for Small {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Moves each timer with a number in `timers` to a moment that comes soon, and cancels another timer with the same
/// number. Fails unless each delivery comes within a second of its moment.
#[cfg(target_os = "linux")]
async fn assert_goes_on(http: &Http, receiver: &Receiver, timers: std::ops::Range<usize>) {
    use std::collections::HashMap;
    use std::time::SystemTime;

    let mut moments = HashMap::new();
    for number in timers.clone() {
        let delay = 500 + 100 * u64::try_from(number - timers.start).unwrap();
        let moved = http.send("PATCH", &timer(&format!("due{number}")), &json!({ "delay_ms": delay })).await;
        assert_eq!(moved.status, 200, "{}", moved.json);
        moments.insert(format!("/due{number}"), SystemTime::now() + Duration::from_millis(delay));
        let cancelled = http.send("DELETE", &timer(&format!("off{number}")), &serde_json::Value::Null).await;
        assert_eq!(cancelled.json["result"], "cancelled", "{}", cancelled.json);
    }
    let wanted = receiver.count() + timers.len();
    until("the deliveries", || receiver.count() >= wanted).await;
    for received in receiver.log() {
        if let Some(moment) = moments.remove(&received.path) {
            let late = received.at.duration_since(moment).unwrap_or_default();
            assert!(late < Duration::from_secs(1), "{} is late by {late:?}", received.path);
        }
    }
    assert!(moments.is_empty(), "{moments:?}");
}

/// A client fills the disk until the service refuses timers. Then another program fills the disk to the last byte. The
/// environment variable `TOURBILLON_DISK` is the size of the file system in MiB.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_disk_that_others_fill_timers_are_delivered_and_cancelled_and_the_service_starts() {
    let mebibytes = std::env::var("TOURBILLON_DISK").map_or(64, |size| size.parse().unwrap());
    let Some(disk) = Small::mount(mebibytes) else {
        eprintln!("skipped: this process may not mount a file system");
        return;
    };
    let receiver = Receiver::start(Duration::ZERO).await;
    let folder = disk.0.path().to_owned();
    let daemon = Daemon::start(&folder, &[]);
    let http = Http::new(daemon.address);
    for number in 0..30 {
        let due = callback(&receiver.url(&format!("/due{number}")), 3_600_000);
        assert_eq!(http.send("PUT", &timer(&format!("due{number}")), &due).await.status, 201);
        let off = callback("http://receiver.test:9999/", 3_600_000);
        assert_eq!(http.send("PUT", &timer(&format!("off{number}")), &off).await.status, 201);
    }
    assert_eq!(http.get("/readyz").await.status, 200);
    let says_full = async || {
        let (_, page) = http.bytes("GET", "/ui/").await.unwrap();
        String::from_utf8(page).unwrap().contains("nothing new is stored")
    };
    assert!(!says_full().await, "the page agrees with the store, which takes timers");
    let mut far = callback("http://receiver.test:9999/", 3_600_000);
    far["callback"]["body"] = json!("x".repeat(60_000));
    let mut made = 0;
    let refused = loop {
        let answer = http.send("PUT", &timer(&format!("k{made}")), &far).await;
        if answer.status != 201 {
            break answer;
        }
        made += 1;
    };
    let begun = Instant::now();
    assert_eq!(refused.status, 507, "{}", refused.json);
    assert_eq!(refused.json["type"], "/problems/storage-full", "{}", refused.json);
    assert!(made > 100, "{made}");
    let mut ready = http.get("/readyz").await;
    while ready.status == 200 {
        assert!(begun.elapsed() < Duration::from_secs(5), "{}", ready.json);
        ready = http.get("/readyz").await;
    }
    assert_eq!(http.get("/healthz").await.status, 200, "a new start would not help");
    daemon.line("the store refuses changes: the store is full").await;
    assert!(says_full().await);
    assert_goes_on(&http, &receiver, 0..10).await;

    disk.fill();
    assert_goes_on(&http, &receiver, 10..20).await;
    assert_eq!(http.send("PUT", &timer("more"), &far).await.status, 507);
    daemon.kill();
    let daemon = Daemon::start(&folder, &[]);
    let http = Http::new(daemon.address);
    assert_goes_on(&http, &receiver, 20..30).await;
    assert_eq!(http.send("PUT", &timer("more"), &far).await.status, 507);
    let (_, page) = http.bytes("GET", "/metrics").await.unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("tourbillon_store_refused_total{reason=\"full\"} 1\n"), "{page}");

    // Remove the other program's file, so there is room again.
    std::fs::remove_file(folder.join("others")).unwrap();
    for number in 0..made {
        let path = timer(&format!("k{number}"));
        assert_eq!(http.send("DELETE", &path, &serde_json::Value::Null).await.json["result"], "cancelled");
    }
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("{made} timers of 60 KB on {mebibytes} MiB before the first refusal");
    }
}
