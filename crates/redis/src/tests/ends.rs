//! Tests ends of many deliveries in one batch.

use super::{PAST, plain};
use crate::RedisStore;
use redis::Value;
use std::slice;
use std::time::Duration;
use tourbillon_durable::state::{Failure, Phase, Refusal};
use tourbillon_durable::store::{Claimant, Durability, IfPresent, Leased, Limit, Op, Outcome, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Server;

const BY: Claimant = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
const ALL: Limit = Limit { timers: u32::MAX, bytes: u64::MAX };
const TIMERS: u128 = 700;

/// Makes a timer with this id, in one of two namespaces. Depending on the number, the timer has a key, labels, or an id
/// that the caller chose. A key usually belongs to a shard other than that of the id.
fn timer(number: u128) -> Timer {
    let is_one_of = |nth| number.is_multiple_of(nth);
    Timer {
        namespace: if is_one_of(3) { "a".into() } else { "b".into() },
        key: (!is_one_of(4)).then(|| format!("key {number}").into()),
        labels: if is_one_of(5) { vec!["x".into(), "y".into()] } else { Vec::new() },
        has_chosen_id: is_one_of(7),
        ..Timer::new(TimerId::from_u128(number), "kind", PAST)
    }
}

fn apply(store: &RedisStore, ops: Vec<Op>) -> Vec<Outcome> {
    pollster::block_on(store.apply(ops, Durability::PowerLoss)).unwrap()
}

/// Returns the number of scripts that the server has run.
fn calls(link: &plain::Plain) -> u64 {
    let text = match link.ask(&["INFO", "commandstats"]) {
        Value::VerbatimString { text, .. } => text,
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    let calls_of = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(":calls=")?.split(',').next()?.parse().ok()
    };
    calls_of("cmdstat_evalsha").unwrap_or_default() + calls_of("cmdstat_eval").unwrap_or_default()
}

fn many_ends(is_split: bool) {
    let Some(server) = Server::start(&[]) else { return };
    let link = plain::Plain::to(server.port());
    let builder = || {
        let builder = RedisStore::builder("d").shards(4).poll(None);
        if is_split { builder.split() } else { builder }
    };
    let store = plain::open(builder(), server.port()).unwrap();
    let other = plain::open(builder(), server.port()).unwrap();
    let place = |number| Op::Place(Box::new(timer(number)), IfPresent::Reject);
    let _created = apply(&store, (0..TIMERS).map(place).collect());
    let mut leased = pollster::block_on(store.claim(BY, 1, ALL, None)).unwrap().leased;
    assert_eq!(leased.len() as u128, TIMERS);
    leased.sort_by_key(|leased| leased.timer.id);
    // Before the ends, another process ends one timer, cancels another, releases a third and parks a fourth.
    let token = leased[0].token;
    let id = |number| TimerId::from_u128(number);
    let others = vec![
        Op::Ack(id(10), token),
        Op::Cancel(id(11).into(), None),
        Op::Release(id(13), token),
        Op::Park(id(17), token, "a reason".into()),
    ];
    let _done = apply(&other, others);
    let before = calls(&link);
    let end = |Leased { timer, token }: Leased| match timer.id.as_u128() {
        // This timer stays stored as a dead timer.
        20 => Op::Fail(timer.id, token, Failure { is_final: true, ..Failure::default() }),
        n if n % 2 == 0 => Op::Ack(timer.id, token),
        _ => Op::Skip(timer.id, token),
    };
    let outcomes = apply(&store, leased.into_iter().map(end).collect());
    let needed = calls(&link) - before;
    for (number, outcome) in (0..TIMERS).zip(&outcomes) {
        let ended = |phase| Outcome::Ended { id: id(number), phase, next: None, skipped: 0 };
        let wanted = match number {
            10 | 13 | 17 => Outcome::Refused(Refusal::Stale),
            11 => ended(Phase::Withdrawn),
            20 => ended(Phase::Dead),
            _ => ended(Phase::Done),
        };
        assert_eq!(*outcome, wanted, "timer {number}");
    }
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
    let counts = pollster::block_on(store.counts()).unwrap();
    let number = |phase| counts.of(phase);
    assert_eq!((number(Phase::Pending), number(Phase::Parked), number(Phase::Dead)), (1, 1, 1), "{counts:?}");
    assert_eq!(number(Phase::Leased), 0);
    // A seventh of the timers have ids that callers chose. A commit of its own remembers each of these ids.
    if !is_split {
        assert!(needed < 140, "{needed} scripts for {TIMERS} ends");
    }
    // Once the timers that stay are cancelled, no data of timers are left.
    let clear = vec![
        Op::Cancel(id(13).into(), None),
        Op::Cancel(id(17).into(), None),
        Op::Cancel(id(20).into(), None),
    ];
    let _cancelled = apply(&store, clear);
    let Value::Array(keys) = link.ask(&["KEYS", "tb:{d:*"]) else { panic!("no keys") };
    let is_of_timers = |key: &&Value| match key {
        Value::BulkString(name) => !name.ends_with(b":meta") && !name.ends_with(b":recent"),
        _ => true,
    };
    let left: Vec<_> = keys.iter().filter(is_of_timers).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn ends_in_a_batch_are_a_few_scripts_and_each_of_them_decides_for_its_timer_alone() {
    many_ends(false);
}

#[test]
fn ends_in_a_batch_on_shards_of_their_own() {
    many_ends(true);
}

/// Tests a token whose lease was released. The release leaves the record as it was before the claim, so the next lease
/// of the timer differs only in its token.
#[test]
fn an_end_under_the_token_of_a_former_claim_is_refused_alone_and_in_a_batch() {
    let Some(server) = Server::start(&[]) else { return };
    let open = || plain::open(RedisStore::builder("d").shards(4).poll(None), server.port()).unwrap();
    let (store, other) = (open(), open());
    let claim = |store: &RedisStore, number| {
        let mut leased = pollster::block_on(store.claim(BY, number, ALL, None)).unwrap().leased;
        leased.sort_by_key(|leased| leased.timer.id);
        leased
    };
    let place = |number| Op::Place(Box::new(timer(number)), IfPresent::Reject);
    let _created = apply(&store, (1..=6).map(place).collect());
    let former = claim(&store, 1);
    assert_eq!(former.len(), 6);
    pollster::block_on(store.leave()).unwrap();
    let release = |leased: &Leased| Op::Release(leased.timer.id, leased.token);
    let released = apply(&other, former.iter().map(release).collect());
    assert!(released.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{released:?}");
    let current = claim(&other, 2);
    let timers = |leased: &[Leased]| {
        leased.iter().map(|leased| (leased.timer.id, leased.timer.deliveries)).collect::<Vec<_>>()
    };
    assert_eq!(timers(&current), timers(&former), "the records are the same");
    // The first store still has the timers as it claimed them.
    let kept = store.held.get(former[0].timer.id).unwrap();
    let stale = Outcome::Refused(Refusal::Stale);
    let (id, token) = (former[0].timer.id, former[0].token);
    for late in [
        Op::Ack(id, token),
        Op::Fail(id, token, Failure::default()),
        Op::Snooze(id, token, store.now()),
        Op::Park(id, token, "a reason".into()),
    ] {
        // Each refused end drops the kept copy of the timer, so the test keeps it again.
        store.held.keep(&kept);
        assert_eq!(apply(&store, vec![late]), slice::from_ref(&stale));
    }
    let ack = |leased: &Leased| Op::Ack(leased.timer.id, leased.token);
    assert_eq!(apply(&store, former[1..].iter().map(ack).collect()), [(); 5].map(|()| stale.clone()));
    let ended = apply(&other, current.iter().map(ack).collect());
    assert!(ended.iter().all(|outcome| matches!(outcome, Outcome::Ended { .. })), "{ended:?}");
    assert_eq!(pollster::block_on(store.check()).unwrap(), []);
}

/// Tests an end of a delivery whose lease another process has given up. The end finds the changed timer and changes
/// nothing.
#[test]
fn no_copy_of_a_timer_is_kept_after_its_end_was_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let open = || plain::open(RedisStore::builder("d").shards(4).poll(None), server.port()).unwrap();
    let (store, other) = (open(), open());
    let _created = apply(&store, vec![Op::Place(Box::new(timer(1)), IfPresent::Reject)]);
    let leased = pollster::block_on(store.claim(BY, 1, ALL, None)).unwrap().leased;
    let (id, token) = (leased[0].timer.id, leased[0].token);
    assert!(store.held.get(id).is_some());
    let released = apply(&other, vec![Op::Release(id, token)]);
    assert!(matches!(released[..], [Outcome::Ended { .. }]), "{released:?}");
    let stale = Outcome::Refused(Refusal::Stale);
    assert_eq!(apply(&store, vec![Op::Snooze(id, token, store.now())]), [stale]);
    assert!(store.held.get(id).is_none());
}
