//! The types that may be sent to other threads, and the sizes of small types. Most of this is checked by compiling.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Debug;
use std::mem::size_of;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use tourbillon::extend::Base;
use tourbillon::wheel::{Expired, Wheel};
use tourbillon::{
    ArmError, Armed, BatchError, BuildError, Builder, Cancel, Clock, Disarm, DrivenEngine, DrivenShards,
    Engine, Executor, Fired, Handle, Job, Lateness, LoopLeft, LoopShard, ManualClock, MonotonicClock, On,
    OwnedStats, Refusal, RescheduleError, ScheduleError, ShardStats, Shards, Stats, SystemClock, Tick, Timer,
    TimerId, TimerRef, Timestamp, Unfired,
};

/// A payload that can be sent to another thread, but not shared between threads.
type Payload = Cell<u64>;

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unwinding<T: Debug>() {}
fn value<T: Copy + Ord + std::hash::Hash + Send + Sync + Debug + 'static>() {}
fn error<T: Error + Send + 'static>() {}

#[test]
fn engines_and_handles_are_shared_though_payloads_are_only_sent() {
    send::<Engine<Payload>>();
    sync::<Engine<Payload>>();
    send::<Handle<Payload>>();
    sync::<Handle<Payload>>();
    send::<DrivenEngine<Payload>>();
    send::<Builder>();
    send::<Job>();
}

#[test]
fn handles_may_be_used_after_a_panic_whatever_their_payloads() {
    fn safe<T: UnwindSafe + RefUnwindSafe>() {}
    safe::<Engine<Payload>>();
    safe::<DrivenEngine<Payload>>();
    safe::<Handle<Payload>>();
    safe::<Base<Payload>>();
    safe::<Timer<Payload>>();
    safe::<TimerRef<'_, Payload>>();
    safe::<On<'_, Payload>>();
    safe::<Shards>();
    safe::<DrivenShards>();
    safe::<LoopShard>();
    safe::<ManualClock>();
    let engine = Builder::new().driven(|_: Fired<'_, u64>| {}).unwrap();
    let handle = engine.handle();
    let outcome = catch_unwind(|| {
        handle.schedule(Duration::from_secs(1), 7).unwrap();
        panic!("boom");
    });
    assert!(outcome.is_err());
    assert_eq!(handle.len(), 1);
}

#[test]
#[cfg(feature = "async")]
fn futures_may_be_used_after_a_panic() {
    use tourbillon::future::{Interval, Sleep, Timeout};
    fn safe<T: UnwindSafe + RefUnwindSafe>() {}
    safe::<Sleep>();
    safe::<Interval>();
    safe::<Timeout<()>>();
}

#[test]
fn a_loops_shard_moves_to_its_thread_and_is_not_shared() {
    trait Unshared<Marker> {
        fn is_not_sync() {}
    }
    struct IfSync;
    impl<T: ?Sized> Unshared<()> for T {}
    impl<T: ?Sized + Sync> Unshared<IfSync> for T {}
    send::<LoopShard>();
    // If the type were `Sync`, this call would be ambiguous and would not compile.
    <LoopShard as Unshared<_>>::is_not_sync();
    fn copy<T: Copy + Send + Sync + Debug>() {}
    copy::<On<'static, Payload>>();
    copy::<LoopLeft>();
}

#[test]
fn owned_timers_are_shared_though_payloads_are_only_sent() {
    fn copy<T: Copy>() {}
    send::<Timer<Payload>>();
    sync::<Timer<Payload>>();
    send::<TimerRef<'_, Payload>>();
    sync::<TimerRef<'_, Payload>>();
    copy::<TimerRef<'_, Payload>>();
    unwinding::<Timer<Payload>>();
    unwinding::<TimerRef<'_, Payload>>();
    // To make a timer, the engine neither clones nor reads the payload. So a payload that is only `Send` suffices.
    let engine = Builder::new().driven(|_: Fired<'_, Payload>| {}).unwrap();
    let timer = engine.handle().timer(Cell::new(7)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!timer.is_armed()));
        scope.spawn(|| assert_eq!(timer.disarm(), Disarm::Idle));
    });
}

#[test]
fn what_comes_back_is_as_sendable_as_its_payload() {
    send::<Cancel<Payload>>();
    sync::<Cancel<u64>>();
    send::<Fired<'_, Payload>>();
    send::<Unfired<Payload>>();
    send::<Expired<Payload>>();
    send::<Wheel<Payload>>();
    sync::<Wheel<u64>>();
    error::<ScheduleError<Payload>>();
    error::<BatchError<Payload>>();
    error::<RescheduleError<Payload>>();
    error::<BuildError>();
    error::<ArmError>();
    error::<Refusal>();
    send::<(Armed, Disarm, OwnedStats)>();
    sync::<(Armed, Disarm, ArmError, OwnedStats)>();
    // Outcomes can carry any payload, and so can the wheel.
    unwinding::<Cancel<Rc<()>>>();
    unwinding::<Wheel<Rc<()>>>();
}

#[test]
fn a_refusal_goes_by_a_question_mark_with_and_without_its_payload() {
    fn whole(handle: &Handle<Payload>) -> Result<(), Box<dyn Error>> {
        handle.schedule(Duration::ZERO, Cell::new(1)).map_err(Refusal::from)?;
        Ok(())
    }
    fn single(handle: &Handle<Payload>) -> Result<TimerId, Refusal> {
        Ok(handle.schedule(Duration::ZERO, Cell::new(1))?)
    }
    fn batch(handle: &Handle<Payload>) -> Result<Vec<TimerId>, Refusal> {
        Ok(handle.schedule_batch([(Duration::ZERO, Cell::new(1))])?)
    }
    let engine = Builder::new().driven(|_: Fired<'_, Payload>| {}).unwrap();
    let handle = engine.handle();
    drop(handle.shutdown());
    assert_eq!(whole(handle).unwrap_err().downcast_ref(), Some(&Refusal::ShutDown));
    assert_eq!(single(handle), Err(Refusal::ShutDown));
    assert_eq!(batch(handle), Err(Refusal::ShutDown));
}

#[test]
fn clocks_and_statistics_go_anywhere() {
    fn clock<T: Clock + Clone + Send + Sync + Debug + 'static>() {}
    clock::<MonotonicClock>();
    clock::<SystemClock>();
    clock::<ManualClock>();
    #[cfg(target_os = "linux")]
    clock::<tourbillon::BootClock>();
    send::<(Stats, ShardStats, Lateness)>();
    sync::<(Stats, ShardStats, Lateness)>();
    send::<Box<dyn Executor>>();
    sync::<Box<dyn Clock>>();
    value::<TimerId>();
    value::<Timestamp>();
    value::<Tick>();
}

#[test]
fn small_things_are_small() {
    assert_eq!(size_of::<TimerId>(), 8);
    assert_eq!(size_of::<Tick>(), 8);
    assert_eq!(size_of::<Timestamp>(), 8);
    assert_eq!(size_of::<Option<TimerId>>(), 16);
    assert_eq!(size_of::<Cancel<()>>(), 1);
    assert_eq!(size_of::<Cancel<u64>>(), 16);
    assert_eq!(size_of::<Cancel<Box<u64>>>(), 16);
    assert_eq!(size_of::<Result<TimerId, ScheduleError<()>>>(), 16);
    assert_eq!(size_of::<Result<TimerId, ScheduleError<u64>>>(), 16);
    assert_eq!(size_of::<Handle<u64>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Handle<u64>>>(), size_of::<usize>());
    assert_eq!(size_of::<Engine<u64>>(), size_of::<usize>());
    // A timer is a handle and a number, for any payload.
    assert_eq!(size_of::<Timer<u64>>(), 16);
    assert_eq!(size_of::<Timer<[u64; 64]>>(), 16);
    assert_eq!(size_of::<Option<Timer<u64>>>(), 16);
    assert_eq!(size_of::<TimerRef<'_, u64>>(), 16);
    assert_eq!(size_of::<Result<Armed, ArmError>>(), size_of::<Disarm>() + 1);
    assert_eq!((size_of::<Armed>(), size_of::<Disarm>()), (1, 1));
}

#[test]
fn ids_survive_a_trip_through_numbers() {
    for bits in [0, 1, 1 << 32, u64::MAX] {
        assert_eq!(TimerId::from_bits(bits).to_bits(), bits);
    }
}
