//! The section of the stores in PostgreSQL.

use super::form::{LATENESS_AND_CPU, Section};

pub(super) const POSTGRES: Section = Section {
    id: "D10",
    title: "In PostgreSQL, and under a held snapshot",
    work: "The libraries on PostgreSQL, all on one server that synchronises its files, each turn in a database of its own; \
           beside them our store in SQLite, which has no server. Payload and key as in D1, work and checks as in D1, D3, D4, \
           D5, D6 and D7; several nodes as in D9, and the service as in D8. CPU is that of client and server. Log is the \
           server's write-ahead log, with all that the server writes to it during the part. Bytes of the database are those of \
           its files; SQLite has those of its file. What is lost or early under faults is decided by other runs: [ten minutes of \
           kills at 611 timers a second](../../crates/postgres/DESIGN.md#ten-minutes-under-faults), and a minute of each other \
           fault. There nothing was lost, early, or delivered after its cancel.",
    names_the_best: true,
    tables: &[
        (
            "pg_create",
            "{one} creations one by one",
            &[
                ("one_rate", "creations/s"),
                ("one_p50_ms", "p50, ms"),
                ("one_p99_ms", "p99, ms"),
                ("one_cpu_us", "CPU, µs each"),
                ("one_wal", "log, bytes each"),
            ],
        ),
        (
            "pg_create",
            "{waiting} creations with 64 callers that each wait for their answer",
            &[
                ("waiting_rate", "creations/s"),
                ("waiting_p50_ms", "p50, ms"),
                ("waiting_p99_ms", "p99, ms"),
                ("waiting_cpu_us", "CPU, µs each"),
                ("waiting_wal", "log, bytes each"),
            ],
        ),
        (
            "pg_create",
            "{batch} creations in batches of 1,000; the bytes of a pending timer after all three parts",
            &[
                ("batch_rate", "creations/s"),
                ("batch_cpu_us", "CPU, µs each"),
                ("batch_wal", "log, bytes each"),
                ("disk", "database, bytes a timer"),
            ],
        ),
        ("pg_late", "Lateness at {rate} a second for {seconds} s", LATENESS_AND_CPU),
        (
            "pg_foreign",
            "Lateness at {rate} a second for {seconds} s, of timers that another program creates by `schedule` in SQL, each due \
             within 45 ms. A store finds them by a look each 50 ms, or by a notification. The first second does not count: \
             an idle store looks each 250 ms",
            LATENESS_AND_CPU,
        ),
        (
            "pg_caller",
            "Transactions of another program on one connection, with and without a creation by `schedule`",
            &[
                ("one_bare_ms", "without: p50, ms"),
                ("one_timed_ms", "with: p50, ms"),
                ("one_call_ms", "the call: p50, ms"),
                ("one_more", "more time, %"),
                ("one_bare_cpu_us", "CPU without, µs each"),
                ("one_timed_cpu_us", "CPU with, µs each"),
                ("one_bare_wal", "log without, bytes"),
                ("one_wal", "log of the creation, bytes"),
            ],
        ),
        (
            "pg_caller",
            "The same on {callers} connections at a time",
            &[
                ("many_bare_rate", "without: transactions/s"),
                ("many_timed_rate", "with: transactions/s"),
                ("many_bare_ms", "without: p50, ms"),
                ("many_timed_ms", "with: p50, ms"),
                ("many_call_ms", "the call: p50, ms"),
                ("many_more", "more time, %"),
                ("many_bare_cpu_us", "CPU without, µs each"),
                ("many_timed_cpu_us", "CPU with, µs each"),
                ("many_wal", "log of the creation, bytes"),
            ],
        ),
        (
            "pg_caller",
            "{alone} creations by `schedule`, each in a transaction of its own: due in 30 minutes, and due in ten days",
            &[
                ("alone_ms", "due soon: p50, ms"),
                ("alone_wal", "log, bytes"),
                ("far_ms", "due far: p50, ms"),
                ("far_wal", "log, bytes"),
            ],
        ),
        (
            "pg_herd",
            "{timers} timers due at one instant, and the log of a timer's whole life, creation included",
            &[
                ("rate", "deliveries/s"),
                ("first_ms", "first, ms late"),
                ("last_ms", "last, ms late"),
                ("cpu_us", "CPU, µs each"),
                ("wal", "log of a life, bytes"),
            ],
        ),
        (
            "pg_stock",
            "{timers} timers pending: the bytes of the database; cancels and replacements by key; {idle} s without a due timer",
            &[
                ("disk", "database, bytes a timer"),
                ("cancel_rate", "cancels/s"),
                ("cancel_cpu_us", "CPU, µs each"),
                ("replace_rate", "replacements/s"),
                ("idle_transactions", "idle: transactions/s"),
                ("idle_cpu_ms", "idle: CPU, ms"),
                ("idle_wakes", "idle: switches"),
            ],
        ),
        (
            "pg_stock",
            "SIGKILL for the server, and its start when {overdue} timers are overdue. Times are from the start",
            &[
                ("accepted_s", "first creation accepted, s"),
                ("fired_s", "first fires, s"),
                ("all_s", "all overdue fired, s"),
                ("lost", "lost"),
                ("doubled", "doubled"),
            ],
        ),
        (
            "pg_held",
            "{rate} timers a second are created and delivered for {seconds} s, each due 0.5 to 1.5 s after its creation, while \
             another transaction holds a snapshot: lateness of the first third and of the last third",
            &[
                ("first_p50_ms", "first third p50, ms"),
                ("first_p99_ms", "p99, ms"),
                ("last_p50_ms", "last third p50, ms"),
                ("last_p99_ms", "p99, ms"),
                ("growth", "p99, last to first"),
                ("behind_ms", "creations behind at the end, ms"),
                ("cpu_us", "CPU, µs each"),
            ],
        ),
        (
            "pg_held_long",
            "The same for {seconds} s at {rate} a second: the 99th percentile of lateness of each {part} s, in ms",
            &[
                ("part_1_p99_ms", "1st"),
                ("part_2_p99_ms", "2nd"),
                ("part_3_p99_ms", "3rd"),
                ("part_4_p99_ms", "4th"),
                ("part_5_p99_ms", "5th"),
                ("part_6_p99_ms", "6th"),
                ("part_7_p99_ms", "7th"),
                ("part_8_p99_ms", "8th"),
                ("part_9_p99_ms", "9th"),
                ("part_10_p99_ms", "10th"),
                ("parts_growth", "last to first"),
            ],
        ),
        (
            "pg_held_long",
            "All {seconds} s, and their end",
            &[
                ("p50_ms", "p50, ms"),
                ("p99_ms", "p99, ms"),
                ("max_ms", "max, ms"),
                ("behind", "timers more than 1 s late at the end"),
                ("behind_ms", "creations behind at the end, ms"),
                ("dead", "dead rows at the end"),
                ("disk_mb", "database at the end, MB"),
                ("cpu_us", "CPU, µs each"),
            ],
        ),
        (
            "pg_nodes_1",
            "{nodes} node, {rate} timers a second for {seconds} s",
            &[
                ("p50_ms", "p50, ms"),
                ("p99_ms", "p99, ms"),
                ("cpu_us", "CPU, µs each"),
                ("server_cpu_us", "of this the server's, µs"),
            ],
        ),
        (
            "pg_nodes_2",
            "{nodes} nodes on the same cores, the same work",
            &[
                ("p50_ms", "p50, ms"),
                ("p99_ms", "p99, ms"),
                ("cpu_us", "CPU, µs each"),
                ("server_cpu_us", "of this the server's, µs"),
            ],
        ),
        (
            "pg_nodes_4",
            "{nodes} nodes on the same cores, the same work",
            &[
                ("p50_ms", "p50, ms"),
                ("p99_ms", "p99, ms"),
                ("cpu_us", "CPU, µs each"),
                ("server_cpu_us", "of this the server's, µs"),
            ],
        ),
        (
            "pg_service",
            "The service: {waiting} creations over 64 connections, each of which waits for its answer",
            &[
                ("waiting_rate", "creations/s"),
                ("waiting_p50_ms", "p50, ms"),
                ("waiting_p99_ms", "p99, ms"),
                ("waiting_cpu_us", "CPU of the service, µs each"),
                ("waiting_server_cpu_us", "of the server"),
                ("waiting_load_cpu_us", "of the load"),
            ],
        ),
        (
            "pg_service",
            "{herd} callbacks due at one instant, to a receiver that takes 1 ms for each, at most 200 at once",
            &[
                ("rate", "callbacks/s"),
                ("first_ms", "first, ms late"),
                ("last_ms", "last, ms late"),
                ("herd_doubled", "doubled"),
                ("herd_cpu_us", "CPU of the service, µs each"),
                ("herd_server_cpu_us", "of the server"),
                ("herd_load_cpu_us", "of the receiver"),
            ],
        ),
        (
            "pg_service",
            "{rate} callbacks a second for {seconds} s, due at random milliseconds",
            &[
                ("late_p50_ms", "p50, ms"),
                ("late_p99_ms", "p99, ms"),
                ("late_p999_ms", "p99.9, ms"),
                ("late_max_ms", "max, ms"),
                ("late_doubled", "doubled"),
                ("late_cpu_us", "CPU of the service, µs each"),
                ("late_server_cpu_us", "of the server"),
                ("late_load_cpu_us", "of the receiver"),
            ],
        ),
    ],
    notes: &[
        (
            "pg_caller",
            "Without a timer a transaction is `BEGIN`, a `SELECT` of an article's price by its number, an `INSERT` of an order, an \
             `UPDATE` of the article's stock, and `COMMIT`, which waits for a sync of the log, as by default; each is an exchange \
             with the server, and the tables have no index but their primary keys. With a timer there is one `SELECT \
             tourbillon.schedule(...)` more, with a key and a payload as in D1, due in 30 minutes: such a timer has an entry in \
             one index more than a timer that is due in more than an hour. {pairs} pairs of blocks of {each} transactions on each \
             connection: one block with timers, one without, and the two change places from pair to pair. \"More time\" is the \
             median over the pairs of the time of the block with timers to that of the other, less 100 %: the goal is at most 15 %, \
             read as a part of the time without the timer, which is the stricter of two readings. The goal for the log is 500 \
             bytes: in the caller's transaction a creation has {postgres pg_caller one_wal} bytes, in its own \
             {postgres pg_caller alone_wal}. Ours alone: graphile-worker's `add_job` is SQL as well, and was not measured. A node that looks for due timers runs beside it, with nothing due. \
             Checked: all orders and all timers are there.",
        ),
        (
            "pg_stock",
            "All contestants have {timers} far timers; the goals have a million. After the bytes are read, the server makes a checkpoint, \
             and autovacuum is off for the idle seconds. A node's look is one statement, in a transaction of its own: for ours, \
             transactions are statements. The idle node is one of the library: a node of the service sends some two statements a \
             second more, for [what the nodes share](../../crates/postgres/DESIGN.md#shared-documents). SQLite has no server: as for redb in D6, the program is killed and started again, and its \
             stock is created with less durability, as in D2. River cancels by the number that the insertion has returned, \
             which the client keeps, and has no replacement. awa is missing, since it creates too slowly.\n\n\
             Of the bytes of a timer of ours, the table has {postgres pg_stock rows_disk}, the index of the ids \
             {postgres pg_stock ids_disk}, that of the keys {postgres pg_stock keys_disk}, and that of the due moments \
             {postgres pg_stock dues_disk}; built again with full pages at the end of the turn, the indexes have \
             {postgres pg_stock packed_disk} together. A test of `crates/postgres`, whose figures are in its \
             [DESIGN.md](../../crates/postgres/DESIGN.md#figures), finds less, since it creates its timers one after the other, \
             with ascending keys and due moments, which leave the pages of the indexes nearly full: here the due moments are \
             random, and many callers at a time create the timers of a batch, in no order of their keys.",
        ),
        (
            "pg_held",
            "This differs from the goal, which has a snapshot that is held for an hour, or for ten minutes in a smaller run, at 800 \
             timers a second: here it is {seconds} s at {rate} a second, for all contestants but SQLite, which was not measured here. \
             The ten minutes are the next part, \
             for ours alone, since each contestant would take as long again.",
        ),
        (
            "pg_held_long",
            "In one round, ours alone. Parts are counted in the order of the deliveries. Dead rows are those that \
             `pg_stat_user_tables` counts in all tables of the store, while the snapshot is still held. \
             All timers of the 6th part and some of the 7th were late by more than those of the other parts, and after that no \
             timer was. The run does not show what held them up. The goal compares the last part with the first, so it does \
             not count these parts; the p99 of all {seconds} s is {postgres pg_held_long p99_ms} ms.",
        ),
    ],
};
