//! Tests claims of parked timers, by several nodes and beside transactions of callers.

use super::server::open;
use super::session::{Psql, await_idle};
use crate::PostgresStore;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Leased, Limit, PAUSED, TimerStore};
use tourbillon_fault::Postgres;

fn fetch(store: &PostgresStore, number: u64, wanted: u32, most: u32) -> Vec<Leased> {
    let by = Claimant { incarnation: store.incarnation(), lease: Duration::from_secs(300) };
    let limit = Limit { timers: most, bytes: u64::MAX };
    pollster::block_on(store.claim_parked(by, number, "q".into(), wanted, limit)).unwrap().unwrap().leased
}

/// Stores timers with the keys k1, k2 and so on, which are parked for the reason `q`.
fn park(server: &Postgres, count: u32) {
    let _parked = server.sql(&format!(
        "SELECT count(tourbillon.schedule('mail', key => 'k' || n)) FROM generate_series(1, {count}) n;
         UPDATE tourbillon.timer SET phase = 'k', reason = 'q'"
    ));
}

#[test]
fn nodes_that_claim_parked_timers_at_once_take_each_of_them_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let stores: Vec<Arc<PostgresStore>> = (0..3).map(|_| open(&server)).collect();
    park(&server, 300);
    let fetch_all = |store: &PostgresStore| {
        let mut taken = Vec::new();
        for number in 1.. {
            let some = fetch(store, number, 7, 7);
            if some.is_empty() {
                break;
            }
            taken.extend(some.into_iter().map(|leased| leased.timer.id));
        }
        taken
    };
    let taken: Vec<_> = thread::scope(|scope| {
        let nodes: Vec<_> = stores.iter().map(|store| scope.spawn(|| fetch_all(store))).collect();
        nodes.into_iter().flat_map(|node| node.join().unwrap()).collect()
    });
    assert_eq!((taken.len(), taken.iter().collect::<BTreeSet<_>>().len()), (300, 300));
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "300");
    assert_eq!(pollster::block_on(stores[0].check()).unwrap(), []);
    let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
    let limit = Limit { timers: 100, bytes: u64::MAX };
    let due = pollster::block_on(stores[0].claim(by, 1_000, limit, None)).unwrap();
    assert_eq!(due.leased.len(), 0, "the owners of the shards claim none of them");
}

#[test]
fn a_transaction_that_holds_a_parked_timer_delays_no_claim_of_others() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    park(&server, 3);
    let mut holder = Psql::new(&server);
    holder.send("BEGIN; SELECT tourbillon.cancel('k1');");
    await_idle(&server, 1);
    let keys = |number| -> BTreeSet<String> {
        fetch(&store, number, 9, 9)
            .into_iter()
            .filter_map(|leased| leased.timer.key.map(Into::into))
            .collect()
    };
    assert_eq!(keys(1), ["k2", "k3"].map(String::from).into());
    holder.send("ROLLBACK;");
    await_idle(&server, 0);
    assert_eq!(keys(2), ["k1"].map(String::from).into());
    assert_eq!(server.sql("SELECT tourbillon.cancel('k2')"), "in-flight");
}

#[test]
fn an_occurrence_of_a_paused_series_is_parked_as_paused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    park(&server, 12);
    let _paused = server.sql(
        "UPDATE tourbillon.timer SET extra = '{\"series\": {\"paused\": true}}'
         WHERE key IN (SELECT 'k' || n FROM generate_series(1, 10) n)",
    );
    // The occurrences of paused series do not keep the other two timers from being claimed, whatever their order.
    let counts: Vec<usize> = (1..=4).map(|number| fetch(&store, number, 3, 3).len()).collect();
    assert_eq!((counts[0] > 0, counts.iter().sum::<usize>()), (true, 2), "{counts:?}");
    let paused = server.sql(&format!("SELECT count(*) FROM tourbillon.timer WHERE reason = '{PAUSED}'"));
    assert_eq!(paused, "10");
}
