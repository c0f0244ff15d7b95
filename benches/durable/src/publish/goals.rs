//! The goals, whether they are met, and the reasons why goals are missed. The reasons have figures.

use super::text::{cell, fill_in};
use crate::plan::{
    BULLMQ, BULLMQ_EVERYSEC, CASES, GRAPHILE_100, OURS, OURS_BY_DEFAULT, OURS_IN_POSTGRES, OURS_LISTENING,
    OURS_ON_REDIS, PG_BOSS_500, RIVER, SERVICE,
};
use crate::results::Results;
use serde_json::Value;
use std::error::Error;
use std::fmt::Write as _;
use tourbillon_book::figure::{count, figure};

enum Bound {
    /// Our figure must be at least this multiple of the named contestant's figure.
    Times(f64, &'static str),
    /// Our figure must be at most this multiple of the named contestant's figure.
    AtMostTimes(f64, &'static str),
    AtLeast(f64),
    AtMost(f64),
}

struct Goal {
    /// The goal in words, with placeholders for the sizes of the case.
    text: &'static str,
    contestant: &'static str,
    case: &'static str,
    key: &'static str,
    bound: Bound,
    /// The text that the page shows if the goal is missed. [`with_figures`] puts figures into the text.
    reason: &'static str,
}

const GOALS: [Goal; 31] = [
    Goal {
        text: "Creation with 64 waiting, a second",
        contestant: OURS,
        case: "create",
        key: "waiting_rate",
        bound: Bound::Times(2.0, BULLMQ),
        reason: "A creation takes {ours create waiting_cpu_us} µs of processor time here and {bullmq create waiting_cpu_us} µs \
                 for BullMQ, client and server together. A write with fdatasync took {fsync create} ms.",
    },
    Goal {
        text: "Creation one by one, a second",
        contestant: OURS,
        case: "create",
        key: "one_rate",
        bound: Bound::Times(1.3, BULLMQ),
        reason: "Each creation waits for a sync of the disk: the median was {ours create one_p50_ms} ms here and \
                 {bullmq create one_p50_ms} ms for BullMQ, where a write with fdatasync took {fsync create} ms.",
    },
    Goal {
        text: "Cancels by key with a million pending, a second",
        contestant: OURS,
        case: "stock",
        key: "cancel_rate",
        bound: Bound::Times(1.0, BULLMQ),
        reason: "A cancel takes {ours stock cancel_cpu_us} µs of processor time here and {bullmq stock cancel_cpu_us} µs for \
                 BullMQ, client and server together. Redis has its data in memory and appends to a file; a cancel here \
                 changes pages of the store's trees, which random keys have at random places.",
    },
    Goal {
        text: "A pending timer on the disk, bytes",
        contestant: OURS,
        case: "stock",
        key: "disk",
        bound: Bound::AtMost(280.0),
        reason: "The file has free pages: redb writes changed pages to new places and keeps the old places for later. \
                 After `RedbStore::compact`, at the end of D6, a timer takes {ours stock compacted_disk} bytes.",
    },
    Goal {
        text: "Lateness at 1,000 a second, p99, ms",
        contestant: OURS,
        case: "late_1000",
        key: "p99_ms",
        bound: Bound::AtMost(5.0),
        reason: "The median is {ours late_1000 p50_ms} ms, and the largest {ours late_1000 max_ms} ms. A write with fdatasync \
                 took {fsync late_1000} ms.",
    },
    Goal {
        text: "First creation accepted after SIGKILL with a million pending, s",
        contestant: OURS,
        case: "stock",
        key: "accepted_s",
        bound: Bound::AtMost(1.0),
        reason: "The time includes the start of the process and the opening of the file. The first overdue timer fired \
                 {ours stock fired_s} s after the start.",
    },
    Goal {
        text: "Wake-ups while idle with a million far timers",
        contestant: OURS,
        case: "stock",
        key: "idle_wakes",
        bound: Bound::AtMost(0.0),
        reason: "They took {ours stock idle_cpu_ms} ms of processor time.",
    },
    Goal {
        text: "The service: creations over 64 connections, a second",
        contestant: SERVICE,
        case: "service",
        key: "waiting_rate",
        bound: Bound::Times(0.7, OURS_BY_DEFAULT),
        reason: "The exchange over HTTP costs more than the creation. On these cores a server that stores nothing answers the \
                 same requests of the same load at {service service floor_rate} a second, of which each takes \
                 {service service floor_cpu_us} µs of processor time in the server and {service service floor_load_cpu_us} µs \
                 in the load. A creation takes {service service waiting_cpu_us} µs in the service and \
                 {service service waiting_load_cpu_us} µs in the load; in the library, with its callers, \
                 {library service waiting_cpu_us} µs.",
    },
    Goal {
        text: "The service: callbacks a second to a receiver that takes 1 ms, at most 200 at once",
        contestant: SERVICE,
        case: "service",
        key: "rate",
        bound: Bound::AtLeast(8_000.0),
        reason: "A callback takes {service service herd_cpu_us} µs of processor time in the service and \
                 {service service herd_load_cpu_us} µs in the receiver on the same cores. A call of a handler in the library \
                 takes {library service herd_cpu_us} µs.",
    },
    Goal {
        text: "The service: lateness of callbacks at 1,000 a second, p99, ms",
        contestant: SERVICE,
        case: "service",
        key: "late_p99_ms",
        bound: Bound::AtMost(10.0),
        reason: "The median is {service service late_p50_ms} ms, and the largest {service service late_max_ms} ms; in the \
                 library, without a network, the 99th percentile is {library service late_p99_ms} ms. A write with fdatasync \
                 took {fsync service} ms.",
    },
    Goal {
        text: "The service: resident memory with a million pending, MB",
        contestant: SERVICE,
        case: "service",
        key: "stock_mb",
        bound: Bound::AtMost(100.0),
        reason: "The cache of the store (`store.cache`) is the greater part of it. The library with its cache of 128 MiB has \
                 {library service stock_mb} MB.",
    },
    Goal {
        text: "On Redis: creation with 200 waiting, a second",
        contestant: OURS_ON_REDIS,
        case: "redis_create",
        key: "waiting_rate",
        bound: Bound::Times(1.5, BULLMQ_EVERYSEC),
        reason: "A creation takes {redis redis_create waiting_cpu_us} µs of processor time here and \
                 {bullmq_everysec redis_create waiting_cpu_us} µs for BullMQ, client and server together.",
    },
    Goal {
        text: "On Redis: a pending timer in the server's memory, bytes",
        contestant: OURS_ON_REDIS,
        case: "redis_create",
        key: "ram",
        bound: Bound::AtMostTimes(0.5, BULLMQ_EVERYSEC),
        reason: "BullMQ has {bullmq_everysec redis_create ram} bytes. Here the record with its payload is an entry of a sorted \
                 set; its place in a slice and the entry of its key come on top, in the compact form of small sets.",
    },
    Goal {
        text: "On Redis: lateness at 500 a second, p99, ms",
        contestant: OURS_ON_REDIS,
        case: "redis_late",
        key: "p99_ms",
        bound: Bound::AtMost(15.0),
        reason: "The median is {redis redis_late p50_ms} ms, and the largest {redis redis_late max_ms} ms.",
    },
    Goal {
        text: "On Redis: timers due at one instant, a second",
        contestant: OURS_ON_REDIS,
        case: "redis_herd",
        key: "rate",
        bound: Bound::Times(3.0, BULLMQ_EVERYSEC),
        reason: "A timer takes {redis redis_herd cpu_us} µs of processor time here, from its claim to its end, and \
                 {bullmq_everysec redis_herd cpu_us} µs for BullMQ, client and server together.",
    },
    Goal {
        text: "In PostgreSQL: creation with 64 waiting, a second",
        contestant: OURS_IN_POSTGRES,
        case: "pg_create",
        key: "waiting_rate",
        bound: Bound::AtLeast(20_000.0),
        reason: "A creation takes {postgres pg_create waiting_cpu_us} µs of processor time, client and server together; the others \
                 make {river pg_create waiting_rate} (River), {graphile pg_create waiting_rate} (graphile-worker) and \
                 {pg_boss pg_create waiting_rate} (pg-boss) creations a second.",
    },
    Goal {
        text: "In PostgreSQL: log of a creation with 64 waiting, bytes",
        contestant: OURS_IN_POSTGRES,
        case: "pg_create",
        key: "waiting_wal",
        bound: Bound::AtMost(500.0),
        reason: "Nearly all of it is the row and its entries of three indexes: in batches of 1,000 it is \
                 {postgres pg_create batch_wal} bytes. River has {river pg_create waiting_wal} bytes, graphile-worker \
                 {graphile pg_create waiting_wal}, pg-boss {pg_boss pg_create waiting_wal}.",
    },
    Goal {
        text: "In PostgreSQL: a pending timer in the database, bytes",
        contestant: OURS_IN_POSTGRES,
        case: "pg_stock",
        key: "disk",
        bound: Bound::AtMost(300.0),
        reason: "The table has {postgres pg_stock rows_disk} bytes, and the indexes of ids, keys and due moments have \
                 {postgres pg_stock ids_disk}, {postgres pg_stock keys_disk} and {postgres pg_stock dues_disk}. Built again at \
                 the end of the turn, with full pages, the indexes have {postgres pg_stock packed_disk} bytes together. \
                 graphile-worker has {graphile pg_stock disk} bytes, pg-boss {pg_boss pg_stock disk}, River \
                 {river pg_stock disk}.",
    },
    Goal {
        text: "In PostgreSQL: timers due at one instant, a second",
        contestant: OURS_IN_POSTGRES,
        case: "pg_herd",
        key: "rate",
        bound: Bound::AtLeast(25_000.0),
        reason: "A timer takes {postgres pg_herd cpu_us} µs of processor time from its claim to its end, client and server \
                 together. graphile-worker makes {graphile pg_herd rate} a second, pg-boss {pg_boss pg_herd rate}, River \
                 {river pg_herd rate}.",
    },
    Goal {
        text: "In PostgreSQL: log of a timer's whole life, bytes",
        contestant: OURS_IN_POSTGRES,
        case: "pg_herd",
        key: "wal",
        bound: Bound::AtMost(900.0),
        reason: "A lease is a row of its own with its index, beside the lock of the timer. graphile-worker writes \
                 {graphile pg_herd wal} bytes, pg-boss {pg_boss pg_herd wal}, River {river pg_herd wal}.",
    },
    Goal {
        text: "In PostgreSQL: lateness at 1,000 a second, p99, ms",
        contestant: OURS_IN_POSTGRES,
        case: "pg_late",
        key: "p99_ms",
        bound: Bound::AtMost(10.0),
        reason: "The median is {postgres pg_late p50_ms} ms, and the largest {postgres pg_late max_ms} ms. River's 99th percentile \
                 is {river pg_late p99_ms} ms.",
    },
    Goal {
        text: "In PostgreSQL: lateness of timers that another program creates, p99, ms",
        contestant: OURS_IN_POSTGRES,
        case: "pg_foreign",
        key: "p99_ms",
        bound: Bound::AtMost(60.0),
        reason: "The store looks each 50 ms. The median is {postgres pg_foreign p50_ms} ms, and the largest \
                 {postgres pg_foreign max_ms} ms.",
    },
    Goal {
        text: "In PostgreSQL: the same with a connection that listens, p99, ms",
        contestant: OURS_LISTENING,
        case: "pg_foreign",
        key: "p99_ms",
        bound: Bound::AtMost(10.0),
        reason: "The median is {listening pg_foreign p50_ms} ms, and the largest {listening pg_foreign max_ms} ms.",
    },
    Goal {
        text: "In PostgreSQL: transactions a second while idle with {timers} far timers",
        contestant: OURS_IN_POSTGRES,
        case: "pg_stock",
        key: "idle_transactions",
        bound: Bound::AtMost(4.0),
        reason: "A node looks four times a second; autovacuum is off while the book counts. graphile-worker has \
                 {graphile pg_stock idle_transactions} transactions a second, pg-boss {pg_boss pg_stock idle_transactions}.",
    },
    Goal {
        text: "In PostgreSQL: p99 of lateness under a snapshot that is held for {seconds} s at {rate} a second, last third to \
               first third",
        contestant: OURS_IN_POSTGRES,
        case: "pg_held",
        key: "growth",
        bound: Bound::AtMost(2.0),
        reason: "The 99th percentile goes from {postgres pg_held first_p99_ms} to {postgres pg_held last_p99_ms} ms, that of \
                 graphile-worker from {graphile pg_held first_p99_ms} to {graphile pg_held last_p99_ms} ms, that of pg-boss from \
                 {pg_boss pg_held first_p99_ms} to {pg_boss pg_held last_p99_ms} ms, that of River from \
                 {river pg_held first_p99_ms} to {river pg_held last_p99_ms} ms.",
    },
    Goal {
        text: "In PostgreSQL: p99 of lateness under a snapshot that is held for {seconds} s at {rate} a second, last {part} s \
               to first {part} s",
        contestant: OURS_IN_POSTGRES,
        case: "pg_held_long",
        key: "parts_growth",
        bound: Bound::AtMost(2.0),
        reason: "The 99th percentile goes from {postgres pg_held_long part_1_p99_ms} to \
                 {postgres pg_held_long part_10_p99_ms} ms. At the end there are {postgres pg_held_long dead} dead rows, which \
                 the held snapshot keeps.",
    },
    Goal {
        text: "In PostgreSQL: timers that are more than a second late at the end of these {seconds} s",
        contestant: OURS_IN_POSTGRES,
        case: "pg_held_long",
        key: "behind",
        bound: Bound::AtMost(0.0),
        reason: "The last creation ended {postgres pg_held_long behind_ms} ms late, and the 99th percentile of lateness was \
                 {postgres pg_held_long part_10_p99_ms} ms at the end.",
    },
    Goal {
        text: "In PostgreSQL: time that a creation adds to a caller's transaction, one connection, %",
        contestant: OURS_IN_POSTGRES,
        case: "pg_caller",
        key: "one_more",
        bound: Bound::AtMost(15.0),
        reason: "The transaction is small: it takes {postgres pg_caller one_bare_ms} ms with its commit, and \
                 {postgres pg_caller one_timed_ms} ms with a creation. The call takes {postgres pg_caller one_call_ms} ms of \
                 this: an exchange with the server, functions in PL/pgSQL that check the arguments, and the row with its entries of \
                 four indexes and the row of `tally`. The rest is the commit of a longer log.",
    },
    Goal {
        text: "In PostgreSQL: the same with {callers} connections, %",
        contestant: OURS_IN_POSTGRES,
        case: "pg_caller",
        key: "many_more",
        bound: Bound::AtMost(15.0),
        reason: "Transactions that commit at the same time share a sync of the log, so their time is above all processor time: \
                 {postgres pg_caller many_bare_cpu_us} µs each without a creation, and {postgres pg_caller many_timed_cpu_us} µs \
                 with one, client and server together. {postgres pg_caller many_bare_rate} such transactions a second became \
                 {postgres pg_caller many_timed_rate}.",
    },
    Goal {
        text: "In PostgreSQL: log of a creation in a caller's transaction, bytes",
        contestant: OURS_IN_POSTGRES,
        case: "pg_caller",
        key: "one_wal",
        bound: Bound::AtMost(500.0),
        reason: "A timer that is due within an hour has its row, entries of four indexes, and the row of `tally`. A creation by \
                 SQL also writes a confirmation of the row, since it inserts with `ON CONFLICT`. Among 64 creations by the \
                 store of timers that are due later, a creation has {postgres pg_create waiting_wal} bytes.",
    },
    Goal {
        text: "In PostgreSQL: log of a creation by `schedule` in a transaction of its own, bytes",
        contestant: OURS_IN_POSTGRES,
        case: "pg_caller",
        key: "alone_wal",
        bound: Bound::AtMost(500.0),
        reason: "The transaction has a commit of its own beside the records of the row before. Timers that are due \
                 in ten days took {postgres pg_caller far_wal} bytes each.",
    },
];

/// Returns the sizes of a case: those that were measured, or else those of the plan.
fn sizes(case: &str, results: &Results) -> Value {
    let planned = || CASES.iter().find(|known| known.name == case).map(|known| (known.full)());
    let measured = results.case(case).map(|outcome| outcome.sizes.clone());
    measured.or_else(planned).unwrap_or_default()
}

/// Returns whether the medians meet the goal, with texts for the goal's row in the table. Returns `None` if a figure is
/// missing.
fn verdict(goal: &Goal, results: &Results) -> Option<(bool, String, String)> {
    let ours = results.samples(goal.case, goal.contestant, goal.key)?;
    Some(match goal.bound {
        Bound::Times(times, other) => {
            let others = results.samples(goal.case, other, goal.key)?.median();
            let ratio = ours.median() / others;
            (
                ratio >= times,
                format!("≥ {times} × {other}, {}", figure(others)),
                format!("{}: {} ×", cell(&ours), figure(ratio)),
            )
        }
        Bound::AtMostTimes(times, other) => {
            let others = results.samples(goal.case, other, goal.key)?.median();
            let ratio = ours.median() / others;
            (
                ratio <= times,
                format!("≤ {times} × {other}, {}", figure(others)),
                format!("{}: {} ×", cell(&ours), figure(ratio)),
            )
        }
        Bound::AtLeast(least) => (ours.median() >= least, format!("≥ {}", count(least)), cell(&ours)),
        Bound::AtMost(most) => (ours.median() <= most, format!("≤ {}", count(most)), cell(&ours)),
    })
}

/// Returns the part of the page that lists all goals.
pub(super) fn goals(results: &Results) -> Result<String, Box<dyn Error>> {
    let mut text = format!(
        "## The goals\n\nThe library is {OURS}, durable by a sync of the disk; the service is {SERVICE}.\n\n"
    );
    text += "| goal | bound | ours | |\n|---|---|---|---|\n";
    let mut reasons = String::new();
    for goal in &GOALS {
        let words = fill_in(goal.text, &sizes(goal.case, results));
        let Some((is_met, bound, ours)) = verdict(goal, results) else {
            writeln!(text, "| {words} | | - | not measured |")?;
            continue;
        };
        let met = if is_met { "met" } else { "**missed**" };
        writeln!(text, "| {words} | {bound} | {ours} | {met} |")?;
        if !is_met {
            writeln!(reasons, "- *{words}*: {}", with_figures(goal.reason, results)?)?;
        }
    }
    if !reasons.is_empty() {
        write!(text, "\nWhat falls short, with the figures beside it:\n\n{reasons}")?;
    }
    Ok(text + "\n")
}

/// Replaces each placeholder in a text by its figure. A placeholder such as `{ours stock disk}` names the contestant,
/// the case and the figure. `{fsync create}` is the median time of a write with fdatasync, measured just before the
/// case `create`.
pub(super) fn with_figures(text: &str, results: &Results) -> Result<String, Box<dyn Error>> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (place, after) = after.split_once('}').ok_or("a place without an end")?;
        filled += before;
        let words: Vec<&str> = place.split(' ').collect();
        let median = match words[..] {
            ["fsync", case] => results.case(case).map(|outcome| outcome.fsync_ms.0),
            [name, case, key] => results.samples(case, named(name)?, key).map(|samples| samples.median()),
            _ => return Err(format!("{{{place}}} names no figure").into()),
        };
        // Results of an earlier version may not have a figure.
        filled += &median.map_or("(not measured)".to_owned(), figure);
        rest = after;
    }
    Ok(filled + rest)
}

fn named(name: &str) -> Result<&'static str, Box<dyn Error>> {
    Ok(match name {
        "ours" => OURS,
        "library" => OURS_BY_DEFAULT,
        "service" => SERVICE,
        "bullmq" => BULLMQ,
        "bullmq_everysec" => BULLMQ_EVERYSEC,
        "redis" => OURS_ON_REDIS,
        "postgres" => OURS_IN_POSTGRES,
        "listening" => OURS_LISTENING,
        "river" => RIVER,
        "graphile" => GRAPHILE_100,
        "pg_boss" => PG_BOSS_500,
        _ => return Err(format!("no contestant is called {name}").into()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;
    use crate::plan::CONTESTANTS;

    #[test]
    fn a_goal_is_judged_by_the_figures() {
        let met = goals(&results(30_000.0, 14_000.0)).unwrap();
        assert!(met.contains("| 30,000: 2.14 × | met |"), "{met}");
        assert!(!met.contains("What falls short"), "{met}");
        let missed = goals(&results(27_000.0, 14_000.0)).unwrap();
        assert!(missed.contains("| 27,000: 1.93 × | **missed** |"), "{missed}");
        assert!(missed.contains("- *Creation with 64 waiting, a second*: A creation takes"), "{missed}");
        assert!(
            missed.contains("| The service: creations over 64 connections, a second | | - | not measured |")
        );
    }

    #[test]
    fn each_goal_has_a_reason_whose_places_name_figures() {
        for goal in &GOALS {
            let takes_part =
                |one: &str| CONTESTANTS.iter().any(|c| c.name == one && c.cases.contains(&goal.case));
            assert!(
                takes_part(goal.contestant) && CASES.iter().any(|case| case.name == goal.case),
                "{}",
                goal.text
            );
            if let Bound::Times(_, other) | Bound::AtMostTimes(_, other) = goal.bound {
                assert!(takes_part(other), "{}", goal.text);
            }
            assert!(
                !fill_in(goal.text, &sizes(goal.case, &Results::default())).contains('{'),
                "{}",
                goal.text
            );
            let reason = with_figures(goal.reason, &Results::default()).unwrap();
            assert!(reason.contains("(not measured)"), "{reason}");
        }
        assert!(with_figures("{ours create}", &Results::default()).is_err());
        assert!(with_figures("{nobody create rate}", &Results::default()).is_err());
    }

    #[test]
    fn a_reason_has_its_figures_from_the_results() {
        let results = results(30_000.0, 14_000.0);
        let text = with_figures(
            "{ours create waiting_rate}, {bullmq create waiting_rate}, {fsync create}.",
            &results,
        );
        assert_eq!(text.unwrap(), "30,000, 14,000, 0.100.");
    }
}
