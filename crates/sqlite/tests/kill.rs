//! Kills a process by SIGKILL at random moments and starts it again. The process, the *child*, creates timers by its
//! runtime and in its own transactions, cancels them, and ends deliveries in transactions. The accounting is by logs
//! that are on the disk before the child goes on, and by the table of effects in the same database.
//!
//! `TOURBILLON_KILLS=1000 cargo test --release -p tourbillon-sqlite --test kill -- --nocapture` kills a thousand times.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs these tests")]
#![cfg(unix)]

use pollster::block_on;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tourbillon_durable::store::{Durability, Filter};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Delivery, Durable, Kind, Placed, Spec, Timers, UtcMillis, Verdict};
use tourbillon_sqlite::rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
use tourbillon_sqlite::{NotEnded, SqliteStore, Transactional};

#[derive(Debug, Serialize, Deserialize)]
struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

/// The environment variable with the folder of the logs and the database. The parent sets the variable for the child.
const FOLDER: &str = "TOURBILLON_KILL_FOLDER";
/// The environment variable that is set for the last child. The last child only delivers the due timers and lists the
/// rest.
const LAST: &str = "TOURBILLON_KILL_LAST";
const THREADS: u64 = 3;
const FIRST_ID: u128 = 0x7000_0000_0000_4000_8000_0000_0000_0000;
const MONTH: u64 = 30 * 86_400_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// A line of a log. Moments are milliseconds since the start of 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Line {
    /// A job's timer is about to be created.
    Intent { job: u64, due: u64 },
    /// The creation of a job's timer was acknowledged, by the store or by the commit of the child's transaction.
    Created { job: u64 },
    /// A job's timer is about to be cancelled.
    CancelIntent { job: u64 },
    /// The cancel of a job's timer was acknowledged, before any delivery.
    Cancelled { job: u64, at: u64 },
    /// A handler was called with a job.
    Delivered { job: u64, at: u64 },
    /// After the last child's deliveries, the store still has the job's timer.
    Left { job: u64 },
    /// A check of the store finds this fault.
    Fault { fault: String },
}

struct Log(File);

impl Log {
    fn open(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    fn write(&self, line: &Line) {
        // A kill may have torn the line before.
        let text = format!("\n{}\n", serde_json::to_string(line).unwrap());
        (&self.0).write_all(text.as_bytes()).unwrap();
    }
}

fn read(path: &Path) -> Vec<Line> {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn id_of(job: u64) -> TimerId {
    TimerId::from_u128(FIRST_ID + u128::from(job))
}

fn connect(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join("shop.db")).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
}

/// Runs as the child, the process that a test kills. Does nothing unless the parent has set [`FOLDER`].
#[test]
fn child_process() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        run(Path::new(&folder), std::env::var_os(LAST).is_some());
    }
}

fn run(folder: &Path, is_last: bool) {
    let delivered = Log::open(&folder.join("deliveries.log"));
    let store = SqliteStore::open(folder.join("shop.db")).unwrap();
    let transactional = store.transactional();
    let setup = connect(folder);
    setup.execute_batch("CREATE TABLE IF NOT EXISTS effects (job INTEGER)").unwrap();
    let (ending, place) = (transactional.clone(), folder.to_owned());
    let handler = move |Job(job): Job, delivery: Delivery| -> Verdict {
        delivered.write(&Line::Delivered { job, at: now() });
        if job % 2 == 0 {
            return Verdict::Done;
        }
        // The effect and the end of the delivery are one transaction.
        let mut connection = connect(&place);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        transaction.execute("INSERT INTO effects VALUES (?)", [job.cast_signed()]).unwrap();
        match ending.done(&transaction, delivery.id, delivery.token) {
            Ok(_) => transaction.commit().into(),
            Err(NotEnded::Lost(_)) => transaction.rollback().into(),
            Err(error) => panic!("{error}"),
        }
    };
    let durable = Durable::builder(store).blocking_handler(handler).catch_up_rate(None).start().unwrap();
    let timers = durable.handle();
    if is_last {
        list(folder, timers);
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let transactional = &transactional;
            scope.spawn(move || create(folder, timers, transactional, thread));
        }
    });
}

/// Creates and cancels timers until the process is killed. Each of several threads runs this function.
fn create(folder: &Path, timers: &Timers, transactional: &Transactional, thread: u64) {
    let path = folder.join(format!("creations-{thread}.log"));
    let before = read(&path);
    let last = before.iter().rev().find_map(|line| match line {
        Line::Intent { job, .. } => Some(*job),
        _ => None,
    });
    let log = Log::open(&path);
    let mut connection = connect(folder);
    let mut random = fastrand::Rng::new();
    let mut job = last.map_or(thread, |last| last + THREADS);
    let mut lately: Vec<u64> = Vec::new();
    loop {
        let due = match random.u8(0..10) {
            0 => MONTH,
            1 => 0,
            _ => random.u64(1..1_500),
        };
        let due = now() + due;
        log.write(&Line::Intent { job, due });
        let spec = Spec::new(Job(job)).id(id_of(job)).at(UtcMillis::from_millis(due));
        if random.bool() {
            let durability = if random.bool() { Durability::PowerLoss } else { Durability::ProcessCrash };
            let placed = timers.schedule_blocking(spec.durability(durability)).unwrap();
            assert!(matches!(placed, Placed::Created(_)), "{placed:?}");
        } else {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            transactional.schedule(&transaction, spec).unwrap();
            transaction.commit().unwrap();
            if random.bool() {
                transactional.wake();
            }
        }
        log.write(&Line::Created { job });
        lately.push(job);
        job += THREADS;
        if random.u8(0..3) == 0 {
            let job = lately.swap_remove(random.usize(0..lately.len()));
            log.write(&Line::CancelIntent { job });
            let cancelled = if random.bool() {
                timers.cancel_blocking(id_of(job)).unwrap()
            } else {
                transactional.cancel(&connection, id_of(job)).unwrap()
            };
            if let Cancelled::Cancelled(_) = cancelled {
                log.write(&Line::Cancelled { job, at: now() });
            }
        }
    }
}

/// Waits until all timers that are due within a minute were delivered. Then logs the timers that are still stored.
fn list(folder: &Path, timers: &Timers) {
    let soon = UtcMillis::from_millis(now() + 60_000);
    let left = || {
        let (mut left, mut cursor) = (Vec::new(), None);
        loop {
            let page = block_on(timers.list(Filter::default(), cursor, 1_000)).unwrap();
            left.extend(page.timers);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return left,
            }
        }
    };
    let until = Instant::now() + PATIENCE;
    while left().iter().any(|timer| timer.due < soon) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = Log::open(&folder.join("left.log"));
    for timer in left() {
        let job = timer.id.as_u128().wrapping_sub(FIRST_ID);
        log.write(&Line::Left { job: u64::try_from(job).unwrap() });
    }
    for fault in block_on(timers.check()).unwrap() {
        log.write(&Line::Fault { fault: fault.to_string() });
    }
}

fn start(folder: &Path, is_last: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_process", "--nocapture"]).env(FOLDER, folder);
    if is_last {
        command.env(LAST, "1");
    }
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// The facts about a job that the logs give.
#[derive(Clone, Debug, Default)]
struct Account {
    due: Option<u64>,
    is_created: bool,
    is_cancelled_perhaps: bool,
    cancelled_at: Option<u64>,
    delivered: Vec<u64>,
    is_left: bool,
}

fn accounts(lines: &[Line]) -> BTreeMap<u64, Account> {
    let mut accounts = BTreeMap::<u64, Account>::new();
    for line in lines {
        match *line {
            Line::Intent { job, due } => accounts.entry(job).or_default().due = Some(due),
            Line::Created { job } => accounts.entry(job).or_default().is_created = true,
            Line::CancelIntent { job } => accounts.entry(job).or_default().is_cancelled_perhaps = true,
            Line::Cancelled { job, at } => accounts.entry(job).or_default().cancelled_at = Some(at),
            Line::Delivered { job, at } => accounts.entry(job).or_default().delivered.push(at),
            Line::Left { job } => accounts.entry(job).or_default().is_left = true,
            Line::Fault { .. } => {}
        }
    }
    accounts
}

/// Returns the broken promises that the lines and the effects show.
fn faults(lines: &[Line], effects: &BTreeMap<u64, u64>, kills: &[(u64, u64)]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in lines {
        if let Line::Fault { fault } = line {
            found.insert(format!("a fault of the structure: {fault}"));
        }
    }
    for (job, account) in accounts(lines) {
        let Some(due) = account.due else {
            found.insert(format!("job {job} was never created"));
            continue;
        };
        let may_be_gone = account.is_cancelled_perhaps || !account.is_created;
        if !may_be_gone && !account.is_left && account.delivered.is_empty() {
            found.insert(format!("job {job} is lost"));
        }
        if account.delivered.iter().any(|at| *at < due) {
            found.insert(format!("job {job} is early"));
        }
        if account
            .cancelled_at
            .is_some_and(|at| account.is_left || account.delivered.iter().any(|other| *other > at))
        {
            found.insert(format!("job {job} was cancelled, and is there or delivered"));
        }
        let mut delivered = account.delivered.clone();
        delivered.sort_unstable();
        for pair in delivered.windows(2) {
            if !kills.iter().any(|(begin, end)| pair[0] <= *end && *begin <= pair[1]) {
                found.insert(format!("job {job} is delivered twice without a kill"));
            }
        }
        let effect = effects.get(&job).copied().unwrap_or(0);
        let ended = job % 2 == 1 && !account.delivered.is_empty() && !account.is_left;
        if effect > 1 || job % 2 == 1 && account.is_left && effect > 0 {
            found.insert(format!("the effect of job {job} is there {effect} times"));
        }
        if ended && effect == 0 && !account.is_cancelled_perhaps {
            found.insert(format!("job {job} has ended without its effect"));
        }
    }
    found
}

#[test]
fn nothing_is_lost_early_or_doubled_without_a_reason_by_kill_9() {
    let kills = std::env::var("TOURBILLON_KILLS").map_or(20, |kills| kills.parse::<u32>().unwrap());
    let seed =
        std::env::var("TOURBILLON_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("TOURBILLON_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = Vec::new();
    for kill in 1..=kills {
        let mut child = start(folder.path(), false);
        std::thread::sleep(Duration::from_millis(random.u64(20..500)));
        let begin = now();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "kill {kill}: the child ended by itself: {status}");
        killed.push((begin, now()));
    }
    assert!(start(folder.path(), true).wait().unwrap().success(), "the last child");
    let mut lines = Vec::new();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            lines.extend(read(&path));
        }
    }
    let connection = connect(folder.path());
    let mut effects = BTreeMap::<u64, u64>::new();
    let is_there = connection.query_row("SELECT 1 FROM sqlite_master WHERE name = 'effects'", [], |_| Ok(()));
    if is_there.optional().unwrap().is_some() {
        let mut query = connection.prepare("SELECT job FROM effects").unwrap();
        for job in query.query_map([], |row| row.get::<_, i64>(0)).unwrap() {
            *effects.entry(job.unwrap().cast_unsigned()).or_default() += 1;
        }
    }
    let accounts = accounts(&lines);
    let count = |is: &dyn Fn(&Account) -> bool| accounts.values().filter(|account| is(account)).count();
    let (created, delivered) = (count(&|job| job.is_created), count(&|job| !job.delivered.is_empty()));
    let again = count(&|job| job.delivered.len() > 1);
    let (cancelled, left) = (count(&|job| job.cancelled_at.is_some()), count(&|job| job.is_left));
    println!(
        "{kills} kills, {created} acknowledged, {delivered} delivered, {again} of them again after a kill, {cancelled} \
         cancelled, {left} stored at the end, {} effects",
        effects.len()
    );
    assert_eq!(faults(&lines, &effects, &killed), BTreeSet::new());
    let kills = kills as usize;
    assert!(created > 5 * kills && delivered > 2 * kills && cancelled > 0 && left > 0 && !effects.is_empty());
    // The checker must see each fault that is planted in the same logs.
    let is_plain = |account: &Account| {
        account.is_created && !account.is_cancelled_perhaps && account.delivered.len() == 1
    };
    let (job, account) = accounts.iter().find(|(job, account)| *job % 2 == 1 && is_plain(account)).unwrap();
    let with = |line: Line| [&lines[..], &[line]].concat();
    let at = account.delivered[0];
    let without: Vec<Line> = lines
        .iter()
        .filter(|line| !matches!(line, Line::Delivered { job: other, .. } if other == job))
        .cloned()
        .collect();
    let mut doubled = effects.clone();
    doubled.insert(*job, 2);
    let mut missing = effects.clone();
    missing.remove(job);
    let planted = [
        faults(&without, &effects, &killed),
        faults(&with(Line::Delivered { job: *job, at: account.due.unwrap() - 1 }), &effects, &killed),
        faults(&with(Line::Delivered { job: *job, at }), &effects, &[]),
        faults(&with(Line::Cancelled { job: *job, at: at - 1 }), &effects, &killed),
        faults(&with(Line::Left { job: *job }), &effects, &killed),
        faults(&lines, &doubled, &killed),
        faults(&lines, &missing, &killed),
    ];
    for (nth, found) in planted.iter().enumerate() {
        assert_ne!(*found, BTreeSet::new(), "planted fault {nth} is not seen");
    }
}
