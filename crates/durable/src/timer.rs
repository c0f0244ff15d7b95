//! Defines a durable timer as stores keep it, and the addresses by which callers find it.

pub use crate::id::TimerId;

use crate::phase::{Lease, State};
use crate::plan::{Plan, Series};
use crate::policy::Policy;
use crate::texts::has_zero_byte;
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The address of a timer: its id or its key.
///
/// ```
/// use tourbillon_durable::timer::{Address, KeyOf, TimerId};
///
/// let id = TimerId::fresh();
/// assert_eq!(Address::from(id), Address::Id(id));
/// let key = KeyOf { namespace: "".into(), key: "order 17".into() };
/// assert_eq!(Address::from("order 17"), Address::Key(key));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Address {
    /// The timer with this id.
    Id(TimerId),
    /// The timer with this key in this namespace.
    Key(KeyOf),
}

/// A timer's key together with the key's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyOf {
    /// The namespace. Empty in a program without namespaces.
    pub namespace: Box<str>,
    /// The key. At most one timer of the namespace owns it at a time.
    pub key: Box<str>,
}

impl Address {
    /// Returns the name of a text of the address that has a zero byte. `None` if no text has one.
    pub(crate) fn part_with_zero_byte(&self) -> Option<&'static str> {
        match self {
            Self::Key(at) if has_zero_byte(&at.namespace) => Some("the namespace"),
            Self::Key(at) if has_zero_byte(&at.key) => Some("the key"),
            Self::Key(_) | Self::Id(_) => None,
        }
    }
}

impl From<TimerId> for Address {
    fn from(id: TimerId) -> Self {
        Self::Id(id)
    }
}

/// Makes the address of the timer with this key in the empty namespace.
impl From<&str> for Address {
    fn from(key: &str) -> Self {
        Self::Key(KeyOf { namespace: "".into(), key: key.into() })
    }
}

/// The bytes that a handler gets as its argument. A backup contains them in base 64.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Payload(pub Box<[u8]>);

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            use base64::prelude::{BASE64_STANDARD, Engine as _};
            serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            use base64::prelude::{BASE64_STANDARD, Engine as _};
            let text = String::deserialize(deserializer)?;
            let bytes = BASE64_STANDARD.decode(text).map_err(serde::de::Error::custom)?;
            return Ok(Self(bytes.into()));
        }
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(bytes.into()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A timer as a store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    // The journal of the redb store has the fields of a timer in this order. Another order needs a new journal version.
    /// The id of the timer. Each delivery of the timer has this id.
    pub id: TimerId,
    /// The namespace in which the key and the labels are valid.
    pub namespace: Box<str>,
    /// The key. `None` if the timer has no key.
    pub key: Option<Box<str>>,
    /// The timer's kind, which selects the handler.
    pub kind: Box<str>,
    /// The bytes that the handler gets as its argument.
    pub payload: Payload,
    /// The labels. Callers can list or cancel all timers that have a given label.
    pub labels: Vec<Box<str>>,
    /// The policy for failed and late deliveries.
    pub policy: Policy,
    /// The series to which this timer belongs as an occurrence. `None` for a single timer.
    pub series: Option<Series>,
    /// The moment at which the store accepted the timer, by the store's clock.
    pub created: UtcMillis,
    /// The moment for which the timer is scheduled. Retries and snoozes move `due`, but not this moment.
    pub scheduled: UtcMillis,
    /// The earliest moment at which the timer may be delivered.
    pub due: UtcMillis,
    /// The number of deliveries that began. A delivery that ended with a snooze, a park or a release does not count
    /// ([`Event`](crate::state::Event)).
    pub deliveries: u32,
    /// The number of deliveries that failed.
    pub failures: u32,
    /// The error of the last failed delivery. `None` if no delivery has failed.
    pub last_error: Option<Box<str>>,
    /// The state of the timer, with the data of that state.
    pub state: State,
    /// The trace context of the timer's creator, in the form of the header `traceparent`. `None` if the creator gave no
    /// trace context.
    pub trace: Option<Box<str>>,
    /// True if the caller chose the id. The store remembers a chosen id until an hour after the timer's end. So the
    /// creation can be repeated in this time without creating a second timer.
    pub has_chosen_id: bool,
    /// The moment from which the greatest age of the policy counts, for an occurrence of a schedule, and for one that
    /// has died and left its series. Its [`scheduled`](Self::scheduled) is the instant of the plan, and stays when the
    /// timer is moved or replayed. `None` for any other timer, whose age counts from `scheduled`.
    pub age_from: Option<UtcMillis>,
}

impl Timer {
    /// Returns the pause that follows the timer's next failure, by its policy.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::policy::{Backoff, Policy};
    /// use tourbillon_durable::timer::{Timer, TimerId};
    ///
    /// let backoff = Backoff::Ladder(vec![Duration::from_secs(1), Duration::from_secs(60)]);
    /// let timer = Timer::new(TimerId::fresh(), "mail", UtcMillis::from_millis(1_900_000_000_000));
    /// let timer = Timer { policy: Policy { backoff, ..Policy::default() }, failures: 1, ..timer };
    /// assert_eq!(timer.next_pause(), Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn next_pause(&self) -> Duration {
        self.policy.backoff.pause(self.id, self.failures.saturating_add(1))
    }

    /// Makes a pending timer that is due at `due`. The timer has no namespace, key, payload or labels, and has the
    /// default policy.
    ///
    /// Callers of [`Timers`](crate::Timers) describe a timer by a [`Spec`](crate::Spec) instead. This function is for
    /// stores and their tests, which set the other fields like this:
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::timer::{Timer, TimerId};
    ///
    /// let due = UtcMillis::from_millis(1_900_000_000_000);
    /// let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", due) };
    /// assert_eq!((timer.due, timer.scheduled, timer.deliveries), (due, due, 0));
    /// ```
    #[must_use]
    pub fn new(id: TimerId, kind: impl Into<Box<str>>, due: UtcMillis) -> Self {
        Self {
            id,
            namespace: "".into(),
            key: None,
            kind: kind.into(),
            payload: Payload::default(),
            labels: Vec::new(),
            policy: Policy::default(),
            series: None,
            created: UtcMillis::ZERO,
            scheduled: due,
            due,
            deliveries: 0,
            failures: 0,
            last_error: None,
            state: State::Pending,
            trace: None,
            has_chosen_id: false,
            age_from: None,
        }
    }

    /// Returns whether the timer still owns its key. A timer loses its key when it dies, or when it is withdrawn during
    /// its delivery. Another timer may have the key now.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::state::{Death, DeathReason, State};
    /// use tourbillon_durable::timer::{Timer, TimerId};
    ///
    /// let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", UtcMillis::ZERO) };
    /// assert!(timer.owns_key());
    /// let dead = State::Dead(Death { reason: DeathReason::Attempts, at: UtcMillis::ZERO });
    /// assert!(!Timer { state: dead, ..timer }.owns_key());
    /// ```
    #[must_use]
    pub fn owns_key(&self) -> bool {
        !matches!(self.state, State::Dead(_) | State::Leased(Lease { withdrawn: Some(_), .. }))
    }

    /// Returns whether the timer's state is [`State::Parked`] with this reason. A parked timer is set aside: it is not
    /// delivered, even if it is due.
    #[must_use]
    pub fn is_parked_for(&self, reason: &str) -> bool {
        matches!(&self.state, State::Parked(other) if **other == *reason)
    }

    /// Returns the timer's key with its namespace, or `None` if the timer has no key.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::timer::{KeyOf, Timer, TimerId};
    ///
    /// let timer = Timer::new(TimerId::fresh(), "mail", UtcMillis::ZERO);
    /// assert_eq!(timer.key_of(), None);
    /// let timer = Timer { namespace: "shop".into(), key: Some("order 17".into()), ..timer };
    /// assert_eq!(timer.key_of(), Some(KeyOf { namespace: "shop".into(), key: "order 17".into() }));
    /// ```
    #[must_use]
    pub fn key_of(&self) -> Option<KeyOf> {
        let key = self.key.clone()?;
        Some(KeyOf { namespace: self.namespace.clone(), key })
    }

    /// Looks for a zero byte in the timer's texts. Returns the name of the first text that has one. Does not look at
    /// the payload, which may have any bytes.
    pub(crate) fn part_with_zero_byte(&self) -> Option<&'static str> {
        let (expression, zone) = match self.series.as_ref().map(|series| &series.plan) {
            Some(Plan::Cron { expression, zone, .. }) => (Some(expression), Some(zone)),
            Some(Plan::Monthly { zone, .. }) => (None, Some(zone)),
            Some(Plan::Every(_)) | None => (None, None),
        };
        let reason = if let State::Parked(reason) = &self.state { Some(reason) } else { None };
        let texts = [
            ("the namespace", Some(&self.namespace)),
            ("the key", self.key.as_ref()),
            ("the kind's name", Some(&self.kind)),
            ("the trace context", self.trace.as_ref()),
            ("the reason to park", reason),
            ("the last error", self.last_error.as_ref()),
            ("the cron expression", expression),
            ("the time zone", zone),
        ];
        let labels = self.labels.iter().map(|label| ("a label", Some(label)));
        let mut all = texts.into_iter().chain(labels);
        all.find(|(_, text)| text.is_some_and(|text| has_zero_byte(text))).map(|(part, _)| part)
    }
}
