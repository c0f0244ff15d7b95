//! The task of a turn, in which one contestant runs one workload. A child process or a foreign program gets it as JSON.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A case of a workload: numbers of timers and threads, and times. Each workload reads only some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Case {
    /// The case's name, in the heading of the table.
    pub(crate) name: String,
    /// The number of timers that are pending or come due, or the number of a thread's connections.
    pub(crate) timers: usize,
    /// The numbers of pending timers at which the workload measures, in ascending order. The workload adds timers to
    /// reach the next number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) sizes: Vec<usize>,
    /// The numbers of calling threads. The workload measures once for each number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) threads: Vec<usize>,
    /// The number of different delays. 0 if any number may occur.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) durations: usize,
    /// The number of shards of our engine and of the sharded wheel.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) shards: usize,
    /// The largest number of operations in the measurement.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) operations: usize,
    /// The number of operations a second.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) rate: u64,
    /// The duration of the measurement, or the time over which timers come due, in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) time_ms: u64,
    /// The time from the first insert to the first deadline, in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) lead_ms: u64,
    /// The time, in milliseconds, that the contestant gets before the measurement to file scheduled timers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_does_not_use_is_not_in_its_json() {
        let case = Case { timers: 3, ..Case::named("few") };
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(text, r#"{"name":"few","timers":3}"#);
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
    }
}
