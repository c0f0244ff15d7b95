//! Manages one run, from its start to the check of its history: the clients, the nodes, and the receiver.

use super::busy::{stalls, unexplained, waits};
use super::callbacks::id_of;
use super::child::{DaemonSettings, Daemons, Node};
use super::door::{Door, Library, ask, open};
use super::load::{Clients, Load};
use super::node::NodeSettings;
use super::part::Part;
use super::requests::Requests;
use super::sql::Sql;
use super::target::Target;
use super::{moment, wall, watch_stalls};
use crate::history::{Answer, Cause, End, Fault, Findings, Moment, Record, Stored, Terms, check, read};
use fastrand::Rng;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{StoreError, TimerStore};
use tourbillon_postgres::{Connect, PostgresStore};

/// How long all timers may take to end after the last fault. Even a busy machine needs far less.
const DRAIN: Duration = Duration::from_secs(240);

/// How long a node may take to start, and how long clients may take to make progress.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a client waits for the answer to a request.
const RESPONSE: Duration = Duration::from_secs(2);

/// The number of the first client that uses SQL. The numbers of the other clients begin at 0.
const FIRST_OF_SQL: u64 = 1_000;

/// A test run with faults: its settings, its processes, and its findings so far.
#[derive(Debug)]
pub struct Stage {
    /// The Redis servers to which nodes and clients connect. `None` if the timers are in PostgreSQL.
    pub target: Option<Target>,
    /// How long a lease of a timer lasts. When it has ended, another node may deliver the timer.
    pub lease: Duration,
    /// How long a node owns a shard without a renewal.
    pub ttl: Duration,
    /// The greatest number of handlers that a node runs at a time.
    pub workers: usize,
    /// The running nodes.
    pub nodes: Vec<Node>,
    /// Problems of the run that its history does not show, as texts.
    pub problems: Vec<String>,
    /// Measurements of the run, each a line of text.
    pub notes: Vec<String>,
    /// Whether each handler hangs for ever after it has reported its delivery.
    pub hangs: bool,
    folder: TempDir,
    shards: u16,
    program: Vec<String>,
    receiver: Part,
    socket: PathBuf,
    faults: Arc<Mutex<Vec<Fault>>>,
    clients: Option<Clients>,
    /// The clients that use SQL. A call of such a client counts as answered only when its transaction ends.
    clients_of_sql: Option<Clients>,
    /// The tokio runtime on which the connections of the clients that use SQL run.
    runtime: Option<Arc<Runtime>>,
    daemons: Option<Daemons>,
    started: u32,
    begun: Instant,
}

/// The result of a run, as the table of results shows it.
#[derive(Debug)]
pub struct Row {
    /// The counts and violations that the check of the history has found.
    pub findings: Findings,
    /// Problems of the run that its history does not show, as texts.
    pub problems: Vec<String>,
    /// How long the run took.
    pub took: Duration,
    /// The number of signs that the machine was busy. A sign is a process that did not run for a second although the
    /// run had not stopped it, or a server that did not answer in time although no fault hit it.
    pub stalls: usize,
    /// Measurements of the run, each a line of text.
    pub notes: Vec<String>,
    /// The folder with the run's history; `None` if the folder was removed, because the run found no violation and no
    /// problem.
    pub kept: Option<PathBuf>,
}

impl Row {
    /// Returns whether the run found no violation and no problem.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.broken.is_empty() && self.problems.is_empty()
    }

    /// Returns the findings of a run that must be clean.
    ///
    /// # Panics
    ///
    /// If the run found a violation or a problem.
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

/// Returns the number of timers that calls have created.
fn created(records: &[Record]) -> usize {
    let has_created =
        |record: &&Record| matches!(record, Record::Answered(_, _, Answer::Created | Answer::Replaced(..)));
    records.iter().filter(has_created).count()
}

/// Reads the content of a store: the state of each timer, the number of timers according to the store's own counters,
/// and the damage to the data that [`TimerStore::check`] finds.
///
/// # Errors
///
/// Fails if the store fails.
pub fn stored(store: &dyn TimerStore) -> Result<End, StoreError> {
    let mut end = End::default();
    let each = |timer: &tourbillon_durable::timer::Timer| {
        let stored = if matches!(timer.state, State::Dead(_)) { Stored::Dead } else { Stored::Alive };
        end.stored.insert(id_of(timer), stored);
        true
    };
    ask(store.export(Box::new(each)))?;
    let counts = ask(store.counts())?;
    end.counted = counts.by_namespace.values().sum::<u64>() + counts.quarantined;
    end.faults = ask(store.check())?.iter().map(ToString::to_string).collect();
    Ok(end)
}

impl Stage {
    /// The name of the deployment that every run uses.
    pub const DEPLOYMENT: &str = "run";

    /// Prepares a run on the servers `target`, and starts the run's receiver (the process to which nodes report their
    /// deliveries). To make its child processes, the run starts the executable of the calling process again, with the
    /// arguments `program`. With these arguments, the executable must call [`be_part`](super::be_part) before anything
    /// else.
    ///
    /// # Panics
    ///
    /// If the system cannot start a process.
    #[must_use]
    pub fn new(target: Target, shards: u16, program: &[&str]) -> Self {
        let mut stage = Self::prepare(shards, program, 0);
        stage.target = Some(target);
        stage
    }

    /// Prepares a run whose nodes are processes of `tourbillond`, and starts the run's receiver (the process to which
    /// nodes send their callbacks). To start the receiver, the run starts the executable of the calling process again,
    /// without arguments. The executable must call [`be_part`](super::be_part) before anything else.
    ///
    /// # Panics
    ///
    /// If the system cannot start a process.
    #[must_use]
    pub fn of_daemons(daemons: Daemons) -> Self {
        let mut stage = Self::prepare(0, &[], daemons.port_of_receiver());
        stage.daemons = Some(daemons);
        stage
    }

    /// Prepares a run, and starts its receiver: the process that records the deliveries of all nodes. `port` is the
    /// port at which the receiver accepts callbacks; 0 for a run without callbacks.
    fn prepare(shards: u16, program: &[&str], port: u16) -> Self {
        let folder = tempfile::Builder::new().prefix("tourbillon-fault-").tempdir().expect("a folder");
        let program: Vec<String> = program.iter().map(|&word| word.to_owned()).collect();
        let file = folder.path().join("deliveries");
        let socket = folder.path().join("receiver");
        let words = format!("receive {} {} {port}", socket.display(), file.display());
        let receiver = Part::start(&[], &program, &words);
        crate::eventually("the receiver listens", || UnixStream::connect(&socket).is_ok());
        let faults = Arc::<Mutex<Vec<Fault>>>::default();
        let stalls = Arc::downgrade(&faults);
        // A stall of this process counts as a stall of the machine, in which the other processes do not run either.
        watch_stalls(move |from, until| {
            let Some(faults) = stalls.upgrade() else { return };
            let fault = Fault { cause: Cause::Pause, node: None, from, until };
            faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        });
        Self {
            target: None,
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
            clients_of_sql: None,
            runtime: None,
            daemons: None,
            started: 0,
            begun: Instant::now(),
        }
    }

    /// Starts a node, and returns before the node is ready. If `before` is a command such as `faketime`, this command
    /// runs the node.
    #[must_use]
    pub fn node(&mut self, before: &[String]) -> Node {
        self.started += 1;
        if let Some(daemons) = &self.daemons {
            let settings = DaemonSettings { lease: self.lease, ttl: self.ttl, workers: self.workers };
            return daemons.start(before, self.started, self.folder.path(), settings);
        }
        let settings = NodeSettings {
            target: self.target().clone(),
            deployment: Self::DEPLOYMENT.to_owned(),
            shards: self.shards,
            name: format!("n{}", self.started),
            receiver: self.socket.clone(),
            lease: self.lease,
            ttl: self.ttl,
            workers: self.workers,
            hangs: self.hangs,
        };
        Node::start(before, &self.program, settings)
    }

    /// Returns the Redis servers of the run. Panics if the run's timers are in PostgreSQL.
    fn target(&self) -> &Target {
        self.target.as_ref().expect("the timers are in Redis")
    }

    /// Returns how long a client waits for an answer.
    fn response(&self) -> Duration {
        self.target.as_ref().map_or(RESPONSE, Target::response)
    }

    /// Starts `count` nodes, and waits until they are ready.
    pub fn start_nodes(&mut self, count: usize) {
        for _ in 0..count {
            let node = self.node(&[]);
            self.nodes.push(node);
        }
        self.await_ready();
    }

    /// Makes the nodes that are started from now on connect to the PostgreSQL server at another URL, with TLS.
    ///
    /// # Panics
    ///
    /// If the run has no PostgreSQL server.
    pub fn connect_nodes_to(&mut self, url: String) {
        self.daemons.as_mut().expect("the timers are in PostgreSQL").set_secure_server(url);
    }

    /// Starts a node for each of `shifts`, and waits until the nodes are ready. A node's time of day is off by its
    /// shift, in seconds. Notes a problem if the time of a node is not off by its shift. If `faketime` is not
    /// installed, writes a line to standard error and returns `false`.
    pub fn start_shifted_nodes(&mut self, shifts: &[i32]) -> bool {
        let works = Command::new("faketime").args(["-f", "+1s", "true"]).stderr(Stdio::null()).status();
        if !works.is_ok_and(|status| status.success()) {
            drop(writeln!(io::stderr(), "skipped a run: there is no faketime (apt-get install faketime)"));
            return false;
        }
        let first = self.nodes.len();
        for shift in shifts {
            // The monotonic clock must stay right, since the history uses it.
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
                self.problems
                    .push(format!("the time of {} is off by {shift:?} s, not {meant} s", node.name()));
            }
        }
        true
    }

    /// Waits until all nodes are ready. Notes a problem for each node that is not ready in time.
    pub fn await_ready(&mut self) {
        let start = Instant::now();
        while !self.nodes.iter().all(Node::is_ready) && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        for node in self.nodes.iter().filter(|node| !node.is_ready()) {
            self.problems.push(format!("node {} does not run: {:?}", node.name(), node.part.lines()));
        }
    }

    /// Starts clients that put `load` on the store. `seed` determines their random choices. If the nodes are processes
    /// of `tourbillond`, the clients send requests to the nodes.
    ///
    /// # Panics
    ///
    /// If a client's store cannot be opened, or a client has no file for its history.
    pub fn start_clients(&mut self, load: Load, seed: u64) {
        let door = |number: u64| -> Box<dyn Door> {
            if let Some(daemons) = &self.daemons {
                let number = usize::try_from(number).unwrap_or_default();
                let (nodes, receiver) = (daemons.addresses.clone(), daemons.receiver());
                return Box::new(Requests::new(nodes, receiver, self.response(), number));
            }
            let store = open(self.target(), Self::DEPLOYMENT, self.shards);
            Box::new(Library::new(store.expect("stores of clients")))
        };
        let doors = (0..load.clients).map(door).collect();
        let clients = Clients::start(doors, 0, self.folder.path(), load, seed);
        self.clients = Some(clients.expect("files of clients"));
    }

    /// Starts clients that call the SQL functions in transactions that last up to `longest`. One transaction in ten is
    /// rolled back.
    ///
    /// # Panics
    ///
    /// If the run has no PostgreSQL server, if the server cannot be reached or has no schema yet, or if a client has no
    /// file for its history.
    pub fn start_clients_of_sql(&mut self, load: Load, longest: Duration, seed: u64) {
        let daemons = self.daemons.as_ref().expect("the timers are in PostgreSQL");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let runtime = Arc::clone(self.runtime.insert(Arc::new(runtime)));
        let client = |number: u64| {
            let (url, receiver) = (daemons.server().to_owned(), daemons.receiver());
            let rng = Rng::with_seed(seed ^ !number);
            Sql::new(url, receiver, longest, Arc::clone(&runtime), rng)
        };
        client(0).prepare();
        let doors = (0..load.clients).map(|number| Box::new(client(number)) as Box<dyn Door>).collect();
        let clients = Clients::start(doors, FIRST_OF_SQL, self.folder.path(), load, seed);
        self.clients_of_sql = Some(clients.expect("files of clients"));
    }

    /// Returns the number of the clients' operations that are done. An operation is not done if its call has failed, or
    /// if it is unknown whether the call had an effect.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.clients.iter().chain(&self.clients_of_sql).map(Clients::done).sum()
    }

    /// Returns whether the store of any client has closed for good, for example because its data is lost.
    #[must_use]
    pub fn has_closed_client(&self) -> bool {
        self.clients.as_ref().is_some_and(Clients::are_closed)
    }

    /// Waits until `count` more operations of the clients are done (see [`done`](Self::done)). Notes a problem after
    /// two minutes.
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

    /// Adds a fault to the history. `node` is the name of the node that the fault hit; `None` for a fault of servers or
    /// networks.
    pub fn note(&mut self, cause: Cause, node: Option<&str>, from: Moment, until: Moment) {
        let fault = Fault { cause, node: node.map(Into::into), from, until };
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Calls `act`, which causes a fault of the servers or of the network. Records the fault with the beginning and the
    /// end of the call.
    pub fn harm<T>(&mut self, cause: Cause, act: impl FnOnce(&mut Self) -> T) -> T {
        let from = moment();
        let result = act(self);
        self.note(cause, None, from, moment());
        result
    }

    /// Calls `act`, which causes a fault of the network of the node with the index `node`. Records the fault with the
    /// beginning and the end of the call.
    pub fn harm_node<T>(&mut self, node: usize, cause: Cause, act: impl FnOnce() -> T) -> T {
        let (from, name) = (moment(), self.nodes[node].name().to_owned());
        let result = act();
        self.note(cause, Some(&name), from, moment());
        result
    }

    /// Kills the node with the index `node` by SIGKILL.
    pub fn kill(&mut self, node: usize) {
        let mut node = self.nodes.remove(node);
        node.part.kill();
        node.part.write_lines(&self.folder.path().join(format!("{}.log", node.name())));
        // The node is dead now, so everything that it did happened before.
        self.note(Cause::Kill, Some(node.name()), moment(), moment());
        if let Some(daemons) = &self.daemons {
            daemons.addresses.remove(node.name());
        }
    }

    /// Stops the node with the index `node` by SIGSTOP, and lets it run on after `time`.
    pub fn pause(&mut self, node: usize, time: Duration) {
        let from = moment();
        self.nodes[node].stop();
        thread::sleep(time);
        self.nodes[node].go_on();
        let name = self.nodes[node].name().to_owned();
        self.note(Cause::Pause, Some(&name), from, moment());
    }

    /// Shuts a node down, so that it gives back the timers whose handlers have not begun. Returns the number of the
    /// node's deliveries, including deliveries whose handlers did not begin. Returns `None` if the node did not shut
    /// down in order.
    pub fn end_node(&mut self, node: usize) -> Option<u64> {
        let mut node = self.nodes.remove(node);
        let delivered = node.end();
        node.part.write_lines(&self.folder.path().join(format!("{}.log", node.name())));
        if delivered.is_none() {
            let lines = node.part.lines();
            self.problems.push(format!("node {} did not stop in order: {lines:?}", node.name()));
        }
        delivered
    }

    /// Ends all clients, and returns their records in two lists. The second list has the records of the clients that
    /// use SQL, and the first the records of all other clients.
    fn end_clients(&mut self) -> [Vec<Record>; 2] {
        let clients = [self.clients.take(), self.clients_of_sql.take()];
        self.problems.extend(clients.iter().flatten().filter_map(Clients::starved));
        clients.iter().flatten().for_each(Clients::stop);
        clients.map(|clients| {
            let records = clients.map_or_else(|| Ok(Vec::new()), Clients::end);
            records.unwrap_or_else(|error| {
                self.problems.push(format!("the history of a client: {error}"));
                Vec::new()
            })
        })
    }

    /// Opens the store of the run's timers through a connection that is independent of the nodes.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be opened.
    pub fn store(&self) -> Result<Arc<dyn TimerStore>, StoreError> {
        let Some(daemons) = &self.daemons else {
            return Ok(Arc::new(open(self.target(), Self::DEPLOYMENT, self.shards)?));
        };
        let connect = Connect::to(daemons.server()).expect("the address of a server");
        Ok(Arc::new(ask(PostgresStore::builder().poll(None).for_service(true).open(&connect))?))
    }

    /// Returns the records that the run's receiver (the process that records deliveries) has written so far:
    /// deliveries, and spans in which a node did not run.
    ///
    /// # Errors
    ///
    /// Fails if the receiver's file cannot be read.
    pub fn received(&self) -> io::Result<Vec<Record>> {
        read(&self.folder.path().join("deliveries"))
    }

    /// Ends the clients, waits until no timer is left to deliver, ends the nodes, and checks the history. `terms` say
    /// which losses the run permits.
    #[must_use]
    pub fn finish(mut self, terms: Terms) -> Row {
        let records = self.end_clients();
        self.drain();
        while !self.nodes.is_empty() {
            self.end_node(0);
        }
        let end = self.store().and_then(|store| stored(&*store)).unwrap_or_else(|error| {
            self.problems.push(format!("the store at the end: {error}"));
            End::default()
        });
        self.judge(records, terms, &end)
    }

    /// Ends the clients and the nodes, and checks the history. Does not wait for the timers, because the run has
    /// deleted their data.
    #[must_use]
    pub fn finish_without_store(mut self, terms: Terms) -> Row {
        let records = self.end_clients();
        while !self.nodes.is_empty() {
            self.end_node(0);
        }
        self.judge(records, terms, &End::default())
    }

    fn judge(mut self, [mut records, of_sql]: [Vec<Record>; 2], terms: Terms, end: &End) -> Row {
        match self.received() {
            Ok(received) => records.extend(received),
            Err(error) => self.problems.push(format!("the deliveries: {error}")),
        }
        if !self.receiver.end() {
            self.problems.push("the receiver did not end".to_owned());
        }
        let faults = core::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        let waits = waits(&records, self.response());
        if !of_sql.is_empty() {
            let (by_requests, by_sql) = (created(&records), created(&of_sql));
            self.notes.push(format!("{by_requests} timers were created by requests, and {by_sql} by SQL"));
        }
        records.extend(of_sql);
        let stalls = stalls(&records, &faults) + unexplained(&waits, &faults);
        records.extend(faults.into_iter().chain(waits).map(Record::Fault));
        let micros = |time: Duration| Moment::try_from(time.as_micros()).unwrap_or(Moment::MAX);
        let terms = Terms {
            wall: wall(),
            // Due moments are whole milliseconds, so a millisecond is always tolerated.
            tolerance: terms.tolerance.max(1),
            lease: micros(self.lease),
            ttl: micros(self.ttl),
            response: micros(self.response()),
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

    /// Waits until no timer is pending, leased or parked. A timer is parked while a node must not deliver it yet, for
    /// example because too many deliveries of its namespace are under way. Notes a problem after [`DRAIN`].
    fn drain(&mut self) {
        let start = Instant::now();
        let mut store = self.store();
        loop {
            let left = match &store {
                Ok(open) => ask(open.counts()).map(|counts| {
                    counts.of(Phase::Pending) + counts.of(Phase::Leased) + counts.of(Phase::Parked)
                }),
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
