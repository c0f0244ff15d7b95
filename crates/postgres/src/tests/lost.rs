//! Tests claims that have leased their timers, and fail after that.

use super::network::through_proxy;
use super::server::open;
use crate::PostgresStore;
use std::time::Duration;
use tourbillon_durable::store::{Claimant, Claimed, Limit, StoreError, StoreErrorKind, TimerStore};
use tourbillon_fault::Postgres;

const BY: Claimant = Claimant { incarnation: 7, lease: Duration::from_secs(60) };

fn claim(store: &PostgresStore, number: u64) -> Result<Claimed, StoreError> {
    pollster::block_on(store.claim(BY, number, Limit { timers: 9, bytes: u64::MAX }, None))
}

/// The shards of the node have changed, so the claim also reads when the first lease of another node ends. The answer
/// to this read is lost.
#[test]
fn a_claim_in_new_shards_hides_no_timer_if_a_later_answer_is_lost() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (proxy, store) = through_proxy(&server);
    assert_eq!(claim(&store, 1).unwrap().leased.len(), 0);
    let _ids = server.sql("SELECT count(tourbillon.schedule('mail')) FROM generate_series(1, 5)");
    let _new = server.sql("UPDATE tourbillon.shard SET epoch = epoch + 1");
    // The proxy passes the answer of the claim on, and loses the next answer.
    proxy.lose_after(1);
    match claim(&store, 2) {
        Ok(claimed) => {
            assert_eq!(
                (claimed.leased.len(), claimed.next_reap),
                (5, Some(claimed.now)),
                "a reap asks again"
            );
        }
        // A sign of life was due, so the answer of the claim was lost.
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::Unknown, "{error}");
            assert_eq!(pollster::block_on(store.recover(BY, 2)).unwrap().len(), 5);
        }
    }
}

/// A row cannot be read, and cannot be set aside either.
#[test]
fn a_row_that_cannot_be_set_aside_hides_no_other_timer() {
    let Some(server) = Postgres::start(&[]) else { return };
    let store = open(&server);
    let _ids = server.sql(
        "SELECT count(tourbillon.schedule('mail', key => 'key ' || n)) FROM generate_series(1, 5) n;
         UPDATE tourbillon.timer SET extra = '{\"policy\": 7}' WHERE key = 'key 3';
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''53100''; END';
         CREATE TRIGGER refuse BEFORE UPDATE ON tourbillon.timer FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let claimed = claim(&store, 1).unwrap();
    assert_eq!((claimed.leased.len(), claimed.quarantined), (4, 0));
    // The lease of the unreadable row ends. The next claim sets the row aside.
    let _over = server.sql(
        "DROP TRIGGER refuse ON tourbillon.timer;
         UPDATE tourbillon.lease l SET until = 0 FROM tourbillon.timer t WHERE t.id = l.id AND t.key = 'key 3'",
    );
    pollster::block_on(store.reap(9)).unwrap();
    let claimed = claim(&store, 2).unwrap();
    assert_eq!((claimed.leased.len(), claimed.quarantined), (0, 1));
    assert_eq!(server.sql("SELECT phase, reason FROM tourbillon.timer WHERE key = 'key 3'"), "d|unreadable");
    assert_eq!(server.sql("SELECT count(*) FROM tourbillon.lease"), "4");
}
