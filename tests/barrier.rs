//! A system that refuses `membarrier`, from the start or in the middle of a run, as some sandboxes do.
//!
//! A seccomp filter cannot be removed. So each test starts this program again as a child, which installs a filter.
//! Threads of the child schedule timers and arm owned timers. No timer is early, and none is lost.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod support;

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{MS, Rng, assert_settled, wait_until};
use tourbillon::{Builder, Engine, Fired, Timer, Timestamp};

const CHILD: &str = "TOURBILLON_BARRIER_CHILD";
const SKIPPED: i32 = 77;
const THREADS: u64 = 4;
/// The number of one-shots that each thread schedules.
const SHOTS: u64 = 4_000;
/// The number of owned timers that each thread has.
const OWNED: u64 = 20;
const ARMINGS: u64 = 100;

#[derive(Clone)]
enum Load {
    Once {
        start: Instant,
        delay: Duration,
    },
    /// An owned timer. The number is the latest deadline for which it has fired, in nanoseconds.
    Owned(Arc<AtomicU64>),
}

#[derive(Default)]
struct Account {
    once: AtomicU64,
    early: AtomicU64,
}

impl Account {
    fn note(&self, timer: &Fired<'_, Load>) {
        let is_early = match &timer.payload {
            Load::Once { start, delay } => {
                self.once.fetch_add(1, Ordering::Relaxed);
                start.elapsed() < *delay
            }
            Load::Owned(latest) => {
                latest.fetch_max(timer.deadline.as_nanos(), Ordering::Relaxed);
                Timestamp::from(Instant::now()) < timer.deadline
            }
        };
        self.early.fetch_add(u64::from(is_early), Ordering::Relaxed);
    }
}

/// An owned timer, the latest deadline for which it fired, and the last deadline for which it was armed.
struct Owned {
    timer: Timer<Load>,
    fired: Arc<AtomicU64>,
    armed: Timestamp,
}

impl Owned {
    fn new(engine: &Engine<Load>) -> Self {
        let fired = Arc::new(AtomicU64::new(0));
        let timer = engine.handle().timer(Load::Owned(Arc::clone(&fired))).unwrap();
        Self { timer, fired, armed: Timestamp::ZERO }
    }

    fn arm(&mut self, deadline: Timestamp) {
        self.armed = deadline;
        self.timer.arm_at(deadline).unwrap();
    }

    fn has_fired(&self) -> bool {
        self.fired.load(Ordering::Relaxed) == self.armed.as_nanos()
    }
}

/// Arms timers for about a fifth of a second. Then waits until each timer has fired for its last deadline.
fn play(engine: &Engine<Load>, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut owned: Vec<Owned> = (0..OWNED).map(|_| Owned::new(engine)).collect();
    for round in 0..ARMINGS {
        for timer in &mut owned {
            timer.arm(engine.handle().now() + rng.nanos_below(6 * MS));
        }
        for _ in 0..SHOTS / ARMINGS {
            let (start, delay) = (Instant::now(), rng.nanos_below(20 * MS));
            engine.handle().schedule(delay, Load::Once { start, delay }).unwrap();
        }
        // In every tenth round the shards fall asleep.
        thread::sleep(if round % 10 == 0 { 8 * MS } else { MS });
    }
    wait_until("each owned timer has fired for its last deadline", || owned.iter().all(Owned::has_fired));
}

/// Runs the whole test on one engine, and calls `refuse` in the middle.
fn run(refuse: impl FnOnce()) {
    let account = Arc::new(Account::default());
    let noting = Arc::clone(&account);
    let engine = Builder::new()
        .tick(Duration::from_micros(200))
        .shards(2)
        .workers(2)
        .start(move |timer| noting.note(&timer))
        .unwrap();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let engine = &engine;
            scope.spawn(move || play(engine, seed));
        }
        thread::sleep(50 * MS);
        refuse();
    });
    wait_until("each one-shot has fired", || account.once.load(Ordering::Relaxed) == THREADS * SHOTS);
    assert_eq!(account.early.load(Ordering::Relaxed), 0, "fired early");
    wait_until("nothing is pending", || engine.handle().stats().pending == 0);
    assert_settled(&engine.handle().stats());
    assert_eq!(engine.handle().stats().total.panics, 0);
}

fn is_barrier_refused() -> bool {
    // SAFETY: the command 0 only queries which commands exist.
    unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) == -1 }
}

/// Makes the system refuse `membarrier` to all threads of this process, until the process ends.
fn refuse_barriers() {
    const NUMBER_OF_THE_CALL: u32 = 0;
    let step =
        |code: u32, jf: u8, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf, k };
    let call = u32::try_from(libc::SYS_membarrier).unwrap();
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, NUMBER_OF_THE_CALL),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    let (mode, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the call takes a privilege away, and touches no memory.
    let unprivileged = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the kernel reads `program` and its filter, which outlive the call.
    let filtered = unsafe { libc::syscall(libc::SYS_seccomp, mode, all_threads, &raw const program) };
    if unprivileged != 0 || filtered != 0 {
        std::process::exit(SKIPPED);
    }
    assert!(is_barrier_refused(), "the filter is on");
}

/// Runs this program again as a child process, which runs only the test `a_child`.
fn in_a_child(when: &str) {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_child", "--nocapture"])
        .env(CHILD, when)
        .output()
        .unwrap();
    if output.status.code() == Some(SKIPPED) {
        eprintln!("skipped: no filter can be put on system calls here");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_child() {
    match env::var(CHILD).as_deref() {
        Ok("before") => {
            refuse_barriers();
            run(|| {});
        }
        Ok("meanwhile") => {
            run(refuse_barriers);
            assert!(is_barrier_refused());
        }
        _ => {}
    }
}

#[test]
fn timers_fire_in_time_where_the_barrier_is_refused_from_the_start() {
    in_a_child("before");
}

#[test]
fn timers_fire_in_time_where_the_barrier_is_refused_in_the_middle() {
    in_a_child("meanwhile");
}
