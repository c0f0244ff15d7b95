//! Failovers of a primary that Sentinel watches.

use super::given::{Given, Outcome};
use std::thread;
use std::time::Duration;
use tourbillon_fault::history::{Cause, Terms};
use tourbillon_fault::run::{Load, Target, moment};
use tourbillon_fault::{Server, Watched, eventually};

const NO_SERVER: Outcome = Outcome::Skipped("no redis-server");

/// How long after its change a replica surely has it, while both run.
const REPLICATION: u64 = 5_000_000;

/// The primary of now, and its replica.
fn roles(watched: &mut Watched) -> (&mut Server, &mut Server) {
    if watched.first.info("role").as_deref() == Some("master") {
        (&mut watched.first, &mut watched.second)
    } else {
        (&mut watched.second, &mut watched.first)
    }
}

fn fail_over_again_and_again(given: &mut Given, replicas: u32) -> Outcome {
    let Some(mut watched) = Watched::start(&[]) else { return NO_SERVER };
    watched.down_after(Duration::from_secs(1));
    let target = Target::sentinel(watched.sentinel.url(), Watched::NAME).wait_for(replicas);
    let mut stage = given.stage(target);
    given.begin(&mut stage, Load::default());
    let mut terms = Terms::default();
    given.again(Duration::from_secs(8), |given| {
        let lag = given.up_to(Duration::from_secs(1));
        let from = moment();
        stage.harm(Cause::Failover, |_| {
            let (primary, replica) = roles(&mut watched);
            if replicas == 0 {
                // The replica lags behind, so that the failover loses something.
                replica.stop();
                primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
                thread::sleep(lag);
            }
            primary.kill();
            replica.go_on();
            eventually("the replica takes over", || replica.info("role").as_deref() == Some("master"));
            // Sentinel makes it a replica, which takes its time.
            primary.restart();
            eventually("the old primary follows", || {
                primary.info("master_link_status").as_deref() == Some("up")
            });
        });
        if replicas == 0 {
            terms.lossy.push((from.saturating_sub(REPLICATION), moment()));
        }
        stage.await_progress(10);
    });
    stage.finish(terms).into()
}

/// Each change waits for the replica: nothing is lost.
pub(super) fn failover_with_wait(given: &mut Given) -> Outcome {
    fail_over_again_and_again(given, 1)
}

/// Changes do not wait: what the replica did not have is lost, and counted.
pub(super) fn failover_without(given: &mut Given) -> Outcome {
    fail_over_again_and_again(given, 0)
}
