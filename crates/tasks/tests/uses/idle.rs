//! Connections and their limits, on the manual clock.

use crate::support::{Gate, Log, MS, lock, within_patience};
use crate::{SECOND, is_empty};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tourbillon::{Builder, Refusal, Timestamp};
use tourbillon_tasks::uses::{ConnectErrorKind, Expired, IdleTimeouts, Limit, Limits};
use tourbillon_tasks::{DrivenTasks, TaskEngine};

const IDLE: Duration = Duration::from_secs(30);

type Expirations = Log<(u64, Limit, Timestamp)>;

fn driven() -> DrivenTasks {
    DrivenTasks::start(Builder::new().tick(MS)).unwrap()
}

fn recording(limits: Limits) -> (DrivenTasks, IdleTimeouts<u64>, Expirations) {
    let (tasks, expired) = (driven(), Log::new());
    let sink = expired.clone();
    let timeouts = tasks.handle().idle_timeouts(limits, move |expired: Expired<u64>| {
        sink.push((expired.id, expired.limit, expired.deadline))
    });
    (tasks, timeouts, expired)
}

fn at(after: Duration) -> Timestamp {
    Timestamp::ZERO + after
}

#[test]
fn a_connection_expires_when_nothing_was_heard_of_it_for_the_idle_limit() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let connection = timeouts.insert(7).unwrap();
    assert_eq!((connection.id(), connection.deadline()), (&7, Some(at(IDLE))));
    tasks.advance(IDLE - MS);
    assert!(connection.touch() && expired.len() == 0);
    tasks.advance(IDLE - MS);
    assert!(timeouts.contains(&7) && timeouts.len() == 1 && expired.len() == 0);
    tasks.advance(MS);
    assert_eq!(expired.take(), [(7, Limit::Idle, at(2 * IDLE - MS))]);
    assert!(!timeouts.contains(&7) && timeouts.is_empty() && connection.deadline().is_none());
    tasks.advance(10 * IDLE);
    assert_eq!(expired.len(), 0);
    assert!(!connection.remove());
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn no_touch_moves_the_absolute_limit() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE).max_age(3 * IDLE));
    tasks.advance(SECOND);
    let connection = timeouts.insert(7).unwrap();
    for _ in 0..5 {
        tasks.advance(IDLE / 2);
        assert!(connection.touch());
        assert!(timeouts.touch(&7));
    }
    assert_eq!(connection.deadline(), Some(at(SECOND + 3 * IDLE)));
    tasks.advance(IDLE / 2 - MS);
    assert!(connection.touch());
    tasks.advance(MS);
    assert_eq!(expired.take(), [(7, Limit::MaxAge, at(SECOND + 3 * IDLE))]);
}

#[test]
fn where_both_limits_meet_it_is_the_absolute_one() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE).max_age(IDLE));
    let _connection = timeouts.insert(7).unwrap();
    tasks.advance(IDLE);
    assert_eq!(expired.take(), [(7, Limit::MaxAge, at(IDLE))]);
}

#[test]
fn a_loop_touches_with_its_own_time() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let connection = timeouts.insert(7).unwrap();
    assert!(connection.touch_at(at(SECOND)));
    assert_eq!(connection.deadline(), Some(at(SECOND + IDLE)));
    tasks.advance(IDLE);
    assert_eq!(expired.len(), 0);
    tasks.advance(SECOND);
    assert_eq!(expired.take(), [(7, Limit::Idle, at(SECOND + IDLE))]);
}

#[test]
fn by_id_it_is_touched_and_removed_as_by_its_handle() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let connection = timeouts.insert(7).unwrap();
    tasks.advance(IDLE / 2);
    assert!(timeouts.touch(&7) && !timeouts.touch(&8));
    assert_eq!(connection.deadline(), Some(at(IDLE / 2 + IDLE)));
    assert!(timeouts.remove(&7) && !timeouts.remove(&7) && !timeouts.touch(&7));
    assert!(!connection.touch() && connection.deadline().is_none() && !connection.remove());
    tasks.advance(10 * IDLE);
    assert_eq!(expired.len(), 0);
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn an_id_that_is_there_is_refused() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let first = timeouts.insert(7).unwrap();
    tasks.advance(IDLE / 2);
    let refused = timeouts.insert(7).unwrap_err();
    assert_eq!((refused.kind, refused.id), (ConnectErrorKind::Present, 7));
    assert_eq!((first.deadline(), timeouts.len()), (Some(at(IDLE)), 1));
    assert_eq!(tasks.handle().stats().owned.alive, 1);

    // When the connection has expired, its id is free. The old handle does not affect the next connection with that id.
    tasks.advance(IDLE);
    assert_eq!(expired.take().len(), 1);
    let second = timeouts.insert(7).unwrap();
    let deadline = second.deadline();
    tasks.advance(IDLE / 2);
    assert!(!first.touch());
    drop(first);
    assert!(timeouts.contains(&7) && second.deadline() == deadline);
    tasks.advance(IDLE);
    assert_eq!(expired.take(), [(7, Limit::Idle, deadline.unwrap())]);
}

#[test]
fn what_is_removed_or_dropped_does_not_expire() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    assert!(timeouts.insert(1).unwrap().remove());
    drop(timeouts.insert(2).unwrap());
    assert!(timeouts.is_empty());
    tasks.advance(10 * IDLE);
    assert_eq!(expired.len(), 0);
    assert!(is_empty(&tasks.handle().stats()));
}

#[test]
fn a_touch_that_comes_too_late_arms_nothing() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let connection = timeouts.insert(7).unwrap();
    tasks.advance(IDLE);
    let fired = tasks.handle().stats().owned.fired;
    for _ in 0..10 {
        assert!(!connection.touch() && !connection.touch_at(tasks.handle().now()) && !timeouts.touch(&7));
        tasks.advance(IDLE);
    }
    assert_eq!((expired.take().len(), tasks.handle().stats().owned.fired), (1, fired));
}

#[test]
fn a_million_touches_post_one_ticket() {
    let (mut tasks, timeouts, _) = recording(Limits::idle(IDLE).max_age(1_000 * IDLE));
    let connection = timeouts.insert(7).unwrap();
    for round in 0..1_000_000 {
        assert!(connection.touch());
        if round % 100_000 == 0 {
            tasks.advance(SECOND);
        }
    }
    assert_eq!(tasks.handle().stats().owned.posted, 1);
}

#[test]
fn each_connection_may_have_its_own_limits() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let _usual = timeouts.insert(1).unwrap();
    let _short = timeouts.insert_with(2, Limits::idle(SECOND)).unwrap();
    let _old = timeouts.insert_with(3, Limits::idle(Duration::MAX).max_age(2 * SECOND)).unwrap();
    assert!(timeouts.touch(&2));
    tasks.advance(IDLE);
    let expected =
        [(2, Limit::Idle, at(SECOND)), (3, Limit::MaxAge, at(2 * SECOND)), (1, Limit::Idle, at(IDLE))];
    assert_eq!(expired.take(), expected);
}

#[test]
fn limits_may_be_nothing_or_for_ever() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(Duration::ZERO));
    let at_once = timeouts.insert(1).unwrap();
    let never = timeouts.insert_with(2, Limits::idle(Duration::MAX).max_age(Duration::MAX)).unwrap();
    let old = timeouts.insert_with(3, Limits::idle(IDLE).max_age(Duration::ZERO)).unwrap();
    tasks.advance(MS);
    assert_eq!(expired.take_sorted_by_id(), [1, 3]);
    tasks.advance(Duration::from_secs(100 * 365 * 86_400));
    assert!(never.touch() && !at_once.touch() && !old.touch() && expired.len() == 0);
}

trait Ids {
    fn take_sorted_by_id(&self) -> Vec<u64>;
}

impl Ids for Expirations {
    fn take_sorted_by_id(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.take().into_iter().map(|(id, ..)| id).collect();
        ids.sort_unstable();
        ids
    }
}

#[test]
fn it_is_out_of_the_map_before_its_callback_runs() {
    let (mut tasks, seen) = (driven(), Arc::new(OnceLock::<IdleTimeouts<u64>>::new()));
    let (inside, again) = (Arc::clone(&seen), Arc::new(Mutex::new(None)));
    let place = Arc::clone(&again);
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(IDLE), move |expired| {
        let timeouts = inside.get().unwrap();
        assert!(!timeouts.contains(&expired.id) && !timeouts.touch(&expired.id));
        *lock(&place) = Some(timeouts.insert(expired.id).unwrap());
    });
    seen.set(timeouts.clone()).unwrap();
    let first = timeouts.insert(7).unwrap();
    tasks.advance(IDLE);
    assert_eq!(tasks.handle().stats().total.panics, 0);
    assert!(!first.touch() && lock(&again).take().unwrap().touch());
}

#[test]
fn limits_hold_when_only_connections_are_left() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let _connection = timeouts.insert(7).unwrap();
    drop(timeouts);
    tasks.advance(IDLE);
    assert_eq!(expired.take().len(), 1);
}

#[test]
fn a_callback_that_panics_costs_nobody_else_anything() {
    let (mut tasks, expired) = (driven(), Log::new());
    let sink = expired.clone();
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(IDLE), move |expired: Expired<u64>| {
        sink.push(expired.id);
        assert!(expired.id.is_multiple_of(2), "an odd id");
    });
    let connections: Vec<_> = (0..10).map(|id| timeouts.insert(id).unwrap()).collect();
    tasks.advance(IDLE);
    assert_eq!(expired.take_sorted(), (0..10).collect::<Vec<_>>());
    assert_eq!(tasks.handle().stats().total.panics, 5);
    assert!(timeouts.is_empty() && connections.iter().all(|connection| !connection.touch()));
}

#[test]
fn a_handle_may_be_dropped_while_its_callback_runs() {
    let tasks = crate::threads();
    let (gate, runs) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (pass, count) = (gate.clone(), Arc::clone(&runs));
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(MS), move |_: Expired<u64>| {
        count.fetch_add(1, Ordering::Relaxed);
        pass.pass();
    });
    let (first, second) = (timeouts.insert(1).unwrap(), timeouts.insert(2).unwrap());
    gate.await_arrivals(2);
    assert!(!first.touch());
    drop(first);
    assert!(!second.remove());
    let reborn = timeouts.insert_with(1, Limits::idle(Duration::MAX)).unwrap();
    gate.open();
    crate::support::wait_until("the old timers are gone", || tasks.handle().stats().owned.alive == 1);
    assert!(reborn.touch() && runs.load(Ordering::Relaxed) == 2);
}

// --- Batches ---

#[test]
fn the_loop_is_woken_once_for_each_batch() {
    let mut tasks = driven();
    let wakes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&wakes);
    let (timeouts, batch) =
        tasks.handle().idle_batches(Limits::idle(IDLE), move || _ = count.fetch_add(1, Ordering::Relaxed));
    let mut expired = Vec::new();
    for round in 1..=3 {
        let connections: Vec<_> = (0..10).map(|id| timeouts.insert(id).unwrap()).collect();
        assert!(batch.is_empty() && batch.drain(&mut expired) == 0);
        tasks.advance(IDLE);
        assert_eq!((wakes.load(Ordering::Relaxed), batch.is_empty()), (round, false));
        assert_eq!(batch.drain(&mut expired), 10);
        drop(connections);
    }
    assert_eq!(expired.len(), 30);
    assert!(expired.iter().all(|expired| expired.limit == Limit::Idle && expired.lateness.is_zero()));
}

// --- Full, and shut down ---

#[test]
fn a_full_engine_refuses_and_gives_the_id_back() {
    let tasks = DrivenTasks::start(Builder::new().capacity(1)).unwrap();
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(IDLE), |_: Expired<String>| {});
    let mut connections = Vec::new();
    let refused = loop {
        match timeouts.insert(connections.len().to_string()) {
            Ok(connection) => connections.push(connection),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.kind, ConnectErrorKind::Refused(Refusal::EngineFull));
    assert_eq!((refused.id, timeouts.len()), (connections.len().to_string(), connections.len()));
    // The engine is full and the id exists. The error reports the id.
    let refused = timeouts.insert("0".to_owned()).unwrap_err();
    assert_eq!((refused.kind, refused.id.as_str()), (ConnectErrorKind::Present, "0"));
}

#[test]
fn after_a_shutdown_nothing_expires_and_nothing_is_touched() {
    let (mut tasks, timeouts, expired) = recording(Limits::idle(IDLE));
    let (first, second) = (timeouts.insert(1).unwrap(), timeouts.insert(2).unwrap());
    assert!(tasks.handle().shutdown().is_empty());
    assert!(!first.touch() && !timeouts.touch(&2) && first.deadline().is_none());
    let refused = timeouts.insert(3).unwrap_err();
    assert_eq!((refused.kind, refused.id), (ConnectErrorKind::Refused(Refusal::ShutDown), 3));
    assert_eq!((timeouts.len(), timeouts.contains(&3)), (2, false));
    tasks.advance(IDLE);
    assert!(first.remove() && timeouts.remove(&2) && !second.remove());
    assert!(timeouts.is_empty() && expired.len() == 0);
}

#[test]
fn handlers_on_the_shard_and_lanes_that_are_full_wait_for_nobody() {
    within_patience(|| {
        let tasks =
            TaskEngine::start(Builder::new().shards(1).unpinned().tick(MS).inline().lane_capacity(64))
                .unwrap();
        let expired = Log::new();
        let sink = expired.clone();
        let timeouts = tasks
            .handle()
            .idle_timeouts(Limits::idle(MS), move |expired: Expired<u64>| sink.push(expired.id));
        let connections: Vec<_> = (0..2_000).map(|id| timeouts.insert(id).unwrap()).collect();
        crate::support::wait_until("all have expired", || expired.len() == 2_000);
        assert!(timeouts.is_empty() && connections.iter().all(|connection| !connection.touch()));
    });
}

/// A connection's id that calls a function when it is hashed.
#[derive(Clone)]
struct Hooked(u64, Arc<Mutex<Option<Hook>>>);

type Hook = Box<dyn FnOnce() + Send>;

impl PartialEq for Hooked {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Hooked {}

impl Hash for Hooked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hook = lock(&self.1).take();
        hook.into_iter().for_each(|hook| hook());
        self.0.hash(state);
    }
}

/// A connection's expiry has begun, but has not yet taken the connection out of the map. A removal fails.
#[test]
fn a_connection_that_has_no_deadline_any_more_cannot_be_removed() {
    let (mut tasks, expired) = (driven(), Log::new());
    let sink = expired.clone();
    let timeouts = tasks
        .handle()
        .idle_timeouts(Limits::idle(IDLE), move |expired: Expired<Hooked>| sink.push(expired.id.0));
    let (id, seen) = (Hooked(7, Arc::default()), Log::new());
    let connection = timeouts.insert(id.clone()).unwrap();
    let (inside, log, same) = (timeouts.clone(), seen.clone(), id.clone());
    let hook = move || log.push((connection.deadline(), inside.remove(&same), connection.remove()));
    *lock(&id.1) = Some(Box::new(hook));
    tasks.advance(IDLE);
    assert_eq!(seen.take(), [(None, false, false)]);
    assert_eq!(expired.take(), [7]);
    assert!(timeouts.is_empty());
}
