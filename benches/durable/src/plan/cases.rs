//! The cases with their sizes.

use super::Case;
use super::contestants::{BEANSTALKD, GRAPHILE, GRAPHILE_100, NATS, PG_BOSS, PG_BOSS_500, RIVER};
use serde_json::{Value, json};

/// A case of the workload `late`, in three rounds.
const fn late(name: &'static str, full: fn() -> Value, quick: fn() -> Value) -> Case {
    Case { name, workload: "late", rounds: 3, once: &[], full, quick }
}

pub(crate) const CASES: [Case; 24] = [
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
        name: "pg_caller",
        workload: "caller",
        rounds: 3,
        once: &[],
        full: || json!({ "pairs": 40, "each": 100, "callers": 8, "alone": 2_000 }),
        quick: || json!({ "pairs": 4, "each": 10, "callers": 8, "alone": 50 }),
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
        once: &[RIVER, GRAPHILE_100, PG_BOSS_500],
        full: || {
            json!({
                "timers": 1_000_000, "quiet": 3, "idle": 10, "churn": 5_000, "replaces": 500, "overdue": 10_000,
                "lead": 4,
            })
        },
        quick: || {
            json!({
                "timers": 5_000, "quiet": 1, "idle": 3, "churn": 500, "replaces": 100, "overdue": 1_000, "lead": 3,
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
    Case {
        name: "pg_held_long",
        workload: "held",
        rounds: 1,
        once: &[],
        full: || json!({ "rate": 800, "seconds": 600, "part": 60 }),
        quick: || json!({ "rate": 200, "seconds": 6, "part": 2 }),
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
