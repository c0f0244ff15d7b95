//! Tests the program when its output is a terminal, and when the user presses Ctrl-C.

use crate::forgetful::forgetful;
use crate::rig::{Fake, Rig, program};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::mpsc::UnboundedReceiver;

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

/// Opens a pseudo-terminal for a program. The channel delivers the texts that the program writes. The file is the end
/// of the terminal that the program uses.
fn terminal() -> (UnboundedReceiver<String>, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(name).unwrap();
    let (seen, seen_so_far) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let (mut ours, mut bytes) = (File::from(ours), [0; 4_096]);
        // Reading fails once the program has closed its side.
        while let Ok(count @ 1..) = ours.read(&mut bytes) {
            seen.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).unwrap();
        }
    });
    (seen_so_far, theirs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_shows_its_progress_on_a_terminal_and_takes_it_away() {
    let (rig, folder) = (Rig::start().await, tempfile::tempdir().unwrap());
    let (mut seen_so_far, theirs) = terminal();
    let mut backup = program(&["backup", folder.path().join("copy").to_str().unwrap(), "--url", &rig.url]);
    let mut child = backup.stdout(Stdio::null()).stderr(Stdio::from(theirs)).spawn().unwrap();
    // Drop the command, since it holds the program's side of the terminal open.
    drop(backup);
    assert!(child.wait().await.unwrap().success());
    let mut text = String::new();
    while let Some(more) = seen_so_far.recv().await {
        text += &more;
    }
    assert!(text.starts_with("\r0 MB copied") && text.ends_with("\r\u{1b}[K"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_is_live_on_a_terminal_which_is_restored_in_the_end() {
    let fake = Fake::start(
        200,
        json!({
            "version": "0.1.0", "now": "2026-11-22T16:00:00.000Z", "up_ms": 1, "pending": 17, "leased": 0, "parked": 0,
            "dead": 0, "overdue_ms": 0, "created": 0, "delivered": 0, "failed": 0, "cancelled": 0
        }),
    )
    .await;
    let (mut seen_so_far, theirs) = terminal();
    let mut top = program(&["top", "--interval", "100ms", "--url", &fake.url]);
    let mut child = top.stdout(Stdio::from(theirs)).spawn().unwrap();
    // Drop the command, since it holds the program's side of the terminal open.
    drop(top);
    let mut text = String::new();
    while text.matches("pending    17").count() < 3 {
        text += &seen_so_far.recv().await.unwrap();
    }
    assert!(text.starts_with("\x1b[?1049h\x1b[?25l\x1b[H") && text.contains("0/s\u{1b}[K"), "{text:?}");
    interrupt(&child);
    assert!(child.wait().await.unwrap().success());
    while let Some(more) = seen_so_far.recv().await {
        text += &more;
    }
    assert!(text.ends_with("\x1b[?25h\x1b[?1049l"), "{text:?}");
    assert!(fake.requests().len() >= 3);
}

#[tokio::test]
async fn an_interrupted_measurement_removes_what_it_made() {
    let removed = Arc::<AtomicBool>::default();
    let service = forgetful(Arc::clone(&removed)).await;
    let mut bench = program(&["bench", "--connections", "2", "--seconds", "60", "--url", &service.url]);
    let child = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while service.creations.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!removed.load(Ordering::Relaxed));
    interrupt(&child);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "tourbillon: interrupted\n");
    assert!(removed.load(Ordering::Relaxed));
}
