//! Decides whether a delivery may begin. The namespace must not be paused, the delivery's [`Permits`] must be free, and
//! the namespace's [`Rate`] must have a free slot. Otherwise the delivery's timer is *parked*: it stays in the store
//! without a delivery. Once the timer may be delivered, the *unparker*, a background task, makes the timer due again.

use super::parked_index::ParkedIndex;
use super::permits::{Permit, PermitRequest, Permits, Wanted, slow_permits};
use super::reason::Reason;
use crate::rate::{Rate, Window};
use crate::state::{Namespace, Namespaces};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The greatest number of parked timers that one request to the store makes due again.
const BATCH: usize = 500;
/// A delivery can take a slot (a delivery that the limit per second permits) from `lead` before the slot's moment until
/// `lag` after it. With the lag, unparked timers can come a little late. During the lead, the delivery waits in memory.
const WINDOW: Window = Window { lag: Duration::from_millis(50), lead: Duration::from_millis(10) };
/// The time that parked timers have, after they were made due again, to arrive at their handler. During this time, the
/// service reserves a delivery for each of these timers within the namespace's limit of deliveries per second. If
/// further timers are made due again, the time starts anew.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// The longest pause until the unparker (the task that makes parked timers due again) checks a namespace's limit of
/// deliveries per second again. The pause applies if all deliveries that the limit permits now are reserved for timers
/// that have not arrived at their handler yet.
const SOON: Duration = Duration::from_millis(10);

/// The greatest numbers of concurrent callbacks, in the service and at a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryLimits {
    /// The greatest number of concurrent callbacks in the whole service.
    pub(crate) all: usize,
    /// The greatest number of concurrent callbacks of one namespace to one host.
    pub(crate) at_host: usize,
    /// The greatest number of concurrent callbacks of one namespace to a host that answers within 100 ms.
    pub(crate) at_prompt_host: usize,
}

/// Decides whether a delivery may begin, and how many parked timers the [`Unparker`](super::unparker::Unparker) makes
/// due again.
#[derive(Debug)]
pub(crate) struct Admission {
    namespaces: Arc<Namespaces>,
    permits: Arc<Permits>,
    rates: Mutex<HashMap<Box<str>, Paced>>,
    limits: DeliveryLimits,
    /// Whether a namespace has changed since the last call of [`renew_limits`](Self::renew_limits).
    is_changed: AtomicBool,
}

/// A namespace's limit of deliveries per second. `coming` counts the timers that were parked because of this limit and
/// were made due again, but have not arrived at their handler. From `coming_until` on, `coming` counts as zero.
#[derive(Debug)]
struct Paced {
    rate: Rate,
    coming: usize,
    coming_until: Instant,
}

/// The permission for a delivery to begin. If it is dropped before the delivery has begun, its slot of the namespace's
/// rate goes to the next delivery.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) permit: Permit,
    pub(crate) namespace: Arc<Namespace>,
    slot: Option<Slot>,
}

impl Place {
    /// Notes that the delivery has begun.
    pub(crate) fn begun(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.is_used = true;
        }
    }
}

/// A slot of a namespace's rate. Its drop gives the slot back unless it was used.
#[derive(Debug)]
struct Slot {
    admission: Arc<Admission>,
    name: Box<str>,
    moment: Instant,
    is_used: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_used {
            self.admission.give_back_slot(&self.name, self.moment);
        }
    }
}

impl Admission {
    pub(crate) fn new(namespaces: Arc<Namespaces>, parked: Arc<ParkedIndex>, limits: DeliveryLimits) -> Self {
        let permits = Arc::new(Permits::new(parked, limits.at_prompt_host));
        Self { namespaces, permits, rates: Mutex::default(), limits, is_changed: AtomicBool::new(false) }
    }

    fn rates(&self) -> MutexGuard<'_, HashMap<Box<str>, Paced>> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the namespace with this name. Fails with [`Reason::Paused`] if the namespace is paused or unknown.
    pub(crate) fn namespace(&self, name: &str) -> Result<Arc<Namespace>, Reason> {
        let namespace = self.namespaces.get(name).filter(|namespace| !namespace.limits.paused);
        namespace.ok_or_else(|| Reason::Paused(name.into()))
    }

    /// Waits until a delivery of the namespace `name` has its permits, and until the namespace's limit of deliveries
    /// per second permits the delivery. For a callback, `to` has the [`Reason::Host`] of the callback's host and the
    /// [`Reason::Path`] of its path. The limits of this host and this path then apply to the delivery. For a pull timer
    /// (a timer that receivers fetch from a queue), `to` is empty.
    ///
    /// Fails if the namespace is paused, or if the wait would be too long. The caller must then park the timer (leave
    /// it in the store without a delivery) for the returned reason.
    pub(crate) async fn enter(self: &Arc<Self>, name: &str, to: &[Reason]) -> Result<Place, Reason> {
        let limits = &self.namespace(name)?.limits;
        let mut requests: Vec<PermitRequest> = Vec::with_capacity(5);
        let mut request = |reason, limit| requests.push(PermitRequest { reason, limit });
        // A pull calls no host. The numbers of receivers and of open claims limit pulls instead.
        if !to.is_empty() {
            to.iter().for_each(|part| request(part.clone(), self.limits.at_host));
            request(Reason::Slow(name.into()), slow_permits(self.limits.all));
            request(Reason::Share(name.into()), self.limits.all);
        }
        if let Some(limit) = limits.concurrency {
            request(Reason::Concurrency(name.into()), usize::try_from(limit).unwrap_or(usize::MAX));
        }
        let permit = self.permits.enter(requests).await?;
        // The namespace may have been paused or changed while the delivery waited for its permits.
        let namespace = self.namespace(name)?;
        let mut slot = None;
        // The slot is taken last, because it can be given back only for a short time.
        if let Some(per_second) = namespace.limits.rate_per_second {
            let (rest, moment) = self.take_slot(name, per_second).ok_or_else(|| Reason::Rate(name.into()))?;
            slot = moment.map(|moment| self.slot(name, moment));
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
        }
        Ok(Place { permit, namespace, slot })
    }

    /// Takes a slot of a namespace's rate. Returns the time until the slot's moment, and this moment.
    fn take_slot(&self, name: &str, per_second: u32) -> Option<(Duration, Option<Instant>)> {
        let now = Instant::now();
        let mut rates = self.rates();
        // `entry` would copy the name for each delivery.
        if !rates.contains_key(name) {
            let paced = Paced { rate: Rate::new(per_second, now), coming: 0, coming_until: now };
            rates.insert(name.into(), paced);
        }
        let paced = rates.get_mut(name)?;
        // Any arrival counts, because a delivery does not show whether its timer was parked. So the number may be zero.
        paced.coming = paced.coming.saturating_sub(1);
        paced.rate.set(per_second);
        let rest = paced.rate.take(now, WINDOW).ok()?;
        Some((rest, paced.rate.last()))
    }

    fn slot(self: &Arc<Self>, name: &str, moment: Instant) -> Slot {
        Slot { admission: Arc::clone(self), name: name.into(), moment, is_used: false }
    }

    fn give_back_slot(&self, name: &str, slot: Instant) {
        if let Some(paced) = self.rates().get_mut(name) {
            paced.rate.give_back(slot, Instant::now(), WINDOW);
        }
    }

    /// Notes that a namespace has changed, for [`renew_limits`](Self::renew_limits).
    pub(crate) fn note_change(&self) {
        // Ordering: Release, for the acquiring swap in `renew_limits`. The lock of the namespaces orders the limits.
        self.is_changed.store(true, Ordering::Release);
    }

    /// If a namespace has changed since the last call, applies the present limits of all namespaces on concurrent
    /// deliveries. If a limit has grown, deliveries that wait for it begin.
    pub(crate) fn renew_limits(&self) {
        // Ordering: Acquire, for the store in `note_change`. A change after this swap sets the value again.
        if !self.is_changed.swap(false, Ordering::Acquire) {
            return;
        }
        for reason in self.permits.concurrency_limiters() {
            let Reason::Concurrency(name) = &reason else { continue };
            // The deliveries of a namespace that has been deleted find out when they begin.
            let limit = self.namespaces.get(name).and_then(|namespace| namespace.limits.concurrency);
            let limit = limit.unwrap_or(u32::MAX);
            self.permits.set_limit(&reason, usize::try_from(limit).unwrap_or(usize::MAX));
        }
    }

    /// Stops deliveries to a host, or to a path of a host, for the time `rest`.
    pub(crate) fn shut(&self, host: &Reason, rest: Duration) {
        self.permits.shut(host, rest);
    }

    /// Permits deliveries to a host and its paths again, before the time of an earlier call of [`shut`](Self::shut) is
    /// over.
    pub(crate) fn reopen(&self, host: &str) {
        self.permits.reopen(host);
    }

    /// Returns how many of the timers that are parked for `reason` the caller should make due again now.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let limits = |name: &str| self.namespaces.get(name).map(|namespace| namespace.limits.clone());
        match reason {
            Reason::Paused(name) => match limits(name) {
                Some(limits) if !limits.paused => Wanted::Now(BATCH),
                _ => Wanted::Nothing,
            },
            // Timers of an unknown namespace also become due. They are parked again as paused.
            Reason::Concurrency(name) if limits(name).is_none_or(|limits| limits.concurrency.is_none()) => {
                Wanted::Now(BATCH)
            }
            // This reason comes from an earlier version, which limited a host for all namespaces together. This version
            // has no such limit, so the timers may become due again.
            Reason::Host(namespace, _) if namespace.is_empty() => Wanted::Now(BATCH),
            Reason::Rate(name) => match limits(name).and_then(|limits| limits.rate_per_second) {
                None => Wanted::Now(BATCH),
                Some(per_second) => self.wanted_at_rate(name, per_second, now),
            },
            Reason::Share(_)
            | Reason::Slow(_)
            | Reason::Concurrency(_)
            | Reason::Host(..)
            | Reason::Path(..) => self.permits.wanted(reason, now),
            // The pull queues know how many timers their receivers want. Only a resume ends the pause of a timer.
            Reason::Queue(..) | Reason::TimerPaused => Wanted::Nothing,
        }
    }

    fn wanted_at_rate(&self, name: &str, per_second: u32, now: Instant) -> Wanted {
        let mut rates = self.rates();
        if self.namespaces.is_shared() && !rates.contains_key(name) {
            // The unparked timer may arrive at another node and be parked there again. Without this entry, this node
            // would unpark such timers more often than the rate permits.
            let paced = Paced { rate: Rate::new(per_second, now), coming: 0, coming_until: now };
            rates.insert(name.into(), paced);
        }
        // No delivery has asked for a slot yet. A single timer is enough, because its arrival makes the entry.
        let Some(paced) = rates.get_mut(name) else { return Wanted::Now(1) };
        paced.rate.set(per_second);
        if now >= paced.coming_until {
            paced.coming = 0;
        }
        match paced.rate.free(now, WINDOW) {
            Err(moment) => Wanted::At(moment),
            Ok(free) if free > paced.coming => Wanted::Now((free - paced.coming).min(BATCH)),
            // The arrival of a timer does not wake the unparker, so the unparker checks again soon.
            Ok(_) => Wanted::At(paced.coming_until.min(now + SOON)),
        }
    }

    /// Notes that timers that were parked for `reason` are about to become due again. `timers` is their number. Until
    /// these timers arrive at their handler, [`wanted`](Self::wanted) subtracts their number from its result.
    pub(crate) fn expect(&self, reason: &Reason, timers: usize) {
        match reason {
            Reason::Rate(name) => {
                if let Some(paced) = self.rates().get_mut(name) {
                    (paced.coming, paced.coming_until) = (paced.coming + timers, Instant::now() + ON_THE_WAY);
                }
            }
            Reason::Share(_)
            | Reason::Slow(_)
            | Reason::Concurrency(_)
            | Reason::Host(..)
            | Reason::Path(..) => {
                self.permits.expect(reason, timers);
            }
            Reason::Paused(_) | Reason::Queue(..) | Reason::TimerPaused => {}
        }
    }

    /// Corrects an earlier call of [`expect`](Self::expect): the store made fewer timers due again than expected.
    /// `timers` is the difference.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        match reason {
            Reason::Rate(name) => {
                if let Some(paced) = self.rates().get_mut(name) {
                    paced.coming = paced.coming.saturating_sub(timers);
                }
            }
            _ => self.permits.expect_no_more(reason, timers),
        }
    }

    /// Frees the memory of limiters without deliveries and parked timers, and of the rates of deleted namespaces.
    pub(crate) fn sweep(&self) {
        self.permits.sweep();
        self.rates().retain(|name, _| self.namespaces.get(name).is_some());
    }
}
