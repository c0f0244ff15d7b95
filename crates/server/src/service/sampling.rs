//! The samples of the history: every ten seconds, what has been done since the one before.

use super::Service;
use crate::convert::moment;
use crate::record::{INTERVAL, Sample, Totals};
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use tourbillon_durable::state::Phase;

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Service {
    /// Takes samples until the service stops.
    pub(super) fn begin_sampling(&self) {
        let (inner, stop) = (Arc::downgrade(&self.0), self.stop().clone());
        let store_time = self.timers().timer_store().now();
        let interval = INTERVAL.as_millis();
        let first = interval - u128::from(store_time.as_millis()) % interval;
        let mut rest = Duration::from_millis(u64::try_from(first).unwrap_or(0));
        drop(tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    () = stop.begun() => return,
                }
                let Some(service) = inner.upgrade().map(Self) else { return };
                // For systems on which nobody announces steps.
                service.timers().look_at_clock();
                service.sample().await;
                let now = service.timers().timer_store().now().as_millis();
                rest = INTERVAL - Duration::from_millis(now % 10_000);
            }
        }));
    }

    /// Takes the sample of the ten seconds that have ended.
    pub(super) async fn sample(&self) {
        let now = self.timers().timer_store().now();
        let pending = self.counts().await.ok().map(|counts| counts.of(Phase::Pending));
        let overdue = self.overdue(now).await.unwrap_or_default();
        if self.note(pending, overdue) {
            let service = self.clone();
            let written = tokio::task::spawn_blocking(move || service.0.history.write()).await;
            if !matches!(written, Ok(Ok(()))) {
                self.counters().history_errors.add(1);
            }
        }
    }

    /// Notes a sample. Returns whether the file is to be written.
    fn note(&self, pending: Option<u64>, overdue: Duration) -> bool {
        let stats = self.timers().stats();
        let mut before = self.0.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Totals {
            created: self.counters().created.get(),
            delivered: stats.done,
            failed: stats.retried + stats.dead,
            cancelled: self.counters().cancelled.get(),
            dead: stats.dead,
            pending: pending.unwrap_or(before.pending),
        };
        let sample = Sample {
            created: short(now.created - before.created),
            delivered: short(now.delivered - before.delivered),
            failed: short(now.failed - before.failed),
            cancelled: short(now.cancelled - before.cancelled),
            dead: short(now.dead - before.dead),
            overdue_ms: u64::try_from(overdue.as_millis()).unwrap_or(u64::MAX),
            pending: now.pending,
        };
        *before = now;
        self.0.history.note(moment(self.timers().timer_store().now()), sample)
    }

    /// Writes what is not written at the service's end.
    pub(super) fn end_sampling(&self) {
        if self.0.history.write().is_err() {
            self.counters().history_errors.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::service::{Naming, Service};
    use crate::settings::Settings;
    use core::time::Duration;
    use std::sync::Arc;
    use tourbillon::ManualClock;
    use tourbillon_api::{NewTimer, Pull};
    use tourbillon_durable::store::MemoryStore;

    async fn stop(service: Service) {
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn samples_have_what_was_done_since_the_one_before_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_800_000_000));
        let open = || {
            let store = MemoryStore::new(clock.clone());
            Service::open_on(Settings::new(folder.path()), Arc::new(store)).unwrap()
        };
        let service = open();
        let mut made = Vec::new();
        for count in [3, 1] {
            for _ in 0..count {
                let timer = NewTimer::pull(Pull { queue: "q".into(), ..Pull::default() }).after_ms(3_600_000);
                made.push(service.place("default", Naming::default(), &timer).await.unwrap().id);
            }
            clock.advance(Duration::from_secs(10));
            service.sample().await;
        }
        let id = crate::service::id(&made[0]).unwrap();
        service.cancel("default", crate::service::Named::Id(id)).await.unwrap();
        clock.advance(Duration::from_secs(10));
        service.sample().await;
        let shown = service.history(None, 1_000_000);
        let points: Vec<_> =
            shown.points.iter().map(|of| (of.created, of.cancelled, of.pending, of.covered_ms)).collect();
        assert_eq!(points, [(3, 0, 3, 10_000), (1, 0, 4, 10_000), (0, 1, 3, 10_000)]);
        let begin = 1_800_000_000_000;
        let moments: Vec<_> = shown.points.iter().map(|of| of.at.as_millis() - begin).collect();
        assert_eq!(moments, [0, 10_000, 20_000]);
        stop(service).await;

        clock.advance(Duration::from_secs(50));
        let service = open();
        service.sample().await;
        let shown = service.history(None, 1_000_000);
        assert_eq!(
            shown.points.iter().map(|of| of.at.as_millis() - begin).collect::<Vec<_>>(),
            [0, 10_000, 20_000, 70_000],
            "a gap while the service was down"
        );
        assert_eq!(shown.points.iter().map(|of| of.created).sum::<u64>(), 4);
        stop(service).await;
    }
}
