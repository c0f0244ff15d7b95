//! Helpers that the tests share: waits with a limit, gates, logs and a seeded random generator.
#![allow(dead_code, reason = "each test file takes what it needs")]

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Scope, Thread};
use std::time::{Duration, Instant};
use tourbillon::{Builder, DrivenEngine, Fired, Stats, Timestamp};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// The longest time that a test waits for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` is true. Fails after a long time, with `goal` in the message.
pub(crate) fn wait_until(goal: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {goal}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Runs `f` on a new thread. A deadlock in `f` fails the test instead of hanging it.
pub(crate) fn within_patience<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = f();
        sender.send(result).expect("the test waits");
    });
    match result.recv_timeout(PATIENCE) {
        Ok(result) => {
            thread.join().expect("it has sent its result");
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it sent no result"))
        }
    }
}

/// Runs `work` on a new thread. The thread stays, with the slots in its reserve, until the returned sender is dropped.
pub(crate) fn on_a_thread_that_stays<'s, R: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> R + Send + 's,
) -> (R, mpsc::Sender<()>) {
    let (leave, stay) = mpsc::channel();
    let (sender, result) = mpsc::channel();
    let work = move || {
        sender.send(work()).expect("the test waits");
        stay.recv().expect_err("nothing is sent");
    };
    thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, work).expect("a thread");
    (result.recv().expect("the work ends"), leave)
}

/// Runs a future to its end on the calling thread, without a runtime. The thread is parked while the future waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Locks a mutex, even if a handler has panicked while it held the mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A gate at which handlers wait until a test opens the gate. Clones share the gate.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    open: bool,
    waiting: usize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self) {
        lock(&self.0.0).open = true;
        self.0.1.notify_all();
    }

    /// Waits until the gate is open. Panics if this takes too long, and the engine counts the panic.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut guard = lock(state);
        guard.waiting += 1;
        changed.notify_all();
        let (mut guard, timeout) = changed
            .wait_timeout_while(guard, PATIENCE, |state| !state.open)
            .unwrap_or_else(PoisonError::into_inner);
        guard.waiting -= 1;
        assert!(!timeout.timed_out(), "nobody opened the gate");
    }

    /// Waits until a thread waits at the gate.
    pub(crate) fn await_arrival(&self) {
        self.await_arrivals(1);
    }

    /// Waits until `count` threads wait at the gate.
    pub(crate) fn await_arrivals(&self, count: usize) {
        let (state, changed) = &*self.0;
        let (_guard, timeout) = changed
            .wait_timeout_while(lock(state), PATIENCE, |state| state.waiting < count)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "nobody came to the gate");
    }
}

/// A list to which handlers add entries. Clones share the list.
pub(crate) struct Log<E>(Arc<Mutex<Vec<E>>>);

impl<E> Clone for Log<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> Log<E> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn push(&self, entry: E) {
        lock(&self.0).push(entry);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(crate) fn take(&self) -> Vec<E> {
        std::mem::take(&mut lock(&self.0))
    }
}

impl<E: Ord> Log<E> {
    pub(crate) fn take_sorted(&self) -> Vec<E> {
        let mut entries = self.take();
        entries.sort_unstable();
        entries
    }
}

/// A timer's firing as its handler saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shot {
    pub(crate) at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) payload: u64,
}

impl Shot {
    pub(crate) fn of(timer: &Fired<'_, u64>) -> Self {
        Self { at: timer.engine().now(), deadline: timer.deadline, payload: timer.payload }
    }
}

/// Makes a driven engine, and a log of the engine's firings.
pub(crate) fn recording(builder: Builder) -> (DrivenEngine<u64>, Log<Shot>) {
    let log = Log::new();
    let sink = log.clone();
    let engine = builder.driven(move |timer| sink.push(Shot::of(&timer))).unwrap();
    (engine, log)
}

/// Returns the payloads of `shots` in ascending order.
pub(crate) fn payloads(shots: &[Shot]) -> Vec<u64> {
    let mut payloads: Vec<u64> = shots.iter().map(|shot| shot.payload).collect();
    payloads.sort_unstable();
    payloads
}

/// Asserts that each scheduled timer has ended in a counted way. None may be pending.
pub(crate) fn assert_settled(stats: &Stats) {
    assert_eq!(stats.pending, 0, "{stats:?}");
    assert_eq!(stats.fired + stats.cancelled + stats.returned, stats.scheduled, "{stats:?}");
}

/// A seeded random generator, SplitMix64.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a random index below `len`, which must not be zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a length")
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn nanos_below(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(bound.as_nanos()).expect("a short bound")))
    }
}

/// Runs `f` in its own process. This test program is started again, and runs only the test with the path `name`.
pub(crate) fn alone(name: &str, f: impl FnOnce()) {
    const ALONE: &str = "TOURBILLON_TEST_ALONE";
    if std::env::var(ALONE).as_deref() == Ok(name) {
        return f();
    }
    let program = std::env::current_exe().expect("this program has a path");
    let run = std::process::Command::new(program)
        .args([name, "--exact", "--test-threads=1"])
        .env(ALONE, name)
        .output()
        .expect("it starts");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && output.contains("1 passed"),
        "{output}{}",
        String::from_utf8_lossy(&run.stderr)
    );
}
