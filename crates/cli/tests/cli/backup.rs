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
    let tidy = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| (signal, Some(1), 0));
    for (signal, code, left) in tidy.into_iter().chain([(Signal::KILL, None, 1)]) {
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
        if left > 0 {
            // The next run removes what is left behind. It leaves the copy of a run that is alive, and other files.
            let living = folder.path().join(".copy.abcdef.part");
            let held = std::fs::File::create(&living).unwrap();
            held.lock().unwrap();
            std::fs::write(folder.path().join(".other.abcdef.part"), "").unwrap();
            assert_eq!(Rig::start().await.run(&["backup", file.to_str().unwrap()]).await.code, 0);
            let mut left = names(folder.path());
            left.sort();
            assert_eq!(left, [".copy.abcdef.part", ".other.abcdef.part", "copy"]);
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_into_a_link_a_pipe_or_a_device_leaves_it_as_it_is() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

    let rig = Rig::start().await;
    rig.run(&["put", "k", "--in", "1h", "--callback", URL]).await.ok();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let is_copy = |bytes: &[u8]| bytes.starts_with(b"{\"tourbillon\":\"backup\"") && bytes.ends_with(b"}\n");

    // Links to a file, to a file that is still missing, and to another link.
    std::fs::create_dir(path("disk")).unwrap();
    std::fs::write(path("disk/old"), "old").unwrap();
    for (link, leads_to) in [("a", "disk/old"), ("b", "disk/new"), ("c", "a")] {
        symlink(leads_to, path(link)).unwrap();
        assert_eq!(rig.run(&["backup", &path(link)]).await.ok(), format!("{}: 1 timers\n", path(link)));
        assert!(std::fs::symlink_metadata(path(link)).unwrap().is_symlink(), "{link}");
        assert!(is_copy(&std::fs::read(path(link)).unwrap()), "{link}");
    }
    assert_eq!(names(&folder.path().join("disk")).len(), 2);

    // A named pipe with a reader.
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = std::thread::spawn({
        let pipe = path("pipe");
        move || std::fs::read(pipe).unwrap()
    });
    assert_eq!(rig.run(&["backup", &path("pipe")]).await.ok(), format!("{}: 1 timers\n", path("pipe")));
    assert!(is_copy(&reader.join().unwrap()));
    assert!(std::fs::metadata(path("pipe")).unwrap().file_type().is_fifo());

    // A signal ends a run that waits for the reader of a pipe.
    let mut waiting = program(&["backup", &path("pipe"), "--url", &rig.url]).spawn().unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let id = rustix::process::Pid::from_raw(waiting.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(waiting.wait().await.unwrap().code(), None);

    // The standard output by a path, into a pipe and into a file. Only the copy comes there. The links lead to the
    // devices of the machine, but a program that replaces a link replaces only these.
    symlink("/proc/self/fd/1", path("stdout")).unwrap();
    symlink("/dev/null", path("null")).unwrap();
    assert!(is_copy(rig.run(&["backup", &path("stdout")]).await.ok().as_bytes()));
    let file = std::fs::File::create(path("file")).unwrap();
    let before = file.metadata().unwrap().ino();
    let mut to_file = program(&["backup", &path("stdout"), "--url", &rig.url]);
    assert!(to_file.stdout(file).status().await.unwrap().success());
    assert!(is_copy(&std::fs::read(path("file")).unwrap()));
    assert_eq!(std::fs::metadata(path("file")).unwrap().ino(), before);
    assert_eq!(rig.run(&["backup", &path("null")]).await.code, 0);
    for link in ["stdout", "null"] {
        assert!(std::fs::symlink_metadata(path(link)).unwrap().is_symlink(), "{link}");
    }
    assert_eq!(rig.run(&["backup", folder.path().to_str().unwrap()]).await.code, 1, "a folder");
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
