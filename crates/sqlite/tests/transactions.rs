//! Tests changes of timers in transactions of the program's own connections.

use pollster::block_on;
use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::state::{Death, DeathReason, Phase, State, Token};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{
    Cancelled, Changed, Delivery, Durable, Kind, Limits, Placed, Rejection, Spec, UtcMillis, Verdict,
};
use tourbillon_sqlite::{NotEnded, SqliteStore, Transactional, migrate, rusqlite};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Job(u64);

impl Kind for Job {
    const NAME: &'static str = "job";
}

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(30) };
const ALL: Limit = Limit { timers: 1_000, bytes: u64::MAX };
const PATIENCE: Duration = Duration::from_secs(20);

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    Place { _folder: folder, path }
}

fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_nanos(1_800_000_000_000_000_000));
    clock
}

fn store_on(path: &Path, clock: &ManualClock) -> SqliteStore {
    SqliteStore::builder().clock(clock.clone()).open(path).unwrap()
}

fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
}

/// Claims the only due timer of a store.
fn the_due(store: &SqliteStore, clock: &ManualClock, claim: u64) -> (TimerId, Token) {
    // A timer without a moment is due a millisecond after its creation.
    clock.advance(Duration::from_millis(1));
    let claimed = block_on(store.claim(BY, claim, ALL, None)).unwrap();
    assert_eq!(claimed.leased.len(), 1, "one timer is due");
    (claimed.leased[0].timer.id, claimed.leased[0].token)
}

fn pending(store: &SqliteStore) -> u64 {
    block_on(store.counts()).unwrap().of(Phase::Pending)
}

#[test]
fn a_timer_of_a_transaction_exists_from_the_commit_on() {
    let (place, clock) = (place(), clock());
    let store = store_on(&place.path, &clock);
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    let transaction = connection.transaction().unwrap();
    let placed = timers.schedule(&transaction, Spec::new(Job(17)).key("order 17")).unwrap();
    assert!(timers.get(&transaction, "order 17").unwrap().is_some(), "the transaction sees its own timer");
    assert_eq!(block_on(store.get("order 17".into())).unwrap(), None, "others do not");
    transaction.commit().unwrap();
    let stored = block_on(store.get("order 17".into())).unwrap().unwrap();
    assert_eq!((stored.id, stored.created), (placed.id(), store.now()));
    assert_eq!(the_due(&store, &clock, 1).0, placed.id());
    assert_eq!(block_on(store.check()).unwrap(), []);
}

#[test]
fn a_rollback_leaves_nothing_behind() {
    let (place, clock) = (place(), clock());
    let store = store_on(&place.path, &clock);
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    let kept = timers.schedule(&connection, Spec::new(Job(1)).key("kept").label("all")).unwrap().id();
    let transaction = connection.transaction().unwrap();
    timers.schedule(&transaction, Spec::new(Job(2)).key("new").label("all")).unwrap();
    assert!(matches!(timers.cancel(&transaction, "kept").unwrap(), Cancelled::Cancelled(_)));
    let later = store.now() + Duration::from_secs(60);
    timers.move_to(&transaction, "new", later).unwrap();
    transaction.rollback().unwrap();
    assert_eq!(block_on(store.get("new".into())).unwrap(), None);
    assert_eq!(block_on(store.get("kept".into())).unwrap().map(|timer| timer.id), Some(kept));
    assert_eq!(pending(&store), 1);
    assert_eq!(block_on(store.check()).unwrap(), []);
}

#[test]
fn an_error_changes_nothing_and_the_transaction_goes_on() {
    let (place, clock) = (place(), clock());
    let store = store_on(&place.path, &clock);
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    let transaction = connection.transaction().unwrap();
    let first = timers.schedule(&transaction, Spec::new(Job(1)).key("a")).unwrap().id();
    let refused = timers.schedule(&transaction, Spec::new(Job(2)).key("a")).unwrap_err();
    assert!(matches!(refused.reason, Rejection::KeyExists(holder) if holder == first));
    assert_eq!(refused.payload, Job(2), "the payload is handed back");
    let long = "x".repeat(300);
    let refused = timers.schedule(&transaction, Spec::new(Job(3)).key(&*long)).unwrap_err();
    assert!(matches!(refused.reason, Rejection::TooLong(_)));
    let mut limits = Limits::default();
    limits.payload = 3;
    let small = timers.clone().limits(limits);
    let refused = small.schedule_bytes(&transaction, "job", Spec::new(b"long".to_vec())).unwrap_err();
    assert_eq!(
        (&*refused.payload, matches!(refused.reason, Rejection::PayloadTooLong(4))),
        (&b"long"[..], true)
    );
    // The second of two operations fails, so the first has no effect either.
    let good = Spec::new(Job(4)).key("b").operation_of_kind(store.now(), &Limits::default()).unwrap();
    let Op::Place(mut bad, _) = good.clone() else { panic!("a creation") };
    bad.id = TimerId::from_u128(9);
    bad.namespace = long.into();
    let bad = Op::Place(bad, IfPresent::Reject);
    let error = timers.apply(&transaction, vec![good, bad]).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Limit);
    let replaced = timers.schedule(&transaction, Spec::new(Job(5)).key("a").if_present(IfPresent::Replace));
    assert!(matches!(replaced.unwrap(), Placed::Replaced { old, .. } if old == first));
    transaction.commit().unwrap();
    assert_eq!(pending(&store), 1);
    assert_eq!(block_on(store.check()).unwrap(), []);
}

/// Tests a database without SQLite's log, in which a commit waits for readers.
#[test]
fn a_commit_that_a_reader_prevents_leaves_no_open_transaction() {
    let place = place();
    let (mut writer, reader) = (connect(&place.path), connect(&place.path));
    migrate(&mut writer).unwrap();
    writer.busy_timeout(Duration::from_millis(50)).unwrap();
    let count = || -> i64 {
        reader.query_row("SELECT count(*) FROM tourbillon_timers", [], |row| row.get(0)).unwrap()
    };
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(), 0);
    let timers = Transactional::default();
    let refused = timers.schedule(&writer, Spec::new(Job(1)).key("a")).unwrap_err();
    assert!(matches!(&refused.reason, Rejection::Store(error) if error.kind() == StoreErrorKind::Io));
    assert!(writer.is_autocommit(), "the transaction is open");
    reader.execute_batch("COMMIT").unwrap();
    assert!(matches!(timers.schedule(&writer, Spec::new(Job(2)).key("a")).unwrap(), Placed::Created(_)));
    assert_eq!(count(), 1);
    // The program's own transaction goes on after an error, and its commit is its own.
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(), 1);
    writer.execute_batch("BEGIN").unwrap();
    timers.schedule(&writer, Spec::new(Job(3)).key("b")).unwrap();
    assert!(writer.execute_batch("COMMIT").is_err() && !writer.is_autocommit());
    reader.execute_batch("COMMIT").unwrap();
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(count(), 2);
}

#[test]
fn a_transaction_that_commits_late_is_not_lost() {
    let (place, clock) = (place(), clock());
    let store = store_on(&place.path, &clock);
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    // The transaction creates a timer that is due at once, and stays open while other timers come and go.
    let late = connection.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    let early = timers.schedule(&late, Spec::new(Job(1))).unwrap().id();
    clock.advance(Duration::from_secs(60));
    // SQLite has one writer at a time, so the claim waits for the transaction.
    std::thread::scope(|scope| {
        let claims = scope.spawn(|| block_on(store.claim(BY, 1, ALL, None)).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        late.commit().unwrap();
        let claimed = claims.join().unwrap();
        assert_eq!(claimed.leased.iter().map(|leased| leased.timer.id).collect::<Vec<_>>(), [early]);
    });
    // A timer that is due before all that was claimed is found by the next claim.
    let past = UtcMillis::from_millis(1_000);
    let op = Spec::new(Job(2)).at(past).operation_of_kind(store.now(), &Limits::default()).unwrap();
    let Op::Place(mut timer, _) = op else { panic!("a creation") };
    timer.due = past;
    timers.apply(&connection, vec![Op::Place(timer, IfPresent::Reject)]).unwrap();
    assert_eq!(block_on(store.claim(BY, 2, ALL, None)).unwrap().leased[0].timer.due, past);
}

#[test]
fn an_end_happens_once_with_its_effect() {
    let (place, clock) = (place(), clock());
    let store = store_on(&place.path, &clock);
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    connection.execute_batch("CREATE TABLE effects (job INTEGER)").unwrap();
    timers.schedule(&connection, Spec::new(Job(1))).unwrap();
    let (id, lost) = the_due(&store, &clock, 1);
    // The lease ends, and another claim has the timer.
    clock.advance(BY.lease + Duration::from_secs(1));
    assert_eq!(block_on(store.reap(10)).unwrap().returned, [id]);
    let (_, token) = the_due(&store, &clock, 2);
    let effects = |connection: &Connection| -> i64 {
        connection.query_row("SELECT count(*) FROM effects", [], |row| row.get(0)).unwrap()
    };
    let mut end = |token| {
        let transaction = connection.transaction().unwrap();
        transaction.execute("INSERT INTO effects VALUES (1)", []).unwrap();
        match timers.done(&transaction, id, token) {
            Ok(_) => transaction.commit().map_err(|error| panic!("{error}")),
            Err(error) => {
                transaction.rollback().unwrap();
                Err(error)
            }
        }
    };
    assert!(
        matches!(end(lost), Err(NotEnded::Lost(other)) if other == id),
        "the first holder comes too late"
    );
    assert!(end(token).is_ok());
    assert!(matches!(end(token), Err(NotEnded::Lost(_))), "no delivery ends twice");
    assert_eq!(effects(&connection), 1);
    // The runtime's own end of the delivery finds that it has ended. Another end with the token is stale.
    let ack = || block_on(store.apply(vec![Op::Ack(id, token)], Default::default())).unwrap();
    assert_eq!(block_on(store.renew(BY, vec![(id, token)])).unwrap().lost, []);
    assert!(matches!(ack()[0], Outcome::Ended { phase: Phase::Done, .. }));
    assert!(matches!(ack()[0], Outcome::Refused(_)));
    assert_eq!(block_on(store.check()).unwrap(), []);
}

/// No occurrence can follow. The program's transaction keeps the occurrence as a dead timer, and the runtime's report
/// of the same end says so.
#[test]
fn an_end_of_an_occurrence_whose_plan_is_not_valid_leaves_it_dead() {
    let (place, clock) = (place(), clock());
    let store = store_on(&place.path, &clock);
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    let plan = Plan::Cron { expression: "0 9 * * *".into(), zone: "No/Where".into(), skip_gaps: false };
    let id = TimerId::from_u128(8);
    let series = Series { id, plan, missed: MissedInstants::Skip, end: None, paused: false };
    let timer = Timer { series: Some(series), ..Timer::new(id, "job", store.now()) };
    let placed = vec![Op::Place(Box::new(timer), IfPresent::Reject)];
    assert_eq!(timers.apply(&connection, placed).unwrap(), [Outcome::Created(id)]);
    let (_, token) = the_due(&store, &clock, 1);
    let transaction = connection.transaction().unwrap();
    assert_eq!(timers.done(&transaction, id, token).unwrap(), None, "no occurrence follows");
    transaction.commit().unwrap();
    let report = block_on(store.apply(vec![Op::Ack(id, token)], Durability::PowerLoss)).unwrap();
    assert_eq!(report, [Outcome::Ended { id, phase: Phase::Dead, next: None, skipped: 0 }]);
    let death = Death { reason: DeathReason::Plan, at: store.now() };
    let dead = block_on(store.get(id.into())).unwrap().unwrap();
    assert_eq!((dead.state, dead.series), (State::Dead(death), None));
    assert_eq!(block_on(store.check()).unwrap(), []);
}

#[test]
fn a_database_without_tables_and_one_of_a_later_version_are_refused() {
    let place = place();
    let mut connection = connect(&place.path);
    let timers = Transactional::default();
    let refused = timers.schedule(&connection, Spec::new(Job(1))).unwrap_err();
    assert!(matches!(refused.reason, Rejection::Store(error) if error.kind() == StoreErrorKind::OlderSchema));
    migrate(&mut connection).unwrap();
    timers.schedule(&connection, Spec::new(Job(1))).unwrap();
    connection.execute("INSERT INTO tourbillon_migrations VALUES (2, 'later', '')", []).unwrap();
    let refused = timers.cancel(&connection, "a").unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::NewerSchema);
    assert_eq!(SqliteStore::open(&place.path).unwrap_err().kind(), StoreErrorKind::NewerSchema);
}

/// Starts a runtime whose handler sends each job, with the moment of its delivery.
fn deliver(store: SqliteStore) -> (Durable, Receiver<(u64, Instant)>) {
    let (sender, deliveries) = channel();
    let handler = move |Job(job): Job, _: Delivery| {
        sender.send((job, Instant::now())).unwrap();
        async {}
    };
    (Durable::builder(store).handler(handler).start().unwrap(), deliveries)
}

#[test]
fn a_commit_is_delivered_within_milliseconds_of_a_wake() {
    let place = place();
    let store = SqliteStore::builder().look_when_asked().open(&place.path).unwrap();
    let timers = store.transactional();
    let (_durable, deliveries) = deliver(store);
    let mut connection = connect(&place.path);
    let mut took = Vec::new();
    for job in 0..20 {
        let transaction = connection.transaction().unwrap();
        timers.schedule(&transaction, Spec::new(Job(job))).unwrap();
        assert!(deliveries.try_recv().is_err(), "nothing is delivered before the commit");
        transaction.commit().unwrap();
        let committed = Instant::now();
        timers.wake();
        let (delivered, at) = deliveries.recv_timeout(PATIENCE).unwrap();
        assert_eq!(delivered, job);
        took.push(at.saturating_duration_since(committed));
    }
    took.sort();
    // A busy machine may delay some, but not half of them.
    assert!(took[took.len() / 2] < Duration::from_millis(25), "{took:?}");
}

#[test]
fn a_commit_without_a_wake_is_found_at_the_next_look() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    let (_durable, deliveries) = deliver(store);
    let connection = connect(&place.path);
    let timers = Transactional::default();
    for job in 0..5 {
        timers.schedule(&connection, Spec::new(Job(job))).unwrap();
        assert_eq!(deliveries.recv_timeout(PATIENCE).unwrap().0, job);
    }
}

#[test]
fn what_was_rolled_back_is_never_delivered() {
    let place = place();
    let store = SqliteStore::builder().look_every(Duration::from_millis(1)).open(&place.path).unwrap();
    let timers = store.transactional();
    let (_durable, deliveries) = deliver(store);
    let mut connection = connect(&place.path);
    for job in 0..50 {
        let transaction = connection.transaction().unwrap();
        timers.schedule(&transaction, Spec::new(Job(job))).unwrap();
        timers.wake();
        if job % 2 == 0 {
            transaction.commit().unwrap();
            timers.wake();
        } else {
            transaction.rollback().unwrap();
        }
    }
    let delivered: Vec<u64> = (0..25).map(|_| deliveries.recv_timeout(PATIENCE).unwrap().0).collect();
    assert!(delivered.iter().all(|job| job % 2 == 0), "{delivered:?}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(deliveries.try_recv().is_err());
}

#[test]
fn a_store_works_with_the_longest_durations() {
    let place = place();
    let builder = SqliteStore::builder().look_every(Duration::MAX).busy(Duration::MAX);
    let store = builder.open(&place.path).unwrap();
    let timers = store.transactional();
    let (_durable, deliveries) = deliver(store);
    timers.schedule(&connect(&place.path), Spec::new(Job(7))).unwrap();
    timers.wake();
    assert_eq!(deliveries.recv_timeout(PATIENCE).unwrap().0, 7);
}

#[test]
fn a_handler_that_ends_its_timer_in_its_transaction_loses_no_lease() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    let timers = store.transactional();
    let mut connection = connect(&place.path);
    connection.execute_batch("CREATE TABLE effects (job INTEGER)").unwrap();
    let path = place.path.clone();
    let (sender, answered) = channel();
    let ending = timers.clone();
    let handler = move |Job(job): Job, delivery: Delivery| {
        let mut connection = connect(&path);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        transaction.execute("INSERT INTO effects VALUES (?)", [job.cast_signed()]).unwrap();
        let token = delivery.token;
        let verdict: Verdict = match ending.done(&transaction, delivery.id, token) {
            Ok(_) => transaction.commit().into(),
            Err(error) => Err::<(), _>(error).into(),
        };
        sender.send(job).unwrap();
        verdict
    };
    let durable = Durable::builder(store).blocking_handler(handler).start().unwrap();
    for job in 0..10 {
        let transaction = connection.transaction().unwrap();
        timers.schedule(&transaction, Spec::new(Job(job))).unwrap();
        transaction.commit().unwrap();
    }
    timers.wake();
    for _ in 0..10 {
        answered.recv_timeout(PATIENCE).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    while durable.handle().stats().delivered < 10 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let stats = durable.handle().stats();
    assert_eq!((stats.delivered, stats.leases_lost), (10, 0), "{stats:?}");
    let effects: i64 = connection.query_row("SELECT count(*) FROM effects", [], |row| row.get(0)).unwrap();
    assert_eq!(effects, 10);
    let changed = timers.move_to(&connection, "nothing", UtcMillis::ZERO).unwrap();
    assert_eq!(changed, Changed::NotFound);
}
