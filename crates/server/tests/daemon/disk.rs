//! A disk that is full, by a limit of the size of files.

use crate::clients::{Http, callback, timer};
use crate::process::{Daemon, clean, folder, is_installed};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};

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
