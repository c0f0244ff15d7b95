//! Runs each example as a process, and checks its output. The lateness of the timers depends on the machine.

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_reactors::CONNECTIONS;

/// How long a test waits for the end of an example.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs an example to its end.
fn run(example: &str) -> Output {
    let mut child = Command::new(example).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{example}: a timer is waited for in vain");
        }
        thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().unwrap()
}

/// Checks the output of an example. The example itself checks that no timer was early and that none was lost.
fn all_timers_have_fired(output: Output) {
    let (printed, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    let lines: Vec<&str> = printed.lines().collect();
    let connections = usize::try_from(CONNECTIONS).unwrap();
    assert_eq!(lines.len(), connections + 2, "{printed}");
    assert!(lines[0].starts_with("a timer of 20ms from another thread fired after "), "{printed}");
    for line in &lines[1..=connections] {
        assert!(line.starts_with("a connection with an idle timeout of 60ms was closed after "), "{printed}");
    }
    assert_eq!(lines[connections + 1], format!("{} timers fired, none was early", connections + 1));
}

#[cfg(feature = "smol")]
#[test]
fn all_timers_fire_on_smol() {
    all_timers_have_fired(run(env!("CARGO_BIN_EXE_smol")));
}

#[cfg(feature = "compio")]
#[test]
fn all_timers_fire_on_compio() {
    all_timers_have_fired(run(env!("CARGO_BIN_EXE_compio")));
}

#[cfg(feature = "monoio")]
#[test]
fn all_timers_fire_on_monoio() {
    all_timers_have_fired(run(env!("CARGO_BIN_EXE_monoio")));
}

#[cfg(feature = "glommio")]
#[test]
fn all_timers_fire_on_glommio() {
    let output = run(env!("CARGO_BIN_EXE_glommio"));
    if String::from_utf8_lossy(&output.stderr).contains("Failed to register a probe") {
        return eprintln!("skipped: the system refuses io_uring");
    }
    all_timers_have_fired(output);
}
