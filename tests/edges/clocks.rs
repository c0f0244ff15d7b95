//! Clocks that step back fire nothing early.

use crate::support::{Log, MS, Rng, Shot, assert_settled, payloads, wait_until};
use crate::{SECOND, at};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Clock, Fired, ManualClock, SystemClock, Timestamp};

#[test]
fn a_manual_clock_set_back_fires_nothing_early() {
    let (clock, log) = (ManualClock::new(), Log::new());
    let sink = log.clone();
    let engine = Builder::new()
        .clock(clock.clone())
        .shards(1)
        .inline()
        .start(move |timer| sink.push(Shot::of(&timer)))
        .unwrap();
    engine.handle().schedule_at(at(10 * SECOND), 10).unwrap();
    engine.handle().schedule_at(at(12 * SECOND), 12).unwrap();
    clock.set(at(10 * SECOND));
    wait_until("the first has fired", || log.len() == 1);
    clock.set(at(5 * SECOND));
    engine.handle().schedule(SECOND, 6).unwrap();
    engine.handle().schedule(4 * SECOND, 9).unwrap();
    engine.handle().schedule(6 * SECOND, 11).unwrap();
    // Nothing is due at 5 s. The engine may catch up in some way, but no timer is early.
    thread::sleep(20 * MS);
    assert_eq!(log.len(), 1);
    for second in 6..=12 {
        clock.set(at(second * SECOND));
        thread::sleep(2 * MS);
    }
    wait_until("all have fired", || log.len() == 5);
    let shots = log.take();
    assert_eq!(payloads(&shots), [6, 9, 10, 11, 12]);
    assert!(shots.iter().all(|shot| shot.at >= shot.deadline), "{shots:?}");
    assert_eq!(engine.handle().stats().total.panics, 0);
}

#[test]
fn a_clock_of_ones_own_that_steps_back_fires_nothing_early() {
    /// A clock that sometimes steps back. The clock remembers the latest moment that it has shown.
    struct Jumpy {
        source: SystemClock,
        back: Arc<AtomicU64>,
        shown: Arc<AtomicU64>,
    }

    impl Clock for Jumpy {
        fn now(&self) -> Timestamp {
            let back = self.back.load(Ordering::SeqCst);
            let now = self.source.now().as_nanos().saturating_sub(back);
            self.shown.fetch_max(now, Ordering::SeqCst);
            Timestamp::from_nanos(now)
        }
    }

    let (back, shown, log) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Log::new());
    let clock = Jumpy { source: SystemClock::new(), back: Arc::clone(&back), shown: Arc::clone(&shown) };
    let sink = log.clone();
    let engine = Builder::new()
        .clock(clock)
        .tick(Duration::from_micros(10))
        .shards(2)
        .workers(1)
        .start(move |timer: Fired<'_, u64>| {
            assert!(shown.load(Ordering::SeqCst) >= timer.deadline.as_nanos(), "early");
            sink.push(timer.payload);
        })
        .unwrap();
    let mut rng = Rng::new(17);
    for payload in 0..3_000 {
        engine.handle().schedule(rng.nanos_below(10 * MS), payload).unwrap();
        if payload % 100 == 0 {
            back.fetch_add(2_000_000, Ordering::SeqCst);
            thread::sleep(MS);
        }
    }
    wait_until("all have fired", || log.len() == 3_000);
    assert_eq!(engine.handle().stats().total.panics, 0);
    assert_settled(&engine.handle().stats());
}
