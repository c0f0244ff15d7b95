//! The gates before a delivery: the pause of its namespace, places, and the rate.

use super::board::Board;
use super::places::{LaneAt, Place, Places, Wanted, slow_places};
use super::rate::Rate;
use super::reason::Reason;
use crate::service::{Namespace, Namespaces};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The number of timers that are unparked at once if nothing limits them.
const BATCH: usize = 500;
/// The time in which an unparked timer should have arrived.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// The time after which a rate is looked at again whose unparked timers have not all arrived.
const SOON: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Gates {
    namespaces: Arc<Namespaces>,
    places: Arc<Places>,
    rates: Mutex<HashMap<Box<str>, Paced>>,
    /// The greatest number of callbacks at a time, of all and of those of a namespace to one host.
    most: (usize, usize),
}

/// A rate, and the timers that were unparked for it and have not arrived.
#[derive(Debug)]
struct Paced {
    rate: Rate,
    coming: usize,
    coming_until: Instant,
}

impl Gates {
    /// Gates that let so many callbacks in at a time, so many of a namespace to one host, and so many if that answers
    /// promptly.
    pub(crate) fn new(
        namespaces: Arc<Namespaces>,
        board: Arc<Board>,
        (all, at_host, at_prompt_host): (usize, usize, usize),
    ) -> Self {
        let places = Arc::new(Places::new(board, at_prompt_host));
        Self { namespaces, places, rates: Mutex::default(), most: (all, at_host) }
    }

    fn rates(&self) -> MutexGuard<'_, HashMap<Box<str>, Paced>> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespace, unless its deliveries are held back. So are those of a namespace that is not known.
    pub(crate) fn namespace(&self, name: &str) -> Result<Arc<Namespace>, Reason> {
        let namespace = self.namespaces.get(name).filter(|namespace| !namespace.limits.paused);
        namespace.ok_or_else(|| Reason::Paused(name.into()))
    }

    /// Lets a delivery in, to this host and path if it is a callback. Otherwise the reason for which the timer is to be
    /// parked.
    pub(crate) async fn enter(&self, name: &str, to: &[Reason]) -> Result<(Place, Arc<Namespace>), Reason> {
        let limits = &self.namespace(name)?.limits;
        let mut lanes: Vec<LaneAt> = Vec::with_capacity(5);
        if !to.is_empty() {
            lanes.extend(to.iter().map(|part| (part.clone(), self.most.1)));
            lanes.push((Reason::Slow(name.into()), slow_places(self.most.0)));
            lanes.push((Reason::Share(name.into()), self.most.0));
        }
        if let Some(limit) = limits.concurrency {
            lanes.push((Reason::Concurrency(name.into()), usize::try_from(limit).unwrap_or(usize::MAX)));
        }
        let place = self.places.enter(lanes).await?;
        // The namespace may have been paused, or its limits changed, while the delivery waited.
        let namespace = self.namespace(name)?;
        if let Some(per_second) = namespace.limits.rate_per_second {
            let rest = self.take_slot(name, per_second).ok_or_else(|| Reason::Rate(name.into()))?;
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
        }
        Ok((place, namespace))
    }

    fn take_slot(&self, name: &str, per_second: u32) -> Option<Duration> {
        let now = Instant::now();
        let mut rates = self.rates();
        if !rates.contains_key(name) {
            let paced = Paced { rate: Rate::new(per_second, now), coming: 0, coming_until: now };
            rates.insert(name.into(), paced);
        }
        let paced = rates.get_mut(name)?;
        paced.coming = paced.coming.saturating_sub(1);
        paced.rate.set(per_second);
        paced.rate.take(now)
    }

    /// Shuts the lane of a host, or of a path, for a while.
    pub(crate) fn shut(&self, host: &Reason, rest: Duration) {
        self.places.shut(host, rest);
    }

    /// Opens the lanes of a host that are shut.
    pub(crate) fn reopen(&self, host: &str) {
        self.places.reopen(host);
    }

    /// How many of the timers that are parked for a reason can go on now.
    pub(crate) fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        let limits = |name: &str| self.namespaces.get(name).map(|namespace| namespace.limits.clone());
        match reason {
            Reason::Paused(name) => match limits(name) {
                Some(limits) if !limits.paused => Wanted::Now(BATCH),
                _ => Wanted::Nothing,
            },
            Reason::Concurrency(name) if limits(name).is_none_or(|limits| limits.concurrency.is_none()) => {
                Wanted::Now(BATCH)
            }
            // An earlier version has parked it. No delivery comes by this lane.
            Reason::Host(namespace, _) if namespace.is_empty() => Wanted::Now(BATCH),
            Reason::Rate(name) => match limits(name).and_then(|limits| limits.rate_per_second) {
                None => Wanted::Now(BATCH),
                Some(per_second) => self.wanted_at_rate(name, per_second, now),
            },
            Reason::Share(_)
            | Reason::Slow(_)
            | Reason::Concurrency(_)
            | Reason::Host(..)
            | Reason::Path(..) => self.places.wanted(reason, now),
            Reason::Queue(..) => Wanted::Nothing,
        }
    }

    fn wanted_at_rate(&self, name: &str, per_second: u32, now: Instant) -> Wanted {
        let mut rates = self.rates();
        if self.namespaces.is_shared() && !rates.contains_key(name) {
            // What is put back may arrive at another node, and be parked there again: not more often than the rate
            // permits.
            let paced = Paced { rate: Rate::new(per_second, now), coming: 0, coming_until: now };
            rates.insert(name.into(), paced);
        }
        let Some(paced) = rates.get_mut(name) else { return Wanted::Now(1) };
        paced.rate.set(per_second);
        if now >= paced.coming_until {
            paced.coming = 0;
        }
        match paced.rate.free(now) {
            Err(moment) => Wanted::At(moment),
            Ok(free) if free > paced.coming => Wanted::Now((free - paced.coming).min(BATCH)),
            // An arrival shows nothing to the usher.
            Ok(_) => Wanted::At(paced.coming_until.min(now + SOON)),
        }
    }

    /// Notes that so many timers are about to be unparked for a reason.
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
                self.places.expect(reason, timers);
            }
            Reason::Paused(_) | Reason::Queue(..) => {}
        }
    }

    /// Notes that so many timers fewer were unparked than expected.
    pub(crate) fn expect_no_more(&self, reason: &Reason, timers: usize) {
        match reason {
            Reason::Rate(name) => {
                if let Some(paced) = self.rates().get_mut(name) {
                    paced.coming = paced.coming.saturating_sub(timers);
                }
            }
            _ => self.places.expect_no_more(reason, timers),
        }
    }

    /// Forgets hosts at which nothing happens, and rates of namespaces that are gone.
    pub(crate) fn sweep(&self) {
        self.places.sweep();
        self.rates().retain(|name, _| self.namespaces.get(name).is_some());
    }
}
