//! The client process: how the server's process starts and stops it, its work, and its report.
//!
//! The client process has its own limit of open files, and knows nothing of the engine. It runs until its standard
//! input ends. Then it writes its report to its standard output.

use crate::crowd::Crowd;
use crate::options::Options;
use crate::system;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// Counts and times that the clients have measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// The number of connections that got the server's greeting.
    pub(crate) greeted: u64,
    /// The number of connections that their client closed.
    pub(crate) left: u64,
    /// The number of connections that the server closed.
    pub(crate) closed_by_server: u64,
    /// The number of connections that the server closed too early: before they had been silent for the idle timeout.
    pub(crate) closed_early: u64,
    /// The number of connections that the server closed while the client was still talking.
    pub(crate) closed_while_talking: u64,
    /// The number of clients that slept too long between two messages. They planned to talk on, but stay silent.
    pub(crate) overslept: u64,
    /// The longest pause of a talking client between two messages.
    pub(crate) longest_pause: Duration,
    pub(crate) cpu_time: Duration,
}

impl Report {
    /// Adds up the reports of two crowds. Leaves out the processor time, because each report has the whole process's
    /// time.
    fn merge(self, other: Self) -> Self {
        Self {
            greeted: self.greeted + other.greeted,
            left: self.left + other.left,
            closed_by_server: self.closed_by_server + other.closed_by_server,
            closed_early: self.closed_early + other.closed_early,
            closed_while_talking: self.closed_while_talking + other.closed_while_talking,
            overslept: self.overslept + other.overslept,
            longest_pause: self.longest_pause.max(other.longest_pause),
            cpu_time: self.cpu_time.max(other.cpu_time),
        }
    }

    fn to_json(self) -> Value {
        json!({
            "greeted": self.greeted,
            "left": self.left,
            "closed_by_server": self.closed_by_server,
            "closed_early": self.closed_early,
            "closed_while_talking": self.closed_while_talking,
            "overslept": self.overslept,
            "longest_pause": self.longest_pause.as_secs_f64(),
            "cpu_time": self.cpu_time.as_secs_f64(),
        })
    }

    fn from_json(text: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(text).ok()?;
        let count = |key: &str| json[key].as_u64();
        let duration = |key: &str| Duration::try_from_secs_f64(json[key].as_f64()?).ok();
        Some(Self {
            greeted: count("greeted")?,
            left: count("left")?,
            closed_by_server: count("closed_by_server")?,
            closed_early: count("closed_early")?,
            closed_while_talking: count("closed_while_talking")?,
            overslept: count("overslept")?,
            longest_pause: duration("longest_pause")?,
            cpu_time: duration("cpu_time")?,
        })
    }
}

/// The server's handle of the process that runs the clients.
pub(crate) struct ClientProcess {
    child: Child,
    output: Receiver<String>,
}

impl ClientProcess {
    pub(crate) fn start(options: &Options, connections: usize, servers: &[SocketAddr]) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(options.for_clients(connections, servers))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().expect("it was asked for");
        let (sender, output) = mpsc::channel();
        thread::spawn(move || sender.send(io::read_to_string(stdout).unwrap_or_default()));
        Ok(Self { child, output })
    }

    /// Waits for `time`. Returns true if the clients' process has ended by itself during the wait.
    pub(crate) fn has_ended_within(&self, time: Duration) -> bool {
        self.output.recv_timeout(time) != Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Stops the clients' process, and returns its report.
    pub(crate) fn stop(mut self) -> Result<Report, Box<dyn Error>> {
        drop(self.child.stdin.take());
        let report = self.output.recv()?;
        Report::from_json(&report).ok_or_else(|| format!("not a report of the clients: {report:?}").into())
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // The client process ends when its input ends.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the clients cannot be waited for: {error}");
        }
    }
}

/// Runs the clients. The calling process is the clients' process.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    system::raise_file_limit()?;
    let stopping = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let mut crowds = Vec::new();
        for index in 0..options.threads.get() {
            let (crowd, waker) = Crowd::new(options, index)?;
            crowds.push((waker, scope.spawn(|| run_or_exit(crowd, &stopping))));
        }
        io::stdin().read_to_end(&mut Vec::new())?;
        stopping.store(true, Ordering::Relaxed);
        let mut report = Report::default();
        for (waker, crowd) in crowds {
            waker.wake()?;
            report = report.merge(crowd.join().expect("a crowd does not panic"));
        }
        io::Result::Ok(report)
    })?;
    let report = Report { cpu_time: system::cpu_time(), ..report };
    Ok(writeln!(io::stdout(), "{}", report.to_json())?)
}

/// Runs a crowd of clients. A crowd that cannot go on ends the process, and therefore the whole run.
fn run_or_exit(crowd: Crowd, stopping: &AtomicBool) -> Report {
    crowd.run(stopping).unwrap_or_else(|error| {
        eprintln!("error of a client: {error}");
        process::exit(1)
    })
}
