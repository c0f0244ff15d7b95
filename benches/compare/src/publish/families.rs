//! Generated files beside the raw results. There is a file for each family of workloads, with all its tables. Two more
//! files have the goals and the machine.

use super::text::fill_in;
use super::{claims, tables};
use crate::results::{Outcome, Results};
use crate::workload::Family;
use crate::workloads::{WORKLOADS, family_of, known};

/// The command that makes the page, the tables and the plots again.
pub(super) const COMMAND: &str = "cargo run --release -- publish";

/// The plots above the tables: the workload, the plot's file in docs/plots, and the title.
const PLOTS: [(&str, &str, &str); 7] = [
    ("pair", "pair", "Schedule and cancel with a million pending, by contestant and threads"),
    ("rearm", "rearm", "Arm and disarm a timeout, by contestant and threads"),
    ("growth", "growth", "A pair's cost against the number of pending timers"),
    ("expiry", "expiry", "Lateness by quantile"),
    ("expiry", "lateness_by_due_time", "Lateness by due time"),
    ("mixed", "mixed", "Latency of operations and lateness of timers at offered rates"),
    ("memory", "memory", "Bytes a pending timer"),
];

/// A generated Markdown file with the tables of a family of workloads.
pub(super) struct File {
    pub(super) name: &'static str,
    title: &'static str,
    /// The headings of the file's sections, each with a sentence for the index.
    sections: Vec<(String, String)>,
    pub(super) text: String,
}

/// Returns all generated table files, in the order of the index.
pub(super) fn files(results: &Results) -> Vec<File> {
    let families = Family::ALL.into_iter().map(|family| of_family(family, results));
    families.filter(|file| !file.sections.is_empty()).chain([goals(results), machine(results)]).collect()
}

/// Returns a list of the table files, with a link to each section.
pub(super) fn index(results: &Results) -> String {
    let mut lines = Vec::new();
    for file in files(results) {
        let path = format!("{DIRECTORY}/{}", file.name);
        lines.push(format!("- [{}]({path})", file.title));
        lines.extend(
            file.sections
                .iter()
                .map(|(name, operation)| format!("  - [`{name}`]({path}#{name}): {operation}")),
        );
    }
    lines.join("\n")
}

/// The path from the page to the folder with the table files.
const DIRECTORY: &str = "benches/results";

fn of_family(family: Family, results: &Results) -> File {
    let (name, title) = (family.file(), family.title());
    let workloads = names(results).into_iter().filter(|name| family_of(name) == family);
    let mut sections = Vec::new();
    let mut text = heading(title);
    for name in workloads {
        let cases: Vec<&Outcome> = results.cases(name).collect();
        let Some(first) = cases.first() else { continue };
        text += &section(name, &cases, results);
        sections.push((name.to_owned(), tables::escaped(&first.operation)));
    }
    File { name, title, sections, text }
}

/// Returns the names of the workloads in the results. Workloads of the book come first, in the book's order.
fn names(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    for outcome in &results.outcomes {
        if !names.contains(&outcome.workload.as_str()) {
            names.push(&outcome.workload);
        }
    }
    names
}

/// Returns the section of a workload: the operation, notes, plots, a table for each case, and how to read the tables.
fn section(name: &str, cases: &[&Outcome], results: &Results) -> String {
    let (about, reading) = known(name).map_or(("", ""), |workload| (workload.about, workload.reading));
    let mut parts = vec![format!("## {name}")];
    parts.extend(cases.first().map(|case| sentence(&case.operation)));
    parts.push(fill_in(about, results));
    let plots = PLOTS.iter().filter(|(workload, ..)| *workload == name);
    parts.extend(plots.map(|(_, file, title)| format!("![{title}](../../docs/plots/{file}.svg)")));
    parts.extend(cases.iter().map(|case| format!("### {}\n\n{}", case.case.name, tables::outcome(case))));
    parts.push(fill_in(reading, results));
    parts.retain(|part| !part.is_empty());
    parts.into_iter().map(|part| format!("\n{part}\n")).collect()
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    tables::escaped(&first.chain(letters).chain(['.']).collect::<String>())
}

fn goals(results: &Results) -> File {
    let title = "The goals, and which of them are met";
    let text = format!(
        "{}\nThe first goals were set before there was a book, the later goals from its tables, against the figures \
        of others on such a machine. A goal that is missed stays in the table when another goal is set for the same \
        figure. The best other is the best contestant that is not ours and reads its clock as often.\n\n{}\n",
        heading("Goals"),
        claims::table(results)
    );
    File { name: "goals.md", title, sections: Vec::new(), text }
}

fn machine(results: &Results) -> File {
    let title = "The machine, and the version of each contestant";
    let text = format!("{}\n{}\n", heading("Machine and versions"), tables::machine(results));
    File { name: "machine.md", title, sections: Vec::new(), text }
}

fn heading(title: &str) -> String {
    format!(
        "# {title}\n\nMade by `{COMMAND}` in `benches/compare` from [`book.json`](book.json), not by hand. How it is \
        measured: [the book's README](../compare/README.md). Back to the [answers](../../BENCHMARKS.md).\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    fn file(results: &Results, name: &str) -> String {
        files(results).into_iter().find(|file| file.name == name).unwrap().text
    }

    #[test]
    fn each_outcome_has_its_table_in_one_file() {
        let results = synthetic::results();
        let files = files(&results);
        for outcome in &results.outcomes {
            let table = format!("### {}\n\n{}", outcome.case.name, tables::outcome(outcome));
            let with_it: Vec<&str> =
                files.iter().filter(|file| file.text.contains(&table)).map(|file| file.name).collect();
            assert_eq!(with_it, [family_of(&outcome.workload).file()], "{}", outcome.workload);
        }
        let names: Vec<&str> = files.iter().map(|file| file.name).collect();
        assert_eq!(names, ["arming.md", "firing.md", "memory.md", "goals.md", "machine.md"]);
    }

    #[test]
    fn a_section_explains_its_workload() {
        let results = synthetic::results();
        let arming = file(&results, "arming.md");
        let pair = known("pair").unwrap();
        let expected =
            format!("## pair\n\nWhat pair does.\n\n{}\n\n![Schedule", fill_in(pair.about, &results));
        assert!(arming.contains(&expected) && arming.contains(&fill_in(pair.reading, &results)), "{arming}");
    }

    #[test]
    fn a_workload_that_is_no_more_keeps_its_tables() {
        let outcome = synthetic::outcome("bygone", "few", &["t1"], &[("a", &[1.0])]);
        let results = Results { outcomes: vec![outcome], ..synthetic::results() };
        assert!(file(&results, "former.md").contains("## bygone\n\nWhat bygone does.\n\n### few\n"));
        assert!(index(&results).contains("[`bygone`](benches/results/former.md#bygone): what bygone does"));
    }

    #[test]
    fn plots_belong_to_workloads_of_the_book() {
        assert!(PLOTS.iter().all(|(workload, ..)| known(workload).is_some()));
        let drawn = crate::publish::plots::draw(&synthetic::results()).unwrap();
        for (name, _) in drawn {
            assert!(PLOTS.iter().any(|(_, file, _)| *file == name), "{name} stands nowhere");
        }
    }
}
