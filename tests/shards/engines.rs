//! Several engines on one set of shards.

use crate::support::{HOUR, MS, PATIENCE, assert_settled, lock, wait_until, within_patience};
use crate::{driven, logging, small, witness};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Cancel, Engine, Fired, Refusal};

#[test]
fn engines_of_different_payloads_fire_on_one_set() {
    let shards = small().start_shards().expect("shards");
    let (numbers, log) = logging(&shards);
    let (fired, words) = mpsc::channel();
    let engine =
        shards.engine().start(move |timer: Fired<'_, &str>| fired.send(timer.payload).expect("heard"));
    let engine = engine.expect("an engine");
    numbers.handle().schedule(MS, 7).expect("room");
    engine.handle().schedule(2 * MS, "seven").expect("room");
    assert_eq!(words.recv_timeout(PATIENCE), Ok("seven"));
    wait_until("the other engine has fired", || log.len() == 1);
    assert_eq!(log.take(), [7]);
}

#[test]
fn an_id_of_one_engine_does_not_reach_another_engines_timer() {
    let shards = driven();
    let [(one, _), (other, _)] = [logging(shards.shards()), logging(shards.shards())];
    let id = one.handle().schedule(HOUR, 1).expect("room");
    other.handle().schedule(HOUR, 2).expect("room");
    assert_eq!(one.handle().cancel(id), Cancel::Cancelled(1));
    assert_eq!((one.handle().len(), other.handle().len()), (0, 1), "the engines share a slot");
}

#[test]
fn a_shutdown_returns_its_own_timers_and_leaves_the_others_running() {
    let shards = small().start_shards().expect("shards");
    let [(ended, _), (other, log)] = [logging(&shards), logging(&shards)];
    for n in 0..1_000 {
        ended.handle().schedule(HOUR, n).expect("room");
        other.handle().schedule(20 * MS, n).expect("room");
    }
    let mut returned: Vec<u64> = ended.handle().shutdown().into_iter().map(|timer| timer.payload).collect();
    returned.sort_unstable();
    assert!(returned.into_iter().eq(0..1_000), "the shutdown returned other timers than its own");
    let refused = ended.handle().schedule(MS, 5).expect_err("it was shut down");
    assert_eq!((refused.kind, refused.payload), (Refusal::ShutDown, 5));
    wait_until("the other engine has fired", || log.len() == 1_000);
    other.handle().schedule(MS, 0).expect("the other engine goes on");
    wait_until("the other engine has fired again", || log.len() == 1_001);
    assert_settled(&other.handle().stats());
}

#[test]
fn an_engine_that_ended_leaves_nothing_on_the_set() {
    let shards = small().start_shards().expect("shards");
    for round in 0..200 {
        let (witness, count) = witness();
        let engine = shards.engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness)));
        let engine = engine.expect("an engine");
        engine.handle().schedule(if round % 2 == 0 { HOUR } else { Duration::ZERO }, round).expect("room");
        drop(engine);
        wait_until("the handler was dropped", || count() == 0);
    }
}

/// An engine is idle, so no job keeps it alive. When the engine's drop returns, its handler has been dropped, too.
#[test]
fn an_idle_engine_is_freed_when_its_drop_returns() {
    let shards = small().start_shards().expect("shards");
    for _ in 0..200 {
        let (witness, count) = witness();
        let engine = shards.engine().start(move |_: Fired<'_, u64>| drop(Arc::clone(&witness)));
        drop(engine.expect("an engine"));
        assert_eq!(count(), 0, "a shard kept the engine after its end");
    }
}

#[test]
fn engines_come_and_go_while_others_fire_and_no_timer_is_lost() {
    within_patience(|| {
        let shards = small().start_shards().expect("shards");
        let (steady, log) = logging(&shards);
        let stop = Instant::now() + 300 * MS;
        let scheduled = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while Instant::now() < stop {
                        let (passing, seen) = logging(&shards);
                        let ids =
                            (0..100).map(|n| passing.handle().schedule(MS, n)).filter(Result::is_ok).count();
                        let returned = passing.handle().shutdown().len();
                        assert_eq!(seen.len() + returned, ids, "a timer of a passing engine was lost");
                    }
                });
            }
            let mut scheduled = 0;
            while Instant::now() < stop {
                steady.handle().schedule(MS, 0).expect("room");
                scheduled += 1;
                thread::yield_now();
            }
            scheduled
        });
        wait_until("all timers of the steady engine have fired", || log.len() == scheduled);
    });
}

#[test]
fn a_handler_may_end_its_own_engine_and_another_one() {
    within_patience(|| {
        let shards = small().start_shards().expect("shards");
        let (victim, _) = logging(&shards);
        victim.handle().schedule(HOUR, 1).expect("room");
        let (sender, returned) = mpsc::channel();
        let other = Mutex::new(Some(victim));
        let engine = shards.engine().start(move |timer: Fired<'_, u64>| {
            let victim = lock(&other).take();
            let theirs = victim.map_or(0, |victim| victim.handle().shutdown().len());
            sender.send((theirs, timer.engine().shutdown().len())).expect("heard");
        });
        let engine = engine.expect("an engine");
        engine.handle().schedule(HOUR, 2).expect("room");
        engine.handle().schedule(MS, 3).expect("room");
        assert_eq!(
            returned.recv_timeout(PATIENCE),
            Ok((1, 1)),
            "timers returned by the other engine, and by its own"
        );
        drop(engine);
        let (next, log) = logging(&shards);
        next.handle().schedule(MS, 4).expect("the set goes on");
        wait_until("an engine made later has fired", || log.len() == 1);
    });
}

#[test]
fn a_handler_may_make_an_engine_on_its_own_set() {
    for inline in [false, true] {
        within_patience(move || {
            let shards = small().start_shards().expect("shards");
            let (sender, made) = mpsc::channel();
            let (own, builder) = (shards.clone(), shards.engine());
            let builder = if inline { builder.inline() } else { builder };
            let engine = builder.start(move |_: Fired<'_, u64>| sender.send(logging(&own)).expect("heard"));
            let engine = engine.expect("an engine");
            engine.handle().schedule(MS, 0).expect("room");
            let (made, log) = made.recv_timeout(PATIENCE).expect("the handler makes an engine");
            made.handle().schedule(MS, 1).expect("room");
            wait_until("the new engine has fired", || log.len() == 1);
        });
    }
}

#[test]
fn an_engine_that_a_handler_makes_inside_a_turn_is_on_the_driven_shards() {
    let mut shards = driven();
    let made = Arc::new(Mutex::new(None));
    let engine = shards.shards().engine().start({
        let place = Arc::clone(&made);
        move |_: Fired<'_, u64>| *lock(&place) = Some(Engine::new(|_: Fired<'_, u64>| {}).expect("an engine"))
    });
    let engine = engine.expect("an engine");
    engine.handle().schedule(MS, 0).expect("room");
    shards.advance(2 * MS);
    let made = lock(&made).take().expect("the handler made an engine");
    made.handle().schedule(MS, 1).expect("room");
    shards.advance(2 * MS);
    assert_eq!(made.handle().stats().fired, 1, "the engine is on other shards");
}
