//! Runs the conformance suite on one server and on a cluster.

use super::plain;
use crate::link::{Connect, Link, Session};
use crate::{RedisBuilder, RedisStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_conformance::{self as conformance, Faults, Life};
use tourbillon_durable::store::{Claimant, Limit, MemoryStore, TimerStore};
use tourbillon_fault::{Cluster, Server};

/// Returns a function that opens stores, each on a deployment of its own. If `is_split` is true, each script names one
/// shard, as in a cluster. The deployments have [few](crate::RedisBuilder::few_key_sets) sets of keys, because the
/// suites read all sets after each step.
pub(super) fn maker(
    link: Arc<dyn Link>,
    shards: u16,
    is_split: bool,
) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    making(link, shards, is_split, RedisBuilder::few_key_sets)
}

/// Works as [`maker`], but the deployments have as many sets of keys as outside of tests.
fn full_maker(
    link: Arc<dyn Link>,
    shards: u16,
    is_split: bool,
) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    making(link, shards, is_split, |builder| builder)
}

fn making(
    link: Arc<dyn Link>,
    shards: u16,
    is_split: bool,
    set: impl Fn(RedisBuilder) -> RedisBuilder,
) -> impl Fn(ManualClock) -> Arc<dyn TimerStore> {
    let number = AtomicU32::new(0);
    move |clock| {
        let name = format!("suite-{shards}-{is_split}-{}", number.fetch_add(1, Ordering::Relaxed));
        let builder = set(RedisStore::builder(name).shards(shards).poll(None).on_clock(clock));
        let builder = if is_split { builder.split() } else { builder };
        Arc::new(pollster::block_on(builder.open_on(Arc::clone(&link))).unwrap())
    }
}

pub(super) fn on(server: &Server) -> Arc<dyn Link> {
    plain::Plain::to(server.port()).session()
}

/// Runs all cases of the conformance suite except those about shares. Returns the names of the failed cases.
fn failures_of(make: conformance::Make<'_>) -> Vec<&'static str> {
    conformance::failures(conformance::CASES.iter().copied().flatten(), make)
}

/// Creates the user with the rights in the README, and clears the server's log of refused commands.
fn make_user(server: &Server) {
    let page = include_str!("../../README.md");
    let lines =
        page.lines().skip_while(|line| !line.starts_with("ACL SETUSER")).take_while(|line| *line != "```");
    let words = lines.flat_map(str::split_whitespace);
    let words: Vec<&str> = words.map(|word| if word.starts_with('>') { ">secret" } else { word }).collect();
    server.command(&words);
    server.command(&["ACL", "LOG", "RESET"]);
}

/// Verifies that the server has refused no command except the command that names the library.
#[track_caller]
fn nothing_was_refused(server: &Server) {
    let refused: Vec<redis::Value> = server.query(&["ACL", "LOG"]);
    assert!(refused.iter().all(|entry| format!("{entry:?}").contains("setinfo")), "{refused:#?}");
}

/// Opens a store and does the work of a node's background thread, which the suite leaves out: signs of life, a
/// subscription, and a sweep of each shard. `connect` has the user with the rights in the README.
fn works_as_a_node(connect: &Connect, shards: u16) {
    let builder = RedisStore::builder("a-node").shards(shards).poll(None);
    let store = pollster::block_on(builder.open(connect)).unwrap();
    let (by, some) =
        (Claimant { incarnation: 1, lease: Duration::from_secs(60) }, Limit { timers: 1, bytes: 1 });
    drop(pollster::block_on(store.claim(by, 1, some, None)).unwrap());
    for _ in 0..shards {
        pollster::block_on(store.upkeep.sweep.repair_leases()).unwrap();
        pollster::block_on(store.upkeep.sweep.sweep_redirects()).unwrap();
    }
    drop(pollster::block_on(store.nodes()).unwrap());
    pollster::block_on(store.leave()).unwrap();
}

/// A cluster with a user that has only the rights in the README.
pub(super) struct Restricted<'a>(&'a Cluster);

impl<'a> Restricted<'a> {
    pub(super) fn on(cluster: &'a Cluster) -> Self {
        cluster.nodes.iter().for_each(make_user);
        Self(cluster)
    }

    pub(super) fn connect(&self, patience: Duration) -> Connect {
        let connect = Connect::cluster(self.0.urls()).unwrap().user("tourbillon", "secret");
        connect.patience(patience).response_timeout(patience)
    }

    pub(super) fn verify(&self) {
        self.0.nodes.iter().for_each(nothing_was_refused);
    }
}

#[test]
fn the_store_conforms_with_the_listed_rights_alone() {
    let Some(server) = Server::start(&[]) else { return };
    make_user(&server);
    let connect = Connect::single(&server.url()).unwrap().user("tourbillon", "secret");
    let link = Arc::new(Session::open(&connect).unwrap());
    assert_eq!(failures_of(&maker(link, 4, false)), [""; 0]);
    works_as_a_node(&connect, 4);
    nothing_was_refused(&server);
}

#[test]
#[ignore = "takes long; the CI runs it"]
fn the_store_conforms_with_all_sets_of_keys() {
    let Some(server) = Server::start(&[]) else { return };
    for shards in [1, 4] {
        assert_eq!(failures_of(&full_maker(on(&server), shards, false)), [""; 0], "{shards} shards");
    }
}

#[test]
#[ignore = "takes long; the CI runs it"]
fn the_store_conforms_where_a_script_names_one_shard() {
    let Some(server) = Server::start(&[]) else { return };
    assert_eq!(failures_of(&full_maker(on(&server), 4, true)), [""; 0]);
}

#[test]
fn random_histories_where_a_script_names_one_shard() {
    let Some(server) = Server::start(&[]) else { return };
    let faults = Some(Faults::default());
    let life = Life { faults, ..Life::default() };
    let _tally = conformance::histories(&maker(on(&server), 4, true), 0..5, &life);
}

/// Returns the settings for a cluster, and a connection to it.
fn on_cluster(cluster: &Cluster) -> (Connect, Arc<dyn Link>) {
    let patience = Duration::from_secs(60);
    let connect = Connect::cluster(cluster.urls()).unwrap().patience(patience).response_timeout(patience);
    let link = Arc::new(Session::open(&connect).unwrap());
    (connect, link)
}

#[test]
#[ignore = "takes long; the CI runs it"]
fn the_store_conforms_on_a_cluster() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let user = Restricted::on(&cluster);
    let connect = user.connect(Duration::from_secs(60));
    let link = Arc::new(Session::open(&connect).unwrap());
    assert_eq!(failures_of(&full_maker(link, 4, false)), [""; 0]);
    works_as_a_node(&connect, 4);
    // The checks ask for the slots of the shards, which needs a separate right.
    let builder = RedisStore::builder("suite-4-false-0");
    let report = pollster::block_on(builder.check(&connect)).unwrap();
    assert!(!report.is_refused() && report.to_string().contains("shards: "), "{report}");
    user.verify();
}

/// F-25: each script of the store names keys of one slot, because a cluster refuses a script with keys of two slots.
#[test]
fn on_a_cluster_each_script_names_one_slot() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let (connect, link) = on_cluster(&cluster);
    let make = full_maker(link, 4, false);
    let in_memory = |clock: ManualClock| Arc::new(MemoryStore::new(clock)) as Arc<dyn TimerStore>;
    conformance::differential(&in_memory, &make, 0..2, &Life::default());
    let report = pollster::block_on(RedisStore::builder("suite-4-false-0").check(&connect)).unwrap();
    let shown = report.to_string();
    assert!(shown.contains("shards: ") && shown.contains("layout version 6"), "{shown}");
    let mut calls = 0;
    for node in &cluster.nodes {
        let errors: String = node.query(&["INFO", "errorstats"]);
        assert!(!errors.contains("CROSSSLOT"), "{errors}");
        calls += u32::from(node.query::<String>(&["INFO", "commandstats"]).contains("cmdstat_evalsha"));
    }
    assert!(calls >= 3, "only {calls} nodes ran a script");
}

#[test]
fn random_histories_of_the_store() {
    let Some(server) = Server::start(&[]) else { return };
    let make = maker(on(&server), 4, false);
    let _tally = conformance::histories(&make, 0..10, &Life::default());
    let faults = Some(Faults::default());
    let _tally = conformance::histories(&make, 0..10, &Life { faults, ..Life::default() });
}

/// F-11: the store on Redis has the same outcomes as the store in memory.
#[test]
fn the_same_operations_have_the_same_outcomes_in_memory_and_on_redis() {
    let Some(server) = Server::start(&[]) else { return };
    let in_memory = |clock: ManualClock| Arc::new(MemoryStore::new(clock)) as Arc<dyn TimerStore>;
    conformance::differential(&in_memory, &full_maker(on(&server), 2, false), 0..10, &Life::default());
}
