//! Tests flipped bits and zeroed sectors of both files. No wrong timer is delivered, no call panics, and the damage is
//! named or stops the opening.

use crate::faults::{builder, clock};
use crate::machine::{Machine, machine_with, open, open_by, verify};
use crate::place::Place;
use crate::{ALL, apply, claimant, keyed, place, timer};
use core::time::Duration;
use pollster::block_on;
use redb::ReadableTable as _;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use tourbillon::Timestamp;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Durability, Fault, Filter, Op, TimerStore};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};

const SECTOR: usize = 512;
const TIMERS: u128 = 300;
/// The moment up to which about half of the timers are due, in milliseconds since 1970.
const HALF: u64 = 5_000;
const LATE: u64 = 100_000;

/// Makes timer number `n`. The timer's texts and payload differ from those of other timers.
fn any_timer(n: u128) -> Timer {
    let due = 1 + u64::try_from(n * 7_919 % 10_000).unwrap();
    let text = format!("the payload of timer {n}").into_bytes();
    Timer {
        payload: Payload(text.into()),
        labels: vec![format!("label {}", n % 7).into()],
        namespace: format!("namespace {}", n % 3).into(),
        has_chosen_id: n.is_multiple_of(5),
        state: if n.is_multiple_of(11) { State::Parked("later".into()) } else { State::Pending },
        ..keyed(n << 64 | n, due, &format!("key {n}"))
    }
}

/// The undamaged files of a store, and the store's timers.
struct Base {
    files: [Vec<u8>; 2],
    timers: BTreeMap<TimerId, Timer>,
    /// The ranges of each file that the store uses: each offset and length, in bytes.
    used: [Vec<(usize, usize)>; 2],
}

fn base(is_closed: bool) -> Base {
    let clock = clock();
    let machine = machine_with(&[], &[]);
    let store = open(&machine, &clock).unwrap();
    let all: Vec<Timer> = (1..=TIMERS).map(any_timer).collect();
    let (first, last) = all.split_at(250);
    for some in first.chunks(50) {
        block_on(store.apply(some.iter().cloned().map(place).collect(), Durability::PowerLoss)).unwrap();
    }
    // A compaction includes a checkpoint. So only the last timers are in the journal.
    block_on(store.compact()).unwrap();
    for timer in last {
        apply(&store, place(timer.clone()), Durability::PowerLoss).unwrap();
    }
    let mut timers: BTreeMap<TimerId, Timer> = all.into_iter().map(|timer| (timer.id, timer)).collect();
    // These cancels leave entries of remembered ids.
    for n in [5, 10, 290_u128] {
        let id = TimerId::from_u128(n << 64 | n);
        apply(&store, Op::Cancel(id.into(), None), Durability::PowerLoss).unwrap();
        timers.remove(&id);
    }
    let files = |machine: &Machine| machine.files.each_ref().map(|file| file.current.clone());
    let (killed, end) = {
        let machine = machine.lock().unwrap();
        (files(&machine), machine.files[1].synced_end)
    };
    drop(store);
    let files = if is_closed { files(&machine.lock().unwrap()) } else { killed };
    let read = machine_with(&files[0], &files[1]);
    assert_eq!(verify(&read, &clock).unwrap(), []);
    let mut pages = std::mem::take(&mut read.lock().unwrap().reads);
    pages.sort_unstable();
    pages.dedup();
    let journal = if is_closed { vec![] } else { vec![(0, end)] };
    Base { files, timers, used: [pages, journal] }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { file: usize, at: usize, bit: u32 },
    Zeros { file: usize, at: usize },
}

impl Damage {
    fn draw(base: &Base, rng: &mut fastrand::Rng, is_sector: bool) -> Self {
        loop {
            let file = usize::from(!base.used[1].is_empty() && rng.u8(0..5) == 0);
            let used = &base.used[file];
            let (start, length) = used[rng.usize(0..used.len())];
            let at = start + rng.usize(0..length);
            let bytes = &base.files[file];
            if is_sector {
                let at = at / SECTOR * SECTOR;
                if bytes[at..bytes.len().min(at + SECTOR)].iter().any(|byte| *byte != 0) {
                    return Self::Zeros { file, at };
                }
            } else if bytes[at] != 0 || rng.u8(0..4) == 0 {
                return Self::Flip { file, at, bit: rng.u32(0..8) };
            }
        }
    }

    fn of(self, base: &Base) -> [Vec<u8>; 2] {
        let mut files = base.files.clone();
        match self {
            Self::Flip { file, at, bit } => files[file][at] ^= 1 << bit,
            Self::Zeros { file, at } => {
                let end = files[file].len().min(at + SECTOR);
                files[file][at..end].fill(0);
            }
        }
        files
    }
}

#[derive(Debug, Default)]
struct Tally {
    refused: u32,
    named: u32,
    /// The number of the cases in `named` whose error has the id of the damaged timer.
    named_by_id: u32,
    without_effect: u32,
    delivered: usize,
    missing: usize,
}

fn assert_as_it_was(base: &Base, found: &Timer, damage: Damage) {
    let Some(timer) = base.timers.get(&found.id) else {
        panic!("{damage:?}: timer {} was never stored, or was cancelled", found.id)
    };
    let same = |timer: &Timer| {
        let Timer { key, payload, labels, namespace, kind, due, scheduled, policy, .. } = timer.clone();
        (key, payload, labels, namespace, kind, due, scheduled, policy)
    };
    assert_eq!(same(found), same(timer), "{damage:?}");
}

/// Opens a store whose files have the damage `damage`. Reads and delivers all timers of the store. Panics if the damage
/// has a wrong effect.
fn run(base: &Base, damage: Damage, tally: &mut Tally) {
    let files = damage.of(base);
    let clock = clock();
    let machine = machine_with(&files[0], &files[1]);
    let before = files.clone();
    let verified = verify(&machine, &clock);
    assert!(
        machine.lock().unwrap().files.each_ref().map(|file| &file.current) == [&before[0], &before[1]],
        "{damage:?}: the check of the pages has changed a file"
    );
    let mut faults = verified.unwrap_or_else(|error| {
        let text = error.to_string();
        vec![Fault::new("pages", None, text)]
    });
    let store = match open(&machine, &clock) {
        Ok(store) => store,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            tally.refused += 1;
            return;
        }
    };
    match block_on(store.check()) {
        Ok(found) => faults.extend(found),
        Err(error) => faults.push(Fault::new("pages", None, error.to_string())),
    }
    // Reads all timers by lists.
    let mut listed = 0;
    let mut cursor = None;
    for _ in 0..TIMERS {
        let Ok(page) = block_on(store.list(Filter::default(), cursor.take(), 100)) else { break };
        listed += page.timers.len();
        page.timers.iter().for_each(|timer| assert_as_it_was(base, timer, damage));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    for timer in base.timers.values() {
        if let Some(address) = timer.key_of()
            && let Ok(Some(found)) = block_on(store.get(Address::Key(address)))
        {
            assert_as_it_was(base, &found, damage);
            assert_eq!(found.id, timer.id, "{damage:?}: the key leads to another timer");
        }
    }
    let _counts = block_on(store.counts());
    let _horizon = block_on(store.horizon());
    let _next = store.next_due();
    let _upcoming = block_on(store.upcoming(UtcMillis::ZERO, UtcMillis::MAX, 10));
    let _unparked = apply(&store, Op::Unpark("later".into(), 1_000), Durability::Volatile);
    let mut delivered = BTreeMap::new();
    for (claim, now) in (1..).zip([HALF, LATE, LATE, LATE]) {
        clock.set(Timestamp::from_nanos(now * 1_000_000));
        let Ok(claimed) = block_on(store.claim(claimant(1), claim, ALL, None)) else { continue };
        for leased in claimed.leased {
            assert_as_it_was(base, &leased.timer, damage);
            let due = leased.timer.due.as_millis();
            assert!(due <= now, "{damage:?}: a timer of {due} is delivered at {now}");
            assert!(delivered.insert(leased.timer.id, leased.token).is_none(), "{damage:?}: twice");
        }
    }
    for (id, token) in &delivered {
        let _ended = apply(&store, Op::Ack(*id, *token), Durability::Volatile);
    }
    let missing = base.timers.len() - delivered.len();
    let _closed = store.close();
    tally.delivered += delivered.len();
    tally.missing += missing;
    if faults.is_empty() {
        assert_eq!((missing, listed), (0, base.timers.len()), "{damage:?} is not named, and timers are lost");
        tally.without_effect += 1;
    } else {
        tally.named += 1;
        tally.named_by_id += u32::from(faults.iter().any(|fault| fault.timer.is_some()));
    }
}

/// Tests damaged files of a store. `TOURBILLON_FLIPS` sets the number of flipped bits. A fifth of this number of
/// sectors is zeroed.
#[test]
fn flipped_bits_and_zeroed_sectors_deliver_nothing_wrong_and_are_named_or_refuse_the_start() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let flips = number("TOURBILLON_FLIPS").unwrap_or(60);
    let seed = number("TOURBILLON_SEED").unwrap_or(30);
    let mut rng = fastrand::Rng::with_seed(seed);
    let bases = [base(true), base(false)];
    for (name, count, is_sector) in [("flips", flips, false), ("sectors", flips.div_ceil(5), true)] {
        let (mut tally, started, mut failures) = (Tally::default(), Instant::now(), Vec::new());
        for nth in 0..count {
            let base = &bases[usize::try_from(nth % 2).unwrap()];
            let damage = Damage::draw(base, &mut rng, is_sector);
            let (trial, began) = (AssertUnwindSafe(|| run(base, damage, &mut tally)), Instant::now());
            if catch_unwind(trial).is_err() {
                failures.push((nth % 2, damage));
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{damage:?} takes {:?}", began.elapsed());
        }
        #[expect(clippy::print_stdout, reason = "figures")]
        {
            println!("{count} {name}, seed {seed}, {:?}: {tally:?}", started.elapsed());
        }
        assert!(failures.is_empty(), "seed {seed}: {failures:?}");
    }
}

/// Tests a record that is damaged while its store is open. The scrub, the search for damage, finds the record although
/// nobody asks for the timer.
#[test]
fn a_scrub_sets_a_damaged_record_aside_and_the_check_names_it_by_key_and_id() {
    let clock = clock();
    let machine = machine_with(&[], &[]);
    let store = open(&machine, &clock).unwrap();
    for n in 1..=20 {
        apply(&store, place(any_timer(n)), Durability::PowerLoss).unwrap();
    }
    drop(store);
    let needle = b"the payload of timer 7";
    {
        let mut machine = machine.lock().unwrap();
        let bytes = &mut machine.files[0].current;
        let found: Vec<usize> =
            (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(needle)).collect();
        assert!(!found.is_empty());
        found.into_iter().for_each(|at| bytes[at] ^= 1);
    }
    let pages = verify(&machine, &clock).unwrap();
    let text: Vec<String> = pages.iter().map(ToString::to_string).collect();
    assert!(text[0].starts_with("pages: the 4096 bytes at offset "), "{text:?}");
    let seven = TimerId::from_u128(7 << 64 | 7);
    let named = |fault: &str| {
        fault.contains(&seven.to_string())
            && fault.contains(r#"reads as key "key 7" of namespace "namespace 1""#)
    };
    assert!(text.iter().any(|fault| named(fault)), "{text:?}");

    let store = open_by(builder(&clock).scrub(1_000_000), &machine).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while store.stats().scrub.walks == 0 {
        assert!(Instant::now() < until, "{:?}", store.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
    // Each of the twenty timers has a record, and entries for its key, its label and its phase.
    assert!(store.stats().scrub.entries >= 77, "{:?}", store.stats());
    assert_eq!(block_on(store.counts()).unwrap().quarantined, 1);
    let faults: Vec<String> = block_on(store.check()).unwrap().iter().map(ToString::to_string).collect();
    assert!(faults.iter().any(|fault| fault.starts_with("quarantine: ") && named(fault)), "{faults:?}");
    clock.set(Timestamp::from_nanos(LATE * 1_000_000));
    let claimed = block_on(store.claim(claimant(1), 1, ALL, None)).unwrap();
    assert_eq!(claimed.leased.len(), 18, "the others but the damaged and the parked one");
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Leased), 18);
}

/// Tests the removal of damaged records. The removal first fails if it finds a new damaged record. So a check can name
/// the record before its removal.
#[test]
fn damaged_records_are_forgotten_only_once_they_were_named() {
    let place_of = Place::new();
    let clock = clock();
    let store = builder(&clock).open(place_of.file()).unwrap();
    for n in 1..=20 {
        apply(&store, place(any_timer(n)), Durability::PowerLoss).unwrap();
    }
    drop(store);
    let seven = TimerId::from_u128(7 << 64 | 7);
    {
        let database = redb::Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let timers = redb::TableDefinition::<&[u8; 16], &[u8]>::new("timers");
        let mut table = transaction.open_table(timers).unwrap();
        let key = seven.as_u128().to_be_bytes();
        let mut record = table.get(&key).unwrap().unwrap().value().to_vec();
        *record.last_mut().unwrap() ^= 1;
        table.insert(&key, &record[..]).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
    let forget = || builder(&clock).forget_damaged(place_of.file());
    let error = forget().unwrap_err();
    assert!(error.to_string().contains("more records are damaged"), "{error}");
    let faults = || {
        let store = builder(&clock).scrub(0).open(place_of.file()).unwrap();
        block_on(store.check()).unwrap()
    };
    assert!(faults().iter().any(|fault| fault.to_string().contains(&seven.to_string())), "{:?}", faults());
    assert_eq!(forget().unwrap(), 1);
    assert_eq!(faults(), []);
    assert_eq!(forget().unwrap(), 0);
}

/// Tests a database that has lost an index entry. The scrub, the search for damage, stores the entry again.
#[test]
fn a_scrub_mends_the_entries_by_which_timers_are_found() {
    let place_of = Place::new();
    let clock = clock();
    let store = builder(&clock).open(place_of.file()).unwrap();
    for n in 1..=20 {
        apply(&store, place(timer(n, 10)), Durability::PowerLoss).unwrap();
    }
    drop(store);
    let moved = |moment: u64| [&moment.to_be_bytes()[2..], &3_u128.to_be_bytes()].concat();
    {
        let database = redb::Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let due = redb::TableDefinition::<&[u8; 22], ()>::new("due");
        let mut table = transaction.open_table(due).unwrap();
        let key = |moment| <[u8; 22]>::try_from(moved(moment)).unwrap();
        assert!(table.remove(&key(10)).unwrap().is_some());
        table.insert(&key(1 << 40), ()).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
    let store = builder(&clock).scrub(1_000_000).open(place_of.file()).unwrap();
    assert!(!block_on(store.check()).unwrap().is_empty());
    let until = Instant::now() + Duration::from_secs(30);
    while !block_on(store.check()).unwrap().is_empty() {
        assert!(Instant::now() < until, "{:?}: {:?}", store.stats(), block_on(store.check()));
        std::thread::sleep(Duration::from_millis(5));
    }
    clock.set(Timestamp::from_nanos(10_000_000));
    assert_eq!(block_on(store.claim(claimant(1), 1, ALL, None)).unwrap().leased.len(), 20);
}

/// Tests a damaged entry of a lease. The opening ends all leases, and must not meet the entry again and again.
#[test]
fn a_store_opens_although_the_entry_of_a_lease_is_later_than_any_moment() {
    let place_of = Place::new();
    let clock = clock();
    let store = builder(&clock).open(place_of.file()).unwrap();
    for n in 1..=3 {
        apply(&store, place(timer(n, 10)), Durability::PowerLoss).unwrap();
    }
    assert_eq!(block_on(store.claim(claimant(1), 1, ALL, None)).unwrap().leased.len(), 3);
    drop(store);
    {
        let database = redb::Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let leases = redb::TableDefinition::<&[u8; 22], ()>::new("leases");
        let mut table = transaction.open_table(leases).unwrap();
        let mut damaged = [0xff; 22];
        damaged[6..].copy_from_slice(&2_u128.to_be_bytes());
        table.insert(&damaged, ()).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
    let (sender, opened) = std::sync::mpsc::channel();
    let (file, at) = (place_of.file(), clock.clone());
    std::thread::spawn(move || sender.send(builder(&at).open(file)).is_ok());
    let store = opened.recv_timeout(Duration::from_secs(60)).expect("the opening does not end").unwrap();
    assert_eq!(block_on(store.counts()).unwrap().of(Phase::Pending), 3);
    assert_eq!(block_on(store.check()).unwrap(), []);
}
