//! Defines a durable timer as it is stored, and the names by which it is found.

pub use crate::id::TimerId;

use crate::phase::{Lease, State};
use crate::plan::Series;
use crate::policy::Policy;
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// Names a timer by its id or its key.
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

/// A key in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyOf {
    /// The namespace. Empty in a program without namespaces.
    pub namespace: Box<str>,
    /// The key, which at most one timer of the namespace has.
    pub key: Box<str>,
}

impl From<TimerId> for Address {
    fn from(id: TimerId) -> Self {
        Self::Id(id)
    }
}

/// Addresses the timer with this key in the namespace whose name is empty.
impl From<&str> for Address {
    fn from(key: &str) -> Self {
        Self::Key(KeyOf { namespace: "".into(), key: key.into() })
    }
}

/// The bytes that a handler gets. A backup contains them in base 64.
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
    /// The timer's id, which each delivery carries.
    pub id: TimerId,
    /// The namespace of the key and of the labels.
    pub namespace: Box<str>,
    /// The key, if the timer has one.
    pub key: Option<Box<str>>,
    /// The name of the handler's kind.
    pub kind: Box<str>,
    /// The handler's argument.
    pub payload: Payload,
    /// Words by which timers are listed and cancelled together.
    pub labels: Vec<Box<str>>,
    /// The policy for deliveries that fail or are late.
    pub policy: Policy,
    /// The series of which this timer is an occurrence.
    pub series: Option<Series>,
    /// The moment at which the timer was accepted, by the store's clock.
    pub created: UtcMillis,
    /// The moment for which the timer was made. It stays when a delivery after a failure is due later.
    pub scheduled: UtcMillis,
    /// The moment from which the timer may be delivered.
    pub due: UtcMillis,
    /// The number of deliveries that were begun and not released.
    pub deliveries: u32,
    /// The number of deliveries that failed.
    pub failures: u32,
    /// The error of the last delivery that failed.
    pub last_error: Option<Box<str>>,
    /// The state of the timer, with the data of that state.
    pub state: State,
    /// The caller's trace context, as in the header `traceparent`.
    pub trace: Option<Box<str>>,
    /// Whether the caller chose the id. The store remembers such an id for an hour after the timer's end, so that a
    /// repeated creation makes no second timer.
    pub has_chosen_id: bool,
}

impl Timer {
    /// Returns the pause after the timer's next failure, by its policy.
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

    /// Makes a pending timer that is due at this moment: without namespace, key, payload and labels, under the default
    /// policy.
    ///
    /// Callers of [`Timers`](crate::Timers) describe a timer by a [`Spec`](crate::Spec). This is for stores and their
    /// tests, which set the other fields by an update:
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
        }
    }

    /// Returns whether the timer owns its key. Other timers may have the key of a timer that is dead, or that was
    /// withdrawn during its delivery.
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

    /// Returns whether the timer is parked for this reason.
    #[must_use]
    pub fn is_parked_for(&self, reason: &str) -> bool {
        matches!(&self.state, State::Parked(other) if **other == *reason)
    }

    /// Returns the timer's key with its namespace; `None` if it has no key.
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
}
