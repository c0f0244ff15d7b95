#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[path = "../../wait.rs"]
mod wait;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon::extend::sleep_outside_of_runtimes as start;
use wait::Wait;

/// A future that completes when its time is over, or later by less than a tick of the engine and a wake-up; never
/// earlier.
///
/// A delay that is complete stays so until it is [`reset`](Self::reset). Dropping a delay disarms its timer.
///
/// # Examples
///
/// ```
/// use futures_timer::Delay;
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let mut shards = Builder::new().driven_shards()?;
/// shards.block_on(async {
///     let mut delay = Delay::new(Duration::from_secs(3_600));
///     (&mut delay).await;
///     delay.reset(Duration::from_secs(60));
///     delay.await;
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Delay(Wait);

impl Delay {
    /// Makes a delay that completes `dur` from now. The first poll that is pending arms the timer.
    ///
    /// # Panics
    ///
    /// Panics if the process's engine is not started yet and the system refuses a thread.
    #[inline]
    pub fn new(dur: Duration) -> Delay {
        Delay(Wait::new(dur))
    }

    /// Makes the delay complete `dur` from now, whether it is pending or complete. If the delay has not woken its task
    /// since the last poll, it wakes the task at the new moment without another poll.
    #[inline]
    pub fn reset(&mut self, dur: Duration) {
        self.0.sleep.reset_after(dur);
    }
}

impl Future for Delay {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx)
    }
}

impl fmt::Debug for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delay").finish()
    }
}
