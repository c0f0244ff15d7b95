//! Measures the store in a file:
//! - creations a second, one by one, by 64 callers that wait, and in batches of 1,000
//! - the bytes on the disk for each timer
//! - the time from the opening after SIGKILL to the first creation
//! - cancels by key and creations among a million pending timers, and the tables that occupy the file
//!
//! `cargo bench -p tourbillon-durable --bench redb`. The files are in the folder `TOURBILLON_BENCH_DIR`, or in the
//! system's folder for temporary files. A number as an argument replaces the million pending timers. `reopening` leaves
//! out the creations a second; `stock` measures only the last item.

#![expect(clippy::print_stdout, reason = "it prints figures")]

use pollster::block_on;
use redb::{ReadableDatabase, ReadableTableMetadata, TableHandle};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, IfPresent, Op, Outcome, RedbStore, TimerStore};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};

/// The duration of a single measurement.
const SPAN: Duration = Duration::from_secs(3);
const CALLERS: usize = 64;
/// A pause that is longer than the time between two checkpoints.
const QUIET: Duration = Duration::from_secs(12);

fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn key(number: u64) -> String {
    format!("{:016x}", mixed(number))
}

/// Makes a timer with a key of 16 bytes and a payload of 64 bytes. The timer is due at some time within a year.
fn timer(store: &RedbStore, number: u64) -> Timer {
    let due = UtcMillis::from_millis(store.now().as_millis() + 60_000 + mixed(number) % (365 * 86_400_000));
    Timer {
        key: Some(key(number).into()),
        payload: Payload(vec![7; 64].into()),
        ..Timer::new(TimerId::fresh(), "mail", due)
    }
}

fn place(timer: Timer) -> Op {
    Op::Place(Box::new(timer), IfPresent::Reject)
}

/// Creates timers for [`SPAN`], in batches of `at_once`. Returns the number of created timers.
fn create(store: &RedbStore, durability: Durability, at_once: u64, first: u64) -> u64 {
    let started = Instant::now();
    let mut created = 0;
    while started.elapsed() < SPAN {
        let ops = (0..at_once).map(|n| place(timer(store, first + created + n))).collect();
        created += block_on(store.apply(ops, durability)).unwrap().len() as u64;
    }
    created
}

fn rate(created: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let rate = created as f64 / SPAN.as_secs_f64();
    rate
}

fn report(name: &str, store: &RedbStore, created: u64) {
    let stats = store.stats();
    println!(
        "{name}: {:.0} creations a second; {} syncs of {:?} on average, {} checkpoints, {} batches",
        rate(created),
        stats.syncs,
        stats.sync_time.checked_div(u32::try_from(stats.syncs.max(1)).unwrap()).unwrap(),
        stats.checkpoints,
        stats.batches
    );
}

fn rates(folder: &Path) {
    for durability in [Durability::PowerLoss, Durability::ProcessCrash, Durability::Volatile] {
        let store = RedbStore::open(folder.join(format!("one-{durability:?}"))).unwrap();
        report(&format!("one by one, {durability:?}"), &store, create(&store, durability, 1, 0));
        let store = RedbStore::open(folder.join(format!("many-{durability:?}"))).unwrap();
        let created = thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS as u64)
                .map(|caller| {
                    let store = &store;
                    scope.spawn(move || create(store, durability, 1, caller << 40))
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        report(&format!("{CALLERS} callers, {durability:?}"), &store, created);
        let store = RedbStore::open(folder.join(format!("batch-{durability:?}"))).unwrap();
        report(&format!("batches of 1,000, {durability:?}"), &store, create(&store, durability, 1_000, 0));
    }
}

/// Creates `count` timers in the store, in batches of 1,000.
fn fill(store: &RedbStore, count: u64) {
    let mut at = 0;
    while at < count {
        let ops = (at..count.min(at + 1_000)).map(|n| place(timer(store, n))).collect();
        block_on(store.apply(ops, Durability::PowerLoss)).unwrap();
        at += 1_000;
    }
}

/// Fills the store at `path`, and prints a line as soon as it is full. Then creates timers one by one until the process
/// is killed.
fn fill_and_wait(path: &Path, count: u64) {
    let store = RedbStore::open(path).unwrap();
    fill(&store, count);
    println!("filled");
    let mut at = count;
    loop {
        let ops = vec![place(timer(&store, at))];
        block_on(store.apply(ops, Durability::ProcessCrash)).unwrap();
        at += 1;
    }
}

fn reopening(folder: &Path, count: u64) {
    let path = folder.join("million");
    let started = Instant::now();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--fill", path.to_str().unwrap(), &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 7];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    let filled = started.elapsed();
    thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    println!("{count} timers: filled in {filled:.1?}");
    let started = Instant::now();
    let store = RedbStore::open(&path).unwrap();
    let opened = started.elapsed();
    let next_due = store.next_due().unwrap();
    let known = started.elapsed();
    block_on(store.apply(vec![place(timer(&store, u64::MAX / 3))], Durability::PowerLoss)).unwrap();
    println!(
        "after SIGKILL: open in {opened:.1?}, first due moment ({}) in {known:.1?}, first creation in {:.1?}",
        next_due.unwrap(),
        started.elapsed()
    );
    let stored = block_on(store.counts()).unwrap().of(Phase::Pending);
    let bytes = |when: &str| {
        let bytes = store.size_on_disk().unwrap();
        println!("{when}: {bytes} bytes for {stored} timers, {} each", bytes / stored);
    };
    bytes("before compaction");
    let started = Instant::now();
    while block_on(store.compact()).unwrap() {
        bytes("compacted");
    }
    println!("compaction took {:.1?}", started.elapsed());
}

/// Makes `total` operations by all callers together, and prints their rate. Each caller takes the next free number.
fn by_callers(store: &RedbStore, noun: &str, total: u64, op: impl Fn(u64) -> Op + Sync) {
    let before = store.stats();
    let (next, started) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total {
                        break;
                    }
                    let outcomes = block_on(store.apply(vec![op(number)], Durability::PowerLoss)).unwrap();
                    assert!(
                        matches!(outcomes[0], Outcome::Cancelled(_) | Outcome::Created(_)),
                        "{outcomes:?}"
                    );
                }
            });
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let rate = total as f64 / started.elapsed().as_secs_f64();
    let stats = store.stats();
    println!(
        "{total} {noun}: {rate:.0} a second; {} syncs, which took {:.1?}, {} checkpoints, {} batches",
        stats.syncs - before.syncs,
        stats.sync_time - before.sync_time,
        stats.checkpoints - before.checkpoints,
        stats.batches - before.batches
    );
}

/// Measures cancels and creations in a full store, and the size of the store on the disk. The keys have a random order.
fn stock(folder: &Path, count: u64) {
    let path = folder.join("stock");
    let store = RedbStore::open(&path).unwrap();
    fill(&store, count);
    thread::sleep(QUIET);
    print_bytes(&store, "quiet");
    let churn = (count / 30).max(1);
    let chosen = |number: u64| number * 7_919 % count;
    let cancel = |number| Op::Cancel(Address::from(&*key(chosen(number))), None);
    by_callers(&store, &format!("cancels by key among {count}"), churn, cancel);
    thread::sleep(QUIET);
    let create = |number| place(timer(&store, chosen(number)));
    by_callers(&store, &format!("creations among {count}"), churn, create);
    thread::sleep(QUIET);
    print_bytes(&store, "after churn");
    store.close().unwrap();
    print_tables(&path);
    checks(&path);
    let store = RedbStore::open(&path).unwrap();
    while block_on(store.compact()).unwrap() {
        print_bytes(&store, "compacted");
    }
    store.close().unwrap();
    print_tables(&path);
}

/// Prints how long the two searches for damage take: the check of the pages, and the check of the structure.
#[expect(clippy::cast_precision_loss, reason = "figures")]
fn checks(path: &Path) {
    let bytes = std::fs::metadata(path).unwrap().len();
    let started = Instant::now();
    assert_eq!(RedbStore::builder().verify(path).unwrap(), []);
    let took = started.elapsed().as_secs_f64();
    println!("pages verified: {took:.2} s, {:.2} s for a GiB", took * f64::from(1 << 30) / bytes as f64);
    let store = RedbStore::builder().scrub(0).open(path).unwrap();
    let started = Instant::now();
    assert_eq!(block_on(store.check()).unwrap(), []);
    println!("structure checked: {:.2} s", started.elapsed().as_secs_f64());
    store.close().unwrap();
    let store = RedbStore::builder().scrub(u32::MAX).open(path).unwrap();
    let started = Instant::now();
    while store.stats().scrub.walks == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let (took, scrub) = (started.elapsed().as_secs_f64(), store.stats().scrub);
    println!(
        "a walk of the scrub without pauses: {took:.2} s, {:.1} us an entry",
        took * 1e6 / scrub.entries as f64
    );
    store.close().unwrap();
}

fn print_bytes(store: &RedbStore, when: &str) {
    let stored = block_on(store.counts()).unwrap().of(Phase::Pending);
    let bytes = store.size_on_disk().unwrap();
    println!("{when}: {bytes} bytes for {stored} timers, {} each", bytes / stored);
}

/// Prints how many bytes each table of a closed store occupies.
fn print_tables(path: &Path) {
    let database = redb::Database::open(path).unwrap();
    let reading = database.begin_read().unwrap();
    let mut pages = 0;
    for table in reading.list_tables().unwrap() {
        let name = table.name().to_owned();
        let table = reading.open_untyped_table(table).unwrap();
        let (entries, stats) = (table.len().unwrap(), table.stats().unwrap());
        pages += stats.leaf_pages() + stats.branch_pages();
        if entries > 10 {
            println!(
                "table {name}: {entries} entries; of each, stored {}, metadata {}, unused {} bytes; {} leaves, {} branches",
                stats.stored_bytes() / entries,
                stats.metadata_bytes() / entries,
                stats.fragmented_bytes() / entries,
                stats.leaf_pages(),
                stats.branch_pages(),
            );
        }
    }
    println!(
        "{pages} pages of 4,096 bytes in use, {} in the file",
        std::fs::metadata(path).unwrap().len() / 4_096
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, path, count] = &args[..]
        && flag == "--fill"
    {
        return fill_and_wait(Path::new(path), count.parse().unwrap());
    }
    let count = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let folder = match std::env::var_os("TOURBILLON_BENCH_DIR") {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let folder = folder.unwrap();
    if !args.iter().any(|arg| arg == "reopening" || arg == "stock") {
        rates(folder.path());
    }
    if args.iter().any(|arg| arg == "stock") {
        return stock(folder.path(), count);
    }
    reopening(folder.path(), count);
}
