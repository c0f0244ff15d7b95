//! Owned timers, seen from outside.
mod support;

use std::time::Duration;
use support::recording;
use tourbillon::{Armed, Builder, Disarm};

#[test]
fn a_timer_that_is_put_off_fires_once_at_its_last_deadline() {
    let (mut engine, log) = recording(Builder::new());
    let timer = engine.timer(7).unwrap();
    for _ in 0..1_000 {
        assert_eq!(timer.arm(Duration::from_millis(100)), Ok(Armed::Pending));
        engine.advance(Duration::from_millis(1));
    }
    assert_eq!(engine.stats().owned.posted, 1);
    engine.advance(Duration::from_secs(1));
    assert_eq!(log.take().len(), 1);
    assert_eq!(timer.disarm(), Disarm::Idle);
    drop(timer);
    assert_eq!(engine.stats().owned.alive, 0);
}
