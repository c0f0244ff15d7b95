//! What one turn is asked to do; a child process, or a foreign program, gets it as JSON.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A case of a workload: how many, how long, from how many threads. A workload uses what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Case {
    /// As in a table's heading.
    pub(crate) name: String,
    /// Pending, or coming due, or a thread's connections.
    pub(crate) timers: usize,
    /// Populations that grow out of each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sizes: Vec<usize>,
    /// How many threads call, one measurement after the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) threads: Vec<usize>,
    /// How many different delays there are; 0 for any.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) durations: usize,
    /// Of ours and of the sharded wheel.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) shards: usize,
    /// At most.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) operations: usize,
    /// Operations a second.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) rate: u64,
    /// How long it is measured, or over how long timers come due.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) time_ms: u64,
    /// From the first insert to the first deadline.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) lead_ms: u64,
    /// For the contestant to bring what was scheduled to where it waits.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) settle_ms: u64,
}

impl Case {
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    pub(crate) fn lead(&self) -> Duration {
        Duration::from_millis(self.lead_ms)
    }

    pub(crate) fn settle(&self) -> Duration {
        Duration::from_millis(self.settle_ms)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A count as people write it.
pub(crate) fn thousands(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_comma_for_each_thousand() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(10_000_000), "10,000,000");
    }

    #[test]
    fn what_a_case_does_not_use_is_not_in_its_json() {
        let case = Case { timers: 3, ..Case::named("few") };
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(text, r#"{"name":"few","timers":3}"#);
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
    }
}
