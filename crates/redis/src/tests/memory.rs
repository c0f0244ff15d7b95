//! Tests a server whose memory is full and stays full.

use super::plain;
use crate::RedisStore;
use pollster::block_on;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon_durable::plan::Plan;
use tourbillon_durable::policy::{Backoff, Policy};
use tourbillon_durable::schedule::{Overlap, Schedule, ScheduleFault, ScheduleKey, Schedules, Template};
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, Renewal, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_durable::{Delivery, Durable, Verdict};
use tourbillon_fault::{Server, eventually};

fn apply(store: &RedisStore, op: Op) -> Result<Outcome, StoreError> {
    block_on(store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
}

fn timer(store: &RedisStore, number: u128, after: Duration) -> Timer {
    Timer::new(TimerId::from_u128(number), "kind", store.now() + after)
}

#[test]
fn a_server_whose_memory_is_full_delivers_what_is_due() {
    const COUNT: u128 = 100;
    let Some(server) = Server::start(&[]) else { return };
    let store = Arc::new(plain::open(RedisStore::builder("d").shards(8), server.port()).unwrap());
    let seen = Arc::<Mutex<BTreeMap<u128, u32>>>::default();
    let noted = Arc::clone(&seen);
    // A third of the timers fail once, and another third are put off once.
    let handler = move |_: Box<[u8]>, delivery: Delivery| {
        let id = delivery.id.as_u128();
        let count = {
            let mut seen = noted.lock().unwrap();
            let count = seen.entry(id).or_default();
            *count += 1;
            *count
        };
        async move {
            match (id % 3, count) {
                (0, 1) => Verdict::Retry { error: "once".into(), after: None },
                (1, 1) => Verdict::Snooze(delivery.due + Duration::from_millis(100)),
                _ => Verdict::Done,
            }
        }
    };
    let of_store: Arc<dyn TimerStore> = Arc::<RedisStore>::clone(&store);
    let durable = Durable::builder_on(of_store).bytes_handler("kind", handler).start().unwrap();
    let policy = Policy { backoff: Backoff::Fixed(Duration::from_millis(30)), ..Policy::default() };
    for number in 1..=COUNT {
        let timer = Timer {
            policy: policy.clone(),
            key: number.is_multiple_of(2).then(|| format!("key {number}").into()),
            ..timer(&store, number, Duration::from_millis(1_000))
        };
        apply(&store, Op::Place(Box::new(timer), IfPresent::Reject)).unwrap();
    }
    for number in 1_001..=1_003 {
        let far = timer(&store, number, Duration::from_secs(3_600));
        apply(&store, Op::Place(Box::new(far), IfPresent::Reject)).unwrap();
    }
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let refused = apply(&store, Op::Place(Box::new(timer(&store, 2_000, Duration::ZERO)), IfPresent::Reject));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Full);
    assert!(refused.to_string().contains("the server's memory is full"), "{refused}");
    assert!(!refused.to_string().contains("disk"), "{refused}");
    eventually("all are delivered", || {
        let seen = seen.lock().unwrap();
        (1..=COUNT).all(|id| seen.get(&id).is_some_and(|count| *count == if id % 3 == 2 { 1 } else { 2 }))
    });
    eventually("their ends are stored", || {
        block_on(store.counts()).is_ok_and(|counts| counts.by_namespace.values().sum::<u64>() == 3)
    });
    // A process that starts while the memory is full can open the deployment.
    let other = plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap();
    assert_eq!(block_on(other.counts()).unwrap().by_namespace.values().sum::<u64>(), 3);
    let id = |number| TimerId::from_u128(number);
    assert!(matches!(apply(&store, Op::Cancel(id(1_001).into(), None)), Ok(Outcome::Cancelled(_))));
    apply(&store, Op::Fire(id(1_002).into())).unwrap();
    apply(&store, Op::Pause(id(1_003).into())).unwrap();
    apply(&store, Op::Resume(id(1_003).into())).unwrap();
    eventually("the one that was fired is delivered", || seen.lock().unwrap().contains_key(&1_002));
    // The node goes on giving signs of life.
    let signs = || block_on(store.nodes()).unwrap().unwrap().nodes[0].seen;
    let before = signs();
    eventually("a sign of life is stored", || signs() > before);
    assert_eq!(server.query::<(String, String)>(&["CONFIG", "GET", "maxmemory"]).1, "1048576");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(block_on(store.check()).unwrap(), []);
    drop(durable.shutdown(Duration::from_secs(5)));
}

#[test]
fn leases_are_renewed_and_given_back_although_the_memory_is_full() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").shards(2).poll(None), server.port()).unwrap();
    for number in 1..=4 {
        apply(&store, Op::Place(Box::new(timer(&store, number, Duration::ZERO)), IfPresent::Reject)).unwrap();
    }
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let by = Claimant { incarnation: 1, lease: Duration::from_millis(500) };
    let (mut leased, mut claim) = (Vec::new(), 0);
    eventually("all are claimed", || {
        claim += 1;
        let limit = Limit { timers: u32::MAX, bytes: u64::MAX };
        leased.extend(block_on(store.claim(by, claim, limit, None)).unwrap().leased);
        leased.len() == 4
    });
    let held = leased.iter().map(|leased| (leased.timer.id, leased.token)).collect();
    assert_eq!(block_on(store.renew(by, held)).unwrap(), Renewal::default());
    let mut returned = Vec::new();
    eventually("they come back", || {
        returned.extend(block_on(store.reap(10)).unwrap().returned);
        returned.len() == 4
    });
    block_on(store.leave()).unwrap();
}

/// Returns the port of a proxy behind which the server on `port` refuses the flags of scripts, as servers before Redis
/// 7.0 do.
fn without_flags(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let pass = |mut from: TcpStream, mut to: TcpStream, changes: bool| {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let read = &mut bytes[..count];
            if changes {
                let places: Vec<_> =
                    (0..read.len()).filter(|at| read[*at..].starts_with(b"#!lua ")).collect();
                places.into_iter().for_each(|at| read[at..at + 6].copy_from_slice(b"#!old "));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _closed = to.shutdown(Shutdown::Both);
    };
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pass(from, to, true));
            thread::spawn(move || pass(server, client, false));
        }
    });
    own
}

#[test]
fn a_server_that_knows_no_flags_of_scripts_runs_them_without() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").poll(None), without_flags(server.port())).unwrap();
    for number in 1..=3 {
        let timer = timer(&store, number, Duration::from_secs(3_600));
        apply(&store, Op::Place(Box::new(timer), IfPresent::Reject)).unwrap();
        let outcome = apply(&store, Op::Cancel(TimerId::from_u128(number).into(), None));
        assert!(matches!(outcome, Ok(Outcome::Cancelled(_))), "{outcome:?}");
    }
}

/// Tests that the shards of a cluster are asked before an import whether their servers have free memory.
#[test]
fn an_import_into_a_cluster_with_a_full_memory_has_surely_no_effect() {
    let Some(server) = Server::start(&[]) else { return };
    let builder = RedisStore::builder("d").shards(4).poll(None).split();
    let store = plain::open(builder, server.port()).unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let timers = (1..=20).map(|number| timer(&store, number, Duration::ZERO)).collect();
    let error = block_on(store.import(timers)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
}

/// Tests that a server without free memory refuses a new occurrence of a schedule. The schedule is then late, and
/// reports this. A trigger fails without an effect.
#[test]
fn a_schedule_is_late_while_the_memory_is_full() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").shards(2), server.port()).unwrap();
    let of_store: Arc<dyn TimerStore> = Arc::new(store);
    let schedules = Schedules::new(Arc::clone(&of_store));
    let builder = Durable::builder_on(of_store).bytes_handler("kind", |_: Box<[u8]>, _| async {});
    let durable = schedules.add_to(builder).start().unwrap();
    let at = ScheduleKey::new("shop", "s");
    let template = Template {
        kind: "kind".into(),
        payload: Payload(Box::default()),
        labels: Vec::new(),
        policy: Policy::default(),
    };
    let often = Schedule { overlap: Overlap::Allow, ..Schedule::new(Plan::Every(200)) };
    schedules.put(&at, often, template).unwrap();
    let fired = || schedules.get(&at).unwrap().progress.fired;
    eventually("an occurrence is made", || fired() > 0);
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    eventually("the schedule is late", || schedules.get(&at).unwrap().overdue > Duration::from_secs(3));
    let refused = schedules.trigger(&at).unwrap_err();
    assert!(matches!(&refused, ScheduleFault::Store(error) if error.kind() == StoreErrorKind::Full));
    let before = fired();
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("the schedule goes on", || fired() > before);
    eventually("the schedule is late no more", || {
        schedules.get(&at).unwrap().overdue < Duration::from_millis(500)
    });
    drop(durable.shutdown(Duration::from_secs(5)));
}
