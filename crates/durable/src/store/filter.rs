//! Describes lists of stored timers. A store returns a list a page at a time.

use crate::state::Phase;
use crate::timer::Timer;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The conditions that the timers of a list meet, and the order of the list. Without conditions the list has all
/// timers.
///
/// The store finds the timers by an index, and the list has the order of this index. The table shows the order for each
/// condition. If the filter has several conditions, the first row with one of these conditions applies.
///
/// | condition of the filter | order of the list |
/// |---|---|
/// | `label` | by id |
/// | `key_prefix`, with a `phase` other than dead or without a phase | by key |
/// | `reason` | by due moment |
/// | `phase` is pending | by due moment |
/// | `phase` is leased | by the end of the lease |
/// | `phase` is parked | by reason, or by due moment ([`TimerStore::lists_parked_by_due`]) |
/// | `phase` is dead | by the moment of death |
/// | none of these | by id |
///
/// Each order can be reversed.
///
/// [`TimerStore::lists_parked_by_due`]: super::TimerStore::lists_parked_by_due
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// The namespace of the listed timers. `None` means all namespaces. With a label or a key prefix, `None` means the
    /// namespace whose name is empty.
    pub namespace: Option<Box<str>>,
    /// The label that each listed timer has. `None` does not restrict the list.
    pub label: Option<Box<str>>,
    /// The beginning of the listed timers' keys. `None` does not restrict the list. A list by keys has only timers that
    /// still own their keys, so it has no dead timers, and no timers that were withdrawn during their deliveries. The
    /// exception is a filter whose `phase` is dead: it lists the dead timers whose former keys begin with this text.
    pub key_prefix: Option<Box<str>>,
    /// The phase of the listed timers. `None` does not restrict the list.
    pub phase: Option<Phase>,
    /// The kind of the listed timers. `None` does not restrict the list.
    pub kind: Option<Box<str>>,
    /// The reason for which the listed timers are parked. `None` does not restrict the list.
    pub reason: Option<Box<str>>,
    /// The moment after which the listed timers are due. `None` does not restrict the list.
    pub due_after: Option<UtcMillis>,
    /// The moment before which the listed timers are due. `None` does not restrict the list.
    pub due_before: Option<UtcMillis>,
    /// The moment after which the listed timers were created. `None` does not restrict the list. The moment may be in
    /// the future, because timers may have been created while the clock was ahead.
    pub created_after: Option<UtcMillis>,
    /// Whether the list has the reverse order.
    pub descending: bool,
}

impl Filter {
    /// Returns the namespace to which the filter restricts the list. `None` if the list has timers of all namespaces.
    ///
    /// ```
    /// use tourbillon_durable::store::Filter;
    ///
    /// assert_eq!(Filter::default().only_namespace(), None);
    /// let labelled = Filter { label: Some("customer 4".into()), ..Filter::default() };
    /// assert_eq!(labelled.only_namespace(), Some(""));
    /// ```
    #[must_use]
    pub fn only_namespace(&self) -> Option<&str> {
        let is_in_one = self.label.is_some() || self.key_prefix.is_some();
        self.namespace.as_deref().or(is_in_one.then_some(""))
    }

    /// Returns whether the namespace and the phase are the only conditions of the filter.
    pub(crate) fn is_by_phase(&self) -> bool {
        let Self { namespace, phase, descending, .. } = self;
        // All other fields must have their defaults, so a field that is added to `Filter` counts as a condition.
        let by_phase =
            Self { namespace: namespace.clone(), phase: *phase, descending: *descending, ..Self::default() };
        *self == by_phase
    }

    /// Returns whether a timer meets all conditions of the filter.
    ///
    /// ```
    /// # use tourbillon_durable::UtcMillis;
    /// # use tourbillon_durable::store::Filter;
    /// # use tourbillon_durable::timer::{Timer, TimerId};
    /// let timer = Timer { key: Some("order 17".into()), ..Timer::new(TimerId::fresh(), "mail", UtcMillis::ZERO) };
    /// let orders = Filter { key_prefix: Some("order ".into()), ..Filter::default() };
    /// assert!(orders.admits(&timer) && Filter::default().admits(&timer));
    /// assert!(!Filter { kind: Some("print".into()), ..orders }.admits(&timer));
    /// ```
    #[must_use]
    pub fn admits(&self, timer: &Timer) -> bool {
        let has_label = |label: &str| timer.labels.iter().any(|other| **other == *label);
        let has_prefix = |prefix: &str| {
            let is_listed = timer.owns_key() || self.phase == Some(Phase::Dead);
            is_listed && timer.key.as_ref().is_some_and(|key| key.starts_with(prefix))
        };
        self.only_namespace().is_none_or(|namespace| *namespace == *timer.namespace)
            && self.label.as_deref().is_none_or(has_label)
            && self.key_prefix.as_deref().is_none_or(has_prefix)
            && self.phase.is_none_or(|phase| phase == timer.state.phase())
            && self.kind.as_ref().is_none_or(|kind| *kind == timer.kind)
            && self.reason.as_deref().is_none_or(|reason| timer.is_parked_for(reason))
            && self.due_after.is_none_or(|moment| moment < timer.due)
            && self.due_before.is_none_or(|moment| timer.due < moment)
            && self.created_after.is_none_or(|moment| moment < timer.created)
    }
}

/// The place in a list at which the next page begins. A cursor is valid only with the filter of the page that returned
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub(crate) Box<[u8]>);

impl Cursor {
    /// Makes a cursor from bytes that a store has chosen. Other stores do not understand the bytes.
    ///
    /// ```
    /// use tourbillon_durable::store::Cursor;
    ///
    /// assert_eq!(Cursor::from_bytes(b"order 17").as_bytes(), b"order 17");
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes from which a store made the cursor.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A page of a list of timers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The timers of the page. The page may have fewer timers than the caller asked for, or no timers, because the
    /// filter has excluded many timers that the store has read.
    ///
    /// If the filter has only a namespace, or only a namespace and a phase, these rules hold:
    ///
    /// - If the phase is parked or dead, or if the namespace has at most 2,000 timers, each page except the last is
    ///   full.
    /// - Otherwise, if the namespace has at most a million timers (50,000 on Redis), each page except the last has at
    ///   least one timer. In a larger namespace, the store returns an empty page when it has read 20,000 timers of
    ///   other namespaces and none of this namespace.
    pub timers: Vec<Timer>,
    /// The place at which the next page begins. `None` at the end of the list.
    pub next: Option<Cursor>,
}
