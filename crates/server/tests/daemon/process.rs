//! Runs processes of the program `tourbillond` for the tests.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time for which a test waits for an event that should come at once. The time is long, because the machine
/// may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Waits until `condition` returns true. Fails after the time [`SOON`].
pub(crate) async fn until(name: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "{name}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a command that runs the program in `folder` with `arguments`. The program does not see the variables of the
/// service that are set for the test.
pub(crate) fn program(folder: &Path, arguments: &[&str]) -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_tourbillond")), folder, arguments)
}

pub(crate) fn clean(mut command: Command, folder: &Path, arguments: &[&str]) -> Command {
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.to_string_lossy().starts_with("TOURBILLON_")) {
        command.env_remove(name);
    }
    command.env_remove("NOTIFY_SOCKET").current_dir(folder).args(arguments);
    command
}

/// Runs the program in `folder` until it ends. Returns its output and its exit status.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    program(folder, arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Makes a token for the service in `folder`. Returns the token.
pub(crate) fn token(folder: &Path, arguments: &[&str]) -> String {
    let made = run(folder, &[&["token", "new"], arguments].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    text(&made.stdout).trim().to_owned()
}

/// A running process of the service. Dropping the value kills the process.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

/// The arguments that most tests need. The service permits callbacks to this machine, and keeps its data in the folder
/// `data`.
const USUAL: &[&str] = &["--callbacks-allow-http", "--callbacks-allow-private", "--data", "data"];

impl Daemon {
    /// Starts a service in `folder` at a free port of this machine. The service gets `arguments`, besides the arguments
    /// that most tests need.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::spawn(program(folder, &[USUAL, &["--listen", "127.0.0.1:0"], arguments].concat()))
    }

    /// Starts a service by a command. Waits until the service listens.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                copy.lock().unwrap().push(line);
            }
        });
        let mut daemon = Self { child, address: ([0, 0, 0, 0], 0).into(), log };
        let begun = Instant::now();
        daemon.address = loop {
            if let Some(line) = daemon.find("listening on") {
                // The line is plain text or JSON, so a quotation mark may follow the address.
                let (_, address) = line.split_once("://").unwrap();
                break address.split('"').next().unwrap().parse().unwrap();
            }
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < SOON, "{ended:?}: {}", daemon.log());
            thread::sleep(Duration::from_millis(2));
        };
        daemon
    }

    /// Waits until a line of the service's log contains `words`. Returns the first such line. The line may come after
    /// the answer to the request that caused it.
    pub(crate) async fn line(&self, words: &str) -> String {
        let mut line = None;
        until(&format!("a line of the log with {words:?}"), || {
            line = self.find(words);
            line.is_some()
        })
        .await;
        line.unwrap()
    }

    /// Returns the first line of the service's log that contains `words`. `None` if there is no such line yet.
    pub(crate) fn find(&self, words: &str) -> Option<String> {
        self.log.lock().unwrap().iter().find(|line| line.contains(words)).cloned()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// Waits until the service's process has ended. Fails if the process does not end within the time `within`.
    pub(crate) fn end(&mut self, within: Duration) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < within, "the process has not ended within {within:?}: {}", self.log());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the service's process at once, without an orderly end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Makes a temporary folder. Dropping the value removes the folder.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns the absolute path of a file in this crate.
pub(crate) fn of_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns whether a program is installed. If the program is missing, prints that the test is skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}
