//! Tests power cuts, crashes while the store recovers, and disks that fail or are full.

use crate::disk::{Disk, Numbers};
use crate::machine::{machine_with, open};
use crate::{ALL, apply, assert_whole, claimant, get, keyed, place, timer};
use pollster::block_on;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Failure, Lease, State};
use tourbillon_durable::store::{
    Durability, MemoryStore, Op, RedbBuilder, RedbStore, Shares, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};

pub(crate) type Timers = BTreeMap<TimerId, Timer>;

pub(crate) fn clock() -> ManualClock {
    let clock = ManualClock::default();
    clock.set(Timestamp::from_nanos(1_000_000_000));
    clock
}

pub(crate) fn builder(clock: &ManualClock) -> RedbBuilder {
    RedbStore::builder().clock(clock.clone()).cache(1 << 20)
}

/// Returns all timers of a store, each in its state after the end of all leases.
pub(crate) fn timers(store: &impl TimerStore) -> Timers {
    try_timers(store).unwrap()
}

/// Works as [`timers`] for a store that may have failed.
pub(crate) fn try_timers(store: &impl TimerStore) -> Result<Timers, StoreError> {
    let timers = Arc::new(Mutex::new(Timers::new()));
    let into = Arc::clone(&timers);
    let each = move |timer: &Timer| {
        let mut timer = timer.clone();
        if let State::Leased(Lease { withdrawn, .. }) = timer.state {
            timer.state = State::Pending;
            if withdrawn.is_some() {
                return true;
            }
        }
        into.lock().unwrap().insert(timer.id, timer);
        true
    };
    block_on(store.export(Box::new(each)))?;
    Ok(std::mem::take(&mut *timers.lock().unwrap()))
}

/// Makes step number `step` of the workload. Returns whether the step's change must be on the disk now. `None` if the
/// step fails.
fn step(store: &impl TimerStore, step: u128) -> Option<bool> {
    let apply = |op, durability| block_on(store.apply(vec![op], durability)).is_ok();
    let claim = u64::try_from(step).unwrap();
    let (done, is_durable) = match step % 10 {
        0 | 5 => (apply(place(timer(step, 900)), Durability::PowerLoss), true),
        1 => (apply(place(keyed(step, 5_000, &format!("key {step}"))), Durability::Volatile), false),
        2 => {
            let cancel = Op::Cancel(format!("key {}", step - 1).as_str().into(), None);
            (apply(cancel, Durability::Volatile), false)
        }
        3 => {
            // The key was freed by the step before, which is not durable by itself.
            let again = keyed(step, 7_000, &format!("key {}", step - 2));
            (apply(place(again), Durability::PowerLoss), true)
        }
        4 | 6 => {
            let one = tourbillon_durable::store::Limit { timers: 1, ..ALL };
            let claimed = block_on(store.claim(claimant(1), claim, one, None));
            let ended = claimed.and_then(|claimed| {
                let end = claimed.leased.into_iter().map(|leased| match step % 10 {
                    4 => Op::Ack(leased.timer.id, leased.token),
                    _ => Op::Fail(leased.timer.id, leased.token, Failure::default()),
                });
                block_on(store.apply(end.collect(), Durability::PowerLoss))
            });
            (ended.is_ok(), true)
        }
        7 => (block_on(store.claim(claimant(1), claim, ALL, None)).is_ok(), false),
        8 => (block_on(store.import(vec![timer(step, 8_000)])).is_ok(), true),
        _ => (apply(place(timer(step, 850)), Durability::ProcessCrash), false),
    };
    done.then_some(is_durable)
}

/// Tests that a replay leases the timers of a claim in turn again. The shares of the claim are not in the journal, and
/// neither is the moment of the next claim, which depends on them.
#[test]
fn a_claim_in_turn_is_repeated_without_its_shares() {
    let clock = clock();
    let disk = Disk::default();
    let store = disk.open(builder(&clock)).unwrap();
    for (id, due) in (1..=6).map(|id| (id, 900)).chain([(7, 5_000)]) {
        apply(&store, place(timer(id, due)), Durability::Volatile).unwrap();
    }
    let mut shares = Shares::default();
    shares.free = 2;
    let claimed = block_on(store.claim(claimant(1), 1, ALL, Some(shares))).unwrap();
    let moments = [claimed.next_due, claimed.next_claim].map(|moment| moment.map(UtcMillis::as_millis));
    assert_eq!((claimed.leased.len(), moments), (2, [Some(900), Some(5_000)]), "the share is used up");
    apply(&store, place(timer(8, 5_000)), Durability::PowerLoss).unwrap();
    let wanted = timers(&store);
    let leased = claimed.leased.iter().map(|leased| leased.timer.id);
    assert!(wanted.values().filter(|timer| timer.deliveries == 1).map(|timer| timer.id).eq(leased));
    let repeated = disk.after_the_cut(None).open(builder(&clock)).unwrap();
    assert_whole(&repeated);
    assert_eq!(timers(&repeated), wanted);
}

/// Returns the expected timers before the workload and after each of its steps, from a store in memory.
fn expected(clock: &ManualClock, steps: u128) -> Vec<Timers> {
    let model = MemoryStore::new(clock.clone());
    let mut states = vec![timers(&model)];
    for number in 0..steps {
        step(&model, number).unwrap();
        states.push(timers(&model));
    }
    states
}

/// Runs the workload until the power goes. The store may then have one of several states of the workload. Returns the
/// indices of the first and the last of these states.
fn run_to_the_cut(disk: &Disk, clock: &ManualClock, steps: u128) -> (usize, usize) {
    let (mut least, mut most) = (0, 0);
    if let Ok(store) = disk.open(builder(clock)) {
        for number in 0..steps {
            most += 1;
            match step(&store, number) {
                Some(true) => least = most,
                Some(false) => {}
                None => break,
            }
        }
    }
    (least, most)
}

fn assert_recovered(
    disk: &Disk,
    clock: &ManualClock,
    states: &[Timers],
    (least, most): (usize, usize),
    cut: &str,
) {
    let store = disk.open(builder(clock)).unwrap();
    assert_whole(&store);
    let found = timers(&store);
    let at = states[least..=most].iter().position(|state| *state == found);
    assert!(at.is_some(), "{cut}: acknowledged {:#?}, found {found:#?}", states[least]);
    // The store must take changes again.
    apply(&store, place(timer(1_000, 1)), Durability::PowerLoss).unwrap();
}

#[test]
fn a_power_cut_at_any_write_loses_nothing_that_was_acknowledged() {
    let clock = clock();
    let steps = 30;
    let states = expected(&clock, steps);
    let mut cuts = 0;
    loop {
        let disk = Disk::default();
        disk.cut_at(cuts);
        let found = run_to_the_cut(&disk, &clock, steps);
        if !disk.is_cut() {
            assert_eq!(found.1, states.len() - 1);
            break;
        }
        assert_recovered(&disk.after_the_cut(None), &clock, &states, found, &format!("cut {cuts}"));
        for seed in 0..4 {
            let survivor = disk.after_the_cut(Some(Numbers(cuts * 4 + seed)));
            let cut = format!("cut {cuts}, seed {seed}");
            assert_recovered(&survivor, &clock, &states, found, &cut);
        }
        cuts += 1;
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn crashes_while_the_store_recovers_lose_nothing_either() {
    let clock = clock();
    let steps = 24;
    let states = expected(&clock, steps);
    let mut recoveries = 0;
    for cut in (0..).step_by(7) {
        let disk = Disk::default();
        disk.cut_at(cut);
        let found = run_to_the_cut(&disk, &clock, steps);
        if !disk.is_cut() {
            break;
        }
        for second in 0_u64.. {
            let mut survivor = disk.after_the_cut(Some(Numbers(cut)));
            let mut all_cut = true;
            for attempt in 0..3 {
                survivor.cut_at(second + attempt);
                drop(survivor.open(builder(&clock)));
                all_cut &= survivor.is_cut();
                survivor = survivor.after_the_cut(Some(Numbers(second ^ attempt)));
            }
            assert_recovered(&survivor, &clock, &states, found, &format!("cuts {cut}, {second}"));
            recoveries += 1;
            if !all_cut {
                break;
            }
        }
    }
    assert!(recoveries > 100, "{recoveries}");
}

/// Places timers until the disk has had all failures that the test has ordered. Then places five more timers. Returns
/// the answer for each timer.
fn place_through(disk: &Disk, store: &RedbStore, first: u128) -> BTreeMap<u128, Result<(), StoreErrorKind>> {
    let mut answers = BTreeMap::new();
    let mut after = 0;
    let until = Instant::now() + Duration::from_secs(20);
    for id in first.. {
        assert!(Instant::now() < until, "the store does not come back: {answers:?}");
        let answer = apply(store, place(timer(id, 5_000)), Durability::PowerLoss);
        let answer = answer.map(drop).map_err(|error| {
            assert!(error.is_transient(), "{error}");
            error.kind()
        });
        let is_ok = answer.is_ok();
        answers.insert(id, answer);
        if is_ok && disk.failures_left() == 0 {
            after += 1;
            if after == 5 {
                break;
            }
        }
        if !is_ok {
            thread::sleep(Duration::from_millis(1));
        }
    }
    answers
}

fn assert_answers_hold(store: &RedbStore, answers: &BTreeMap<u128, Result<(), StoreErrorKind>>) {
    for (id, answer) in answers {
        let is_stored = get(store, *id).is_some();
        match answer {
            Ok(()) => assert!(is_stored, "timer {id} is lost: {answers:?}"),
            Err(StoreErrorKind::Unknown) => {}
            Err(kind) => assert!(!is_stored, "timer {id} is stored in spite of {kind:?}: {answers:?}"),
        }
    }
    assert_whole(store);
}

#[test]
fn a_disk_that_fails_for_a_while_is_used_again_and_nothing_acknowledged_is_lost() {
    let clock = clock();
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
        for failures in [1, 2, 3, 4, 6, 8] {
            for before in [0, 2] {
                let disk = Disk::default();
                let store = disk.open(builder(&clock)).unwrap();
                for id in 0..before {
                    apply(&store, place(timer(id, 5_000)), Durability::PowerLoss).unwrap();
                }
                // This timer is only in memory when the disk begins to fail.
                apply(&store, place(timer(50, 5_000)), Durability::Volatile).unwrap();
                disk.fail(kind, failures);
                let mut answers = place_through(&disk, &store, 100);
                answers.extend((0..before).map(|id| (id, Ok(()))));
                answers.insert(50, Ok(()));
                assert_answers_hold(&store, &answers);
                drop(store);
                let store = disk.after_the_cut(None).open(builder(&clock)).unwrap();
                assert_answers_hold(&store, &answers);
            }
        }
    }
}

#[test]
fn a_full_disk_is_used_again_once_it_has_room() {
    let clock = clock();
    let disk = Disk::default();
    let store = disk.open(builder(&clock)).unwrap();
    disk.set_capacity(Some(disk.used() + 600_000));
    let mut answers = BTreeMap::new();
    let mut refusals = 0;
    for id in 0..20_000 {
        let ops = vec![place(timer(id, 5_000)), place(timer(id | 1 << 40, 5_000))];
        let answer = block_on(store.apply(ops, Durability::PowerLoss)).map(drop);
        refusals += u32::from(answer.is_err());
        answers.insert(id, answer.map_err(|error| error.kind()));
        if refusals == 3 {
            break;
        }
    }
    assert_eq!(refusals, 3);
    assert!(answers.len() > 100, "{}", answers.len());
    assert!(answers.values().any(|answer| *answer == Err(StoreErrorKind::Full)), "{answers:?}");
    disk.set_capacity(None);
    answers.extend(place_through(&disk, &store, 1 << 50));
    assert_answers_hold(&store, &answers);
    drop(store);
    let store = disk.after_the_cut(None).open(builder(&clock)).unwrap();
    assert_answers_hold(&store, &answers);
}

/// Tests creations whose disk fails at any single call, and a loss of power after the next opening. If the removal of
/// the creation's note has not reached the disk, the store must not be taken for another store.
#[test]
fn a_store_whose_creation_has_failed_at_any_call_keeps_its_timers_after_a_loss_of_power() {
    let clock = clock();
    let mut failed = 0;
    loop {
        let disk = Disk::default();
        disk.fail_after(failed, io::ErrorKind::Other, 1);
        if disk.open(builder(&clock)).is_ok() && disk.failures_left() > 0 {
            break;
        }
        let store = disk.open(builder(&clock)).unwrap();
        apply(&store, place(timer(1, 5_000)), Durability::Volatile).unwrap();
        // A compaction includes a checkpoint, which does not need the journal.
        block_on(store.compact()).unwrap();
        let after = disk.after_the_cut(None).open(builder(&clock));
        let after = after.unwrap_or_else(|error| panic!("call {failed}: {error}"));
        assert!(get(&after, 1).is_some(), "call {failed}");
        failed += 1;
    }
    assert!(failed > 5, "{failed}");
}

/// Tests many callers that wait for the disk at the same time. Several callers share a sync.
#[test]
fn callers_that_wait_share_a_sync() {
    let clock = clock();
    let disk = Disk::default();
    let store = disk.open(builder(&clock)).unwrap();
    disk.slow_syncs(Duration::from_millis(2));
    thread::scope(|scope| {
        for caller in 0..64 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..20 {
                    let op = place(timer(caller << 32 | number, 5_000));
                    apply(store, op, Durability::PowerLoss).unwrap();
                }
            });
        }
    });
    let stats = store.stats();
    assert_eq!(stats.operations, 64 * 20);
    assert!(stats.syncs <= stats.operations / 10, "{stats:?}");
    assert!(stats.largest_batch > 16, "{stats:?}");
}

#[test]
fn after_a_read_error_reads_are_answered_again_without_a_change() {
    assert_reads_return(1);
}

#[test]
fn after_failed_reopenings_reads_are_answered_again_without_a_change() {
    assert_reads_return(4);
}

/// Tests that reads succeed again after `failures` failed reads, although nothing is written. The first of these reads
/// is a caller's. Each further read belongs to an attempt to open the database again.
fn assert_reads_return(failures: u64) {
    let clock = clock();
    let disk = Disk::default();
    let store = disk.open(builder(&clock)).unwrap();
    // These timers need more bytes than the cache has.
    let last = 20_000;
    let many = (0..last).map(|id| place(timer(id, 5_000))).collect();
    block_on(store.apply(many, Durability::PowerLoss)).unwrap();
    drop(store);
    let store = disk.open(builder(&clock).scrub(0)).unwrap();
    disk.fail_reads_after(0, failures);
    let read = |id| block_on(store.get(TimerId::from_u128(id).into()));
    let failed = (0..last).find_map(|id| read(id).err()).expect("a page that was not read before");
    assert_eq!(failed.kind(), StoreErrorKind::Io);
    let until = Instant::now() + Duration::from_secs(10);
    while read(1).is_err() {
        assert!(Instant::now() < until, "the reads fail for good");
        thread::sleep(Duration::from_millis(1));
    }
    assert!((0..last).step_by(97).all(|id| read(id).unwrap().is_some()));
    assert_eq!(store.stats().reopened, 1);
}

/// Tests a disk that fails once more while the store replays its journal, after the first batches were replayed. The
/// store says nothing wrong about the file, and comes back.
#[test]
fn a_disk_that_fails_in_the_middle_of_a_replay_is_used_again() {
    let clock = clock();
    let whole = Disk::default();
    let store = whole.open(builder(&clock).scrub(0)).unwrap();
    // The batches of the replay change pages all over the file, and each page is read once.
    let many = (0..3_000).map(|id| place(timer(id, 5_000))).collect();
    block_on(store.apply(many, Durability::PowerLoss)).unwrap();
    drop(store);
    let mut all_read = false;
    for good in (0..).step_by(2) {
        let disk = whole.after_the_cut(None);
        let store = disk.open(builder(&clock).scrub(0)).unwrap();
        for id in (0..3_000).step_by(300) {
            let cancel = Op::Cancel(TimerId::from_u128(id).into(), None);
            drop(apply(&store, cancel, Durability::PowerLoss).unwrap());
        }
        // The write of the next record fails, and so does the checkpoint. The store opens its database again at once.
        disk.fail(io::ErrorKind::Other, 2);
        disk.fail_reads_after(good, 1);
        let answers = place_through(&disk, &store, 100_000);
        assert_answers_hold(&store, &answers);
        assert!((0..3_000).step_by(300).all(|id| get(&store, id).is_none()));
        if disk.read_failures_left() > 0 {
            all_read = true;
            break;
        }
    }
    assert!(all_read);
}

/// Tests a disk that loses a commit after it has synced the commit. The store does not go on without the lost batches,
/// although its journal is empty.
#[test]
fn batches_that_the_disk_has_lost_are_noticed_when_the_database_is_opened_again() {
    let clock = clock();
    let machine = machine_with(&[], &[]);
    let store = open(&machine, &clock).unwrap();
    apply(&store, place(timer(1, 5_000)), Durability::PowerLoss).unwrap();
    // A compaction includes a checkpoint.
    block_on(store.compact()).unwrap();
    let before = machine.lock().unwrap().files[0].clone();
    apply(&store, place(timer(2, 5_000)), Durability::PowerLoss).unwrap();
    block_on(store.compact()).unwrap();
    machine.lock().unwrap().is_off = true;
    drop(block_on(store.compact()).unwrap_err());
    assert!(try_timers(&store).is_err(), "the database is closed");
    {
        let mut machine = machine.lock().unwrap();
        (machine.files[0], machine.is_off) = (before, false);
    }
    let until = Instant::now() + Duration::from_secs(20);
    for id in 3.. {
        let error = apply(&store, place(timer(id, 5_000)), Durability::PowerLoss).unwrap_err();
        if error.kind() == StoreErrorKind::Corrupt {
            assert!(error.to_string().contains("are lost"), "{error}");
            break;
        }
        assert!(error.is_transient() && Instant::now() < until, "{error}");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(try_timers(&store).is_err(), "nobody reads a store without timer 2");
}

/// Opens a store twice, and makes changes of several kinds each time. Returns whether each timer must be stored. Leaves
/// out timers about which the answers say nothing certain.
fn small_life(disk: &Disk, clock: &ManualClock, mend: impl FnOnce()) -> BTreeMap<u128, bool> {
    let mut known = BTreeMap::new();
    let mut mend = Some(mend);
    for round in 0..2_u64 {
        let Ok(store) = disk.open(builder(clock)) else {
            mend.take().into_iter().for_each(|mend| mend());
            continue;
        };
        for id in (0..8).map(|id| id + 100 * u128::from(round)) {
            let due = if id % 2 == 0 { 500 } else { 5_000 };
            let answer = apply(&store, place(timer(id, due)), Durability::PowerLoss);
            match answer.map_err(|error| error.kind()) {
                Err(StoreErrorKind::Unknown) => {}
                answer => {
                    known.insert(id, answer.is_ok());
                }
            }
        }
        let one = tourbillon_durable::store::Limit { timers: 2, ..ALL };
        if let Ok(claimed) = block_on(store.claim(claimant(1), round + 1, one, None)) {
            for leased in claimed.leased {
                known.remove(&leased.timer.id.as_u128());
                let ack = Op::Ack(leased.timer.id, leased.token);
                if block_on(store.apply(vec![ack], Durability::PowerLoss)).is_ok() {
                    known.insert(leased.timer.id.as_u128(), false);
                }
            }
        }
        drop(block_on(store.compact()));
        drop(store.close());
        mend.take().into_iter().for_each(|mend| mend());
    }
    known
}

fn assert_known(disk: &Disk, clock: &ManualClock, known: &BTreeMap<u128, bool>, fault: &str) {
    let store = disk.open(builder(clock)).unwrap_or_else(|error| panic!("{fault}: {error}"));
    assert_whole(&store);
    for (id, is_stored) in known {
        assert_eq!(get(&store, *id).is_some(), *is_stored, "{fault}: timer {id}");
    }
    apply(&store, place(timer(999, 1)), Durability::PowerLoss).unwrap();
}

/// Tests stores whose disk fails. A single call of the disk fails, or each call until the store is closed.
/// `TOURBILLON_FAULTS` sets the number of stores.
#[test]
fn whatever_call_of_the_disk_fails_once_or_for_good_the_answers_hold() {
    let lives = std::env::var("TOURBILLON_FAULTS").map_or(120, |lives| lives.parse().unwrap());
    let clock = clock();
    let sound = Disk::default();
    assert_eq!(small_life(&sound, &clock, || {}).len(), 16);
    let (changes, reads) = (sound.changes(), sound.reads());
    let mut numbers = Numbers(11);
    let kinds = [
        io::ErrorKind::Other,
        io::ErrorKind::StorageFull,
        io::ErrorKind::Interrupted,
        // This kind stands for a write that is made in part.
        io::ErrorKind::WriteZero,
    ];
    for life in 0..lives {
        let disk = Disk::default();
        let times = if life % 2 == 0 { 1 } else { u64::MAX };
        let fault = if life % 5 == 4 {
            let at = numbers.next() % reads;
            disk.fail_reads_after(at, times);
            format!("life {life}: {times} reads after {at}")
        } else {
            let kind = kinds[usize::try_from(life % 5).unwrap()];
            let at = numbers.next() % changes;
            if kind == io::ErrorKind::WriteZero {
                disk.write_in_part();
            }
            disk.fail_after(at, kind, times);
            format!("life {life}: {times} changes after {at}, {kind:?}")
        };
        let known = small_life(&disk, &clock, || {
            disk.fail(io::ErrorKind::Other, 0);
            disk.fail_reads_after(0, 0);
        });
        disk.fail(io::ErrorKind::Other, 0);
        disk.fail_reads_after(0, 0);
        assert_known(&disk, &clock, &known, &fault);
        assert_known(&disk.after_the_cut(None), &clock, &known, &fault);
    }
    #[expect(clippy::print_stdout, reason = "a figure")]
    {
        println!("{lives} lives with a fault at one of {changes} changes and {reads} reads");
    }
}
