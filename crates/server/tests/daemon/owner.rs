//! Tests files that root changes while the service runs as another user.

use crate::backup::filled;
use crate::clients::{Http, far, timer};
use crate::process::{Daemon, SOON, clean, folder, run, text, token};
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The number of the user `nobody`.
const NOBODY: u32 = 65_534;

/// Returns a command that runs the program as the user `nobody`.
fn as_nobody(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_tourbillond")), folder, arguments);
    command.uid(NOBODY).gid(NOBODY);
    command
}

async fn until_status(http: &Http, path: &str, status: u16) -> Value {
    let begun = Instant::now();
    loop {
        let answer = http.get(path).await;
        if answer.status == status {
            return answer.json;
        }
        assert!(begun.elapsed() < SOON, "{path}: {} {}", answer.status, answer.json);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const ARGUMENTS: &[&str] =
    &["--data", "data", "--listen", "127.0.0.1:0", "--callbacks-allow-http", "--callbacks-allow-private"];

/// Returns the files in a folder, and in the folders in it, that do not belong to the user `nobody`.
fn foreign(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            let inner = if path.is_dir() { foreign(&path) } else { Vec::new() };
            let is_foreign = fs::metadata(&path).unwrap().uid() != NOBODY;
            is_foreign.then_some(path).into_iter().chain(inner)
        })
        .collect()
}

/// Returns a folder with a data folder for the user `nobody`. Returns `None` if this user is not root, who alone can
/// change the files of another user.
fn folder_of_nobody() -> Option<TempDir> {
    if !geteuid().is_root() {
        eprintln!("skipped: only root is another user for a service of nobody");
        return None;
    }
    let folder = folder();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    Some(folder)
}

/// Root makes the first token, or restores a backup, before the service of another user starts. Each file that root
/// makes belongs to that user, so the service can change all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_files_that_root_makes_belong_to_the_user_of_the_service() {
    for store in [&[][..], &["--sqlite-path", "data/shop.db"]] {
        let Some(folder) = folder_of_nobody() else { return };
        let data = folder.path().join("data");
        let with = |arguments: &[&'static str]| [arguments, &["--data", "data"], store].concat();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(folder.path().join("backup"), filled(&source, 3).await).unwrap();
        let restored = run(folder.path(), &with(&["restore", "backup"]));
        assert!(restored.status.success(), "{}", text(&restored.stderr));
        let admin = token(folder.path(), &with(&["--role", "admin"]));
        assert_eq!(foreign(&data), [] as [PathBuf; 0], "after a restore and a token");

        let daemon = Daemon::spawn(as_nobody(folder.path(), &[ARGUMENTS, store].concat()));
        let http = Http::new(daemon.address).with_token(&admin);
        assert_eq!(http.send("PUT", "/v1/namespaces/shop", &json!({})).await.status, 201);
        let trail = http.get("/v1/audit").await.json;
        let entries = trail["items"].as_array().unwrap();
        let has = |action: &str| entries.iter().any(|entry| entry["action"] == action);
        assert!(has("set-namespace") && has("make-token") && has("restore"), "{trail}");
        let made = as_nobody(folder.path(), &with(&["token", "new", "--role", "reader"])).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        assert_eq!(foreign(&data), [] as [PathBuf; 0], "while the service runs");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_root_revokes_for_a_service_of_another_user_is_revoked() {
    let Some(folder) = folder_of_nobody() else { return };
    let data = folder.path().join("data");
    let file = data.join("tokens.json");
    let make_token =
        |name: &str| token(folder.path(), &["--role", "admin", "--name", name, "--data", "data"]);
    let (kept, revoked) = (make_token("kept"), make_token("revoked"));
    let owner = || fs::metadata(&file).map(|file| (file.uid(), file.gid(), file.mode() & 0o777)).unwrap();
    assert_eq!(owner(), (NOBODY, NOBODY, 0o600), "a new file is for the owner of the folder");

    let daemon = Daemon::spawn(as_nobody(folder.path(), ARGUMENTS));
    let http = Http::new(daemon.address);
    let (kept, revoked) = (http.with_token(&kept), http.with_token(&revoked));
    assert_eq!(revoked.send("PUT", &timer("k"), &far()).await.status, 201);
    let ended = run(folder.path(), &["token", "revoke", "revoked", "--data", "data"]);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(owner(), (NOBODY, NOBODY, 0o600));
    until_status(&revoked, &timer("k"), 401).await;
    assert_eq!(kept.get("/readyz").await.status, 200);

    // The service reports a file that it cannot read. A start with this file says why it fails.
    chown(&file, Some(0), Some(0)).unwrap();
    let later = fs::read(&file).unwrap();
    fs::write(&file, later).unwrap();
    let json = until_status(&kept, "/readyz", 503).await;
    assert!(json["reasons"][0].as_str().unwrap().contains("belongs to the user 0"), "{json}");
    let ended = as_nobody(folder.path(), ARGUMENTS).output().unwrap();
    let said = text(&ended.stderr);
    assert!(!ended.status.success() && said.contains("tokens.json") && said.contains("user 0"), "{said}");
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    until_status(&kept, "/readyz", 200).await;
    daemon.kill();
    let daemon = Daemon::spawn(as_nobody(folder.path(), ARGUMENTS));
    let http = Http::new(daemon.address);
    until_status(&http, &timer("k"), 401).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_that_cannot_be_read_turns_the_service_unready() {
    let folder = folder();
    let admin = token(folder.path(), &["--role", "admin", "--data", "data"]);
    let daemon = Daemon::start(folder.path(), &[]);
    let http = Http::new(daemon.address).with_token(&admin);
    assert_eq!(http.get("/readyz").await.status, 200);
    let file = folder.path().join("data/tokens.json");
    let good = fs::read(&file).unwrap();
    fs::write(&file, "[{").unwrap();
    let json = until_status(&http, "/readyz", 503).await;
    assert!(json["reasons"][0].as_str().unwrap().contains("file cannot be read"), "{json}");
    fs::write(&file, good).unwrap();
    until_status(&http, "/readyz", 200).await;
}
