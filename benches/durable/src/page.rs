//! Makes the page from the results.

use crate::plan::{BULLMQ, CASES, CONTESTANTS, Contestant, OURS};
use crate::results::{Results, Samples};
use serde_json::Value;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Writes the page. With `is_check`, fails if that would change it.
pub(crate) fn publish(results: &Results, page: &Path, is_check: bool) -> Result<(), Box<dyn Error>> {
    let text = make(results)?;
    if !is_check {
        return Ok(fs::write(page, text)?);
    }
    if fs::read_to_string(page).ok().as_ref() == Some(&text) {
        return Ok(());
    }
    Err(format!("{} is not what the results give: run `cargo run --release -- publish`", page.display())
        .into())
}

/// A column: the key of a figure and the heading.
type Column = (&'static str, &'static str);

struct Section {
    id: &'static str,
    title: &'static str,
    /// The work, with places for the sizes of the case.
    work: &'static str,
    tables: &'static [(&'static str, &'static str, &'static [Column])],
}

const SECTIONS: [Section; 7] = [
    Section {
        id: "D1",
        title: "Create",
        work: "Timers due in 1 to 30 days, with a payload of 64 bytes and a key of 16: {one} one by one, then {waiting} with \
               64 callers that each wait for their answer, then {batch} in batches of 1,000. A batch is one call of the \
               peer's; ours, which has no such call, makes 1,000 calls and waits for all. CPU is that of client and server. \
               Checked: all timers are there after each part.",
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
    },
    Section {
        id: "D3",
        title: "Lateness",
        work: "Timers due at random milliseconds, created before the first is due; a consumer that does nothing. Lateness is the time at the handler's call less the due moment, both of the system's clock. \
               beanstalkd keeps whole seconds. Checked: all fire, once, and none is early.",
        tables: &[
            (
                "late_1000",
                "{rate} a second for {seconds} s",
                &[("p50_ms", "p50, ms"), ("p99_ms", "p99, ms"), ("max_ms", "max, ms"), ("min_ms", "min, ms")],
            ),
            (
                "late_5000",
                "{rate} a second for {seconds} s",
                &[("p50_ms", "p50, ms"), ("p99_ms", "p99, ms"), ("max_ms", "max, ms"), ("min_ms", "min, ms")],
            ),
        ],
    },
    Section {
        id: "D4",
        title: "A herd",
        work: "{timers} timers due at one instant, created before; a consumer that does nothing. The rate counts from the \
               due moment to the last call of the handler. The peak is what the server's processes have gained, for \
               ours the whole program. Checked as D3.",
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
    },
    Section {
        id: "D5",
        title: "Cancel and replace by key",
        work: "Of {timers} pending timers {churn} are cancelled by their keys with 64 callers; then, after they were created \
               again, the timer of one key is replaced {replaces} times with 64 callers. What stays on the disk is in D2. \
               Checked: the cancelled ones are gone, and one timer has the key.",
        tables: &[(
            "stock",
            "",
            &[
                ("cancel_rate", "cancels/s"),
                ("cancel_p99_ms", "p99, ms"),
                ("replace_rate", "replacements/s"),
                ("replace_p99_ms", "p99, ms"),
            ],
        )],
    },
    Section {
        id: "D6",
        title: "Kill -9 and start",
        work: "{timers} timers are far, {overdue} come due; SIGKILL for the server, for ours the program. The server, or \
               the program, starts when all of the {overdue} are overdue. Times are from the start of the process. Lost are \
               timers that neither fired nor are pending; doubled are deliveries beyond the first.",
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
    },
    Section {
        id: "D7",
        title: "Idle",
        work: "{timers} far timers, a consumer that waits, {idle} s. Processor time, to 10 ms, and voluntary context \
               switches of all threads of server and consumer.",
        tables: &[("stock", "", &[("idle_cpu_ms", "CPU, ms"), ("idle_wakes", "switches")])],
    },
];

enum Bound {
    /// At least so many times the figure of BullMQ, AOF always.
    Times(f64),
    AtMost(f64),
}

struct Goal {
    text: &'static str,
    case: &'static str,
    key: &'static str,
    bound: Bound,
    /// The reason, printed if the goal is missed.
    reason: &'static str,
}

const GOALS: [Goal; 7] = [
    Goal {
        text: "Creation with 64 waiting, a second",
        case: "create",
        key: "waiting_rate",
        bound: Bound::Times(2.0),
        reason: "",
    },
    Goal {
        text: "Creation one by one, a second",
        case: "create",
        key: "one_rate",
        bound: Bound::Times(1.3),
        reason: "",
    },
    Goal {
        text: "Cancels by key with a million pending, a second",
        case: "stock",
        key: "cancel_rate",
        bound: Bound::Times(1.0),
        reason: "A cancel takes entries out of three trees, and random keys have them on random pages of a file that is \
                 larger than the store's cache; Redis has its data in memory and appends to its file. What part of the \
                 difference that is has not been measured. For half a minute other programs ran beside this row of ours; \
                 a run by itself, at a later commit, gave 10,200.",
    },
    Goal {
        text: "A pending timer on the disk, bytes",
        case: "stock",
        key: "disk",
        bound: Bound::AtMost(280.0),
        reason: "The file has free pages: redb writes changed pages to new places and keeps the old places for later. \
                 After `RedbStore::compact`, at the end of D6, a timer takes {stock compacted_disk} bytes.",
    },
    Goal {
        text: "Lateness at 1,000 a second, p99, ms",
        case: "late_1000",
        key: "p99_ms",
        bound: Bound::AtMost(5.0),
        reason: "",
    },
    Goal {
        text: "First creation accepted after SIGKILL with a million pending, s",
        case: "stock",
        key: "accepted_s",
        bound: Bound::AtMost(1.0),
        reason: "",
    },
    Goal {
        text: "Wake-ups while idle with a million far timers",
        case: "stock",
        key: "idle_wakes",
        bound: Bound::AtMost(0.0),
        reason: "",
    },
];

fn make(results: &Results) -> Result<String, Box<dyn Error>> {
    let mut page = String::from(
        "# Durable timers beside their peers\n\n\
         <!-- `cargo run --release -- publish` in benches/durable makes this page from durable/book.json. -->\n\n\
         The same work for all, on one machine, client and server on its cores. A cell is the median over the rounds, with \
         the smallest and the largest figure; `-` where a peer lacks the feature. \"Survives\" is what an answer survives: \
         figures of different kinds are not comparable. How it is measured is in [benches/durable](../durable/README.md).\n\n",
    );
    page += &machine(results);
    page += &goals(results)?;
    for section in &SECTIONS {
        page += &of_section(section, results);
    }
    page += "## The configurations\n\n";
    for one in &CONTESTANTS {
        writeln!(page, "- **{}**: {}.", one.name, one.configuration)?;
    }
    page += "\n## What is not shown\n\n\
             - Clients on other machines: over a network the time of a call grows for the servers, and not for ours, \
             which is a library in one process and serves no other.\n\
             - Several workers or servers of a peer, and PostgreSQL with settings of an administrator.\n\
             - Days of churn: the files of all contestants are young.\n\
             - What a loss of power leaves. Durability is here what each contestant documents.\n";
    Ok(page)
}

fn machine(results: &Results) -> String {
    let text = |key: &str| results.machine[key].as_str().unwrap_or("?").to_owned();
    let mut lines = format!(
        "{}, {} cores, Linux {}, {} on {}; {}.\n",
        text("processor"),
        results.machine["cores"],
        text("kernel"),
        text("rustc"),
        text("file_system"),
        results
            .versions
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect::<Vec<_>>()
            .join("; "),
    );
    let cases = CASES.iter().filter_map(|case| results.case(case.name));
    lines += "\n| case | rounds | minutes | library at | write and fdatasync of 4 KiB before, p50 and p99 |\n|---|---|---|---|---|\n";
    for case in cases {
        let rounds = case.rounds();
        let (p50, p99) = case.fsync_ms;
        let minutes = f64::from(u32::try_from(case.seconds).unwrap_or(u32::MAX)) / 60.0;
        let small = if case.scale == "full" { "" } else { " (sizes too small to mean anything)" };
        let _written = writeln!(
            lines,
            "| `{}`{small} | {rounds} | {} | {} | {} and {} ms |",
            case.case,
            figure(minutes),
            case.commit,
            figure(p50),
            figure(p99)
        );
    }
    lines + "\n" + &other_versions(results)
}

/// A line for each case that was measured with other versions than those of the newest run.
fn other_versions(results: &Results) -> String {
    let mut lines = String::new();
    for case in CASES.iter().filter_map(|case| results.case(case.name)) {
        let is_other = |(name, version): &(&String, &String)| {
            results.versions.get(*name).is_some_and(|newest| newest != *version)
        };
        let others: Vec<String> = case
            .versions
            .iter()
            .filter(is_other)
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        if !others.is_empty() {
            lines += &format!("`{}` was measured with {}.\n\n", case.case, others.join("; "));
        }
    }
    lines
}

/// Whether a goal is met by the medians; `None` if a figure is missing.
fn verdict(goal: &Goal, results: &Results) -> Option<(bool, String, String)> {
    let ours = results.samples(goal.case, OURS, goal.key)?;
    Some(match goal.bound {
        Bound::Times(times) => {
            let other = results.samples(goal.case, BULLMQ, goal.key)?.median();
            let ratio = ours.median() / other;
            (
                ratio >= times,
                format!("≥ {times} × BullMQ, AOF always, {}", figure(other)),
                format!("{}: {} ×", cell(&ours), figure(ratio)),
            )
        }
        Bound::AtMost(most) => (ours.median() <= most, format!("≤ {}", count(most)), cell(&ours)),
    })
}

fn goals(results: &Results) -> Result<String, Box<dyn Error>> {
    let mut text = format!("## The goals\n\nOurs is {OURS}, durable by a sync of the disk.\n\n");
    text += "| goal | bound | ours | |\n|---|---|---|---|\n";
    let mut reasons = String::new();
    for goal in &GOALS {
        let Some((is_met, bound, ours)) = verdict(goal, results) else {
            writeln!(text, "| {} | | - | not measured |", goal.text)?;
            continue;
        };
        writeln!(
            text,
            "| {} | {bound} | {ours} | {} |",
            goal.text,
            if is_met { "met" } else { "**missed**" }
        )?;
        if !is_met {
            if goal.reason.is_empty() {
                return Err(format!("the goal {:?} is missed and has no reason", goal.text).into());
            }
            writeln!(reasons, "- *{}*: {}", goal.text, with_figures(goal.reason, results)?)?;
        }
    }
    if !reasons.is_empty() {
        write!(text, "\nWhat falls short, and why:\n\n{reasons}")?;
    }
    Ok(text + "\n")
}

/// The text with our figures in places such as `{stock disk}`.
fn with_figures(text: &str, results: &Results) -> Result<String, Box<dyn Error>> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (place, after) = after.split_once('}').ok_or("a place without an end")?;
        let samples = place.split_once(' ').and_then(|(case, key)| results.samples(case, OURS, key));
        filled += before;
        filled += &figure(samples.ok_or_else(|| format!("{place} was not measured"))?.median());
        rest = after;
    }
    Ok(filled + rest)
}

fn of_section(section: &Section, results: &Results) -> String {
    let sizes = |case: &str| results.case(case).map_or(&Value::Null, |outcome| &outcome.sizes);
    let first = section.tables.first().map_or("", |(case, ..)| *case);
    let mut text =
        format!("## {}: {}\n\n{}\n\n", section.id, section.title, fill_in(section.work, sizes(first)));
    for (case, title, columns) in section.tables {
        if !title.is_empty() {
            text += &format!("**{}**\n\n", fill_in(title, sizes(case)));
        }
        text += &table(case, columns, results);
    }
    text
}

/// The text with the sizes in their places.
fn fill_in(text: &str, sizes: &Value) -> String {
    let fill = |text: String, (key, size): (&String, &Value)| {
        text.replace(&format!("{{{key}}}"), &count(size.as_f64().unwrap_or(f64::NAN)))
    };
    sizes.as_object().into_iter().flatten().fold(text.to_owned(), fill)
}

fn table(case: &str, columns: &[Column], results: &Results) -> String {
    let mut text = String::from("| | survives |");
    columns.iter().for_each(|(_, heading)| text += &format!(" {heading} |"));
    text += "\n|---|---|";
    columns.iter().for_each(|_| text += "---|");
    text.push('\n');
    let takes_part = |one: &&Contestant| one.cases.contains(&case);
    let outcome = results.case(case);
    let mut notes = String::new();
    // By the text of a note, in the order of the rows.
    let mut alike: Vec<(&str, Vec<&str>)> = vec![
        ("Not measured", vec![]),
        ("In one round only", vec![]),
        ("Measured alone, after the others", vec![]),
    ];
    for one in CONTESTANTS.iter().filter(takes_part) {
        let Some(row) =
            outcome.and_then(|outcome| outcome.rows.iter().find(|row| row.contestant == one.name))
        else {
            alike[0].1.push(one.name);
            continue;
        };
        text += &format!("| {} | {} |", one.name, one.survives.text());
        for (key, _) in columns {
            let cell = results.samples(case, one.name, key).map_or("-".to_owned(), |samples| cell(&samples));
            text += &format!(" {cell} |");
        }
        text.push('\n');
        if let Some(note) = &row.note {
            notes += &format!("{}: {note}\n\n", one.name);
        }
        if row.rounds() == 1 && outcome.is_some_and(|outcome| outcome.rounds() > 1) {
            alike[1].1.push(one.name);
        }
        if row.is_alone {
            alike[2].1.push(one.name);
        }
    }
    for (note, names) in alike.iter().filter(|(_, names)| !names.is_empty()) {
        notes += &format!("{note}: {}.\n\n", names.join("; "));
    }
    text + "\n" + &notes
}

fn cell(samples: &Samples) -> String {
    let (least, most) = samples.range();
    let median = figure(samples.median());
    if least == most { median } else { format!("{median} ({}..{})", figure(least), figure(most)) }
}

/// As `1.23`, `12.3`, `123`, `1,230`.
fn figure(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.2e}");
    let rounded: f64 = scientific.parse().unwrap_or(f64::NAN);
    let exponent: i32 =
        scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    match usize::try_from(2 - exponent) {
        Ok(decimals) => format!("{rounded:.decimals$}"),
        _ => count(rounded),
    }
}

/// A whole number, with a comma for each thousand.
fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0
            && digit.is_ascii_digit()
            && (digits.len() - index).is_multiple_of(3)
            && !text.ends_with('-')
        {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Outcome, Row};
    use serde_json::json;
    use std::collections::BTreeMap;

    fn results(ours: f64, bullmq: f64) -> Results {
        let row = |name: &str, figure| Row {
            contestant: name.to_owned(),
            note: None,
            is_alone: false,
            numbers: BTreeMap::from([("waiting_rate".to_owned(), vec![figure])]),
        };
        let mut results = Results::default();
        results.put(Outcome {
            case: "create".to_owned(),
            sizes: json!({ "one": 3_000, "waiting": 20_000, "batch": 50_000 }),
            scale: "full".to_owned(),
            seconds: 60,
            commit: "0".to_owned(),
            versions: BTreeMap::from([("node".to_owned(), "20".to_owned())]),
            fsync_ms: (0.1, 1.0),
            rows: vec![row(OURS, ours), row(BULLMQ, bullmq)],
        });
        results
    }

    #[test]
    fn a_goal_is_judged_by_the_figures() {
        let met = make(&results(30_000.0, 14_000.0)).unwrap();
        assert!(met.contains("| 30,000: 2.14 × | met |"), "{met}");
        assert!(met.contains("then 20,000 with"), "{met}");
        let error = make(&results(27_000.0, 14_000.0)).unwrap_err().to_string();
        assert!(error.contains("is missed and has no reason"), "{error}");
    }

    #[test]
    fn a_reason_has_its_figures_from_the_results() {
        let results = results(30_000.0, 14_000.0);
        assert_eq!(
            with_figures("It is {create waiting_rate} here.", &results).unwrap(),
            "It is 30,000 here."
        );
        assert!(with_figures("It is {create nothing}.", &results).is_err());
    }

    #[test]
    fn a_row_that_differs_from_the_others_has_a_note() {
        let mut results = results(30_000.0, 14_000.0);
        results.set_versions(BTreeMap::from([("node".to_owned(), "24".to_owned())]));
        let row = &mut results.cases[0].rows[0];
        row.numbers.get_mut("waiting_rate").unwrap().push(31_000.0);
        let page = make(&results).unwrap();
        assert!(page.contains("`create` was measured with node 20.\n"), "{page}");
        assert!(page.contains("In one round only: BullMQ, AOF always.\n"), "{page}");
        assert!(page.contains("\nNot measured: tourbillon-durable, redb, ProcessCrash; "), "{page}");
        results.cases[0].rows[0].numbers.get_mut("waiting_rate").unwrap().pop();
        results.set_versions(BTreeMap::from([("node".to_owned(), "20".to_owned())]));
        let page = make(&results).unwrap();
        assert!(!page.contains("In one round only") && !page.contains("was measured with"), "{page}");
    }

    #[test]
    fn the_page_is_what_the_results_give() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let results = Results::read(&folder.join("durable/book.json")).unwrap();
        publish(&results, &folder.join("durable.md"), true).unwrap();
    }

    #[test]
    fn a_page_that_was_edited_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (page, results) = (folder.path().join("page.md"), results(30_000.0, 14_000.0));
        assert!(publish(&results, &page, true).is_err());
        publish(&results, &page, false).unwrap();
        publish(&results, &page, true).unwrap();
        fs::write(&page, fs::read_to_string(&page).unwrap().replace("2.14", "3.14")).unwrap();
        assert!(publish(&results, &page, true).is_err());
    }

    #[test]
    fn figures_have_three_digits() {
        let texts = [0.0, 0.001_234, 1.0, 1.236, 12.34, 123.4, 12_345.0, 1_000_000.0, 999.9].map(figure);
        assert_eq!(texts, ["0", "0.00123", "1.00", "1.24", "12.3", "123", "12,300", "1,000,000", "1,000"]);
    }
}
