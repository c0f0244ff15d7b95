//! Lists of stored timers, a page at a time.

use crate::state::Phase;
use crate::timer::Timer;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The timers that a list has: those for which all given conditions hold. By default all timers.
///
/// One condition chooses the index by which the store finds the timers, the first of these that is given: the label,
/// the beginning of the key (but for dead timers), the reason, the phase. The order is that of the index: by label and
/// id, by key, by due moment (pending, or parked for one reason), by the end of the lease, or by the moment of death.
/// Without these conditions the order is that of the ids. Each of these orders can be turned round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// The namespace. `None` with a label or a key means the namespace whose name is empty.
    pub namespace: Option<Box<str>>,
    /// A label.
    pub label: Option<Box<str>>,
    /// The beginning of the key. A dead timer has left its key to others, and is listed by it only if dead timers are
    /// asked for. A timer that was withdrawn while a delivery of it goes on is not listed by its key.
    pub key_prefix: Option<Box<str>>,
    /// The phase.
    pub phase: Option<Phase>,
    /// The kind.
    pub kind: Option<Box<str>>,
    /// The reason for which the timers are parked.
    pub reason: Option<Box<str>>,
    /// The moment after which the timers are due.
    pub due_after: Option<UtcMillis>,
    /// The moment before which the timers are due.
    pub due_before: Option<UtcMillis>,
    /// The moment after which the timers were made. Timers that were made after now were made while the store's clock
    /// was ahead.
    pub created_after: Option<UtcMillis>,
    /// Whether the list begins with the last timer of its order, and goes back.
    pub descending: bool,
}

impl Filter {
    /// The only namespace in which the list looks.
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

    /// Whether nothing but the namespace and the phase chooses the timers.
    pub(crate) fn is_by_phase(&self) -> bool {
        let Self { namespace, phase, descending, .. } = self;
        let by_phase =
            Self { namespace: namespace.clone(), phase: *phase, descending: *descending, ..Self::default() };
        *self == by_phase
    }

    /// Whether a timer meets all conditions.
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

/// The place in a list after a page. It holds for the same filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(pub(crate) Box<[u8]>);

impl Cursor {
    /// A cursor of a store's own making.
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

    /// The bytes of the cursor.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The timers. Fewer than asked for, and even none, if the store had to look at many that do not meet the
    /// conditions. A page of a namespace, whole or by one phase, without another condition, has timers unless there are
    /// none left, whatever other namespaces have. It is full if the namespace has no more than 2,000 timers, and always
    /// if the phase is parked or dead. If the timers of a namespace are more than a million, or 50,000 on Redis, and
    /// lie behind as many of others, a page of those that are pending or leased may still be empty.
    pub timers: Vec<Timer>,
    /// The place after them; `None` at the end of the list.
    pub next: Option<Cursor>,
}
