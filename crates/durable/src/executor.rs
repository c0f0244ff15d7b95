//! Runs handlers on threads of the runtime, or on the program's executor.

use crate::panics::survive;
use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, JoinHandle, Thread};

/// The work of a handler, as a future. The future has no result, and does not panic.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the futures of handlers on an asynchronous runtime, for example by `move |work| drop(runtime.spawn(work))`.
///
/// The executor must poll each future to its end, or drop it. If the executor drops a future early, the timer is
/// delivered again. There is one exception: if the timer is delivered at most once, and its delivery has begun, it is
/// not delivered again.
///
/// If the executor has not polled a future for the length of a [`lease`](crate::Builder::lease), the timer is given
/// back to the store, and a later claim delivers it again. The handler of the old future is then never called. Until
/// the executor polls or drops this future, it occupies one of the runtime's places
/// ([`concurrency`](crate::Builder::concurrency)), and counts in [`Stats::overrun`](crate::Stats::overrun).
///
/// ```
/// use tourbillon_durable::store::MemoryStore;
/// use tourbillon_durable::{Durable, Executor, Work};
///
/// /// A thread for each handler.
/// struct Threads;
///
/// impl Executor for Threads {
///     fn spawn(&self, work: Work) {
///         drop(std::thread::spawn(|| pollster::block_on(work)));
///     }
/// }
///
/// let durable = Durable::builder(MemoryStore::default()).executor(Threads).start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Executor: Send + Sync + 'static {
    /// Begins to run the work of a handler. The call must not wait for the work's end.
    fn spawn(&self, work: Work);
}

impl<F: Fn(Work) + Send + Sync + 'static> Executor for F {
    fn spawn(&self, work: Work) {
        self(work);
    }
}

/// The waker of a thread that waits for a future. Waking unparks the thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on the calling thread until it has ended, and returns its output.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// The worker threads of a runtime. Each thread runs one handler's work at a time, until the work ends.
pub(crate) struct Threads {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<Works>,
    changed: Condvar,
}

#[derive(Default)]
struct Works {
    works: VecDeque<Work>,
    /// The number of threads that wait for work. If no thread waits, `spawn` sends no notification, which saves a
    /// system call.
    waiting: usize,
    is_closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Works> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.works.pop_front() {
                return Some(work);
            }
            if state.is_closed {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }
}

impl Threads {
    /// Starts `count` threads, whose names begin with `name`.
    pub(crate) fn start(name: &str, count: usize) -> io::Result<Self> {
        let threads = Self { queue: Arc::default(), threads: Mutex::default() };
        for number in 0..count {
            let queue = Arc::clone(&threads.queue);
            let serve = move || {
                while let Some(work) = queue.take() {
                    // The work of a handler catches the handler's panics. A thread must also survive the panic of a
                    // store that the work asks for its time.
                    survive(|| block_on(work));
                }
            };
            // If a thread does not start, the drop of `threads` ends the threads that have started.
            let thread = thread::Builder::new().name(format!("{name}-{number}")).spawn(serve)?;
            threads.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(threads)
    }
}

impl Threads {
    /// Ends the worker threads, and waits for them. The caller must ensure that no thread runs work that may never end.
    pub(crate) fn join(self) {
        let threads = core::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // The drop closes the queue. Without it, the threads would wait for further work, and the joins would never
        // return.
        drop(self);
        for thread in threads {
            let _panic = thread.join();
        }
    }
}

impl Executor for Threads {
    fn spawn(&self, work: Work) {
        let mut state = self.queue.lock();
        state.works.push_back(work);
        let waits = state.waiting > 0;
        drop(state);
        if waits {
            self.queue.changed.notify_one();
        }
    }
}

/// Drops the work that has not begun. Does not wait for the threads, because a handler may never return. A thread ends
/// when its handler returns.
impl Drop for Threads {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_closed = true;
        let left = core::mem::take(&mut state.works);
        drop(state);
        self.queue.changed.notify_all();
        // The drop of work runs foreign code and takes the lock of the runtime, so the lock of the queue is released
        // first.
        drop(left);
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("waiting", &self.queue.lock().works.len()).finish_non_exhaustive()
    }
}

/// The threads of a runtime for the handlers that do not run on the program's executor.
#[derive(Debug)]
pub(crate) struct Workers {
    handlers: Threads,
    /// Separate threads for the decisions of schedules, which must not wait behind many blocking handlers. `None` if
    /// the decisions run on the threads of the handlers.
    decisions: Option<Threads>,
}

impl Workers {
    /// Starts `count` threads for handlers, and as many threads for the decisions of schedules if `are_apart` is true.
    pub(crate) fn start(count: usize, are_apart: bool) -> io::Result<Self> {
        let handlers = Threads::start("tb-handler", count)?;
        let decisions = are_apart.then(|| Threads::start("tb-decision", count)).transpose()?;
        Ok(Self { handlers, decisions })
    }

    pub(crate) fn for_handlers(&self) -> &Threads {
        &self.handlers
    }

    pub(crate) fn for_decisions(&self) -> &Threads {
        self.decisions.as_ref().unwrap_or(&self.handlers)
    }

    /// Ends the threads, and waits for them. The caller must ensure that no thread runs work that may never end.
    pub(crate) fn join(self) {
        self.handlers.join();
        if let Some(decisions) = self.decisions {
            decisions.join();
        }
    }
}
