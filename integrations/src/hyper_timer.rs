//! hyper's timer, on an engine.

use hyper::rt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tourbillon::Handle;
use tourbillon::future::{Sleep, Wakeup};

/// An engine as the timer of hyper's builders, for `header_read_timeout` and what else hyper limits.
///
/// hyper names moments on the system's clock, the engine has its own: a deadline is taken as the time that is left until
/// then when hyper names it.
///
/// # Examples
///
/// ```
/// use hyper::server::conn::http1;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon_integrations::TourbillonTimer;
///
/// let engine = Builder::new().build_async()?;
/// let mut http = http1::Builder::new();
/// http.timer(TourbillonTimer::new(engine.handle().clone())).header_read_timeout(Duration::from_secs(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TourbillonTimer {
    engine: Handle<Wakeup>,
}

impl TourbillonTimer {
    /// A timer on that engine.
    #[must_use]
    pub fn new(engine: Handle<Wakeup>) -> Self {
        Self { engine }
    }
}

impl rt::Timer for TourbillonTimer {
    fn sleep(&self, delay: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(TimerSleep(self.engine.sleep(delay)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        self.sleep(time_left(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<TimerSleep>() {
            Some(ours) => ours.get_mut().0.reset_after(time_left(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// The engine's clock is read after this one, so that no deadline comes early.
fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

struct TimerSleep(Sleep);

impl rt::Sleep for TimerSleep {}

impl Future for TimerSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.get_mut().0).poll(cx)
    }
}
