//! Tests lists of one namespace beside others, and the index entries by which their timers are found.

use crate::faults::{builder, clock};
use crate::place::Place;
use crate::{ALL, apply, assert_whole, claimant, place, timer};
use pollster::block_on;
use redb::{Database, ReadableTable as _, TableDefinition};
use std::time::{Duration, Instant};
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Death, DeathReason, Phase, State};
use tourbillon_durable::store::{Durability, Filter, MemoryStore, RedbStore, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};

const KEYLESS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("keyless");
const STOPPED: TableDefinition<'_, &[u8], ()> = TableDefinition::new("stopped");

/// The number of timers of the small namespace in each phase. The number exceeds `PAGE`, the size of a page.
const FEW: u32 = 80;
const PAGE: u32 = 50;
const PHASES: [Phase; 3] = [Phase::Pending, Phase::Parked, Phase::Dead];

fn of(namespace: &str, timer: Timer) -> Timer {
    Timer { namespace: namespace.into(), ..timer }
}

fn filter(namespace: &str, phase: Option<Phase>) -> Filter {
    Filter { namespace: Some(namespace.into()), phase, ..Filter::default() }
}

fn in_phase(phase: Phase, timer: Timer) -> Timer {
    let state = match phase {
        Phase::Parked => State::Parked("limit".into()),
        Phase::Dead => State::Dead(Death { reason: DeathReason::Attempts, at: timer.due }),
        _ => State::Pending,
    };
    Timer { state, ..timer }
}

/// Returns all timers of a list, and the time of its slowest page. Asserts that each page except the last has timers.
fn listed(store: &impl TimerStore, filter: &Filter, are_full: bool) -> (Vec<Timer>, Duration) {
    let (mut listed, mut cursor, mut slowest) = (Vec::new(), None, Duration::ZERO);
    loop {
        let begun = Instant::now();
        let page = block_on(store.list(filter.clone(), cursor, PAGE)).unwrap();
        slowest = slowest.max(begun.elapsed());
        let least = if are_full { PAGE as usize } else { 1 };
        assert!(page.next.is_none() || page.timers.len() >= least, "{filter:?}: {}", page.timers.len());
        listed.extend(page.timers);
        cursor = page.next;
        if cursor.is_none() {
            return (listed, slowest);
        }
    }
}

fn assert_in_order(listed: &[Timer], phase: Option<Phase>) {
    match phase {
        None => assert!(listed.is_sorted_by_key(|timer| timer.id)),
        Some(phase) => {
            assert!(listed.is_sorted_by_key(|timer| (timer.due, timer.id)));
            assert!(listed.iter().all(|timer| timer.state.phase() == phase));
        }
    }
}

/// Tests lists of a small namespace. The timers of other namespaces are due earlier, and were made earlier.
///
/// Some of the others are in a large namespace with parked and dead timers. The rest are in a mixed namespace: a few
/// parked and dead timers among many pending timers. `TOURBILLON_OTHERS=10000000` sets the number of the others to ten
/// million, which needs a release build.
#[test]
fn a_page_of_a_small_namespace_is_full_beside_many_others() {
    let others: u64 = std::env::var("TOURBILLON_OTHERS").map_or(20_000, |others| others.parse().unwrap());
    let place_of = Place::new();
    let open = || RedbStore::builder().clock(ManualClock::default()).open(place_of.file()).unwrap();
    let store = open();
    let mut id = 0_u128;
    let mut some = |namespace: &str, due: u64, phase: Phase| {
        id += 1;
        let with_key = id.is_multiple_of(2).then(|| format!("k{id:015}").into());
        in_phase(phase, Timer { key: with_key, ..of(namespace, timer(id, due)) })
    };
    for start in (0..others).step_by(1_000) {
        let timers = (start..others.min(start + 1_000)).map(|n| {
            let due = 1_000_000 + n.wrapping_mul(2_654_435_761) % 2_592_000_000;
            match n % 100 {
                6 => some("large", due, Phase::Parked),
                7 => some("large", due, Phase::Dead),
                n if n % 4 < 2 => some("mixed", due, Phase::Pending),
                _ => some("large", due, Phase::Pending),
            }
        });
        block_on(store.import(timers.collect())).unwrap();
    }
    for phase in PHASES {
        for namespace in ["small", "mixed"] {
            let timers = (0..u64::from(FEW)).map(|n| some(namespace, 10_000_000_000 + n, phase));
            block_on(store.import(timers.collect())).unwrap();
        }
    }
    let size = store.size_on_disk().unwrap();
    drop(store);
    let store = open();
    let mut slowest = Duration::ZERO;
    for phase in [None, Some(Phase::Pending), Some(Phase::Parked), Some(Phase::Dead), Some(Phase::Leased)] {
        let (small, took) = listed(&store, &filter("small", phase), true);
        let of_small = took;
        let wanted = phase.map_or(3, |phase| usize::from(PHASES.contains(&phase)));
        assert_eq!(small.len(), wanted * FEW as usize, "{phase:?}");
        assert_in_order(&small, phase);
        assert!(small.iter().all(|timer| &*timer.namespace == "small"));
        // The first page of the large namespace must be quick, too.
        let begun = Instant::now();
        let page = block_on(store.list(filter("large", phase), None, PAGE)).unwrap();
        let took = begun.elapsed();
        #[expect(clippy::print_stdout, reason = "figures")]
        {
            println!("{phase:?}: a page of the small namespace {of_small:.1?}, of the large one {took:.1?}");
        }
        slowest = slowest.max(of_small).max(took);
        let is_full = page.timers.len() == PAGE as usize;
        assert!(is_full || phase == Some(Phase::Leased), "{phase:?}: {}", page.timers.len());
        if let Some(Phase::Parked | Phase::Dead) = phase {
            let (mixed, took) = listed(&store, &filter("mixed", phase), true);
            assert_eq!(mixed.len(), FEW as usize, "{phase:?}");
            assert_in_order(&mixed, phase);
            slowest = slowest.max(took);
        }
    }
    #[expect(clippy::print_stdout, reason = "figures")]
    {
        println!(
            "{FEW} timers of each phase beside {others}, {size} bytes: the slowest page took {slowest:.1?}"
        );
    }
    let most = if cfg!(debug_assertions) { 200 } else { 20 };
    assert!(slowest < Duration::from_millis(most), "{slowest:?}");
    if others <= 100_000 {
        assert_whole(&store);
    }
}

/// Tests lists of a namespace that has more timers than a list reads for a page. All its timers lie behind the timers
/// of another namespace.
fn assert_found_behind_others(store: &impl TimerStore) {
    for (first, namespace, due) in [(0, "before", 5), (10_000, "behind", 6)] {
        let timers = (0..4_000_u64).map(|n| {
            let timer = of(namespace, timer(u128::from(first + n), due));
            Timer { key: (n % 2 == 0).then(|| n.to_string().into()), ..timer }
        });
        block_on(store.import(timers.collect())).unwrap();
    }
    for phase in [None, Some(Phase::Pending)] {
        for namespace in ["before", "behind"] {
            let (all, _) = listed(store, &filter(namespace, phase), false);
            assert_eq!(all.len(), 4_000, "{phase:?}");
            assert_in_order(&all, phase);
        }
    }
    // With a further condition the page may be empty: the store looks at few entries for each page.
    let late =
        Filter { due_after: Some(UtcMillis::from_millis(6)), ..filter("behind", Some(Phase::Pending)) };
    let page = block_on(store.list(late, None, PAGE)).unwrap();
    assert_eq!((page.timers.len(), page.next.is_some()), (0, true));
    // No timer is in these phases, so the list ends at once.
    for phase in [Phase::Leased, Phase::Dead, Phase::Parked, Phase::Done] {
        assert_eq!(block_on(store.list(filter("behind", Some(phase)), None, 1)).unwrap().next, None);
    }
}

#[test]
fn the_timers_of_a_namespace_are_found_behind_thousands_of_others() {
    assert_found_behind_others(&MemoryStore::new(clock()));
    let place_of = Place::new();
    assert_found_behind_others(&builder(&clock()).open(place_of.file()).unwrap());
}

/// Plants a fault among the index entries by namespace of 20 timers. The entry of the first timer is missing, or
/// another entry has the first timer in a wrong namespace. Asserts that the check finds the fault and the scrub mends
/// it.
fn assert_found_and_mended(table: TableDefinition<'_, &[u8], ()>, phase: Phase, is_missing: bool) {
    let place_of = Place::new();
    let clock = clock();
    let store = builder(&clock).open(place_of.file()).unwrap();
    let timers = (1..=20).map(|n| in_phase(phase, of("a", timer(n, 5_000))));
    block_on(store.import(timers.collect())).unwrap();
    drop(store);
    {
        let database = Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut table = transaction.open_table(table).unwrap();
        let first = table.first().unwrap().unwrap().0.value().to_vec();
        if is_missing {
            table.remove(&first[..]).unwrap();
        } else {
            table.insert(&[b"\x01b", &first[2..]].concat()[..], ()).unwrap();
        }
        drop(table);
        transaction.commit().unwrap();
    }
    let store = builder(&clock).scrub(0).open(place_of.file()).unwrap();
    let faults = block_on(store.check()).unwrap();
    let name = if phase == Phase::Pending { "keyless" } else { "stopped" };
    assert!(faults.iter().all(|fault| fault.table == name), "{faults:?}");
    let first = Some(TimerId::from_u128(1));
    assert!(faults.iter().any(|fault| fault.timer == first), "{phase:?}, {is_missing}: {faults:?}");
    drop(store);
    let store = builder(&clock).scrub(1_000_000).open(place_of.file()).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !block_on(store.check()).unwrap().is_empty() {
        assert!(Instant::now() < until, "{:?}: {:?}", store.stats(), block_on(store.check()));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(listed(&store, &filter("a", None), true).0.len(), 20);
    assert_eq!(listed(&store, &filter("a", Some(phase)), true).0.len(), 20);
}

/// Tests faults among the index entries by namespace. The check names the timer of the entry. The scrub, the search for
/// damage, mends the entries.
#[test]
fn an_entry_by_namespace_too_many_or_too_few_is_found_and_mended() {
    for (table, phase) in [(KEYLESS, Phase::Pending), (STOPPED, Phase::Parked), (STOPPED, Phase::Dead)] {
        for is_missing in [true, false] {
            assert_found_and_mended(table, phase, is_missing);
        }
    }
}

/// Tests that a damaged record that is set aside leaves no index entry among the timers without a key.
#[test]
fn a_record_that_is_set_aside_is_in_no_list() {
    let place_of = Place::new();
    let clock = clock();
    let store = builder(&clock).open(place_of.file()).unwrap();
    for n in 1..=3 {
        apply(&store, place(of("a", timer(n, 5_000))), Durability::PowerLoss).unwrap();
    }
    drop(store);
    {
        let database = Database::open(place_of.file()).unwrap();
        let transaction = database.begin_write().unwrap();
        let timers = TableDefinition::<&[u8; 16], &[u8]>::new("timers");
        let mut table = transaction.open_table(timers).unwrap();
        let key = 2_u128.to_be_bytes();
        let mut record = table.get(&key).unwrap().unwrap().value().to_vec();
        *record.last_mut().unwrap() ^= 1;
        table.insert(&key, &record[..]).unwrap();
        drop(table);
        transaction.commit().unwrap();
    }
    let store = builder(&clock).scrub(0).open(place_of.file()).unwrap();
    clock.set(Timestamp::from_nanos(10_000_000_000));
    assert_eq!(block_on(store.claim(claimant(1), 1, ALL, None)).unwrap().quarantined, 1);
    assert_eq!(listed(&store, &filter("a", None), true).0.len(), 2);
    let faults = block_on(store.check()).unwrap();
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!((fault.table, fault.timer), ("quarantine", Some(TimerId::from_u128(2))), "{fault}");
}
