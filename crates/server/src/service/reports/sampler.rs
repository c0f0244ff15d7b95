//! Takes a sample of the service's statistics every ten seconds, for the history.

use super::Condition;
use crate::clock::millis;
use crate::convert::moment;
use crate::record::{History, INTERVAL, Sample};
use crate::state::{Counters, Stop};
use crate::task;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use tourbillon_durable::Timers;
use tourbillon_durable::state::Phase;

/// Takes a sample of the service's statistics every ten seconds, for the history.
pub(crate) struct Sampler {
    pub(crate) timers: Timers,
    pub(crate) condition: Arc<Condition>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) history: Arc<History>,
    /// The sums from the service's start until the last sample, without `overdue_ms`.
    pub(crate) sampled: Mutex<Sample>,
    pub(crate) stop: Stop,
}

impl Sampler {
    /// Starts a task that takes samples until the service stops or is dropped.
    pub(crate) fn begin(self: &Arc<Self>) {
        // The task holds only a weak reference, so a service that is dropped without being closed still drops its
        // parts.
        let (this, stop) = (Arc::downgrade(self), self.stop.clone());
        let store_time = self.timers.timer_store().now();
        let interval = INTERVAL.as_millis();
        let first = interval - u128::from(store_time.as_millis()) % interval;
        let mut rest = Duration::from_millis(u64::try_from(first).unwrap_or(0));
        task::start(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    () = stop.begun() => return,
                }
                let Some(this) = this.upgrade() else { return };
                // Some systems do not report that their clock was set, so the clock is checked here.
                this.timers.look_at_clock();
                this.sample().await;
                let now = this.timers.timer_store().now().as_millis();
                // The moment of a sample decides its place in the history. So samples are taken at multiples of ten
                // seconds by the store's clock, and delays do not add up.
                rest = INTERVAL - Duration::from_millis(now % 10_000);
            }
        });
    }

    /// Takes the sample for the ten seconds that have just ended.
    pub(crate) async fn sample(&self) {
        let now = self.timers.timer_store().now();
        let pending = self.condition.counts().await.ok().map(|counts| counts.of(Phase::Pending));
        let overdue = self.condition.overdue(now).await.unwrap_or_default();
        if self.note(pending, overdue) {
            let history = Arc::clone(&self.history);
            let written = task::blocking(move || history.write()).await;
            if !matches!(written, Ok(Ok(()))) {
                self.counters.history_errors.add(1);
            }
        }
    }

    /// Adds a sample to the history. Returns whether the history's file must be written now.
    fn note(&self, pending: Option<u64>, overdue: Duration) -> bool {
        let stats = self.timers.stats();
        let mut before = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Sample {
            created: self.counters.created.get(),
            delivered: self.condition.delivered(stats.done),
            failed: self.condition.failed(),
            cancelled: self.counters.cancelled.get(),
            dead: stats.dead,
            overdue_ms: 0,
            pending: pending.unwrap_or(before.pending),
        };
        let sample = Sample {
            created: now.created - before.created,
            // A delivery of a schedule's internal timer is subtracted from all deliveries. It may be subtracted before
            // it is counted, so the number of deliveries may decrease for a moment.
            delivered: now.delivered.saturating_sub(before.delivered),
            failed: now.failed.saturating_sub(before.failed),
            cancelled: now.cancelled - before.cancelled,
            dead: now.dead - before.dead,
            overdue_ms: millis(overdue),
            pending: now.pending,
        };
        *before = now;
        self.history.note(moment(self.timers.timer_store().now()), sample)
    }

    /// Writes the last samples into the history's file when the service stops.
    pub(crate) fn end(&self) {
        if self.history.write().is_err() {
            self.counters.history_errors.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::service::{Named, Naming, Service, id};
    use crate::settings::Settings;
    use core::time::Duration;
    use std::sync::Arc;
    use std::time::Instant;
    use tourbillon::ManualClock;
    use tourbillon_api::{NewSchedule, NewTimer, Pull};
    use tourbillon_durable::schedule::ScheduleKey;
    use tourbillon_durable::store::MemoryStore;

    async fn stop(service: Service) {
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn decisions_of_schedules_are_not_counted_as_deliveries() {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_800_000_000));
        let store = MemoryStore::new(clock.clone());
        let service = Service::open_on(Settings::new(folder.path()), Arc::new(store)).unwrap();
        let pull = Some(Pull { queue: "q".into(), ..Pull::default() });
        let each_second = NewSchedule { every_ms: Some(1_000), pull, ..NewSchedule::default() };
        service.schedules().put(ScheduleKey::new("default", "k"), &each_second, true).await.unwrap();
        let begun = Instant::now();
        while service.counters().decisions.get() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the schedule does not fire");
            clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        service.sampler().sample().await;
        let shown = service.reports().history(None, 1_000_000);
        let delivered: u64 = shown.points.iter().map(|point| point.delivered).sum();
        assert_eq!(delivered, 0, "each occurrence waits in the queue");
        stop(service).await;
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
                made.push(service.creations().place("default", Naming::default(), &timer).await.unwrap().id);
            }
            clock.advance(Duration::from_secs(10));
            service.sampler().sample().await;
        }
        let id = id(&made[0]).unwrap();
        service.changes().cancel("default", Named::Id(id)).await.unwrap();
        clock.advance(Duration::from_secs(10));
        service.sampler().sample().await;
        let shown = service.reports().history(None, 1_000_000);
        let points: Vec<_> = shown
            .points
            .iter()
            .map(|point| (point.created, point.cancelled, point.pending, point.covered_ms))
            .collect();
        assert_eq!(points, [(3, 0, 3, 10_000), (1, 0, 4, 10_000), (0, 1, 3, 10_000)]);
        let begin = 1_800_000_000_000;
        let moments: Vec<_> = shown.points.iter().map(|point| point.at.as_millis() - begin).collect();
        assert_eq!(moments, [0, 10_000, 20_000]);
        stop(service).await;

        clock.advance(Duration::from_secs(50));
        let service = open();
        service.sampler().sample().await;
        let shown = service.reports().history(None, 1_000_000);
        assert_eq!(
            shown.points.iter().map(|point| point.at.as_millis() - begin).collect::<Vec<_>>(),
            [0, 10_000, 20_000, 70_000],
            "a gap while the service was down"
        );
        assert_eq!(shown.points.iter().map(|point| point.created).sum::<u64>(), 4);
        stop(service).await;
    }
}
