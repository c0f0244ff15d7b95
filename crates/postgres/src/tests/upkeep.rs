//! Tests the sums of the numbers of timers, which a node makes in the background.

use super::server::connect;
use crate::PostgresStore;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Limit, TimerStore};
use tourbillon_fault::{Postgres, eventually};

/// The database has a publication of all tables, as during an upgrade by logical replication. PostgreSQL then refuses
/// deletes and updates in a table without an identity.
#[test]
fn a_publication_of_all_tables_hinders_no_change() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = pollster::block_on(PostgresStore::builder().poll(None).open(&connect(&server))).unwrap();
    let _made = server.sql("CREATE PUBLICATION everything FOR ALL TABLES");
    let bare = server.sql(
        "SELECT coalesce(string_agg(c.relname, ', '), '') FROM pg_class c
         WHERE c.relnamespace = 'tourbillon'::regnamespace AND c.relkind = 'r' AND c.relpersistence = 'p'
             AND c.relreplident <> 'f' AND NOT EXISTS (
                 SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)",
    );
    assert_eq!(bare, "", "tables without an identity");
    for _ in 0..20 {
        let _id = server.sql("SELECT tourbillon.schedule('mail')");
    }
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.tally"), "20");
    let _folded = server.sql("SELECT tourbillon.fold()");
    assert_eq!(server.sql("SELECT count(*), sum(number) FROM tourbillon.tally"), "1|20");
    drop(store);
}

#[test]
fn an_error_of_the_sums_is_seen_until_they_work_again() {
    let Some(server) = Postgres::start(&[]) else { return };
    let builder = PostgresStore::builder().poll(Some(Duration::from_millis(20))).ttl(Duration::from_secs(1));
    let store = pollster::block_on(builder.open(&connect(&server))).unwrap();
    let by = Claimant { incarnation: store.incarnation(), lease: Duration::from_secs(300) };
    let claim = |number| {
        let _id = server.sql("SELECT tourbillon.schedule('mail')");
        let limit = Limit { timers: 10, bytes: u64::MAX };
        assert_eq!(pollster::block_on(store.claim(by, number, limit, None)).unwrap().leased.len(), 1);
    };
    let _broken = server.sql(
        "CREATE PUBLICATION everything FOR ALL TABLES; ALTER TABLE tourbillon.tally REPLICA IDENTITY DEFAULT",
    );
    claim(1);
    eventually("the error is seen", || store.upkeep_fault().is_some());
    let fault = store.upkeep_fault().unwrap().to_string();
    assert!(fault.contains("replica identity"), "{fault}");
    // The sums are no reason to deliver nothing.
    claim(2);
    let _mended = server.sql("ALTER TABLE tourbillon.tally REPLICA IDENTITY FULL");
    claim(3);
    eventually("the sums work again", || store.upkeep_fault().is_none());
}
