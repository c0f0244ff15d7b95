//! Handlers that arm, disarm and drop timers, their own or others.

use crate::support::{Log, MS, Shot, lock, within_patience};
use crate::{Place, SECOND, Tracked, at, every_dispatch, on_time};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use tourbillon::{Armed, Builder, Disarm, Fired, Timer, Timestamp};

#[test]
fn a_handler_arms_its_own_timer_again() {
    // The handler uses its argument, or a shared reference to the timer.
    for shared in [false, true] {
        let place: Arc<OnceLock<Arc<Timer<u64>>>> = Arc::default();
        let (in_handler, log) = (Arc::downgrade(&place), Log::new());
        let sink = log.clone();
        let mut engine = Builder::new()
            .driven(move |fired: Fired<'_, u64>| {
                sink.push(Shot::of(&fired));
                let again = fired.deadline + SECOND;
                let outcome = if shared {
                    in_handler.upgrade().unwrap().get().unwrap().arm_at(again)
                } else {
                    fired.timer().unwrap().arm_at(again)
                };
                assert_eq!(outcome, Ok(Armed::Running), "the arming does not return that the handler runs");
            })
            .unwrap();
        let timer = Arc::new(engine.handle().timer(7).unwrap());
        assert!(place.set(Arc::clone(&timer)).is_ok());
        timer.arm(SECOND).unwrap();
        engine.advance(10 * SECOND);
        let expected: Vec<_> = (1..=10).map(|second| on_time(7, at(second * SECOND))).collect();
        assert_eq!(log.take(), expected, "a run is missing, or did not come on its deadline");
        assert_eq!(timer.deadline(), Some(at(11 * SECOND)), "the arming of the last run is not in force");
        assert_eq!(timer.disarm(), Disarm::Disarmed, "the arming of the last run cannot be taken away");
        engine.advance(10 * SECOND);
        assert_eq!(
            (log.len(), engine.handle().stats().total.panics),
            (0, 0),
            "it fired though it was disarmed, or an assertion inside the handler failed"
        );
    }
}

#[test]
fn a_timer_disarmed_by_its_own_handler_stays_at_rest() {
    let (mut engine, log) = {
        let log = Log::new();
        let sink = log.clone();
        let engine = Builder::new().driven(move |fired: Fired<'_, u64>| {
            let timer = fired.timer().unwrap();
            timer.arm(SECOND).unwrap();
            assert_eq!(timer.disarm(), Disarm::Running, "the disarm does not return that the handler runs");
            sink.push(Shot::of(&fired));
        });
        (engine.unwrap(), log)
    };
    let timer = engine.handle().timer(7).unwrap();
    timer.arm(SECOND).unwrap();
    engine.advance(10 * SECOND);
    assert_eq!(log.take().len(), 1, "it fired for the arming that its handler took away");
    assert_eq!(
        (timer.disarm(), engine.handle().stats().total.tickets),
        (Disarm::Idle, 0),
        "the timer is not at rest, or its ticket is left"
    );
    timer.arm(SECOND).unwrap();
    engine.advance(SECOND);
    assert_eq!(log.take().len(), 1, "the arming after that did not fire once");
}

#[test]
fn a_handler_that_arms_without_delay_comes_once_a_tick() {
    for past in [false, true] {
        let log = Log::new();
        let sink = log.clone();
        let mut engine = Builder::new()
            .driven(move |fired: Fired<'_, u64>| {
                sink.push(fired.engine().now());
                let timer = fired.timer().unwrap();
                if past { timer.arm_at(Timestamp::ZERO) } else { timer.arm(Duration::ZERO) }.unwrap();
            })
            .unwrap();
        let timer = engine.handle().timer(7).unwrap();
        timer.arm(SECOND).unwrap();
        engine.advance(SECOND + 10 * MS);
        assert_eq!(
            log.take(),
            (1_000..=1_010).map(|n| at(n * MS)).collect::<Vec<_>>(),
            "it did not come once in each tick"
        );
        drop(timer);
        engine.advance(SECOND);
        assert_eq!(log.len(), 0, "a dropped timer fired");
    }
}

#[test]
fn a_turn_ends_though_every_timer_arms_itself_again_at_once() {
    let fired = within_patience(|| {
        let mut engine = Builder::new()
            .driven(|fired: Fired<'_, u64>| {
                fired.timer().unwrap().arm(Duration::ZERO).unwrap();
            })
            .unwrap();
        let timers: Vec<_> = (0..20_000).map(|n| engine.handle().timer(n).unwrap()).collect();
        for timer in &timers {
            timer.arm(Duration::ZERO).unwrap();
        }
        engine.turn();
        engine.handle().stats().owned.fired
    });
    assert_eq!(fired, 20_000, "a timer was left out, or came twice in the turn");
}

#[test]
fn only_an_owned_timer_is_there_to_be_armed_again() {
    let mut engine = Builder::new()
        .driven(|fired: Fired<'_, u64>| {
            assert_eq!(
                fired.timer().is_some(),
                fired.payload == 1,
                "`timer` is there for a scheduled timer, or not for an owned one"
            )
        })
        .unwrap();
    let timer = engine.handle().timer(1).unwrap();
    timer.arm(MS).unwrap();
    engine.handle().schedule(MS, 2).unwrap();
    engine.advance(MS);
    assert_eq!(
        (engine.handle().stats().total.fired, engine.handle().stats().total.panics),
        (2, 0),
        "a timer did not fire, or the assertion inside the handler failed"
    );
}

#[test]
fn every_dispatch_lets_a_handler_arm_its_timer() {
    for builder in every_dispatch() {
        within_patience(move || {
            let (sender, done) = mpsc::channel();
            let count = AtomicU64::new(0);
            let engine = builder
                .start(move |fired: Fired<'_, u64>| {
                    assert!(fired.engine().now() >= fired.deadline, "early");
                    let timer = fired.timer().unwrap();
                    assert_eq!(
                        timer.disarm(),
                        Disarm::Running,
                        "the disarm does not return that the handler runs"
                    );
                    if count.fetch_add(1, Ordering::Relaxed) < 20 {
                        assert_eq!(
                            timer.arm(Duration::ZERO),
                            Ok(Armed::Running),
                            "the arming does not return that the handler runs"
                        );
                    } else {
                        sender.send(()).unwrap();
                    }
                })
                .unwrap();
            let timer = engine.handle().timer(7).unwrap();
            timer.arm(MS).unwrap();
            done.recv().unwrap();
            timer.disarm_and_wait();
            let stats = engine.handle().stats();
            assert_eq!(
                (stats.owned.fired, stats.total.panics),
                (21, 0),
                "a run is missing, or an assertion inside the handler failed"
            );
        });
    }
}

#[test]
fn a_handler_drops_disarms_and_puts_off_a_timer_that_is_due_with_its_own() {
    // 100 timers are due in one tick. They form pairs: the timer of a pair that fires first drops, disarms or postpones
    // the other.
    for way in 0..3 {
        let places: Arc<Vec<Place<Tracked>>> = Arc::new((0..100).map(|_| Place::default()).collect());
        let (in_handler, fired) = (Arc::clone(&places), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&fired);
        let mut engine = Builder::new()
            .driven(move |fired: Fired<'_, Tracked>| {
                count.fetch_add(1, Ordering::SeqCst);
                let is_me = |place: &&Place<Tracked>| {
                    lock(place).as_ref().is_some_and(|timer| timer.id() == fired.id())
                };
                let me = in_handler.iter().position(|place| is_me(&place)).unwrap();
                let mut other = lock(&in_handler[me ^ 1]);
                let Some(timer) = other.as_ref() else { return };
                match way {
                    0 => *other = None,
                    1 => assert_eq!(
                        timer.disarm(),
                        Disarm::Disarmed,
                        "the other timer is due and armed, and the disarm returns otherwise"
                    ),
                    _ => assert_eq!(
                        timer.arm(SECOND),
                        Ok(Armed::Pending),
                        "the other timer is due and armed, and the arming returns otherwise"
                    ),
                }
            })
            .unwrap();
        let mut books = Vec::new();
        for place in &*places {
            let (payload, book) = Tracked::new();
            let timer = engine.handle().timer(payload).unwrap();
            timer.arm(SECOND).unwrap();
            *lock(place) = Some(timer);
            books.push(book);
        }
        engine.advance(SECOND);
        assert_eq!(
            fired.swap(0, Ordering::SeqCst),
            50,
            "a timer that was taken out of the way fired: way {way}"
        );
        assert_eq!(
            engine.handle().stats().total.panics,
            0,
            "an assertion inside the handler failed: way {way}"
        );
        assert_eq!(
            engine.handle().stats().owned.alive,
            if way == 0 { 50 } else { 100 },
            "a dropped timer is counted as alive: way {way}"
        );
        engine.advance(SECOND - MS);
        assert_eq!(fired.load(Ordering::SeqCst), 0, "a timer fired before its new deadline: way {way}");
        // The timers that were postponed fire now. They arm the other timers of their pairs, which are at rest.
        engine.advance(MS);
        assert_eq!(
            fired.load(Ordering::SeqCst),
            if way == 2 { 50 } else { 0 },
            "a timer that was put off was lost, or a disarmed one fired: way {way}"
        );
        for place in &*places {
            drop(lock(place).take());
        }
        books.iter().for_each(|book| book.assert_gone());
        assert_eq!(engine.handle().stats().owned.alive, 0, "a dropped timer is counted as alive: way {way}");
    }
}
