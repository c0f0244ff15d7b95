//! Defines the names of schedules, and computes from them the schedules' jitter and the namespaces of their timers.

use crate::id::TimerId;
use crate::policy::Policy;
use crate::texts::has_zero_byte;
use crate::timer::{Address, KeyOf};
use core::time::Duration;
use uuid::Uuid;

/// The prefix of the namespaces in which schedules are stored. A schedule is stored as a timer.
pub(super) const NAMESPACES: &str = "/schedules/";
/// The namespace of the UUIDs that are computed from the names of schedules. A schedule's UUID determines its jitter.
const JITTERS: Uuid = Uuid::from_u128(0x2f6a_0c39_5d1e_4b8a_9a57_31c6_e0f4_7d22);
/// The character between the namespace and the key in the name of a schedule. Neither the namespace nor the key may
/// contain this character.
const BETWEEN: char = '\u{1f}';
const LONGEST_NAMESPACE: usize = 64;
pub(super) const LONGEST_KEY: usize = 128;

/// The name of a schedule: its namespace and its key.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::schedule::ScheduleKey;
///
/// let at = ScheduleKey::new("shop", "daily report");
/// assert_eq!(*at.label(), *"schedule:daily report");
/// assert!(at.jitter(Duration::from_secs(60)) < Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    /// The namespace of the schedule and its occurrences. The namespace has at most 64 bytes.
    pub namespace: Box<str>,
    /// The key, of 1 to 128 bytes. The key must not contain the characters U+0000 and U+001F. The occurrences have the
    /// label `schedule:` followed by the key.
    pub key: Box<str>,
}

impl ScheduleKey {
    /// Makes the name of the schedule with this key in this namespace. The name is not checked here.
    ///
    /// ```
    /// use tourbillon_durable::schedule::ScheduleKey;
    ///
    /// let at = ScheduleKey::new("shop", "daily report");
    /// assert_eq!((&*at.namespace, &*at.key), ("shop", "daily report"));
    /// ```
    pub fn new(namespace: impl Into<Box<str>>, key: impl Into<Box<str>>) -> Self {
        Self { namespace: namespace.into(), key: key.into() }
    }

    /// Returns the label that each occurrence of the schedule has.
    ///
    /// ```
    /// use tourbillon_durable::schedule::ScheduleKey;
    ///
    /// assert_eq!(*ScheduleKey::new("shop", "daily report").label(), *"schedule:daily report");
    /// ```
    #[must_use]
    pub fn label(&self) -> Box<str> {
        format!("schedule:{}", self.key).into()
    }

    /// Returns true if the namespace and the key have permitted lengths and characters.
    pub(super) fn is_valid(&self) -> bool {
        let is_free = |text: &str| !text.contains(BETWEEN) && !has_zero_byte(text);
        let is_name = !self.key.is_empty() && self.key.len() <= LONGEST_KEY && is_free(&self.key);
        is_name && self.namespace.len() <= LONGEST_NAMESPACE && is_free(&self.namespace)
    }

    pub(super) fn address(&self) -> Address {
        Address::Key(KeyOf { namespace: namespace_of(&self.namespace), key: self.key.clone() })
    }

    /// Returns the time from an instant of the schedule to the due moment of its occurrence. The time is less than
    /// `window`. The same name and window always give the same time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::schedule::ScheduleKey;
    ///
    /// let hour = Duration::from_secs(3_600);
    /// let jitter = |key| ScheduleKey::new("shop", key).jitter(hour);
    /// assert!(jitter("a") < hour && jitter("a") == jitter("a") && jitter("a") != jitter("b"));
    /// ```
    #[must_use]
    pub fn jitter(&self, window: Duration) -> Duration {
        let name = format!("{}{BETWEEN}{}", self.namespace, self.key);
        // A policy computes the jitter from the id of a timer, so the name is turned into an id.
        let name = TimerId::from_u128(Uuid::new_v5(&JITTERS, name.as_bytes()).as_u128());
        Policy { jitter: window, ..Policy::default() }.jitter_of(name)
    }
}

/// Returns the namespace of the timers that store the schedules of `namespace`.
pub(super) fn namespace_of(namespace: &str) -> Box<str> {
    format!("{NAMESPACES}{namespace}").into()
}
