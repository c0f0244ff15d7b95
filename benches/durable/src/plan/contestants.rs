//! The contestants with their configurations.

use super::{Contestant, Survives};
use serde_json::json;

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
pub(super) const AWA: &str = "awa, PostgreSQL, poll 50";
pub(super) const BEANSTALKD: &str = "beanstalkd, -f 0";
pub(super) const GRAPHILE: &str = "graphile-worker, PostgreSQL";
pub(crate) const GRAPHILE_100: &str = "graphile-worker, PostgreSQL, poll 100";
pub(super) const PG_BOSS: &str = "pg-boss, PostgreSQL";
pub(crate) const PG_BOSS_500: &str = "pg-boss, PostgreSQL, poll 500";
pub(super) const NATS: &str = "NATS JetStream, sync always";

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
        configuration: "the service with the library as in the row before, in a process of its own, and with its settings by default but for `callbacks.allow_http`, `callbacks.allow_private`, a limit of 200 callbacks at a time to a host and a limit of a million creations a second; among the defaults is a `catch_up_rate` of 10,000 a second. The load and the receiver are one other process: hyper's client with 64 connections for creations, the crate `tourbillon-client` for batches, hyper's server for callbacks",
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
            "pg_caller",
            "pg_herd",
            "pg_stock",
            "pg_held",
            "pg_held_long",
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
        cases: &["pg_create", "pg_late", "pg_herd", "pg_stock"],
    },
    Contestant {
        name: RIVER,
        survives: Survives::PowerLoss,
        configuration: "the crate `riverqueue` 0.5.0 on the same server, 64 connections; key as a unique job by its arguments; a queue with 1,000 workers, `fetch_poll_interval` 50 ms, `fetch_cooldown` 10 ms, a scheduler that runs each second, and an election each 500 ms; batches by `insert_many`; cancel by the id that the insertion has returned; no replacement, since a unique job that is inserted again is skipped; ended jobs stay in the table, as by default",
        peer: Some("river"),
        config: || json!({ "poll": 50 }),
        cases: &["pg_create", "pg_late", "pg_herd", "pg_stock", "pg_held"],
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
