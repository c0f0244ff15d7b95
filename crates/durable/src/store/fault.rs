//! Describes faults in the structure of a store.

use crate::timer::TimerId;
use core::fmt;

/// A fault in a store's structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The name of the table that has the fault.
    pub table: &'static str,
    /// The id of the timer that has the fault. `None` if the fault concerns more than a single timer.
    pub timer: Option<TimerId>,
    /// A description of the fault, for a message.
    pub fault: Box<str>,
}

impl Fault {
    /// Makes a fault. `table` is the name of the table, or of the corresponding part of a store without tables.
    ///
    /// ```
    /// use tourbillon_durable::store::Fault;
    ///
    /// let fault = Fault::new("keys", None, "an entry is no timer's");
    /// assert_eq!(fault.to_string(), "keys: an entry is no timer's");
    /// ```
    #[must_use]
    pub fn new(table: &'static str, timer: Option<TimerId>, fault: impl Into<Box<str>>) -> Self {
        Self { table, timer, fault: fault.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timer {
            Some(timer) => write!(f, "{}: timer {timer}: {}", self.table, self.fault),
            None => write!(f, "{}: {}", self.table, self.fault),
        }
    }
}
