//! Clients of a run: threads that place and cancel timers, each through its own store, and record their calls and
//! answers.

use super::moment;
use super::node::{KIND, payload};
use super::target::Target;
use crate::history::{Answer, Call, Id, Place, Record};
use fastrand::Rng;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, IfPresent, Op, Outcome, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};
use tourbillon_redis::RedisStore;

/// The number of different timer keys that a client uses.
const KEYS: u64 = 20;

/// The number of timers that a client remembers, so that it can cancel them later.
const RECENT: usize = 200;

/// How long clients repeat unanswered calls after the end of the load. [`open`] repeats its attempts for the same time.
const LAST_ANSWERS: Duration = Duration::from_secs(120);

/// Says how many clients work on the store, and how fast they call it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of clients.
    pub clients: u64,
    /// The number of operations that all clients together begin in a second.
    pub rate: u32,
    /// The greatest number of operations that a client sends in one call.
    pub batch: usize,
    /// The longest time from the creation of a timer to its due moment.
    pub delay: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self { clients: 4, rate: 400, batch: 10, delay: Duration::from_secs(4) }
    }
}

/// The clients of a run, from their start until the load ends.
#[derive(Debug)]
pub struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    files: Vec<PathBuf>,
    done: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
}

/// An operation that a client sends to the store. If the answer is not definite, the client sends the operation again.
struct Wanted {
    op: Op,
    call: Call,
}

struct Client {
    number: u64,
    store: RedisStore,
    rng: Rng,
    load: Load,
    out: BufWriter<File>,
    calls: u64,
    recent: VecDeque<Id>,
    /// The operations that the client must repeat because their answers were not definite, in their order.
    open: VecDeque<Wanted>,
    closed: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

/// Converts a store's outcome to the answer that the history records.
fn answer_of(outcome: &Outcome) -> Answer {
    match outcome {
        Outcome::Created(_) => Answer::Created,
        Outcome::Repeated(_) => Answer::Repeated,
        Outcome::Replaced { old, was, .. } => Answer::Replaced(old.as_u128(), *was == Phase::Leased),
        Outcome::KeyExists { holder, .. } => Answer::KeyExists(holder.as_u128()),
        Outcome::Cancelled(_) => Answer::Cancelled,
        Outcome::InFlight(_) => Answer::InFlight,
        Outcome::NotFound => Answer::NotFound,
        other => panic!("an outcome of another operation: {other:?}"),
    }
}

/// Returns the answer that the history records for each operation of a failed call. The call had `count` operations,
/// and failed with `error`.
fn answer_to(error: &StoreError, count: usize) -> Answer {
    // With several operations, the first may have taken effect, whatever the error of a later operation says.
    if count > 1 || error.kind() == StoreErrorKind::Unknown { Answer::Unknown } else { Answer::Failed }
}

/// Blocks the thread until a store's future has its result. The future must need no runtime.
///
/// # Errors
///
/// Fails with the error of the future.
pub fn ask<T>(answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    pollster::block_on(answer)
}

/// Opens a store for a client. Tries again while the servers do not answer.
///
/// # Errors
///
/// Fails if the store cannot be opened. If the error is transient, fails only after two minutes.
pub fn open(target: &Target, deployment: &str, shards: u16) -> Result<RedisStore, StoreError> {
    let begun = Instant::now();
    loop {
        let builder = RedisStore::builder(deployment).shards(shards).poll(None).unchecked();
        match ask(builder.open(&target.connect())) {
            Err(error) if error.is_transient() && begun.elapsed() < LAST_ANSWERS => {
                thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

impl Client {
    fn write(&mut self, record: &Record) {
        writeln!(self.out, "{record}").expect("a history on the disk");
    }

    fn place(&mut self, place: &Place, fails: u32, attempts: u32) -> Op {
        let mut timer = Timer::new(TimerId::from_u128(place.id), KIND, UtcMillis::from_millis(place.due));
        let guarantee = if place.is_once { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce };
        timer.policy = Policy { attempts, guarantee, deliveries: 1_000, ..Policy::default() };
        timer.key = place.key.clone();
        timer.has_chosen_id = true;
        timer.created = self.store.now();
        timer.payload = Payload(payload(fails, place.series.map(|_| place.id)).into());
        timer.series = place.series.map(|(every, last)| Series {
            id: timer.id,
            plan: Plan::Every(every),
            missed: MissedInstants::All,
            end: Some(UtcMillis::from_millis(last)),
            paused: false,
        });
        let if_present = if place.replaces { IfPresent::Replace } else { IfPresent::Reject };
        Op::Place(Box::new(timer), if_present)
    }

    /// Makes a random operation. `keys` are the keys that the present call already uses. Returns `None` if the
    /// operation's key is among them, or if no timer is left to cancel.
    fn invent(&mut self, keys: &mut HashSet<Box<str>>) -> Option<Wanted> {
        let now = self.store.now().as_millis();
        let longest = u64::try_from(self.load.delay.as_millis()).unwrap_or(u64::MAX);
        let delay = if self.rng.u8(..) < 25 { 0 } else { self.rng.u64(0..=longest) };
        let id = self.rng.u128(1..);
        let mut place =
            Place { id, key: None, due: now + delay, replaces: false, is_once: false, series: None };
        let (mut fails, mut attempts) = (0, 10);
        match self.rng.u32(..100) {
            0..58 => {}
            58..63 => fails = self.rng.u32(1..4),
            63 => (fails, attempts) = (9, 1),
            64..69 => place.is_once = true,
            69..71 => {
                let every = self.rng.u64(200..1_000);
                // The last instant may lie between two occurrences.
                place.series = Some((every, place.due + every * self.rng.u64(1..5) + 50));
            }
            71..86 => {
                let key: Box<str> = format!("{}-{}", self.number, self.rng.u64(..KEYS)).into();
                if !keys.insert(key.clone()) {
                    return None;
                }
                place.replaces = self.rng.u8(..) < 220;
                place.key = Some(key);
            }
            _ => {
                let index = self.rng.usize(..self.recent.len().max(1));
                let id = self.recent.remove(index)?;
                let op = Op::Cancel(Address::Id(TimerId::from_u128(id)), None);
                return Some(Wanted { op, call: Call::Cancel(id) });
            }
        }
        let op = self.place(&place, fails, attempts);
        Some(Wanted { op, call: Call::Place(place) })
    }

    /// Sends operations to the store in one call. Keeps an operation whose answer is not definite, so that
    /// [`again`](Self::again) returns it.
    fn send(&mut self, wanted: Vec<Wanted>) {
        let mut numbers = Vec::new();
        for wanted in &wanted {
            self.calls += 1;
            // The number is unique among all clients.
            let number = self.calls << 16 | self.number;
            numbers.push(number);
            self.write(&Record::Invoked(moment(), number, wanted.call.clone()));
        }
        let ops = wanted.iter().map(|wanted| wanted.op.clone()).collect();
        let result = ask(self.store.apply(ops, Durability::PowerLoss));
        let at = moment();
        if let Err(error) = &result
            && error.kind() == StoreErrorKind::Closed
        {
            self.closed.store(true, Ordering::Relaxed);
        }
        let count = wanted.len();
        for (nth, (wanted, number)) in wanted.into_iter().zip(numbers).enumerate() {
            let answer = match &result {
                Ok(outcomes) => outcomes.get(nth).map_or(Answer::Unknown, answer_of),
                Err(error) => answer_to(error, count),
            };
            self.write(&Record::Answered(at, number, answer));
            match (answer, &wanted.call) {
                (Answer::Unknown | Answer::Failed, _) => {
                    self.open.push_back(wanted);
                    continue;
                }
                // A series is never cancelled: it ends by itself.
                (Answer::Created | Answer::Repeated | Answer::Replaced(..), Call::Place(place))
                    if place.series.is_none() =>
                {
                    self.recent.push_back(place.id);
                    if self.recent.len() > RECENT {
                        self.recent.pop_front();
                    }
                }
                _ => {}
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns operations that the client must send again, in their order. The client begins no new operation while any
    /// is left, so operations with the same key stay in order.
    fn again(&mut self) -> Vec<Wanted> {
        let count = self.open.len().min(self.load.batch);
        self.open.drain(..count).collect()
    }

    fn run(mut self, stop: &AtomicBool) {
        let share = f64::from(self.load.rate) / f64::from(u32::try_from(self.load.clients).unwrap_or(1));
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) && !self.closed.load(Ordering::Relaxed) {
            let mut wanted = self.again();
            if wanted.is_empty() {
                let mut keys = HashSet::new();
                for _ in 0..self.rng.usize(1..=self.load.batch) {
                    wanted.extend(self.invent(&mut keys));
                }
            }
            if wanted.is_empty() {
                continue;
            }
            next += Duration::from_secs_f64(wanted.len() as f64 / share);
            self.send(wanted);
            match next.checked_duration_since(Instant::now()) {
                Some(pause) => thread::sleep(pause),
                None => next = Instant::now(),
            }
        }
        let end = Instant::now();
        while !self.open.is_empty() && !self.closed.load(Ordering::Relaxed) && end.elapsed() < LAST_ANSWERS {
            let wanted = self.again();
            self.send(wanted);
        }
        self.out.flush().expect("a history on the disk");
    }
}

impl Clients {
    /// Starts the clients. Each client writes its history to its own file in `folder`.
    ///
    /// # Errors
    ///
    /// Fails if a store or a file cannot be opened.
    ///
    /// # Panics
    ///
    /// If a client cannot write its history.
    pub fn start(
        target: &Target,
        (deployment, shards): (&str, u16),
        folder: &Path,
        load: Load,
        seed: u64,
    ) -> Result<Self, StoreError> {
        let (stop, closed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let done = Arc::<AtomicU64>::default();
        let (mut threads, mut files) = (Vec::new(), Vec::new());
        for number in 0..load.clients {
            let store = open(target, deployment, shards)?;
            let file = folder.join(format!("client-{number}"));
            let out = File::create(&file).map_err(StoreError::from)?;
            files.push(file);
            let client = Client {
                number,
                store,
                rng: Rng::with_seed(seed ^ (number << 32)),
                load,
                out: BufWriter::new(out),
                calls: 0,
                recent: VecDeque::new(),
                open: VecDeque::new(),
                closed: Arc::clone(&closed),
                done: Arc::clone(&done),
            };
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || client.run(&stop)));
        }
        Ok(Self { stop, threads, files, done, closed })
    }

    /// Returns the number of the clients' operations that have a definite answer.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns whether the store of any client has closed for good, for example because its data is lost.
    #[must_use]
    pub fn are_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends the load and waits until each call has its answer. Returns the clients' records.
    ///
    /// # Errors
    ///
    /// Fails if a history cannot be read.
    ///
    /// # Panics
    ///
    /// If a client has panicked.
    pub fn end(self) -> io::Result<Vec<Record>> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client ends");
        }
        let mut records = Vec::new();
        for file in &self.files {
            records.extend(crate::history::read(file)?);
        }
        Ok(records)
    }
}
