//! No timer is early, measured by the caller's own `Instant`. The test uses many processes, since a clock that depends
//! on the process may be right in one process and wrong in another.
//!
//! The test starts this program again as its children. Each child arms one-shots, owned timers, sleeps and tasks of 1
//! ms to 3 s. Before each arming it reads an `Instant`, and later it checks that `elapsed() >= delay`.
//!
//! `TOURBILLON_NEVER_EARLY=3600 cargo test --release -p tourbillon-tasks --test never_early -- --nocapture` runs for an
//! hour in one process, with delays of up to an hour. It also shows that lateness does not drift.
#![expect(clippy::print_stdout, reason = "what a child saw is read from its output")]

use std::env;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tourbillon::{Builder, Engine, future};
use tourbillon_tasks::TaskEngine;

const PROCESSES: usize = 40;
const AT_A_TIME: usize = 8;
/// The number of timers of each sort that each child process starts: owned timers, one-shots, tasks and sleeps.
const TIMERS: u64 = 20_000;
const CHILD: &str = "TOURBILLON_NEVER_EARLY_CHILD";
const LONG: &str = "TOURBILLON_NEVER_EARLY";

#[derive(Clone, Copy)]
struct Armed {
    start: Instant,
    delay: Duration,
}

impl Armed {
    fn now(delay: Duration) -> Self {
        Self { start: Instant::now(), delay }
    }
}

/// The counts and the latenesses that a child process has measured.
#[derive(Default)]
struct Account {
    fired: AtomicU64,
    early: AtomicU64,
    worst_early: AtomicU64,
    /// The delay and the lateness of each timer.
    late: Mutex<Vec<(Duration, Duration)>>,
}

impl Account {
    fn note(&self, armed: Armed) {
        let elapsed = armed.start.elapsed();
        if let Some(early) = armed.delay.checked_sub(elapsed).filter(|early| !early.is_zero()) {
            self.early.fetch_add(1, Ordering::Relaxed);
            self.worst_early.fetch_max(u64::try_from(early.as_nanos()).unwrap(), Ordering::Relaxed);
        }
        self.late.lock().unwrap().push((armed.delay, elapsed.saturating_sub(armed.delay)));
        self.fired.fetch_add(1, Ordering::Release);
    }

    fn await_all(&self, expected: u64) {
        while self.fired.load(Ordering::Acquire) < expected {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns random delays of 1 ms to `longest` (by the generator xorshift64*).
fn delays(seed: u64, longest: Duration) -> impl Iterator<Item = Duration> {
    let mut state = seed | 1;
    let range = u64::try_from(longest.as_nanos()).unwrap() - 1_000_000;
    std::iter::repeat_with(move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        Duration::from_nanos(1_000_000 + state.wrapping_mul(0x2545_f491_4f6c_dd1d) % range)
    })
}

/// A waker that sends a message when the waker's sleep must be polled.
struct Poke {
    sleep: usize,
    pokes: mpsc::Sender<usize>,
}

impl Wake for Poke {
    fn wake(self: Arc<Self>) {
        let _ = self.pokes.send(self.sleep);
    }
}

fn sleeps(account: &Account, delays: impl Iterator<Item = Duration>) {
    let (pokes, poked) = mpsc::channel();
    let mut sleeps: Vec<(Armed, future::Sleep, Waker)> = delays
        .enumerate()
        .map(|(sleep, delay)| {
            let armed = Armed::now(delay);
            (armed, future::sleep(delay), Waker::from(Arc::new(Poke { sleep, pokes: pokes.clone() })))
        })
        .collect();
    let poll = |(armed, sleep, waker): &mut (Armed, future::Sleep, Waker)| {
        let done = Pin::new(sleep).poll(&mut Context::from_waker(waker)) == Poll::Ready(());
        if done {
            account.note(*armed);
        }
        usize::from(done)
    };
    let mut done: usize = sleeps.iter_mut().map(poll).sum();
    while done < sleeps.len() {
        done += poll(&mut sleeps[poked.recv().unwrap()]);
    }
}

fn child(seed: u64, longest: Duration, timers: u64) -> Arc<Account> {
    let account = Arc::new(Account::default());
    let count = usize::try_from(timers).unwrap();
    let noting = Arc::clone(&account);
    let engine: Engine<Armed> = Builder::new().start(move |timer| noting.note(timer.payload)).unwrap();
    let tasks = TaskEngine::new().unwrap();
    let owned: Vec<_> = delays(seed, longest)
        .take(count)
        .map(|delay| {
            let armed = Armed::now(delay);
            let timer = engine.handle().timer(armed).unwrap();
            timer.arm(delay).unwrap();
            timer
        })
        .collect();
    for delay in delays(seed + 1, longest).take(count) {
        engine.handle().schedule(delay, Armed::now(delay)).unwrap();
    }
    for delay in delays(seed + 2, longest).take(count) {
        let (armed, noting) = (Armed::now(delay), Arc::clone(&account));
        tasks.handle().after(delay, move || noting.note(armed)).unwrap();
    }
    sleeps(&account, delays(seed + 3, longest).take(count));
    account.await_all(4 * timers);
    drop(owned);
    let clock = engine.handle().stats().clock;
    assert_eq!(clock.behind, Duration::ZERO, "{clock:?}");
    account
}

/// Starts this test program again as a child, which runs only `a_child`.
fn spawn_child(seed: usize) -> std::process::Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_child", "--nocapture"])
        .env(CHILD, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_child() {
    let Ok(seed) = env::var(CHILD) else { return };
    let account = child(seed.parse().unwrap(), Duration::from_secs(3), TIMERS);
    let (fired, early) = (account.fired.load(Ordering::Relaxed), account.early.load(Ordering::Relaxed));
    println!("fired {fired} early {early} worst {}", account.worst_early.load(Ordering::Relaxed));
}

#[test]
fn no_timer_of_forty_processes_fires_early_by_the_callers_instant() {
    if env::var(CHILD).is_ok() || env::var(LONG).is_ok() {
        return;
    }
    let expected = format!("fired {} early 0 worst 0", 4 * TIMERS);
    let seeds: Vec<usize> = (1..=PROCESSES).collect();
    for some in seeds.chunks(AT_A_TIME) {
        let children: Vec<_> = some.iter().map(|&seed| spawn_child(seed)).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains(&expected), "{text}");
        }
    }
}

/// Divides the delays up to `longest` into ten ranges. Returns the median lateness of the timers of each range.
fn medians(account: &Account, longest: Duration) -> Vec<Duration> {
    let mut tenths = vec![Vec::new(); 10];
    for &(delay, late) in &*account.late.lock().unwrap() {
        let tenth = (10 * delay.as_millis() / longest.as_millis()).min(9);
        tenths[usize::try_from(tenth).unwrap()].push(late);
    }
    let median = |tenth: &mut Vec<Duration>| {
        tenth.sort_unstable();
        tenth[tenth.len() / 2]
    };
    tenths.iter_mut().map(median).collect()
}

#[test]
fn lateness_does_not_drift_over_as_many_seconds_as_are_asked_for() {
    let Ok(seconds) = env::var(LONG) else { return };
    let longest = Duration::from_secs(seconds.parse().unwrap());
    let account = child(1, longest, TIMERS);
    let medians = medians(&account, longest);
    println!(
        "{} timers of up to {longest:?}: {} early; median lateness by tenths of that: {medians:.1?}",
        account.fired.load(Ordering::Relaxed),
        account.early.load(Ordering::Relaxed)
    );
    assert_eq!(account.early.load(Ordering::Relaxed), 0);
    assert!(medians[9] < medians[0] + Duration::from_millis(1), "lateness drifts: {medians:?}");
}
