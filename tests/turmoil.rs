//! The clocks of turmoil's hosts, each of which is a runtime with a paused clock.
#![cfg(feature = "test-util")]

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use tourbillon::{future, time};

const TICK: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);

/// Runs two clients, and a host that crashes and starts again. Returns the times at which their waits ended, by their
/// own clocks.
fn simulation(seed: u64) -> Vec<(String, Duration)> {
    let log = Rc::new(RefCell::new(Vec::new()));
    let note = |name: &'static str| {
        let log = Rc::clone(&log);
        move |begin: Instant, n: u32| log.borrow_mut().push((format!("{name} {n}"), begin.elapsed()))
    };
    let mut builder = turmoil::Builder::new();
    builder.simulation_duration(60 * MINUTE).tick_duration(TICK).rng_seed(seed).enable_random_order();
    let mut sim = builder.build();
    let host = note("host");
    sim.host("host", move || {
        let note = host.clone();
        async move {
            let begin = Instant::now();
            let mut ticks = time::interval(MINUTE);
            for n in 0.. {
                ticks.tick().await;
                note(begin, n);
            }
            Ok(())
        }
    });
    let sleeps = note("sleeps");
    sim.client("sleeps", async move {
        let begin = Instant::now();
        for n in 1..=10 {
            time::sleep(MINUTE).await;
            assert!(
                begin.elapsed() >= n * MINUTE && begin.elapsed() <= n * (MINUTE + Duration::from_millis(2))
            );
            sleeps(begin, n);
        }
        Ok(())
    });
    let timeouts = note("timeouts");
    sim.client("timeouts", async move {
        let begin = Instant::now();
        for n in 1..=10 {
            assert!(future::timeout(MINUTE, pending::<()>()).await.is_err());
            assert!(
                begin.elapsed() >= n * MINUTE && begin.elapsed() <= n * (MINUTE + Duration::from_millis(2))
            );
            timeouts(begin, n);
        }
        Ok(())
    });
    for _ in 0..3_000 {
        sim.step().unwrap();
    }
    sim.crash("host");
    sim.bounce("host");
    sim.run().unwrap();
    drop(sim);
    Rc::try_unwrap(log).map_or_else(|log| log.borrow().clone(), RefCell::into_inner)
}

#[test]
fn waits_follow_the_clock_of_their_host_and_are_the_same_for_each_seed() {
    for seed in 0..5 {
        let log = simulation(seed);
        let count = |name: &str| log.iter().filter(|(event, _)| event.starts_with(name)).count();
        assert_eq!((count("sleeps"), count("timeouts")), (10, 10), "{log:?}");
        assert!(count("host") > 10, "before the crash and after it: {log:?}");
        assert_eq!(log, simulation(seed), "seed {seed}");
    }
}
