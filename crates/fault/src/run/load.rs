//! Clients of a run: threads that place, move and cancel timers, and record their calls and answers.

use super::door::{Door, Wanted};
use super::moment;
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

/// The number of different timer keys that a client uses.
const KEYS: u64 = 20;

/// The number of timers that a client remembers, so that it can cancel them later.
const RECENT: usize = 200;

/// The smallest acceptable share of answers among the operations that the clients should have begun, according to
/// [`Load::rate`]. A run with a smaller share proves nothing.
const LEAST_SHARE: f64 = 0.02;

/// How long clients repeat unanswered calls after the end of the load.
const LAST_ANSWERS: Duration = Duration::from_secs(120);

/// The load on the store: how many clients call it, how often, and with which operations.
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
    /// The share of the operations that move a timer, in percent.
    pub moves: u32,
    /// Whether some timers begin a series.
    pub series: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self { clients: 4, rate: 400, batch: 10, delay: Duration::from_secs(4), moves: 0, series: true }
    }
}

/// The running clients of a run.
#[derive(Debug)]
pub struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    files: Vec<PathBuf>,
    done: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
    rate: u32,
    begun: Instant,
}

struct Client {
    number: u64,
    door: Box<dyn Door>,
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

impl Client {
    fn write(&mut self, record: &Record) {
        writeln!(self.out, "{record}").expect("a history on the disk");
    }

    /// Makes a random operation. `keys` are the keys that the present call already uses. Returns `None` if the
    /// operation's key is one of `keys`, or if the client remembers no timer to cancel or move.
    fn invent(&mut self, keys: &mut HashSet<Box<str>>) -> Option<Wanted> {
        let now = self.door.now().as_millis();
        let longest = u64::try_from(self.load.delay.as_millis()).unwrap_or(u64::MAX);
        let delay = if self.rng.u8(..) < 25 { 0 } else { self.rng.u64(0..=longest) };
        let id = self.rng.u128(1..);
        let mut place =
            Place { id, key: None, due: now + delay, replaces: false, is_once: false, series: None };
        let (mut fails, mut attempts) = (0, 10);
        let wanted = |call| Wanted { call, fails: 0, attempts: 10, is_again: false };
        match self.rng.u32(..100) {
            kind if kind < self.load.moves => {
                let index = self.rng.usize(..self.recent.len().max(1));
                return self.recent.get(index).map(|id| wanted(Call::Move(*id, now + delay)));
            }
            0..58 => {}
            58..63 => fails = self.rng.u32(1..4),
            63 => (fails, attempts) = (9, 1),
            64..69 => place.is_once = true,
            69..71 if self.load.series => {
                let every = self.rng.u64(200..1_000);
                // The last instant may lie between two occurrences.
                place.series = Some((every, place.due + every * self.rng.u64(1..5) + 50));
            }
            69..71 => {}
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
                return Some(wanted(Call::Cancel(id)));
            }
        }
        Some(Wanted { fails, attempts, ..wanted(Call::Place(place)) })
    }

    /// Sends operations to the store in one call. Keeps an operation whose answer is not definite, so that
    /// [`again`](Self::again) returns it. The exception is an operation that must not be sent again.
    fn send(&mut self, wanted: Vec<Wanted>) {
        let mut numbers = Vec::new();
        for wanted in &wanted {
            self.calls += 1;
            // The number is unique among all clients.
            let number = self.calls << 16 | self.number;
            numbers.push(number);
            self.write(&Record::Invoked(moment(), number, wanted.call.clone()));
        }
        let answers = self.door.send(&wanted);
        let at = moment();
        if self.door.is_closed() {
            self.closed.store(true, Ordering::Relaxed);
        }
        for (nth, (mut wanted, number)) in wanted.into_iter().zip(numbers).enumerate() {
            let answer = answers.get(nth).copied().unwrap_or(Answer::Unknown);
            self.write(&Record::Answered(at, number, answer));
            match (answer, &wanted.call) {
                (Answer::Unknown, _) if !self.door.may_repeat(&wanted) => continue,
                (Answer::Unknown | Answer::Failed, _) => {
                    wanted.is_again = true;
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

    /// Returns operations that the client must send again, in their order. The client begins no new operation while
    /// such an operation is left, so operations with the same key stay in order.
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
            // A store that refuses calls answers at once.
            thread::sleep(Duration::from_millis(10));
        }
        self.out.flush().expect("a history on the disk");
    }
}

impl Clients {
    /// Starts a client for each of `doors`. The clients get successive numbers, beginning with `first`. Each client
    /// writes its history to its own file in `folder`.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be made.
    ///
    /// # Panics
    ///
    /// If a client cannot write its history.
    pub(super) fn start(
        doors: Vec<Box<dyn Door>>,
        first: u64,
        folder: &Path,
        load: Load,
        seed: u64,
    ) -> io::Result<Self> {
        let (stop, closed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let done = Arc::<AtomicU64>::default();
        let (mut threads, mut files) = (Vec::new(), Vec::new());
        for (number, door) in (first..).zip(doors) {
            let file = folder.join(format!("client-{number}"));
            let out = File::create(&file)?;
            files.push(file);
            let client = Client {
                number,
                door,
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
        Ok(Self { stop, threads, files, done, closed, rate: load.rate, begun: Instant::now() })
    }

    /// Returns the number of the clients' operations that have a definite answer.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns a description of the problem if the clients got too few answers. [`LEAST_SHARE`] is the limit.
    pub(super) fn starved(&self) -> Option<String> {
        let (wanted, done) = (f64::from(self.rate) * self.begun.elapsed().as_secs_f64(), self.done());
        let is_starved = !self.are_closed() && (done as f64) < wanted * LEAST_SHARE;
        is_starved
            .then(|| format!("the clients got {done} answers, and should have begun {wanted:.0} operations"))
    }

    /// Returns whether the store of any client has closed for good, for example because its data is lost.
    #[must_use]
    pub fn are_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Makes the clients begin no new call.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the load, and waits until the clients have ended. For up to two minutes, they repeat calls that have no
    /// definite answer. Returns the clients' records.
    ///
    /// # Errors
    ///
    /// Fails if a history cannot be read.
    ///
    /// # Panics
    ///
    /// If a client has panicked.
    pub fn end(self) -> io::Result<Vec<Record>> {
        self.stop();
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
