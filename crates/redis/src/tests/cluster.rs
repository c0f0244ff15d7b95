//! Tests the store on a cluster while slots move and primaries change.

use super::PAST;
use super::conformance::Restricted;
use crate::layout::{Layout, Part, Shard, slot_of};
use crate::link::{Connect, SyncPolicy};
use crate::{RedisStore, SHARDS};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Leased, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Cluster, Server, eventually};

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(600) };
const SOME: Limit = Limit { timers: 200, bytes: u64::MAX };
const NAME: &str = "moving";

/// The longest time that a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

fn store(cluster: &Cluster, sync: SyncPolicy) -> Arc<RedisStore> {
    let connect = Connect::cluster(cluster.urls()).unwrap().patience(PATIENCE).response_timeout(PATIENCE);
    let connect = connect.sync(sync);
    Arc::new(pollster::block_on(RedisStore::builder(NAME).poll(None).open(&connect)).unwrap())
}

fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    pollster::block_on(answer).unwrap()
}

/// Makes a timer with this id. A timer with an even number has a key, which usually belongs to a shard other than that
/// of the id.
fn timer(number: u128) -> Timer {
    let key = number.is_multiple_of(2).then(|| format!("secret key {number}").into());
    let labels = vec!["secret label".into()];
    Timer { key, labels, ..Timer::new(TimerId::from_u128(number), "secret kind", PAST) }
}

fn place(timer: Timer) -> Vec<Op> {
    vec![Op::Place(Box::new(timer), IfPresent::Reject)]
}

/// Returns the names of all keys on the cluster's primaries.
fn names(cluster: &Cluster) -> BTreeSet<String> {
    let owners: BTreeSet<usize> = (0..3).filter_map(|third| cluster.owner(0, third * 5_462)).collect();
    owners.into_iter().flat_map(|node| cluster.nodes[node].query::<Vec<String>>(&["KEYS", "*"])).collect()
}

/// The load of clients that create, claim and end timers without pause.
struct Load {
    created: AtomicU64,
    ended: AtomicU64,
    /// The errors of failed operations, each of which a client has repeated.
    failures: Mutex<Vec<StoreError>>,
    /// The longest time that a creation or an end of a delivery took, in milliseconds.
    longest: AtomicU64,
    is_over: AtomicBool,
}

/// Ends the load of the clients when this value is dropped, even if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// Repeats an operation until it succeeds. A reply may be lost if its server is down or was replaced.
    fn ask<T>(&self, mut ask: impl FnMut() -> Result<T, StoreError>) -> T {
        let begin = Instant::now();
        loop {
            match ask() {
                Ok(answer) => {
                    let took = u64::try_from(begin.elapsed().as_millis()).unwrap();
                    self.longest.fetch_max(took, Ordering::Relaxed);
                    return answer;
                }
                Err(error) if matches!(error.kind(), StoreErrorKind::Io | StoreErrorKind::Unknown) => {
                    assert!(begin.elapsed() < Duration::from_secs(170), "{error}");
                    self.failures.lock().unwrap().push(error);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn create(&self, store: &RedisStore, client: u128) {
        for number in 1.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let timer = timer(client << 64 | number);
            let id = timer.id;
            // A creation is repeated under its id. The timer may have been delivered before the repetition, so its id
            // must be remembered.
            let timer = Timer { has_chosen_id: true, ..timer };
            let outcome = self.ask(|| {
                pollster::block_on(store.apply(place(timer.clone()), Durability::PowerLoss))
                    .map(|mut outcomes| outcomes.remove(0))
            });
            assert!(
                matches!(&outcome, Outcome::Created(created) | Outcome::Repeated(created) if *created == id),
                "{outcome:?}"
            );
            self.created.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Claims and ends timers until the load is over and no timer is left. Returns the id of each ended timer.
    fn end(&self, store: &RedisStore) -> Vec<TimerId> {
        let (mut seen, mut claim) = (Vec::new(), 0);
        loop {
            let was_over = self.is_over.load(Ordering::Relaxed);
            claim += 1;
            let mut is_lost = false;
            let leased: Vec<Leased> = self.ask(|| {
                if is_lost {
                    return pollster::block_on(store.recover(BY, claim));
                }
                let claimed =
                    pollster::block_on(store.claim(BY, claim, SOME, None)).map(|claimed| claimed.leased);
                is_lost = claimed.is_err();
                claimed
            });
            if leased.is_empty() && was_over && !is_lost {
                return seen;
            }
            for Leased { timer, token } in leased {
                let mut turn = 0;
                let outcome = self.ask(|| {
                    turn += 1;
                    pollster::block_on(store.apply(vec![Op::Ack(timer.id, token)], Durability::PowerLoss))
                        .map(|mut outcomes| outcomes.remove(0))
                });
                let is_repeated = turn > 1 && matches!(outcome, Outcome::Refused(_));
                assert!(is_repeated || matches!(outcome, Outcome::Ended { .. }), "{outcome:?}");
                seen.push(timer.id);
                self.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Prints the longest time that an operation took, which the tests do not check.
fn tell(longest: Duration) {
    drop(writeln!(io::stderr(), "the longest operation took {longest:?}"));
}

/// Runs the clients' load while `act` disturbs the cluster. Then verifies that no timer is lost or delivered twice, and
/// that no data are left. Returns the longest time that an operation took.
#[track_caller]
fn under_load(store: &RedisStore, act: impl FnOnce(&Load)) -> Duration {
    let load = Load {
        created: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        failures: Mutex::default(),
        longest: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let mut seen = thread::scope(|scope| {
        let over = Over(&load.is_over);
        let creators: Vec<_> = (1..=2)
            .map(|client| {
                let load = &load;
                scope.spawn(move || load.create(store, client))
            })
            .collect();
        let end = scope.spawn(|| load.end(store));
        eventually("timers end", || load.ended.load(Ordering::Relaxed) > 20);
        act(&load);
        let ended = load.ended.load(Ordering::Relaxed);
        eventually("timers end after it", || load.ended.load(Ordering::Relaxed) > ended + 20);
        drop(over);
        creators.into_iter().for_each(|creator| creator.join().unwrap());
        end.join().unwrap()
    });
    // Some timers may have been created during the last claim.
    seen.extend(load.end(store));
    let distinct: BTreeSet<TimerId> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len(), "a timer was ended twice");
    assert_eq!(distinct.len() as u64, load.created.load(Ordering::Relaxed), "a timer is lost");
    assert_eq!(now(store.check()), []);
    assert_eq!(now(store.counts()).of(Phase::Pending), 0);
    Duration::from_millis(load.longest.load(Ordering::Relaxed))
}

#[test]
fn no_text_of_a_user_is_in_a_keys_name_and_nothing_is_left_in_a_cluster() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let store = store(&cluster, SyncPolicy::None);
    let (first, rest) = (0..20_u128, 20..40_u128);
    for number in first {
        let _created = now(store.apply(place(timer(number)), Durability::PowerLoss));
    }
    now(store.import(rest.map(timer).collect()));
    let again = pollster::block_on(store.import(vec![timer(100), timer(30)]));
    assert_eq!(again.unwrap_err().kind(), StoreErrorKind::Limit);
    assert_eq!(now(store.get(TimerId::from_u128(100).into())), None, "nothing of a refused import is stored");
    for node in &cluster.nodes {
        node.command(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(now(store.check()), []);
    for name in names(&cluster) {
        assert!(!name.contains("secret") && name.starts_with("tb:{moving"), "{name}");
    }
    let claimed = now(store.claim(BY, 1, SOME, None)).leased;
    assert_eq!(claimed.len(), 40);
    let ends = claimed.into_iter().take(30).map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    let ended = now(store.apply(ends, Durability::PowerLoss));
    assert!(ended.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{ended:?}");
    let released: Vec<Op> = now(store.recover(BY, 1))
        .into_iter()
        .map(|leased| Op::Release(leased.timer.id, leased.token))
        .collect();
    assert_eq!(now(store.apply(released, Durability::PowerLoss)).len(), 10);
    let all = Op::CancelLabelled { namespace: "".into(), label: "secret label".into(), limit: 100 };
    let cancelled = now(store.apply(vec![all], Durability::PowerLoss)).remove(0);
    assert_eq!(cancelled, Outcome::CancelledMany { cancelled: 10, in_flight: 0, more: false });
    let mut names: Vec<String> =
        names(&cluster).into_iter().filter(|name| !name.ends_with(":meta")).collect();
    names.sort_unstable();
    let wanted = ["tb:{moving}:about", "tb:{moving}:deployment", "tb:{moving}:nodes"];
    assert_eq!(names, wanted, "a cluster keeps nothing of timers that have ended");
}

/// Returns the number of times that the cluster's primaries have answered with the error `error`.
fn refused(cluster: &Cluster, error: &str) -> u64 {
    let count = |node: &Server| -> Option<u64> {
        node.info(&format!("errorstat_{error}"))?.strip_prefix("count=")?.trim().parse().ok()
    };
    cluster.nodes.iter().filter_map(count).sum()
}

/// F-24: the slots of a cluster move while timers are created and ended. The store's user has only the rights in the
/// README.
#[test]
#[ignore = "takes long; the CI runs it"]
fn nothing_is_lost_while_slots_move() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let user = Restricted::on(&cluster);
    let connect = user.connect(PATIENCE);
    let store = Arc::new(now(RedisStore::builder(NAME).poll(None).open(&connect)));
    let layout = Layout::new(NAME, SHARDS);
    let key = |shard: Shard| String::from_utf8(layout.key(shard, Part::Records)).unwrap();
    let longest = under_load(&store, |load| {
        for shard in (0..SHARDS).step_by(8) {
            let slot = cluster.slot(&key(shard));
            let from = cluster.owner(0, slot).unwrap();
            let to = (from + 1) % 3;
            cluster.begin_move(slot, from, to);
            let meets = |error: &str| {
                let before = refused(&cluster, error);
                eventually(error, || refused(&cluster, error) > before);
            };
            // First, some keys of an operation exist neither at the source nor at the target. Then all keys are at the
            // target.
            meets("TRYAGAIN");
            cluster.move_all_keys(slot, from, to);
            meets("ASK");
            cluster.finish_move(slot, from, to);
            for node in 0..cluster.nodes.len() {
                eventually("all see the move", || cluster.owner(node, slot) == Some(to));
            }
        }
        // While a slot moves, no operation fails: the client follows the redirections.
        assert_eq!(
            load.failures.lock().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(),
            [""; 0]
        );
    });
    user.verify();
    tell(longest);
}

/// Tests a script that ends a timer while its slot moves. Such a script may remove the last member of a key and then
/// read the key again. If the script named only existing keys, Redis would start it, and end it in the middle.
#[test]
#[ignore = "takes long; the CI runs it"]
fn a_change_is_refused_as_a_whole_while_its_slot_moves() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let patient = store(&cluster, SyncPolicy::None);
    let connect = Connect::cluster(cluster.urls()).unwrap().patience(Duration::from_millis(200));
    let hasty = Arc::new(now(RedisStore::builder(NAME).poll(None).open(&connect)));
    let layout = Layout::new(NAME, SHARDS);
    // The ids are in shards other than the keys' shards, so the ends name no key of the ids' shards.
    let key = |id: TimerId| Box::from(format!("key {id}"));
    let is_apart = |id: &TimerId| layout.shard_of_key("", &key(*id)) == 0 && layout.shard_of_id(*id) != 0;
    let mut ids = (1..).map(TimerId::from_u128).filter(is_apart);
    let slot = u16::try_from(slot_of(&layout.key(0, Part::Records))).unwrap();
    let claim = |number: u64, id: TimerId| {
        let labels = vec!["label".into()];
        let timer = Timer { key: Some(key(id)), labels, ..Timer::new(id, "kind", PAST) };
        let _created = now(patient.apply(place(timer), Durability::PowerLoss));
        let claimed = now(patient.claim(BY, number, SOME, None)).leased;
        claimed.into_iter().find(|leased| leased.timer.id == id).unwrap()
    };
    // This timer stays, so that few parts of the shard are empty.
    let _stays = claim(1, ids.next().unwrap());
    let changes: [fn(&Leased) -> Op; 4] = [
        |leased| Op::Ack(leased.timer.id, leased.token),
        |leased| Op::Skip(leased.timer.id, leased.token),
        |leased| Op::Release(leased.timer.id, leased.token),
        |leased| Op::Park(leased.timer.id, leased.token, "why".into()),
    ];
    for (change, number) in changes.into_iter().zip(2..) {
        let leased = claim(number, ids.next().unwrap());
        let from = cluster.owner(0, slot).unwrap();
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        let refused =
            pollster::block_on(hasty.apply(vec![change(&leased)], Durability::PowerLoss)).unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Io, "it surely has had no effect: {refused}");
        cluster.move_all_keys(slot, from, to);
        cluster.finish_move(slot, from, to);
        let outcome = now(patient.apply(vec![change(&leased)], Durability::PowerLoss)).remove(0);
        assert!(!matches!(outcome, Outcome::Refused(_)), "it has its effect now: {outcome:?}");
        assert_eq!(now(patient.check()), []);
    }
}

#[test]
#[ignore = "takes long; the CI runs it"]
fn nothing_is_lost_when_replicas_take_over_and_scripts_are_forgotten() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let longest = under_load(&store(&cluster, SyncPolicy::None), |load| {
        for primary in 0..3 {
            let ended = load.ended.load(Ordering::Relaxed);
            cluster.nodes.iter().for_each(|node| node.command(&["SCRIPT", "FLUSH"]));
            let slot = u16::try_from(primary).unwrap() * 5_462;
            cluster.take_over(primary + 3, None);
            eventually("the replica knows it", || cluster.owner(primary + 3, slot) == Some(primary + 3));
            eventually("timers end after it", || load.ended.load(Ordering::Relaxed) > ended + 20);
        }
    });
    tell(longest);
}

#[test]
#[ignore = "takes long; the CI runs it"]
fn nothing_is_lost_when_a_primary_is_killed_and_its_replica_had_all() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let wait = SyncPolicy::Wait { replicas: 1, timeout: PATIENCE };
    let store = store(&cluster, wait);
    cluster.node_timeout(Duration::from_secs(2));
    let longest = under_load(&store, |_| {
        cluster.nodes[0].kill();
        eventually("the replica takes over", || cluster.owner(3, 0) == Some(3));
        cluster.nodes[0].restart();
        eventually("the old primary follows", || {
            cluster.nodes[0].info("master_link_status").as_deref() == Some("up")
        });
    });
    tell(longest);
}
