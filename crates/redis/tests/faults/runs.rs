//! F-13, F-14, F-19, F-21, F-33, T-07: short runs with nodes as separate processes. Each run's history is checked. The
//! program `tourbillon-fault` makes longer runs.

use crate::common::{size, tell};
use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Durability, Op};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_fault::history::{Cause, Delivery, Record, Terms};
use tourbillon_fault::run::{KIND, Load, Stage, Target, be_part, moment, payload, wall};
use tourbillon_fault::{Proxy, Server, eventually};

/// The entry point of each process of a run. The run starts this test program again, with only this test.
#[test]
fn part_of_a_run() {
    be_part();
}

const PROGRAM: [&str; 3] = ["runs::part_of_a_run", "--exact", "--nocapture"];

fn stage(server: &Server) -> Stage {
    Stage::new(Target::single(server.url()), 8, &PROGRAM)
}

/// Stores `count` timers that are due now. The ids of the timers count up from `first`.
fn place_from(stage: &Stage, first: u128, count: u128) {
    let store = stage.store().unwrap();
    let timers = (first..first + count).map(|number| Timer {
        payload: Payload(payload(0, None).into()),
        ..Timer::new(TimerId::from_u128(number), KIND, store.now())
    });
    let ops = timers.map(|timer| Op::Place(Box::new(timer), Default::default())).collect();
    drop(pollster::block_on(store.apply(ops, Durability::PowerLoss)).unwrap());
}

fn place(stage: &Stage, count: u128) {
    place_from(stage, 1, count);
}

fn deliveries(stage: &Stage) -> HashMap<u128, Vec<Delivery>> {
    let mut deliveries: HashMap<u128, Vec<Delivery>> = HashMap::new();
    for record in stage.received().unwrap() {
        if let Record::Delivered(delivery) = record {
            deliveries.entry(delivery.id).or_default().push(delivery);
        }
    }
    deliveries
}

/// The number of tries of a test with a time limit. The fastest try counts, because the machine may be busy.
const TRIES: usize = 5;

#[test]
fn what_a_killed_node_has_delivered_and_not_ended_is_delivered_again_under_the_same_id() {
    let mut fastest = Duration::MAX;
    for _ in 0..TRIES {
        let Some(server) = Server::start(&[]) else { return };
        let mut stage = stage(&server);
        (stage.lease, stage.ttl) = (Duration::from_secs(2), Duration::from_secs(2));
        (stage.workers, stage.hangs) = (4, true);
        let limit = stage.lease + stage.ttl + Duration::from_secs(2);
        stage.start_nodes(1);
        place(&stage, 4);
        eventually("each timer is delivered", || deliveries(&stage).len() == 4);
        let killed = Instant::now();
        stage.kill(0);
        stage.hangs = false;
        stage.start_nodes(1);
        eventually("all are delivered again", || {
            deliveries(&stage).values().all(|deliveries_of| deliveries_of.len() == 2)
        });
        let took = killed.elapsed();
        for deliveries_of in deliveries(&stage).values() {
            let numbers: Vec<_> =
                deliveries_of.iter().map(|delivery| (delivery.attempt, delivery.delivery)).collect();
            assert_eq!(numbers, [(1, 1), (1, 2)], "the failure of a process is none of the timer's");
            assert_ne!(deliveries_of[0].node, deliveries_of[1].node);
        }
        let store = stage.store().unwrap();
        eventually("no timer is left", || {
            pollster::block_on(store.counts()).is_ok_and(|counts| counts.by_namespace.is_empty())
        });
        tell(&format!("what a killed node had is delivered again after {took:?}"));
        fastest = fastest.min(took);
        if fastest < limit {
            return;
        }
    }
    panic!("{fastest:?} for a lease and a node of two seconds each");
}

#[test]
fn a_node_that_stands_still_for_two_leases_starts_no_delivery_that_is_anothers() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    stage.lease = Duration::from_secs(1);
    stage.start_nodes(2);
    stage.start_clients(Load { delay: Duration::from_secs(1), ..Load::default() }, 14);
    let stops = size("TOURBILLON_STOPS", 1);
    for stop in 0..stops {
        stage.await_progress(200);
        stage.pause(usize::try_from(stop % 2).unwrap(), 2 * stage.lease);
    }
    stage.await_progress(200);
    let row = stage.finish(Terms::default());
    let findings = row.expect_clean();
    let again = findings.duplicates.values().sum::<u64>();
    tell(&format!("{stops} stops: {} deliveries, {again} again, 0 lost", findings.deliveries));
    assert!(findings.duplicates.keys().all(|cause| *cause == Cause::Pause), "{findings:?}");
}

/// Stops a node while the answer to its claim is on its way. When the node reads the answer, another node has delivered
/// the claimed timers. Returns the number of timers that the stopped node dropped because the answer came too late.
fn learned_too_late() -> Option<u64> {
    const TIMERS: u128 = 16;
    let server = Server::start(&[])?;
    let proxy = Proxy::start(server.address());
    // With this long timeout, the node reads the answer even if it is very late.
    let slow = Target::single(proxy.url()).response_timeout(Duration::from_secs(60));
    let mut stage = Stage::new(slow, 8, &PROGRAM);
    (stage.lease, stage.ttl) = (Duration::from_secs(1), Duration::from_secs(2));
    stage.start_nodes(1);
    stage.target = Some(Target::single(server.url()));
    let store = stage.store().unwrap();
    eventually("the node has all shards", || {
        let nodes = pollster::block_on(store.nodes()).unwrap().unwrap();
        nodes.shards.iter().all(|shard| shard.owner.is_some())
    });
    proxy.delay(Duration::from_millis(500));
    place(&stage, TIMERS);
    eventually("timers are claimed", || {
        pollster::block_on(store.counts()).is_ok_and(|counts| counts.of(Phase::Leased) > 0)
    });
    stage.nodes[0].stop();
    let before = deliveries(&stage);
    let leased = pollster::block_on(store.counts()).unwrap().of(Phase::Leased);
    stage.start_nodes(1);
    eventually("another node delivers", || deliveries(&stage).len() == TIMERS as usize);
    let resumed = moment();
    proxy.delay(Duration::ZERO);
    stage.nodes[0].go_on();
    // When the node delivers a later timer, it has read all earlier answers.
    let _number = stage.end_node(1);
    place_from(&stage, TIMERS + 1, 1);
    eventually("the node goes on", || deliveries(&stage).len() == TIMERS as usize + 1);
    let _number = stage.end_node(0).expect("it ends in order");
    let all = deliveries(&stage);
    for (id, deliveries_of) in &all {
        let elsewhere = deliveries_of.iter().any(|delivery| delivery.begun < resumed);
        let late = deliveries_of.iter().filter(|delivery| delivery.begun >= resumed).count();
        assert!(!elsewhere || late == 0, "timer {id:x} was another's: {deliveries_of:?}");
    }
    assert_eq!(stage.problems, [""; 0]);
    // The node held these leases when it was stopped, and had not begun the deliveries.
    Some(leased.saturating_sub(before.len() as u64))
}

#[test]
fn a_node_that_learns_of_timers_after_their_leases_calls_no_handler() {
    for _ in 0..TRIES {
        let Some(learned) = learned_too_late() else { return };
        tell(&format!("a node has learned of {learned} timers after their leases, and begun none"));
        if learned > 0 {
            return;
        }
    }
    panic!("no stop has met a lease");
}

#[test]
fn nodes_whose_time_of_day_is_a_minute_off_are_neither_early_nor_take_leases() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    if !stage.start_shifted_nodes(&[60, -60]) {
        return;
    }
    stage.start_clients(Load { delay: Duration::from_secs(1), ..Load::default() }, 21);
    stage.await_progress(300);
    let row = stage.finish(Terms::default());
    assert!(row.expect_clean().deliveries > 100, "{row:?}");
}

#[test]
fn a_run_without_faults_has_no_duplicates_and_nothing_early() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    stage.start_nodes(2);
    stage.start_clients(Load { delay: Duration::from_secs(1), ..Load::default() }, 33);
    stage.await_progress(400);
    thread::sleep(Duration::from_millis(100));
    let row = stage.finish(Terms::default());
    let findings = row.expect_clean();
    tell(&format!("{} deliveries, late by (µs) {:?}", findings.deliveries, findings.lateness));
    assert!(findings.deliveries > 150 && findings.duplicates.is_empty(), "{findings:?}");
}

/// T-07: the clocks of three nodes differ, and the nodes deliver series with a timer for each second.
#[test]
fn a_cron_of_each_second_has_each_instant_once_among_nodes_of_other_clocks() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    if !stage.start_shifted_nodes(&[60, -60, 0]) {
        return;
    }
    assert_eq!(stage.problems, [""; 0]);
    let seconds = size("TOURBILLON_CRON_SECONDS", 5);
    let store = stage.store().unwrap();
    let first = UtcMillis::from_millis((store.now().as_millis() / 1_000 + 2) * 1_000);
    let ids: Vec<TimerId> = (1..=8).map(TimerId::from_u128).collect();
    for id in &ids {
        let plan = Plan::Cron { expression: "* * * * * *".into(), zone: "UTC".into(), skip_gaps: false };
        let end = Some(first + Duration::from_secs(seconds - 1));
        let series = Series { id: *id, plan, missed: MissedInstants::All, end, paused: false };
        let payload = Payload(payload(0, Some(id.as_u128())).into());
        let timer = Timer { payload, series: Some(series), ..Timer::new(*id, KIND, first) };
        let op = Op::Place(Box::new(timer), Default::default());
        drop(pollster::block_on(store.apply(vec![op], Durability::PowerLoss)).unwrap());
    }
    eventually("the series end", || {
        pollster::block_on(store.counts()).is_ok_and(|counts| counts.by_namespace.is_empty())
    });
    let mut instants: HashMap<u128, Vec<u64>> = HashMap::new();
    for delivery in deliveries(&stage).into_values().flatten() {
        assert!(delivery.begun + wall() + 1_000 >= delivery.scheduled * 1_000, "early: {delivery:?}");
        instants.entry(delivery.series.unwrap()).or_default().push(delivery.scheduled);
    }
    let all: Vec<u64> = (0..seconds).map(|second| first.as_millis() + second * 1_000).collect();
    for id in ids {
        let deliveries_of = instants.get_mut(&id.as_u128()).expect("a series is delivered");
        deliveries_of.sort_unstable();
        assert_eq!(*deliveries_of, all, "each second once");
    }
}

/// The time within which a node that stops must release its shards.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The longest time that nodes may take to divide the shards anew.
const DIVIDED: Duration = Duration::from_secs(15);

/// Tests a node that is asked to stop. The node releases its shards at once, so that other nodes may take the shards.
#[test]
fn a_node_that_stops_releases_its_shards_within_a_second() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    stage.start_nodes(2);
    let store = stage.store().unwrap();
    let owners = || {
        let nodes = pollster::block_on(store.nodes()).unwrap().unwrap();
        nodes.shards.iter().map(|shard| shard.owner).collect::<Vec<_>>()
    };
    let distinct = || owners().into_iter().collect::<HashSet<_>>();
    let (mut fastest, mut divided) = (Duration::MAX, Duration::MAX);
    for _ in 0..TRIES {
        let begun = Instant::now();
        eventually("the shards are divided", || distinct().len() == 2 && !distinct().contains(&None));
        divided = divided.min(begun.elapsed());
        let before = owners();
        let begun = Instant::now();
        let ended = thread::scope(|scope| {
            let ending = scope.spawn(|| stage.end_node(0));
            // Each shard of the node that stops gets no owner, or the other node as its owner.
            eventually("the shards are released", || {
                let pairs = before.iter().zip(owners());
                let left: HashSet<_> = pairs.filter(|(was, is)| *was == is).map(|(was, _)| *was).collect();
                left.len() == 1
            });
            let released = begun.elapsed();
            ending.join().unwrap();
            released
        });
        tell(&format!("a node that stops has released its shards after {ended:?}"));
        fastest = fastest.min(ended);
        if fastest < AT_ONCE && divided < DIVIDED {
            break;
        }
        stage.start_nodes(1);
    }
    assert!(fastest < AT_ONCE, "{fastest:?}");
    assert!(divided < DIVIDED, "{divided:?}");
    assert_eq!(stage.problems, [""; 0]);
}
