//! Scenarios with faults of nodes, on one server.

use super::given::{Given, Outcome};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_fault::Server;
use tourbillon_fault::history::Terms;
use tourbillon_fault::run::{Load, Stage, Target};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

/// Starts three nodes, the clients, and a server that keeps its data only in memory. Returns `None` if no
/// `redis-server` is installed.
fn begin(given: &Given, load: Load) -> Option<(Server, Stage)> {
    let server = Server::start(&[])?;
    let mut stage = given.stage(Target::single(server.url()));
    given.begin(&mut stage, load);
    Some((server, stage))
}

/// Runs without any fault, so no delivery may be repeated.
pub(super) fn quiet(given: &mut Given) -> Outcome {
    let Some((_server, stage)) = begin(given, Load::default()) else { return NO_SERVER };
    thread::sleep(given.time);
    stage.finish(Terms::default()).into()
}

/// Kills one of three nodes every ten seconds, at about 1,000 timers a second.
pub(super) fn killed(given: &mut Given) -> Outcome {
    // The rate is higher than 1,000, since one of seven operations is a cancel.
    let load = Load { rate: 1_200, batch: 20, ..Load::default() };
    let Some((_server, mut stage)) = begin(given, load) else { return NO_SERVER };
    let (begun, pause) = (Instant::now(), Duration::from_secs(10).min(given.time / 4));
    let (mut kills, mut next) = (0, begun + pause);
    while next < begun + given.time {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += pause;
        let node = given.rng.usize(..stage.nodes.len());
        stage.kill(node);
        kills += 1;
        // The killed node is replaced after a pause.
        thread::sleep(given.up_to(Duration::from_secs(1)));
        stage.start_nodes(1);
    }
    thread::sleep((begun + given.time).saturating_duration_since(Instant::now()));
    let seconds = begun.elapsed().as_secs_f64();
    let mut row = stage.finish(Terms::default());
    let rate = row.findings.acknowledged as f64 / seconds;
    row.notes
        .push(format!("{kills} kills in {seconds:.0} s, one every {pause:?}; {rate:.0} timers a second"));
    row.into()
}

/// Stops one node at a time, either for a third of the time that a lease lasts, or for twice that time.
pub(super) fn paused(given: &mut Given) -> Outcome {
    let Some((_server, mut stage)) = begin(given, Load::default()) else { return NO_SERVER };
    given.again(Duration::from_secs(3), |given| {
        let node = given.rng.usize(..stage.nodes.len());
        let time = if given.rng.bool() { stage.lease * 2 } else { stage.lease / 3 };
        stage.pause(node, time.min(given.time / 2));
    });
    stage.finish(Terms::default()).into()
}

/// Shuts nodes down in order, one after the other, and starts new nodes in their place. No delivery may be repeated.
pub(super) fn rolling(given: &mut Given) -> Outcome {
    let Some((_server, mut stage)) = begin(given, Load::default()) else { return NO_SERVER };
    given.again(Duration::from_secs(2), |_| {
        stage.start_nodes(1);
        stage.end_node(0);
    });
    stage.finish(Terms::default()).into()
}

/// Shifts the time of day of some nodes by a minute, forwards or backwards. No timer may be early, and no node may take
/// over a lease early.
pub(super) fn clocks(given: &mut Given) -> Outcome {
    let Some(server) = Server::start(&[]) else { return NO_SERVER };
    let mut stage = given.stage(Target::single(server.url()));
    if !stage.start_shifted_nodes(&[60, -60, 0]) {
        return Outcome::Skipped("no faketime (apt-get install faketime)");
    }
    stage.start_clients(Load::default(), given.seed);
    thread::sleep(given.time);
    stage.finish(Terms::default()).into()
}
