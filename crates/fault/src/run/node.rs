//! Runs a node of a run: a runtime whose handler reports each delivery to the receiver.

use super::receiver::Post;
use super::target::Target;
use super::{moment, watch_stalls};
use crate::history::{Cause, Delivery, Fault, Id, Record};
use core::fmt;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::{Durable, Incident, Verdict};
use tourbillon_redis::RedisStore;

/// The kind of all timers in a run, by which a node selects their handler.
pub const KIND: &str = "fault";

/// How long a timer waits for its next delivery after its handler has failed on purpose.
pub(super) const AGAIN: Duration = Duration::from_millis(50);

/// The settings with which a node starts. A node is a process that delivers timers.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The Redis servers that store the timers.
    pub target: Target,
    /// The name of the deployment: all nodes and clients with this name share the timers.
    pub deployment: String,
    /// The number of shards into which the deployment divides its timers.
    pub shards: u16,
    /// The node's name in the history. Each start of a node has a new name.
    pub name: String,
    /// The path of the local socket at which the receiver, the process that records the run's deliveries, accepts the
    /// nodes' reports.
    pub receiver: PathBuf,
    /// How long the node's lease of a timer lasts after the node has taken or renewed the lease. When the lease has
    /// ended, another node may deliver the timer.
    pub lease: Duration,
    /// How long the node owns a shard after it has taken or renewed the ownership.
    pub ttl: Duration,
    /// The greatest number of handlers that the node runs at a time.
    pub workers: usize,
    /// Whether each handler hangs for ever after it has reported its delivery.
    pub hangs: bool,
}

/// How long a slow handler takes. One timer in sixteen has a slow handler.
pub(super) const SLOW: Duration = Duration::from_millis(60);

/// Returns whether the timer with this id has a slow handler.
pub(super) fn is_slow(id: Id) -> bool {
    id.is_multiple_of(16)
}

/// Returns the payload of a timer whose handler fails `fails` times before it succeeds. `series` is the id of the
/// timer's series.
#[must_use]
pub fn payload(fails: u32, series: Option<Id>) -> Vec<u8> {
    let series = series.map_or_else(|| "-".to_owned(), |series| format!("{series:x}"));
    format!("{fails} {series}").into_bytes()
}

fn read(payload: &[u8]) -> Option<(u32, Option<Id>)> {
    let (fails, series) = core::str::from_utf8(payload).ok()?.split_once(' ')?;
    Some((fails.parse().ok()?, Id::from_str_radix(series, 16).ok()))
}

thread_local! {
    static POST: RefCell<Option<Post>> = const { RefCell::new(None) };
}

/// Sends a record to the receiver, the process that records the run's deliveries, at the local socket `to`. Each thread
/// has its own connection to the receiver.
fn send(to: &Path, record: &Record) {
    POST.with_borrow_mut(|post| post.get_or_insert_with(|| Post::to(to)).send(record));
}

/// Starts a node in this process. Calls `on_closed` when the node's store has closed for good.
///
/// # Errors
///
/// Fails if the store cannot be opened.
///
/// # Panics
///
/// If the system cannot start threads.
pub fn start(
    settings: &NodeSettings,
    on_closed: impl Fn(&StoreError) + Send + Sync + 'static,
) -> Result<Durable, StoreError> {
    // The checks of an opening store are off, since they refuse the clocks of some runs.
    let builder = RedisStore::builder(settings.deployment.as_str());
    let builder = builder.shards(settings.shards).ttl(settings.ttl).unchecked();
    let store = pollster::block_on(builder.open(&settings.target.connect()))?;
    let settings = Arc::new(settings.clone());
    let lease = settings.lease;
    let workers = settings.workers;
    let handler = move |bytes: Box<[u8]>, delivery: tourbillon_durable::Delivery| {
        let begun = moment();
        let (fails, series) = read(&bytes).unwrap_or_default();
        let is_done = delivery.attempt > fails;
        let record = Delivery {
            arrived: begun,
            begun,
            id: delivery.id.as_u128(),
            stored: delivery.id.as_u128(),
            attempt: delivery.attempt,
            delivery: delivery.delivery,
            due: delivery.due.as_millis(),
            scheduled: delivery.scheduled.as_millis(),
            node: settings.name.as_str().into(),
            series,
            is_done,
        };
        send(&settings.receiver, &Record::Delivered(record));
        if settings.hangs {
            loop {
                thread::park();
            }
        }
        // Some handlers are slow, so that faults hit deliveries under way.
        if is_slow(delivery.id.as_u128()) {
            thread::sleep(SLOW);
        }
        let verdict = if is_done {
            Verdict::Done
        } else {
            Verdict::Retry { error: "as the payload asks".into(), after: Some(AGAIN) }
        };
        async move { verdict }
    };
    let on_incident = move |incident: &Incident| {
        if let Incident::StoreFailed(error) = incident
            && error.kind() == StoreErrorKind::Closed
        {
            on_closed(error);
        }
    };
    let builder = Durable::builder(store).bytes_handler(KIND, handler).on_incident(on_incident);
    Ok(builder.lease(lease).workers(workers).start().expect("threads"))
}

fn say(line: impl fmt::Display) {
    let mut out = io::stdout().lock();
    // The parent may be gone.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Returns the moment at which the monotonic clock was zero, in microseconds of UTC. Reads the time of day from the
/// standard library. So if the process runs under `faketime`, the result is shifted, too.
fn wall_of_programs() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros().saturating_sub(moment().into())
}

/// Runs a node until standard input ends. Writes a line to standard output at each change of the node's state:
///
/// - `ready`, with the moment of UTC at which the monotonic clock was zero, in microseconds;
/// - `failed`, with the error, if the node cannot start;
/// - `closed`, with the error, if the node's store has closed for good;
/// - `stopped`, with the number of the node's deliveries, including deliveries whose handlers did not begin.
pub fn serve(settings: &NodeSettings) {
    let (receiver, name) = (settings.receiver.clone(), settings.name.clone());
    watch_stalls(move |from, until| {
        let node = Some(name.as_str().into());
        send(&receiver, &Record::Fault(Fault { cause: Cause::Pause, node, from, until }));
    });
    let has_closed = AtomicBool::new(false);
    let on_closed = move |error: &StoreError| {
        if !has_closed.swap(true, Ordering::Relaxed) {
            say(format_args!("closed {error}"));
        }
    };
    let on_closed = Arc::new(on_closed);
    let durable = loop {
        let on_closed = Arc::clone(&on_closed);
        match start(settings, move |error| on_closed(error)) {
            Ok(durable) => break durable,
            // The server is away, so try again.
            Err(error) if error.is_transient() => thread::sleep(Duration::from_millis(100)),
            Err(error) => {
                say(format_args!("failed {error}"));
                return;
            }
        }
    };
    say(format_args!("ready {}", wall_of_programs()));
    let mut rest = Vec::new();
    drop(io::stdin().lock().read_to_end(&mut rest));
    let stats = durable.shutdown(Duration::from_secs(10));
    say(format_args!("stopped {}", stats.delivered));
}

/// Converts settings to the words of a command line, and back.
impl NodeSettings {
    /// Returns the settings as words of the form `name=value`.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        vec![
            format!("target={}", self.target),
            format!("deployment={}", self.deployment),
            format!("shards={}", self.shards),
            format!("name={}", self.name),
            format!("receiver={}", self.receiver.display()),
            format!("lease={}", self.lease.as_millis()),
            format!("ttl={}", self.ttl.as_millis()),
            format!("workers={}", self.workers),
            format!("hangs={}", self.hangs),
        ]
    }

    /// Reads settings from words of the form `name=value`. Returns `None` if a word is missing or wrong.
    #[must_use]
    pub fn of(words: &[String]) -> Option<Self> {
        let words: HashMap<&str, &str> = words.iter().filter_map(|word| word.split_once('=')).collect();
        let word = |name| words.get(name).copied();
        Some(Self {
            target: word("target")?.parse().ok()?,
            deployment: word("deployment")?.to_owned(),
            shards: word("shards")?.parse().ok()?,
            name: word("name")?.to_owned(),
            receiver: word("receiver")?.into(),
            lease: Duration::from_millis(word("lease")?.parse().ok()?),
            ttl: Duration::from_millis(word("ttl")?.parse().ok()?),
            workers: word("workers")?.parse().ok()?,
            hangs: word("hangs")?.parse().ok()?,
        })
    }
}
