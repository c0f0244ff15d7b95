//! The questions of a user, and their answers from the results.

use super::families::family_of;
use super::figure::figure;
use super::tables::{escaped, markdown};
use super::text::{fill_in, with_unit};
use super::verdict::Verdict;
use crate::results::{Outcome, Results, Row, Samples};
use crate::workload::Family;
use std::fmt;

/// A figure of ours beside the same figure of another contestant.
struct Question {
    text: &'static str,
    workload: &'static str,
    case: &'static str,
    column: &'static str,
    ours: &'static str,
    against: Against,
    /// The reason why ours loses, if it does, with places for figures. Empty if the reason is not known.
    why: &'static str,
}

enum Against {
    /// The best contestant that is not ours and reads its clock as often.
    Best,
    /// The one contestant that does the same; the others of the workload are parts of that work, or do other work.
    Only(&'static str),
}
use Against::{Best, Only};

const MANY: &str = "1,000,000 pending";
const CONNECTIONS: &str = "10,000 connections";
const LOOPED: &str = "1,000,000 timers";
const DUE: &str = "1,000,000 due over 2 s";
const AT_ONCE: &str = "1,000,000 due at once";
const ITEMS: &str = "100,000 items";
const ONE: &str = "100,000 items, 1 consumer";
const TWO: &str = "100,000 items, 2 consumers";
const FITS: &str = "10,000 timers of 1 to 60 s";
const EXCEEDS: &str = "1,000,000 timers of 1 to 60 s";

const HANDLE: &str = "engine, Handle";
const TIMER: &str = "engine, Timer";
const CALLERS_NOW: &str = "engine, Timer, caller's now";
const OWN_WORKERS: &str = "engine, own workers";
const LOOP: &str = "engine, LoopShard";
const TURNED: &str = "engine, turned by a task";
const LIMIT: &str = "engine, timeout";
const KEYED: &str = "Keyed, schedule";
const REPEAT: &str = "Tasks::repeat, own workers";
const CLOSURE: &str = "TaskEngine, after and cancel";
const MAP: &str = "ExpiryMap";
const ITEM_QUEUE: &str = "DelayQueue";
const THREADS: &str = "DelayQueue, threads";
const WHEEL: &str = "wheel, radix 256";

const QUEUE: &str = "Mutex of HashMap and DelayQueue: reset";
const INTERVAL: &str = "tokio, interval, a task each";
const TASK: &str = "tokio, spawn a sleep and abort it";
const MOKA: &str = "moka, time to live";

const LOCKS: &str = "A caller that stays with one core's wheel, behind a mutex of its own, never waits for another \
    caller.";
const REFRESHED: &str = "A random deadline sometimes lies before the timer's present ticket, and then costs another \
    ticket. The rest is two cache misses, on the handle and on the timer's slot.";
const TICK: &str = "A deadline is rounded up to a tick of 1 ms. A structure whose thread wakes for each deadline waits \
    for no tick, but takes more processor time: `Mutex<BTreeMap>` takes \
    {expiry; 1,000,000 due over 2 s; Mutex<BTreeMap>; cpu}, ours \
    {expiry; 1,000,000 due over 2 s; engine, own workers; cpu}. `Builder::tick` chooses between the two: our p99 is \
    {expiry; 1,000,000 due over 2 s; engine, own workers; p99} with ticks of 1 ms and \
    {expiry; 1,000,000 due over 2 s; engine, own workers, tick 0.1 ms; p99} with ticks of 0.1 ms, which take \
    {expiry; 1,000,000 due over 2 s; engine, own workers, tick 0.1 ms; cpu}.";
const HANDED_OVER: &str = "A thread watches the thread that runs handlers. Handlers that run inline need no such \
    thread, and then the timers take {expiry; 1,000,000 due over 2 s; engine, inline; cpu}.";
const WATCHED: &str = "In each tick in which timers are due, a shard's thread of ours wakes, and so does a thread that \
    watches it. Handlers that run inline need no such thread, and then there are \
    {expiry; 1,000,000 due over 2 s; engine, inline; wakes} wake-ups. Coarser ticks need fewer, and fire later: the two \
    rows with such ticks have {expiry; 1,000,000 due over 2 s; engine, inline, tick 4 ms; wakes} with a p99 of \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 4 ms; p99}, and \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 16 ms; wakes} with a p99 of \
    {expiry; 1,000,000 due over 2 s; engine, inline, tick 16 ms; p99}.";
const ONE_LIST: &str = "Netty claims each timer by a compare-and-swap, as ours does, so the claim is not the reason. \
    Netty's one thread walks the list of one slot and calls each handler in place. Our shards take tickets out of \
    their wheels, hand them over in chunks to several threads on these two cores, and read the timer of each ticket \
    elsewhere in memory. The cost of each of these steps has not been measured.";
const EACH_CLAIMED: &str = "A thread that holds a lock owns all due timers behind it at once. A due timer of ours is \
    claimed by a compare-and-swap before its handler runs, because any thread may cancel it at that moment, and the \
    timer is elsewhere in memory than its ticket. How much of the difference each of the two explains has not been \
    measured.";
const TWO_WAKE_UPS: &str = "A shard's thread that wakes up may wait until a computing thread has used up its scheduler \
    slice.";
const PREEMPTED: &str = "Our shards' threads are pinned. A thread's timers are at the shard of the core on which the \
    thread first used the engine, and in each tick in which something is due the shard's thread takes that core for a \
    moment. At a million operations a second the thread that plays the load had no core for \
    {mixed; 1,000,000 operations a second; engine, own workers; waited} by the scheduler's account, in short \
    pieces: its longest gap was {mixed; 1,000,000 operations a second; engine, own workers; gap}. Beside \
    `Mutex<cascading wheel>`, whose threads are not pinned, it had no core for \
    {mixed; 1,000,000 operations a second; Mutex<cascading wheel>, a shard a core; waited}. With shards that \
    may move it had none for {mixed; 1,000,000 operations a second; engine, own workers, unpinned; waited}, and an \
    operation takes {mixed; 1,000,000 operations a second; engine, own workers, unpinned; op_p999}. The length of a \
    scheduler slice makes no difference that the rounds show: with the system's slice in place of the short one the \
    thread had no core for {mixed; 1,000,000 operations a second; engine, own workers, the system's slice; waited}, \
    and an operation takes {mixed; 1,000,000 operations a second; engine, own workers, the system's slice; op_p999}. \
    It is the same with handlers that run inline: at 100,000 operations a second an operation takes \
    {mixed; 100,000 operations a second; engine, inline; op_p999}, with a longest gap of \
    {mixed; 100,000 operations a second; engine, inline; gap}, and the thread had no core for \
    {mixed; 100,000 operations a second; engine, inline; waited} in all. Only one thread schedules here, so that a \
    mutex is always free.";
const QUEUE_OF_ALL: &str = "A task that a thread outside of the runtime wakes waits in the queue that all workers \
    share, and the engine's threads are outside of it. tokio fires its timers on a worker, which puts the tasks into \
    its own queue. A task of the runtime that turns a loop's shard (`LoopShard::turn_as_task`) does so, too, and the \
    lateness is then {proxy; 1,000 connections; engine, turned by a task; late_p99}.";
const ALSO_A_TASK: &str = "The task that turns the shard is one of the runtime's: it waits for its turn among the \
    tasks that are ready. It sleeps by tokio's timer, so that each moment is rounded up to tokio's millisecond as \
    well as to the engine's tick. How much each of the two adds has not been measured.";
const LINKS: &str = "An intrusive wheel keeps its links in the timer and nothing elsewhere. Each of our timers has a \
    word on which threads race, and a ticket in a shard's wheel.";
const NOT_POLLED_YET: &str = "async-io reads no clock and makes no timer until the inner future is pending, and the \
    future of this workload is ready at once. Our timeout reads the clock when it is created, as tokio's does \
    ({timeout; a ready future; tokio, timeout; t1} from one thread).";
const KEY_MISSES: &str = "Each step misses the cache: the key's bucket, the old timer's slot and the new one's. A \
    queue behind a mutex moves its timer and keeps the entry. This is less work as long as no other thread wants the \
    lock.";
const GUARDED: &str = "Each run of our tasks is claimed by a compare-and-swap, takes the lock of its task several \
    times and that of its closure once, and arms the timer anew. tokio's task is polled by the worker that fired its \
    timer, or by an idle worker that took the task from that worker's queue. The cost of each of these steps has not \
    been measured.";
const SHARED: &str = "tokio-util's queue has one owner and no lock; behind a mutex of its own it takes \
    {queue; 100,000 items; tokio-util, DelayQueue behind a Mutex; pair} a pair and \
    {queue; 100,000 items; tokio-util, DelayQueue behind a Mutex; last} to the last item. Any thread may use our \
    queue, which has a lock.";
const LOCKED_PUSH: &str = "tokio-util's queue has one owner, who needs no lock to push. Any thread may push to ours: each \
    push takes and releases a lock, with a locked instruction each.";
const NO_CASCADE: &str = "The Linux wheel fires up to an eighth of the delay late, and never moves a timer from one \
    level to another. A cascading wheel is precise and takes \
    {structures; 10,000 timers of 1 to 60 s; cascading wheel; expire}: its lists are in the cache, so that moving a \
    timer is cheap. Our wheel moves tickets between chunks, and searches for the next occupied tick.";
const IN_ORDER: &str = "A tree stores its payloads side by side, in the order of their deadlines. Each insert pays for \
    this order: {structures; 1,000,000 timers of 1 to 60 s; BTreeMap; insert}, against \
    {structures; 1,000,000 timers of 1 to 60 s; wheel, radix 256; insert}.";
const OWN_PLACE: &str = "A cancel reads and writes the timer's own entry, both in the heap and in our wheel. The heap \
    leaves the timer's place in the order until the whole heap is rebuilt, which does not happen in this workload. Our \
    wheel sweeps some stale tickets after every so many cancels.";

const QUESTIONS: &[Question] = &[
    ask("Arm and cancel, a million pending, 1 thread", ("pair", MANY, "t1"), HANDLE, Best, LOCKS),
    ask("Arm and cancel, a million pending, 2 threads", ("pair", MANY, "t2"), HANDLE, Best, LOCKS),
    ask("Arm and cancel, a million pending, 8 threads", ("pair", MANY, "t8"), HANDLE, Best, LOCKS),
    ask(
        "Arm a connection's timeout for a request, disarm it, 1 thread",
        ("rearm", CONNECTIONS, "t1"),
        TIMER,
        Best,
        LOCKS,
    ),
    ask(
        "Arm a connection's timeout for a request, disarm it, 2 threads",
        ("rearm", CONNECTIONS, "t2"),
        TIMER,
        Best,
        LOCKS,
    ),
    ask(
        "The same in an event loop that knows the time",
        ("rearm", CONNECTIONS, "t1"),
        CALLERS_NOW,
        Best,
        LOCKS,
    ),
    ask("Move one of 100,000 pending timers", ("refresh", "100,000 pending", "t1"), TIMER, Best, REFRESHED),
    ask("Move one of a million pending timers", ("refresh", MANY, "t1"), TIMER, Best, REFRESHED),
    ask("An event loop's timer: arm it, disarm it", ("loops", LOOPED, "arm"), LOOP, Best, ""),
    ask("An event loop: a one-shot among a million others", ("loops", LOOPED, "among"), LOOP, Best, ""),
    ask("An event loop: move one of a million timers", ("loops", LOOPED, "refresh"), LOOP, Best, ""),
    ask("A million due over two seconds: lateness, p99.9", ("expiry", DUE, "p999"), OWN_WORKERS, Best, TICK),
    ask("A million due over two seconds: CPU time", ("expiry", DUE, "cpu"), OWN_WORKERS, Best, HANDED_OVER),
    ask(
        "A million owned timers due over two seconds: CPU time",
        ("expiry", DUE, "cpu"),
        TIMER,
        Best,
        HANDED_OVER,
    ),
    ask("Wake-ups for 1,000 fired timers", ("expiry", DUE, "wakes"), OWN_WORKERS, Best, WATCHED),
    ask(
        "A million due at once: until the last has fired",
        ("burst", AT_ONCE, "last"),
        OWN_WORKERS,
        Best,
        ONE_LIST,
    ),
    ask("A million due at once: CPU time", ("burst", AT_ONCE, "cpu"), OWN_WORKERS, Best, EACH_CLAIMED),
    ask(
        "Two threads compute on two cores: lateness, p99.9",
        ("busy", "20,000 timers, 2 threads burn", "p999"),
        OWN_WORKERS,
        Best,
        TWO_WAKE_UPS,
    ),
    ask(
        "Four threads compute on two cores: lateness, p99.9",
        ("busy", "20,000 timers, 4 threads burn", "p999"),
        OWN_WORKERS,
        Best,
        TWO_WAKE_UPS,
    ),
    ask(
        "A proxy on tokio that fills the cores: lateness of its timeouts, p99",
        ("proxy", "1,000 connections", "late_p99"),
        OWN_WORKERS,
        Best,
        QUEUE_OF_ALL,
    ),
    ask(
        "The proxy with the engine turned by a task: lateness of its timeouts, p99",
        ("proxy", "1,000 connections", "late_p99"),
        TURNED,
        Best,
        ALSO_A_TASK,
    ),
    ask(
        "A proxy on tokio that fills the cores: an answer, p99",
        ("proxy", "1,000 connections", "answer_p99"),
        OWN_WORKERS,
        Best,
        "",
    ),
    ask(
        "The proxy with the engine turned by a task: an answer, p99",
        ("proxy", "1,000 connections", "answer_p99"),
        TURNED,
        Best,
        "",
    ),
    ask(
        "Mixed load, 100,000 a second: an operation, p99.9",
        ("mixed", "100,000 operations a second", "op_p999"),
        OWN_WORKERS,
        Best,
        PREEMPTED,
    ),
    ask(
        "Mixed load, a million a second: an operation, p99.9",
        ("mixed", "1,000,000 operations a second", "op_p999"),
        OWN_WORKERS,
        Best,
        PREEMPTED,
    ),
    ask(
        "Mixed load, a million a second: lateness, p99.9",
        ("mixed", "1,000,000 operations a second", "late_p999"),
        OWN_WORKERS,
        Best,
        TICK,
    ),
    ask("Memory of a pending timer, with its payload", ("memory", MANY, "bytes"), HANDLE, Best, LINKS),
    ask(
        "Wake-ups in ten idle seconds, 100,000 pending",
        ("idle", "100,000 pending, 10 s", "switches"),
        OWN_WORKERS,
        Best,
        "",
    ),
    ask(
        "Limit a future that is ready, 1 thread",
        ("timeout", "a ready future", "t1"),
        LIMIT,
        Best,
        NOT_POLLED_YET,
    ),
    ask(
        "Limit a future that is ready, 2 threads",
        ("timeout", "a ready future", "t2"),
        LIMIT,
        Best,
        NOT_POLLED_YET,
    ),
    ask("Schedule a closure and cancel it", ("closures", "100,000 pending", "t1"), CLOSURE, Only(TASK), ""),
    ask(
        "100,000 tasks each second: lateness, p99.9",
        ("periodic", "100,000 tasks, every 1 s", "p999"),
        REPEAT,
        Only(INTERVAL),
        GUARDED,
    ),
    ask(
        "100,000 tasks each second: CPU time in a second",
        ("periodic", "100,000 tasks, every 1 s", "cpu"),
        REPEAT,
        Only(INTERVAL),
        GUARDED,
    ),
    ask(
        "Replace the timer of one of a million keys, 1 thread",
        ("keys", "1,000,000 keys", "t1"),
        KEYED,
        Only(QUEUE),
        KEY_MISSES,
    ),
    ask(
        "Replace the timer of one of a million keys, 2 threads",
        ("keys", "1,000,000 keys", "t2"),
        KEYED,
        Only(QUEUE),
        KEY_MISSES,
    ),
    ask(
        "Read an entry of a map with a time to live",
        ("cache", "100,000 entries", "get"),
        MAP,
        Only(MOKA),
        "",
    ),
    ask(
        "Replace an entry of a map with a time to live",
        ("cache", "100,000 entries", "insert"),
        MAP,
        Only(MOKA),
        "",
    ),
    ask("Push an item into a delay queue, take it back", ("queue", ITEMS, "pair"), ITEM_QUEUE, Best, SHARED),
    ask(
        "Receive 100,000 items due at once: until the last",
        ("queue", ITEMS, "last"),
        ITEM_QUEUE,
        Best,
        SHARED,
    ),
    ask("100,000 jobs for the queue: a push", ("retries", ONE, "push"), THREADS, Best, LOCKED_PUSH),
    ask("100,000 jobs in the queue, 1 consumer: CPU an item", ("retries", ONE, "cpu"), THREADS, Best, ""),
    ask("100,000 jobs in the queue, 1 consumer: p99", ("retries", ONE, "p99"), THREADS, Best, ""),
    ask("100,000 jobs in the queue, 2 consumers: CPU an item", ("retries", TWO, "cpu"), THREADS, Best, ""),
    ask("100,000 jobs in the queue, 2 consumers: p99", ("retries", TWO, "p99"), THREADS, Best, ""),
    ask("The wheel alone, 10,000 timers: cancel", ("structures", FITS, "cancel"), WHEEL, Best, OWN_PLACE),
    ask("The wheel alone, 10,000 timers: expire", ("structures", FITS, "expire"), WHEEL, Best, NO_CASCADE),
    ask(
        "The wheel alone, a million timers: cancel",
        ("structures", EXCEEDS, "cancel"),
        WHEEL,
        Best,
        OWN_PLACE,
    ),
    ask(
        "The wheel alone, a million timers: expire",
        ("structures", EXCEEDS, "expire"),
        WHEEL,
        Best,
        IN_ORDER,
    ),
];

const fn ask(
    text: &'static str,
    (workload, case, column): (&'static str, &'static str, &'static str),
    ours: &'static str,
    against: Against,
    why: &'static str,
) -> Question {
    Question { text, workload, case, column, ours, against, why }
}

/// The number of questions that are won and lost, and the table of all questions, by the families of their workloads.
pub(super) fn table(results: &Results) -> String {
    let answers: Vec<_> = QUESTIONS.iter().map(|question| (question, question.answer(results))).collect();
    let mut table = markdown(["question", "verdict", "ours", "best other", "other / ours", "best of tokio"]);
    for family in Family::ALL {
        let of_family: Vec<_> =
            answers.iter().filter(|(question, _)| family_of(question.workload) == family).collect();
        if of_family.is_empty() {
            continue;
        }
        let count = Count::of(of_family.iter().map(|(_, answer)| answer));
        table.add_row([format!("**{}**", family.title()), count.to_string()]);
        table.add_rows(of_family.into_iter().map(|(question, answer)| match answer {
            Some(answer) => answer.cells(question),
            None => [question.text, "not measured", "", "", "", ""].map(escaped),
        }));
    }
    let count = Count::of(answers.iter().map(|(_, answer)| answer));
    format!("**Of {} questions: {count}.**\n\n{table}", answers.len())
}

/// The number of questions with each verdict.
#[derive(Default)]
struct Count {
    won: usize,
    level: usize,
    lost: usize,
    not_measured: usize,
}

impl Count {
    fn of<'a>(answers: impl Iterator<Item = &'a Option<Answer<'a>>>) -> Self {
        let mut count = Self::default();
        for answer in answers {
            *match answer.as_ref().map(|answer| answer.verdict) {
                Some(Verdict::Won) => &mut count.won,
                Some(Verdict::Level) => &mut count.level,
                Some(Verdict::Lost) => &mut count.lost,
                None => &mut count.not_measured,
            } += 1;
        }
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { won, level, lost, not_measured } = self;
        write!(f, "{won} won, {level} level, {lost} lost")?;
        if *not_measured > 0 {
            write!(f, ", {not_measured} not measured")?;
        }
        Ok(())
    }
}

/// The losses: a paragraph for each reason why ours loses.
pub(super) fn losses(results: &Results) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for question in QUESTIONS {
        let lost = question.answer(results).filter(|answer| answer.verdict == Verdict::Lost);
        let Some(answer) = lost else { continue };
        let other = escaped(&answer.other.contestant);
        let entry = format!("*{}* (to {other}, which takes {} of ours)", question.text, answer.share());
        match reasons.iter_mut().find(|(why, _)| *why == question.why && !why.is_empty()) {
            Some((_, entries)) => entries.push(entry),
            None => reasons.push((question.why, vec![entry])),
        }
    }
    if reasons.is_empty() {
        return "In none of these questions.".to_owned();
    }
    let paragraph = |(why, entries): (&str, Vec<String>)| {
        let why = if why.is_empty() { "Why is not known.".to_owned() } else { fill_in(why, results) };
        format!("- {}: {why}", entries.join("; "))
    };
    reasons.into_iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

/// The answer of the results to a question.
struct Answer<'a> {
    outcome: &'a Outcome,
    ours: Samples,
    other: &'a Row,
    others: Samples,
    tokio: Option<Samples>,
    verdict: Verdict,
}

impl Question {
    fn answer<'a>(&self, results: &'a Results) -> Option<Answer<'a>> {
        let outcome = results.outcome(self.workload, self.case)?;
        let row = outcome.row(self.ours)?;
        let other = match self.against {
            Best => outcome.best_like(row, self.column)?,
            Only(name) => outcome.row(name)?,
        };
        let (ours, others) = (row.samples(self.column)?, other.samples(self.column)?);
        let is_tokio = |other: &Row| other.contestant.starts_with("tokio") && other.is_like(row);
        let tokio = outcome.best(self.column, is_tokio).and_then(|row| row.samples(self.column));
        let verdict = Verdict::of(&ours, &others);
        Some(Answer { outcome, ours, other, others, tokio, verdict })
    }
}

impl Answer<'_> {
    fn cells(&self, question: &Question) -> [String; 6] {
        let figure_of = |samples: &Samples| with_unit(samples.median(), self.outcome, question.column);
        let with_range = |samples: &Samples| format!("{}{}", figure_of(samples), samples.range(figure));
        let ratio = self.others.median() / self.ours.median();
        let both = [&self.ours, &self.others];
        let doubt = if both.iter().any(|samples| samples.count() == 1) {
            // Its spread is not known.
            ", one round"
        } else if self.verdict == Verdict::Level && both.iter().any(|samples| samples.is_disturbed()) {
            // Level only because the rounds are too far apart to decide.
            " ~"
        } else {
            ""
        };
        let verdict = match self.verdict {
            Verdict::Level => format!("level{doubt}"),
            decided => format!("**{decided}**{doubt}"),
        };
        [
            question.text.to_owned(),
            verdict,
            with_range(&self.ours),
            escaped(&format!("{}: {}", self.other.contestant, with_range(&self.others))),
            if ratio.is_finite() { figure(ratio) } else { "-".to_owned() },
            self.tokio.as_ref().map_or_else(|| "-".to_owned(), figure_of),
        ]
    }

    /// The other's figure as a part of ours, such as `41.2 %`.
    fn share(&self) -> String {
        format!("{} %", figure(self.others.median() / self.ours.median() * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::{prose, synthetic, text};
    use crate::workloads::{WORKLOADS, measures};

    const OTHER: &str = "Mutex<BinaryHeap>";

    fn question(against: Against) -> Question {
        ask(
            "Pairs",
            ("pair", MANY, "t1"),
            HANDLE,
            against,
            "Because of {pair; 1,000,000 pending; engine, Handle; t1}.",
        )
    }

    fn answered(ours: &[f64], other: &[f64]) -> [String; 6] {
        let rows: [(&str, &[f64]); 3] = [(HANDLE, ours), (OTHER, other), ("tokio, Sleep", &[90.0, 92.0])];
        let outcome = synthetic::outcome("pair", MANY, &["t1"], &rows);
        let results = Results { outcomes: vec![outcome], ..synthetic::results() };
        let question = question(Best);
        question.answer(&results).unwrap().cells(&question)
    }

    #[test]
    fn a_verdict_stands_beside_its_figures() {
        let expected = [
            "Pairs",
            "**won**",
            "10.0 ns (9.00..11.0)",
            "Mutex\\<BinaryHeap>: 30.0 ns (20.0..40.0)",
            "3.00",
            "91.0 ns",
        ];
        assert_eq!(answered(&[9.0, 10.0, 11.0], &[20.0, 30.0, 40.0]), expected);
        assert_eq!(answered(&[29.0, 31.0], &[30.0, 33.0])[1], "level");
        assert_eq!(answered(&[50.0, 51.0], &[20.0, 30.0])[1], "**lost**");
    }

    #[test]
    fn a_verdict_in_doubt_says_so() {
        assert_eq!(answered(&[9.0], &[20.0, 30.0])[1], "**won**, one round");
        assert_eq!(answered(&[50.0, 51.0], &[20.0])[1], "**lost**, one round");
        assert_eq!(
            answered(&[0.0], &[0.0])[1..],
            ["level, one round", "0 ns", "Mutex\\<BinaryHeap>: 0 ns", "-", "91.0 ns"]
        );
        assert_eq!(answered(&[10.0, 90.0], &[20.0, 21.0])[1], "level ~");
        assert_eq!(answered(&[50.0, 90.0], &[20.0, 21.0])[1], "**lost**");
    }

    #[test]
    fn wins_and_losses_are_counted_and_losses_explained() {
        let mut results = synthetic::results();
        let counts = |results: &Results| table(results).lines().next().unwrap().to_owned();
        let before = counts(&results);
        let outcome = results.outcomes.iter_mut().find(|outcome| outcome.workload == "memory").unwrap();
        let ours = outcome.rows.iter_mut().find(|row| row.contestant == HANDLE).unwrap();
        ours.numbers.insert("bytes".to_owned(), vec![1e6; 3]);
        assert_ne!(counts(&results), before);
        let losses = losses(&results);
        assert!(losses.contains("*Memory of a pending timer, with its payload* (to "), "{losses}");
        assert!(losses.contains("which takes 0.00") && losses.contains(LINKS), "{losses}");
    }

    #[test]
    fn questions_without_figures_are_not_measured() {
        let results = Results { outcomes: Vec::new(), ..synthetic::results() };
        let table = table(&results);
        assert_eq!(table.matches("| not measured").count(), QUESTIONS.len());
        assert!(table.contains(&format!("0 lost, {} not measured.**", QUESTIONS.len())), "{table}");
        assert_eq!(losses(&results), "In none of these questions.");
        let outcome = synthetic::outcome("pair", MANY, &["t1"], &[(HANDLE, &[1.0])]);
        let results = Results { outcomes: vec![outcome], ..synthetic::results() };
        assert!(question(Best).answer(&results).is_none());
        assert!(question(Only("nobody")).answer(&results).is_none());
    }

    #[test]
    fn questions_name_what_the_book_measures() {
        for Question { text, workload, case, column, ours, against, .. } in QUESTIONS {
            assert!(measures(workload, case, ours, column), "{text}: {workload}, {case}, {ours}, {column}");
            if let Only(other) = against {
                assert!(measures(workload, case, other, column), "{text}: {other}");
            }
        }
    }

    #[test]
    fn reasons_and_texts_of_workloads_have_figures_of_the_book_only() {
        let of_workloads = WORKLOADS.iter().flat_map(|workload| [workload.about, workload.reading]);
        let of_questions = QUESTIONS.iter().flat_map(|question| [question.why, question.text]);
        for text in of_workloads.chain(of_questions) {
            for piece in text::pieces(text) {
                match piece {
                    text::Piece::Words(words) => {
                        assert_eq!(prose::figures(words), [""; 0], "{text}");
                        assert!(!words.contains(['{', '}']), "{words}");
                    }
                    text::Piece::Place(place) => {
                        for contestant in [place.contestant].into_iter().chain(place.divisor) {
                            let known = measures(place.workload, place.case, contestant, place.column);
                            assert!(known, "{contestant} in {text}");
                        }
                    }
                }
            }
        }
    }
}
