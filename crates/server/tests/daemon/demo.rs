//! Tests that the demonstration shows the events that its text promises.

use crate::process::{SOON, folder, program, run, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Instant;

#[test]
fn the_demonstration_shows_a_callback_a_repetition_and_a_cancellation() {
    let folder = folder();
    let shown = run(folder.path(), &["demo", "--exit"]);
    assert!(shown.status.success(), "{shown:?}");
    let shown = text(&shown.stdout);
    let line = |words: &[&str]| {
        let found = shown.lines().find(|line| words.iter().all(|word| line.contains(word)));
        let line = found.unwrap_or_else(|| panic!("{words:?}: {shown}"));
        line.trim_start().split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let stored = line(&["-> the timer reminder is stored", "5 s"]);
    let arrived = line(&["<- callback /reminder", "attempt 1", "204"]);
    // Both times are rounded to a hundredth of a second.
    assert!((4.99..7.0).contains(&(arrived - stored)), "{shown}");
    let failed = line(&["<- callback /unsure", "attempt 1", "503"]);
    let repeated = line(&["<- callback /unsure", "attempt 2", "204"]);
    assert!(repeated - failed >= 1.4, "{shown}");
    line(&["-> the timer regretted is cancelled", "\"cancelled\""]);
    assert!(!shown.contains("/regretted"), "{shown}");
    assert!(shown.contains("curl -X PUT http://127.0.0.1:"), "{shown}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "it leaves no files behind");
}

#[test]
fn an_interrupt_in_the_first_seconds_leaves_no_folder() {
    // With `--exit` the demonstration ends by itself, so an interrupt is a failure.
    for (arguments, code) in [(&["demo"][..], 0), (&["demo", "--exit"], 1)] {
        interrupt_at_the_first_line(arguments, code);
    }
}

fn interrupt_at_the_first_line(arguments: &[&str], code: i32) {
    let (own, temporary) = (folder(), folder());
    let mut command = program(own.path(), arguments);
    let mut child = command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("The service listens on"), "{first}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > SOON {
            child.kill().unwrap();
            panic!("the demonstration goes on");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(status.code() == Some(code) && left.is_empty(), "{status}: {left:?}");
}
