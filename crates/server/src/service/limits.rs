//! The limits of namespaces, at the creation of timers.

use super::Service;
use super::census::Numbers;
use super::namespaces::allows_host;
use super::place::{Naming, by_key, id_of};
use crate::blocked;
use crate::convert::{due, unavailable};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tourbillon_api::{NamespaceLimits, NewTimer, Problem, ProblemKind};
use tourbillon_callback::Callback;
use tourbillon_durable::timer::Address;
use tourbillon_durable::{Due, UtcMillis};

/// The time for which counts are believed that are far from a limit.
const FRESH: Duration = Duration::from_millis(100);
/// The number of timers by which a count is far from a limit: more than are made while the count is believed.
const FAR: u64 = 20_000;
/// The pause after which a creation may be tried again.
const AGAIN_MS: u64 = 1_000;

impl Service {
    /// Fails if a namespace's limits, or the service's own, do not permit this timer, which is given with its callback
    /// if it has one. `pointer` is the place of the timer in the request, and `ahead` the number of creations in the
    /// same transaction before this one.
    pub(crate) async fn admit(
        &self,
        name: &str,
        limits: &NamespaceLimits,
        naming: Naming<'_>,
        (timer, callback): (&NewTimer, Option<&Callback>),
        pointer: &str,
        ahead: u64,
    ) -> Result<(), Problem> {
        check_delay(limits, due(timer.due, timer.delay_ms, pointer)?, self.timers().timer_store().now())?;
        check_body(limits, timer, pointer)?;
        if let (Some(callback), Some(sent)) = (callback, &timer.callback) {
            self.check_host(limits, (callback, &sent.url), pointer)?;
        }
        self.check_room(name, limits, naming, ahead).await?;
        let per_second = limits.creations_per_second.unwrap_or(self.settings().creations);
        self.0.creations.take(name, per_second, Instant::now()).map_err(|rest| {
            let detail = format!("the namespace makes {per_second} timers in a second at most");
            let millis = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(millis)
        })
    }

    /// Fails if a namespace does not permit this due moment.
    pub(crate) fn check_due(&self, name: &str, due: UtcMillis) -> Result<(), Problem> {
        let now = self.timers().timer_store().now();
        check_delay(&self.namespace(name)?.limits, Some(Due::At(due)), now)
    }

    /// Fails if a callback must not go to its host, as far as the text of its URL shows.
    fn check_host(
        &self,
        limits: &NamespaceLimits,
        (callback, url): (&Callback, &str),
        pointer: &str,
    ) -> Result<(), Problem> {
        let refused = |detail: String| {
            let at = format!("{pointer}/callback/url");
            Err(Problem::new(ProblemKind::BlockedDestination, detail.clone()).with_field(at, detail))
        };
        if !limits.allowed_hosts.is_empty() {
            let host = callback.host();
            if !allows_host(limits, &host) {
                return refused(blocked::host_words(host.rsplit_once(':').map_or(&*host, |(name, _)| name)));
            }
        }
        match callback.literal().map(|address| self.settings().caller.guard.check(address)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(reason)) => refused(blocked::words(reason, url)),
        }
    }

    /// Fails if the namespace or the service has its greatest number of timers. A timer that is stored already, or that
    /// takes another timer's place, is admitted.
    async fn check_room(
        &self,
        name: &str,
        limits: &NamespaceLimits,
        naming: Naming<'_>,
        ahead: u64,
    ) -> Result<(), Problem> {
        let full = |most: u64| {
            let detail = format!("{most} timers are stored, as many as there may be");
            Err(Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(AGAIN_MS))
        };
        let most = self.settings().max_timers;
        let numbers = self.numbers(name, limits.max_timers.unwrap_or(u64::MAX)).await?;
        let here = numbers.get(name).copied().unwrap_or(0) + ahead;
        let all = numbers.values().sum::<u64>() + ahead;
        let reached = match limits.max_timers {
            Some(most) if here >= most => most,
            _ if all >= most => most,
            _ => return Ok(()),
        };
        let by_id = naming.idempotency_key.map(|key| Address::Id(id_of(name, key)));
        for address in by_id.into_iter().chain(naming.key.map(|key| by_key(name, key))) {
            if self.timers().get(address).await.map_err(|error| unavailable(&error))?.is_some() {
                return Ok(());
            }
        }
        full(reached)
    }

    async fn numbers(&self, name: &str, most_here: u64) -> Result<Arc<Numbers>, Problem> {
        let most = self.settings().max_timers;
        let known = self.0.census.last();
        if let Some((at, numbers)) = known
            && at.elapsed() < FRESH
            && numbers.get(name).copied().unwrap_or(0).saturating_add(FAR) < most_here
            && numbers.values().sum::<u64>().saturating_add(FAR) < most
        {
            return Ok(numbers);
        }
        let counts = self.timers().counts().await.map_err(|error| unavailable(&error))?;
        let mut numbers = Numbers::new();
        for ((namespace, _), count) in counts.by_namespace {
            *numbers.entry(namespace).or_default() += count;
        }
        Ok(self.0.census.note(numbers))
    }
}

fn check_delay(limits: &NamespaceLimits, due: Option<Due>, now: UtcMillis) -> Result<(), Problem> {
    let Some(most) = limits.max_delay_ms else { return Ok(()) };
    let due = match due {
        Some(Due::After(delay)) => now.after(delay),
        Some(Due::At(moment)) => moment,
        None => now,
    };
    if due <= now.after(Duration::from_millis(most)) {
        return Ok(());
    }
    Err(Problem::new(ProblemKind::DueTooFar, format!("the namespace permits {most} ms at most")))
}

fn check_body(limits: &NamespaceLimits, timer: &NewTimer, pointer: &str) -> Result<(), Problem> {
    let Some(most) = limits.max_body_bytes else { return Ok(()) };
    let (at, json, text, base64) = match (&timer.callback, &timer.pull) {
        (Some(callback), _) => ("callback", &callback.json, &callback.body, &callback.body_base64),
        (_, Some(pull)) => ("pull", &pull.json, &pull.body, &pull.body_base64),
        _ => return Ok(()),
    };
    let json = json.as_ref().map_or(0, |json| json.text().len());
    let text = text.as_ref().map_or(0, String::len);
    let base64 = base64.as_ref().map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4);
    let length = json.max(text).max(base64);
    if length <= most as usize {
        return Ok(());
    }
    let detail = format!("the namespace permits bodies of {most} bytes");
    Err(Problem::new(ProblemKind::TooLarge, detail.clone()).with_field(format!("{pointer}/{at}"), detail))
}
