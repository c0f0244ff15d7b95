//! Tests an orderly failover under load, in which the old primary goes on as a primary for seconds.

use crate::{Connect, RedisStore, SyncPolicy};
use pollster::block_on;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::store::{Durability, IfPresent, Op, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Watched, eventually};

/// The pause between two creations of timers.
const PAUSE: Duration = Duration::from_millis(10);

/// Creates 100 timers a second during a failover by the Sentinel, until the old primary is a replica. Returns the
/// number of answered creations, and how many of these timers are lost.
fn run(sync: SyncPolicy) -> Option<(usize, usize)> {
    let watched = Watched::start(&[])?;
    let connect = Connect::sentinel([watched.sentinel.url()], Watched::NAME).unwrap();
    let connect = connect.response_timeout(Duration::from_secs(2)).sync(sync);
    let store = block_on(RedisStore::builder("d").shards(4).open(&connect)).unwrap();
    let place = |number| {
        let timer = Timer::new(TimerId::from_u128(number), "kind", store.now() + Duration::from_secs(3_600));
        let op = Op::Place(Box::new(timer), IfPresent::Reject);
        block_on(store.apply(vec![op], Durability::PowerLoss)).is_ok()
    };
    eventually("a change is as safe as it has to be", || place(1_000_000));
    let mut answered = Vec::new();
    thread::scope(|scope| {
        let failover = scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            eventually("the Sentinel changes the roles", || {
                watched.sentinel.try_query::<redis::Value>(&["SENTINEL", "FAILOVER", Watched::NAME]).is_ok()
            });
            eventually("the replica is the primary", || {
                watched.second.info("role").as_deref() == Some("master")
            });
            let begin = Instant::now();
            eventually("the old primary follows", || watched.first.info("role").as_deref() == Some("slave"));
            begin.elapsed()
        });
        let mut number = 0;
        while !failover.is_finished() {
            number += 1;
            let begin = Instant::now();
            if place(number) {
                answered.push(number);
            }
            thread::sleep(PAUSE.saturating_sub(begin.elapsed()));
        }
        let old = failover.join().unwrap();
        drop(writeln!(io::stderr(), "{number} writes; the old primary went on as one for {old:?}"));
    });
    eventually("the old primary has what the new one has", || {
        watched.first.info("master_link_status").as_deref() == Some("up")
    });
    let is_lost =
        |number: &&u128| block_on(store.get(TimerId::from_u128(**number).into())).unwrap().is_none();
    let lost = answered.iter().filter(is_lost).count();
    drop(writeln!(io::stderr(), "{sync:?}: {} answered, {lost} lost", answered.len()));
    Some((answered.len(), lost))
}

#[test]
fn an_orderly_failover_loses_nothing_that_the_replica_was_waited_for() {
    let sync = SyncPolicy::Wait { replicas: 1, timeout: Duration::from_millis(500) };
    let Some((answered, lost)) = run(sync) else { return };
    assert!(answered >= 50, "{answered}");
    assert_eq!(lost, 0);
}

#[test]
fn an_orderly_failover_without_a_wait_loses_at_most_a_second() {
    let Some((answered, lost)) = run(SyncPolicy::None) else { return };
    assert!(answered >= 100, "{answered}");
    assert!(lost <= 100, "{lost} of {answered}");
}
