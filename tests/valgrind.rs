//! Programs that use the engine run under valgrind.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tourbillon::{Builder, Fired};

/// The exit code with which valgrind reports an error.
const ERROR: &str = "99";

#[test]
#[ignore = "the program of the other test"]
fn a_timer_of_each_kind_fires() {
    let (fired, firings) = mpsc::channel();
    let engine = Builder::new()
        .start(move |timer: Fired<'_, u64>| fired.send(timer.payload).expect("the test waits"))
        .expect("an engine");
    let delay = Duration::from_millis(5);
    let timer = engine.handle().timer(1).expect("room");
    timer.arm(delay).expect("open");
    let _ = engine.handle().schedule(delay, 2).expect("room");
    let mut seen = [(); 2].map(|()| firings.recv().expect("both fire"));
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}

#[test]
fn an_engine_is_clean_under_valgrind() {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let this = std::env::current_exe().expect("a file");
    let run = Command::new("valgrind")
        .args(["--quiet", &format!("--error-exitcode={ERROR}")])
        .arg(this)
        .args(["--ignored", "--exact", "a_timer_of_each_kind_fires"])
        .output()
        .expect("valgrind starts");
    let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && out.contains("1 passed"), "{}\n{out}\n{errors}", run.status);
}
