//! Leases: those of deliveries under way are renewed, and those whose holder is gone are ended (R4).

use super::calls::{Calls, Renewed};
use super::pause::Pause;
use super::{Keeper, REAP};
use crate::runtime::alarm::Alarms;
use crate::state::Token;
use crate::timer::TimerId;
use crate::utc::UtcMillis;
use core::time::Duration;

/// The shortest pause before a lease that has ended is looked at again.
const LEAST_REST: Duration = Duration::from_millis(50);

impl Keeper {
    /// Sends a renewal of the leases of all deliveries under way.
    pub(super) fn renew(&self, calls: &mut Calls) {
        let leases = {
            let mut state = self.lock();
            if !state.ends.is_empty() {
                // The leases of these are renewed once they are sent, and must not be ended as those of a holder that
                // is gone.
                state.renew = true;
                return;
            }
            let stored = state.under_way.values().filter(|under_way| under_way.unstored.is_none());
            stored.map(|under_way| (under_way.number, under_way.id, under_way.token)).collect()
        };
        calls.renew(leases);
    }

    /// Notes the answer to a renewal, and ends the leases whose holder is gone.
    pub(super) fn reap(&self, renewed: Renewed, alarms: &Alarms, calls: &mut Calls, pause: &mut Pause) {
        let Renewed { leases, begin, lost } = renewed;
        match lost {
            Ok(lost) => {
                pause.reset();
                // A renewal of no lease asks the store nothing.
                if !leases.is_empty() {
                    self.reporter.store_answered();
                }
                self.note_renewal(&leases, &lost, begin);
                for (number, ..) in leases.iter().filter(|(_, id, _)| lost.contains(id)) {
                    // An end may have been reported meanwhile: then the delivery is not under way any more.
                    if self.settle_lost(*number) {
                        self.reporter.lease_lost();
                    }
                }
            }
            Err(error) => {
                // Leases that could not be renewed are not ended either: the handlers go on.
                self.reporter.store_failed(&error);
                self.set_renewal_in(alarms, pause.next());
                return;
            }
        }
        match self.wait_for(calls, self.store.reap(REAP)) {
            Ok(reaped) => {
                self.reporter.store_answered();
                self.reporter.reaped(&reaped, self.store.now());
                let ended = reaped.returned.len() + reaped.dead.len() + reaped.withdrawn as usize;
                let mut state = self.lock();
                state.look |= !reaped.returned.is_empty();
                state.renew |= ended >= REAP as usize;
                let has_leases = reaped.next.is_some() || !state.under_way.is_empty();
                drop(state);
                match reaped.next {
                    Some(end) => self.set_renewal_by(alarms, end, self.store.now()),
                    None if has_leases => self.set_renewal(alarms),
                    None => {}
                }
            }
            Err(error) => {
                self.reporter.store_failed(&error);
                self.set_renewal(alarms);
            }
        }
    }

    /// Notes the new ends of leases, which are not before a lease's length from `begin` on.
    fn note_renewal(&self, leases: &[(u64, TimerId, Token)], lost: &[TimerId], begin: UtcMillis) {
        let mut state = self.lock();
        for (number, id, _) in leases {
            if let Some(under_way) = state.under_way.get_mut(number).filter(|_| !lost.contains(id)) {
                under_way.until = begin + self.settings.lease;
            }
        }
    }

    /// Sets the alarm of the next renewal, unless it is set (R4).
    pub(super) fn set_renewal(&self, alarms: &Alarms) {
        self.set_renewal_in(alarms, self.settings.lease / 3);
    }

    /// The same, at the end of a lease if that comes earlier: its holder may be gone.
    pub(super) fn set_renewal_by(&self, alarms: &Alarms, end: UtcMillis, now: UtcMillis) {
        self.set_renewal_in(alarms, (end - now).clamp(LEAST_REST, self.settings.lease / 3));
    }

    pub(super) fn set_renewal_in(&self, alarms: &Alarms, rest: Duration) {
        let was_set = core::mem::replace(&mut self.lock().is_renewal_set, true);
        if !was_set {
            // Not under the lock, for which the engine's thread waits.
            alarms.renew_in(rest);
        }
    }
}
