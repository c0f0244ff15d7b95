//! Scenarios with a cluster of three primaries that have a replica each.

use super::given::{Given, Outcome};
use std::time::Duration;
use tourbillon_fault::history::{Cause, Terms};
use tourbillon_fault::run::{Load, Stage, Target};
use tourbillon_fault::{Cluster, eventually};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

fn begin(given: &Given, replicas: u32) -> Option<(Cluster, Stage)> {
    let cluster = Cluster::start(&[])?;
    let mut stage = given.stage(Target::cluster(cluster.urls()).wait_for(replicas));
    given.begin(&mut stage, Load::default());
    Some((cluster, stage))
}

/// Picks a primary and its replica at random. Returns their indices, with the present primary first.
fn pair(given: &mut Given, cluster: &Cluster) -> (usize, usize) {
    let one = given.rng.usize(..3);
    let is_primary = cluster.nodes[one].info("role").as_deref() == Some("master");
    if is_primary { (one, one + 3) } else { (one + 3, one) }
}

/// Kills primaries of a cluster. Their replicas take over, and no acknowledged change is lost.
pub(super) fn killed(given: &mut Given) -> Outcome {
    let Some((mut cluster, mut stage)) = begin(given, 1) else { return NO_SERVER };
    cluster.node_timeout(Duration::from_secs(2));
    given.again(Duration::from_secs(5), |given| {
        let (primary, replica) = pair(given, &cluster);
        stage.harm(Cause::Failover, |_| {
            cluster.nodes[primary].kill();
            eventually("the replica takes over", || {
                cluster.nodes[replica].info("role").as_deref() == Some("master")
            });
            cluster.nodes[primary].restart();
            eventually("the old primary follows", || {
                cluster.nodes[primary].info("master_link_status").as_deref() == Some("up")
            });
        });
        stage.await_progress(10);
    });
    stage.finish(Terms { loses_ends: true, ..Terms::default() }).into()
}

/// Makes primaries of a cluster hand over to their replicas. No change is lost.
pub(super) fn failed_over(given: &mut Given) -> Outcome {
    let Some((cluster, mut stage)) = begin(given, 0) else { return NO_SERVER };
    let mut changes = [0; 3];
    given.again(Duration::from_secs(3), |given| {
        let (primary, replica) = pair(given, &cluster);
        // A third change of the same pair would be refused for two minutes, twice the node timeout. The timeout is long
        // so that no primary takes another for dead.
        let changed = &mut changes[primary.min(replica)];
        if *changed == 2 {
            return;
        }
        *changed += 1;
        stage.harm(Cause::Failover, |_| cluster.take_over(replica, None));
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}

/// Forces replicas to take over, without a hand-over (FORCE) or without a vote (TAKEOVER). The old primary runs on, or
/// is stopped for a time. Each write to a timer waits until the replica has the write, so no timer is lost.
pub(super) fn forced(given: &mut Given) -> Outcome {
    let Some((cluster, mut stage)) = begin(given, 1) else { return NO_SERVER };
    // After a vote for a replica of some primary, a voter refuses the replicas of that primary for twice this time.
    cluster.node_timeout(Duration::from_secs(2));
    given.again(Duration::from_secs(4), |given| {
        let (primary, replica) = pair(given, &cluster);
        let (how, stands_still) = (if given.rng.bool() { "FORCE" } else { "TAKEOVER" }, given.rng.bool());
        let time = given.up_to(Duration::from_secs(1));
        stage.harm(Cause::Failover, |_| {
            if stands_still {
                cluster.nodes[primary].stop();
            }
            cluster.take_over(replica, Some(how));
            if stands_still {
                std::thread::sleep(time);
                cluster.nodes[primary].go_on();
            }
            // Sometimes the old primary has become the primary again.
            let follows = |one: usize, other: usize| {
                let role = |node: usize| cluster.nodes[node].info("role");
                let link = cluster.nodes[one].info("master_link_status");
                role(other).as_deref() == Some("master") && link.as_deref() == Some("up")
            };
            eventually("one of the two follows", || follows(primary, replica) || follows(replica, primary));
        });
        stage.await_progress(10);
    });
    stage.finish(Terms { loses_ends: true, ..Terms::default() }).into()
}

/// Moves hash slots with timers from a primary of a cluster to another primary, key by key.
pub(super) fn moved(given: &mut Given) -> Outcome {
    let Some((cluster, mut stage)) = begin(given, 0) else { return NO_SERVER };
    given.again(Duration::from_secs(2), |given| {
        let (from, to) = (given.rng.usize(..3), given.rng.usize(..3));
        let key: Option<String> = cluster.nodes[from].query(&["RANDOMKEY"]);
        let Some(key) = key.filter(|_| from != to) else { return };
        let slot = cluster.slot(&key);
        stage.harm(Cause::Network, |_| {
            cluster.begin_move(slot, from, to);
            std::thread::sleep(given.up_to(Duration::from_secs(1)));
            cluster.finish_move(slot, from, to);
        });
        stage.await_progress(10);
    });
    stage.finish(Terms::default()).into()
}
