//! The sections of the page, with their texts and columns.

mod form;
mod postgres;

pub(super) use form::{Column, Section};

use form::LATENESS_AND_CPU;
use postgres::POSTGRES;

/// How late the handlers of timers were called.
const LATENESS: &[Column] = &[
    ("p50_ms", "p50, ms"),
    ("p99_ms", "p99, ms"),
    ("p999_ms", "p99.9, ms"),
    ("max_ms", "max, ms"),
    ("min_ms", "min, ms"),
];

pub(super) const SECTIONS: [Section; 10] = [
    Section {
        id: "D1",
        title: "Create",
        work: "Timers due in 1 to 30 days, with a payload of 64 bytes and a key of 16: {one} one by one, then {waiting} with \
               64 callers that each wait for their answer, then {batch} in batches of 1,000. A batch is one call of the \
               peer's; ours, which has no such call, makes 1,000 calls and waits for all. CPU is that of client and server. \
               Checked: all timers are there after each part.",
        names_the_best: false,
        tables: &[
            (
                "create",
                "One by one",
                &[
                    ("one_rate", "creations/s"),
                    ("one_p50_ms", "p50, ms"),
                    ("one_p99_ms", "p99, ms"),
                    ("one_cpu_us", "CPU, µs each"),
                ],
            ),
            (
                "create",
                "64 waiting",
                &[
                    ("waiting_rate", "creations/s"),
                    ("waiting_p50_ms", "p50, ms"),
                    ("waiting_p99_ms", "p99, ms"),
                    ("waiting_cpu_us", "CPU, µs each"),
                ],
            ),
            (
                "create",
                "Batches of 1,000",
                &[
                    ("batch_rate", "creations/s"),
                    ("batch_p50_ms", "p50 of a batch, ms"),
                    ("batch_p99_ms", "p99 of a batch, ms"),
                    ("batch_cpu_us", "CPU, µs each"),
                ],
            ),
        ],
        notes: &[],
    },
    Section {
        id: "D2",
        title: "Bytes of a pending timer",
        work: "{timers} timers pending, as in D1, {quiet} s after the last creation; then again after {churn} of them \
               were cancelled and created once more and one key was replaced {replaces} times. The timers are created \
               with less durability than in the other parts (`Volatile`, everysec, `-f 50`, `synchronous_commit` off, \
               `sync_interval: 2m`). \
               Memory is that of the server's processes, less that before the first timer; for ours it is that of the \
               whole program, with a cache of fixed size. On the disk are the blocks of all files, for PostgreSQL without its write-ahead log.",
        names_the_best: false,
        tables: &[(
            "stock",
            "",
            &[
                ("ram", "memory, bytes"),
                ("disk", "disk, bytes"),
                ("churned_ram", "memory after churn"),
                ("churned_disk", "disk after churn"),
            ],
        )],
        notes: &[],
    },
    Section {
        id: "D3",
        title: "Lateness",
        work: "Timers due at random milliseconds, created before the first is due; a consumer that does nothing. Lateness is the time at the handler's call less the due moment, both of the system's clock. \
               beanstalkd keeps whole seconds. Checked: all fire, once, and none is early.",
        names_the_best: false,
        tables: &[
            ("late_1000", "{rate} a second for {seconds} s", LATENESS),
            ("late_5000", "{rate} a second for {seconds} s", LATENESS),
        ],
        notes: &[],
    },
    Section {
        id: "D4",
        title: "A herd",
        work: "{timers} timers due at one instant, created before; a consumer that does nothing. The rate counts from the \
               due moment to the last call of the handler. The peak is what the server's processes have gained, for \
               ours the whole program. Checked as D3.",
        names_the_best: false,
        tables: &[(
            "herd",
            "",
            &[
                ("rate", "deliveries/s"),
                ("first_ms", "first, ms late"),
                ("last_ms", "last, ms late"),
                ("peak_mb", "peak of memory, MB"),
            ],
        )],
        notes: &[],
    },
    Section {
        id: "D5",
        title: "Cancel and replace by key",
        work: "Of {timers} pending timers {churn} are cancelled by their keys with 64 callers; then, after they were created \
               again, the timer of one key is replaced {replaces} times with 64 callers. What stays on the disk is in D2. \
               Checked: the cancelled ones are gone, and one timer has the key.",
        names_the_best: false,
        tables: &[(
            "stock",
            "",
            &[
                ("cancel_rate", "cancels/s"),
                ("cancel_p99_ms", "p99, ms"),
                ("cancel_cpu_us", "CPU, µs each"),
                ("replace_rate", "replacements/s"),
                ("replace_p99_ms", "p99, ms"),
            ],
        )],
        notes: &[],
    },
    Section {
        id: "D6",
        title: "Kill -9 and start",
        work: "{timers} timers are far, {overdue} come due; SIGKILL for the server, for ours the program. The server, or \
               the program, starts when all of the {overdue} are overdue. Times are from the start of the process. Lost are \
               timers that neither fired nor are pending; doubled are deliveries beyond the first.",
        names_the_best: false,
        tables: &[(
            "stock",
            "",
            &[
                ("accepted_s", "first creation accepted, s"),
                ("fired_s", "first fires, s"),
                ("all_s", "all overdue fired, s"),
                ("lost", "lost"),
                ("doubled", "doubled"),
            ],
        )],
        notes: &[],
    },
    Section {
        id: "D7",
        title: "Idle",
        work: "{timers} far timers, a consumer that waits, {idle} s, which begin {quiet} s after the last creation: the \
               checkpoint that ours makes 10 s after its last change is over by then. Processor time, to 10 ms, and voluntary context \
               switches of all threads of server and consumer.",
        names_the_best: false,
        tables: &[("stock", "", &[("idle_cpu_ms", "CPU, ms"), ("idle_wakes", "switches")])],
        notes: &[],
    },
    Section {
        id: "D8",
        title: "The service",
        work: "The service is a process with an HTTP listener, and its load and its receiver are another process on the same \
               cores. The library, with the same durability, does the same work in one process without a network: its calls of \
               handlers stand for callbacks. A timer has the key and the payload of D1; in the service it has the URL of the \
               receiver besides. The lean load sends requests that were made before, on plain sockets from one thread: \
               service and load share the cores. Each part has a new file. CPU is that of the service, then that of the load and the \
               receiver; for the library it is that of the whole program.",
        names_the_best: false,
        tables: &[
            (
                "service",
                "{waiting} creations over 64 connections, each of which waits for its answer; for the library 64 callers. \
                 Checked: all timers are there",
                &[
                    ("waiting_rate", "creations/s"),
                    ("waiting_p50_ms", "p50, ms"),
                    ("waiting_p99_ms", "p99, ms"),
                    ("waiting_cpu_us", "CPU, µs each"),
                    ("waiting_load_cpu_us", "CPU of the load, µs each"),
                    ("lean_rate", "with a lean load, creations/s"),
                    ("lean_cpu_us", "CPU, µs each"),
                    ("lean_load_cpu_us", "CPU of the lean load, µs each"),
                    ("floor_rate", "the same requests to a server that stores nothing, answers/s"),
                    ("floor_cpu_us", "its CPU, µs each"),
                ],
            ),
            (
                "service",
                "{herd} callbacks due at one instant, to a receiver that takes 1 ms for each, at most 200 at once. Checked: each \
                 arrives, none is early, a second one of a timer would have the same id",
                &[
                    ("rate", "callbacks/s"),
                    ("first_ms", "first, ms late"),
                    ("last_ms", "last, ms late"),
                    ("herd_doubled", "doubled"),
                    ("herd_cpu_us", "CPU, µs each"),
                    ("herd_load_cpu_us", "CPU of the receiver, µs each"),
                ],
            ),
            (
                "service",
                "{rate} callbacks a second for {seconds} s, due at random milliseconds. Lateness is the receiver's time at the \
                 arrival of the whole request less the due moment in the request. Checked as before",
                &[
                    ("late_p50_ms", "p50, ms"),
                    ("late_p99_ms", "p99, ms"),
                    ("late_p999_ms", "p99.9, ms"),
                    ("late_max_ms", "max, ms"),
                    ("late_min_ms", "min, ms"),
                    ("late_doubled", "doubled"),
                    ("late_cpu_us", "CPU, µs each"),
                    ("late_load_cpu_us", "CPU of the receiver, µs each"),
                ],
            ),
            (
                "service",
                "{timers} timers pending: the resident memory of the whole process, {quiet} s after the last creation, and the \
                 disk",
                &[("stock_mb", "memory, MB"), ("stock_disk", "disk, bytes a timer")],
            ),
        ],
        notes: &[],
    },
    Section {
        id: "D9",
        title: "On a Redis server",
        work: "`tourbillon-redis` and BullMQ, each on a redis-server of its own with the same options; payload and key as in \
               D1, work and checks as in D1, D3 and D4. CPU is that of client and server. Memory is that of the server, less that \
               before the first timer.",
        names_the_best: false,
        tables: &[
            (
                "redis_create",
                "{waiting} creations with {callers} callers that each wait for their answer, and {batch} more in batches of 1,000",
                &[
                    ("waiting_rate", "creations/s"),
                    ("waiting_p50_ms", "p50, ms"),
                    ("waiting_p99_ms", "p99, ms"),
                    ("waiting_cpu_us", "CPU, µs each"),
                    ("batch_rate", "in batches, creations/s"),
                    ("ram", "memory of a pending timer, bytes"),
                ],
            ),
            ("redis_late", "Lateness at {rate} a second for {seconds} s", LATENESS_AND_CPU),
            (
                "redis_nodes_1",
                "{nodes} node, {rate} timers a second for {seconds} s",
                &[
                    ("p50_ms", "p50, ms"),
                    ("p99_ms", "p99, ms"),
                    ("cpu_us", "CPU, µs each"),
                    ("server_cpu_us", "of this the server's, µs"),
                ],
            ),
            (
                "redis_nodes_2",
                "{nodes} nodes on the same cores, the same work",
                &[
                    ("p50_ms", "p50, ms"),
                    ("p99_ms", "p99, ms"),
                    ("cpu_us", "CPU, µs each"),
                    ("server_cpu_us", "of this the server's, µs"),
                ],
            ),
            (
                "redis_nodes_4",
                "{nodes} nodes on the same cores, the same work",
                &[
                    ("p50_ms", "p50, ms"),
                    ("p99_ms", "p99, ms"),
                    ("cpu_us", "CPU, µs each"),
                    ("server_cpu_us", "of this the server's, µs"),
                ],
            ),
            (
                "redis_herd",
                "{timers} timers due at one instant",
                &[
                    ("rate", "deliveries/s"),
                    ("first_ms", "first, ms late"),
                    ("last_ms", "last, ms late"),
                    ("cpu_us", "CPU, µs each"),
                ],
            ),
        ],
        notes: &[],
    },
    POSTGRES,
];
