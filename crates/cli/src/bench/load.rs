//! Puts load on a service: creates timers over several connections, one after another on each.

use crate::exit::{Code, Failure};
use core::time::Duration;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tourbillon_client::Namespace;
use tourbillon_client::api::{Callback, NewTimer, Pull};

/// The specification of the timers that a measurement creates. All these timers are alike.
pub(super) struct Work {
    pub(super) delay_ms: u64,
    /// The URL that each timer calls. `None` if the timers go to the queue `bench` instead.
    pub(super) url: Option<String>,
    pub(super) body: String,
    pub(super) label: String,
}

/// The result of creating timers: the numbers of created timers and of failed requests, and the duration of each
/// creation.
pub(super) struct Load {
    pub(super) created: u64,
    pub(super) failed: u64,
    pub(super) unknown: u64,
    pub(super) first_error: Option<String>,
    /// The durations of the creations, from the request to its answer, in microseconds.
    pub(super) latency: Histogram<u64>,
    /// The ids of the created timers. Empty if the timers go to a queue instead of a callback.
    pub(super) ids: Vec<Box<str>>,
}

/// Makes an empty histogram for durations of up to an hour, in microseconds.
pub(super) fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3)
        .map_err(|error| Failure::new(Code::NotFulfilled, error.to_string()))
}

impl Load {
    fn new() -> Result<Self, Failure> {
        let (created, failed, unknown) = (0, 0, 0);
        Ok(Self { created, failed, unknown, first_error: None, latency: histogram()?, ids: Vec::new() })
    }

    /// Creates timers over `connections` connections until the time `length` has passed. If the future is dropped, the
    /// connections close.
    pub(super) async fn run(
        timers: &Namespace,
        work: Work,
        connections: u32,
        length: Duration,
        rate: Option<u32>,
    ) -> Result<Self, Failure> {
        let timer = match &work.url {
            Some(url) => NewTimer::callback(Callback { body: Some(work.body), ..Callback::post(url) }),
            None => {
                NewTimer::pull(Pull { queue: "bench".to_owned(), body: Some(work.body), ..Pull::default() })
            }
        };
        let timer = Arc::new(timer.after_ms(work.delay_ms).label(work.label));
        let is_callback = work.url.is_some();
        let end = Instant::now() + length;
        // Each connection makes an equal share of the rate. So the pause of a connection grows with the number of
        // connections.
        let pause = rate.map(|rate| Duration::from_secs(connections.into()) / rate);
        let mut connecting = JoinSet::new();
        for _ in 0..connections {
            connecting.spawn(connection(timers.clone(), Arc::clone(&timer), end, pause, is_callback));
        }
        let mut sum = Self::new()?;
        while let Some(joined) = connecting.join_next().await {
            sum.add(joined.map_err(|error| Failure::new(Code::NotFulfilled, error.to_string()))??);
        }
        Ok(sum)
    }

    fn add(&mut self, other: Self) {
        self.created += other.created;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.first_error = self.first_error.take().or(other.first_error);
        // Adding cannot fail, since both histograms have the same bounds.
        let _same_bounds = self.latency.add(&other.latency);
        self.ids.extend(other.ids);
    }
}

async fn connection(
    timers: Namespace,
    timer: Arc<NewTimer>,
    end: Instant,
    pause: Option<Duration>,
    is_callback: bool,
) -> Result<Load, Failure> {
    let mut load = Load::new()?;
    let mut ticks = pause.map(|pause| {
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        ticks
    });
    if let Some(pause) = pause {
        // The connections begin at random moments, so their requests are spread over time.
        tokio::time::sleep(pause.mul_f64(fastrand::f64())).await;
    }
    while Instant::now() < end {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let begin = Instant::now();
        match timers.place(&timer).await {
            Ok(placed) => {
                let micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
                load.latency.saturating_record(micros.max(1));
                load.created += 1;
                if is_callback {
                    load.ids.push(placed.id.into());
                }
            }
            Err(error) => {
                if error.is_unknown_outcome() {
                    load.unknown += 1;
                } else {
                    load.failed += 1;
                }
                load.first_error.get_or_insert_with(|| error.to_string());
                // Without the pause, a service that refuses requests would be flooded with them.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    Ok(load)
}
