//! A turn of ours: the same work as `peers/run.mjs`, in a process of its own.

use crate::process;
use crate::results::Figures;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::future::Future;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, IfPresent, RedbStore, TimerStore};
use tourbillon_durable::{Cancelled, Durable, Kind, Spec, Timers, UtcMillis};
use tourbillon_fault::Server;
use tourbillon_redis::{Connect, RedisStore};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The task of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) workload: String,
    pub(crate) sizes: Sizes,
    pub(crate) config: Config,
    pub(crate) dir: PathBuf,
    /// For the turn after a kill: the moment at which it began, in seconds since 1970.
    #[serde(default)]
    pub(crate) begin: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sizes {
    one: usize,
    pub(crate) waiting: usize,
    /// The callers of the part with several callers; 64 if it is 0.
    callers: usize,
    batch: usize,
    pub(crate) rate: usize,
    pub(crate) seconds: u64,
    pub(crate) lead: u64,
    pub(crate) timers: usize,
    /// The timers that are due at one moment, in the case of the service.
    pub(crate) herd: usize,
    pub(crate) quiet: u64,
    pub(crate) idle: u64,
    churn: usize,
    replaces: usize,
    overdue: usize,
    /// The number of nodes that share a server; 0 counts as 1.
    nodes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    durability: String,
    ends: String,
    /// Whether the turn is one of the service, and not of the library.
    #[serde(default)]
    service: bool,
    /// The setting of the Redis server on which the store is; none for a store in a file.
    #[serde(default)]
    appendfsync: Option<String>,
}

fn durability(name: &str) -> Durability {
    match name {
        "power" => Durability::PowerLoss,
        "process" => Durability::ProcessCrash,
        _ => Durability::Volatile,
    }
}

/// The payload: JSON of 64 bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub(crate) due: u64,
    pub(crate) n: usize,
    pad: String,
}

impl Kind for Payload {
    const NAME: &'static str = "t";
}

impl Payload {
    pub(crate) fn new(n: usize, due: u64) -> Self {
        let bare = format!("{{\"due\":{due},\"n\":{n},\"pad\":\"\"}}").len();
        Self { due, n, pad: "x".repeat(64 - bare) }
    }
}

pub(crate) fn key(n: usize) -> String {
    format!("t{n:015}")
}

/// The time in seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a moment of this century")]
pub(crate) fn millis(seconds: f64) -> u64 {
    (seconds * 1_000.0) as u64
}

pub(crate) fn check(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("the check failed: {}", message()).into()) }
}

/// `SplitMix64`, so that each turn gets the same moments.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    #[expect(clippy::cast_precision_loss, reason = "32 bits")]
    pub(crate) fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as f64 / f64::from(u32::MAX)
    }

    /// A moment in 1 to 30 days.
    pub(crate) fn far(&mut self) -> u64 {
        millis(now() + 86_400.0 * (1.0 + 29.0 * self.part()))
    }
}

/// The deliveries of a turn.
#[derive(Default)]
pub(crate) struct Deliveries {
    from: usize,
    noted: Mutex<Noted>,
    all: Notify,
}

#[derive(Default)]
pub(crate) struct Noted {
    fired: Vec<u8>,
    distinct: usize,
    pub(crate) doubled: usize,
    early: usize,
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) late_ms: Vec<f64>,
}

impl Deliveries {
    pub(crate) fn new(from: usize, count: usize) -> Arc<Self> {
        let noted = Noted { fired: vec![0; count], ..Noted::default() };
        Arc::new(Self { from, noted: Mutex::new(noted), all: Notify::new() })
    }

    #[expect(clippy::cast_precision_loss, reason = "a moment of this century")]
    pub(crate) fn note(&self, payload: &Payload) {
        let at = now();
        let mut noted = self.lock();
        let noted = &mut *noted;
        let Some(fired) = payload.n.checked_sub(self.from).and_then(|index| noted.fired.get_mut(index))
        else {
            return;
        };
        *fired = fired.saturating_add(1);
        if *fired > 1 {
            noted.doubled += 1;
            return;
        }
        if noted.distinct == 0 {
            noted.first = at;
        }
        noted.last = at;
        let late_ms = at * 1_000.0 - payload.due as f64;
        noted.early += usize::from(late_ms < 0.0);
        noted.late_ms.push(late_ms);
        noted.distinct += 1;
        if noted.distinct == noted.fired.len() {
            self.all.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all have fired.
    pub(crate) async fn end(&self, patience: Duration) -> Result<(), Failure> {
        let _timely = tokio::time::timeout(patience, self.all.notified()).await;
        let noted = self.lock();
        check(noted.early == 0, || format!("{} timers fired early", noted.early))?;
        let missing = noted.fired.len() - noted.distinct;
        check(missing == 0, || format!("{missing} timers did not fire"))
    }

    pub(crate) fn take(&self) -> Noted {
        core::mem::take(&mut *self.lock())
    }
}

/// An open store and a runtime on it, or several runtimes that share a server.
struct Subject {
    place: Place,
    durable: Durable,
    others: Vec<Durable>,
    durability: Durability,
}

/// Where the timers of a store are.
enum Place {
    File(Arc<RedbStore>),
    Server(Server),
}

impl Place {
    /// Opens a new store, or the store that is there.
    async fn open(task: &Task) -> Result<(Self, Arc<dyn TimerStore>), Failure> {
        let Some(appendfsync) = &task.config.appendfsync else {
            let store = Arc::new(RedbStore::open(task.dir.join("timers.redb"))?);
            return Ok((Self::File(Arc::clone(&store)), store));
        };
        // The server's folder is on the disk that the rounds measure.
        let _only_once = tempfile::env::override_temp_dir(&task.dir);
        let server = Server::start(&["--appendonly", "yes", "--appendfsync", appendfsync]);
        let server = server.ok_or("there is no redis-server")?;
        let place = Self::Server(server);
        let store = place.open_again().await?;
        Ok((place, store))
    }

    /// Opens the store once more, as another process does.
    async fn open_again(&self) -> Result<Arc<dyn TimerStore>, Failure> {
        match self {
            Self::File(_) => Err("a file has one process".into()),
            Self::Server(server) => {
                let connect = Connect::single(&server.url())?;
                Ok(Arc::new(RedisStore::builder("bench").open(&connect).await?))
            }
        }
    }

    /// The processes whose times and memory are counted.
    fn pids(&self) -> Vec<u32> {
        let server = match self {
            Self::File(_) => None,
            Self::Server(server) => Some(server.pid()),
        };
        server.into_iter().chain([std::process::id()]).collect()
    }

    fn cpu_seconds(&self) -> f64 {
        self.pids().into_iter().map(process::cpu_seconds).sum()
    }

    /// The processor time of the server, if there is one.
    fn server_cpu_seconds(&self) -> Option<f64> {
        match self {
            Self::File(_) => None,
            Self::Server(server) => Some(process::cpu_seconds(server.pid())),
        }
    }

    /// The memory for timers: of the server, or of the whole program.
    fn ram(&self) -> f64 {
        match self {
            Self::File(_) => process::ram(),
            Self::Server(server) => process::ram_of(server.pid()),
        }
    }

    fn peak(&self) -> f64 {
        match self {
            Self::File(_) => process::peak(),
            Self::Server(server) => process::peak_of(server.pid()),
        }
    }
}

impl Subject {
    async fn start(task: &Task, deliveries: &Arc<Deliveries>) -> Result<Self, Failure> {
        let start = |store| {
            let deliveries = Arc::clone(deliveries);
            let runtime = tokio::runtime::Handle::current();
            Durable::builder_on(store)
                .handler(move |payload: Payload, _| {
                    deliveries.note(&payload);
                    core::future::ready(())
                })
                .executor(move |work| drop(runtime.spawn(work)))
                .end_durability(durability(&task.config.ends))
                .catch_up_rate(None)
                .start()
        };
        let (place, store) = Place::open(task).await?;
        let durable = start(store)?;
        let mut others = Vec::new();
        for _ in 1..task.sizes.nodes {
            others.push(start(place.open_again().await?)?);
        }
        Ok(Self { place, durable, others, durability: durability(&task.config.durability) })
    }

    fn shutdown(self) {
        for durable in self.others.into_iter().chain([self.durable]) {
            let _stats = durable.shutdown(Duration::from_secs(10));
        }
    }

    fn timers(&self) -> Timers {
        self.durable.handle().clone()
    }

    async fn pending(&self) -> Result<usize, Failure> {
        Ok(usize::try_from(self.timers().counts().await?.of(Phase::Pending))?)
    }
}

async fn create(timers: &Timers, n: usize, due: u64, durability: Durability) -> Result<(), Failure> {
    let spec =
        Spec::new(Payload::new(n, due)).key(key(n)).at(UtcMillis::from_millis(due)).durability(durability);
    timers.schedule(spec).await?;
    Ok(())
}

/// The rate a second and two quantiles of the time of a call in milliseconds.
pub(crate) struct Pace {
    pub(crate) rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Pace {
    /// The pace of `total` calls in `time`; `times` has the nanoseconds of each.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    pub(crate) fn of(total: usize, time: Duration, times: &Histogram<u64>) -> Self {
        let quantile = |part: f64| times.value_at_quantile(part) as f64 / 1e6;
        Self { rate: total as f64 / time.as_secs_f64(), p50_ms: quantile(0.5), p99_ms: quantile(0.99) }
    }
}

/// Makes `total` calls, `count` of them waiting at a time.
async fn waiting<F, R>(count: usize, total: usize, call: F) -> Result<Pace, Failure>
where
    F: Fn(usize) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let callers = (0..count).map(|_| {
        let (next, call) = (Arc::clone(&next), call.clone());
        tokio::spawn(async move {
            let mut times = Histogram::<u64>::new(3)?;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= total {
                    return Ok::<_, Failure>(times);
                }
                let start = Instant::now();
                call(index).await?;
                times.record(u64::try_from(start.elapsed().as_nanos())?)?;
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut times = Histogram::<u64>::new(3)?;
    for caller in callers {
        times.add(caller.await??)?;
    }
    Ok(Pace::of(total, begin.elapsed(), &times))
}

/// Creates the timers `from` to `to`, 1,000 of them waiting at a time: the next thousand begins when the last is done.
async fn fill(
    timers: &Timers,
    (from, to): (usize, usize),
    durability: Durability,
    mut due: impl FnMut() -> u64,
) -> Result<(), Failure> {
    for batch in (from..to).step_by(1_000) {
        let calls = (batch..to.min(batch + 1_000)).map(|n| {
            let (timers, due) = (timers.clone(), due());
            tokio::spawn(async move { create(&timers, n, due, durability).await })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            call.await??;
        }
    }
    Ok(())
}

#[derive(Default)]
pub(crate) struct Numbers(pub(crate) Figures);

impl Numbers {
    pub(crate) fn put(&mut self, key: impl Into<String>, figure: f64) {
        self.0.numbers.insert(key.into(), figure);
    }

    pub(crate) fn pace(&mut self, name: &str, pace: &Pace) {
        self.put(format!("{name}_rate"), pace.rate);
        self.put(format!("{name}_p50_ms"), pace.p50_ms);
        self.put(format!("{name}_p99_ms"), pace.p99_ms);
    }

    /// The lateness of all deliveries, under keys that begin with `prefix`.
    pub(crate) fn late(&mut self, prefix: &str, noted: Noted) {
        let mut late = noted.late_ms;
        late.sort_unstable_by(f64::total_cmp);
        let Some(last) = late.len().checked_sub(1) else { return };
        for (key, per_mille) in
            [("min", 0), ("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999), ("max", 1_000)]
        {
            self.put(format!("{prefix}{key}_ms"), late[(late.len() * per_mille / 1_000).min(last)]);
        }
    }

    /// The rate of deliveries that were due at one moment.
    pub(crate) fn herd(&mut self, noted: &Noted, due: f64) {
        self.put("rate", 1.0 / per(noted.last - due, noted.late_ms.len()));
        self.put("last_ms", (noted.last - due) * 1_000.0);
        self.put("first_ms", (noted.first - due) * 1_000.0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
pub(crate) fn per(amount: f64, count: usize) -> f64 {
    amount / count as f64
}

async fn run_create(task: &Task) -> Result<Numbers, Failure> {
    let subject = Subject::start(task, &Deliveries::new(0, 0)).await?;
    let (mut numbers, sizes, durability) = (Numbers::default(), &task.sizes, subject.durability);
    let (mut from, ram) = (0, subject.place.ram());
    let callers = if sizes.callers == 0 { 64 } else { sizes.callers };
    let chance = Arc::new(Mutex::new(Chance(1)));
    let parts = [("one", sizes.one, 1), ("waiting", sizes.waiting, callers), ("batch", sizes.batch, 0)];
    for (name, total, count) in parts.into_iter().filter(|(_, total, _)| *total > 0) {
        let cpu = subject.place.cpu_seconds();
        let timers = subject.timers();
        let chance = Arc::clone(&chance);
        let far = move || chance.lock().unwrap_or_else(PoisonError::into_inner).far();
        let mut pace = if count > 0 {
            let call = move |index| {
                let (timers, due) = (timers.clone(), far());
                async move { create(&timers, from + index, due, durability).await }
            };
            waiting(count, total, call).await?
        } else {
            let call = move |batch| {
                let (timers, far) = (timers.clone(), far.clone());
                let first = from + batch * 1_000;
                async move { fill(&timers, (first, first + 1_000), durability, far).await }
            };
            waiting(1, total / 1_000, call).await?
        };
        if count == 0 {
            pace.rate *= 1_000.0;
        }
        numbers.pace(name, &pace);
        numbers.put(format!("{name}_cpu_us"), per((subject.place.cpu_seconds() - cpu) * 1e6, total));
        from += total;
        let pending = subject.pending().await?;
        check(pending == from, || format!("{name}: {pending} of {from} timers are there"))?;
    }
    numbers.put("ram", per(subject.place.ram() - ram, from));
    Ok(numbers)
}

async fn run_late(task: &Task) -> Result<Numbers, Failure> {
    let sizes = &task.sizes;
    let count = sizes.rate * usize::try_from(sizes.seconds)?;
    let deliveries = Deliveries::new(0, count);
    let subject = Subject::start(task, &deliveries).await?;
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let (lead, seconds) = (sizes.lead as f64, sizes.seconds as f64);
    let begin = now() + lead;
    let mut chance = Chance(1);
    fill(&subject.timers(), (0, count), subject.durability, || millis(begin + seconds * chance.part()))
        .await?;
    check(now() < begin, || "the window began before all timers were created".to_owned())?;
    let (cpu, server_cpu) = (subject.place.cpu_seconds(), subject.place.server_cpu_seconds());
    deliveries.end(Duration::from_secs(sizes.lead + sizes.seconds + 60)).await?;
    let mut numbers = Numbers::default();
    numbers.put("cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, count));
    if let Some(server_cpu) = server_cpu {
        let spent = subject.place.server_cpu_seconds().unwrap_or_default() - server_cpu;
        numbers.put("server_cpu_us", per(spent * 1e6, count));
    }
    subject.shutdown();
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    numbers.late("", noted);
    Ok(numbers)
}

async fn run_herd(task: &Task) -> Result<Numbers, Failure> {
    let count = task.sizes.timers;
    let deliveries = Deliveries::new(0, count);
    let own = process::peak();
    let subject = Subject::start(task, &deliveries).await?;
    let before = if matches!(subject.place, Place::File(_)) { own } else { subject.place.peak() };
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + task.sizes.lead as f64;
    fill(&subject.timers(), (0, count), subject.durability, || millis(due)).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    let cpu = subject.place.cpu_seconds();
    deliveries.end(Duration::from_secs(task.sizes.lead + 120)).await?;
    let mut numbers = Numbers::default();
    numbers.put("cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, count));
    numbers.put("peak_mb", (subject.place.peak() - before) / 1e6);
    subject.shutdown();
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    numbers.herd(&noted, due);
    Ok(numbers)
}

/// The first half of `stock`, which ends with the death of this process.
async fn run_stock(task: &Task) -> Result<Numbers, Failure> {
    let (sizes, total) = (&task.sizes, task.sizes.timers);
    let first = total + 1;
    let deliveries = Deliveries::new(first, sizes.overdue);
    let subject = Subject::start(task, &deliveries).await?;
    let timers = subject.timers();
    let (ram, disk) = (process::ram(), process::disk(&task.dir));
    let mut numbers = Numbers::default();
    let mut chance = Chance(1);
    fill(&timers, (0, total), Durability::Volatile, || chance.far()).await?;
    let pending = subject.pending().await?;
    check(pending == total, || format!("{pending} of {total} timers are there"))?;
    let quiet = Duration::from_secs(sizes.quiet);
    tokio::time::sleep(quiet).await;
    numbers.put("ram", per(process::ram() - ram, total));
    numbers.put("disk", per(process::disk(&task.dir) - disk, total));

    // Nothing is due. The parent process measures this process until it answers with a line.
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("{}", serde_json::json!({ "idle": [std::process::id()] }));
    let mut line = String::new();
    let _bytes = io::stdin().lock().read_line(&mut line)?;
    for (key, figure) in serde_json::from_str::<std::collections::BTreeMap<String, f64>>(&line)? {
        numbers.put(key, figure);
    }

    let chosen = move |index: usize| (index * 7_919) % total;
    let cancel = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            async move {
                let cancelled = timers.cancel(key(chosen(index)).as_str()).await?;
                check(matches!(cancelled, Cancelled::Cancelled(_)), || format!("cancel: {cancelled:?}"))
            }
        }
    };
    let cpu = process::cpu_seconds(std::process::id());
    let pace = waiting(64, sizes.churn, cancel).await?;
    numbers.pace("cancel", &pace);
    numbers.put("cancel_cpu_us", per((process::cpu_seconds(std::process::id()) - cpu) * 1e6, sizes.churn));
    let pending = subject.pending().await?;
    check(pending == total - sizes.churn, || "the cancelled timers are still there".to_owned())?;
    let due = chance.far();
    let durability = subject.durability;
    let again = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            let due = due + u64::try_from(index).unwrap_or(0);
            async move { create(&timers, chosen(index), due, durability).await }
        }
    };
    let _pace = waiting(64, sizes.churn, again).await?;
    let replace = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            let due = due + u64::try_from(index).unwrap_or(0);
            async move {
                let spec =
                    Spec::new(Payload::new(total, due)).key(key(total)).at(UtcMillis::from_millis(due));
                let spec = spec.if_present(IfPresent::Replace).durability(durability);
                timers.schedule(spec).await?;
                Ok(())
            }
        }
    };
    let pace = waiting(64, sizes.replaces, replace).await?;
    numbers.pace("replace", &pace);
    let pending = subject.pending().await?;
    check(pending == total + 1, || "replacing one key left more than one timer".to_owned())?;
    tokio::time::sleep(quiet).await;
    numbers.put("churned_disk", per(process::disk(&task.dir) - disk, total));
    numbers.put("churned_ram", per(process::ram() - ram, total));

    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + sizes.lead as f64;
    fill(&timers, (first, first + sizes.overdue), durability, || millis(due)).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    // The reader of this line kills the process before the timers are due: a living process would fire them.
    println!("{}", serde_json::json!({ "kill": due }));
    println!("{}", serde_json::to_string(&numbers.0)?);
    core::future::pending().await
}

/// The second half of `stock`, after the kill.
async fn run_recover(task: &Task) -> Result<Numbers, Failure> {
    let (sizes, first) = (&task.sizes, task.sizes.timers + 1);
    let deliveries = Deliveries::new(first, sizes.overdue);
    let subject = Subject::start(task, &deliveries).await?;
    let mut numbers = Numbers::default();
    let probe = first + sizes.overdue;
    create(&subject.timers(), probe, Chance(2).far(), subject.durability).await?;
    numbers.put("accepted_s", now() - task.begin);
    deliveries.end(Duration::from_secs(300)).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let noted = deliveries.take();
    numbers.put("fired_s", noted.first - task.begin);
    numbers.put("all_s", noted.last - task.begin);
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    numbers.put("doubled", noted.doubled as f64);
    let (pending, wanted) = (subject.pending().await?, first + 1);
    check(pending == wanted, || format!("{pending} timers are pending in place of {wanted}"))?;
    numbers.put("lost", 0.0);
    if let Place::File(file) = &subject.place {
        let _is_shorter = file.compact().await?;
    }
    numbers.put("compacted_disk", per(process::disk(&task.dir), sizes.timers));
    Ok(numbers)
}

/// The library's share of a turn of the service, without a network.
async fn run_beside_service(task: &Task) -> Result<Numbers, Failure> {
    let part = |name: &str, sizes: Sizes| -> Result<Task, Failure> {
        let dir = task.dir.join(name);
        std::fs::create_dir(&dir)?;
        Ok(Task { sizes, dir, ..task.clone() })
    };
    let sizes = &task.sizes;
    // First, since the memory is that of the whole process.
    let stock = part("stock", sizes.clone())?;
    let mut numbers = run_memory(&stock).await?;
    let create = part("create", Sizes { waiting: sizes.waiting, ..Sizes::default() })?;
    numbers.0.numbers.extend(run_create(&create).await?.0.numbers);
    let herd = part("herd", Sizes { timers: sizes.herd, ..sizes.clone() })?;
    for (key, figure) in run_herd(&herd).await?.0.numbers {
        numbers.put(if key == "cpu_us" { "herd_cpu_us".to_owned() } else { key }, figure);
    }
    for (key, figure) in run_late(&part("late", sizes.clone())?).await?.0.numbers {
        numbers.put(format!("late_{key}"), figure);
    }
    Ok(numbers)
}

async fn run_memory(task: &Task) -> Result<Numbers, Failure> {
    let subject = Subject::start(task, &Deliveries::new(0, 0)).await?;
    let total = task.sizes.timers;
    let mut chance = Chance(1);
    fill(&subject.timers(), (0, total), Durability::Volatile, || chance.far()).await?;
    let pending = subject.pending().await?;
    check(pending == total, || format!("{pending} of {total} timers are there"))?;
    tokio::time::sleep(Duration::from_secs(task.sizes.quiet)).await;
    let mut numbers = Numbers::default();
    numbers.put("stock_mb", process::resident(std::process::id()) / 1e6);
    numbers.put("stock_disk", per(process::disk(&task.dir), total));
    Ok(numbers)
}

/// Runs one turn, and prints its figures as a line of JSON.
pub(crate) fn turn(task: &str) -> Result<(), Box<dyn Error>> {
    let task: Task = serde_json::from_str(task)?;
    let runtime = Runtime::new()?;
    let workload = async {
        match &*task.workload {
            "create" => run_create(&task).await,
            "late" => run_late(&task).await,
            "herd" => run_herd(&task).await,
            "stock" => run_stock(&task).await,
            "recover" => run_recover(&task).await,
            "service" if task.config.service => crate::service::run(&task).await,
            "service" => run_beside_service(&task).await,
            other => Err(format!("no workload {other}").into()),
        }
    };
    let numbers = runtime.block_on(workload).map_err(|error| -> Box<dyn Error> { error })?;
    println!("{}", serde_json::to_string(&numbers.0)?);
    Ok(())
}
