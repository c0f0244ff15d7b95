//! Tests a policy that waits for a replica while the only replica is dead.

use super::recording::recording;
use crate::{Connect, RedisStore, SyncPolicy};
use pollster::block_on;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Phase, Refusal};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Leased, Limit, Op, Outcome, PAUSED, StoreError, StoreErrorKind,
    TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Server, eventually};

const WAIT: Duration = Duration::from_millis(500);
const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };

/// Starts a primary, its replica, and a store whose changes wait for the replica.
fn start() -> Option<(Server, Server, Arc<RedisStore>)> {
    let primary = Server::start(&[])?;
    let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port().to_string()])?;
    eventually("the replica follows", || replica.info("master_link_status").as_deref() == Some("up"));
    let sync = SyncPolicy::Wait { replicas: 1, timeout: WAIT };
    let connect = Connect::single(&primary.url()).unwrap().sync(sync);
    let store = block_on(RedisStore::builder("d").shards(8).open(&connect)).unwrap();
    // A new replica confirms nothing for a moment.
    let other = Arc::new(block_on(RedisStore::builder("other").shards(1).open(&connect)).unwrap());
    let mut number = 0;
    eventually("the replica confirms", || {
        number += 1;
        place(&other, vec![timer(&other, number, Duration::from_secs(3_600))]).is_ok()
    });
    Some((primary, replica, Arc::new(store)))
}

fn place(store: &RedisStore, timers: Vec<Timer>) -> Result<Vec<Outcome>, StoreError> {
    let ops = timers.into_iter().map(|timer| Op::Place(Box::new(timer), IfPresent::Reject));
    block_on(store.apply(ops.collect(), Durability::PowerLoss))
}

fn timer(store: &RedisStore, number: u128, after: Duration) -> Timer {
    Timer::new(TimerId::from_u128(number), "kind", store.now() + after)
}

#[test]
fn a_dead_replica_delays_no_delivery() {
    const COUNT: usize = 200;
    let Some((_primary, mut replica, store)) = start() else { return };
    let (runtime, seen) = recording(&store);
    let durable = runtime.start().unwrap();
    let moments = (0_u32..).map(|number| Duration::from_secs(2) + Duration::from_millis(20) * number);
    let timers = (1..).zip(moments.take(COUNT)).map(|(number, after)| timer(&store, number, after));
    place(&store, timers.collect()).unwrap();
    replica.kill();
    // Creations go on as well. They fail with `Unknown`, since a failover may lose them.
    for number in 0..5 {
        let begin = Instant::now();
        let error =
            place(&store, vec![timer(&store, 1_000 + number, Duration::from_secs(3_600))]).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains("0 of 1 replicas had received it"), "{error}");
        assert!(begin.elapsed() >= WAIT, "{:?}", begin.elapsed());
    }
    eventually("all are delivered", || seen.lock().unwrap().len() == COUNT);
    eventually("their ends are stored", || {
        block_on(store.counts()).is_ok_and(|counts| counts.by_namespace.values().sum::<u64>() == 5)
    });
    let mut late: Vec<_> = seen.lock().unwrap().values().flatten().copied().collect();
    late.sort_unstable();
    let (p50, p99) = (late[late.len() / 2], late[late.len() * 99 / 100]);
    drop(writeln!(io::stderr(), "{} deliveries beside a dead replica: p50 {p50:?}, p99 {p99:?}", late.len()));
    assert_eq!(late.len(), COUNT, "none comes twice");
    assert!(p50 < Duration::from_millis(50), "{p50:?}");
    assert!(p99 < WAIT, "{p99:?}");
    drop(durable.shutdown(Duration::from_secs(5)));
}

/// Tests timers that are delivered at most once beside other timers. There are more of them than the runtime
/// delivers at a time. While the replica is dead, their handlers are not called, and the other timers are delivered
/// as before. Afterwards each timer is delivered once.
#[test]
fn beside_a_dead_replica_a_timer_at_most_once_waits_and_delays_no_other() {
    const OTHERS: usize = 150;
    const ONCE: u32 = 20;
    let Some((_primary, mut replica, store)) = start() else { return };
    let (runtime, seen) = recording(&store);
    let durable = runtime.workers(2).concurrency(8).lease(Duration::from_secs(1)).start().unwrap();
    let moments = (0_u32..).map(|number| Duration::from_secs(2) + Duration::from_millis(20) * number);
    let others = (1..).zip(moments.take(OTHERS)).map(|(number, after)| timer(&store, number, after));
    let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    let once = (0..ONCE).map(|number| {
        let after = Duration::from_secs(2) + Duration::from_millis(20) * number;
        Timer { policy: policy.clone(), ..timer(&store, 1_000 + u128::from(number), after) }
    });
    place(&store, others.chain(once).collect()).unwrap();
    replica.kill();
    let seen_others = || seen.lock().unwrap().range(..1_000).count();
    eventually("the others are delivered", || seen_others() == OTHERS);
    assert_eq!(seen.lock().unwrap().range(1_000..).count(), 0, "a removal is not confirmed");
    let mut late: Vec<_> = seen.lock().unwrap().range(..1_000).flat_map(|(_, late)| late.clone()).collect();
    late.sort_unstable();
    let (p50, p90) = (late[late.len() / 2], late[late.len() * 9 / 10]);
    drop(writeln!(io::stderr(), "beside timers at most once and a dead replica: p50 {p50:?}, p90 {p90:?}"));
    assert_eq!(late.len(), OTHERS, "none comes twice");
    assert!(p90 < WAIT, "{p90:?}");
    replica.restart();
    let all = OTHERS + ONCE as usize;
    eventually("each is delivered once the replica is back", || seen.lock().unwrap().len() == all);
    eventually("their ends are stored", || {
        block_on(store.counts()).is_ok_and(|counts| counts.by_namespace.values().sum::<u64>() == 0)
    });
    thread::sleep(Duration::from_millis(500));
    assert!(seen.lock().unwrap().values().all(|late| late.len() == 1), "each once");
    drop(durable.shutdown(Duration::from_secs(5)));
}

/// Tests that callers that wait for the replica at the same time share one `WAIT`.
#[test]
fn callers_share_the_wait_for_a_dead_replica() {
    let Some((_primary, mut replica, store)) = start() else { return };
    replica.kill();
    let begin = Instant::now();
    thread::scope(|scope| {
        for number in 1..=20 {
            let store = &store;
            scope.spawn(move || {
                place(store, vec![timer(store, number, Duration::from_secs(3_600))]).unwrap_err();
            });
        }
    });
    assert!(begin.elapsed() < 5 * WAIT, "{:?}", begin.elapsed());
    // Changes without a promise, and reads, do not wait.
    let begin = Instant::now();
    for number in 1..=20 {
        let id = TimerId::from_u128(number);
        assert!(block_on(store.get(id.into())).unwrap().is_some());
        let op = Op::Cancel(id.into(), None);
        block_on(store.apply(vec![op], Durability::Volatile)).unwrap();
    }
    assert!(begin.elapsed() < 5 * WAIT, "{:?}", begin.elapsed());
    // An empty batch confirms changes that were made without a promise.
    assert!(block_on(store.apply(Vec::new(), Durability::PowerLoss)).is_err());
    replica.restart();
    eventually("the replica follows", || replica.info("master_link_status").as_deref() == Some("up"));
    block_on(store.apply(Vec::new(), Durability::PowerLoss)).unwrap();
}

/// Tests that every kind of durable change waits for the replica.
#[test]
fn what_a_caller_is_promised_waits_for_the_replica() {
    let Some((_primary, mut replica, store)) = start() else { return };
    let label =
        |number| Timer { labels: vec!["l".into()], ..timer(&store, number, Duration::from_secs(3_600)) };
    place(&store, (1..=6).map(label).collect()).unwrap();
    replica.kill();
    let id = |number| TimerId::from_u128(number);
    let ops = [
        Op::Place(Box::new(timer(&store, 7, Duration::ZERO)), IfPresent::Reject),
        Op::Place(Box::new(label(8)), IfPresent::Reject),
        Op::Place(Box::new(Timer { key: Some("k".into()), ..label(9) }), IfPresent::Replace),
        Op::Cancel(id(1).into(), None),
        Op::Cancel(id(99).into(), None),
        Op::Pause(id(2).into()),
        Op::Fire(id(3).into()),
        Op::CancelLabelled { namespace: "".into(), label: "l".into(), limit: 10 },
        Op::Unpark("reason".into(), 10),
    ];
    for op in ops {
        let name = format!("{op:?}");
        let answer = block_on(store.apply(vec![op], Durability::PowerLoss));
        assert_eq!(answer.map_err(|error| error.kind()), Err(StoreErrorKind::Unknown), "{name}");
    }
    let imported = block_on(store.import(vec![timer(&store, 20, Duration::ZERO)]));
    assert_eq!(imported.unwrap_err().kind(), StoreErrorKind::Unknown);
    assert_eq!(
        block_on(store.replace_document("n", 0, Some(b"v"))).unwrap_err().kind(),
        StoreErrorKind::Unknown
    );
}

/// Tests timers that are delivered at most once, which the caller removes before their deliveries. If the replica
/// cannot confirm the removals, these timers wait, but no other timer does.
#[test]
fn a_timer_that_is_delivered_at_most_once_waits_for_the_replica_and_is_not_lost() {
    for is_parked in [false, true] {
        let Some((_primary, mut replica, store)) = start() else { return };
        let by = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
        let once = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
        let timer_of = |number: u128| {
            let policy = if number.is_multiple_of(2) { once.clone() } else { Policy::default() };
            Timer { policy, ..timer(&store, number, Duration::ZERO) }
        };
        place(&store, (1..=6).map(timer_of).collect()).unwrap();
        if is_parked {
            let pauses = (1..=6).map(|number| Op::Pause(TimerId::from_u128(number).into())).collect();
            block_on(store.apply(pauses, Durability::PowerLoss)).unwrap();
        }
        replica.kill();
        let (mut leased, mut claim) = (Vec::new(), 0);
        eventually("all are claimed", || {
            claim += 1;
            let claimed = match is_parked {
                true => block_on(store.claim_parked(by, claim, PAUSED.into(), 6, ALL)).unwrap().unwrap(),
                false => block_on(store.claim(by, claim, ALL, None)).unwrap(),
            };
            leased.extend(claimed.leased);
            leased.len() == 6
        });
        let is_once = |leased: &Leased| leased.timer.id.as_u128().is_multiple_of(2);
        let (removed, others): (Vec<Leased>, Vec<Leased>) = leased.into_iter().partition(is_once);
        let end = |leased: &Leased| Op::Skip(leased.timer.id, leased.token);
        let removals: Vec<Op> = removed.iter().map(end).collect();
        let remove = || block_on(store.apply(removals.clone(), Durability::PowerLoss)).unwrap();
        // The first question waits for the replica, and the next ones know its answer.
        let begin = Instant::now();
        let refused = Outcome::Refused(Refusal::State(Phase::Leased));
        (0..3).for_each(|_| assert_eq!(remove(), [(); 3].map(|()| refused.clone())));
        assert!(begin.elapsed() < 3 * WAIT, "{:?}", begin.elapsed());
        for leased in &removed {
            let stored = block_on(store.get(leased.timer.id.into())).unwrap().unwrap();
            assert_eq!(stored.state.phase(), Phase::Leased, "nothing is lost");
        }
        // Ends without a promise do not wait, and the batch of a removal keeps its promise to the others.
        let begin = Instant::now();
        let ended = block_on(store.apply(vec![end(&others[0])], Durability::ProcessCrash)).unwrap();
        assert!(matches!(ended[..], [Outcome::Ended { .. }]), "{ended:?}");
        assert!(begin.elapsed() < WAIT, "{:?}", begin.elapsed());
        let mixed = vec![removals[0].clone(), end(&others[1])];
        assert_eq!(
            block_on(store.apply(mixed, Durability::PowerLoss)).unwrap_err().kind(),
            StoreErrorKind::Unknown
        );
        replica.restart();
        eventually("the replica follows", || replica.info("master_link_status").as_deref() == Some("up"));
        let mut outcomes = Vec::new();
        eventually("they are removed when the promise can be kept", || {
            thread::sleep(Duration::from_millis(50));
            outcomes = remove();
            !outcomes.contains(&refused)
        });
        let is_done = |outcome: &Outcome| matches!(outcome, Outcome::Ended { phase: Phase::Done, .. });
        assert!(outcomes.iter().all(is_done), "{outcomes:?}");
    }
}

/// Tests the end of a delivery that another node has begun, while the replica is away. The end may be made and is not
/// confirmed. So the answer asks for a repetition, and does not say that the delivery has ended.
#[test]
fn an_end_of_another_nodes_delivery_is_not_refused_while_the_replica_is_away() {
    let Some((primary, mut replica, store)) = start() else { return };
    let connect = Connect::single(&primary.url()).unwrap();
    let connect = connect.sync(SyncPolicy::Wait { replicas: 1, timeout: WAIT });
    let other = block_on(RedisStore::builder("d").shards(8).open(&connect)).unwrap();
    let by = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
    place(&store, (1..=2).map(|number| timer(&store, number, Duration::ZERO)).collect()).unwrap();
    let (mut leased, mut claim) = (Vec::new(), 0);
    eventually("both are claimed", || {
        claim += 1;
        leased.extend(block_on(store.claim(by, claim, ALL, None)).unwrap().leased);
        leased.len() == 2
    });
    let ends: Vec<Op> = leased.iter().map(|leased| Op::Ack(leased.timer.id, leased.token)).collect();
    replica.kill();
    for ends in [&ends[..1], &ends[..]] {
        let end = block_on(other.apply(ends.to_vec(), Durability::PowerLoss));
        assert_eq!(end.unwrap_err().kind(), StoreErrorKind::Unknown);
    }
}
