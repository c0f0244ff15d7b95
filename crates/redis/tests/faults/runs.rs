//! F-13, F-14, F-19, F-21, F-33, T-07 with nodes as processes of their own: short runs, whose histories are checked.
//! The program `tourbillon-fault` runs longer ones.

use crate::common::{size, tell};
use std::collections::{HashMap, HashSet};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::store::{Durability, Op, TimerStore};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_fault::history::{Cause, Delivery, Record, Terms};
use tourbillon_fault::run::{KIND, Load, Stage, Target, be_part, payload, wall};
use tourbillon_fault::{Server, eventually};

/// What a process of a run calls: this program, started again, runs this test only.
#[test]
fn part_of_a_run() {
    be_part();
}

const PROGRAM: [&str; 3] = ["runs::part_of_a_run", "--exact", "--nocapture"];

fn stage(server: &Server) -> Stage {
    Stage::new(Target::single(server.url()), 8, &PROGRAM)
}

/// Stores timers that are due now.
fn place(stage: &Stage, count: u128) {
    let store = stage.store().unwrap();
    let timers = (1..=count).map(|number| Timer {
        payload: Payload(payload(0, None).into()),
        ..Timer::new(TimerId::from_u128(number), KIND, store.now())
    });
    let ops = timers.map(|timer| Op::Place(Box::new(timer), Default::default())).collect();
    drop(pollster::block_on(store.apply(ops, Durability::PowerLoss)).unwrap());
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

#[test]
fn f13_what_a_killed_node_has_delivered_and_not_ended_is_delivered_again_under_the_same_id() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    (stage.lease, stage.ttl) = (Duration::from_secs(2), Duration::from_secs(2));
    (stage.workers, stage.hangs) = (4, true);
    stage.start_nodes(1);
    place(&stage, 4);
    eventually("each timer is delivered", || deliveries(&stage).len() == 4);
    stage.kill(0);
    stage.hangs = false;
    stage.start_nodes(1);
    eventually("each timer is delivered again", || deliveries(&stage).values().all(|its| its.len() == 2));
    for its in deliveries(&stage).values() {
        let numbers: Vec<_> = its.iter().map(|delivery| (delivery.attempt, delivery.delivery)).collect();
        assert_eq!(numbers, [(1, 1), (1, 2)], "the failure of a process is none of the timer's");
        assert_ne!(its[0].node, its[1].node);
    }
    let store = stage.store().unwrap();
    eventually("no timer is left", || {
        pollster::block_on(store.counts()).is_ok_and(|counts| counts.by_namespace.is_empty())
    });
}

#[test]
fn f14_a_node_that_stands_still_for_two_leases_starts_no_delivery_that_is_anothers() {
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
    tell(&format!("f14: {stops} stops: {} deliveries, {again} again, 0 lost", findings.deliveries));
    assert!(findings.duplicates.keys().all(|cause| *cause == Cause::Pause), "{findings:?}");
}

/// The name by which `faketime` shifts a process's time of day; `None` if there is none, which a line says then.
fn shifted(offset: &str) -> Option<Vec<String>> {
    let faketime = Command::new("faketime").args(["-f", "+1s", "true"]).stderr(Stdio::null()).status();
    if !faketime.is_ok_and(|status| status.success()) {
        tell("skipped a test: there is no faketime (apt-get install faketime)");
        return None;
    }
    let words = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1", "faketime", "-f", offset];
    Some(words.map(str::to_owned).to_vec())
}

/// Starts nodes whose times of day are off; `false` without `faketime`.
fn start_shifted(stage: &mut Stage, offsets: &[&str]) -> bool {
    for offset in offsets {
        let Some(before) = shifted(offset) else { return false };
        let node = stage.node(&before);
        stage.nodes.push(node);
    }
    stage.await_ready();
    true
}

#[test]
fn f21_nodes_whose_time_of_day_is_a_minute_off_are_neither_early_nor_take_leases() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    if !start_shifted(&mut stage, &["+60s", "-60s"]) {
        return;
    }
    stage.start_clients(Load { delay: Duration::from_secs(1), ..Load::default() }, 21);
    stage.await_progress(300);
    let row = stage.finish(Terms::default());
    assert!(row.expect_clean().deliveries > 100, "{row:?}");
}

#[test]
fn f33_a_run_without_faults_has_no_duplicates_and_nothing_early() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    stage.start_nodes(2);
    stage.start_clients(Load { delay: Duration::from_secs(1), ..Load::default() }, 33);
    stage.await_progress(400);
    thread::sleep(Duration::from_millis(100));
    let row = stage.finish(Terms::default());
    let findings = row.expect_clean();
    assert!(findings.deliveries > 150 && findings.duplicates.is_empty(), "{findings:?}");
}

/// T-07: three nodes with three clocks, and a timer of each second.
#[test]
fn t07_a_cron_of_each_second_has_each_instant_once_among_nodes_of_other_clocks() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    if !start_shifted(&mut stage, &["+60s", "-60s", "+0s"]) {
        return;
    }
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
        assert!(delivery.begun + wall() + 5_000 >= delivery.scheduled * 1_000, "early: {delivery:?}");
        instants.entry(delivery.series.unwrap()).or_default().push(delivery.scheduled);
    }
    let all: Vec<u64> = (0..seconds).map(|second| first.as_millis() + second * 1_000).collect();
    for id in ids {
        let its = instants.get_mut(&id.as_u128()).expect("a series is delivered");
        its.sort_unstable();
        assert_eq!(*its, all, "each second once");
    }
}

/// The limit. A machine that is busy may be slower once, so the fastest of some stops counts.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A node that is asked to stop has no shards any more, and others may take them.
#[test]
fn f19_a_node_that_stops_releases_its_shards_within_a_second() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    stage.start_nodes(2);
    let store = stage.store().unwrap();
    let owners = || {
        let nodes = pollster::block_on(store.nodes()).unwrap().unwrap();
        nodes.shards.iter().map(|shard| shard.owner).collect::<Vec<_>>()
    };
    let distinct = || owners().into_iter().collect::<HashSet<_>>();
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        eventually("the shards are divided", || distinct().len() == 2 && !distinct().contains(&None));
        let before = owners();
        let begun = Instant::now();
        let ended = thread::scope(|scope| {
            let ending = scope.spawn(|| stage.end_node(0));
            // The shards of the node that stops have no owner, or the other one.
            eventually("the shards are released", || {
                let pairs = before.iter().zip(owners());
                let left: HashSet<_> = pairs.filter(|(was, is)| *was == is).map(|(was, _)| *was).collect();
                left.len() == 1
            });
            let released = begun.elapsed();
            ending.join().unwrap();
            released
        });
        tell(&format!("f19: a node that stops has released its shards after {ended:?}"));
        fastest = fastest.min(ended);
        if fastest < AT_ONCE {
            break;
        }
        stage.start_nodes(1);
    }
    assert!(fastest < AT_ONCE, "{fastest:?}");
    assert_eq!(stage.problems, [""; 0]);
}
