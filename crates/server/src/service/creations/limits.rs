//! Checks the limits of the namespace and of the service when timers are created.

use super::earlier::Earlier;
use super::naming::Naming;
use super::rate::CreationRate;
use crate::blocked;
use crate::clock::millis;
use crate::convert::{due, unavailable};
use crate::settings::Settings;
use crate::state::allows_host;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tourbillon_api::{NamespaceLimits, NewTimer, Problem, ProblemKind};
use tourbillon_callback::Callback;
use tourbillon_durable::{Due, Timers, UtcMillis};

/// The longest time for which the checks of creations reuse a count of stored timers. After this time, the timers are
/// counted again. A count that is close to a limit is never reused: see [`FAR`].
const FRESH: Duration = Duration::from_millis(100);
/// A count of stored timers is reused only if each limit exceeds the count by more than this number. During the time
/// [`FRESH`], fewer timers than this number are created, so no limit is exceeded.
const FAR: u64 = 20_000;
/// The time, in milliseconds, after which a client should repeat a refused creation.
const AGAIN_MS: u64 = 1_000;

/// The number of stored timers in each namespace.
type Numbers = BTreeMap<Box<str>, u64>;

/// A timer that a request wants to create.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) namespace: &'a str,
    /// The limits of the timer's namespace.
    pub(crate) limits: &'a NamespaceLimits,
    pub(crate) naming: Naming<'a>,
    pub(crate) timer: &'a NewTimer,
    /// The callback of the timer. `None` for a pull timer.
    pub(crate) callback: Option<&'a Callback>,
    /// The JSON pointer to the timer within the request, for error messages.
    pub(crate) pointer: &'a str,
}

/// Checks the limits for new timers: the limits of the namespace, and the limits of the service.
pub(crate) struct CreationLimits {
    settings: Arc<Settings>,
    timers: Timers,
    /// The last count of stored timers, with its moment. `None` before the first count.
    counts: Mutex<Option<(Instant, Arc<Numbers>)>>,
    rate: CreationRate,
}

impl CreationLimits {
    pub(crate) fn new(settings: Arc<Settings>, timers: Timers) -> Self {
        Self { settings, timers, counts: Mutex::default(), rate: CreationRate::default() }
    }

    /// Fails if a limit of the namespace or of the service forbids the new timer. `earlier` has the changes that the
    /// same transaction makes before this creation.
    pub(crate) async fn admit(&self, candidate: Candidate<'_>, earlier: &mut Earlier) -> Result<(), Problem> {
        let Candidate { limits, timer, pointer, .. } = candidate;
        check_delay(limits, due(timer.due, timer.delay_ms, pointer)?, self.timers.timer_store().now())?;
        check_body(limits, timer, pointer)?;
        self.check_host(candidate)?;
        self.check_room(candidate, earlier).await?;
        // The rate is checked last, because this check uses up a part of the rate. A creation that another limit
        // refuses must use up nothing.
        let per_second = limits.creations_per_second.unwrap_or(self.settings.creations);
        self.rate.take(candidate.namespace, per_second, Instant::now()).map_err(|rest| {
            let detail = format!("the namespace makes {per_second} timers in a second at most");
            // `millis` rounds down. Without the additional millisecond, the client would come back too early.
            let millis = millis(rest).saturating_add(1);
            Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(millis)
        })
    }

    /// Fails if the limits of a namespace forbid the due moment `due`.
    pub(crate) fn check_due(&self, limits: &NamespaceLimits, due: UtcMillis) -> Result<(), Problem> {
        check_delay(limits, Some(Due::At(due)), self.timers.timer_store().now())
    }

    /// Fails if the timer's callback is not permitted to go to its host. Checks only the text of the URL, and resolves
    /// no host name.
    fn check_host(&self, candidate: Candidate<'_>) -> Result<(), Problem> {
        let Candidate { limits, pointer, .. } = candidate;
        let (Some(callback), Some(sent)) = (candidate.callback, &candidate.timer.callback) else {
            return Ok(());
        };
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
        match callback.literal().map(|address| self.settings.caller.guard.check(address)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(reason)) => {
                refused(blocked::words(reason, &sent.url, self.settings.caller.guard.allow_private))
            }
        }
    }

    /// Fails if the namespace or the service already has the greatest permitted number of timers. Permits a timer that
    /// is already stored, or that replaces a stored timer.
    async fn check_room(&self, candidate: Candidate<'_>, earlier: &mut Earlier) -> Result<(), Problem> {
        let Candidate { namespace, limits, naming, .. } = candidate;
        let full = |most: u64| {
            let detail = format!("{most} timers are stored, as many as there may be");
            Err(Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(AGAIN_MS))
        };
        let most = self.settings.max_timers;
        let numbers = self.numbers(namespace, limits.max_timers.unwrap_or(u64::MAX)).await?;
        let reached = |added: i64| {
            let here = numbers.get(namespace).copied().unwrap_or(0).saturating_add_signed(added);
            let all = numbers.values().sum::<u64>().saturating_add_signed(added);
            limits.max_timers.filter(|most| here >= *most).or((all >= most).then_some(most))
        };
        // Only a creation at a limit needs reads: of the timers that the earlier changes name, and of its own timer.
        if reached(earlier.most_added()).is_none() {
            return Ok(());
        }
        let added = earlier.added(&self.timers, namespace).await?;
        match reached(added) {
            Some(most) if !earlier.has(&self.timers, namespace, naming).await? => full(most),
            _ => Ok(()),
        }
    }

    /// Returns the number of stored timers in each namespace. `most_here` is the limit of `namespace`.
    ///
    /// A count reads all shards. So a creation reuses the last count if this count is recent, and far below both
    /// `most_here` and the limit of the service. Once the last count is older than [`FRESH`], a single creation counts
    /// again, and other creations use the old count until the new count is known. If counting takes longer than
    /// [`FRESH`], a further creation starts to count after each such time.
    async fn numbers(&self, namespace: &str, most_here: u64) -> Result<Arc<Numbers>, Problem> {
        let most = self.settings.max_timers;
        let is_far = |numbers: &Numbers| {
            numbers.get(namespace).copied().unwrap_or(0).saturating_add(FAR) < most_here
                && numbers.values().sum::<u64>().saturating_add(FAR) < most
        };
        if let Some((at, numbers)) = &mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
            && is_far(numbers)
        {
            if at.elapsed() < FRESH {
                return Ok(Arc::clone(numbers));
            }
            // The new moment lets other creations use the old count while this creation counts.
            *at = Instant::now();
        }
        let counts = self.timers.counts().await.map_err(|error| unavailable(&error))?;
        let mut numbers = Numbers::new();
        for ((name, _), count) in counts.by_namespace {
            *numbers.entry(name).or_default() += count;
        }
        let numbers = Arc::new(numbers);
        let count = (Instant::now(), Arc::clone(&numbers));
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
        Ok(numbers)
    }
}

fn check_delay(limits: &NamespaceLimits, due: Option<Due>, now: UtcMillis) -> Result<(), Problem> {
    let Some(most) = limits.max_delay_ms else { return Ok(()) };
    // `after` adds a millisecond to both moments, so a delay of exactly `most` is permitted.
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
    // A request with two of the three fields is refused elsewhere, so the greatest length is that of the only field.
    let length = json.max(text).max(base64);
    if length <= most as usize {
        return Ok(());
    }
    let detail = format!("the namespace permits bodies of {most} bytes");
    Err(Problem::new(ProblemKind::TooLarge, detail.clone()).with_field(format!("{pointer}/{at}"), detail))
}
