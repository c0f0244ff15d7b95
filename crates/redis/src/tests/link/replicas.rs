//! Tests calls during failovers by Sentinel, and changes that wait for replicas or files.

use super::{COUNT, LONG, call, count, count_safely, counted, open, single};
use crate::RedisStore;
use crate::examine::check;
use crate::link::{Connect, Link, SyncPolicy};
use core::time::Duration;
use pollster::block_on;
use redis::Value;
use tourbillon_durable::store::{Durability, TimerStore};
use tourbillon_fault::{Server, Watched, eventually};

#[test]
fn a_failover_of_sentinel_is_followed() {
    let Some(mut watched) = Watched::start(&[]) else { return };
    let url = watched.sentinel.url();
    let connect = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    let session = open(&connect.response_timeout(Duration::from_secs(5)));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    eventually("the replica has it", || counted(&watched.second, "a") == 1);
    watched.down_after(Duration::from_secs(1));
    watched.first.kill();
    // The first call may be lost with the primary. Later calls wait for the new primary.
    eventually("a call succeeds", || count(&session, "b").is_ok());
    assert_eq!(watched.second.info("role").as_deref(), Some("master"));
    assert_eq!(count(&session, "a").expect("a reply"), 2);
    assert_eq!(counted(&watched.second, "a"), 2);
}

#[test]
fn a_primary_that_becomes_a_replica_is_left() {
    let Some(watched) = Watched::start(&[]) else { return };
    let url = watched.sentinel.url();
    let connect = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    let session = open(&connect.response_timeout(LONG));
    assert_eq!(count(&session, "a").expect("a reply"), 1);
    eventually("the Sentinel changes the roles", || {
        watched.sentinel.try_query::<Value>(&["SENTINEL", "FAILOVER", Watched::NAME]).is_ok()
    });
    eventually("the roles have changed", || watched.second.info("role").as_deref() == Some("master"));
    eventually("the old primary is a replica", || watched.first.info("role").as_deref() == Some("slave"));
    eventually("a call succeeds", || count(&session, "b").is_ok());
    assert_eq!(count(&session, "c").expect("a reply"), 1);
    assert_eq!(counted(&watched.second, "c"), 1);
}

#[test]
fn a_change_waits_for_replicas() {
    let Some(watched) = Watched::start(&[]) else { return };
    let policy = |replicas, timeout| SyncPolicy::Wait { replicas, timeout };
    let session = open(&single(&watched.first.url()).sync(policy(1, LONG)));
    assert_eq!(count_safely(&session, "a").expect("a reply"), 1);
    assert_eq!(counted(&watched.second, "a"), 1, "it is there once the call returns");
    let session = open(&single(&watched.first.url()).sync(policy(2, Duration::from_secs(1))));
    let error = count_safely(&session, "b").expect_err("there is one replica");
    assert!(error.may_have_run(), "{error}");
    assert!(error.to_string().contains("of 2 replicas"), "{error}");
    assert_eq!(counted(&watched.first, "b"), 1);
    let report = block_on(check(&single(&watched.first.url()).sync(policy(2, LONG)))).expect("a report");
    assert!(report.to_string().contains("replicas: 1 are connected, and the policy waits for 2"), "{report}");
    assert!(report.is_refused());
    let report = block_on(check(&single(&watched.first.url()))).expect("a report");
    assert!(report.to_string().contains("min-replicas-to-write 0") && !report.is_refused(), "{report}");
}

/// Tests a change of the roles between a script and the wait for the replica. A replica of the new primary does not
/// confirm the script's change.
#[test]
fn no_other_server_vouches_for_a_change() {
    let Some(watched) = Watched::start(&[]) else { return };
    let url = watched.sentinel.url();
    let connect = Connect::sentinel([&url], Watched::NAME).expect("URLs").patience(LONG);
    let sync = SyncPolicy::Wait { replicas: 1, timeout: Duration::from_secs(1) };
    let session = open(&connect.response_timeout(Duration::from_secs(5)).sync(sync));
    eventually("the replica confirms", || count_safely(&session, "w").is_ok());
    assert_eq!(count_safely(&session, "a").expect("a reply"), 1);
    // The replica is cut off from now on, and does not get the change.
    watched.second.command(&["REPLICAOF", "NO", "ONE"]);
    let (_, witness) = block_on(session.run(call(&COUNT, &["a"], &["1"]))).expect("an answer");
    watched.first.command(&["REPLICAOF", "127.0.0.1", &watched.second.port().to_string()]);
    eventually("the old primary follows", || {
        watched.first.info("master_link_status").as_deref() == Some("up")
    });
    assert_eq!(counted(&watched.first, "a"), 1, "the change is lost");
    let error = block_on(witness.expect("the policy has a witness").confirm()).expect_err("it is lost");
    assert!(error.may_have_run(), "{error}");
}

#[test]
fn a_server_without_waitaof_is_an_error_before_anything_runs() {
    let Some(server) = Server::start(&[]) else { return };
    if server.try_query::<Value>(&["WAITAOF", "0", "0", "0"]).is_ok() {
        return;
    }
    let policy = SyncPolicy::WaitAof { replicas: 0, timeout: Duration::from_secs(1) };
    let session = open(&single(&server.url()).sync(policy).patience(Duration::from_millis(500)));
    eventually("the reason is in the error", || {
        let error = count(&session, "a").expect_err("no WAITAOF");
        assert!(!error.may_have_run(), "{error}");
        error.to_string().contains("WAITAOF, which Redis has from 7.2 on")
    });
    assert_eq!(counted(&server, "a"), 0);
}

/// Tests an empty batch, which confirms all earlier changes, while there is no connection to the server.
#[test]
fn an_empty_batch_confirms_nothing_of_a_server_that_is_away() {
    let Some(mut server) = Server::start(&[]) else { return };
    let open = |sync| {
        let connect = Connect::single(&server.url()).expect("a URL").sync(sync);
        let connect = connect.patience(Duration::from_millis(300));
        block_on(RedisStore::builder("d").shards(1).poll(None).open(&connect)).expect("a store")
    };
    let waiting = open(SyncPolicy::Wait { replicas: 0, timeout: Duration::from_secs(1) });
    let other = open(SyncPolicy::None);
    let confirm = |store: &RedisStore| block_on(store.apply(Vec::new(), Durability::PowerLoss));
    assert_eq!(confirm(&waiting).expect("the server answers"), []);
    server.kill();
    // After a failed call, the session has no connection any more.
    let _error = block_on(waiting.check()).expect_err("the server is away");
    let error = confirm(&waiting).expect_err("nobody vouches for the changes");
    assert!(error.is_transient(), "{error}");
    assert_eq!(confirm(&other).expect("the policy requires no confirmation"), []);
}
