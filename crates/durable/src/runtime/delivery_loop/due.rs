//! Claims due timers. Also claims parked timers (set aside for a reason) for callers of
//! [`Timers::fetch`](crate::Timers::fetch).

use super::DeliveryLoop;
use crate::policy::Guarantee;
use crate::runtime::catch_up::CatchUp;
use crate::runtime::shared::{Backlog, Fetch};
use crate::store::{Leased, Limit, Shares, StoreError, StoreErrorKind};
use core::time::Duration;
use tourbillon_words::UtcMillis;

/// The greatest number of timers that a single claim takes.
const CLAIM: u32 = 512;
/// The number of payload bytes after which a claim takes no further timer.
const CLAIM_BYTES: u64 = 4 << 20;
/// The longest time for which the alarm of the next claim is set.
const LONGEST_ALARM: Duration = Duration::from_secs(365 * 86_400);

fn limit(timers: u32) -> Limit {
    Limit { timers, bytes: CLAIM_BYTES }
}

impl DeliveryLoop<'_> {
    /// Claims at most `room` due timers, and begins their deliveries.
    pub(super) fn claim(&mut self, room: usize) {
        let runtime = self.runtime;
        let wanted = u32::try_from(room).unwrap_or(u32::MAX).min(CLAIM);
        let now = runtime.store.now();
        let claim = self.claims.next_number();
        let (most, shares) = match &mut self.claims.catch_up {
            CatchUp::Together(rate) => {
                let backlog = runtime.lock().backlog;
                // If no timer is pending, no timer is late, so the claim needs no permit.
                let next_due = backlog.has_claimed.then(|| backlog.next_due.unwrap_or(now));
                match rate.permits(next_due, now, wanted) {
                    Ok(permitted) => (permitted, None),
                    // The alarm takes the place of the request for this claim, which is already cleared (R2).
                    Err(rest) => return self.launcher.alarms.look_in(rest),
                }
            }
            CatchUp::InTurn(rates) => {
                let running = {
                    let mut state = runtime.lock();
                    // If a handler returns during the claim, this flag makes the loop claim again, because the claim
                    // has not counted the free handler.
                    state.backlog.is_withheld = true;
                    state.deliveries.by_namespace()
                };
                (wanted, Some(Shares::new(room, running).with_late(rates.permits(now))))
            }
        };
        let call = runtime.store.claim(runtime.claimant, claim, limit(most), shares);
        let claimed = match self.wait_for(call) {
            Ok(claimed) => claimed,
            Err(error) => {
                self.recover(&error, claim);
                let _goes_on = self.bear(&error);
                // The claim may have leased timers although its answer is an error. A later reap ends these leases
                // (R4).
                self.launcher.set_renewal();
                // The request for the failed claim is already cleared, so it is made again.
                runtime.look();
                return;
            }
        };
        self.claims.backoff.reset();
        runtime.reporter.claimed(&claimed);
        let is_due = |moment: Option<UtcMillis>| moment.is_some_and(|moment| moment <= claimed.now);
        let (next, permit) = match &mut self.claims.catch_up {
            CatchUp::Together(rate) => {
                rate.note(u32::try_from(claimed.leased.len()).unwrap_or(u32::MAX));
                (claimed.next_due, None)
            }
            CatchUp::InTurn(rates) => {
                rates.note(&claimed.leased, claimed.now);
                let is_withheld = is_due(claimed.next_due) && !is_due(claimed.next_claim);
                // Only due timers that no claim may take now can wait for a permit. Otherwise no alarm is needed.
                let permit = rates.rest(claimed.now).filter(|_| is_withheld);
                (claimed.next_claim, permit)
            }
        };
        {
            let mut state = runtime.lock();
            let is_withheld = is_due(claimed.next_due) && !is_due(next);
            state.backlog = Backlog { has_claimed: true, next_due: claimed.next_due, is_withheld };
            // Another thread may have requested a claim since this claim began. Such a request stays.
            state.requests.look |= is_due(next);
        }
        if let Some(end) = claimed.next_reap {
            self.launcher.set_renewal_by(end, claimed.now);
        }
        let next_due = next.filter(|due| *due > claimed.now).map(|due| due - claimed.now);
        if let Some(rest) = next_due.into_iter().chain(permit).min() {
            self.launcher.alarms.look_in(rest.min(LONGEST_ALARM));
        }
        // The backlog is set before this call, because a delivery that ends without a handler reads it.
        self.begin(claimed.leased, claimed.now);
    }

    /// Begins the deliveries of claimed timers. If the store has not confirmed the result of a timer's last delivery
    /// yet, the new delivery waits until this result is confirmed or lost (invariant C2 of [`ends`](super::ends)).
    fn begin(&mut self, leased: Vec<Leased>, now: UtcMillis) {
        for leased in leased {
            if let Some(leased) = self.ends.keep(leased) {
                self.begin_one(leased, now);
            }
        }
    }

    /// Begins the delivery of a claimed timer. If the timer is delivered at most once, and cannot be removed at
    /// present, its delivery is put off.
    pub(super) fn begin_one(&self, leased: Leased, now: UtcMillis) {
        let is_once = leased.timer.policy.guarantee == Guarantee::AtMostOnce;
        let shut = if is_once { self.removals.shut_lane(leased.timer.id) } else { None };
        self.launcher.begin(leased, now, shut);
    }

    /// Handles a failed claim. If the claim's answer was lost ([`StoreErrorKind::Unknown`]), the claim may have leased
    /// timers all the same. So this method asks the store for the timers with leases of this claim, and begins their
    /// deliveries. If the store does not answer, these leases expire. After other errors, this method does nothing.
    fn recover(&mut self, error: &StoreError, claim: u64) {
        let runtime = self.runtime;
        if error.kind() == StoreErrorKind::Unknown
            && let Ok(leased) = self.wait_for(runtime.store.recover(runtime.claimant, claim))
        {
            self.begin(leased, runtime.store.now());
        }
    }

    /// Claims due timers for a caller of [`Timers::fetch`](crate::Timers::fetch), although these timers are parked (set
    /// aside) for the reason in `fetch`. Claims at most `room` timers, begins their deliveries, and sends the number of
    /// claimed timers to the caller.
    pub(super) fn take_parked(&mut self, fetch: Fetch, room: usize) {
        let runtime = self.runtime;
        let Fetch { reason, wanted, most, reply } = fetch;
        let most = u32::try_from(room).unwrap_or(u32::MAX).min(CLAIM).min(most);
        let claim = self.claims.next_number();
        let call = runtime.store.claim_parked(runtime.claimant, claim, reason, wanted.min(most), limit(most));
        let answer = match self.wait_for(call) {
            Ok(claimed) => {
                self.claims.backoff.reset();
                Ok(claimed.map(|claimed| {
                    runtime.reporter.claimed(&claimed);
                    let count = u32::try_from(claimed.leased.len()).unwrap_or(u32::MAX);
                    self.begin(claimed.leased, claimed.now);
                    count
                }))
            }
            Err(error) => {
                self.recover(&error, claim);
                self.launcher.set_renewal();
                Err(error)
            }
        };
        // The caller gets the error before the pause, because only the loop must pause.
        let error = answer.as_ref().err().cloned();
        let _caller_has_gone = reply.send(answer);
        if let Some(error) = error {
            let _goes_on = self.bear(&error);
        }
    }
}
