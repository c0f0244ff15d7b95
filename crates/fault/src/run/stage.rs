//! A stage: servers' clients, nodes and the receiver of one run, from its start to the check of its history.

use super::busy::{stalls, unexplained, waits};
use super::load::{Clients, Load, ask, open};
use super::node::{NodeSettings, serve};
use super::receiver::receive;
use super::target::Target;
use super::{moment, wall, watch_stalls};
use crate::history::{Cause, End, Fault, Findings, Moment, Record, Stored, Terms, check, read};
use rustix::process::{Pid, Signal, kill_process};
use std::env;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{StoreError, TimerStore};
use tourbillon_redis::RedisStore;

/// The variable that makes a process a part of a run.
const PART: &str = "TOURBILLON_FAULT_PART";

/// How long all timers may take to end after the last fault: far more than they need on a machine that is not busy.
const DRAIN: Duration = Duration::from_secs(240);

/// How long a process may take to follow a command.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of a run: a node, or the receiver.
#[derive(Debug)]
struct Part {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
    /// Reads the lines, up to the end of the output.
    reader: JoinHandle<()>,
}

/// Becomes a part of a run, if this process was started as a part, and does not return then.
pub fn be_part() {
    let Ok(words) = env::var(PART) else { return };
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    match &words[..] {
        [first, socket, file] if first == "receive" => {
            let listener = UnixListener::bind(socket).expect("a socket");
            drop(thread::spawn(|| {
                // Ends with the parent.
                drop(io::stdin().lock().read_to_end(&mut Vec::new()));
                exit(0);
            }));
            receive(&listener, file.as_ref()).expect("the receiver's file");
        }
        [first, settings @ ..] if first == "node" => {
            serve(&NodeSettings::of(settings).expect("settings of a node"));
        }
        _ => panic!("{words:?} is not a part of a run"),
    }
    exit(0);
}

impl Part {
    /// Starts this program again. The words before it, if there are any, start it in another surrounding.
    fn start(before: &[String], program: &[String], words: &str) -> Self {
        let path = env::current_exe().expect("the path of this program");
        let mut command = match before {
            [first, others @ ..] => {
                let mut command = Command::new(first);
                command.args(others).arg(path);
                command
            }
            [] => Command::new(path),
        };
        command.args(program).env(PART, words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let output = child.stdout.take().expect("the output of a process");
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let read = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                read.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, reader }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rest of the first line that begins with this word.
    fn said(&self, word: &str) -> Option<String> {
        let lines = self.lines();
        let rest = |line: &String| line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        lines.iter().find_map(rest)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("the id of a process");
        kill_process(pid, signal).expect("a signal to a child");
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Asks the process to end. Whether it did. All its lines are there then.
    fn end(&mut self) -> bool {
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

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A node of a stage.
#[derive(Debug)]
pub struct Node {
    name: String,
    part: Part,
}

impl Node {
    /// Whether the store is open and the node runs.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.part.said("ready").is_some()
    }

    /// The seconds by which the node's time of day is off, once it is ready.
    #[must_use]
    pub fn shift(&self) -> Option<f64> {
        let wall_of_node: i128 = self.part.said("ready")?.parse().ok()?;
        Some((wall_of_node - i128::from(wall())) as f64 / 1e6)
    }

    /// The error with which the store has stopped for good.
    #[must_use]
    pub fn closed(&self) -> Option<String> {
        self.part.said("closed")
    }

    /// Lets the process stand still.
    pub fn stop(&self) {
        self.part.signal(Signal::STOP);
    }

    /// Lets the process go on.
    pub fn go_on(&self) {
        self.part.signal(Signal::CONT);
    }
}

/// A run.
#[derive(Debug)]
pub struct Stage {
    /// The servers, as nodes and clients know them.
    pub target: Target,
    /// The length of a lease.
    pub lease: Duration,
    /// The time for which a node takes a shard.
    pub ttl: Duration,
    /// The handlers of a node.
    pub workers: usize,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The problems outside of the history.
    pub problems: Vec<String>,
    /// The measurements, a line each.
    pub notes: Vec<String>,
    /// Whether handlers send their deliveries and never return.
    pub hangs: bool,
    folder: TempDir,
    shards: u16,
    program: Vec<String>,
    receiver: Part,
    socket: PathBuf,
    faults: Arc<Mutex<Vec<Fault>>>,
    clients: Option<Clients>,
    started: u32,
    begun: Instant,
}

/// The result of a run.
#[derive(Debug)]
pub struct Row {
    /// The findings in the history.
    pub findings: Findings,
    /// The problems outside of the history.
    pub problems: Vec<String>,
    /// How long the run took.
    pub took: Duration,
    /// How often a process of the run did not run for a second or longer, though the run did not stop it, or a server
    /// did not answer in time, though the run did it no harm.
    pub stalls: usize,
    /// The measurements of the run, a line each.
    pub notes: Vec<String>,
    /// The folder of the history, if something is wrong.
    pub kept: Option<PathBuf>,
}

impl Row {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.broken.is_empty() && self.problems.is_empty()
    }

    /// Fails a test if something is wrong.
    ///
    /// # Panics
    ///
    /// Then.
    #[must_use]
    #[track_caller]
    pub fn expect_clean(&self) -> &Findings {
        assert!(self.is_clean(), "{self}");
        &self.findings
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for broken in self.findings.broken.iter().take(20) {
            writeln!(f, "  {broken}")?;
        }
        if let Some(more) = self.findings.broken.len().checked_sub(20).filter(|more| *more > 0) {
            writeln!(f, "  and {more} more")?;
        }
        for problem in &self.problems {
            writeln!(f, "  {problem}")?;
        }
        match &self.kept {
            Some(folder) => writeln!(f, "  the history: {}", folder.display()),
            None => Ok(()),
        }
    }
}

/// The timers of a store, their number as it counts them, and the faults of its structure.
///
/// # Errors
///
/// Those of the store.
pub fn stored(store: &RedisStore) -> Result<End, StoreError> {
    let mut end = End::default();
    let each = |timer: &tourbillon_durable::timer::Timer| {
        let stored = if matches!(timer.state, State::Dead(_)) { Stored::Dead } else { Stored::Alive };
        end.stored.insert(timer.id.as_u128(), stored);
        true
    };
    ask(store.export(Box::new(each)))?;
    let counts = ask(store.counts())?;
    end.counted = counts.by_namespace.values().sum::<u64>() + counts.quarantined;
    end.faults = ask(store.check())?.iter().map(ToString::to_string).collect();
    Ok(end)
}

impl Stage {
    /// The deployment of each run.
    pub const DEPLOYMENT: &str = "run";

    /// Starts the receiver. A process of the stage is this program with these arguments, which must call [`be_part`]
    /// first.
    ///
    /// # Panics
    ///
    /// If the system starts no process.
    #[must_use]
    pub fn new(target: Target, shards: u16, program: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("tourbillon-fault-").tempdir().expect("a folder");
        let program: Vec<String> = program.iter().map(|&word| word.to_owned()).collect();
        let file = folder.path().join("deliveries");
        let socket = folder.path().join("receiver");
        let words = format!("receive {} {}", socket.display(), file.display());
        let receiver = Part::start(&[], &program, &words);
        crate::eventually("the receiver listens", || UnixStream::connect(&socket).is_ok());
        let faults = Arc::<Mutex<Vec<Fault>>>::default();
        let stalls = Arc::downgrade(&faults);
        // A stall of this process is a stall of the machine: the other processes do not run either.
        watch_stalls(move |from, until| {
            let Some(faults) = stalls.upgrade() else { return };
            let fault = Fault { cause: Cause::Pause, node: None, from, until };
            faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        });
        Self {
            target,
            lease: Duration::from_secs(6),
            ttl: Duration::from_secs(10),
            workers: 16,
            nodes: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
            hangs: false,
            folder,
            shards,
            program,
            receiver,
            socket,
            faults,
            clients: None,
            started: 0,
            begun: Instant::now(),
        }
    }

    /// A node that is started by these words, or by itself. Does not wait for it.
    #[must_use]
    pub fn node(&mut self, before: &[String]) -> Node {
        self.started += 1;
        let settings = NodeSettings {
            target: self.target.clone(),
            deployment: Self::DEPLOYMENT.to_owned(),
            shards: self.shards,
            name: format!("n{}", self.started),
            receiver: self.socket.clone(),
            lease: self.lease,
            ttl: self.ttl,
            workers: self.workers,
            hangs: self.hangs,
        };
        let part = Part::start(before, &self.program, &format!("node {}", settings.words().join(" ")));
        Node { name: settings.name, part }
    }

    /// Starts `count` nodes, and waits until they run.
    pub fn start_nodes(&mut self, count: usize) {
        for _ in 0..count {
            let node = self.node(&[]);
            self.nodes.push(node);
        }
        self.await_ready();
    }

    /// Starts nodes whose times of day are off by the seconds in `shifts`, and waits until they run. Notes a problem if
    /// one of them has another time. Without `faketime`, writes a line to standard error and returns `false`.
    pub fn start_shifted_nodes(&mut self, shifts: &[i32]) -> bool {
        let works = Command::new("faketime").args(["-f", "+1s", "true"]).stderr(Stdio::null()).status();
        if !works.is_ok_and(|status| status.success()) {
            drop(writeln!(io::stderr(), "skipped a run: there is no faketime (apt-get install faketime)"));
            return false;
        }
        let first = self.nodes.len();
        for shift in shifts {
            // The monotonic clock stays: the history counts by it.
            let words = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1", "faketime", "-f"];
            let shift = format!("{shift:+}s");
            let before: Vec<String> = words.iter().map(|&word| word.to_owned()).chain([shift]).collect();
            let node = self.node(&before);
            self.nodes.push(node);
        }
        self.await_ready();
        for (node, meant) in self.nodes[first..].iter().zip(shifts) {
            let shift = node.shift();
            if shift.is_none_or(|shift| (shift - f64::from(*meant)).abs() > 1.0) {
                self.problems.push(format!("the time of {} is off by {shift:?} s, not {meant} s", node.name));
            }
        }
        true
    }

    /// Waits until all nodes run.
    pub fn await_ready(&mut self) {
        let start = Instant::now();
        while !self.nodes.iter().all(Node::is_ready) && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        for node in self.nodes.iter().filter(|node| !node.is_ready()) {
            self.problems.push(format!("node {} does not run: {:?}", node.name, node.part.lines()));
        }
    }

    /// Starts clients.
    ///
    /// # Panics
    ///
    /// If their stores are not opened.
    pub fn start_clients(&mut self, load: Load, seed: u64) {
        let deployment = (Self::DEPLOYMENT, self.shards);
        let clients = Clients::start(&self.target, deployment, self.folder.path(), load, seed);
        self.clients = Some(clients.expect("stores of clients"));
    }

    /// The number of operations that have a definite answer.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.clients.as_ref().map_or(0, Clients::done)
    }

    /// Whether a store has said to a client that it has stopped for good.
    #[must_use]
    pub fn has_closed_client(&self) -> bool {
        self.clients.as_ref().is_some_and(Clients::are_closed)
    }

    /// Waits until clients get answers again: until `count` more operations are done. Notes a problem if they are not.
    pub fn await_progress(&mut self, count: u64) {
        let (before, start) = (self.done(), Instant::now());
        while self.done() < before + count {
            if start.elapsed() > PATIENCE {
                self.problems.push("the clients get no answers any more".to_owned());
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Notes a fault.
    pub fn note(&mut self, cause: Cause, node: Option<&str>, from: Moment, until: Moment) {
        let fault = Fault { cause, node: node.map(Into::into), from, until };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Does something to the servers or the network, and notes it as a fault.
    pub fn harm<T>(&mut self, cause: Cause, act: impl FnOnce(&mut Self) -> T) -> T {
        let from = moment();
        let result = act(self);
        self.note(cause, None, from, moment());
        result
    }

    /// Does something to the network of one node, and notes it as a fault.
    pub fn harm_node<T>(&mut self, node: usize, cause: Cause, act: impl FnOnce() -> T) -> T {
        let (from, name) = (moment(), self.nodes[node].name.clone());
        let result = act();
        self.note(cause, Some(&name), from, moment());
        result
    }

    /// Kills a node with SIGKILL.
    pub fn kill(&mut self, node: usize) {
        let mut node = self.nodes.remove(node);
        node.part.kill();
        // All that the node has done was before.
        self.note(Cause::Kill, Some(&node.name), moment(), moment());
    }

    /// Stops a node for a time, as SIGSTOP does.
    pub fn pause(&mut self, node: usize, time: Duration) {
        let from = moment();
        self.nodes[node].stop();
        thread::sleep(time);
        self.nodes[node].go_on();
        let name = self.nodes[node].name.clone();
        self.note(Cause::Pause, Some(&name), from, moment());
    }

    /// Ends a node in order: it gives back the timers that it has not begun. Returns the number of timers that it was
    /// about to deliver, begun or not.
    pub fn end_node(&mut self, node: usize) -> Option<u64> {
        let mut node = self.nodes.remove(node);
        let has_ended = node.part.end();
        let delivered = node.part.said("stopped").filter(|_| has_ended).and_then(|count| count.parse().ok());
        if delivered.is_none() {
            self.problems.push(format!("node {} did not stop in order: {:?}", node.name, node.part.lines()));
        }
        delivered
    }

    /// Ends the load. Returns the records of the clients.
    fn end_clients(&mut self) -> Vec<Record> {
        let Some(clients) = self.clients.take() else { return Vec::new() };
        clients.end().unwrap_or_else(|error| {
            self.problems.push(format!("the history of a client: {error}"));
            Vec::new()
        })
    }

    /// A store beside the nodes.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn store(&self) -> Result<RedisStore, StoreError> {
        open(&self.target, Self::DEPLOYMENT, self.shards)
    }

    /// The deliveries so far, and the stalls that nodes have noticed.
    ///
    /// # Errors
    ///
    /// Fails if the receiver's file cannot be read.
    pub fn received(&self) -> io::Result<Vec<Record>> {
        read(&self.folder.path().join("deliveries"))
    }

    /// Ends the load, waits until all timers have ended, ends the nodes, and checks the history.
    #[must_use]
    pub fn finish(mut self, terms: Terms) -> Row {
        let records = self.end_clients();
        self.drain();
        while !self.nodes.is_empty() {
            self.end_node(0);
        }
        let end = self.store().and_then(|store| stored(&store)).unwrap_or_else(|error| {
            self.problems.push(format!("the store at the end: {error}"));
            End::default()
        });
        self.judge(records, terms, &end)
    }

    /// Ends the load and the nodes, of a deployment that is lost, and checks the history.
    #[must_use]
    pub fn finish_without_store(mut self, terms: Terms) -> Row {
        let records = self.end_clients();
        while !self.nodes.is_empty() {
            self.end_node(0);
        }
        self.judge(records, terms, &End::default())
    }

    fn judge(mut self, mut records: Vec<Record>, terms: Terms, end: &End) -> Row {
        match self.received() {
            Ok(received) => records.extend(received),
            Err(error) => self.problems.push(format!("the deliveries: {error}")),
        }
        if !self.receiver.end() {
            self.problems.push("the receiver did not end".to_owned());
        }
        let faults = core::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        let waits = waits(&records, self.target.response());
        let stalls = stalls(&records, &faults) + unexplained(&waits, &faults);
        records.extend(faults.into_iter().chain(waits).map(Record::Fault));
        let micros = |time: Duration| Moment::try_from(time.as_micros()).unwrap_or(Moment::MAX);
        let terms = Terms {
            wall: wall(),
            // Due moments are whole milliseconds.
            tolerance: terms.tolerance.max(1),
            lease: micros(self.lease),
            ttl: micros(self.ttl),
            response: micros(self.target.response()),
            workers: self.workers,
            ..terms
        };
        let findings = check(records, &terms, end);
        if terms.lossy.iter().any(|(_, until)| *until < Moment::MAX) {
            let sum = terms.lossy.iter().map(|(from, until)| until - from).sum();
            self.notes.push(format!("calls of {:?} may be lost", Duration::from_micros(sum)));
        }
        let (took, problems, notes) = (self.begun.elapsed(), self.problems, self.notes);
        let mut row = Row { findings, problems, took, stalls, notes, kept: None };
        if !row.is_clean() {
            row.kept = Some(self.folder.keep());
        }
        row
    }

    /// Waits until no timer is pending or leased.
    fn drain(&mut self) {
        let start = Instant::now();
        let mut store = self.store();
        loop {
            let left = match &store {
                Ok(open) => {
                    ask(open.counts()).map(|counts| counts.of(Phase::Pending) + counts.of(Phase::Leased))
                }
                Err(error) => Err(error.clone()),
            };
            match left {
                Ok(0) => return,
                _ if start.elapsed() > DRAIN => {
                    self.problems.push(format!("not all timers have ended after {DRAIN:?}: {left:?}"));
                    return;
                }
                Ok(_) => {}
                Err(_) => store = self.store(),
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}
