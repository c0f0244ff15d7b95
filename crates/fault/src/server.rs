//! Starts a `redis-server` and controls its process.

use crate::ports::free_port;
use crate::shift::Shift;
use crate::skip::tell_skipped;
use crate::wait::{eventually, eventually_some};
use redis::{Client, Connection, FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::Duration;
use tempfile::TempDir;

/// The number of ports that a start tries. A server ends at once if another process has taken its port.
const STARTS: usize = 5;

/// How long a command waits for the server's answer.
const COMMAND: Duration = Duration::from_secs(30);

/// A `redis-server` for a test. By default it writes neither snapshots nor an append-only file. Dropping the value ends
/// the process.
#[derive(Debug)]
pub struct Server {
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    shift: Option<Shift>,
    child: Option<Child>,
}

/// Returns whether tests may start servers: a `redis-server` must be installed, and `TOURBILLON_NO_REDIS` must not be
/// set. If tests may not start servers, the first call writes a line to standard error that says which tests are
/// skipped. The line bypasses the tests' captured output.
pub(crate) fn is_installed() -> bool {
    static TOLD: Once = Once::new();
    let reason = if std::env::var_os("TOURBILLON_NO_REDIS").is_some() {
        "TOURBILLON_NO_REDIS is set"
    } else if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        "there is no redis-server (apt-get install redis-server)"
    } else {
        return true;
    };
    tell_skipped(&TOLD, "a Redis server", reason);
    false
}

impl Server {
    /// Starts a server with the given arguments, such as `["--appendonly", "yes"]`. Returns `None` if no `redis-server`
    /// is installed.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Option<Self> {
        is_installed().then(|| Self::launch(|_| arguments.iter().map(|&word| word.to_owned()).collect()))
    }

    /// Starts a server whose arguments depend on its folder. `arguments` gets the folder's path, and returns the
    /// server's arguments.
    #[must_use]
    pub fn start_in(arguments: impl Fn(&Path) -> Vec<String>) -> Option<Self> {
        is_installed().then(|| Self::launch(arguments))
    }

    /// Starts a server whose time of day is off by `seconds`. Its monotonic clock stays right. A C compiler builds the
    /// library that shifts the time. Returns `None` if no `redis-server` or no C compiler is installed.
    #[must_use]
    pub fn start_shifted(arguments: &[&str], seconds: i64) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let shift = Shift::new(seconds)?;
        let owned = |_: &Path| arguments.iter().map(|&word| word.to_owned()).collect();
        Some(Self::launch_in(Some(&shift), owned))
    }

    /// Sets the number of seconds by which the time of day of a [shifted server](Self::start_shifted) is off. The
    /// change takes effect at once.
    pub fn set_shift(&self, seconds: i64) {
        self.shift.as_ref().expect("it was started shifted").set(seconds);
    }

    /// Starts a server. Panics if no `redis-server` is installed.
    pub(crate) fn launch(arguments: impl Fn(&Path) -> Vec<String>) -> Self {
        Self::launch_in(None, arguments)
    }

    fn launch_in(shift: Option<&Shift>, arguments: impl Fn(&Path) -> Vec<String>) -> Self {
        for _ in 0..STARTS {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let arguments = arguments(folder.path());
            let shift = shift.cloned();
            let mut server = Self { folder, port: free_port(), arguments, shift, child: None };
            if server.run() {
                return server;
            }
        }
        panic!("the redis-server ended at once, {STARTS} times");
    }

    /// Starts the server's process, and waits until it answers. Returns `false` if the process ended instead.
    fn run(&mut self) -> bool {
        let log = self.folder.path().join("log");
        let mut command = Command::new("redis-server");
        // An argument without `--`, such as the file of a Sentinel, must come first.
        let (first, others) = match self.arguments.split_first() {
            Some((first, others)) if !first.starts_with("--") => (Some(first), others),
            _ => (None, &self.arguments[..]),
        };
        command.args(first);
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(self.folder.path());
        command.arg("--logfile").arg(&log).args(["--daemonize", "no"]);
        if !others.iter().any(|word| word == "--sentinel") {
            command.args(["--save", "", "--appendonly", "no"]);
            // A primary need not wait for further replicas before it sends its data.
            command.args(["--repl-diskless-sync-delay", "0"]);
        }
        if let Some(shift) = &self.shift {
            shift.apply(&mut command);
        }
        command.args(others).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("redis-server starts"));
        let has_started = eventually_some("redis-server answers", || {
            if self.try_query::<String>(&["PING"]).is_ok_and(|answer| answer == "PONG") {
                return Some(true);
            }
            let child = self.child.as_mut()?;
            child.try_wait().expect("the state of a child").map(|_| false)
        });
        if !has_started {
            self.child = None;
            drop(writeln!(
                io::stderr(),
                "redis-server ended: {}",
                fs::read_to_string(&log).unwrap_or_default()
            ));
        }
        has_started
    }

    /// Returns the port at which the server listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address at which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Returns the server's address as a URL for a Redis client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the id of the server's process, or 0 if the process does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Returns the folder in which the server keeps its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a connection to the server as the default user.
    ///
    /// # Errors
    ///
    /// Fails if the connection cannot be opened.
    pub fn connect(&self) -> RedisResult<Connection> {
        let connection = Client::open(self.url())?.get_connection_with_timeout(COMMAND)?;
        connection.set_read_timeout(Some(COMMAND))?;
        connection.set_write_timeout(Some(COMMAND))?;
        Ok(connection)
    }

    /// Runs a command over a new connection to the server. Returns the server's answer.
    ///
    /// # Errors
    ///
    /// Fails if the connection fails, or if the server answers with an error.
    pub fn try_query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connect()?)
    }

    /// Runs a command over a new connection to the server. Returns the server's answer. Panics on an error.
    #[must_use]
    pub fn query<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_query(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a command over a new connection to the server, and ignores the answer. Panics on an error.
    pub fn command(&self, words: &[&str]) {
        drop(self.query::<redis::Value>(words));
    }

    /// Opens a new connection to the server, signs in with `password`, and runs a command. Ignores the answer.
    ///
    /// # Panics
    ///
    /// If the server answers with an error.
    pub fn command_as(&self, password: &str, words: &[&str]) {
        let url = format!("redis://:{password}@127.0.0.1:{}", self.port);
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let ran = Client::open(url)
            .and_then(|client| client.get_connection())
            .and_then(|mut connection| command.exec(&mut connection));
        ran.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    /// Returns the value of a field in the server's answer to `INFO`; `None` if the answer does not have the field.
    #[must_use]
    pub fn info(&self, field: &str) -> Option<String> {
        let info: String = self.try_query(&["INFO"]).ok()?;
        let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
        info.lines().find_map(value)
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server runs");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("the id of a process");
        kill_process(pid, signal).expect("a signal to a child");
    }

    /// Stops the server's process by SIGSTOP. Its connections stay open, and it answers nothing.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets the server's process run on after [`stop`](Self::stop).
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the server's process by SIGKILL, and waits until it has ended.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child ends");
        }
    }

    /// Ends the server's process by the command `SHUTDOWN`, and waits until it has ended.
    pub fn shut_down(&mut self) {
        // The server closes the connection instead of answering.
        drop(self.try_query::<redis::Value>(&["SHUTDOWN"]));
        eventually("the server has ended in order", || {
            let child = self.child.as_mut().expect("the server runs");
            child.try_wait().expect("the state of a child").is_some()
        });
        self.child = None;
    }

    /// Starts the server again after [`kill`](Self::kill) or [`shut_down`](Self::shut_down). The server gets the same
    /// port and folder as before.
    pub fn restart(&mut self) {
        self.kill();
        // Old connections may hold the port for a moment.
        eventually("the server starts again", || self.run());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SIGKILL also ends a process that is stopped.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
