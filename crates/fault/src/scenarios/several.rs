//! Scenarios with failovers of a primary that a Sentinel watches.

use super::given::{Given, Outcome};
use std::thread;
use std::time::Duration;
use tourbillon_fault::history::{Cause, Moment, Terms};
use tourbillon_fault::run::{Load, Row, Target, moment};
use tourbillon_fault::{Server, Watched, eventually_some};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

/// Returns the present primary and the present replica, in this order.
fn roles(watched: &mut Watched) -> (&mut Server, &mut Server) {
    let Watched { first, second, .. } = watched;
    if first.info("role").as_deref() == Some("master") { (first, second) } else { (second, first) }
}

/// Waits until the replica has caught up with the primary. Returns a moment: the replica has every change that the
/// primary acknowledged before this moment.
fn replicated(primary: &Server) -> Moment {
    eventually_some("the replica has all changes", || {
        let asked = moment();
        // `WAIT` counts only changes of its own connection. So the connection first changes a key that no deployment
        // uses.
        let mut both = redis::pipe();
        both.cmd("SET")
            .arg("tourbillon-fault")
            .arg(1)
            .arg("PX")
            .arg(1)
            .ignore()
            .cmd("WAIT")
            .arg(1)
            .arg(5_000);
        let (replicas,): (u32,) = both.query(&mut primary.connect().ok()?).ok()?;
        (replicas > 0).then_some(asked)
    })
}

fn fail_over_again_and_again(given: &mut Given, mut watched: Watched, replicas: u32, terms: Terms) -> Row {
    let target = Target::sentinel(watched.sentinel.url(), Watched::NAME).wait_for(replicas);
    let mut stage = given.stage(target);
    given.begin(&mut stage, Load::default());
    let mut terms = Terms { loses_ends: true, ..terms };
    given.again(Duration::from_secs(5), |given| {
        let lag = given.up_to(Duration::from_secs(1));
        stage.harm(Cause::Failover, |_| {
            let (primary, replica) = roles(&mut watched);
            // The replica falls behind, so that the failover loses something.
            let from = (replicas == 0).then(|| {
                let from = replicated(primary);
                replica.stop();
                primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
                thread::sleep(lag);
                from
            });
            primary.kill();
            terms.lossy.extend(from.map(|from| (from, moment())));
            replica.go_on();
            watched.fail_over();
        });
        stage.await_progress(10);
    });
    stage.finish(terms)
}

/// Kills the primary while each change waits for the replica. No timer is lost.
pub(super) fn failover_with_wait(given: &mut Given) -> Outcome {
    let Some(watched) = Watched::start(&[]) else { return NO_SERVER };
    fail_over_again_and_again(given, watched, 1, Terms::default()).into()
}

/// Makes the Sentinel swap the roles of two running servers. The nodes find the new primary, and no acknowledged change
/// is lost.
pub(super) fn failover_in_order(given: &mut Given) -> Outcome {
    let Some(mut watched) = Watched::start(&[]) else { return NO_SERVER };
    let target = Target::sentinel(watched.sentinel.url(), Watched::NAME).wait_for(1);
    let mut stage = given.stage(target);
    given.begin(&mut stage, Load::default());
    given.again(Duration::from_secs(5), |_| {
        stage.harm(Cause::Failover, |_| watched.change_roles());
        stage.await_progress(10);
    });
    stage.finish(Terms { loses_ends: true, ..Terms::default() }).into()
}

/// Kills the primary while changes do not wait for the replica. Changes that the replica does not have are lost, and
/// the run counts them.
pub(super) fn failover_without(given: &mut Given) -> Outcome {
    let Some(watched) = Watched::start(&[]) else { return NO_SERVER };
    fail_over_again_and_again(given, watched, 0, Terms::default()).into()
}

/// Kills primaries while the clocks of the two servers differ by three seconds. No timer is early by more than this
/// difference, and no timer is lost.
pub(super) fn failover_between_clocks(given: &mut Given) -> Outcome {
    let shift = if given.rng.bool() { 3_i64 } else { -3 };
    let Some(watched) = Watched::start_shifted(&[], shift) else {
        return Outcome::Skipped("no redis-server, or no compiler for C");
    };
    let seconds = |server: &Server| {
        let time: Vec<i64> = server.query(&["TIME"]);
        time[0]
    };
    let differs = seconds(&watched.second) - seconds(&watched.first);
    assert!((differs - shift).abs() <= 1, "the clocks differ by {differs} s");
    let tolerance = shift.unsigned_abs() * 1_000;
    let terms = Terms { tolerance, ..Terms::default() };
    let mut row = fail_over_again_and_again(given, watched, 1, terms);
    let early = Duration::from_micros(row.findings.earliness);
    row.notes.push(format!("the clocks differ by {shift} s; a delivery was early by {early:?} at most"));
    row.into()
}
