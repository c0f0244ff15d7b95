//! Tests that the file of a backup is complete, or is not made.

use crate::rig::{Rig, program, run_at};
use axum::body::{Body, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::process::Stdio;
use tokio::net::TcpListener;

const URL: &str = "http://127.0.0.1:9999/hook";

/// Starts a fake service that answers a backup request with `pieces`. `then` says how the answer continues: with
/// silence, with an error or with its end. Returns the service's URL.
async fn sends(pieces: Vec<&'static str>, then: Then) -> String {
    let app = axum::Router::new().fallback(async move || {
        let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
        let pieces = stream::iter(pieces);
        match then {
            Then::End => Body::from_stream(pieces),
            Then::Cut => Body::from_stream(pieces.chain(stream::iter([Err(io::Error::other("cut"))]))),
            Then::Silence => Body::from_stream(pieces.chain(stream::pending())),
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[derive(Clone, Copy)]
enum Then {
    End,
    Cut,
    Silence,
}

const HEAD: &str = "{\"tourbillon\":\"backup\",\"version\":1,\"at\":1}\n";

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_written_to_a_file_or_to_the_output() {
    let rig = Rig::start().await;
    for number in 0..5 {
        rig.run(&["put", &format!("k{number}"), "--in", "1h", "--callback", URL]).await.ok();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy");
    let path = file.to_str().unwrap();
    assert_eq!(rig.run(&["backup", path]).await.ok(), format!("{path}: 5 timers\n"));
    let first = std::fs::read(&file).unwrap();
    assert!(first.ends_with(b"}\n"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    rig.run(&["put", "one more", "--in", "1h", "--callback", URL]).await.ok();
    assert_eq!(rig.run(&["backup", path, "--json"]).await.json(), json!({ "file": path, "timers": 6 }));
    assert_ne!(std::fs::read(&file).unwrap(), first, "the file is replaced");
    assert_eq!(names(folder.path()), ["copy"]);

    let lines = rig.run(&["backup", "-"]).await.lines();
    assert_eq!((lines.len(), &lines[7]["timers"]), (8, &json!(6)));
    let nowhere = folder.path().join("none/copy");
    assert_eq!(rig.run(&["backup", nowhere.to_str().unwrap()]).await.code, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_not_complete_leaves_no_file_and_the_one_before_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (file, old) = (folder.path().join("copy"), folder.path().join("old"));
    std::fs::write(&old, "old").unwrap();
    let wrong_sum = "{\"timers\":0,\"crc32\":1}\n";
    for (pieces, then) in [
        (vec![HEAD], Then::Cut),
        (vec![HEAD], Then::End),
        (vec![], Then::End),
        (vec![HEAD, wrong_sum], Then::End),
    ] {
        let url = sends(pieces, then).await;
        for path in [file.to_str().unwrap(), old.to_str().unwrap(), "-"] {
            let run = run_at(&url, &["backup", path]).await;
            assert_eq!(run.code, 4, "{run:?}");
            assert!(!run.err.is_empty(), "{run:?}");
        }
    }
    let silent = sends(vec![HEAD], Then::Silence).await;
    let run = run_at(&silent, &["backup", file.to_str().unwrap(), "--timeout", "100ms"]).await;
    assert_eq!(run.code, 4, "{run:?}");
    assert_eq!(names(folder.path()), ["old"]);
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_interrupted_or_killed_leaves_no_file() {
    use rustix::process::{Pid, Signal, kill_process};

    let url = sends(vec![HEAD], Then::Silence).await;
    for (signal, code, left) in [(Signal::INT, Some(1), 0), (Signal::KILL, None, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy");
        let mut backup = program(&["backup", file.to_str().unwrap(), "--timeout", "10m", "--url", &url]);
        let child = backup.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // The pieces that have arrived are in a file of another name.
        let has_begun = || {
            let mut entries = std::fs::read_dir(folder.path()).unwrap();
            entries.any(|entry| entry.unwrap().metadata().is_ok_and(|file| file.len() > 0))
        };
        while !has_begun() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        kill_process(Pid::from_raw(child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
        assert_eq!(child.wait_with_output().await.unwrap().status.code(), code);
        assert!(!file.exists());
        assert_eq!(names(folder.path()).len(), left, "a process that is killed cannot tidy up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_has_its_exit_code() {
    let problem: Value = json!({
        "type": "/problems/forbidden", "title": "Forbidden", "status": 403, "detail": "this needs the role admin"
    });
    let fake = crate::rig::Fake::start(403, problem).await;
    let folder = tempfile::tempdir().unwrap();
    let run = fake.run(&["backup", folder.path().join("copy").to_str().unwrap()]).await;
    assert_eq!(run.code, 6, "{run:?}");
    assert_eq!(fake.requests()[0].line, "POST /v1/backup");
    assert_eq!(names(folder.path()), [""; 0]);
    assert_eq!(run_at("http://127.0.0.1:1", &["backup", "-"]).await.code, 4);
}
