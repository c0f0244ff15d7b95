//! Closures that receive the id and the moment of the timer that fired, as a binding for another language needs them.

use super::job::{Call, Moment, OnDue, Shot};
use super::tasks::{Tasks, give_back};
use super::timer::TaskTimer;
use crate::sync::StdArc;
use tourbillon::{Refusal, ScheduleError, TimerId, Timestamp};

impl Tasks {
    /// As [`at`](Self::at), for a closure that receives the moment. If the closure comes back as a [`Call`], and the
    /// [`Call`] is run, the closure receives `None`.
    ///
    /// # Errors
    ///
    /// See [`at`](Self::at).
    pub fn at_told(
        &self,
        deadline: Timestamp,
        f: impl FnOnce(Option<&Moment>) + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.shoot(deadline, Box::new(Told(f))).map_err(|error| error.map(give_back))
    }

    /// As [`at_told`](Self::at_told), but never waits: for callers that hold a lock.
    ///
    /// # Errors
    ///
    /// See [`Handle::try_schedule_at`](tourbillon::Handle::try_schedule_at).
    pub fn try_at_told(
        &self,
        deadline: Timestamp,
        f: impl FnOnce(Option<&Moment>) + Send + 'static,
    ) -> Result<TimerId, ScheduleError<Call>> {
        self.try_shoot(deadline, Box::new(Told(f))).map_err(|error| error.map(give_back))
    }

    /// As [`timer`](Self::timer), for a closure that receives the moment.
    ///
    /// # Errors
    ///
    /// Fails when the engine is full or shut down.
    pub fn timer_told(&self, f: impl Fn(&Moment) + Send + Sync + 'static) -> Result<TaskTimer, Refusal> {
        TaskTimer::of(self, StdArc::new(Told(f)))
    }
}

struct Told<F>(F);

impl<F: FnOnce(Option<&Moment>) + Send + 'static> Shot for Told<F> {
    fn fire(self: Box<Self>, moment: &Moment) {
        (self.0)(Some(moment));
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        Some(Box::new(move || (self.0)(None)))
    }
}

impl<F: Fn(&Moment) + Send + Sync> OnDue for Told<F> {
    fn on_due(&self, moment: &Moment) {
        (self.0)(moment);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use crate::DrivenTasks;
    use crate::sync::{Mutex, StdArc};
    use core::time::Duration;
    use tourbillon::Timestamp;

    #[test]
    fn a_closure_is_told_its_moment_and_none_when_it_came_back() {
        let mut tasks = DrivenTasks::new().unwrap();
        let log = StdArc::new(Mutex::new(Vec::new()));
        let [once, back, again] = [(); 3].map(|()| StdArc::clone(&log));
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let id = tasks
            .handle()
            .at_told(at(5), move |m| once.lock().unwrap().push(m.map(|m| (m.id, m.deadline))))
            .unwrap();
        let timer =
            tasks.handle().timer_told(move |m| again.lock().unwrap().push(Some((m.id, m.deadline)))).unwrap();
        timer.arm_at(at(7)).unwrap();
        tasks.advance(Duration::from_millis(10));
        assert_eq!(log.lock().unwrap()[0], Some((id, at(5))));
        assert_eq!(log.lock().unwrap()[1].map(|(_, deadline)| deadline), Some(at(7)));
        tasks
            .handle()
            .at_told(at(50), move |m| back.lock().unwrap().push(m.map(|m| (m.id, m.deadline))))
            .unwrap();
        for unfired in tasks.handle().shutdown() {
            (unfired.payload)();
        }
        assert_eq!(log.lock().unwrap()[2..], [None]);
    }
}
