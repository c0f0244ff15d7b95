//! Tests damaged databases: no call panics, no wrong timer is delivered, and the damage is named.

use pollster::block_on;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, Filter, IfPresent, Limit, Op, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_sqlite::SqliteStore;
use tourbillon_sqlite::rusqlite::{Connection, params};

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(30) };
const ALL: Limit = Limit { timers: 10_000, bytes: u64::MAX };
const START: u64 = 1_800_000_000_000;
const TIMERS: u128 = 200;

fn open(path: &Path) -> Result<SqliteStore, tourbillon_durable::store::StoreError> {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos((START + 100_000) * 1_000_000));
    SqliteStore::builder().clock(clock).open(path)
}

fn timer(n: u128) -> Timer {
    Timer {
        key: Some(format!("key {n}").into()),
        labels: vec![format!("label {}", n % 7).into()],
        namespace: format!("namespace {}", n % 3).into(),
        payload: Payload(format!("the payload of timer {n}").into_bytes().into()),
        ..Timer::new(TimerId::from_u128(n << 64 | n), "job", UtcMillis::from_millis(START + 1))
    }
}

fn place(timer: Timer) -> Op {
    Op::Place(Box::new(timer), IfPresent::Reject)
}

/// Makes a closed database with timers.
fn make(path: &Path) {
    let store = open(path).unwrap();
    block_on(store.apply((1..=TIMERS).map(|n| place(timer(n))).collect(), Durability::PowerLoss)).unwrap();
    store.close().unwrap();
}

#[test]
fn a_damaged_record_is_set_aside_and_the_others_are_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    make(&path);
    let id = timer(17).id.as_u128().to_be_bytes();
    let connection = Connection::open(&path).unwrap();
    let record: Vec<u8> = connection
        .query_row("SELECT record FROM tourbillon_timers WHERE id = ?", [id], |row| row.get(0))
        .unwrap();
    let mut damaged = record.clone();
    damaged[20] ^= 4;
    connection.execute("UPDATE tourbillon_timers SET record = ? WHERE id = ?", params![damaged, id]).unwrap();
    let store = open(&path).unwrap();
    let faults = block_on(store.check()).unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].timer, Some(timer(17).id));
    assert_eq!(block_on(store.get(timer(17).id.into())).unwrap(), None);
    let claimed = block_on(store.claim(BY, 1, ALL, None)).unwrap();
    assert_eq!((claimed.leased.len(), claimed.quarantined), (TIMERS as usize - 1, 1));
    assert_eq!(block_on(store.check()).unwrap(), []);
    assert_eq!(block_on(store.counts()).unwrap().quarantined, 1);
    let aside: Vec<u8> = connection
        .query_row("SELECT record FROM tourbillon_set_aside WHERE id = ?", [id], |row| row.get(0))
        .unwrap();
    assert_eq!(aside, damaged, "the bytes are kept");
}

#[test]
fn damaged_columns_are_named_and_written_anew_from_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    make(&path);
    let far = timer(1);
    let store = open(&path).unwrap();
    let later = UtcMillis::from_millis(START + 1_000_000);
    block_on(store.apply(vec![Op::Move(far.id.into(), later)], Durability::PowerLoss)).unwrap();
    let connection = Connection::open(&path).unwrap();
    let id = far.id.as_u128().to_be_bytes();
    // The column says that the timer is due. Its record says that it is not.
    connection.execute("UPDATE tourbillon_timers SET due = 5 WHERE id = ?", [id]).unwrap();
    let faults = block_on(store.check()).unwrap();
    assert!(faults.iter().any(|fault| fault.timer == Some(far.id)), "{faults:?}");
    let claimed = block_on(store.claim(BY, 1, ALL, None)).unwrap();
    assert!(claimed.leased.iter().all(|leased| leased.timer.id != far.id), "a timer is early");
    assert_eq!(claimed.leased.len(), TIMERS as usize - 1);
    assert_eq!(claimed.next_due, Some(later));
    assert_eq!(block_on(store.check()).unwrap(), []);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let text = "a letter, and no database".repeat(100);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(open(&path).unwrap_err().kind(), StoreErrorKind::Corrupt);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_cursor_of_another_list_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    make(&path);
    let store = open(&path).unwrap();
    let by_id = block_on(store.list(Filter::default(), None, 10)).unwrap().next;
    let pending = Filter { phase: Some(Phase::Pending), ..Filter::default() };
    let refused = block_on(store.list(pending, by_id, 10)).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Limit);
}

/// Flips bits and zeroes sectors of the file, each time of a fresh copy. Whatever the store then does, it does not
/// panic, and each timer that it delivers is as it was stored.
#[test]
fn flipped_bits_and_zeroed_sectors_deliver_no_wrong_timer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    make(&path);
    let bytes = std::fs::read(&path).unwrap();
    let timers: BTreeMap<TimerId, Timer> = (1..=TIMERS).map(timer).map(|timer| (timer.id, timer)).collect();
    let seed =
        std::env::var("TOURBILLON_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    let cases = std::env::var("TOURBILLON_FLIPS").map_or(150, |cases| cases.parse().unwrap());
    let (mut refused, mut named, mut whole) = (0, 0, 0);
    for case in 0..cases {
        let mut damaged = bytes.clone();
        let at = random.usize(0..bytes.len());
        if case % 3 == 0 {
            let at = at / 512 * 512;
            damaged[at..at + 512].fill(0);
        } else {
            damaged[at] ^= 1 << random.u8(0..8);
        }
        let copy = folder.path().join(format!("copy-{case}.db"));
        std::fs::write(&copy, &damaged).unwrap();
        let Ok(store) = open(&copy) else {
            refused += 1;
            continue;
        };
        let faults = block_on(store.check());
        let is_named = faults.as_ref().map_or(true, |faults| !faults.is_empty());
        let _counts = block_on(store.counts());
        let _horizon = block_on(store.horizon());
        let _page = block_on(store.list(Filter::default(), None, 1_000));
        let claimed = block_on(store.claim(BY, 1, ALL, None));
        let mut delivered = 0;
        if let Ok(claimed) = &claimed {
            for leased in &claimed.leased {
                let was = timers
                    .get(&leased.timer.id)
                    .unwrap_or_else(|| panic!("seed {seed}, case {case}: a new timer"));
                let found = &leased.timer;
                assert_eq!(
                    (&found.key, &found.payload, &found.labels, &found.namespace, &found.kind, found.due),
                    (&was.key, &was.payload, &was.labels, &was.namespace, &was.kind, was.due),
                    "seed {seed}, case {case}"
                );
            }
            delivered = claimed.leased.len();
        }
        let is_whole = delivered == timers.len();
        assert!(
            is_whole || is_named || claimed.is_err(),
            "seed {seed}, case {case}: timers are missing, and nothing says so"
        );
        named += u32::from(is_named);
        whole += u32::from(is_whole);
    }
    assert!(refused + named > 0 && whole > 0, "{refused} refused, {named} named, {whole} whole");
}
