//! tokio's `Sleep`, one for each connection. It is pinned, registered and reset.
//!
//! A `Sleep` cannot be disarmed. With [`TokioSleep`], a request is only a reset. With [`TokioFar`], a reset to a far
//! deadline replaces the disarm. Such a timer is not pending soon, and the next arm moves it to an earlier deadline.
//!
//! No task yields to the runtime in the timed region, so the figures do not include the driver's turns.

use super::tokio_runtime::TokioRuntime;
use super::{Clock, Connections, Contestant, OnFire, Owned, Reads};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A contestant in which a request resets tokio's `Sleep` to the new deadline.
pub(crate) struct TokioSleep<const OWN_NOW: bool>(TokioRuntime);
/// A contestant of tokio's `Sleep`. To disarm a timer, it resets the timer to a far deadline.
pub(crate) struct TokioFar<const OWN_NOW: bool>(TokioRuntime);

const fn reads(own_now: bool) -> Reads {
    if own_now { Reads::EachIteration(Clock::Instant) } else { Reads::EachArm(Clock::Instant) }
}

/// Declares a contestant of tokio's `Sleep`, with its name and its way to disarm a timer.
macro_rules! contestant {
    ($contestant:ident, $name:literal, $own_now_name:literal, far: $far:literal) => {
        impl<const OWN_NOW: bool> Contestant for $contestant<OWN_NOW> {
            const NAME: &'static str = if OWN_NOW { $own_now_name } else { $name };
            const READS: Reads = reads(OWN_NOW);

            fn start(threads: usize, _on_fire: impl OnFire) -> Self {
                Self(TokioRuntime::start(threads))
            }

            fn run<R: Send + 'static>(&self, jobs: Vec<impl Future<Output = R> + Send + 'static>) -> Vec<R> {
                self.0.run(jobs)
            }

            fn settle(&self, time: Duration) {
                self.0.turn(time);
            }
        }

        impl<const OWN_NOW: bool> Owned for $contestant<OWN_NOW> {
            type Connections = Sleeps<OWN_NOW, $far>;

            const DISARMS: bool = false;

            fn connect(&self, count: usize) -> Self::Connections {
                Sleeps::new(count)
            }

            fn pending(&self, all: &mut [Self::Connections]) -> usize {
                self.0.turn(Duration::from_millis(1));
                all.iter().flat_map(|each| &each.sleeps).filter(|sleep| !sleep.is_elapsed()).count()
            }
        }
    };
}

contestant!(TokioSleep, "tokio, Sleep", "tokio, Sleep, caller's now", far: false);
contestant!(TokioFar, "tokio, Sleep, reset to far to disarm", "tokio, Sleep, reset to far to disarm, caller's now", far: true);

pub(crate) struct Sleeps<const OWN_NOW: bool, const IS_FAR: bool> {
    sleeps: Vec<Pin<Box<Sleep>>>,
    now: Instant,
    far: Instant,
}

impl<const OWN_NOW: bool, const IS_FAR: bool> Sleeps<OWN_NOW, IS_FAR> {
    fn new(count: usize) -> Self {
        let now = Instant::now();
        let far = now + FAR;
        let mut context = Context::from_waker(Waker::noop());
        let sleeps = (0..count).map(|_| {
            let mut sleep = Box::pin(tokio::time::sleep_until(far));
            assert!(sleep.as_mut().poll(&mut context).is_pending());
            sleep
        });
        Self { sleeps: sleeps.collect(), now, far }
    }
}

impl<const OWN_NOW: bool, const IS_FAR: bool> Connections for Sleeps<OWN_NOW, IS_FAR> {
    const BYTES_OF_HANDLE: usize = size_of::<Pin<Box<Sleep>>>();

    #[inline]
    fn begin_iteration(&mut self) {
        if OWN_NOW {
            self.now = Instant::now();
        }
    }

    #[inline]
    fn arm(&mut self, at: u32, delay: Duration) {
        let now = if OWN_NOW { self.now } else { Instant::now() };
        self.sleeps[at as usize].as_mut().reset(now + delay);
    }

    #[inline]
    fn disarm(&mut self, at: u32) {
        if IS_FAR {
            self.sleeps[at as usize].as_mut().reset(self.far);
        }
    }
}
