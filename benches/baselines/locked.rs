//! A queue behind a mutex. A thread sleeps until the first deadline and runs the handlers.
//!
//! Deadlines are nanoseconds since the start. Each schedule reads [`Instant::now`]. The thread is only notified of a
//! deadline before the end of its sleep. It fires in batches, with the lock released.
//!
//! Known limits: one lock for all callers and the timer thread; handlers run one after the other; a cancel does not
//! postpone a wake-up.

use super::Queue;
use crate::common::{Caller, Payload, Service};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of timers that the timer thread takes while it holds the lock once.
const BATCH: usize = 256;

pub(crate) struct Locked<Q: Queue> {
    shared: Arc<Shared<Q>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<Q> {
    origin: Instant,
    state: Mutex<State<Q>>,
    changed: Condvar,
}

struct State<Q> {
    queue: Q,
    /// The moment at which the timer thread will wake, in nanoseconds after the service's start. 0 while the thread is
    /// awake.
    wake_at: u64,
    stopping: bool,
}

impl<Q: Queue> Shared<Q> {
    fn now(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().expect("nobody panics with the lock held")
    }

    fn schedule_at(&self, at: u64, payload: Payload) -> Q::Id {
        self.insert(self.lock(), at, payload)
    }

    /// Cancels the timer `id` and schedules another timer under a single lock.
    fn reschedule_at(&self, id: Q::Id, at: u64, payload: Payload) -> Q::Id {
        let mut state = self.lock();
        state.queue.remove(id);
        self.insert(state, at, payload)
    }

    #[inline]
    fn insert(&self, mut state: MutexGuard<'_, State<Q>>, at: u64, payload: Payload) -> Q::Id {
        let id = state.queue.insert(at, payload);
        let is_earlier = at < state.wake_at;
        if is_earlier {
            state.wake_at = at;
        }
        drop(state);
        if is_earlier {
            self.changed.notify_one();
        }
        id
    }

    fn run(&self, on_fire: &impl Fn(Payload)) {
        const HELD: &str = "nobody panics with the lock held";
        let mut due = Vec::with_capacity(BATCH);
        let mut state = self.lock();
        while !state.stopping {
            let now = self.now();
            while due.len() < BATCH
                && let Some(payload) = state.queue.pop_due(now)
            {
                due.push(payload);
            }
            if !due.is_empty() {
                drop(state);
                due.drain(..).for_each(on_fire);
                state = self.lock();
                continue;
            }
            let first = state.queue.first();
            state.wake_at = first.unwrap_or(u64::MAX);
            state = match first {
                Some(at) => {
                    let sleep = Duration::from_nanos(at.saturating_sub(now));
                    self.changed.wait_timeout(state, sleep).expect(HELD).0
                }
                None => self.changed.wait(state).expect(HELD),
            };
            state.wake_at = 0;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

impl<Q: Queue> Locked<Q> {
    /// Returns the time from the service's start until now, in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.shared.now()
    }

    /// Returns a function that reads the same time as [`now`](Self::now): nanoseconds after the service's start.
    pub(crate) fn clock(&self) -> impl Fn() -> u64 + Send + Sync + use<Q> {
        let origin = self.shared.origin;
        move || nanos(origin.elapsed())
    }

    pub(crate) fn schedule_at(&self, at: u64, payload: Payload) -> Q::Id {
        self.shared.schedule_at(at, payload)
    }

    pub(crate) fn reschedule_at(&self, id: Q::Id, at: u64, payload: Payload) -> Q::Id {
        self.shared.reschedule_at(id, at, payload)
    }

    /// Starts the service as [`Service::start`] does, but counts time from `origin`.
    pub(crate) fn start_from(origin: Instant, on_fire: impl Fn(Payload) + Send + Sync + 'static) -> Self {
        let state = State { queue: Q::empty(), wake_at: 0, stopping: false };
        let shared = Arc::new(Shared { origin, state: Mutex::new(state), changed: Condvar::new() });
        let on_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || on_thread.run(&on_fire));
        Self { shared, thread: Some(thread) }
    }
}

impl<Q: Queue> Service for Locked<Q> {
    const NAME: &'static str = Q::LOCKED_NAME;
    type Caller = LockedCaller<Q>;

    fn start(on_fire: impl Fn(Payload) + Send + Sync + 'static) -> Self {
        Self::start_from(Instant::now(), on_fire)
    }

    fn caller(&self) -> LockedCaller<Q> {
        LockedCaller(Arc::clone(&self.shared))
    }

    fn pending(&self) -> usize {
        self.shared.lock().queue.live()
    }
}

impl<Q: Queue> Drop for Locked<Q> {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no handler panics");
        }
    }
}

pub(crate) struct LockedCaller<Q>(Arc<Shared<Q>>);

impl<Q: Queue> Caller for LockedCaller<Q> {
    type Id = Q::Id;

    #[inline]
    fn schedule(&mut self, delay: Duration, payload: Payload) -> Q::Id {
        let at = self.0.now() + nanos(delay);
        self.0.schedule_at(at, payload)
    }

    #[inline]
    fn cancel(&mut self, id: Q::Id) -> Option<Payload> {
        self.0.lock().queue.remove(id)
    }

    #[inline]
    fn reschedule(&mut self, id: Q::Id, delay: Duration, payload: Payload) -> Q::Id {
        let at = self.0.now() + nanos(delay);
        self.0.reschedule_at(id, at, payload)
    }
}
