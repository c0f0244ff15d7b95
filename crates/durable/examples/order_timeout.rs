//! Runs a shop whose unpaid orders time out, and whose process dies in the middle.
//!
//! ```sh
//! cargo run --release -p tourbillon-durable --example order_timeout
//! ```
//! The shop takes 100,000 orders, each with a payment timeout between a second and thirty days. Some orders are paid,
//! which cancels their timeouts. In the middle the shop kills itself with SIGKILL, and is started again on the same
//! file. The example writes logs of its own, besides the store. In the end these logs show the fate of each order.
#![expect(clippy::print_stdout, reason = "the table is for whoever runs this program")]

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tourbillon_durable::store::{Filter, RedbStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Cancelled, Delivery, Durable, Kind, Spec, Timers, UtcMillis};

const ORDERS: u64 = 100_000;
/// The number of threads by which the shop takes orders, as a server does.
const THREADS: u64 = 64;
const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// How long the shop stays open after the last order.
const OPEN: Duration = Duration::from_secs(10);
const FOLDER: &str = "ORDER_TIMEOUT_FOLDER";

/// The payload of a timer that waits for a payment: the number of the order.
#[derive(Debug, Serialize, Deserialize)]
struct PaymentTimeout(u64);

impl Kind for PaymentTimeout {
    const NAME: &'static str = "payment timeout";
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return shop(Path::new(&folder));
    }
    let begin = Instant::now();
    let folder = tempfile::tempdir()?;
    for life in 1.. {
        let status = Command::new(std::env::current_exe()?).env(FOLDER, folder.path()).status()?;
        println!("{:>5.1} s: the shop's life {life} ended: {status}", begin.elapsed().as_secs_f64());
        if status.success() {
            break;
        }
        if life == 3 {
            return Err("the shop does not come up again".into());
        }
    }
    show(&Records::read(folder.path()))
}

// --- The shop ---

/// A log with a line for each event. A written line survives the process.
struct Log(File);

impl Log {
    fn open(folder: &Path) -> std::io::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(folder.join("log"))?))
    }

    fn write(&self, event: &str, order: u64, value: impl std::fmt::Display) {
        let line = format!("{event} {order} {value} .\n");
        (&self.0).write_all(line.as_bytes()).expect("the log can be written");
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn shop(folder: &Path) -> Result<(), Box<dyn Error>> {
    let before = Records::read(folder);
    let is_first_life = before.due.is_empty();
    let log = Log::open(folder)?;
    let log = &*Box::leak(Box::new(log));
    let time_out = |PaymentTimeout(order), delivery: Delivery| {
        log.write("timeout", order, format_args!("{} {}", delivery.id, now()));
    };
    let store = RedbStore::open(folder.join("orders.redb"))?;
    let durable = Durable::builder(store).blocking_handler(time_out).start()?;
    let timers = durable.handle();
    println!("         the shop is open; {} orders are on its books", before.accepted.len());
    let taken = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let before = &before;
            scope.spawn(move || {
                for order in (thread..ORDERS).step_by(usize::try_from(THREADS).unwrap_or(1)) {
                    take(order, timers, log, before);
                    // Kills the first life of the shop after half of the orders.
                    if taken.fetch_add(1, Ordering::Relaxed) == ORDERS / 2 && is_first_life {
                        kill_self();
                    }
                }
            });
        }
    });
    std::thread::sleep(OPEN);
    let stats = durable.handle().stats();
    println!("         {} deliveries, late by {:?} at most", stats.delivered, stats.lateness.max);
    let timers = timers.clone();
    let _stats = durable.shutdown(Duration::from_secs(5));
    let mut cursor = None;
    loop {
        let page = pollster::block_on(timers.list(Filter::default(), cursor, 10_000))?;
        for timer in page.timers {
            let PaymentTimeout(order) = serde_json::from_slice(&timer.payload.0)?;
            log.write("pending", order, "");
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Takes an order, and also its payment if the buyer pays at once. If an earlier process of the shop died, continues at
/// that point.
fn take(order: u64, timers: &Timers, log: &Log, before: &Records) {
    let mut random = fastrand::Rng::with_seed(order);
    // The timeouts are spread so that seconds, minutes, hours and days are equally frequent.
    let timeout = MONTH.as_secs_f64().powf(random.f64());
    let is_paid = random.u8(0..10) < 4;
    if !before.accepted.contains(&order) {
        let timeout = Duration::from_secs_f64(timeout);
        let due = now() + u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let due = before.due.get(&order).copied().unwrap_or(due);
        log.write("intent", order, due);
        let spec = Spec::new(PaymentTimeout(order)).at(UtcMillis::from_millis(due));
        // A life of the shop may have died between the store's answer and its log. The chosen id makes it safe to
        // repeat the call.
        let spec = spec.key(format!("order {order}")).id(TimerId::from_u128(u128::from(order) + 1));
        timers.schedule_blocking(spec).expect("the order is taken");
        log.write("accepted", order, "");
    }
    if is_paid && !before.paid.contains(&order) && !before.timed_out.contains_key(&order) {
        log.write("paying", order, "");
        match timers.cancel_blocking(&*format!("order {order}")).expect("the store answers") {
            Cancelled::Cancelled(_) => log.write("paid", order, ""),
            // An earlier life has already cancelled the timer, but died before it logged the answer.
            Cancelled::NotFound if before.paying.contains(&order) => log.write("paid", order, ""),
            _ => log.write("too-late", order, ""),
        }
    }
}

#[cfg(unix)]
fn kill_self() {
    use rustix::process::{Signal, getpid, kill_process};
    let _dead = kill_process(getpid(), Signal::KILL);
}

#[cfg(not(unix))]
fn kill_self() {
    std::process::abort();
}

// --- The books ---

/// The events of all orders, as read from the logs.
#[derive(Default)]
struct Records {
    due: BTreeMap<u64, u64>,
    accepted: BTreeSet<u64>,
    paying: BTreeSet<u64>,
    paid: BTreeSet<u64>,
    /// The deliveries of the timers of each order: the id of the delivery's timer, and the moment.
    timed_out: BTreeMap<u64, Vec<(String, u64)>>,
    pending: BTreeSet<u64>,
}

impl Records {
    fn read(folder: &Path) -> Self {
        let mut records = Self::default();
        let text = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // A line that the kill has cut short has no full stop at its end.
            let [event, order, rest @ .., "."] = &words[..] else { continue };
            let Ok(order) = order.parse::<u64>() else { continue };
            let number = |at: usize| rest.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            match *event {
                "intent" => drop(records.due.insert(order, number(0))),
                "accepted" => drop(records.accepted.insert(order)),
                "paying" => drop(records.paying.insert(order)),
                "paid" => drop(records.paid.insert(order)),
                "timeout" => {
                    records.timed_out.entry(order).or_default().push((rest[0].to_owned(), number(1)));
                }
                "pending" => drop(records.pending.insert(order)),
                _ => {}
            }
        }
        records
    }
}

fn show(records: &Records) -> Result<(), Box<dyn Error>> {
    let Records { due, accepted, paid, timed_out, pending, .. } = records;
    let is_kept =
        |order: &&u64| paid.contains(order) || timed_out.contains_key(order) || pending.contains(order);
    let lost = accepted.len() - accepted.iter().filter(is_kept).count();
    let deliveries = || timed_out.iter().flat_map(|(order, all)| all.iter().map(move |one| (order, one)));
    let early = deliveries().filter(|(order, (_, at))| *at < due[order]).count();
    let paid_and_delivered = paid.iter().filter(|order| timed_out.contains_key(order)).count();
    let again = deliveries().count() - timed_out.len();
    let of_other_ids = timed_out.values().filter(|all| all.iter().any(|(id, _)| *id != all[0].0)).count();
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let rows = [
        ("orders accepted", accepted.len()),
        ("paid in time: the timeout was cancelled", paid.len()),
        ("timed out", timed_out.len()),
        ("pending, for up to 30 days", pending.len()),
        ("lost", lost),
        ("timed out too early", early),
        ("timed out although paid", paid_and_delivered),
        ("delivered again after the kill, under the same id", again),
        ("delivered again under another id", of_other_ids),
    ];
    for (label, count) in rows {
        table.add_row([label.to_owned(), count.to_string()]);
    }
    println!("{table}");
    if accepted.len() as u64 == ORDERS && lost + early + paid_and_delivered + of_other_ids == 0 {
        Ok(())
    } else {
        Err("a promise was broken".into())
    }
}
