//! Closures that get the id and the moment of the timer that fired. Bindings for other languages need them.

use super::job::{Call, OnDue, Shot};
use tourbillon::extend::Moment;

/// A user's closure that takes the moment of the timer's firing as its argument.
pub(super) struct WithMoment<F>(pub(super) F);

impl<F: FnOnce(Option<&Moment<'_>>) + Send + 'static> Shot for WithMoment<F> {
    fn fire(self: Box<Self>, moment: &Moment<'_>) {
        (self.0)(Some(moment));
    }

    fn unfired(self: Box<Self>) -> Option<Call> {
        Some(Box::new(move || (self.0)(None)))
    }
}

impl<F: Fn(&Moment<'_>) + Send + Sync> OnDue for WithMoment<F> {
    fn on_due(&self, moment: &Moment<'_>) {
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
    fn a_closure_gets_its_moment_and_none_when_it_was_returned() {
        let mut tasks = DrivenTasks::new().unwrap();
        let log = StdArc::new(Mutex::new(Vec::new()));
        let [once, back, again] = [(); 3].map(|()| StdArc::clone(&log));
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let id = tasks
            .handle()
            .at_with(at(5), move |m| once.lock().unwrap().push(m.map(|m| (m.id(), m.deadline))))
            .unwrap();
        let timer = tasks
            .handle()
            .timer_with(move |m| again.lock().unwrap().push(Some((m.id(), m.deadline))))
            .unwrap();
        timer.arm_at(at(7)).unwrap();
        tasks.advance(Duration::from_millis(10));
        assert_eq!(log.lock().unwrap()[0], Some((id, at(5))));
        assert_eq!(log.lock().unwrap()[1].map(|(_, deadline)| deadline), Some(at(7)));
        tasks
            .handle()
            .at_with(at(50), move |m| back.lock().unwrap().push(m.map(|m| (m.id(), m.deadline))))
            .unwrap();
        for unfired in tasks.handle().shutdown() {
            (unfired.payload)();
        }
        assert_eq!(log.lock().unwrap()[2..], [None]);
    }
}
