//! Counts the commands that idle nodes send.

use super::{Runner, builder, is_divided, open};
use crate::link::Connect;
use crate::node::LONGEST_POLL;
use pollster::block_on;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_fault::{Cluster, Server, eventually};

/// Waits until two nodes have divided the shards, and until the additional looks after a division are over.
fn settle(runners: &[Runner; 2]) {
    eventually("the shards are divided", || is_divided(&[&runners[0].store, &runners[1].store]));
    eventually("both hear", || runners.iter().all(|runner| runner.store.node.hears()));
    thread::sleep(3 * LONGEST_POLL);
}

/// Returns the number of commands that clients have sent to the server, and the number of commands within scripts.
fn commands(server: &Server) -> (u64, u64) {
    let (mut sent, mut called) = (0, 0);
    let text: String = server.query(&["INFO", "commandstats"]);
    for line in text.lines() {
        let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let calls = rest.strip_prefix("calls=").and_then(|rest| rest.split_once(',')).map(|(calls, _)| calls);
        let calls: u64 = calls.and_then(|calls| calls.parse().ok()).unwrap_or_default();
        match name {
            "evalsha" | "eval" | "ping" | "publish" | "subscribe" | "script|load" => sent += calls,
            "info" | "hello" | "client|setinfo" => {}
            _ => called += calls,
        }
    }
    (sent, called)
}

#[test]
fn an_idle_shard_costs_at_most_one_command_a_second() {
    let Some(server) = Server::start(&[]) else { return };
    let runners = [(); 2].map(|()| Runner::start(open(builder(64), &server)));
    settle(&runners);
    let (before, begin) = (commands(&server), Instant::now());
    thread::sleep(Duration::from_secs(4));
    let (after, seconds) = (commands(&server), begin.elapsed().as_secs_f64());
    let per_shard = |after: u64, before: u64| (after - before) as f64 / 64.0 / seconds;
    let (sent, called) = (per_shard(after.0, before.0), per_shard(after.1, before.1));
    // Two nodes look at their shards every 1.25 s, and ping the server every 2 s.
    assert!(sent <= 0.2, "{sent} commands, and {called} within scripts");
    assert!(called <= 3.0, "{called} within scripts");
    assert!(sent > 0.01, "the shards are looked at");
}

/// Counts the commands that idle shards of a cluster cost, where each look at a shard is a script of its own.
#[test]
#[ignore = "half a minute: a cluster"]
fn an_idle_shard_of_a_cluster_costs_at_most_one_command_a_second() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let connect = Connect::cluster(cluster.urls()).unwrap();
    let start = || Runner::start(Arc::new(block_on(builder(64).open(&connect)).unwrap()));
    let runners = [start(), start()];
    settle(&runners);
    let count = || cluster.nodes[..3].iter().map(|node| commands(node).0).sum::<u64>();
    let (before, begin) = (count(), Instant::now());
    thread::sleep(Duration::from_secs(10));
    let sent = (count() - before) as f64 / 64.0 / begin.elapsed().as_secs_f64();
    assert!(sent <= 1.0, "{sent} commands");
    assert!(sent > 0.1, "the shards are looked at");
}
