//! Tests a clock that is ten years ahead for some seconds. The library of `tourbillon-fault` shifts the time of the
//! process only, so the kernel does not announce the step. Without a C compiler or `redis-server`, the tests say that
//! they were skipped.

use crate::clients::Http;
use crate::process::{Daemon, folder, program};
use crate::receiver::Receiver;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tourbillon_fault::{Server, Shift};

const DECADE: i64 = 3_652 * 86_400;
/// The time within which the service must notice that somebody has set a clock. The service compares its clocks every
/// ten seconds.
const NOTICED: Duration = Duration::from_secs(20);

const PATH: &str = "/v1/namespaces/default/schedules/s";

/// Returns a schedule that fires every second.
fn each_second(receiver: &Receiver) -> Value {
    json!({ "every_ms": 1_000, "missed": "skip", "callback": { "url": receiver.url("/") } })
}

async fn eventually(condition: &str, daemon: &Daemon, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < NOTICED, "{condition}: {}", daemon.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn next_year(http: &Http) -> i32 {
    let next = http.get(PATH).await.json["next"].as_str().unwrap_or("0000").to_owned();
    next[..4].parse().unwrap()
}

/// Sets the clock ten years ahead, and waits until the schedule follows. Then sets the clock back. Fails unless the
/// schedule fires again.
async fn assert_follows(daemon: &Daemon, receiver: &Receiver, set: impl Fn(i64)) {
    let http = Http::new(daemon.address);
    let put = http.send("PUT", PATH, &each_second(receiver)).await;
    assert_eq!(put.status, 201, "{}", put.json);
    eventually("it fires", daemon, async || receiver.count() >= 2).await;
    let year = next_year(&http).await;
    set(DECADE);
    eventually("the schedule is ahead", daemon, async || next_year(&http).await >= year + 9).await;
    set(0);
    eventually("the schedule is back", daemon, async || next_year(&http).await <= year + 1).await;
    let before = receiver.count();
    eventually("it fires again", daemon, async || receiver.count() >= before + 3).await;
    for word in ["ahead", "back"] {
        let line = daemon.line(&format!("the clock stepped {word} by 3155")).await;
        assert!(line.contains(" s, from ") && line.ends_with('Z'), "{line}");
        assert_eq!(daemon.log().matches(&format!("stepped {word}")).count(), 1, "{}", daemon.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_ten_years_ahead_does_not_silence_schedules() {
    let Some(shift) = Shift::new(0) else { return };
    let (folder, receiver) = (folder(), Receiver::start(Duration::ZERO).await);
    let mut command = program(
        folder.path(),
        &["--callbacks-allow-http", "--callbacks-allow-private", "--data", "data", "--listen", "127.0.0.1:0"],
    );
    shift.apply(&mut command);
    let daemon = Daemon::spawn(command);
    assert_follows(&daemon, &receiver, |seconds| shift.set(seconds)).await;
}

fn on_redis(folder: &Path, data: &str) -> Daemon {
    let usual = ["--callbacks-allow-http", "--callbacks-allow-private", "--listen", "127.0.0.1:0"];
    Daemon::spawn(program(folder, &[&usual[..], &["--config", "redis.toml", "--data", data]].concat()))
}

/// The two nodes of this test use the clock of their Redis server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_server_whose_clock_was_ten_years_ahead_does_not_silence_schedules() {
    let Some(server) = Server::start_shifted(&["--appendonly", "yes"], 0) else { return };
    let (folder, receiver) = (folder(), Receiver::start(Duration::ZERO).await);
    let settings = format!("[redis]\nservers = [\"{}\"]\nshards = 8\n", server.url());
    fs::write(folder.path().join("redis.toml"), settings).unwrap();
    let daemon = on_redis(folder.path(), "one");
    let _other = on_redis(folder.path(), "two");
    assert_follows(&daemon, &receiver, |seconds| server.set_shift(seconds)).await;
}
