//! Tests a journal with damaged bytes. If a synced operation is missing, the opening fails. Otherwise the store has the
//! same timers. The *seal* is a mark behind the records that all of them were synced.

use crate::faults::{Timers, clock, timers, try_timers};
use crate::machine::{Shared, machine_with, open};
use crate::{ALL, apply, assert_whole, claimant, keyed, place, timer};
use pollster::block_on;
use std::ops::Range;
use tourbillon::ManualClock;
use tourbillon_durable::state::State;
use tourbillon_durable::store::{Durability, Op, RedbStore, StoreError, StoreErrorKind, TimerStore};
use tourbillon_durable::timer::Timer;

const SECTOR: usize = 512;

/// Opens a store on the bytes of two files, the database and the journal. Returns the store's timers.
fn found(files: &[Vec<u8>; 2], clock: &ManualClock) -> Result<Timers, StoreError> {
    let store = open(&machine_with(&files[0], &files[1]), clock)?;
    assert_whole(&store);
    Ok(timers(&store))
}

fn apply_all(store: &RedbStore, ops: Vec<Op>, durability: Durability) {
    block_on(store.apply(ops, durability)).unwrap();
}

/// A machine whose journal has several synced records. Behind the records are remains of an earlier journal.
struct Lived {
    clock: ManualClock,
    machine: Shared,
    /// The store of the machine. The store stays open, because its close would make a checkpoint, a commit of the
    /// database.
    store: RedbStore,
    /// The timers of the store before the first record of the journal, and after each record.
    states: Vec<Timers>,
    /// The offset behind the last record after each sync of the journal, in bytes. Begins with 0.
    ends: Vec<usize>,
}

impl Lived {
    fn new() -> Self {
        let clock = clock();
        let machine = machine_with(&[], &[]);
        let store = open(&machine, &clock).unwrap();
        for first in [1, 11, 21] {
            let ops = (first..first + 10).map(|id| place(timer(id, 1 + u64::try_from(id).unwrap() % 7)));
            apply_all(&store, ops.collect(), Durability::PowerLoss);
        }
        // A compaction includes a checkpoint, so the journal begins again.
        block_on(store.compact()).unwrap();
        let (states, ends) = (vec![timers(&store)], vec![0]);
        let mut lived = Self { clock, machine, store, states, ends };
        lived.live();
        lived
    }

    fn live(&mut self) {
        let durable = Durability::PowerLoss;
        self.apply(place(timer(101, 9_000)), durable);
        self.apply(place(keyed(102, 9_000, "key")), durable);
        // The record of this change is written together with the record of the next change.
        apply(&self.store, place(timer(103, 9_000)), Durability::Volatile).unwrap();
        self.states.push(timers(&self.store));
        self.apply(Op::Cancel("key".into(), None), durable);
        let claimed = block_on(self.store.claim(claimant(1), 1, ALL, None)).unwrap();
        self.states.push(timers(&self.store));
        let leased = &claimed.leased[0];
        self.apply(Op::Ack(leased.timer.id, leased.token), durable);
        self.apply(place(keyed(104, 9_000, "key")), durable);
    }

    fn apply(&mut self, op: Op, durability: Durability) {
        apply(&self.store, op, durability).unwrap();
        self.states.push(timers(&self.store));
        self.ends.push(self.machine.lock().unwrap().files[1].synced_end);
    }

    /// Returns the bytes of the database and the journal that the death of the process leaves behind.
    fn killed(&self) -> [Vec<u8>; 2] {
        self.machine.lock().unwrap().files.each_ref().map(|file| file.current.clone())
    }

    /// Returns the bytes of the database and the journal after a loss of power. All bytes that were not synced are
    /// lost.
    fn cut(&self) -> [Vec<u8>; 2] {
        self.machine.lock().unwrap().files.each_ref().map(|file| file.synced.clone())
    }

    fn last(&self) -> &Timers {
        self.states.last().unwrap()
    }

    /// Returns the offset behind the last record of the journal, in bytes.
    fn end(&self) -> usize {
        *self.ends.last().unwrap()
    }

    /// Opens the store after damage to the journal. Asserts that damage before the offset `below` is an error. Damage
    /// behind `below` must have no effect.
    fn assert_noticed(&self, files: &[Vec<u8>; 2], below: usize, damage: Damage) {
        let damaged = damage.of(files);
        let meets = damaged[1][..below] != files[1][..below];
        match found(&damaged, &self.clock) {
            Ok(found) => {
                assert!(!meets, "{damage:?} is not noticed");
                assert!(found == *self.last(), "{damage:?}: {:?}", found.keys());
            }
            Err(error) => {
                assert!(meets, "{damage:?} is behind the records: {error}");
                assert_is_of_the_journal(&error);
            }
        }
    }
}

fn assert_is_of_the_journal(error: &StoreError) {
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("of the journal is damaged or missing"), "{error}");
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(usize, u32),
    Zeros(Range<usize>),
}

impl Damage {
    fn of(&self, files: &[Vec<u8>; 2]) -> [Vec<u8>; 2] {
        let mut damaged = files.clone();
        match self.clone() {
            Self::Flip(byte, bit) => damaged[1][byte] ^= 1 << bit,
            Self::Zeros(range) => damaged[1][range].fill(0),
        }
        damaged
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_journal_is_an_error_or_has_no_effect() {
    let lived = Lived::new();
    let files = lived.killed();
    assert!(lived.end() > 600, "{}", lived.end());
    assert!(found(&files, &lived.clock).unwrap() == *lived.last());
    for byte in 0..lived.end() + 200 {
        for bit in [0, u32::try_from(byte % 8).unwrap()] {
            lived.assert_noticed(&files, lived.end(), Damage::Flip(byte, bit));
        }
    }
    let damaged = found(&Damage::Flip(lived.ends[1] + 4, 7).of(&files), &lived.clock).unwrap_err();
    let place = format!("at offset {} of the journal is damaged", lived.ends[1]);
    assert!(damaged.to_string().contains(&place), "{damaged}");
    assert!(damaged.to_string().ends_with("is whole"), "{damaged}");
}

/// Tests zeroed bytes in the journal. Only the seal, a mark behind the records, shows that the last records were
/// synced. So the store writes the seal into two sectors.
#[test]
fn zeros_anywhere_in_the_journal_are_an_error_or_have_no_effect() {
    let lived = Lived::new();
    let files = lived.killed();
    for (length, step) in [(1, 1), (64, 5), (SECTOR, 3)] {
        for start in (0..lived.end() + 200).step_by(step) {
            lived.assert_noticed(&files, lived.end(), Damage::Zeros(start..start + length));
        }
    }
}

/// Tests a damaged record after a loss of power that takes the seal, the mark behind the synced records. Then only the
/// heads of later records show the damage.
#[test]
fn damage_and_a_loss_of_power_take_the_records_of_the_last_sync_at_most() {
    let lived = Lived::new();
    let files = lived.cut();
    assert!(found(&files, &lived.clock).unwrap() == *lived.last());
    let [.., before, end] = *lived.ends else { unreachable!() };
    let [.., earlier, _] = &*lived.states else { unreachable!() };
    for byte in 0..end {
        let damage = Damage::Flip(byte, u32::try_from(byte % 8).unwrap());
        if byte < before {
            lived.assert_noticed(&files, before, damage);
        } else {
            assert!(found(&damage.of(&files), &lived.clock).unwrap() == *earlier, "{damage:?}");
        }
    }
}

/// A journal with a torn tail: records that were written and not synced. `synced` has the files before the torn tail.
/// `records` has the end of each record of the tail, and the store's timers after each record.
struct Torn {
    lived: Lived,
    synced: [Vec<u8>; 2],
    written: [Vec<u8>; 2],
    records: Vec<(usize, Timers)>,
}

impl Torn {
    fn new(records: u128) -> Self {
        loop {
            let lived = Lived::new();
            lived.machine.lock().unwrap().loses_power = true;
            let (synced, mut records, mut written) = (lived.cut(), (0..records).rev(), lived.killed());
            let mut torn = Vec::new();
            // On a slow machine, the sync after 20 ms cuts this short. It may come between any two of these calls.
            let is_whole = records.all(|record| {
                let ops = (0..3).map(|n| place(timer(200 + 10 * record + n, 9_000))).collect();
                let made = block_on(lived.store.apply(ops, Durability::ProcessCrash));
                let end = lived.machine.lock().unwrap().files[1].end;
                let made = made.and_then(|_| try_timers(&lived.store));
                written = lived.killed();
                made.map(|timers| torn.push((end, timers))).is_ok()
            });
            if is_whole {
                return Self { lived, synced, written, records: torn };
            }
        }
    }
}

/// Tests losses of power that leave any sectors of the torn tail, the unsynced records of the journal. The database is
/// not changed.
#[test]
fn a_torn_tail_is_cut_off_whatever_sectors_of_it_the_disk_has() {
    let torn = Torn::new(7);
    let (end, clock) = (torn.records.last().unwrap().0, &torn.lived.clock);
    let sectors: Vec<usize> = (torn.lived.end() / SECTOR..end.div_ceil(SECTOR)).collect();
    assert!((5..10).contains(&sectors.len()), "{}", sectors.len());
    for subset in 0_u32..1 << sectors.len() {
        let is_there = |sector: usize| subset & (1 << (sector - sectors[0])) != 0;
        let mut files = torn.synced.clone();
        for sector in sectors.iter().copied().filter(|sector| is_there(*sector)) {
            let sector = sector * SECTOR..(sector + 1) * SECTOR;
            files[1][sector.clone()].copy_from_slice(&torn.written[1][sector]);
        }
        let whole =
            torn.records.iter().take_while(|(end, _)| (sectors[0]..end.div_ceil(SECTOR)).all(is_there));
        let expected = whole.last().map_or(torn.lived.last(), |(_, timers)| timers);
        assert!(found(&files, clock).unwrap() == *expected, "sectors {subset:b}");
        // Damage to the records before the tail is still an error.
        for byte in [0, 4, torn.lived.ends[1] + 30, torn.lived.ends[2] + 60] {
            let damaged = found(&Damage::Flip(byte, 3).of(&files), clock);
            assert_is_of_the_journal(&damaged.expect_err("damage below the tail"));
        }
    }
}

/// Tests a torn tail, unsynced records of the journal, whose second record is whole. A later opening writes a new first
/// record of the same length before the whole record.
#[test]
fn a_record_of_a_torn_tail_does_not_follow_a_later_record() {
    let mut torn = Torn::new(2);
    let (first, second) = (torn.records[0].0, torn.records[1].0);
    torn.written[1][torn.lived.end()..first].fill(0);
    let machine = machine_with(&torn.written[0], &torn.written[1]);
    let store = open(&machine, &torn.lived.clock).unwrap();
    assert!(timers(&store) == *torn.lived.last());
    // The journal begins again at offset 0. The second record of the torn tail is put behind its first new record.
    let tail = torn.written[1][first..second].to_vec();
    machine.lock().unwrap().files[1].current[first - torn.lived.end()..][..tail.len()].copy_from_slice(&tail);
    machine.lock().unwrap().loses_power = true;
    let ops = (0..3).map(|n| place(timer(300 + n, 9_000))).collect();
    let is_made = block_on(store.apply(ops, Durability::ProcessCrash)).is_ok();
    let end = machine.lock().unwrap().files[1].end;
    let expected = timers(&store);
    let files = machine.lock().unwrap().files.each_ref().map(|file| file.current.clone());
    assert!(is_made && end == first - torn.lived.end(), "{end}");
    assert!(found(&files, &torn.lived.clock).unwrap() == expected);
}

#[test]
fn a_journal_that_has_gone_on_without_its_database_is_an_error() {
    let lived = Lived::new();
    let [earlier, journal] = lived.killed();
    let machine = machine_with(&[], &[]);
    drop(open(&machine, &lived.clock).unwrap());
    // The journal lies beside the database of another store.
    let timers_file = machine.lock().unwrap().files[0].current.clone();
    let error = found(&[timers_file, journal], &lived.clock).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    // The journal lies beside an earlier copy of its own database.
    block_on(lived.store.compact()).unwrap();
    apply(&lived.store, place(timer(300, 9_000)), Durability::PowerLoss).unwrap();
    assert_is_of_the_journal(&found(&[earlier, lived.killed()[1].clone()], &lived.clock).unwrap_err());
}

/// Tests a journal of the first format, whose records have another head. That head begins with the length.
#[test]
fn a_journal_of_another_format_is_refused() {
    let lived = Lived::new();
    let [timers_file, journal] = lived.killed();
    let mut first = vec![0; journal.len()];
    first[..40].fill(5);
    let error = found(&[timers_file, first], &lived.clock).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("an earlier version's"), "{error}");
}

/// Tests a journal as a later version would write it. The layout of a record's head stays the same in all versions.
#[test]
fn a_journal_of_a_newer_version_is_refused_and_stays() {
    let lived = Lived::new();
    let [timers_file, mut journal] = lived.killed();
    let second = lived.ends[1];
    for head in [0, second] {
        journal[head + 3] += 1;
        let checksum = crc32fast::hash(&journal[head..head + 52]);
        journal[head + 52..head + 56].copy_from_slice(&checksum.to_le_bytes());
        let machine = machine_with(&timers_file, &journal);
        let error = open(&machine, &lived.clock).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NewerSchema, "{error}");
        let expected = "the journal has version 7, and the latest version that this program knows is 6";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(machine.lock().unwrap().files[1].current == journal, "the journal is changed");
        // A library of the version that wrote the journal can read it.
        journal[head + 3] -= 1;
        let checksum = crc32fast::hash(&journal[head..head + 52]);
        journal[head + 52..head + 56].copy_from_slice(&checksum.to_le_bytes());
        assert!(found(&[timers_file.clone(), journal.clone()], &lived.clock).unwrap() == *lived.last());
    }
}

#[test]
fn operations_in_a_journal_of_an_older_version_are_refused_and_stay() {
    let lived = Lived::new();
    let [timers_file, mut journal] = lived.killed();
    journal[3] -= 1;
    let checksum = crc32fast::hash(&journal[..52]);
    journal[52..56].copy_from_slice(&checksum.to_le_bytes());
    let machine = machine_with(&timers_file, &journal);
    let error = open(&machine, &lived.clock).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OlderSchema, "{error}");
    let expected =
        "a journal of version 5, and 6 is read here: open and close the store with the version that wrote it";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(machine.lock().unwrap().files[1].current == journal, "the journal is changed");
}

/// Returns a changed copy of the journal. In the last record that contains the bytes `from`, these bytes become `to`.
/// The checksums are right for the new bytes.
fn rewritten(journal: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut journal = journal.to_vec();
    let last = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).rposition(|found| found == wanted);
    let at = last(&journal, from).unwrap();
    journal[at..at + to.len()].copy_from_slice(to);
    let head = last(&journal[..at], b"tbj\x06").unwrap();
    let length = u32::from_le_bytes(journal[head + 4..head + 8].try_into().unwrap());
    let body = head + 56..head + 56 + usize::try_from(length).unwrap();
    assert!(body.contains(&at), "the bytes are in the body");
    let sums = [(body, head + 48), (head..head + 52, head + 52)];
    for (summed, place) in sums {
        let sum = crc32fast::hash(&journal[summed]);
        journal[place..place + 4].copy_from_slice(&sum.to_le_bytes());
    }
    journal
}

/// Tests a journal whose bytes now mean other operations, as they might for another version of the crate.
#[test]
fn an_opening_that_cannot_repeat_what_was_acknowledged_fails_and_changes_nothing() {
    let lived = Lived::new();
    apply_all(&lived.store, vec![place(keyed(399, 9_000, "used"))], Durability::PowerLoss);
    apply_all(&lived.store, vec![place(keyed(400, 9_000, "free"))], Durability::PowerLoss);
    let parked = Timer { state: State::Parked("z".into()), ..timer(401, 9_000) };
    apply_all(&lived.store, vec![place(parked)], Durability::PowerLoss);
    let [timers_file, journal] = lived.killed();
    let acknowledged = timers(&lived.store);
    let cases = [
        // Another timer has the key. So the timer is refused now, but was created at first.
        (rewritten(&journal, b"\x04free", b"\x04used"), "has another outcome"),
        // The new timer is dead, which no store accepts.
        (rewritten(&journal, b"\x02\x01z", b"\x03\x01z"), "was acknowledged and fails now"),
    ];
    for (other, reason) in &cases {
        let machine = machine_with(&timers_file, other);
        for _ in 0..2 {
            let error = open(&machine, &lived.clock).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
            let text = error.to_string();
            assert!(text.contains(reason) && text.contains("in the journal cannot be repeated"), "{text}");
        }
        let files = machine.lock().unwrap().files.each_ref().map(|file| file.current.clone());
        assert!(files[1] == *other, "the journal is changed");
        let found = found(&[files[0].clone(), journal.clone()], &lived.clock).unwrap();
        assert!(found == acknowledged, "{:?}", found.keys());
    }
}
