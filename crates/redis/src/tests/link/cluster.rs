//! Tests calls to clusters while slots move and primaries die.

use super::{LONG, connect_to, count, open, run, single};
use crate::examine::check;
use crate::link::Connect;
use crate::script::Script;
use core::time::Duration;
use pollster::block_on;
use redis::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tourbillon_fault::{Cluster, eventually};

static TWO: Script = Script::new("two", "return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])");

#[test]
fn a_cluster_is_followed_where_its_slots_move() {
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let urls = cluster.urls();
    let connect = Connect::cluster(&urls).expect("URLs").patience(LONG).response_timeout(LONG);
    let session = open(&connect);
    // These keys are spread over all primaries.
    for index in 0..30 {
        assert_eq!(count(&session, &format!("spread{index}")).expect("a reply"), 1);
    }
    let slot = cluster.slot("{t}");
    let from = cluster.owner(0, slot).expect("a primary");
    let to = (from + 1) % 3;
    assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(2));

    cluster.begin_move(slot, from, to);
    // All keys are still at the source.
    assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(4));
    // Both keys are at the target, and the source redirects.
    cluster.move_keys(&["{t}a", "{t}b"], from, to);
    assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(6));
    // One of the keys is on neither server, so the server answers `TRYAGAIN` until the slot has moved.
    let moved = thread::scope(|scope| {
        let call = scope.spawn(|| run(&session, &TWO, &["{t}a", "{t}new"], &[]));
        eventually("the call is refused", || cluster.nodes[to].info("errorstat_TRYAGAIN").is_some());
        cluster.finish_move(slot, from, to);
        call.join().expect("a call")
    });
    assert_eq!(moved.expect("a reply"), Value::Int(5));
    // The client's map of the slots may be old.
    for expected in [9, 11, 13] {
        assert_eq!(run(&session, &TWO, &["{t}a", "{t}b"], &[]).expect("a reply"), Value::Int(expected));
    }

    // A primary dies, and its replica takes over.
    cluster.node_timeout(Duration::from_secs(2));
    for node in 0..cluster.nodes.len() {
        eventually("all see the move", || cluster.owner(node, slot) == Some(to));
    }
    let victim = cluster.owner(0, cluster.slot("{dead}")).expect("a primary");
    assert_eq!(count(&session, "{dead}").expect("a reply"), 1);
    eventually("the replica has it", || {
        let mut replica = cluster.nodes[victim + 3].connect().expect("a connection");
        let _ready: Value = redis::cmd("READONLY").query(&mut replica).expect("a reply");
        redis::cmd("GET").arg("{dead}").query::<Option<i64>>(&mut replica).ok().flatten() == Some(1)
    });
    cluster.nodes[victim].kill();
    eventually("a call succeeds", || count(&session, "{dead}").is_ok());
    let other = (0..3).find(|node| *node != victim).expect("three primaries");
    let slot = cluster.nodes[other].query(&["CLUSTER", "KEYSLOT", "{dead}"]);
    // The new primary answers before the other nodes know that it is the primary.
    eventually("the others see the takeover", || cluster.owner(other, slot) == Some(victim + 3));
}

#[test]
fn a_cluster_that_is_silent_is_left_and_found_again() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let urls = cluster.urls();
    let connect = Connect::cluster(&urls).expect("URLs").patience(LONG);
    let session = open(&connect.response_timeout(Duration::from_secs(1)));
    let owner = cluster.owner(0, cluster.slot("a")).expect("a primary");
    eventually("a call succeeds", || count(&session, "a").is_ok());
    cluster.nodes[owner].stop();
    let error = count(&session, "a").expect_err("no reply");
    assert!(error.may_have_run(), "{error}");
    cluster.nodes[owner].go_on();
    eventually("a call succeeds", || count(&session, "a").is_ok());
    let report = block_on(check(&connect_to(&urls))).expect("a report");
    assert!(!report.is_refused(), "{report}");
    assert_eq!(
        report.lines().iter().filter(|line| line.text().starts_with("version")).count(),
        3,
        "{report}"
    );
    // A node of the cluster is refused as a single server.
    let report = block_on(check(&single(&urls[0]))).expect("a report");
    assert!(report.is_refused() && report.to_string().contains("connect to it as a cluster"), "{report}");
}

#[test]
fn a_dead_primary_holds_up_the_calls_to_itself_and_no_others() {
    const CALLERS: usize = 64;
    let Some(mut cluster) = Cluster::start(&[]) else { return };
    let session = open(&connect_to(&cluster.urls()));
    eventually("a call succeeds", || count(&session, "ready").is_ok());
    let victim = cluster.owner(0, cluster.slot("victim")).expect("a primary");
    let is_on_victim = |key: &String| cluster.owner(0, cluster.slot(key)) == Some(victim);
    let (dead, living): (Vec<_>, Vec<_>) =
        (0..4 * CALLERS).map(|number| number.to_string()).partition(is_on_victim);
    cluster.nodes[victim].kill();
    let succeeded = AtomicUsize::new(0);
    thread::scope(|scope| {
        let to_dead: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let key = &dead[caller % dead.len()];
                let call = || count(&session, key).inspect(|_| _ = succeeded.fetch_add(1, Ordering::Relaxed));
                scope.spawn(call)
            })
            .collect();
        let to_living: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let key = &living[caller];
                scope.spawn(|| (0..20).for_each(|_| assert!(count(&session, key).is_ok())))
            })
            .collect();
        to_living.into_iter().for_each(|calls| calls.join().expect("replies"));
        assert_eq!(succeeded.load(Ordering::Relaxed), 0, "the primary is dead");
        cluster.nodes[victim].restart();
        for call in to_dead {
            // The killed server may have lost a call that was under way. All other calls have waited.
            let lost = call.join().expect("a call").err();
            assert!(lost.is_none_or(|error| error.may_have_run()));
        }
    });
    eventually("a call succeeds", || count(&session, "victim").is_ok());
}
