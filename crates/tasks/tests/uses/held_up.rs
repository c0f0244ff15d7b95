//! Expiries that are held up on their way to the map. The hash of a key waits while the engine's thread computes it.
//!
//! The critical moment of these races is when a run has begun and has not reached the map. Here this moment lasts until
//! the test ends it.

use crate::support::{Gate, Log, MS, wait_until};
use crate::threads;
use std::hash::{Hash, Hasher};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tourbillon_tasks::TaskEngine;
use tourbillon_tasks::uses::{Connection, Expired, ExpiryMap, IdleTimeouts, Lifetime, Limits};

/// A key whose hash waits until a gate of the test is open. On the thread that made the key, the hash does not wait.
#[derive(Clone)]
struct Key {
    home: ThreadId,
    gate: Gate,
}

impl Key {
    fn new() -> Self {
        Self { home: thread::current().id(), gate: Gate::new() }
    }
}

impl PartialEq for Key {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if thread::current().id() != self.home {
            self.gate.pass();
        }
        0.hash(state);
    }
}

// --- Connections ---

struct Expiring {
    tasks: TaskEngine,
    timeouts: IdleTimeouts<Key>,
    connection: Connection<Key>,
    key: Key,
    expired: Log<()>,
}

/// Makes a connection whose expiry has begun.
fn expiring() -> Expiring {
    let (tasks, key, expired) = (threads(), Key::new(), Log::new());
    let sink = expired.clone();
    let timeouts = tasks.handle().idle_timeouts(Limits::idle(MS), move |_: Expired<Key>| sink.push(()));
    let connection = timeouts.insert(key.clone()).unwrap();
    key.gate.await_arrival();
    assert!(timeouts.contains(&key));
    Expiring { tasks, timeouts, connection, key, expired }
}

impl Expiring {
    /// Lets the expiry of the connection go on. Returns the number of times that the callback ran.
    fn go_on(self) -> usize {
        self.key.gate.open();
        drop(self.connection);
        wait_until("the timer is gone", || self.tasks.handle().stats().owned.alive == 0);
        assert!(self.timeouts.is_empty());
        drop(self.tasks);
        self.expired.len()
    }
}

#[test]
fn a_touch_that_comes_too_late_leaves_it_to_the_callback() {
    let expiring = expiring();
    assert!(!expiring.connection.touch() && expiring.connection.deadline().is_none());
    assert!(!expiring.timeouts.remove(&expiring.key));
    assert_eq!(expiring.go_on(), 1);
}

#[test]
fn a_touch_by_id_that_comes_too_late_leaves_it_to_the_callback() {
    let expiring = expiring();
    assert!(!expiring.timeouts.touch(&expiring.key) && !expiring.timeouts.touch(&expiring.key));
    assert_eq!(expiring.go_on(), 1);
}

#[test]
fn a_handle_that_was_touched_too_late_is_removed_too_late() {
    let Expiring { tasks, timeouts, connection, key, expired } = expiring();
    assert!(!connection.touch() && !connection.remove());
    key.gate.open();
    wait_until("it has expired", || expired.len() == 1);
    assert!(timeouts.is_empty());
    drop(tasks);
}

#[test]
fn a_removal_that_comes_before_the_map_was_reached_prevents_the_callback() {
    let expiring = expiring();
    assert!(expiring.timeouts.remove(&expiring.key));
    assert_eq!(expiring.go_on(), 0);
}

#[test]
fn a_connection_that_has_the_id_next_is_not_the_expirys() {
    let expiring = expiring();
    assert!(expiring.timeouts.remove(&expiring.key));
    let next = expiring.timeouts.insert_with(expiring.key.clone(), Limits::idle(Duration::MAX)).unwrap();
    expiring.key.gate.open();
    wait_until("the expiry has come and gone", || expiring.tasks.handle().stats().owned.fired == 1);
    drop(expiring.connection);
    drop(expiring.tasks);
    assert_eq!((expiring.expired.len(), expiring.timeouts.contains(next.id())), (0, true));
}

#[test]
fn a_handle_that_goes_before_the_map_was_reached_prevents_the_callback() {
    let Expiring { tasks, timeouts, connection, key, expired } = expiring();
    assert!(connection.remove() && timeouts.is_empty());
    key.gate.open();
    wait_until("the timer is gone", || tasks.handle().stats().owned.alive == 0);
    drop(tasks);
    assert_eq!(expired.len(), 0);
}

// --- Entries ---

fn expiring_entry() -> (TaskEngine, ExpiryMap<Key, u64>, Key, Log<u64>) {
    let (tasks, key, expired) = (threads(), Key::new(), Log::new());
    let sink = expired.clone();
    let map =
        tasks.handle().expiry_map_with_listener(Lifetime::of(MS), move |_: Key, value| sink.push(value));
    map.insert(key.clone(), 1).unwrap();
    key.gate.await_arrival();
    (tasks, map, key, expired)
}

#[test]
fn an_insert_that_overtakes_an_expiry_stays() {
    let (tasks, map, key, expired) = expiring_entry();
    assert_eq!(map.insert_for(key.clone(), 2, Duration::MAX).unwrap(), None);
    assert_eq!(expired.take(), [1]);
    key.gate.open();
    wait_until("the expiry has come and gone", || tasks.handle().stats().owned.fired == 1);
    drop(tasks);
    assert_eq!((map.get(&key), expired.len()), (Some(2), 0));
}

#[test]
fn what_was_removed_and_inserted_anew_is_not_the_expirys() {
    let (tasks, map, key, expired) = expiring_entry();
    assert_eq!((map.get(&key), map.refresh(&key), map.remove(&key)), (None, false, None));
    map.clear();
    assert_eq!(map.insert_for(key.clone(), 2, Duration::MAX).unwrap(), None);
    key.gate.open();
    drop(tasks);
    assert_eq!((map.get(&key), map.len(), expired.len()), (Some(2), 1, 0));
}
