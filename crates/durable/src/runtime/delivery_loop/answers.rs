//! Handles the store's answers to ends of deliveries and to renewals of leases.

use super::DeliveryLoop;
use super::ends::{Answered, Stored};
use super::renewals::{Answer, Lease, Renewed};
use crate::runtime::event::Event;
use crate::runtime::shared::{DeliveryEnd, REAP, RenewalAlarm};
use crate::store::Outcome;
use core::task::Context;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

impl DeliveryLoop<'_> {
    /// Counts the deliveries whose results the store has confirmed. Also counts the deliveries whose results are
    /// *lost*, which means that the loop no longer tries to report them ([`ends`](super::ends)). Begins the new
    /// deliveries of claimed timers that had to wait for these results.
    pub(super) fn report(&mut self, answered: Answered) {
        let runtime = self.runtime;
        for batch in answered.batches {
            match batch {
                Ok(stored) => {
                    runtime.reporter.store_answered();
                    stored.iter().for_each(|stored| self.note_end(stored));
                }
                Err(lost) => {
                    // The leases of the lost ends expire, and the store delivers these timers again.
                    runtime.reporter.ends_lost(lost.len());
                    lost.iter().for_each(|end| self.launcher.alarms.cancel(end.delivery.alarm));
                    for DeliveryEnd { delivery, .. } in &lost {
                        let Some(observed) = &delivery.observed else { continue };
                        let (attempt, at) = (Arc::clone(&observed.attempt), runtime.store_now());
                        let may_be_removed = delivery.may_be_removed;
                        runtime.reporter.emit(&Event::EndLost { attempt, at, may_be_removed });
                    }
                }
            }
        }
        let now = runtime.store_now();
        // These deliveries begin after the loop above has emitted the ends of the deliveries before them. So an
        // observer gets the events of a timer in their order.
        answered.free.into_iter().for_each(|leased| self.begin_one(leased, now));
        // A lost end leaves a lease in the store. A later reap must end this lease.
        self.launcher.set_renewal();
    }

    /// Counts the end of a delivery, and emits the event that shows how the delivery ended in the store.
    fn note_end(&self, stored: &Stored) {
        let Stored { end, outcome, next_due } = stored;
        self.runtime.reporter.ended(&end.delivery, &end.op, outcome);
        // The timeout of a delivery that was settled without an answer is still set.
        self.launcher.alarms.cancel(end.delivery.alarm);
        let Some(observed) = &end.delivery.observed else { return };
        let reporter = &self.runtime.reporter;
        let (attempt, at) = (Arc::clone(&observed.attempt), self.runtime.store_now());
        let Outcome::Ended { phase, next, .. } = *outcome else {
            let may_be_removed = end.delivery.may_be_removed;
            return reporter.emit(&Event::LeaseLost { attempt, at, may_be_removed });
        };
        let (ending, took) = (observed.ending(&end.op), observed.took);
        reporter.emit(&Event::Ended { attempt, at, ending, took, phase, next, due: *next_due });
    }

    /// Gives back the timers that the executor has not called for the length of a lease. Then asks the store to renew
    /// the leases of all deliveries that are under way. Also renews the leases of deliveries
    /// that have ended, if the store has not confirmed their results yet, and of timers that were claimed since then.
    pub(super) fn renew(&mut self) {
        let mut leases: Vec<Lease> = {
            let (now, at) = (self.runtime.moment(), self.runtime.store_now());
            let mut state = self.runtime.lock();
            state.give_uncalled_back(now, self.runtime.settings.lease, at);
            if !state.settled.ends.is_empty() {
                // These ends have not been sent yet, so the renewal would leave out their leases. The reap after the
                // renewal could then end these leases as expired. So the renewal waits until the ends are sent.
                state.requests.renewal = RenewalAlarm::Rung;
                return;
            }
            state.deliveries.leases().collect()
        };
        leases.extend(self.ends.leases());
        self.renewals.send(leases);
        self.renewals.poll(&mut Context::from_waker(&self.waker));
    }

    /// Handles the store's answer to a renewal of leases. If the renewal succeeded, then calls
    /// [`TimerStore::reap`](crate::store::TimerStore::reap), which ends expired leases. The leases of this runtime's
    /// deliveries have just been renewed. So an expired lease belongs to a process that is gone, to a delivery whose
    /// result could not be reported, or to a server that did not answer for the length of a lease.
    pub(super) fn reap(&mut self, renewed: Renewed) {
        let runtime = self.runtime;
        let answer = match &renewed.answer {
            Ok(answer) => answer,
            Err(error) => {
                // After a failed renewal, no lease is ended, and the handlers go on.
                runtime.reporter.store_failed(error);
                let rest = self.renewals.backoff.next();
                return self.launcher.set_renewal_in(rest);
            }
        };
        self.renewals.backoff.reset();
        // A renewal without leases does not reach the store, so it does not show that the store works.
        if answer.has_any() {
            runtime.reporter.store_answered();
        }
        let until = renewed.begin + runtime.settings.lease;
        for _dropped in 0..self.ends.renewed(answer, until) {
            runtime.reporter.lease_lost();
        }
        for (delivery, due) in self.note_renewal(answer, until) {
            // The handler may just have settled the delivery. Then no lost lease is counted.
            if runtime.settle_lost(delivery, due) {
                runtime.reporter.lease_lost();
            }
        }
        match self.wait_for(runtime.store.reap(REAP)) {
            Ok(reaped) => {
                runtime.reporter.store_answered();
                runtime.reporter.reaped(&reaped, runtime.store_now());
                let ended = reaped.returned.len() + reaped.dead.len() + reaped.withdrawn as usize;
                let has_leases = {
                    let mut state = runtime.lock();
                    state.requests.look |= !reaped.returned.is_empty();
                    // The call has ended as many leases as it may, so further leases may have expired.
                    if ended >= REAP as usize {
                        state.requests.renewal = RenewalAlarm::Rung;
                    }
                    !state.deliveries.is_empty() || self.ends.count() > 0
                };
                match reaped.next {
                    Some(end) => self.launcher.set_renewal_by(end, runtime.store.now()),
                    None if has_leases => self.launcher.set_renewal(),
                    None => {}
                }
            }
            Err(error) => {
                runtime.reporter.store_failed(&error);
                self.launcher.set_renewal();
            }
        }
    }

    /// Records the new ends of the leases that the store has renewed. Each lease lasts at least until the moment
    /// `until`. Returns the numbers of the deliveries whose leases are lost, and the due moments of their timers.
    /// Includes deliveries that have begun since the renewal was sent, because the timers of such deliveries may have
    /// waited for an answer with their leases.
    fn note_renewal(&self, answer: &Answer, until: UtcMillis) -> Vec<(u64, UtcMillis)> {
        let mut lost = Vec::new();
        for delivery in self.runtime.lock().deliveries.leased_mut() {
            let lease = (delivery.id, delivery.token);
            if answer.renewed.contains(&lease) {
                delivery.until = until;
            } else if answer.lost.contains(&lease) {
                lost.push((delivery.number, delivery.due));
            }
        }
        lost
    }
}
