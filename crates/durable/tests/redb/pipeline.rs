//! Tests which callers wait for a slow disk, and which do not.

use crate::disk::{Disk, Numbers};
use crate::{ALL, apply, assert_whole, claimant, get, keyed, place, timer};
use pollster::block_on;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tourbillon::ManualClock;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Durability, Filter, Op, Outcome, RedbStore, StoreErrorKind, TimerStore as _,
};
use tourbillon_durable::timer::TimerId;
use tourbillon_durable::{Durable, Spec};

/// The time that a sync takes on the slow disk.
const SYNC: Duration = Duration::from_millis(400);
/// The longest time that a call may take if it does not wait for the disk.
const SHORT: Duration = Duration::from_millis(150);

fn on_a_slow_disk() -> (Disk, Arc<RedbStore>) {
    let disk = Disk::default();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let store = disk.open(RedbStore::builder().clock(clock)).unwrap();
    // The first batch of a store is made durable in the database.
    apply(&store, place(timer(1, 500_000)), Durability::PowerLoss).unwrap();
    disk.slow_syncs_of_the_journal(SYNC);
    (disk, Arc::new(store))
}

fn place_in_the_background(
    store: &Arc<RedbStore>,
    id: u128,
) -> thread::JoinHandle<(Result<Outcome, StoreErrorKind>, Duration)> {
    let store = Arc::clone(store);
    thread::spawn(move || {
        let begun = Instant::now();
        let placed = apply(&store, place(timer(id, 5_000_000)), Durability::PowerLoss);
        (placed.map_err(|error| error.kind()), begun.elapsed())
    })
}

fn within<R>(most: Duration, of_what: &str, call: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let result = call();
    assert!(begun.elapsed() < most, "{of_what} took {:?}", begun.elapsed());
    result
}

#[test]
fn claims_ends_and_reads_do_not_wait_for_a_sync_that_is_under_way() {
    let (_disk, store) = on_a_slow_disk();
    let creation = place_in_the_background(&store, 2);
    thread::sleep(SYNC / 8);
    let claimed = within(SHORT, "a claim", || block_on(store.claim(claimant(1), 1, ALL, None)).unwrap());
    assert_eq!(claimed.leased.len(), 1);
    let token = claimed.leased[0].token;
    let ack = Op::Ack(TimerId::from_u128(1), token);
    let ended = within(SHORT, "an end", || apply(&store, ack, Durability::ProcessCrash).unwrap());
    assert!(matches!(ended, Outcome::Ended { .. }), "{ended:?}");
    within(SHORT, "a renewal", || block_on(store.renew(claimant(1), Vec::new())).unwrap());
    within(SHORT, "a reap", || block_on(store.reap(10)).unwrap());
    let placed = within(SHORT, "a creation that does not ask for the disk", || {
        apply(&store, place(timer(3, 6_000_000)), Durability::ProcessCrash).unwrap()
    });
    assert_eq!(placed, Outcome::Created(TimerId::from_u128(3)));
    within(SHORT, "a read", || assert!(get(&store, 3).is_some() && get(&store, 1).is_none()));
    within(SHORT, "a list", || block_on(store.list(Filter::default(), None, 10)).unwrap());
    assert!(!creation.is_finished(), "the creation waits for the disk");
    let (placed, took) = creation.join().unwrap();
    assert!(placed.is_ok() && took >= SYNC, "{placed:?} after {took:?}");
}

/// Makes a store on a simulated disk. The disk was quick for two seconds, so the store counts it as quick. From now on
/// the disk is slow.
fn on_a_disk_that_was_quick() -> (Disk, Arc<RedbStore>) {
    let (disk, store) = on_a_slow_disk();
    disk.slow_syncs(Duration::ZERO);
    // At first a disk counts as slow, since nothing is known of it.
    thread::sleep(Duration::from_secs(2));
    apply(&store, place(timer(2, 5_000_000)), Durability::PowerLoss).unwrap();
    disk.slow_syncs_of_the_journal(SYNC);
    (disk, store)
}

/// Tests a quick disk that becomes slow. While a disk counts as quick, the thread that commits makes the syncs for
/// which callers wait. So the first slow sync delays other requests. Later syncs do not delay requests, because the
/// disk then counts as slow.
#[test]
fn a_quick_disk_that_becomes_slow_holds_claims_up_once() {
    let (_disk, store) = on_a_disk_that_was_quick();
    let claim = |number| block_on(store.claim(claimant(1), number, ALL, None)).unwrap().leased.len();
    let creation = place_in_the_background(&store, 3);
    thread::sleep(SYNC / 8);
    let begun = Instant::now();
    within(SHORT, "a read", || assert!(get(&store, 3).is_some()));
    assert_eq!(claim(1), 1);
    assert!(begun.elapsed() > SYNC / 2, "no thread was asked to sync a quick disk");
    assert!(creation.join().unwrap().0.is_ok());
    for number in 4..7 {
        let creation = place_in_the_background(&store, u128::from(number));
        thread::sleep(SYNC / 8);
        within(SHORT, "a claim", || assert_eq!(claim(number), 0));
        assert!(!creation.is_finished(), "the creation waits for the disk");
        assert!(creation.join().unwrap().0.is_ok());
    }
}

#[test]
fn a_sync_that_nobody_waits_for_holds_nobody_up_on_a_disk_that_was_quick() {
    let (_disk, store) = on_a_disk_that_was_quick();
    apply(&store, place(timer(3, 5_000_000)), Durability::Volatile).unwrap();
    thread::sleep(SYNC / 4);
    within(SHORT, "a claim", || block_on(store.claim(claimant(1), 1, ALL, None)).unwrap());
}

#[test]
fn a_sync_that_fails_on_a_disk_that_was_quick_is_made_good_by_a_checkpoint() {
    let (disk, store) = on_a_disk_that_was_quick();
    disk.slow_syncs(Duration::ZERO);
    disk.lose_a_sync(0, Numbers(7));
    for number in 3..6 {
        apply(&store, place(timer(number, 5_000_000)), Durability::PowerLoss).unwrap();
    }
    assert!(disk.has_lost_a_sync());
    let after = disk.after_the_cut(None).open(RedbStore::builder()).unwrap();
    assert!((1..6).all(|number| get(&after, number).is_some()), "all that was acknowledged");
}

/// Tests a write to the journal that panics on the thread that syncs. No caller waits for this write.
#[test]
fn a_write_that_panics_on_the_thread_that_syncs_is_a_failure_and_the_thread_goes_on() {
    let (disk, store) = on_a_slow_disk();
    disk.slow_syncs(Duration::ZERO);
    disk.panic_at_a_write_to_the_journal();
    apply(&store, place(timer(2, 5_000_000)), Durability::Volatile).unwrap();
    thread::sleep(Duration::from_millis(200));
    for number in 3..6 {
        let (placed, took) = place_in_the_background(&store, number).join().unwrap();
        assert!(placed.is_ok() && took < Duration::from_secs(5), "{placed:?} after {took:?}");
    }
    let after = disk.after_the_cut(None).open(RedbStore::builder()).unwrap();
    assert!((1..6).all(|number| get(&after, number).is_some()), "all that was acknowledged");
}

/// Tests that readers see a change whose caller still waits for the disk.
#[test]
fn a_batch_is_made_while_another_one_is_synced_and_readers_see_it() {
    let (_disk, store) = on_a_slow_disk();
    let syncs = store.stats().syncs;
    let first = place_in_the_background(&store, 2);
    thread::sleep(SYNC / 8);
    assert!(get(&store, 2).is_some(), "it is made, and not synced");
    let second = place_in_the_background(&store, 3);
    thread::sleep(SYNC * 5 / 8);
    assert!(get(&store, 3).is_some() && !first.is_finished(), "made while the first one is synced");
    let (placed, took) = second.join().unwrap();
    assert!(placed.is_ok() && took < 2 * SYNC, "two syncs, less an eighth: {took:?}");
    assert!(first.join().unwrap().0.is_ok());
    assert_eq!(store.stats().syncs - syncs, 2);
    let begun = Instant::now();
    block_on(store.apply(Vec::new(), Durability::PowerLoss)).unwrap();
    assert!(begun.elapsed() < SHORT, "the disk has all changes");
}

#[test]
fn a_timer_that_is_delivered_at_most_once_is_removed_once_the_disk_has_that_and_holds_up_no_claim() {
    let (disk, store) = on_a_slow_disk();
    disk.slow_syncs(Duration::ZERO);
    let mut once = timer(2, 400_000);
    once.policy.guarantee = tourbillon_durable::policy::Guarantee::AtMostOnce;
    apply(&store, place(once), Durability::PowerLoss).unwrap();
    disk.slow_syncs_of_the_journal(SYNC);
    let first = within(SHORT, "a claim", || block_on(store.claim(claimant(1), 1, ALL, None)).unwrap());
    let claimed: Vec<u128> = first.leased.iter().map(|leased| leased.timer.id.as_u128()).collect();
    assert_eq!(claimed, [2, 1]);
    let (id, token) = (first.leased[0].timer.id, first.leased[0].token);
    let (at, begun) = (Arc::clone(&store), Instant::now());
    let removal = thread::spawn(move || {
        (apply(&at, Op::Skip(id, token), Durability::PowerLoss).unwrap(), begun.elapsed())
    });
    thread::sleep(SYNC / 8);
    apply(&store, place(timer(3, 300_000)), Durability::ProcessCrash).unwrap();
    let second = within(SHORT, "a claim", || block_on(store.claim(claimant(1), 2, ALL, None)).unwrap());
    assert_eq!(second.leased.len(), 1);
    assert!(!removal.is_finished());
    let (removed, took) = removal.join().unwrap();
    let is_done = matches!(removed, Outcome::Ended { phase: Phase::Done, .. });
    assert!(is_done && took >= SYNC, "{removed:?} after {took:?}");
}

/// Tests reads during the growth of the database's file. While the file grows, redb syncs the file under a lock. The
/// beginning of a read transaction needs the same lock.
#[test]
fn reads_do_not_wait_for_a_sync_of_the_database() {
    let disk = Disk::default();
    let store = Arc::new(disk.open(RedbStore::builder()).unwrap());
    disk.slow_syncs(SYNC);
    let creation = place_in_the_background(&store, 2);
    let (mut longest, mut reads) = (Duration::ZERO, 0);
    while !creation.is_finished() {
        let begun = Instant::now();
        let _not_there_at_first = get(&store, 2);
        block_on(store.counts()).unwrap();
        store.next_due().unwrap();
        longest = longest.max(begun.elapsed());
        reads += 1;
        thread::sleep(Duration::from_millis(2));
    }
    let (placed, took) = creation.join().unwrap();
    assert!(placed.is_ok() && took >= SYNC, "{placed:?} after {took:?}");
    assert!(longest < SHORT && reads > 10, "{reads} reads, the longest {longest:?}");
}

/// Tests a failed sync. The callers of the batch in the sync get the error, and so do the callers of the next batch.
/// Answered changes stay.
#[test]
fn a_sync_that_fails_is_told_to_all_that_wait_and_takes_nothing_back() {
    let (disk, store) = on_a_slow_disk();
    let first = place_in_the_background(&store, 2);
    thread::sleep(SYNC / 8);
    let claimed = block_on(store.claim(claimant(1), 1, ALL, None)).unwrap();
    let second = place_in_the_background(&store, 3);
    thread::sleep(SYNC * 5 / 8);
    // The sync of the journal fails, and so do all checkpoints in its place.
    disk.slow_syncs(Duration::ZERO);
    disk.fail(io::ErrorKind::Other, u64::MAX);
    for creation in [first, second] {
        assert_eq!(creation.join().unwrap().0, Err(StoreErrorKind::Unknown));
    }
    disk.fail(io::ErrorKind::Other, 0);
    let until = Instant::now() + Duration::from_secs(20);
    while block_on(store.apply(Vec::new(), Durability::PowerLoss)).is_err() {
        assert!(Instant::now() < until, "the store goes on once the disk does");
        thread::sleep(Duration::from_millis(10));
    }
    let ack = Op::Ack(TimerId::from_u128(1), claimed.leased[0].token);
    let ended = apply(&store, ack, Durability::PowerLoss).unwrap();
    assert!(matches!(ended, Outcome::Ended { .. }), "the claim was answered: {ended:?}");
    for id in [2, 3] {
        assert!(get(&store, id).is_some(), "a batch that has been written stays");
    }
    assert_whole(&store);
    drop(store);
    let store = disk.after_the_cut(None).open(RedbStore::builder()).unwrap();
    assert!(get(&store, 1).is_none() && get(&store, 2).is_some() && get(&store, 3).is_some());
    assert_whole(&store);
}

#[test]
fn a_sync_that_fails_is_answered_by_a_checkpoint() {
    let (disk, store) = on_a_slow_disk();
    let first = place_in_the_background(&store, 2);
    thread::sleep(SYNC / 8);
    let second = place_in_the_background(&store, 3);
    thread::sleep(SYNC * 5 / 8);
    let checkpoints = store.stats().checkpoints;
    disk.fail(io::ErrorKind::Other, 1);
    for creation in [first, second] {
        assert!(creation.join().unwrap().0.is_ok());
    }
    assert_eq!((store.stats().checkpoints - checkpoints, store.stats().reopened), (1, 0));
    drop(store);
    let store = disk.after_the_cut(None).open(RedbStore::builder()).unwrap();
    assert!(get(&store, 2).is_some() && get(&store, 3).is_some());
    assert_whole(&store);
}

/// Tests a sync that fails after a checkpoint. The records after the checkpoint have the place of the records that the
/// sync is for. So the failed sync can lose them, and the next sync succeeds without them.
#[test]
fn a_sync_that_fails_after_a_checkpoint_loses_no_record_that_a_later_sync_answers() {
    let (disk, store) = on_a_slow_disk();
    disk.slow_syncs_of_the_journal(5 * SYNC);
    let creation = place_in_the_background(&store, 2);
    thread::sleep(SYNC / 2);
    // An import makes a checkpoint, which answers the creation.
    block_on(store.import(vec![timer(3, 5_000_000)])).unwrap();
    assert!(creation.join().unwrap().0.is_ok());
    disk.slow_syncs(Duration::ZERO);
    apply(&store, place(timer(4, 5_000_000)), Durability::ProcessCrash).unwrap();
    let loses_all = |seed: &u64| {
        let mut numbers = Numbers(*seed);
        (0..12).all(|_| numbers.next() % 2 == 1)
    };
    disk.lose_a_sync(0, Numbers((0..).find(loses_all).unwrap()));
    let until = Instant::now() + Duration::from_secs(20);
    while !disk.has_lost_a_sync() {
        assert!(Instant::now() < until, "no sync has failed");
        thread::sleep(Duration::from_millis(1));
    }
    block_on(store.apply(Vec::new(), Durability::PowerLoss)).unwrap();
    let after = disk.after_the_cut(None).open(RedbStore::builder()).unwrap();
    assert!((2..5).all(|id| get(&after, id).is_some()), "all that was acknowledged");
    assert_whole(&after);
}

/// Tests losses of power at the moment of an answer. The answer must hold. Callers of all kinds share a slow disk.
#[test]
fn what_was_answered_for_the_loss_of_power_is_on_the_disk_whatever_is_made_behind_it() {
    let (disk, store) = on_a_slow_disk();
    disk.slow_syncs(Duration::from_millis(3));
    let until = Instant::now() + Duration::from_secs(1);
    let writers = (0..6_u128).map(|writer| {
        let (store, disk) = (Arc::clone(&store), disk.clone());
        thread::spawn(move || {
            let mut number = 0;
            while Instant::now() < until {
                number += 1;
                let id = writer * 1_000_000 + number + 10;
                let key = format!("k{id}");
                let durability =
                    if number % 3 == 0 { Durability::ProcessCrash } else { Durability::PowerLoss };
                apply(&store, place(keyed(id, 5_000_000, &key)), durability).unwrap();
                if writer == 0 && number % 40 == 1 && durability == Durability::PowerLoss {
                    let found = disk.after_the_cut(None).open(RedbStore::builder()).unwrap();
                    assert!(get(&found, id).is_some(), "{key} was answered");
                    assert_whole(&found);
                }
            }
            number
        })
    });
    let made: u128 = writers.collect::<Vec<_>>().into_iter().map(|writer| writer.join().unwrap()).sum();
    assert!(made > 100, "{made}");
    assert_whole(&store);
}

/// The time from the due moment to the delivery, for each delivery, in milliseconds.
#[derive(Default)]
struct Lateness(Vec<u64>);

impl Lateness {
    fn percentile(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        Duration::from_millis(self.0.get(at).copied().unwrap_or(0))
    }
}

/// Measures deliveries on a slow disk. `TOURBILLON_SYNC_MS` sets the length of a sync, and `TOURBILLON_SECONDS` the
/// length of the run. A run of 40 seconds has checkpoints.
#[test]
fn deliveries_are_in_time_on_a_disk_whose_syncs_are_slow() {
    deliver_on_a_slow_disk(None);
}

/// Measures deliveries of due timers beside sixteen writers that wait for the disk. Every `one_in`-th timer is
/// delivered at most once.
fn deliver_on_a_slow_disk(one_in: Option<u64>) {
    let number = |name, usual| std::env::var(name).map_or(usual, |number| number.parse().unwrap());
    let sync = Duration::from_millis(number("TOURBILLON_SYNC_MS", 150));
    let run = Duration::from_secs(number("TOURBILLON_SECONDS", 3));
    let disk = Disk::default();
    let store = Arc::new(disk.open(RedbStore::builder()).unwrap());
    let (often, once, near) = (Arc::default(), Arc::default(), Arc::default());
    let kept: [Arc<Mutex<Lateness>>; 3] = [often, once, near];
    // The moments at which checkpoints were seen to have ended.
    let checkpoints = Arc::new(Mutex::new(Vec::<Instant>::new()));
    let (into, ends) = (kept.clone(), Arc::clone(&checkpoints));
    let deliver = move |payload: Box<[u8]>, delivery: tourbillon_durable::Delivery| {
        let (into, ends) = (into.clone(), Arc::clone(&ends));
        async move {
            // The lateness is the time from the due moment to the handler's call.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let late = u64::try_from(now.as_millis()).unwrap().saturating_sub(delivery.due.as_millis());
            let ended = ends.lock().unwrap().last().copied();
            let is_near = ended.is_some_and(|ended| ended.elapsed() < sync + Duration::from_millis(late));
            let at = if &*payload == b"once" {
                1
            } else if is_near {
                2
            } else {
                0
            };
            into[at].lock().unwrap().0.push(late);
        }
    };
    let durable = Durable::builder_on(Arc::<RedbStore>::clone(&store))
        .bytes_handler("k", deliver)
        .workers(16)
        .start()
        .unwrap();
    durable
        .handle()
        .schedule_bytes_blocking("k", Spec::new(Vec::new()).after(Duration::from_secs(86_400)))
        .unwrap();
    disk.slow_syncs(sync);
    let until = Instant::now() + run;
    let writers = (0..16).map(|writer| {
        let timers = durable.handle().clone();
        thread::spawn(move || {
            let mut made = 0;
            while Instant::now() < until {
                let after = 3 * sync + Duration::from_millis(37 * writer);
                let is_once = one_in.is_some_and(|one_in| (made + writer) % one_in == 0);
                let spec = Spec::new(if is_once { b"once".to_vec() } else { Vec::new() }).after(after);
                let spec = if is_once { spec.at_most_once() } else { spec };
                timers.schedule_bytes_blocking("k", spec).unwrap();
                made += 1;
            }
            made
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut seen = store.stats().checkpoints;
    while Instant::now() < until + 8 * sync {
        let now = store.stats().checkpoints;
        if now > seen {
            seen = now;
            checkpoints.lock().unwrap().push(Instant::now());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let made: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    let count = || kept.iter().map(|kept| kept.lock().unwrap().0.len() as u64).sum::<u64>();
    let begun = Instant::now();
    while count() < made {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} of {made} were delivered", count());
        thread::sleep(Duration::from_millis(5));
    }
    let [often, once, near] = kept.each_ref().map(|kept| core::mem::take(&mut *kept.lock().unwrap()));
    let (mut often, mut once, mut near) = (often, once, near);
    let (between, at_most_once) = (often.percentile(99), once.percentile(100));
    #[expect(clippy::print_stdout, reason = "figures")]
    {
        println!(
            "syncs of {sync:?}: {made} timers, {} checkpoints; late by p50 {:?}, p99 {between:?} between checkpoints ({}), \
             p99 {:?} beside them ({}), the longest {:?} and {:?}; at most once p50 {:?}, the longest {at_most_once:?} ({})",
            checkpoints.lock().unwrap().len(),
            often.percentile(50),
            often.0.len(),
            near.percentile(99),
            near.0.len(),
            often.percentile(100),
            near.percentile(100),
            once.percentile(50),
            once.0.len()
        );
    }
    let busy = Duration::from_millis(250);
    assert!(one_in.is_some() || between < sync * 3 / 2 + busy, "{between:?}");
    assert!(between < sync * 5 / 2 + busy, "{between:?}");
    assert!(near.percentile(99) < sync * 3 + busy, "{:?}", near.percentile(99));
    assert!(at_most_once < sync * 3 + busy, "{at_most_once:?}");
    drop(durable.shutdown(Duration::from_secs(5)));
}
