//! Implements hyper's timer on an engine.

use crate::sleep::TimerSleep;
use crate::source::Source;
use hyper::rt;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tourbillon::future::Wakeup;
use tourbillon::{Handle, Timestamp};

/// A timer for the builders of hyper and hyper-util that runs on an engine. The timer serves `header_read_timeout`,
/// `keep_alive_interval` and `pool_timer`.
///
/// A sleep makes a timer of the engine when it is first polled, if its deadline is in the future.
/// [`reset`](rt::Timer::reset) arms that timer again, which costs a store and a load if the deadline becomes later. If
/// `reset` gets a sleep from another implementation of hyper's trait, it replaces the sleep.
///
/// [`now`](rt::Timer::now) returns the time of the engine's clock as an [`Instant`], so a server on an engine with a
/// manual clock follows that clock.
///
/// # Shutdown
///
/// hyper's sleeps have no way to fail. If the engine of a sleep is shut down, the sleep neither completes early nor
/// panics, and it still completes at its deadline. The sleep continues on an engine of one thread, which this crate
/// starts at that moment and keeps. Deadlines remain moments of the clock that [`now`](rt::Timer::now) shows. So
/// hyper's timeouts remain in force for connections that outlive the engine, and end them with hyper's own errors. If
/// the system refuses that thread, the sleep keeps its task polling until the deadline has come. A sleep in the child
/// of a fork does the same.
///
/// # Examples
///
/// ```
/// use hyper::server::conn::http1;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_hyper::TourbillonTimer;
///
/// let engine = Builder::new().start_futures()?;
/// let mut http = http1::Builder::new();
/// http.timer(TourbillonTimer::new(engine.handle().clone())).header_read_timeout(Duration::from_secs(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TourbillonTimer {
    source: Source,
}

impl TourbillonTimer {
    /// Makes a timer that runs on `engine`.
    #[must_use]
    pub fn new(engine: Handle<Wakeup>) -> Self {
        Self { source: Source::of(engine) }
    }

    /// Makes a timer whose sleeps run on the current engine of the thread that makes them: see [`tourbillon::future`].
    /// This is the engine of the shards that the thread has entered, if any. With the feature `tokio` of `tourbillon`,
    /// it is otherwise the engine of the thread's tokio runtime. In all other cases it is the process's own engine,
    /// which starts with the first sleep. [`Default`] makes the same timer.
    ///
    /// The first sleep panics if the system refuses the process's own engine its threads: see
    /// [`tourbillon::future::global`].
    #[must_use]
    pub fn current() -> Self {
        Self::default()
    }

    fn sleep_to(&self, deadline: Timestamp) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(TimerSleep::new(self.source.clone(), deadline))
    }
}

impl rt::Timer for TourbillonTimer {
    fn sleep(&self, delay: Duration) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep_to(self.source.now() + delay)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep_to(Timestamp::from(deadline))
    }

    fn now(&self) -> Instant {
        Instant::from(self.source.now())
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<TimerSleep>() {
            Some(ours) => ours.get_mut().reset(Timestamp::from(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
