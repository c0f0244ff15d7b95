//! The example `tokio_loop`, run as a process of its own.

use std::path::PathBuf;
use std::process::Command;

/// The example's binary, beside the folder of this test's.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).expect("in target/<profile>/deps");
    let example = profile.join("examples").join(format!("tokio_loop{}", std::env::consts::EXE_SUFFIX));
    assert!(example.exists(), "first run `cargo build --features async --example tokio_loop`: {example:?}");
    example
}

/// Each timeout passes, though every arming is for an earlier moment than the turning task sleeps until. Without the
/// wake-ups from the loop's own thread, the first ones would wait for the last one, or for ever.
#[test]
fn all_timeouts_pass_on_the_thread_of_the_runtime() {
    all_timeouts_pass(1);
}

#[test]
fn all_timeouts_pass_on_several_threads() {
    all_timeouts_pass(3);
}

fn all_timeouts_pass(workers: u16) {
    let workers = format!("--workers={workers}");
    let arguments = ["--tasks=500", "--first=20", "--spread=300", workers.as_str()];
    let run = Command::new(example()).args(arguments).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}{}", String::from_utf8_lossy(&run.stderr));
    assert!(output.starts_with("500 timeouts passed on the runtime's threads, 0 were early\n"), "{output}");
    let median = output.split("median ").nth(1).and_then(|rest| rest.split(',').next()).expect("a median");
    let is_short = median.ends_with("ms") || median.ends_with("µs");
    let millis: f64 = median.trim_end_matches(['m', 's', 'µ']).parse().unwrap();
    assert!(is_short && (median.ends_with("µs") || millis < 100.0), "the loop overslept: {output}");
}
