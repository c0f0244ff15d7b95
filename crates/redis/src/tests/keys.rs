//! Tests the contents of a server: the names of its keys, and the data that are left after all timers have ended.

use super::{PAST, plain};
use crate::RedisStore;
use crate::layout::{Layout, Part};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::Plan;
use tourbillon_durable::policy::Policy;
use tourbillon_durable::schedule::{Schedule, ScheduleKey, Schedules, Template};
use tourbillon_durable::state::Failure;
use tourbillon_durable::store::{
    Claimant, Durability, Filter, IfPresent, Leased, Limit, Op, Outcome, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_fault::Server;

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };

fn names(link: &plain::Plain) -> Vec<String> {
    let Value::Array(keys) = link.ask(&["KEYS", "*"]) else { panic!("no keys") };
    let text = |key| match key {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    keys.into_iter().map(text).collect()
}

fn apply(store: &RedisStore, op: Op) -> Outcome {
    pollster::block_on(store.apply(vec![op], Durability::PowerLoss)).unwrap().remove(0)
}

fn timer(number: u128, due: UtcMillis) -> Timer {
    Timer {
        namespace: "secretive".into(),
        key: Some(format!("secret key {number}").into()),
        labels: vec!["secret label".into()],
        ..Timer::new(TimerId::from_u128(number), "secret kind", due)
    }
}

#[test]
fn no_text_of_a_user_is_in_a_keys_name_and_nothing_is_left_in_the_end() {
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let store = plain::open(RedisStore::builder("d").shards(4).poll(None), server.port()).unwrap();
    for number in 0..40 {
        let timer = timer(number, PAST);
        assert_eq!(
            apply(&store, Op::Place(Box::new(timer.clone()), IfPresent::Reject)),
            Outcome::Created(timer.id)
        );
    }
    let claimed = pollster::block_on(store.claim(BY, 1, ALL, None)).unwrap();
    assert_eq!(claimed.leased.len(), 40);
    for (nth, Leased { timer, token }) in claimed.leased.into_iter().enumerate() {
        let failure = Failure { is_final: true, ..Failure::default() };
        let _ended = apply(
            &store,
            match nth % 3 {
                0 => Op::Park(timer.id, token, "secret reason".into()),
                1 => Op::Fail(timer.id, token, failure),
                _ => Op::Release(timer.id, token),
            },
        );
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    for name in names(&link) {
        assert!(!name.contains("secret") && name.starts_with("tb:{d"), "{name}");
    }
    let all = Op::CancelLabelled { namespace: "secretive".into(), label: "secret label".into(), limit: 100 };
    assert_eq!(apply(&store, all), Outcome::CancelledMany { cancelled: 40, in_flight: 0, more: false });
    let mut left = names(&link);
    left.retain(|name| !name.ends_with(":meta"));
    left.sort_unstable();
    let wanted = ["tb:{d}:about", "tb:{d}:deployment", "tb:{d}:nodes"];
    assert_eq!(left, wanted, "a server keeps nothing of timers that have ended");
}

#[test]
fn a_record_that_cannot_be_read_is_set_aside_by_a_claim_and_an_error_elsewhere() {
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let store = plain::open(RedisStore::builder("d").shards(1).poll(None), server.port()).unwrap();
    for number in 1..=3 {
        let timer = Timer { key: None, labels: Vec::new(), ..timer(number, UtcMillis::from_millis(5)) };
        let _created = apply(&store, Op::Place(Box::new(timer), IfPresent::Reject));
    }
    // This replaces the second record by a record of another version.
    let change = "local m = redis.call('ZRANGE', KEYS[1], 1, 1)[1] redis.call('ZREM', KEYS[1], m) \
                  redis.call('ZADD', KEYS[1], 0, string.sub(m, 1, 20) .. '\\250' .. string.sub(m, 22))";
    let _changed = link.ask(&["EVAL", change, "1", &plain::records(0, 1)]);
    let second = TimerId::from_u128(2);
    let error = pollster::block_on(store.get(second.into())).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    let error = pollster::block_on(store.apply(vec![Op::Cancel(second.into(), None)], Durability::PowerLoss));
    assert_eq!(error.unwrap_err().kind(), StoreErrorKind::Corrupt);
    let page = pollster::block_on(store.list(Filter::default(), None, 9)).unwrap();
    assert_eq!(page.timers.len(), 2, "the others are listed");
    let faults = pollster::block_on(store.check()).unwrap();
    assert!(faults.iter().any(|fault| fault.timer == Some(second)), "{faults:?}");
    let claimed = pollster::block_on(store.claim(BY, 1, ALL, None)).unwrap();
    assert_eq!((claimed.leased.len(), claimed.quarantined), (2, 1));
    assert_eq!(pollster::block_on(store.counts()).unwrap().quarantined, 1);
    // The bytes are kept for a program that knows the version.
    let aside = String::from_utf8(Layout::new("d", 1).key(0, Part::Quarantined)).unwrap();
    let kept = link.ask(&["HVALS", &aside]);
    let is_kept = |kept: &[Value]| matches!(kept, [Value::BulkString(record)] if record[20] == 250);
    assert!(matches!(&kept, Value::Array(kept) if is_kept(kept)), "{kept:?}");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    let claimed = pollster::block_on(store.claim(BY, 2, ALL, None)).unwrap();
    assert_eq!((claimed.leased.len(), claimed.quarantined), (0, 0));
}

/// Tests several threads that read and change the same timers. If a timer changes after a thread has read it, the
/// thread's operation has a different outcome, but no timer is changed twice.
#[test]
fn operations_of_many_threads_on_the_same_timers_are_one_after_the_other() {
    let Some(server) = Server::start(&[]) else { return };
    let stores: Vec<RedisStore> = (0..4)
        .map(|_| plain::open(RedisStore::builder("d").shards(2).poll(None), server.port()).unwrap())
        .collect();
    let due = UtcMillis::MAX;
    std::thread::scope(|scope| {
        for (nth, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..50_u128 {
                    let id = TimerId::from_u128((round << 8 | nth as u128) + 1);
                    let new = Timer { key: Some("shared".into()), ..timer(id.as_u128(), due) };
                    let mode = if round % 2 == 0 { IfPresent::Replace } else { IfPresent::Keep };
                    let _outcome = apply(store, Op::Place(Box::new(new), mode));
                    if round % 5 == 4 {
                        let at = tourbillon_durable::timer::KeyOf {
                            namespace: "secretive".into(),
                            key: "shared".into(),
                        };
                        let _outcome =
                            apply(store, Op::Cancel(tourbillon_durable::timer::Address::Key(at), None));
                    }
                }
            });
        }
    });
    assert_eq!(pollster::block_on(stores[0].check()).unwrap(), []);
    let counts = pollster::block_on(stores[0].counts()).unwrap();
    assert!(counts.by_namespace.values().sum::<u64>() <= 1, "{counts:?}");
}

/// A change of a schedule reads the schedule's former timers by their ids. In a cluster, they must be in the shard of
/// the schedule's key, because another shard may be away.
#[test]
fn the_timers_of_a_schedule_have_ids_of_the_shard_of_its_key() {
    let Some(server) = Server::start(&[]) else { return };
    let store = plain::open(RedisStore::builder("d").shards(16).poll(None), server.port()).unwrap();
    let store = Arc::new(store);
    let schedules = Schedules::new(Arc::clone(&store) as Arc<dyn TimerStore>);
    let namespace = Schedules::namespace_of("shop");
    for key in ["a", "b", "c", "d"] {
        let template = Template {
            kind: "kind".into(),
            payload: Payload::default(),
            labels: Vec::new(),
            policy: Policy::default(),
        };
        schedules.put(&ScheduleKey::new("shop", key), Schedule::new(Plan::Every(60_000)), template).unwrap();
        let filter = Filter { key_prefix: Some(key.into()), ..Filter::default() };
        let filter = Filter { namespace: Some(namespace.clone()), ..filter };
        let id = pollster::block_on(store.list(filter, None, 9)).unwrap().timers[0].id;
        let layout = &store.deployment.layout;
        assert_eq!(layout.shard_of_id(id), layout.shard_of_key(&namespace, key));
    }
}
