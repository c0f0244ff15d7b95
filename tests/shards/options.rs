//! Options of an engine on shards, and how its handlers run.

use crate::support::{Gate, HOUR, Log, MS, PATIENCE, wait_until, within_patience};
use crate::{driven, logging, small};
use std::sync::mpsc;
use tourbillon::{BuildError, Builder, Condition, Fired, Job, Refusal};

#[test]
fn an_engine_on_shards_takes_options_of_an_engine_and_refuses_those_of_shards() {
    let shards = driven();
    let handler = |_: Fired<'_, u64>| {};
    let tiny = shards.shards().engine().capacity(1).start(handler).expect("an engine");
    tiny.handle().schedule(HOUR, 1).expect("room");
    assert_eq!(tiny.handle().schedule(HOUR, 2).expect_err("no room").kind, Refusal::EngineFull);
    for (option, builder) in [
        ("tick", shards.shards().engine().tick(MS)),
        ("shards", shards.shards().engine().shards(3)),
        ("workers", Builder::new().workers(3).on(shards.shards())),
    ] {
        let error = builder.start(handler).expect_err("the shards are started");
        assert!(
            matches!(error, BuildError::NotOfAnEngine { option: refused } if refused == option),
            "{error}"
        );
    }
    let error = shards.shards().engine().start_shards().expect_err("they are started");
    assert!(matches!(error, BuildError::NotOfAnEngine { .. }), "{error}");
}

/// One engine's handlers block all workers. Another engine runs its handlers inline, and its timers go on.
#[test]
fn blocked_workers_do_not_hold_up_an_inline_engine() {
    let shards = small().start_shards().expect("shards");
    let gate = Gate::new();
    let at_gate = gate.clone();
    let blocking = shards.engine().start(move |_: Fired<'_, ()>| at_gate.pass()).expect("an engine");
    for _ in 0..2 {
        blocking.handle().schedule(MS, ()).expect("room");
    }
    gate.await_arrivals(2);
    let (sender, fired) = mpsc::channel();
    let waking = shards
        .engine()
        .inline()
        .start(move |timer: Fired<'_, u64>| sender.send(timer.payload).expect("heard"));
    let waking = waking.expect("an engine");
    for n in 0..100 {
        waking.handle().schedule(MS, n).expect("room");
        assert_eq!(
            fired.recv_timeout(PATIENCE),
            Ok(n),
            "a blocked worker holds up a handler that runs inline"
        );
    }
    gate.open();
}

/// A handler that runs inline leads a shard. If the lane (its thread's queue) to another engine of the set is full, a
/// call fails instead of waiting.
#[test]
fn an_inline_handler_does_not_wait_for_room_on_its_own_set() {
    within_patience(|| {
        let shards = Builder::new().shards(1).workers(1).start_shards().expect("shards");
        let (full, _) = {
            let log = Log::<u64>::new();
            (shards.engine().lane_capacity(64).start(|_: Fired<'_, u64>| {}).expect("an engine"), log)
        };
        let (sender, refused) = mpsc::channel();
        let handle = full.handle().clone();
        let filling = shards.engine().inline().start(move |_: Fired<'_, u64>| {
            let refused = (0..1_000).find_map(|n| handle.schedule(HOUR, n).err());
            sender.send(refused.map(|error| error.kind)).expect("heard");
        });
        let filling = filling.expect("an engine");
        filling.handle().schedule(MS, 0).expect("room");
        assert_eq!(refused.recv_timeout(PATIENCE), Ok(Some(Refusal::LaneFull)));
    });
}

/// Runs a job at once on the calling thread. An engine uses this function as its executor.
fn on_the_spot(job: Job) {
    job.run();
}

/// While a shard's own thread waits in an executor, no thread makes room in the shard's lanes.
#[test]
fn a_handler_of_an_executor_on_the_shards_thread_does_not_wait_for_room() {
    within_patience(|| {
        let (sender, refused) = mpsc::channel();
        let engine = Builder::new().shards(1).lane_capacity(64).executor(on_the_spot);
        let engine = engine.start(move |timer: Fired<'_, u64>| {
            let refused = (0..1_000).find_map(|n| timer.engine().schedule(HOUR, n).err());
            sender.send(refused.map(|error| error.kind)).expect("heard");
        });
        let engine = engine.expect("an engine");
        engine.handle().schedule(MS, 0).expect("room");
        assert_eq!(refused.recv_timeout(PATIENCE), Ok(Some(Refusal::LaneFull)));
    });
}

#[test]
fn a_handler_of_an_executor_on_the_shards_thread_may_end_another_engine() {
    within_patience(|| {
        let shards = Builder::new().shards(1).workers(1).start_shards().expect("shards");
        let (victim, _) = logging(&shards);
        victim.handle().schedule(HOUR, 1).expect("room");
        let (sender, returned) = mpsc::channel();
        let engine = shards.engine().executor(on_the_spot).start(move |_: Fired<'_, u64>| {
            sender.send(victim.handle().shutdown().len()).expect("heard");
        });
        let engine = engine.expect("an engine");
        engine.handle().schedule(MS, 0).expect("room");
        assert_eq!(returned.recv_timeout(PATIENCE), Ok(1));
    });
}

#[test]
fn the_health_of_an_engine_names_another_engines_handler_as_a_cause() {
    let shards = Builder::new().shards(1).workers(1).stall_after(MS).start_shards().expect("shards");
    let gate = Gate::new();
    let at_gate = gate.clone();
    let (engine, _) = logging(&shards);
    let inline = shards.engine().inline().start(move |_: Fired<'_, ()>| at_gate.pass()).expect("an engine");
    inline.handle().schedule(MS, ()).expect("room");
    gate.await_arrival();
    wait_until("the shard is late", || engine.handle().health().condition == Condition::Late);
    let why = engine.handle().health().why;
    gate.open();
    assert!(why.contains("a handler holds it up"), "{why}");
}
