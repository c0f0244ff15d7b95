//! Tests creations that wait at the same time, and the sets of keys.

use super::plain;
use crate::layout::{Layout, Part};
use crate::layout::{key_entry, without_id};
use crate::{Connect, RedisStore};
use futures_util::future::join_all;
use redis::Value;
use std::slice;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{
    Durability, Filter, IfPresent, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, KeyOf, Payload, Timer, TimerId};
use tourbillon_fault::{Fate, Proxy, Server, eventually};

fn timer(store: &RedisStore, key: &str) -> Timer {
    let due = store.now() + Duration::from_secs(3_600);
    let id = store.fresh_id("shop", Some(key));
    let payload = Payload([7; 64].into());
    Timer { namespace: "shop".into(), key: Some(key.into()), payload, ..Timer::new(id, "mail", due) }
}

/// Creates `timers` by calls that run at the same time. Returns the outcomes in the order of the timers.
fn create(store: &RedisStore, timers: &[Timer], mode: IfPresent) -> Vec<Outcome> {
    let calls = timers.iter().map(async |timer| {
        let op = Op::Place(Box::new(timer.clone()), mode);
        store.apply(vec![op], Durability::PowerLoss).await.unwrap().remove(0)
    });
    pollster::block_on(join_all(calls))
}

fn scripts(server: &Server) -> u64 {
    let stats: String = server.query(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    calls("eval") + calls("evalsha")
}

#[test]
fn creations_that_wait_together_are_few_scripts_and_each_is_decided_by_itself() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap();
    let timers: Vec<Timer> = (0..1_000).map(|n| timer(&store, &format!("order-{n:04}"))).collect();
    let before = scripts(&server);
    let outcomes = create(&store, &timers, IfPresent::Reject);
    let created: Vec<Outcome> = timers.iter().map(|timer| Outcome::Created(timer.id)).collect();
    assert_eq!(outcomes, created);
    let calls = scripts(&server) - before;
    assert!(calls < 100, "{calls} scripts for 1,000 creations");
    let keyless: Vec<Timer> = (0..1_000).map(|_| Timer { key: None, ..timer(&store, "") }).collect();
    let before = scripts(&server);
    let outcomes = create(&store, &keyless, IfPresent::Reject);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Created(_))), "{outcomes:?}");
    let calls = scripts(&server) - before;
    assert!(calls < 100, "{calls} scripts for 1,000 creations without keys");
    // Stored ids, taken keys and new timers take turns.
    let again: Vec<Timer> = (0..300)
        .map(|n| match n % 3 {
            0 => timers[n].clone(),
            1 => timer(&store, &format!("order-{n:04}")),
            _ => timer(&store, &format!("another-{n:04}")),
        })
        .collect();
    let outcomes = create(&store, &again, IfPresent::Keep);
    for (n, (outcome, new)) in outcomes.iter().zip(&again).enumerate() {
        match n % 3 {
            0 => assert_eq!(*outcome, Outcome::Repeated(new.id)),
            1 => assert!(format!("{outcome:?}").contains(&format!("{:?}", timers[n].id)), "{outcome:?}"),
            _ => assert_eq!(*outcome, Outcome::Created(new.id)),
        }
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    let counts = pollster::block_on(store.counts()).unwrap();
    assert_eq!(counts.by_namespace.values().sum::<u64>(), 2_100);
}

#[test]
fn of_creations_of_one_key_at_the_same_time_one_is_stored() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap();
    let timers: Vec<Timer> = (0..400).map(|n| timer(&store, &format!("order-{}", n % 100))).collect();
    let outcomes = create(&store, &timers, IfPresent::Reject);
    let created = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Created(_))).count();
    assert_eq!(created, 100);
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    // An id is not free if it is remembered, or has a redirect to another shard.
    let chosen = |key: &str| Timer { id: TimerId::from_u128(77), has_chosen_id: true, ..timer(&store, key) };
    let layout = Layout::new("d", 64);
    let keys = || (0..).map(|n| format!("key-{n}"));
    let home = layout.shard_of_id(TimerId::from_u128(77));
    let mut near = keys().filter(|key| layout.shard_of_key("shop", key) == home);
    let far = keys().find(|key| layout.shard_of_key("shop", key) != home).unwrap();
    let far = chosen(&far);
    let id = far.id;
    assert_eq!(create(&store, &[far], IfPresent::Reject), [Outcome::Created(id)]);
    let second = chosen(&near.next().unwrap());
    assert_eq!(create(&store, slice::from_ref(&second), IfPresent::Reject), [Outcome::Repeated(id)]);
    let cancel = Op::Cancel(id.into(), None);
    let _cancelled = pollster::block_on(store.apply(vec![cancel], Durability::PowerLoss)).unwrap();
    assert_eq!(create(&store, &[second], IfPresent::Reject), [Outcome::Repeated(id)], "it is remembered");
    // A stored id is not free either, even if the key is free.
    let chosen = TimerId::from_u128(78);
    let first = Timer { id: chosen, has_chosen_id: true, key: None, ..timer(&store, "") };
    let second = Timer { payload: Payload([8; 64].into()), ..first.clone() };
    assert_eq!(create(&store, slice::from_ref(&first), IfPresent::Reject), [Outcome::Created(chosen)]);
    assert_eq!(
        create(&store, &[first, second], IfPresent::Reject),
        [(); 2].map(|()| Outcome::Repeated(chosen))
    );
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

#[test]
fn a_list_by_key_has_the_order_of_the_keys_whatever_their_sets() {
    let Some(server) = Server::start(&[]) else { return };
    for shards in [1, 64] {
        let store =
            plain::open(RedisStore::builder(format!("d{shards}")).shards(shards).poll(None), server.port());
        let store = store.unwrap();
        let mut keys: Vec<String> = (0..700).map(|n| format!("order-{}", n * 7_919 % 10_007)).collect();
        let timers: Vec<Timer> = keys.iter().map(|key| timer(&store, key)).collect();
        let _created = create(&store, &timers, IfPresent::Reject);
        keys.retain(|key| key.starts_with("order-3"));
        keys.sort_unstable();
        let filter = Filter {
            namespace: Some("shop".into()),
            key_prefix: Some("order-3".into()),
            ..Filter::default()
        };
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let page = pollster::block_on(store.list(filter.clone(), cursor.take(), 30)).unwrap();
            found.extend(page.timers.into_iter().filter_map(|timer| timer.key).map(String::from));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(keys.len() > 50 && found == keys, "{shards} shards: {found:?}");
    }
}

#[test]
fn a_check_names_a_key_that_is_not_in_its_set() {
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let store = plain::open(RedisStore::builder("d").shards(1).poll(None), server.port()).unwrap();
    let one = timer(&store, "order 1");
    let _created = create(&store, slice::from_ref(&one), IfPresent::Reject);
    let layout = Layout::new("d", 1);
    let entry = key_entry("shop", "order 1");
    assert_eq!(without_id(&[&entry[..], &one.id.as_u128().to_be_bytes()].concat()), entry);
    let Part::Keys(set) = layout.keys_of(&entry) else { panic!("no set") };
    let name = |set| String::from_utf8(layout.key(0, Part::Keys(set))).unwrap();
    let _moved = link.ask(&["RENAME", &name(set), &name(set ^ 1)]);
    let faults = pollster::block_on(store.check()).unwrap();
    assert!(faults.iter().any(|fault| fault.timer == Some(one.id)), "{faults:?}");
    let at = Address::Key(KeyOf { namespace: "shop".into(), key: "order 1".into() });
    assert_eq!(pollster::block_on(store.get(at)).unwrap(), None);
    assert!(matches!(link.ask(&["EXISTS", &name(set)]), Value::Int(0)));
}

#[test]
fn creations_that_wait_while_the_server_is_away_fail_after_about_their_patience() {
    const COUNT: usize = 6_000;
    let patience = Duration::from_millis(500);
    let Some(server) = Server::start(&[]) else { return };
    let proxy = Proxy::start(server.address());
    let connect = Connect::single(&proxy.url()).unwrap().patience(patience).response_timeout(patience);
    let store = pollster::block_on(RedisStore::builder("d").poll(None).open(&connect)).unwrap();
    let timers: Vec<Timer> = (0..COUNT).map(|n| timer(&store, &format!("order-{n}"))).collect();
    let place = async |timer: &Timer| {
        let op = Op::Place(Box::new(timer.clone()), IfPresent::Reject);
        store.apply(vec![op], Durability::PowerLoss).await
    };
    proxy.greet(Fate::Refuse);
    proxy.cut();
    let begin = Instant::now();
    let results = pollster::block_on(join_all(timers.iter().map(place)));
    let took = begin.elapsed();
    let kinds: Vec<_> =
        results.iter().map(|result| result.as_ref().map_err(StoreError::kind).err()).collect();
    let count = |kind| kinds.iter().filter(|met| **met == Some(kind)).count();
    let (failed, unknown) = (count(StoreErrorKind::Io), count(StoreErrorKind::Unknown));
    assert_eq!(failed + unknown, COUNT);
    assert!(unknown <= 2 * 128, "{unknown} were not sent, and are said to be unknown");
    // This would take 12 s if only 256 creations ended at a time.
    assert!(took < 10 * patience, "{took:?}");
    proxy.greet(Fate::Pass);
    eventually("creations go on", || pollster::block_on(place(&timers[0])).is_ok());
}

#[test]
fn a_subscriber_that_panics_holds_up_no_creation() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").poll(None), server.port()).unwrap();
    store.subscribe(Box::new(|| panic!("the subscriber of a test")));
    let (done, is_done) = channel();
    let _creations = thread::spawn(move || {
        let timers: Vec<Timer> = (0..300).map(|n| timer(&store, &format!("order-{n}"))).collect();
        let created: Vec<Outcome> = timers.iter().map(|timer| Outcome::Created(timer.id)).collect();
        assert_eq!(create(&store, &timers, IfPresent::Reject), created);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("all creations have answers");
}

/// Tests creations in a cluster that reserve an id, and then find their key taken. The reservation is a redirect in the
/// shard of the id.
#[test]
fn a_creation_that_stores_no_timer_leaves_no_redirect() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").shards(4).poll(None).split(), server.port()).unwrap();
    let present = timer(&store, "taken");
    assert_eq!(create(&store, slice::from_ref(&present), IfPresent::Reject), [Outcome::Created(present.id)]);
    let layout = Layout::new("d", 4);
    let home = layout.shard_of_id(present.id);
    let ids = (1..).map(TimerId::from_u128).filter(|id| layout.shard_of_id(*id) != home);
    for (mode, id) in [IfPresent::Reject, IfPresent::Keep].into_iter().zip(ids) {
        let outcome = create(&store, &[Timer { id, ..timer(&store, "taken") }], mode).remove(0);
        assert!(!matches!(outcome, Outcome::Created(_)), "{outcome:?}");
        let redirects = layout.key(layout.shard_of_id(id), Layout::redirects_of(id));
        let count: u64 = server.query(&["HLEN", &String::from_utf8(redirects).unwrap()]);
        assert_eq!(count, 0, "{mode:?}: {outcome:?}");
    }
}
