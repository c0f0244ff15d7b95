//! A plain wheel behind a mutex in each shard. It shows how far short critical sections can go.
//!
//! tokio's sharded timer driver (its #6534) has this structure, and so has Linux's timer base for each processor. Every
//! shard has a lock, a cascading wheel with ticks of 1 ms, and a thread. The thread sleeps until the wheel's next step,
//! and runs the handlers. A caller has a home shard, assigned in turn, and schedules there. A cancel goes to the
//! timer's shard. The lock is held for one insert, one cancel, or a bounded number of steps of the wheel. A coarse slot
//! is moved in parts, so a caller does not wait for the whole move.
//!
//! Known limits: deadlines are rounded up to a tick; cancels from other threads still contend for a shard's lock with
//! the shard's thread; handlers of a shard run one after the other.

use super::cascading::{CascadingWheel, Step};
use super::slots::SlotId;
use crate::common::{Caller, Limits, Payload, Service, Timers};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TICK: u64 = 1_000_000;
/// The number of timers that a shard's thread fires or moves while it holds the lock once.
const BATCH: usize = 256;

const UNHARMED: &str = "nobody panics with the lock held";

pub(crate) struct ShardedWheel {
    shared: Arc<Shared>,
    callers: AtomicUsize,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    origin: Instant,
    shards: Box<[Shard]>,
}

/// A shard of the service. The shard has two cache lines for itself, because the prefetcher fetches lines in pairs.
#[repr(align(128))]
struct Shard {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    wheel: CascadingWheel,
    /// The tick at which the shard's thread will wake. 0 while the thread is awake.
    wake_at: u64,
    wakes: u64,
    stopping: bool,
}

impl Shared {
    fn now(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    fn run(&self, shard: usize, on_fire: &impl Fn(Payload)) {
        let shard = &self.shards[shard];
        let mut due = Vec::with_capacity(BATCH);
        let mut state = shard.lock();
        while !state.stopping {
            let now = self.now();
            if !state.turn(now / TICK, &mut due) {
                drop(state);
                due.drain(..).for_each(on_fire);
                state = shard.lock();
                continue;
            }
            state = shard.sleep(state, now);
        }
    }
}

impl State {
    /// Moves some of the timers that are due at tick `to` into `due`. Returns true if the wheel has no more work up to
    /// `to` and gave no timer.
    fn turn(&mut self, to: u64, due: &mut Vec<Payload>) -> bool {
        for _ in 0..BATCH {
            match self.wheel.step(to) {
                Step::Fire(payload) => due.push(payload),
                Step::Move => {}
                Step::Settled => return due.is_empty(),
            }
        }
        false
    }
}

impl Shard {
    fn new() -> Self {
        let state = State { wheel: CascadingWheel::new(), wake_at: 0, wakes: 0, stopping: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNHARMED)
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, now: u64) -> MutexGuard<'a, State> {
        let next = state.wheel.next_step();
        state.wake_at = next.unwrap_or(u64::MAX);
        state = match next {
            Some(tick) => {
                let sleep = Duration::from_nanos(tick.saturating_mul(TICK).saturating_sub(now));
                self.changed.wait_timeout(state, sleep).expect(UNHARMED).0
            }
            None => self.changed.wait(state).expect(UNHARMED),
        };
        state.wake_at = 0;
        state.wakes += 1;
        state
    }

    fn schedule(&self, tick: u64, payload: Payload) -> SlotId {
        self.insert(self.lock(), tick, payload)
    }

    /// Cancels the timer `id` and schedules another timer under a single lock.
    fn reschedule(&self, id: SlotId, tick: u64, payload: Payload) -> SlotId {
        let mut state = self.lock();
        state.wheel.cancel(id);
        self.insert(state, tick, payload)
    }

    #[inline]
    fn insert(&self, mut state: MutexGuard<'_, State>, tick: u64, payload: Payload) -> SlotId {
        let id = state.wheel.schedule(tick, payload);
        let is_earlier = tick < state.wake_at;
        if is_earlier {
            state.wake_at = tick;
        }
        drop(state);
        if is_earlier {
            self.changed.notify_one();
        }
        id
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

impl ShardedWheel {
    /// Starts a service with `shards` shards. The service counts time from `origin`.
    pub(crate) fn start_from(
        origin: Instant,
        shards: usize,
        on_fire: impl Fn(Payload) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared { origin, shards: (0..shards).map(|_| Shard::new()).collect() });
        let on_fire = Arc::new(on_fire);
        let thread = |shard| {
            let (shared, on_fire) = (Arc::clone(&shared), Arc::clone(&on_fire));
            thread::spawn(move || shared.run(shard, &*on_fire))
        };
        let threads = (0..shards).map(thread).collect();
        Self { shared, callers: AtomicUsize::new(0), threads }
    }
}

impl Service for ShardedWheel {
    const NAME: &'static str = "Mutex<cascading wheel>, a shard a core";
    const LIMITS: Limits = Limits { lateness: |_| TICK - 1, ..Limits::NONE };
    type Caller = ShardedCaller;

    fn start(on_fire: impl Fn(Payload) + Send + Sync + 'static) -> Self {
        let shards = thread::available_parallelism().map_or(1, usize::from);
        Self::start_from(Instant::now(), shards, on_fire)
    }

    fn caller(&self) -> ShardedCaller {
        let home = self.callers.fetch_add(1, Ordering::Relaxed) % self.shared.shards.len();
        ShardedCaller { shared: Arc::clone(&self.shared), home }
    }

    fn pending(&self) -> usize {
        self.shared.shards.iter().map(|shard| shard.lock().wheel.len()).sum()
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.shared.shards.iter().map(|shard| shard.lock().wakes).sum())
    }
}

impl Drop for ShardedWheel {
    fn drop(&mut self) {
        for shard in &self.shared.shards {
            shard.lock().stopping = true;
            shard.changed.notify_one();
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("no handler panics");
        }
    }
}

pub(crate) struct ShardedCaller {
    shared: Arc<Shared>,
    home: usize,
}

impl ShardedCaller {
    /// Arms a timer for `at`, in nanoseconds after the service's origin. Returns the index of the shard and the timer's
    /// id.
    #[inline]
    pub(crate) fn schedule_at(&mut self, at: u64, payload: Payload) -> (usize, SlotId) {
        (self.home, self.shared.shards[self.home].schedule(at.div_ceil(TICK), payload))
    }
}

impl Caller for ShardedCaller {
    type Id = (usize, SlotId);

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> (usize, SlotId) {
        let at = self.shared.now() + nanos(delay);
        self.schedule_at(at, payload)
    }

    #[inline]
    fn cancel(&mut self, (shard, id): (usize, SlotId)) -> Option<Payload> {
        self.shared.shards[shard].lock().wheel.cancel(id)
    }

    /// Gives a timer another deadline. The timer stays in its shard.
    #[inline]
    fn reschedule(
        &mut self,
        (shard, id): (usize, SlotId),
        delay: Duration,
        payload: Payload,
    ) -> (usize, SlotId) {
        let at = self.shared.now() + nanos(delay);
        (shard, self.shared.shards[shard].reschedule(id, at.div_ceil(TICK), payload))
    }
}
