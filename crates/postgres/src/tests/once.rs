//! Tests timers that are delivered at most once, if the claim leases them and cannot answer them.

use super::network::through_proxy;
use super::server::open;
use crate::PostgresStore;
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Claimed, Limit, StoreError, StoreErrorKind, TimerStore};
use tourbillon_fault::Postgres;

const BY: Claimant = Claimant { incarnation: 7, lease: Duration::from_secs(1) };

fn claim(store: &PostgresStore, number: u64) -> Result<Claimed, StoreError> {
    pollster::block_on(store.claim(BY, number, Limit { timers: 9, bytes: u64::MAX }, None))
}

fn schedule(server: &Postgres) {
    let _ids = server.sql(
        "SELECT count(tourbillon.schedule('mail', policy => '{\"guarantee\": \"at-most-once\"}'))
         FROM generate_series(1, 5)",
    );
}

/// The answer of the claim 2 is lost. Checks that its timers are delivered once, after their leases have ended.
fn assert_delivered_once(server: &Postgres, store: &PostgresStore) {
    assert_eq!(pollster::block_on(store.recover(BY, 2)).unwrap(), [], "the reap would deliver them again");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "5");
    thread::sleep(BY.lease);
    assert_eq!(pollster::block_on(store.reap(9)).unwrap().returned.len(), 5);
    assert_eq!(claim(store, 3).unwrap().leased.len(), 5);
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.timer"), "0");
}

#[test]
fn a_claim_of_timers_at_most_once_whose_reply_is_lost_is_not_recovered() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    assert_eq!(claim(&store, 1).unwrap().leased.len(), 0);
    schedule(&server);
    proxy.lose_after(0);
    assert_eq!(claim(&store, 2).unwrap_err().kind(), StoreErrorKind::Unknown);
    assert_delivered_once(&server, &store);
}

#[test]
fn timers_at_most_once_that_cannot_be_removed_are_not_recovered() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    schedule(&server);
    let _full = server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''53100''; END';
         CREATE TRIGGER refuse BEFORE DELETE ON tourbillon.timer FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    assert_eq!(claim(&store, 2).unwrap_err().kind(), StoreErrorKind::Unknown);
    let _room = server.sql("DROP TRIGGER refuse ON tourbillon.timer");
    assert_delivered_once(&server, &store);
}

/// Tests timers that another process cancels or replaces after a claim has leased them, and before it removes them.
#[test]
fn a_timer_at_most_once_that_is_withdrawn_before_its_removal_is_not_claimed() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let replace =
        "tourbillon.schedule(''mail'', key => ''k'', delay => ''1 day'', if_present => ''replace'')";
    for (number, withdraw) in (2..).zip(["tourbillon.cancel(id => new.id)", replace]) {
        let _id = server.sql(
            "SELECT tourbillon.schedule('mail', key => 'k', policy => '{\"guarantee\": \"at-most-once\"}')",
        );
        // The trigger runs when the claim commits the lease.
        let _withdrawn = server.sql(&format!(
            "CREATE OR REPLACE FUNCTION withdraw() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN PERFORM {withdraw}; RETURN NULL; END';
             DROP TRIGGER IF EXISTS withdraw ON tourbillon.lease;
             CREATE CONSTRAINT TRIGGER withdraw AFTER INSERT ON tourbillon.lease DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION withdraw()",
        ));
        let claimed = claim(&store, number).unwrap();
        assert_eq!((claimed.leased.len(), claimed.withdrawn.len()), (0, 1), "{withdraw}");
        let stored = server.sql("SELECT count(*) FROM tourbillon.timer");
        assert_eq!(stored, if withdraw == replace { "1" } else { "0" }, "{withdraw}");
        assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "0");
    }
}
