//! F-13, F-14, F-21, F-33 with nodes as processes of their own: short runs, whose histories are checked. The program
//! `tourbillon-fault` runs longer ones.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tourbillon_durable::store::{Durability, Op, TimerStore};
use tourbillon_durable::timer::{Payload, Timer, TimerId};
use tourbillon_fault::history::{Cause, Delivery, Record, Terms};
use tourbillon_fault::run::{KIND, Load, Stage, Target, be_part, payload};
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
    stage.lease = Duration::from_secs(2);
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
#[ignore = "several seconds; the scenario 'nodes paused' covers it"]
fn f14_a_node_that_stands_still_for_two_leases_starts_no_delivery_that_is_anothers() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    stage.lease = Duration::from_secs(2);
    stage.start_nodes(2);
    stage.start_clients(Load { delay: Duration::from_secs(1), ..Load::default() }, 14);
    stage.await_progress(200);
    stage.pause(0, Duration::from_secs(4));
    stage.await_progress(200);
    let row = stage.finish(Terms::default());
    let findings = row.expect_clean();
    assert!(findings.duplicates.keys().all(|cause| *cause == Cause::Pause), "{findings:?}");
}

#[test]
fn f21_nodes_whose_time_of_day_is_a_minute_off_are_neither_early_nor_take_leases() {
    let faketime = Command::new("faketime").args(["-f", "+1s", "true"]).stderr(Stdio::null()).status();
    if !faketime.is_ok_and(|status| status.success()) {
        eprintln!("skipped a test: there is no faketime (apt-get install faketime)");
        return;
    }
    let Some(server) = Server::start(&[]) else { return };
    let mut stage = stage(&server);
    for offset in ["+60s", "-60s"] {
        let before = ["env", "FAKETIME_DONT_FAKE_MONOTONIC=1", "faketime", "-f", offset].map(str::to_owned);
        let node = stage.node(&before);
        stage.nodes.push(node);
    }
    stage.await_ready();
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
