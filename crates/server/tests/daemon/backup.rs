//! Tests backups of a running service, and their restore. A backup is complete and verified, and a restore never leaves
//! a part of it behind unnoticed.

use crate::clients::{Http, Raw, callback, far, timer};
use crate::process::{Daemon, SOON, clean, folder, program, run, text, token, until};
use crate::receiver::Receiver;
use axum::http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Requests a backup from the service. Returns the bytes of the backup.
async fn back_up(http: &Http) -> Vec<u8> {
    let (status, bytes) = http.bytes("POST", "/v1/backup").await.expect("a whole answer");
    assert_eq!(status, 200);
    bytes
}

/// Splits a complete backup into its lines: the first line, the lines of the timers sorted by id, and the last line.
pub(crate) fn lines(backup: &[u8]) -> (Value, Vec<Value>, Value) {
    let mut lines: Vec<Value> =
        text(backup).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, first) = (lines.pop().unwrap(), lines.remove(0));
    lines.sort_by_key(|line| line["id"].to_string());
    (first, lines, last)
}

/// Writes a backup with the given first line and timers. Adds the last line with the number of timers and the checksum
/// of the backup.
pub(crate) fn sealed(first: &Value, timers: &[Value]) -> String {
    let mut text = format!("{first}\n");
    timers.iter().for_each(|timer| text += &format!("{timer}\n"));
    let crc32 = crc32fast::hash(text.as_bytes());
    text + &format!("{}\n", json!({ "timers": timers.len(), "crc32": crc32 }))
}

fn restore(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let ended = run(folder, &[&["restore", "backup", "--data", "restored"], more].concat());
    (ended.status.code(), text(&ended.stdout) + &text(&ended.stderr))
}

/// Returns the number of timers that `tourbillond check` counts in a data folder. Fails if the command finds a fault.
fn stored(folder: &Path, data: &str) -> Value {
    let check = run(folder, &["check", "--json", "--data", data]);
    let check: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
    assert_eq!(check["faults"], json!([]));
    check["timers"].clone()
}

/// Starts a service on the folder into which a backup was restored.
fn restored(folder: &Path) -> Daemon {
    let arguments = ["--callbacks-allow-http", "--callbacks-allow-private", "--data", "restored"];
    Daemon::spawn(program(folder, &[&arguments[..], &["--listen", "127.0.0.1:0"]].concat()))
}

fn stop(mut daemon: Daemon) {
    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
}

async fn make(http: &Http, count: usize) {
    for number in 0..count {
        assert_eq!(http.send("PUT", &timer(&format!("k{number}")), &far()).await.status, 201);
    }
}

/// Makes a backup of a new service with `count` timers. Writes the backup into the file `backup`, and returns its
/// bytes.
pub(crate) async fn filled(folder: &Path, count: usize) -> Vec<u8> {
    let daemon = Daemon::start(folder, &[]);
    let http = Http::new(daemon.address);
    make(&http, count).await;
    let backup = back_up(&http).await;
    std::fs::write(folder.join("backup"), &backup).unwrap();
    stop(daemon);
    backup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_what_was_acknowledged_before_and_is_the_same_after_a_restore() {
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let limits = json!({ "max_timers": 100_000, "allowed_hosts": ["receiver.test"] });
    assert_eq!(http.send("PUT", "/v1/namespaces/shop", &limits).await.status, 201);
    assert_eq!(http.send("POST", "/v1/namespaces/shop/secrets", &Value::Null).await.status, 201);
    assert_eq!(http.send("PUT", "/v1/namespaces/shop/timers/a", &far()).await.status, 201);
    // Leave a paused timer and a withdrawn timer in the store, as an hour of service would.
    make(&http, 2).await;
    let paused = http.send("POST", &format!("{}/pause", timer("k0")), &Value::Null).await;
    assert_eq!(paused.status, 200, "{}", paused.json);
    assert_eq!(http.send("DELETE", &timer("k1"), &Value::Null).await.status, 200);
    let callback = json!({ "url": "http://receiver.test:9999/" });
    let schedule = json!({ "cron": "0 3 1 1 *", "zone": "Europe/Berlin", "callback": callback });
    let made = http.send("PUT", "/v1/namespaces/shop/schedules/yearly", &schedule).await;
    assert!(made.status.is_success(), "{}", made.json);

    let (acknowledged, ends) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<AtomicBool>::default());
    let makers: Vec<_> = (0..4)
        .map(|maker| {
            let (http, acknowledged, ends) = (http.clone(), Arc::clone(&acknowledged), Arc::clone(&ends));
            tokio::spawn(async move {
                for number in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    let made = http.send("PUT", &timer(&format!("l{maker}-{number}")), &far()).await;
                    assert_eq!(made.status, 201);
                    acknowledged.lock().unwrap().insert(made.json["id"].as_str().unwrap().to_owned());
                }
            })
        })
        .collect();
    until("timers are made", || acknowledged.lock().unwrap().len() > 200).await;
    let before = acknowledged.lock().unwrap().clone();
    let backup = back_up(&http).await;
    let after = acknowledged.lock().unwrap().len();
    ends.store(true, Ordering::Relaxed);
    for maker in makers {
        maker.await.unwrap();
    }
    let (first, timers, last) = lines(&backup);
    assert_eq!(last["timers"], timers.len());
    let ids: BTreeSet<_> = timers.iter().map(|timer| timer["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), timers.len());
    assert!(before.is_subset(&ids), "{:?} are not in the backup", before.difference(&ids).next());
    // `after` counts only the timers of the makers. The backup may also have two timers of this test and up to four of
    // the schedule. Each of the four makers may have another timer whose answer was on its way.
    assert!(timers.len() <= after + 2 + 4 + 4, "{} of {after}", timers.len());
    let shop = &first["attached"]["namespaces"]["shop"];
    assert_eq!(
        (&shop["limits"]["max_timers"], shop["secrets"].as_array().unwrap().len()),
        (&json!(100_000), 1)
    );
    stop(daemon);

    std::fs::write(folder.path().join("backup"), &backup).unwrap();
    let (code, said) = restore(folder.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("{} timers restored", timers.len())), "{said}");
    assert_eq!(stored(folder.path(), "restored"), timers.len());
    for file in std::fs::read_dir(folder.path().join("restored")).unwrap().map(Result::unwrap) {
        let of_the_owner = if file.path().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, of_the_owner, "{:?}", file.path());
    }
    let daemon = restored(folder.path());
    let (first_again, timers_again, _) = lines(&back_up(&Http::new(daemon.address)).await);
    assert_eq!(timers_again, timers);
    assert_eq!(first_again["attached"], first["attached"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_are_for_administrators_of_all_namespaces() {
    let folder = folder();
    let arguments =
        |name: &'static str, role: &'static str| ["--name", name, "--role", role, "--data", "data"];
    let reader = token(folder.path(), &arguments("r", "reader"));
    let writer = token(folder.path(), &arguments("w", "writer"));
    let of_shop = token(folder.path(), &[&arguments("s", "admin")[..], &["--namespace", "shop"]].concat());
    let admin = token(folder.path(), &arguments("a", "admin"));
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    for (token, expected) in [("none", 401), (&reader, 403), (&writer, 403), (&of_shop, 403), (&admin, 200)] {
        let (status, bytes) = http.with_token(token).bytes("POST", "/v1/backup").await.unwrap();
        assert_eq!(status, expected);
        assert_eq!(text(&bytes).contains("crc32"), expected == 200);
    }
    assert_eq!(http.with_token(&admin).bytes("GET", "/v1/backup").await.unwrap().0, 405);
}

/// A backup may be interrupted: its reader leaves or stops reading, or the service stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_interrupted_has_no_end_and_frees_its_place() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    // The backup is larger than the buffers of a connection, so the service must wait for its reader.
    let mut large = far();
    large["callback"]["body"] = json!("x".repeat(60_000));
    for number in 0..400 {
        assert_eq!(http.send("PUT", &timer(&format!("k{number}")), &large).await.status, 201);
    }
    let begin = async || {
        let mut raw = Raw::connect(daemon.address).await;
        assert!(raw.send(b"POST /v1/backup HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await);
        let head = raw.head().await;
        (raw, head)
    };
    let (first, head) = begin().await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (second, head) = begin().await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (_, head) = begin().await;
    assert!(head.starts_with("HTTP/1.1 429"), "{head}");
    drop((first, second));
    let begun = Instant::now();
    let pause = async |status: &str| {
        assert!(begun.elapsed() < SOON, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut stalled = loop {
        let (raw, head) = begin().await;
        if head.starts_with("HTTP/1.1 200") {
            break raw;
        }
        pause(&head).await;
    };
    // At most two backups run at a time. The second of them may end later, so try again.
    let complete = loop {
        match http.bytes("POST", "/v1/backup").await.expect("a whole answer") {
            (StatusCode::OK, bytes) => break bytes,
            (status, _) => pause(status.as_str()).await,
        }
    };
    assert_eq!(lines(&complete).1.len(), 400, "another one is complete meanwhile");

    daemon.signal(Signal::TERM);
    assert!(daemon.end(SOON).success(), "{}", daemon.log());
    let (rest, is_closed) = stalled.rest(SOON).await;
    assert!(is_closed && !rest.contains("crc32") && !rest.ends_with("0\r\n\r\n"), "the cut is seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_needs_an_empty_store_of_a_service_that_does_not_run() {
    let folder = folder();
    filled(folder.path(), 20).await;
    let daemon = restored(folder.path());
    let (code, said) = restore(folder.path(), &[]);
    assert!(code == Some(1) && said.contains("a service uses this folder"), "{said}");
    let http = Http::new(daemon.address);
    assert_eq!(http.send("PUT", &timer("own"), &far()).await.status, 201);
    stop(daemon);
    let (code, said) = restore(folder.path(), &[]);
    assert!(
        code == Some(1) && said.contains("the store has timers; a restore needs an empty store"),
        "{said}"
    );
    assert_eq!(stored(folder.path(), "restored"), 1);

    // A store counts as empty if its timers have ended.
    let daemon = restored(folder.path());
    let http = Http::new(daemon.address);
    assert_eq!(http.send("DELETE", &timer("own"), &Value::Null).await.status, 200);
    stop(daemon);
    let (code, said) = restore(folder.path(), &["--json"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["timers"], 20);
    assert_eq!(stored(folder.path(), "restored"), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_was_cut_or_changed_is_refused_and_leaves_nothing() {
    let folder = folder();
    let backup = filled(folder.path(), 20).await;
    let mut spoiled: Vec<Vec<u8>> =
        (1..10).map(|tenth| backup[..backup.len() * tenth / 10].to_vec()).collect();
    spoiled.push(backup[..backup.len() - 2].to_vec());
    spoiled.push(Vec::new());
    for at in (0..backup.len()).step_by(backup.len() / 20) {
        let mut flipped = backup.clone();
        flipped[at] ^= 1;
        spoiled.push(flipped);
    }
    for bytes in spoiled {
        std::fs::write(folder.path().join("backup"), bytes).unwrap();
        let (code, said) = restore(folder.path(), &["--due-floor", "now+5m", "--rate", "10"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(!folder.path().join("restored").exists());
    }
    for wrong in [&["--due-floor", "soon"][..], &["--rate", "10"], &["--due-floor", "now", "--rate", "0"]] {
        assert_eq!(restore(folder.path(), wrong).0, Some(2));
    }
    std::fs::write(folder.path().join("backup"), backup).unwrap();
    assert_eq!(restore(folder.path(), &[]).0, Some(0));
    assert_eq!(stored(folder.path(), "restored"), 20);
}

/// Runs a command of the program that must end by itself. Returns the exit code and the messages of the program.
fn ended(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = program(folder, arguments);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > SOON {
            child.kill().unwrap();
            panic!("{arguments:?} goes on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = child.wait_with_output().unwrap();
    (ended.status.code(), text(&ended.stderr))
}

/// The test makes a data folder as a killed restore leaves it: with some of the timers, and with the file `restoring`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_restored_store_is_never_taken_for_a_whole_one() {
    let folder = folder();
    let backup = filled(folder.path(), 20).await;
    let (first, timers, _) = lines(&backup);
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("backup"), sealed(&first, &timers[..7])).unwrap();
    assert_eq!(restore(folder.path(), &[]).0, Some(0));
    let mark = "A restore into timers.redb has not ended. Run `tourbillond restore` again.\n";
    std::fs::write(path("restored/restoring"), mark).unwrap();

    for command in ["serve", "check"] {
        let (code, said) = ended(folder.path(), &[command, "--data", "restored", "--listen", "127.0.0.1:0"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("a restore into this folder has not ended"), "{said}");
    }
    // While another restore holds the lock of the folder, a second restore and a service are refused.
    let held = std::fs::File::open(path("restored/lock")).unwrap();
    held.lock().unwrap();
    let (code, said) = restore(folder.path(), &[]);
    assert!(code == Some(1) && said.contains("uses this folder, or another restore"), "{said}");
    let (code, said) = ended(folder.path(), &["--data", "restored", "--listen", "127.0.0.1:0"]);
    assert!(code == Some(1) && said.contains("another service uses this folder"), "{said}");
    drop(held);
    std::fs::write(path("backup"), &backup).unwrap();
    let (code, said) = restore(folder.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(stored(folder.path(), "restored"), 20);
}

/// A restore that is killed while it writes the file `restoring` has stored no timers, so the timers in the folder are
/// from elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_without_the_name_of_a_store_lets_a_restore_remove_no_timers() {
    let folder = folder();
    filled(folder.path(), 20).await;
    let mark = folder.path().join("data/restoring");
    for content in ["", "A restore into tim"] {
        std::fs::write(&mark, content).unwrap();
        let (code, said) = ended(folder.path(), &["restore", "backup", "--data", "data"]);
        assert!(code == Some(1) && said.contains("to keep the store, remove that file"), "{said}");
        std::fs::remove_file(&mark).unwrap();
        assert_eq!(stored(folder.path(), "data"), 20);
    }
    std::fs::create_dir(folder.path().join("restored")).unwrap();
    std::fs::write(folder.path().join("restored/restoring"), "").unwrap();
    let (code, said) = restore(folder.path(), &[]);
    assert_eq!(code, Some(0), "an empty store needs no name: {said}");
    assert_eq!(stored(folder.path(), "restored"), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_is_killed_leaves_nothing_or_all_or_a_store_that_is_refused() {
    let folder = folder();
    let (first, timers, _) = lines(&filled(folder.path(), 1).await);
    // The backup is so large that a restore needs several transactions.
    std::fs::write(folder.path().join("backup"), sealed(&first, &copies(&timers[0], 6_000))).unwrap();
    let data = folder.path().join("restored");
    let mut seen = BTreeMap::<&str, u32>::new();
    for round in 0..6_u64 {
        drop(std::fs::remove_dir_all(&data));
        let mut command = program(folder.path(), &["restore", "backup", "--data", "restored"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        while !data.join("restoring").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(15 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let check = run(folder.path(), &["check", "--json", "--data", "restored"]);
        let found = if check.status.success() {
            let check: Value = serde_json::from_str(&text(&check.stdout)).unwrap();
            assert!([json!(0), json!(6_000)].contains(&check["timers"]), "{check}");
            if check["timers"] == 0 { "nothing" } else { "all" }
        } else {
            assert!(text(&check.stderr).contains("has not ended"), "{}", text(&check.stderr));
            "refused"
        };
        *seen.entry(found).or_default() += 1;
        if found != "all" {
            let (code, said) = restore(folder.path(), &[]);
            assert_eq!(code, Some(0), "{said}");
            assert_eq!(stored(folder.path(), "restored"), 6_000);
        }
    }
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("after the kills: {seen:?}");
    }
}

/// Makes `count` copies of a timer from a backup. Each copy has an own id and key.
fn copies(timer: &Value, count: u32) -> Vec<Value> {
    let copy = |number: u32| {
        let mut timer = timer.clone();
        timer["id"] = json!(format!("{number:08x}-0000-4000-8000-000000000000"));
        timer["key"] = json!(format!("k{number}"));
        timer
    };
    (0..count).map(copy).collect()
}

/// A restore writes to a small file system in memory, and fails because the file system is full. After the file system
/// has got more room, the restore succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_onto_a_disk_that_is_full_leaves_nothing_and_is_done_once_there_is_room() {
    const MOUNT: &str = "mkdir restored && mount -t tmpfs -o size=8m tmpfs restored";
    let can_mount = |folder: &Path| {
        let mut unshare = Command::new("unshare");
        let tried = unshare.args(["-rm", "sh", "-c", MOUNT]).current_dir(folder).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    if !can_mount(folder().path()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let folder = folder();
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let mut large = far();
    large["callback"]["body"] = json!("x".repeat(4_000));
    assert_eq!(http.send("PUT", &timer("k"), &large).await.status, 201);
    let (first, timers, _) = lines(&back_up(&http).await);
    stop(daemon);
    std::fs::write(folder.path().join("backup"), sealed(&first, &copies(&timers[0], 5_000))).unwrap();

    // The file system is unmounted when the shell ends.
    let script = format!(
        r#"{MOUNT} || exit 99
        "$0" restore backup --data restored; echo "code $?"; ls -A restored
        mount -o remount,size=256m restored || exit 98
        "$0" restore backup --data restored; echo "code $?"
        "$0" check --data restored"#
    );
    let arguments = ["-rm", "sh", "-c", &script, env!("CARGO_BIN_EXE_tourbillond")];
    let ended = clean(Command::new("unshare"), folder.path(), &arguments).output().unwrap();
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    let (full, rest) = out.split_once("code 1\n").unwrap_or_else(|| panic!("{out}{err}"));
    assert_eq!(full, "", "{err}");
    assert!(err.contains("No space left"), "{err}");
    let (left, rest) = rest.split_once("5000 timers restored").unwrap_or_else(|| panic!("{out}{err}"));
    // The failed restore has left neither a store nor the file `restoring`. At most the store's lock file is left.
    assert!(!left.contains("timers.redb\n") && !left.contains("restoring"), "{left}");
    assert!(rest.contains("code 0") && rest.contains("5000 timers, 0 faults"), "{out}{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_and_a_rate_spread_what_is_overdue_the_oldest_first() {
    const RATE: u64 = 20;
    let (folder, receiver) = (folder(), Receiver::start(Duration::ZERO).await);
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    let mut ids = BTreeMap::new();
    for number in 0..30 {
        let url = receiver.url(&format!("/{number}"));
        let made = http.send("PUT", &timer(&format!("k{number}")), &callback(&url, 3_600_000)).await;
        ids.insert(made.json["id"].as_str().unwrap().to_owned(), number);
    }
    let (first, mut timers, _) = lines(&back_up(&http).await);
    stop(daemon);
    // All timers are overdue. Their order by due moment differs from the order of the ids, and from the order in the
    // file.
    let rank = |number: u64| number * 7 % 30;
    for timer in &mut timers {
        let number = ids[timer["id"].as_str().unwrap()];
        timer["due"] = json!(1_700_000_000_000_u64 + rank(number));
    }
    std::fs::write(folder.path().join("backup"), sealed(&first, &timers)).unwrap();
    let begun = SystemTime::now();
    let (code, said) = restore(folder.path(), &["--due-floor", "now+1s", "--rate", &RATE.to_string()]);
    assert_eq!(code, Some(0), "{said}");
    let _daemon = restored(folder.path());
    until("all arrive", || receiver.count() == 30).await;
    for received in receiver.log() {
        let number = ids[&received.id];
        assert_eq!(received.path, format!("/{number}"), "the id is the one of before");
        let earliest = Duration::from_millis(1_000 + rank(number) * 1_000 / RATE);
        // The store rounds moments to whole milliseconds, so a callback may come up to a millisecond early.
        let after = received.at.duration_since(begun).unwrap() + Duration::from_millis(1);
        assert!(after >= earliest, "{number} came after {after:?} instead of {earliest:?}");
    }
}

/// The clock was ahead while a backup was made, and was set back. An alarm on the age of the last backup must not stay
/// silent until the moment of that backup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_in_the_future_counts_as_none_and_gives_way_to_the_next() {
    let folder = folder();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("backup.json"), "{\"last\":\"2999-01-01T00:00:00.000Z\"}").unwrap();
    let last = async |http: &Http| {
        let page = text(&http.bytes("GET", "/metrics").await.unwrap().1);
        let name = "tourbillon_last_backup_timestamp_seconds ";
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u64>().unwrap()
    };
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address);
    assert_eq!(last(&http).await, 0);
    let before = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    back_up(&http).await;
    let begun = Instant::now();
    // The service notes a backup after its last byte.
    while last(&http).await == 0 {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let known = last(&http).await;
    assert!((before..before + 60).contains(&known), "{known}");
    stop(daemon);
    let daemon = Daemon::start(folder.path(), &[]);
    assert_eq!(last(&Http::new(daemon.address)).await, known, "the file has the new moment");
}
