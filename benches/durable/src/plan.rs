//! What is measured: the contestants with their configurations, and the cases with their sizes.

use serde_json::{Value, json};

/// What an answer of a contestant survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    PowerLoss,
    ProcessCrash,
    /// The loss of power for creations, and not for the ends of deliveries.
    Mixed,
}

impl Survives {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::PowerLoss => "loss of power",
            Self::ProcessCrash => "crash",
            Self::Mixed => "loss of power; ends: none",
        }
    }
}

pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) survives: Survives,
    /// The configuration in words, for the page.
    pub(crate) configuration: &'static str,
    /// The module in `peers`; `None` for ours.
    pub(crate) peer: Option<&'static str>,
    pub(crate) config: fn() -> Value,
    pub(crate) cases: &'static [&'static str],
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) rounds: usize,
    pub(crate) full: fn() -> Value,
    pub(crate) quick: fn() -> Value,
}

pub(crate) const OURS: &str = "tourbillon-durable, redb";
pub(crate) const BULLMQ: &str = "BullMQ, AOF always";

pub(crate) const CONTESTANTS: [Contestant; 9] = [
    Contestant {
        name: OURS,
        survives: Survives::PowerLoss,
        configuration: "`RedbStore` with its default cache of 128 MiB; `PowerLoss` for creations and for the ends of deliveries; handlers on tokio's two workers; no `catch_up_rate`",
        peer: None,
        config: || json!({ "durability": "power", "ends": "power" }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: "tourbillon-durable, redb, default ends",
        survives: Survives::Mixed,
        configuration: "the same with the default `end_durability`, `Volatile`: a delivery that ended within 20 ms before a crash is made again",
        peer: None,
        config: || json!({ "durability": "power", "ends": "volatile" }),
        cases: &["late_1000", "herd"],
    },
    Contestant {
        name: "tourbillon-durable, redb, ProcessCrash",
        survives: Survives::ProcessCrash,
        configuration: "the same with `ProcessCrash` for both; cancels are `PowerLoss`",
        peer: None,
        config: || json!({ "durability": "process", "ends": "process" }),
        cases: &["create"],
    },
    Contestant {
        name: BULLMQ,
        survives: Survives::PowerLoss,
        configuration: "redis-server `--appendonly yes --appendfsync always --save \"\"`, else its defaults; key as `jobId`, `removeOnComplete`; one client process, one worker with `concurrency: 100`",
        peer: Some("bullmq"),
        config: || json!({ "appendfsync": "always" }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: "BullMQ, AOF everysec",
        survives: Survives::ProcessCrash,
        configuration: "the same with `--appendfsync everysec`",
        peer: Some("bullmq"),
        config: || json!({ "appendfsync": "everysec" }),
        cases: &["create"],
    },
    Contestant {
        name: "beanstalkd, -f 0",
        survives: Survives::PowerLoss,
        configuration: "`-b` and `-f 0` (fsync at each write); no keys: the key goes with the payload; delays in whole seconds, rounded up; 64 connections, 32 for consumers; a batch is pipelined on one",
        peer: Some("beanstalkd"),
        config: || json!({ "sync": 0 }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: "beanstalkd, -f 50",
        survives: Survives::ProcessCrash,
        configuration: "the same with `-f 50` (fsync each 50 ms at most)",
        peer: Some("beanstalkd"),
        config: || json!({ "sync": 50 }),
        cases: &["create"],
    },
    Contestant {
        name: "graphile-worker, PostgreSQL",
        survives: Survives::PowerLoss,
        configuration: "PostgreSQL with `initdb`'s settings (`fsync` and `synchronous_commit` on, 128 MB of buffers), 64 connections; key as `jobKey`; `concurrentJobs: 24`, `localQueue: 500`, completions in batches; `pollInterval: 2000`, its default; batches by `addJobs`",
        peer: Some("graphile"),
        config: || json!({ "pollInterval": 2_000 }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: "graphile-worker, PostgreSQL, poll 100",
        survives: Survives::PowerLoss,
        configuration: "the same with `pollInterval: 100`",
        peer: Some("graphile"),
        config: || json!({ "pollInterval": 100 }),
        cases: &["late_1000"],
    },
];

pub(crate) const CASES: [Case; 5] = [
    Case {
        name: "create",
        workload: "create",
        rounds: 3,
        full: || json!({ "one": 3_000, "waiting": 20_000, "batch": 50_000 }),
        quick: || json!({ "one": 100, "waiting": 1_000, "batch": 2_000 }),
    },
    Case {
        name: "late_1000",
        workload: "late",
        rounds: 3,
        full: || json!({ "rate": 1_000, "seconds": 6, "lead": 4 }),
        quick: || json!({ "rate": 200, "seconds": 2, "lead": 3 }),
    },
    Case {
        name: "late_5000",
        workload: "late",
        rounds: 3,
        full: || json!({ "rate": 5_000, "seconds": 4, "lead": 8 }),
        quick: || json!({ "rate": 500, "seconds": 2, "lead": 3 }),
    },
    Case {
        name: "herd",
        workload: "herd",
        rounds: 3,
        full: || json!({ "timers": 20_000, "lead": 7 }),
        quick: || json!({ "timers": 2_000, "lead": 4 }),
    },
    Case {
        name: "stock",
        workload: "stock",
        rounds: 1,
        full: || {
            json!({
                "timers": 1_000_000, "quiet": 10, "idle": 20, "churn": 30_000, "replaces": 10_000,
                "overdue": 100_000, "lead": 25,
            })
        },
        quick: || {
            json!({
                "timers": 5_000, "quiet": 1, "idle": 2, "churn": 500, "replaces": 200, "overdue": 1_000, "lead": 5,
            })
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contestants_take_part_in_cases_that_exist() {
        for contestant in &CONTESTANTS {
            for case in contestant.cases {
                assert!(CASES.iter().any(|known| known.name == *case), "{}: {case}", contestant.name);
            }
        }
        for case in &CASES {
            assert!(CONTESTANTS.iter().any(|one| one.peer.is_none() && one.cases.contains(&case.name)));
        }
    }
}
