//! Tests a server that loses a part of a deployment's data and does not get this data back by itself.

use super::acting::Act;
use super::faults::{self, Two};
use super::plain;
use super::recording::{Late, recording};
use crate::layout::{Layout, Part, Shard, VERSION};
use crate::{Connect, RedisStore};
use pollster::block_on;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon_durable::Durable;
use tourbillon_durable::store::{
    Claimant, Durability, IfPresent, Limit, Op, Outcome, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::{Cluster, Server, eventually};

/// A node with a runtime that records the lateness of each delivered timer.
struct Node {
    store: Arc<RedisStore>,
    seen: Late,
    durable: Durable,
}

fn start(connect: &Connect, shards: Shard) -> Node {
    let store = Arc::new(block_on(RedisStore::builder("d").shards(shards).open(connect)).unwrap());
    let (runtime, seen) = recording(&store);
    Node { store, seen, durable: runtime.start().unwrap() }
}

impl Node {
    fn place(&self, id: u128, after: Duration) -> Result<Outcome, StoreError> {
        let timer = Timer::new(TimerId::from_u128(id), "kind", self.store.now() + after);
        let op = Op::Place(Box::new(timer), IfPresent::Reject);
        block_on(self.store.apply(vec![op], Durability::PowerLoss)).map(|mut outcomes| outcomes.remove(0))
    }

    /// Creates timers with the ids `ids`, which are due 5 ms apart from half a second on, and waits until all are
    /// delivered. Returns the 99th percentile of their lateness.
    fn late(&self, ids: &[u128]) -> Duration {
        for (nth, id) in (0..).zip(ids) {
            let _created =
                self.place(*id, Duration::from_millis(500) + nth * Duration::from_millis(5)).unwrap();
        }
        eventually("they are delivered", || {
            let seen = self.seen.lock().unwrap();
            ids.iter().all(|id| seen.contains_key(id))
        });
        let seen = self.seen.lock().unwrap();
        let mut late: Vec<_> = ids.iter().filter_map(|id| seen.get(id)).flatten().copied().collect();
        assert_eq!(late.len(), ids.len(), "none comes twice");
        late.sort_unstable();
        late[late.len() * 99 / 100]
    }

    /// Fails if timers are held up: if their lateness is much greater than `before` in each of three attempts. A
    /// busy machine delays the timers of some attempts, and a fault those of all attempts. `ids` makes the ids of
    /// an attempt, all at least as great as its argument.
    fn assert_not_held_up(&self, before: Duration, ids: impl Fn(u128) -> Vec<u128>) {
        let is_held_up = |from: u128| {
            let during = self.late(&ids(from));
            drop(writeln!(
                io::stderr(),
                "p99 of lateness before the loss: {before:?}, beside it: {during:?}"
            ));
            during >= before + Duration::from_millis(100)
        };
        assert!(!(30_000..60_000).step_by(10_000).all(is_held_up), "the timers are held up");
    }

    fn lost(&self) -> Vec<Shard> {
        let nodes = block_on(self.store.nodes()).unwrap().unwrap();
        nodes.shards.iter().filter(|shard| shard.is_lost).map(|shard| shard.number).collect()
    }

    fn faults(&self) -> Vec<String> {
        block_on(self.store.check()).unwrap().iter().map(ToString::to_string).collect()
    }
}

/// Returns the first `count` ids, from the id `from` on, whose shards satisfy `is_meant`.
fn ids(layout: &Layout, from: u128, count: usize, is_meant: impl Fn(Shard) -> bool) -> Vec<u128> {
    let is_there = |id: &u128| is_meant(layout.shard_of_id(TimerId::from_u128(*id)));
    (from..).filter(is_there).take(count).collect()
}

#[test]
fn a_shard_that_its_server_has_lost_closes_itself_only_and_is_brought_back() {
    const LOST: Shard = 2;
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let (node, layout) = (start(&connect, 8), Layout::new("d", 8));
    let before = node.late(&ids(&layout, 1, 200, |_| true));
    // This timer is due while its shard is lost.
    let waiting = ids(&layout, 10_000, 1, |shard| shard == LOST)[0];
    let _created = node.place(waiting, Duration::from_secs(1)).unwrap();
    let meta = String::from_utf8(layout.key(LOST, Part::Meta)).unwrap();
    server.command(&["DEL", &meta]);
    // Each script refuses creations in this shard at once. Creations in other shards go on.
    let near = ids(&layout, 20_000, 2, |shard| shard == LOST);
    for (id, after) in near.iter().zip([Duration::ZERO, Duration::from_secs(3_600)]) {
        let error = node.place(*id, after).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Io, "{error}");
        assert!(error.to_string().contains("shard 2 is lost"), "{error}");
    }
    let imported = Timer::new(TimerId::from_u128(near[0]), "kind", node.store.now());
    let error = block_on(node.store.import(vec![imported])).unwrap_err();
    assert!(error.to_string().contains("shard 2 is lost"), "{error}");
    node.assert_not_held_up(before, |from| ids(&layout, from, 200, |shard| shard != LOST));
    assert!(!node.seen.lock().unwrap().contains_key(&waiting), "nobody looks there");
    assert_eq!(node.lost(), [LOST]);
    let faults = node.faults();
    assert!(faults.len() == 1 && faults[0].contains("shard 2 is lost"), "{faults:?}");
    let report = block_on(RedisStore::builder("d").check(&connect)).unwrap();
    assert!(report.to_string().contains("shard 2 of 8: lost") && !report.is_refused(), "{report}");
    // Other stores can still be opened.
    let other = block_on(RedisStore::builder("d").poll(None).open(&connect)).unwrap();
    drop(other);
    let mended = block_on(RedisStore::builder("d").mend(&connect)).unwrap();
    assert_eq!((mended.marked, mended.has_made_key, mended.silent), (vec![LOST], false, vec![]));
    eventually("what is due in the shard comes", || node.seen.lock().unwrap().contains_key(&waiting));
    let _late = node.late(&near);
    assert_eq!((node.lost(), node.faults()), (vec![], vec![]));
    let mended = block_on(RedisStore::builder("d").mend(&connect)).unwrap();
    assert_eq!((mended.marked, mended.shards), (vec![], 8), "there is nothing to mend");
    drop(node.durable.shutdown(Duration::from_secs(5)));
}

#[test]
fn the_key_of_a_deployment_that_is_lost_is_named_and_made_again() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let (node, layout) = (start(&connect, 8), Layout::new("d", 8));
    let _late = node.late(&ids(&layout, 1, 20, |_| true));
    server.command(&["DEL", "tb:{d}:deployment"]);
    // The nodes go on, and no new deployment can be made.
    let _late = node.late(&ids(&layout, 1_000, 20, |_| true));
    let error = block_on(RedisStore::builder("d").shards(8).open(&connect)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("`tourbillond mend`"), "{error}");
    let faults = node.faults();
    assert!(
        faults.len() == 1 && faults[0].contains("the key of the deployment itself is lost"),
        "{faults:?}"
    );
    let error = block_on(node.store.document("n")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Io, "{error}");
    // The number of shards is no longer stored.
    let mended = block_on(RedisStore::builder("d").mend(&connect)).unwrap();
    assert_eq!((mended.shards, mended.marked, mended.has_made_key), (8, vec![], true));
    let _other = block_on(RedisStore::builder("d").shards(8).poll(None).open(&connect)).unwrap();
    assert_eq!((block_on(node.store.document("n")).unwrap(), node.faults()), (None, vec![]));
    let _late = node.late(&ids(&layout, 2_000, 20, |_| true));
    drop(node.durable.shutdown(Duration::from_secs(5)));
    // If a deployment does not exist, `mend` creates nothing.
    let error = block_on(RedisStore::builder("other").mend(&connect)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Limit, "{error}");
}

/// Tests a primary that stores the list of the nodes, loses all of its data, and stays empty.
#[test]
fn a_primary_of_a_cluster_that_is_flushed_closes_its_own_shards_only() {
    const SHARDS: Shard = 16;
    let Some(cluster) = Cluster::start(&[]) else { return };
    let connect = Connect::cluster(cluster.urls()).unwrap();
    let (node, layout) = (start(&connect, SHARDS), Layout::new("d", SHARDS));
    let registry = String::from_utf8(Layout::signs("d")).unwrap();
    let victim = cluster.owner(0, cluster.slot(&registry)).unwrap();
    let is_on_victim = |shard: Shard| {
        let meta = String::from_utf8(layout.key(shard, Part::Meta)).unwrap();
        cluster.owner(0, cluster.slot(&meta)) == Some(victim)
    };
    let lost: Vec<Shard> = (0..SHARDS).filter(|shard| is_on_victim(*shard)).collect();
    let before = node.late(&ids(&layout, 1, 200, |_| true));
    cluster.nodes[victim].command(&["FLUSHALL"]);
    let refused = ids(&layout, 20_000, 1, |shard| lost.contains(&shard))[0];
    let error = node.place(refused, Duration::from_secs(3_600)).unwrap_err();
    assert!(error.to_string().contains(" is lost: its server"), "{error}");
    node.assert_not_held_up(before, |from| ids(&layout, from, 200, |shard| !lost.contains(&shard)));
    eventually("the lost shards are shown", || node.lost() == lost);
    assert_eq!(node.faults().len(), lost.len() + 1, "each shard, and the key of the deployment");
    let nodes = block_on(node.store.nodes()).unwrap().unwrap();
    assert!(nodes.nodes.iter().any(|node| node.is_this && node.is_live), "{nodes:?}");
    let mended = block_on(RedisStore::builder("d").mend(&connect)).unwrap();
    assert_eq!((mended.shards, mended.marked, mended.has_made_key), (SHARDS, lost.clone(), true));
    let _late = node.late(&ids(&layout, 40_000, 50, |shard| lost.contains(&shard)));
    assert_eq!((node.lost(), node.faults()), (vec![], vec![]));
    drop(node.durable.shutdown(Duration::from_secs(5)));
}

#[test]
fn a_store_whose_deployment_is_lost_goes_on_once_people_have_made_it_again() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let (node, layout) = (start(&connect, 8), Layout::new("d", 8));
    let _late = node.late(&ids(&layout, 1, 20, |_| true));
    server.command(&["FLUSHALL"]);
    let far = Duration::from_secs(3_600);
    let error = || node.place(5_000, far).err();
    eventually("the loss is named", || {
        error().is_some_and(|error| {
            error.kind() == StoreErrorKind::Closed && error.to_string().contains("`tourbillond mend --anew`")
        })
    });
    // Nothing is left to mend, and `mend` creates no deployment.
    assert!(block_on(RedisStore::builder("d").mend(&connect)).unwrap_err().to_string().contains("--anew"));
    let made = block_on(RedisStore::builder("d").shards(8).make_anew(&connect)).unwrap();
    assert_eq!((made.shards, made.marked.len(), made.has_made_key), (8, 8, true));
    eventually("the store goes on", || node.place(6_000, far).is_ok());
    let late = node.late(&ids(&layout, 7_000, 50, |_| true));
    drop(writeln!(io::stderr(), "p99 of lateness after a deployment was made again: {late:?}"));
    assert_eq!((node.lost(), node.faults()), (vec![], vec![]));
    let total = block_on(node.store.counts()).unwrap().by_namespace.values().sum::<u64>();
    assert_eq!(total, 1, "what was stored before is lost");
    // Another process creates the deployment first, by opening it. The store goes on with this deployment only after
    // people permit it.
    server.command(&["FLUSHALL"]);
    eventually("the loss is named", || error().is_some_and(|error| error.kind() == StoreErrorKind::Closed));
    let other = block_on(RedisStore::builder("d").shards(8).poll(None).open(&connect)).unwrap();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(error().map(|error| error.kind()), Some(StoreErrorKind::Closed));
    let made = block_on(RedisStore::builder("d").make_anew(&connect)).unwrap();
    assert_eq!((made.shards, made.marked.len(), made.has_made_key), (8, 0, false));
    eventually("the store goes on", || node.place(8_000, far).is_ok());
    assert_eq!(block_on(other.counts()).unwrap().by_namespace.values().sum::<u64>(), 1);
    // A deployment is not recreated while a part of it exists.
    let meta = String::from_utf8(layout.key(3, Part::Meta)).unwrap();
    server.command(&["DEL", &meta]);
    let error = block_on(RedisStore::builder("d").make_anew(&connect)).unwrap_err();
    assert!(error.to_string().contains("a part of the deployment d is there"), "{error}");
    drop(node.durable.shutdown(Duration::from_secs(5)));
}

/// Returns the number of records in a shard of the deployment `d` with four shards.
fn records(server: &Server, shard: Shard) -> u64 {
    server.query(&["ZCARD", &plain::records(shard, 4)])
}

/// Returns the name of the key that stores the mark of a shard of the deployment `d` with four shards.
fn mark_of(shard: Shard) -> String {
    String::from_utf8(Layout::new("d", 4).key(shard, Part::Meta)).unwrap()
}

#[test]
fn an_import_into_a_cluster_with_a_lost_shard_stores_nothing() {
    const LOST: Shard = 3;
    let Some(server) = Server::start(&[]) else { return };
    let builder = RedisStore::builder("d").shards(4).poll(None).split();
    let store = plain::open(builder, server.port()).unwrap();
    server.command(&["DEL", &mark_of(LOST)]);
    let layout = Layout::new("d", 4);
    let in_shard = |shard| TimerId::from_u128(ids(&layout, 1, 1, |other| other == shard)[0]);
    let timers = [0, LOST].map(|shard| Timer::new(in_shard(shard), "kind", store.now())).to_vec();
    let error = block_on(store.import(timers)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Io, "{error}");
    assert!(error.to_string().contains("shard 3 is lost"), "{error}");
    assert_eq!([0, LOST].map(|shard| records(&server, shard)), [0, 0]);
}

#[test]
fn a_lost_key_is_noticed_with_any_number_of_shards() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    drop(block_on(RedisStore::builder("d").shards(16).poll(None).open(&connect)).unwrap());
    server.command(&["DEL", "tb:{d}:deployment"]);
    let builder = || RedisStore::builder("d").poll(None);
    let error = block_on(builder().open(&connect)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    let report = block_on(builder().check(&connect)).unwrap();
    assert!(report.to_string().contains("the key of the deployment d itself is lost"), "{report}");
    let error = block_on(builder().make_anew(&connect)).unwrap_err();
    assert!(error.to_string().contains("a part of the deployment d is there"), "{error}");
    let mended = block_on(builder().mend(&connect)).unwrap();
    assert_eq!((mended.shards, mended.marked, mended.has_made_key), (16, vec![], true));
}

/// Tests a deployment that a program with another layout has created. In the id, the number before the dot is the
/// version of that layout. Ids of old layouts name no version. A program with that layout must mend the deployment.
#[test]
fn a_deployment_of_another_layout_is_not_mended() {
    let Some(server) = Server::start(&[]) else { return };
    let connect = Connect::single(&server.url()).unwrap();
    let builder = || RedisStore::builder("d").shards(4).poll(None);
    let meta = |shard| String::from_utf8(Layout::new("d", 4).key(shard, Part::Meta)).unwrap();
    let (older, newer) = (StoreErrorKind::OlderSchema, StoreErrorKind::NewerSchema);
    let of_layout = |version: u64| format!("{version}.0190a5b2");
    let cases =
        [(of_layout(VERSION - 1), older), (of_layout(VERSION + 1), newer), ("0190a5b2".into(), older)];
    for (id, kind) in cases {
        drop(block_on(builder().open(&connect)).unwrap());
        server.command(&["DEL", &meta(0)]);
        for shard in 1..4 {
            server.command(&["HSET", &meta(shard), "id", &id]);
        }
        server.command(&["DEL", "tb:{d}:deployment"]);
        let error = block_on(builder().mend(&connect)).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(server.query::<u32>(&["EXISTS", "tb:{d}:deployment", &meta(0)]), 0, "nothing is written");
        server.command(&["FLUSHALL"]);
    }
}

/// Tests a closed store while two checks ask whether the deployment exists again. The second check opens the store,
/// and the store is closed for good before the first check ends.
#[test]
fn a_slow_check_does_not_open_a_store_that_was_closed_for_good() {
    let Some(Two { store, link, clock, server, .. }) = faults::start(4) else { return };
    let store = Arc::new(store);
    server.command(&["FLUSHALL"]);
    let by = Claimant { incarnation: 5, lease: Duration::from_secs(60) };
    let claim = |number| {
        block_on(store.claim(by, number, Limit { timers: 1, bytes: 1 }, None)).map_err(|error| error.kind())
    };
    assert_eq!(claim(1).unwrap_err(), StoreErrorKind::Closed);
    let connect = Connect::single(&server.url()).unwrap();
    let builder = RedisStore::builder("d").shards(4).on_clock(clock.clone());
    let _made = block_on(builder.make_anew(&connect)).unwrap();
    let (is_first, first) = (Arc::new(AtomicBool::new(false)), Arc::clone(&store));
    let began = Arc::clone(&is_first);
    let address = server.port();
    let act = move || {
        let claim = |number| block_on(first.claim(by, number, Limit { timers: 1, bytes: 1 }, None));
        eventually("a second check opens the store", || claim(2).is_ok());
        // The server's data go back by more than is permitted.
        let _changed = plain::Plain::to(address).ask(&["HSET", "tb:{d}:deployment", "latest", "1"]);
        clock.advance(Duration::from_secs(60));
        assert!(claim(3).unwrap_err().to_string().contains("have gone back"), "the store is closed");
        began.store(true, Ordering::Relaxed);
    };
    link.at("marks", 1, Act::First(Box::new(act)));
    eventually("the first check ends", || {
        let _closed = block_on(store.counts());
        is_first.load(Ordering::Relaxed)
    });
    let error = block_on(store.counts()).unwrap_err();
    assert!(error.to_string().contains("have gone back"), "{error}");
}
