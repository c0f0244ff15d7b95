//! The scheduling of the engine's threads by the system: `Builder::slice`, `nice` and `real_time`, granted and refused.

mod support;

use std::time::Duration;
use tourbillon::{BuildError, Builder, Engine, Fired};

fn build(builder: Builder) -> Result<Engine<()>, BuildError> {
    builder.start(|_: Fired<'_, ()>| {})
}

#[test]
fn values_out_of_bounds_are_refused_by_name() {
    let us = Duration::from_micros;
    let slice = |slice| Builder::new().slice(Some(slice));
    for (builder, expected) in [
        (slice(us(99)), "slice is 99µs, but must be between 100µs and 100ms"),
        (slice(us(100_001)), "slice is 100.001ms, but must be between 100µs and 100ms"),
        (slice(Duration::ZERO), "slice is 0ns, but must be between 100µs and 100ms"),
        (Builder::new().nice(-21), "nice is -21, but must be between -20 and 19"),
        (Builder::new().nice(20), "nice is 20, but must be between -20 and 19"),
        (Builder::new().real_time(0), "real_time is 0, but must be between 1 and 99"),
        (Builder::new().real_time(100), "real_time is 100, but must be between 1 and 99"),
    ] {
        let error = build(builder).unwrap_err();
        assert!(matches!(error, BuildError::OutOfBounds { .. }), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn values_at_their_bounds_are_taken() {
    for builder in [
        Builder::new().slice(Some(Duration::from_micros(100))),
        Builder::new().slice(Some(Duration::from_millis(100))),
        Builder::new().slice(None),
        Builder::new().nice(19),
        Builder::new().nice(-20),
    ] {
        drop(build(builder.shards(1).workers(1)).unwrap());
    }
}

#[cfg(target_os = "linux")]
mod on_linux {
    use super::*;
    use crate::support::{MS, PATIENCE, wait_until};
    use std::env;
    use std::fs;
    use std::hint::spin_loop;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
    use std::sync::{Arc, Mutex, PoisonError, mpsc};
    use std::thread;
    use std::time::Instant;

    const CHILD: &str = "TOURBILLON_SCHEDULING_CHILD";
    const SKIPPED: i32 = 77;
    const NOBODY: libc::uid_t = 65_534;

    /// The first version of Linux's `struct sched_attr` (sched_setattr(2)).
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    struct Attributes {
        size: u32,
        policy: i32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }

    /// Returns the scheduling attributes of a thread. `None` if the thread has ended. Thread zero is the calling
    /// thread.
    fn attributes_of(thread: libc::c_long) -> Option<Attributes> {
        let mut attributes = Attributes::default();
        let size = size_of::<Attributes>();
        // SAFETY: the kernel writes at most `size` bytes to `attributes`, which has `size` bytes.
        let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) };
        (outcome == 0).then_some(attributes)
    }

    fn slice_of(thread: libc::c_long) -> Option<Duration> {
        attributes_of(thread).map(|attributes| Duration::from_nanos(attributes.runtime))
    }

    /// Returns the thread numbers of all engines' threads in this process.
    fn engine_threads() -> Vec<libc::c_long> {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let is_engines = |path: &std::path::Path| {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            name.starts_with("tb-shard") || name.starts_with("tb-worker")
        };
        threads
            .filter(|thread| is_engines(&thread.path()))
            .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Returns whether the system lets each thread choose its time slice. Linux does from version 6.12 on.
    fn has_slices() -> bool {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(12))
    }

    #[test]
    fn the_threads_of_an_engine_have_its_slice_and_threads_of_handlers_do_not() {
        if !has_slices() {
            eprintln!("skipped: this system has no slices");
            return;
        }
        // No other engine in this process has this slice.
        let slice = Duration::from_micros(317);
        let (sender, slices) = mpsc::channel();
        let engine = Builder::new()
            .shards(2)
            .workers(2)
            .slice(Some(slice))
            .start(move |_: Fired<'_, ()>| {
                let of_its_child = thread::spawn(|| slice_of(0)).join().unwrap();
                sender.send((slice_of(0), of_its_child)).unwrap();
            })
            .unwrap();
        let have_it =
            || engine_threads().into_iter().filter(|&thread| slice_of(thread) == Some(slice)).count();
        wait_until("two shards and two workers have the slice", || have_it() == 4);
        engine.handle().schedule(MS, ()).unwrap();
        let (of_the_handler, of_its_child) = slices.recv().unwrap();
        assert_eq!(of_the_handler, Some(slice));
        assert_ne!(of_its_child, Some(slice));
        assert_eq!(of_its_child, slice_of(0), "scheduled as the test's own thread is");
        let stats = engine.handle().stats();
        assert_eq!((stats.slices_refused, stats.priorities_refused), (0, 0));
    }

    fn pin_this_thread(core: usize) {
        // SAFETY: a set of cores is an array of bits, for which zero is valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the core is one that this thread may use, so it is within the set.
        unsafe { libc::CPU_SET(core, &mut set) };
        // SAFETY: the kernel reads `set`, whose size is given.
        let outcome = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
        assert_eq!(outcome, 0, "the test may use this core");
    }

    /// Returns the cores on which a thread may run. Thread zero is the calling thread.
    fn allowed_cores(thread: libc::pid_t) -> Vec<usize> {
        // SAFETY: as above.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes at most as many bytes as `set` has.
        let outcome = unsafe { libc::sched_getaffinity(thread, size_of_val(&set), &raw mut set) };
        assert_eq!(outcome, 0);
        // SAFETY: the number is within the set.
        (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
    }

    /// Starts an engine with a shard that wakes in each millisecond.
    fn ticking(builder: Builder) -> Engine<()> {
        let again = |fired: Fired<'_, ()>| drop(fired.engine().schedule(MS, ()));
        let engine = builder.shards(1).workers(1).start(again).unwrap();
        engine.handle().schedule(MS, ()).unwrap();
        engine
    }

    /// Starts an engine with a shard that wakes ten thousand times a second. Its thread also runs the handlers. Also
    /// returns that thread.
    fn ticking_fast() -> (Engine<()>, libc::pid_t) {
        const TICK: Duration = Duration::from_micros(100);
        let thread = Arc::new(AtomicI32::new(0));
        let found = Arc::clone(&thread);
        let again = move |fired: Fired<'_, ()>| {
            // SAFETY: the call has no precondition.
            found.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            drop(fired.engine().schedule(TICK, ()));
        };
        let engine = Builder::new().shards(1).inline().tick(TICK).start(again).unwrap();
        engine.handle().schedule(TICK, ()).unwrap();
        wait_until("the shard fires", || thread.load(Ordering::Relaxed) != 0);
        (engine, thread.load(Ordering::Relaxed))
    }

    fn departures(engine: &Engine<()>) -> u64 {
        engine.handle().stats().total.departures
    }

    fn wakes(engine: &Engine<()>) -> u64 {
        engine.handle().stats().total.wakes
    }

    /// The tests that need the first core for themselves.
    static FIRST_CORE: Mutex<()> = Mutex::new(());

    /// Runs `f` with the cores that this process may use, while no other such test runs. Does nothing on a system on
    /// which no shard leaves its core.
    fn with_the_cores(f: impl FnOnce(&[usize])) {
        let _turn = FIRST_CORE.lock().unwrap_or_else(PoisonError::into_inner);
        let cores = allowed_cores(0);
        if cores.len() < 2 {
            eprintln!("skipped: one core");
            return;
        }
        f(&cores);
    }

    /// Runs `f` while another thread computes on `core`.
    fn beside_a_computation(core: usize, f: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                pin_this_thread(core);
                let begin = Instant::now();
                // The limit lets a failing test end.
                while !is_over.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
                    spin_loop();
                }
            });
            f();
            is_over.store(true, Ordering::Relaxed);
        });
    }

    /// Waits until the engine's shard has left the first core. Returns false if it stays because no other core is free:
    /// another program uses them.
    fn has_left(cores: &[usize], engine: &Engine<()>) -> bool {
        let idle = || cores[1..].iter().map(|&core| idle_time(core)).max().unwrap_or_default();
        let (begin, idle_before) = (Instant::now(), idle());
        while departures(engine) == 0 {
            thread::sleep(MS);
            if begin.elapsed() > PATIENCE {
                assert!(idle() - idle_before < PATIENCE / 2, "the shard stays, and another core is free");
                eprintln!("skipped: the machine is busy");
                return false;
            }
        }
        true
    }

    #[test]
    fn a_shard_leaves_a_busy_core_unless_the_program_has_chosen_it() {
        with_the_cores(|cores| {
            beside_a_computation(cores[0], || {
                let (placed, chosen) = (ticking(Builder::new()), ticking(Builder::new().cores([cores[0]])));
                if !has_left(cores, &placed) {
                    return;
                }
                let before = wakes(&chosen);
                wait_until("the other shard has woken as often", || wakes(&chosen) > before + 500);
                assert_eq!(departures(&chosen), 0);
            });
        });
    }

    #[test]
    fn a_shard_comes_back_to_its_core_when_no_other_thread_computes_there() {
        with_the_cores(|cores| {
            let (engine, thread) = ticking_fast();
            let mut is_away = false;
            beside_a_computation(cores[0], || is_away = has_left(cores, &engine));
            if is_away {
                wait_until("the shard comes back", || allowed_cores(thread) == cores[..1]);
            }
        });
    }

    /// Returns the time for which `core` has been idle since the system's start.
    fn idle_time(core: usize) -> Duration {
        let text = fs::read_to_string("/proc/stat").unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("cpu{core} "))).unwrap();
        let ticks: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        Duration::from_millis(10 * ticks)
    }

    /// Another program may use the core. So the shard must leave a core in all runs in which the core was idle for most
    /// of the time before the test fails.
    #[test]
    fn a_shard_stays_on_a_free_core() {
        const RUNS: usize = 10;
        with_the_cores(|cores| {
            let mut left = 0;
            for _ in 0..RUNS {
                let (engine, thread) = ticking_fast();
                let (begin, idle, wakes_before) = (Instant::now(), idle_time(cores[0]), wakes(&engine));
                wait_until("the shard has woken often", || {
                    thread::sleep(10 * MS);
                    wakes(&engine) >= wakes_before + 8_000
                });
                if departures(&engine) == 0 {
                    // In a trial the thread is not pinned.
                    wait_until("the shard is pinned", || allowed_cores(thread) == cores[..1]);
                    return;
                }
                let was_free = idle_time(cores[0]) - idle > begin.elapsed().mul_f64(0.5);
                drop(engine);
                left += usize::from(was_free);
            }
            assert_eq!(left, 0, "the shard left a free core in each of {RUNS} runs");
            eprintln!("skipped: the machine is busy");
        });
    }

    #[test]
    fn by_default_the_threads_have_the_shortest_slice_and_with_none_the_systems() {
        let slice_in_a_handler = |builder: Builder| {
            let (sender, slice) = mpsc::channel();
            let handler = move |_: Fired<'_, ()>| sender.send(slice_of(0)).unwrap();
            let engine = builder.shards(1).workers(1).start(handler).unwrap();
            engine.handle().schedule(MS, ()).unwrap();
            slice.recv().unwrap()
        };
        if has_slices() {
            assert_eq!(slice_in_a_handler(Builder::new()), Some(Duration::from_micros(100)));
        }
        assert_eq!(slice_in_a_handler(Builder::new().slice(None)), slice_of(0));
    }

    #[test]
    fn a_nice_value_is_that_of_each_thread() {
        // Any user may make a thread less urgent.
        let engine = build(Builder::new().shards(2).workers(2).nice(19)).unwrap();
        let is_nice = |&thread: &libc::c_long| attributes_of(thread).is_some_and(|it| it.nice == 19);
        wait_until("all have it", || engine_threads().iter().filter(|thread| is_nice(thread)).count() == 4);
        assert_eq!(engine.handle().stats().priorities_refused, 0);
    }

    /// Gives up, for the rest of the process's life, the privilege and the limit that permit a higher priority.
    fn become_nobody() {
        const CAP_SYS_NICE: libc::c_int = 23;
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        for limit in [libc::RLIMIT_NICE, libc::RLIMIT_RTPRIO] {
            // SAFETY: the call lowers a limit, and reads `none`.
            let lowered = unsafe { libc::setrlimit(limit, &raw const none) };
            assert_eq!(lowered, 0, "a limit may be lowered");
        }
        // SAFETY: the call only gives a privilege up.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0) };
        // SAFETY: the call changes the user. An ordinary user may not do that, and need not.
        unsafe { libc::setuid(NOBODY) };
    }

    fn may_be_urgent() -> bool {
        let wanted = libc::sched_param { sched_priority: 1 };
        // SAFETY: the kernel reads `wanted`.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const wanted) == 0 }
    }

    #[test]
    fn a_child() {
        if env::var(CHILD).is_err() {
            return;
        }
        become_nobody();
        if may_be_urgent() {
            std::process::exit(SKIPPED);
        }
        for builder in [Builder::new().real_time(1), Builder::new().nice(-5)] {
            let (sender, fired) = mpsc::channel();
            let handler = move |_: Fired<'_, ()>| sender.send(()).unwrap();
            let engine = builder.shards(2).workers(2).start(handler).unwrap();
            wait_until("each thread was refused", || engine.handle().stats().priorities_refused == 5);
            engine.handle().schedule(MS, ()).unwrap();
            fired.recv().unwrap();
            assert_eq!(engine.handle().stats().priorities_refused, 5);
        }
    }

    #[test]
    fn a_priority_that_is_refused_is_counted_for_each_thread_and_timers_fire() {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "on_linux::a_child", "--nocapture"])
            .env(CHILD, "yes")
            .output()
            .unwrap();
        if output.status.code() == Some(SKIPPED) {
            eprintln!("skipped: everybody may be urgent here");
            return;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn a_real_time_priority_that_is_granted_is_that_of_each_thread() {
        // The check runs on a thread of its own, because a thread keeps its priority.
        if !thread::spawn(may_be_urgent).join().unwrap() {
            eprintln!("skipped: no real-time priority may be had here");
            return;
        }
        let engine = build(Builder::new().shards(2).workers(2).real_time(3)).unwrap();
        let has_it = |&thread: &libc::c_long| {
            attributes_of(thread).is_some_and(|it| (it.policy, it.priority) == (libc::SCHED_RR, 3))
        };
        wait_until("all have it", || engine_threads().iter().filter(|thread| has_it(thread)).count() == 4);
        let stats = engine.handle().stats();
        assert_eq!((stats.slices_refused, stats.priorities_refused), (0, 0));
    }
}
