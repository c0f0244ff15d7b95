//! Tasks without an executor. A test polls them by hand, and counts their wake-ups.

use crate::support::lock;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;
use tourbillon::future::{ShutDown, Sleep, Wakeup};
use tourbillon::{Builder, DrivenEngine, Timestamp};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The largest number of polls that a future of these tests may need.
const POLLS: u32 = 100_000;
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Returns whether `poll` panics with the message that says that the engine was shut down.
pub(crate) fn says_shut_down<R>(poll: impl FnOnce() -> R) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(poll)) else { return false };
    panic.downcast_ref::<String>().is_some_and(|said| said == "the engine of this sleep was shut down")
}

/// Returns whether `sleep` reports that its engine was shut down.
pub(crate) fn is_cut_off(sleep: &mut Sleep) -> bool {
    let outcome: Poll<Result<(), ShutDown>> = Task::new(sleep.try_wait()).poll();
    matches!(outcome, Poll::Ready(Err(_)))
}

pub(crate) fn driven() -> DrivenEngine<Wakeup> {
    Builder::new().driven_futures().unwrap()
}

pub(crate) fn driven_with(builder: Builder) -> DrivenEngine<Wakeup> {
    builder.driven_futures().unwrap()
}

/// Returns the start of the first engine tick at which `deadline` has come.
pub(crate) fn due_tick(deadline: Timestamp, tick: Duration) -> Timestamp {
    let tick = u64::try_from(tick.as_nanos()).unwrap();
    Timestamp::from_nanos(deadline.as_nanos().div_ceil(tick) * tick)
}

/// Counts the wake-ups of a task after the last call of `take`.
#[derive(Debug, Default)]
pub(crate) struct Bell(AtomicUsize);

impl Bell {
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Makes a bell that counts wake-ups, and the waker that rings the bell.
pub(crate) fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (Arc::clone(&bell), bell.into())
}

/// Makes a waker that calls `f`.
pub(crate) fn on_wake(f: impl Fn() + Send + Sync + 'static) -> Waker {
    struct OnWake<F>(F);
    impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Arc::new(OnWake(f)).into()
}

/// A future, and the test's task that polls the future.
#[derive(Debug)]
pub(crate) struct Task<F> {
    pub(crate) future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<F> Task<F> {
    pub(crate) fn new(future: F) -> Self {
        let (bell, waker) = bell();
        Self { future: Box::pin(future), bell, waker }
    }

    /// Returns the number of the task's wake-ups after the last call of this function.
    pub(crate) fn take_wakes(&self) -> usize {
        self.bell.take()
    }

    /// Moves the engine's clock from expiry to expiry until the task is woken.
    pub(crate) fn run_until_woken(&self, engine: &mut DrivenEngine<Wakeup>) {
        while self.take_wakes() == 0 {
            let next = engine.next_expiry().expect("a task that nobody will wake");
            assert!(
                engine.handle().now() < next || next < Timestamp::MAX,
                "a task that nobody wakes before the end of time"
            );
            engine.advance_to(next);
        }
    }

    /// Drops the task's future, and returns the bell that counts the task's wake-ups.
    pub(crate) fn drop_future(self) -> Arc<Bell> {
        self.bell
    }

    /// Forgets the task's future without dropping it. Returns the bell that counts the task's wake-ups.
    #[expect(clippy::mem_forget, reason = "what a user may do")]
    pub(crate) fn forget_future(self) -> Arc<Bell>
    where
        F: Unpin,
    {
        std::mem::forget(*Pin::into_inner(self.future));
        self.bell
    }

    pub(crate) fn into_future(self) -> F
    where
        F: Unpin,
    {
        *Pin::into_inner(self.future)
    }

    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut F, &mut Context<'_>) -> R) -> R
    where
        F: Unpin,
    {
        f(&mut self.future, &mut Context::from_waker(&self.waker))
    }
}

impl<F: Future> Task<F> {
    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker))
    }

    /// Polls the future whenever the task is woken, until the future is ready. Between the polls, moves the engine's
    /// clock to its next expiry.
    pub(crate) fn run(&mut self, engine: &mut DrivenEngine<Wakeup>) -> F::Output {
        for _ in 0..POLLS {
            match self.poll() {
                Poll::Ready(output) => return output,
                Poll::Pending => self.run_until_woken(engine),
            }
        }
        panic!("it is woken for ever and never ready");
    }
}

/// Polls `sleep` once with `waker`.
pub(crate) fn poll_with(sleep: &mut Sleep, waker: &Waker) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

/// A sleep that its own wakers can also reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Option<Sleep>>>);

impl Shared {
    pub(crate) fn put(&self, sleep: Sleep) {
        assert!(lock(&self.0).replace(sleep).is_none());
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<()> {
        poll_with(lock(&self.0).as_mut().expect("a sleep"), waker)
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Sleep) -> R) -> R {
        f(lock(&self.0).as_mut().expect("a sleep"))
    }
}

/// A value that another thread or task sends once. A future waits for the value, as for a oneshot channel.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Mutex<(Option<T>, Option<Waker>)>>);

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Answer<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new((None, None))))
    }

    pub(crate) fn give(&self, value: T) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.0 = Some(value);
            shared.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut shared = lock(&self.0);
        if let Some(value) = shared.0.take() {
            return Poll::Ready(value);
        }
        shared.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Runs `f`, which must panic.
pub(crate) fn expect_panic<R>(f: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "it did not panic");
}

/// A waker that counts its clones, wakes and drops. It panics in each call for which a switch is set.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) clones: AtomicUsize,
    pub(crate) drops: AtomicUsize,
    pub(crate) wakes: AtomicUsize,
    pub(crate) panics_in_clone: AtomicBool,
    pub(crate) panics_in_drop: AtomicBool,
    pub(crate) panics_in_wake: AtomicBool,
}

impl Probe {
    pub(crate) const fn new() -> Self {
        Self {
            clones: AtomicUsize::new(0),
            drops: AtomicUsize::new(0),
            wakes: AtomicUsize::new(0),
            panics_in_clone: AtomicBool::new(false),
            panics_in_drop: AtomicBool::new(false),
            panics_in_wake: AtomicBool::new(false),
        }
    }

    pub(crate) fn waker(&'static self) -> Waker {
        // SAFETY: the functions of the table keep the contract of wakers. Their data is a `&'static Probe`, which may
        // be copied, shared and forgotten.
        unsafe { Waker::from_raw(self.raw()) }
    }

    fn raw(&'static self) -> RawWaker {
        static TABLE: RawWakerVTable =
            RawWakerVTable::new(Probe::clone, Probe::wake, Probe::wake_by_ref, Probe::drop);
        RawWaker::new((&raw const *self).cast(), &TABLE)
    }

    /// # Safety
    ///
    /// `data` must come from `raw`.
    unsafe fn of(data: *const ()) -> &'static Self {
        // SAFETY: `raw` made `data` from a `&'static Probe`.
        unsafe { &*data.cast::<Self>() }
    }

    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the function is only called through the table, with data from `raw`.
        let probe = unsafe { Self::of(data) };
        assert!(!probe.panics_in_clone.load(Ordering::SeqCst), "a clone panics");
        probe.clones.fetch_add(1, Ordering::SeqCst);
        probe.raw()
    }

    unsafe fn wake(data: *const ()) {
        // SAFETY: the function is only called through the table, with data from `raw`.
        unsafe { Self::wake_by_ref(data) };
        // SAFETY: as for the call above.
        unsafe { Self::drop(data) };
    }

    unsafe fn wake_by_ref(data: *const ()) {
        // SAFETY: the function is only called through the table, with data from `raw`.
        let probe = unsafe { Self::of(data) };
        probe.wakes.fetch_add(1, Ordering::SeqCst);
        assert!(!probe.panics_in_wake.load(Ordering::SeqCst), "a wake panics");
    }

    unsafe fn drop(data: *const ()) {
        // SAFETY: the function is only called through the table, with data from `raw`.
        let probe = unsafe { Self::of(data) };
        probe.drops.fetch_add(1, Ordering::SeqCst);
        assert!(!probe.panics_in_drop.load(Ordering::SeqCst), "a drop panics");
    }

    pub(crate) fn clones(&self) -> usize {
        self.clones.load(Ordering::SeqCst)
    }

    pub(crate) fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}
