//! Child processes of a run: this program, started again as a node or as the receiver, and other programs.

use super::callbacks;
use super::moment;
use super::node::{NodeSettings, serve};
use super::receiver::{Journal, receive};
use crate::history::Moment;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The environment variable that makes this program run as a node, or as the receiver of the nodes' reports. The value
/// of the variable says which of these two, and with which settings.
const PART: &str = "TOURBILLON_FAULT_PART";

/// How long a child process may take to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child process of a run: a node that delivers timers, or the receiver of their reports.
#[derive(Debug)]
pub(super) struct Part {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<(Moment, String)>>>,
    /// The thread that collects the lines of the process's output.
    reader: JoinHandle<()>,
    /// Whether the process leads a process group. If it does, signals go to the whole group, because `faketime` runs
    /// the program as its own child.
    is_leader: bool,
}

/// If a run has started this process as a node or as the receiver of the nodes' reports, runs the node or the receiver,
/// and never returns. In any other process, returns at once.
pub fn be_part() {
    let Ok(words) = env::var(PART) else { return };
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    match &words[..] {
        [first, socket, file, port] if first == "receive" => {
            let journal = Journal::open(file.as_ref()).expect("the receiver's file");
            let listener = UnixListener::bind(socket).expect("a socket");
            drop(thread::spawn(|| {
                // The receiver ends when its parent ends.
                drop(io::stdin().lock().read_to_end(&mut Vec::new()));
                exit(0);
            }));
            if port != "0" {
                let callbacks = TcpListener::bind(("0.0.0.0", port.parse().expect("a port")));
                let (callbacks, journal) = (callbacks.expect("a free port"), Arc::clone(&journal));
                drop(thread::spawn(move || callbacks::receive(&callbacks, &journal)));
            }
            receive(&listener, &journal);
        }
        [first, settings @ ..] if first == "node" => {
            serve(&NodeSettings::of(settings).expect("settings of a node"));
        }
        _ => panic!("{words:?} is not a part of a run"),
    }
    exit(0);
}

impl Part {
    /// Starts this program again with the arguments `program`. `words` tell the child process whether it is a node or
    /// the receiver, and with which settings. If `before` is a command such as `faketime`, this command runs the
    /// program.
    pub(super) fn start(before: &[String], program: &[String], words: &str) -> Self {
        let path = env::current_exe().expect("the path of this program");
        let mut command = command(before, path.as_os_str());
        command.args(program).env(PART, words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let output = child.stdout.take().expect("the output of a process");
        Self::reading(child, output, false)
    }

    /// Starts a program other than this program, and collects the lines of its standard error.
    pub(super) fn start_other(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("a process");
        let output = child.stderr.take().expect("the output of a process");
        Self::reading(child, output, true)
    }

    fn reading(mut child: Child, output: impl Read + Send + 'static, is_leader: bool) -> Self {
        let lines = Arc::<Mutex<Vec<(Moment, String)>>>::default();
        let read = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                read.lock().unwrap_or_else(PoisonError::into_inner).push((moment(), line));
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, reader, is_leader }
    }

    fn read(&self) -> MutexGuard<'_, Vec<(Moment, String)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last lines of the process's output.
    pub(super) fn lines(&self) -> Vec<String> {
        let lines = self.read();
        lines[lines.len().saturating_sub(20)..].iter().map(|(_, line)| line.clone()).collect()
    }

    /// Writes all lines of the process's output to a file.
    pub(super) fn write_lines(&self, file: &Path) {
        let lines = self.read();
        let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        // The lines only help to explain a failed run.
        drop(std::fs::write(file, text));
    }

    /// Finds the first line of the process's output that begins with `word`, and returns the rest of this line. Returns
    /// `None` if there is no such line.
    pub(super) fn said(&self, word: &str) -> Option<String> {
        let lines = self.read();
        let rest = |(_, line): &(Moment, String)| line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        lines.iter().find_map(rest)
    }

    /// Returns the first line of the process's output that contains `words`, and the moment of its arrival; `None` if
    /// there is none.
    pub(super) fn line_with(&self, words: &str) -> Option<(Moment, String)> {
        self.read().iter().find(|(_, line)| line.contains(words)).cloned()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("the id of a process");
        let sent = if self.is_leader { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
        sent.expect("a signal to a child");
    }

    pub(super) fn kill(&mut self) {
        let pid = Pid::from_child(&self.child);
        // The process may have ended by itself. Until this process waits for it, no other process gets its id.
        if self.is_leader && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _sent = kill_process_group(pid, Signal::KILL);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Asks the process to end, and kills it after a timeout. Returns true if the process ended by itself; all of its
    /// output has then been read.
    pub(super) fn end(&mut self) -> bool {
        self.input = None;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let has_ended = self.child.try_wait().expect("the state of a child").is_some();
            if has_ended && self.reader.is_finished() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        false
    }
}

/// Returns a command that starts a program. If `before` is a command such as `faketime`, this command runs the program.
pub(super) fn command(before: &[String], program: &std::ffi::OsStr) -> Command {
    match before {
        [first, others @ ..] => {
            let mut command = Command::new(first);
            command.args(others).arg(program);
            command
        }
        [] => Command::new(program),
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}
