//! Tests backups: they are complete, can be restored in another store, and are refused if they are damaged.

use pollster::block_on;
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::backup::{BackupError, Restore, read, write, write_with};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, Filter, Limit, MemoryStore, Op, Outcome, RedbStore, TimerStore,
};
use tourbillon_durable::{Durable, Kind, Spec, UtcMillis};

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Job(String);

impl Kind for Job {
    const NAME: &'static str = "job";
}

/// Makes a store with pending, parked and leased timers, and returns its backup as the last value. The timers in the
/// backup come in the order of their ids, which is not the order of their due moments. The parked timer is the eighth
/// by due moment.
fn filled() -> (ManualClock, MemoryStore, Vec<u8>) {
    let clock = ManualClock::new();
    clock.set(tourbillon::Timestamp::from_nanos(UtcMillis::from_millis(1_700_000_000_000).as_nanos()));
    let store = std::sync::Arc::new(MemoryStore::new(clock.clone()));
    let shared: std::sync::Arc<dyn TimerStore> = std::sync::Arc::<MemoryStore>::clone(&store);
    let durable =
        Durable::builder_on(shared).clock(clock.clone()).handler(async |_: Job, _| {}).start().unwrap();
    for number in 0..2_500_u64 {
        let rank = number * 7 % 2_500;
        let spec = Spec::new(Job(format!("\"{number}\" \n ü"))).after(Duration::from_secs(100 + rank));
        durable.handle().schedule_blocking(spec.key(format!("k{number}")).label("l")).unwrap();
    }
    block_on(durable.handle().pause("k1")).unwrap();
    drop(durable);
    clock.advance(Duration::from_secs(105));
    let by = Claimant { incarnation: 1, lease: Duration::from_secs(30) };
    let claimed = block_on(store.claim(by, 1, Limit { timers: 3, bytes: u64::MAX }, None)).unwrap();
    assert_eq!(claimed.leased.len(), 3);
    let mut backup = Vec::new();
    assert_eq!(write(&*store, &mut backup).unwrap(), 2_500);
    (clock, std::sync::Arc::into_inner(store).unwrap(), backup)
}

fn all(store: &MemoryStore) -> Vec<tourbillon_durable::timer::Timer> {
    block_on(store.list(Filter::default(), None, 10_000)).unwrap().timers
}

#[test]
fn a_restored_store_has_the_same_timers() {
    let (clock, store, backup) = filled();
    let other = MemoryStore::new(clock);
    let restored = Restore::default().restore(&other, || Ok(&backup[..])).unwrap();
    assert_eq!(restored, 2_500);
    assert_eq!(block_on(other.check()).unwrap(), []);
    // The restored timers have no leases. They are the same otherwise.
    block_on(store.reap(10)).unwrap();
    let (before, mut after) = (all(&store), all(&other));
    for (timer, old) in after.iter_mut().zip(&before) {
        if timer.deliveries > 0 {
            timer.state = old.state.clone();
        }
    }
    assert_eq!(before, after);
    let again = Restore::default().restore(&other, || Ok(&backup[..]));
    assert!(matches!(again, Err(BackupError::NotEmpty)));
}

#[test]
fn a_floor_and_a_rate_keep_a_restore_from_firing_a_storm() {
    let (clock, _, backup) = filled();
    let (other, now) =
        (MemoryStore::new(clock.clone()), UtcMillis::from_nanos(tourbillon::Clock::now(&clock).as_nanos()));
    clock.advance(Duration::from_secs(86_400));
    let floor = now + Duration::from_secs(2 * 86_400);
    let restore = Restore { due_floor: Some(floor), rate: Some(100) };
    restore.restore(&other, || Ok(&backup[..])).unwrap();
    let dues: Vec<UtcMillis> = block_on(other.upcoming(UtcMillis::ZERO, UtcMillis::MAX, 10_000))
        .unwrap()
        .iter()
        .map(|(due, _)| *due)
        .collect();
    assert_eq!(dues.len(), 2_499, "one is paused");
    let expected =
        (0..2_500_u64).filter(|place| *place != 7).map(|place| floor + Duration::from_millis(10 * place));
    assert_eq!(dues, expected.collect::<Vec<_>>());
    // The keys have the order of the due moments. The file has another order.
    let all = all(&other);
    let mut in_order: Vec<_> = all.iter().map(|timer| (timer.due, timer.scheduled)).collect();
    in_order.sort();
    assert!(in_order.is_sorted_by_key(|(_, scheduled)| *scheduled));
    assert!(all.iter().all(|timer| timer.due >= floor), "the paused one as well");
}

#[test]
fn a_backup_has_a_value_of_the_programs_own() {
    let (clock, store, plain) = filled();
    let mut backup = Vec::new();
    write_with(&store, &["a", "b"], &mut backup).unwrap();
    let contents = read(&backup[..]).unwrap();
    assert_eq!((contents.timers, contents.attached.as_deref()), (2_500, Some(r#"["a","b"]"#)));
    assert_eq!(contents.at, UtcMillis::from_nanos(tourbillon::Clock::now(&clock).as_nanos()));
    assert_eq!(read(&plain[..]).unwrap().attached, None);
}

#[cfg(unix)]
#[test]
fn the_files_of_a_store_are_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let store = RedbStore::open(folder.path().join("timers.redb")).unwrap();
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
    drop(store);
}

#[test]
fn a_damaged_backup_changes_nothing() {
    let (clock, _, backup) = filled();
    let text = String::from_utf8(backup).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let without = |skipped: usize| {
        let kept = lines.iter().enumerate().filter(|(number, _)| *number != skipped).map(|(_, line)| *line);
        kept.collect::<Vec<_>>().join("\n")
    };
    let newer = text.replace("\"version\":1", "\"version\":2");
    let faults = [
        text[..text.len() / 2].to_owned(),
        without(0),
        without(5),
        without(lines.len() - 1),
        text.replacen("\"kind\":\"job\"", "\"kind\":7", 1),
        // A changed digit: each line still looks like a line of a backup.
        text.replacen("\"due\":17", "\"due\":16", 1),
        format!("{text}\n{{}}"),
        String::new(),
        newer,
    ];
    for fault in faults {
        let other = MemoryStore::new(clock.clone());
        assert!(Restore::default().restore(&other, || Ok(fault.as_bytes())).is_err());
        assert_eq!(all(&other), []);
    }
}

#[test]
fn a_backup_of_a_later_version_with_a_further_field_is_named_as_such() {
    let (_, _, backup) = filled();
    let text = String::from_utf8(backup).unwrap();
    let later = text.replacen("\"version\":1", "\"version\":2,\"further\":[1]", 1);
    let found = read(later.as_bytes());
    assert!(matches!(found, Err(BackupError::NewerVersion(2))), "{found:?}");
    let same = text.replacen("\"version\":1", "\"version\":1,\"further\":[1]", 1);
    assert!(matches!(read(same.as_bytes()), Err(BackupError::Line { number: 1, .. })));
    let other = text.replacen("\"backup\"", "\"other\"", 1);
    assert!(matches!(read(other.as_bytes()), Err(BackupError::Line { number: 1, .. })));
}

/// A backup has a timer that was cancelled during its delivery, which a restore leaves out and does not count.
#[test]
fn a_restore_counts_the_timers_that_it_stores() {
    let (clock, store, _) = filled();
    let leased = all(&store).into_iter().find(|timer| timer.state.phase() == Phase::Leased).unwrap();
    let cancelled = block_on(store.apply(vec![Op::Cancel(leased.id.into(), None)], Durability::PowerLoss));
    assert_eq!(cancelled.unwrap(), [Outcome::InFlight(leased.id)]);
    let mut backup = Vec::new();
    assert_eq!(write(&store, &mut backup).unwrap(), 2_500);
    let other = MemoryStore::new(clock);
    let restored = Restore::default().restore(&other, || Ok(&backup[..])).unwrap();
    assert_eq!((restored, all(&other).len()), (2_499, 2_499));
}
