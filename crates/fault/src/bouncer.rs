//! Starts a pgbouncer in front of a PostgreSQL server.

use crate::ports::free_port;
use crate::postgres::{Postgres, other_user};
use crate::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use tempfile::TempDir;

/// The settings of the pool. Its clients share four sessions, and each transaction may get a different session. A
/// session ends after some seconds, so clients also get new sessions.
const SETTINGS: &str = "
[pgbouncer]
listen_addr = 127.0.0.1
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
server_round_robin = 1
server_lifetime = 3
server_login_retry = 1
";

/// A pgbouncer in transaction mode. Dropping the value ends the process.
#[derive(Debug)]
pub struct Bouncer {
    folder: TempDir,
    port: u16,
    user: Option<(u32, u32)>,
    child: Option<Child>,
}

/// Returns whether pgbouncer is installed. If it is not, the first call writes a line to standard error. The line
/// bypasses the tests' captured output.
fn is_installed() -> bool {
    static TOLD: Once = Once::new();
    let found = Command::new("pgbouncer").arg("--version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        TOLD.call_once(|| {
            let line = "skipped the tests behind a pool: there is no pgbouncer (apt-get install pgbouncer)";
            drop(writeln!(io::stderr(), "{line}"));
        });
    }
    is_there
}

impl Bouncer {
    /// Starts a pool in front of a server. Returns `None` if pgbouncer is not installed.
    #[must_use]
    pub fn start(server: &Postgres) -> Option<Self> {
        Self::start_with(server, "", &[])
    }

    /// Works as [`start`](Self::start), with further lines of settings, and with `files` in the pool's working folder.
    /// Each file has a name and a text.
    #[must_use]
    pub fn start_with(server: &Postgres, lines: &str, files: &[(&str, &str)]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let (folder, user) = (tempfile::tempdir().expect("a temporary folder"), other_user());
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n{SETTINGS}listen_port = {port}\n{lines}\n",
            server.port()
        );
        for (name, text) in files.iter().copied().chain([("settings", settings.as_str())]) {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("the folder is this process's");
            if let Some((user, group)) = user {
                chown(&path, Some(user), Some(group)).expect("the file is this process's");
            }
        }
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).expect("the folder is this process's");
        }
        let mut bouncer = Self { folder, port, user, child: None };
        bouncer.run();
        Some(bouncer)
    }

    /// Starts the process, and waits until it listens.
    ///
    /// # Panics
    ///
    /// If it does not listen within three minutes.
    pub fn run(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log"));
        let mut command = Command::new("pgbouncer");
        command.current_dir(self.folder.path()).arg("settings");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.expect("the log can be written"));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        self.child = Some(command.spawn().expect("pgbouncer starts"));
        let port = self.port;
        eventually("pgbouncer listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Kills the process. Its clients lose their connections, and the server its sessions.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let process = Pid::from_raw(child.id().cast_signed());
            // The process may have ended by itself.
            let _sent = process.map(|process| kill_process(process, Signal::KILL));
            let _ended = child.wait();
        }
    }

    /// Returns the URL of the database `postgres` behind the pool.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.kill();
    }
}
