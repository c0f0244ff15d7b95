//! A loop's shard that a task turns. The tests poll the task by hand, on a clock that they move. Tasks on tokio are
//! tested in `tests/tokio_loop.rs`.

use crate::support::{HOUR, Log, MS, within_patience};
use crate::tasks::{Answer, Task, expect_panic};
use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Clock, Engine, Fired, Handle, LoopShard, ManualClock, Shards, Timestamp};

/// A manual clock that gives no report when it is moved, so that it seems to run by itself.
struct Passing(ManualClock);

impl Clock for Passing {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// A set with one loop on a clock at time zero, and an engine whose payloads are logged.
struct World {
    clock: ManualClock,
    shards: Shards,
    engine: Engine<u64>,
    fired: Log<u64>,
    /// The durations of the sleeps for which the task that turns the shard has asked.
    sleeps: Log<Duration>,
    /// An answer that ends the present sleep of the task that turns the shard.
    alarm: Answer<()>,
}

fn world() -> (World, LoopShard) {
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(Passing(clock.clone())).loops(1).unwrap();
    let fired = Log::new();
    let sink = fired.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    let world = World { clock, shards, engine, fired, sleeps: Log::new(), alarm: Answer::new() };
    (world, loops.remove(0))
}

impl World {
    fn task(&self, shard: LoopShard) -> Task<impl Future<Output = Infallible> + use<>> {
        let (sleeps, alarm) = (self.sleeps.clone(), self.alarm.clone());
        Task::new(shard.turn_as_task(move |time| {
            sleeps.push(time);
            alarm.clone()
        }))
    }

    fn timers(&self) -> &Handle<u64> {
        self.engine.handle()
    }

    fn schedule(&self, millis: u64) {
        self.timers().schedule_at(at(millis), millis).unwrap();
    }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// Polls the task until its wake-ups are used up, so that the task waits.
fn settle<F: Future<Output = Infallible>>(task: &mut Task<F>) {
    for _ in 0..1_000 {
        assert!(task.poll().is_pending());
        if task.take_wakes() == 0 {
            return;
        }
    }
    panic!("it never waits");
}

#[test]
fn it_sleeps_until_the_next_deadline_and_fires() {
    let (world, shard) = world();
    let mut task = world.task(shard);
    settle(&mut task);
    assert!(world.sleeps.take().is_empty(), "nothing is pending");
    world.schedule(50);
    assert_eq!(task.take_wakes(), 1);
    settle(&mut task);
    assert_eq!(world.sleeps.take(), [50 * MS]);
    world.clock.advance(20 * MS);
    world.schedule(30);
    settle(&mut task);
    assert_eq!(world.sleeps.take(), [10 * MS]);
    world.clock.advance(10 * MS);
    world.alarm.give(());
    assert_eq!(task.take_wakes(), 1);
    settle(&mut task);
    assert_eq!((world.fired.take(), world.sleeps.take()), (vec![30], vec![20 * MS]));
    world.clock.advance(20 * MS);
    world.alarm.give(());
    settle(&mut task);
    assert_eq!(world.fired.take(), [50]);
    assert!(world.sleeps.take().is_empty(), "nothing is pending any more");
}

#[test]
fn it_is_woken_for_earlier_timers_of_its_own_thread_and_of_others() {
    let (world, shard) = world();
    let mut task = world.task(shard);
    settle(&mut task);
    let mut sleep_after = |arm: &(dyn Fn() + Sync)| {
        arm();
        let is_woken = task.take_wakes() > 0;
        settle(&mut task);
        (is_woken, world.sleeps.take())
    };
    assert_eq!(sleep_after(&|| world.schedule(50)), (true, vec![50 * MS]));
    assert_eq!(sleep_after(&|| world.schedule(60)), (false, vec![]), "found at the earlier moment");
    let elsewhere = |millis| thread::scope(|scope| scope.spawn(|| world.schedule(millis)).join().unwrap());
    assert_eq!(sleep_after(&|| elsewhere(40)), (true, vec![40 * MS]));
    assert_eq!(sleep_after(&|| elsewhere(45)), (false, vec![]));
    assert_eq!(sleep_after(&|| world.schedule(30)), (true, vec![30 * MS]));
}

/// A timer is armed after the task that turns the shard has read the next deadline, and before the task waits.
#[test]
fn a_timer_that_is_armed_before_the_task_waits_is_not_missed() {
    let (world, shard) = world();
    world.schedule(50);
    let (sleeps, timers) = (world.sleeps.clone(), world.timers().clone());
    let mut task = Task::new(shard.turn_as_task(move |time| {
        sleeps.push(time);
        if time == 50 * MS {
            timers.schedule_at(at(5), 5).unwrap();
        }
        pending::<()>()
    }));
    settle(&mut task);
    assert_eq!(world.sleeps.take(), [50 * MS, 5 * MS]);
}

#[test]
fn the_other_tasks_go_on_while_much_is_due() {
    const DUE: u64 = 5_000;
    let (world, shard) = world();
    for n in 0..DUE {
        world.timers().schedule_at(at(1), n).unwrap();
    }
    world.clock.advance(MS);
    let mut task = world.task(shard);
    let mut most = 0;
    loop {
        assert!(task.poll().is_pending());
        let fired = world.fired.take().len();
        most = most.max(fired);
        if fired == 0 && task.take_wakes() == 0 {
            break;
        }
    }
    assert_eq!(world.timers().stats().fired, DUE);
    assert!(most < 2_000, "{most} in one poll");
    assert!(world.sleeps.take().is_empty());
}

/// A further deadline passes while a handler runs. The task that turns the shard does not sleep.
#[test]
fn it_does_not_sleep_when_a_deadline_has_passed() {
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(Passing(clock.clone())).loops(1).unwrap();
    let (works, fired, sleeps) = (clock.clone(), Log::new(), Log::new());
    let sink = fired.clone();
    let slow = move |timer: Fired<'_, u64>| {
        works.advance(10 * MS);
        sink.push(timer.payload);
    };
    let engine = shards.engine().start(slow).unwrap();
    for millis in [1, 5] {
        engine.handle().schedule_at(at(millis), millis).unwrap();
    }
    let asked = sleeps.clone();
    let mut task = Task::new(loops.remove(0).turn_as_task(move |time| {
        asked.push(time);
        pending::<()>()
    }));
    clock.advance(MS);
    settle(&mut task);
    assert_eq!((fired.take(), sleeps.take()), (vec![1, 5], vec![]));
}

#[test]
fn a_sleep_that_ends_at_once_never_fires_a_timer_early() {
    let (world, shard) = world();
    let asked = world.sleeps.clone();
    // For a while the sleeps end too early, as those of a timer that rounds down.
    let mut task = Task::new(shard.turn_as_task(move |time| {
        asked.push(time);
        Impatient { is_done: asked.len() < 100 }
    }));
    world.schedule(10);
    settle(&mut task);
    assert!(world.fired.take().is_empty());
    assert_eq!(world.sleeps.take(), vec![10 * MS; 100]);
}

/// A sleep that is either ready at once or never.
struct Impatient {
    is_done: bool,
}

impl Future for Impatient {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<()> {
        if self.is_done { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Each turn of the shard finds work. Each poll of the task that turns the shard still ends, so that other tasks go on.
#[test]
fn the_other_tasks_go_on_while_no_sleep_lasts() {
    within_patience(|| {
        let (world, shard) = world();
        world.schedule(10);
        let mut task = Task::new(shard.turn_as_task(|_| ready(())));
        for _ in 0..100 {
            assert!(task.poll().is_pending());
            assert!(task.take_wakes() > 0, "it goes on by itself");
        }
        world.clock.advance(10 * MS);
        assert!(task.poll().is_pending());
        assert_eq!(world.fired.take(), [10]);
    });
}

#[test]
fn a_step_of_the_clock_wakes_the_task() {
    let clock = ManualClock::new();
    let (shards, mut loops) = Builder::new().clock(clock.clone()).loops(1).unwrap();
    let fired = Log::new();
    let sink = fired.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.push(timer.payload)).unwrap();
    engine.handle().schedule_at(at(5), 5).unwrap();
    let no_sleep = |_| -> Ready<()> { panic!("no sleep helps") };
    let mut task = Task::new(loops.remove(0).turn_as_task(no_sleep));
    settle(&mut task);
    for _ in 0..5 {
        assert!(fired.take().is_empty());
        clock.advance(MS);
        assert!(task.take_wakes() > 0);
        settle(&mut task);
    }
    assert_eq!(fired.take(), [5]);
}

#[test]
fn a_sleep_of_centuries_is_divided() {
    let (world, shard) = world();
    world.timers().schedule_at(Timestamp::from_nanos(u64::MAX - 1), 1).unwrap();
    let mut task = world.task(shard);
    settle(&mut task);
    assert_eq!(world.sleeps.take(), [24 * HOUR]);
}

#[test]
fn a_task_that_is_dropped_gives_its_shard_up() {
    let (world, shard) = world();
    let mut task = world.task(shard);
    settle(&mut task);
    world.schedule(5);
    settle(&mut task);
    assert!(world.shards.take_loop(0).is_none(), "the task has it");
    drop(task);
    // This timer wakes nobody.
    world.schedule(3);
    let mut another = world.task(world.shards.take_loop(0).expect("it was given up"));
    world.clock.advance(5 * MS);
    settle(&mut another);
    assert_eq!(world.fired.take_sorted(), [3, 5]);
}

#[test]
fn a_sleep_that_panics_costs_the_task_and_no_timer() {
    let (world, shard) = world();
    world.schedule(5);
    let mut task = Task::new(shard.turn_as_task(|_| -> Ready<()> { panic!("a runtime without a timer") }));
    expect_panic(|| task.poll());
    drop(task);
    let mut another = world.task(world.shards.take_loop(0).expect("it was given up"));
    world.clock.advance(5 * MS);
    settle(&mut another);
    assert_eq!(world.fired.take(), [5]);
}

/// Several tasks turn a shard each. A timer wakes only the task of its own shard.
#[test]
fn several_tasks_turn_a_shard_each() {
    let clock = ManualClock::new();
    let (shards, loops) = Builder::new().clock(Passing(clock.clone())).loops(3).unwrap();
    let fired = Log::new();
    let sink = fired.clone();
    let engine = shards.engine().start(move |timer: Fired<'_, usize>| sink.push(timer.payload)).unwrap();
    let mut tasks: Vec<_> =
        loops.into_iter().map(|shard| Task::new(shard.turn_as_task(|_| pending::<()>()))).collect();
    for task in &mut tasks {
        settle(task);
    }
    for n in 0..3 {
        engine.handle().on(n).schedule_at(at(1), n).unwrap();
        let woken: Vec<bool> = tasks.iter_mut().map(|task| task.take_wakes() > 0).collect();
        assert_eq!(woken, [0, 1, 2].map(|task| task == n), "each timer wakes its own task");
    }
    clock.advance(MS);
    for (n, task) in tasks.iter_mut().enumerate() {
        settle(task);
        assert_eq!(fired.take(), [n]);
    }
}

#[test]
fn an_engine_that_ends_leaves_the_task_waiting() {
    let (world, shard) = world();
    let mut task = world.task(shard);
    world.engine.handle().schedule(HOUR, 1).unwrap();
    settle(&mut task);
    assert_eq!(world.timers().shutdown().len(), 1);
    settle(&mut task);
    let later = world.shards.engine().start(|_: Fired<'_, u64>| {}).unwrap();
    settle(&mut task);
    later.handle().schedule(MS, 2).unwrap();
    world.clock.advance(MS);
    settle(&mut task);
    assert_eq!(later.handle().stats().fired, 1);
}

#[test]
fn the_task_may_be_sent() {
    fn sendable<T: Send>(_: &T) {}
    let (_world, shard) = world();
    sendable(&shard.turn_as_task(|_| ready(())));
}
