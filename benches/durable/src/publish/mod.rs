//! Makes the page from the results.

mod goals;
mod plots;
mod sections;
mod text;

use crate::plan::{CASES, CONTESTANTS, Contestant};
use crate::results::Results;
use sections::{Column, SECTIONS, Section};
use serde_json::Value;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use text::{cell, fill_in};
use tourbillon_book::figure::figure;
use tourbillon_book::files;

/// The command that makes the page and the plots again.
const COMMAND: &str = "cargo run --release -- publish";

/// The folder of the plots and of the raw results. It is in the page's folder.
const PLOTS: &str = "durable";

/// Writes the page and its plots into `folder`. With `is_check`, writes nothing, and fails if a file would change.
pub(crate) fn publish(results: &Results, folder: &Path, is_check: bool) -> Result<(), Box<dyn Error>> {
    let plots = plots::draw(results)?;
    let page = (folder.join("durable.md"), make(results, &plots)?);
    let files = plots.into_iter().map(|plot| (folder.join(PLOTS).join(file_of(plot.name)), plot.svg));
    let files: Vec<(PathBuf, String)> = files.chain([page]).collect();
    files::put(&files, is_check, COMMAND)?;
    for plot in files::strays(&folder.join(PLOTS), "svg", &files) {
        if is_check {
            return Err(files::differs(&plot, COMMAND));
        }
        fs::remove_file(plot)?;
    }
    Ok(())
}

fn file_of(plot: &str) -> String {
    format!("{plot}.svg")
}

fn make(results: &Results, plots: &[plots::Picture]) -> Result<String, Box<dyn Error>> {
    let mut page = String::from(
        "# Durable timers beside their peers\n\n\
         <!-- `cargo run --release -- publish` in benches/durable makes this page from durable/book.json. -->\n\n\
         In each case the same work for all, on one machine, client and server on its cores. Cases may be of several commits \
         and machines, which the first table and the lines below it name. So compare figures of one case only. A cell is \
         the median over the rounds, with the smallest and the largest figure; `-` where a peer lacks the feature. \"Survives\" is what an answer survives: figures of different kinds are not comparable. How it \
         is measured is in [benches/durable](../durable/README.md).\n\n",
    );
    page += &machine(results);
    page += &goals::goals(results)?;
    for section in &SECTIONS {
        page += &of_section(section, results)?;
        for plot in plots.iter().filter(|plot| plot.section == section.id) {
            writeln!(page, "![{}]({PLOTS}/{})\n", plot.shows, file_of(plot.name))?;
        }
    }
    page += "## The configurations\n\n";
    for one in &CONTESTANTS {
        writeln!(page, "- **{}**: {}.", one.name, one.configuration)?;
    }
    page += "\n## What is not shown\n\n\
             - Clients on other machines: over a network the time of a call grows for the servers, and not for the library, \
             which is a part of one process and serves no other.\n\
             - Several workers or servers of a peer, and PostgreSQL with settings of an administrator.\n\
             - Days of churn: the files of all contestants are young.\n\
             - What a loss of power leaves. Durability is here what each contestant documents.\n\
             - Restate, where a delayed call needs a registered handler of its SDK. Its licence, BSL 1.1, has no rule about \
             benchmarks; it has not been measured yet.\n";
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
    let all: u64 = CASES.iter().filter_map(|case| results.case(case.name)).map(|case| case.seconds).sum();
    lines + &format!("\nAll cases took {} minutes together.\n\n", all.div_ceil(60)) + &other_versions(results)
}

/// Names the cases that were measured on another processor or with other program versions than the newest run. Cases
/// with the same differences share a line.
fn other_versions(results: &Results) -> String {
    let mut cases_of: Vec<(String, Vec<String>)> = Vec::new();
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
        if others.is_empty() {
            continue;
        }
        let (others, name) = (others.join("; "), format!("`{}`", case.case));
        match cases_of.iter_mut().find(|(known, _)| *known == others) {
            Some((_, names)) => names.push(name),
            None => cases_of.push((others, vec![name])),
        }
    }
    let line = |(others, names): &(String, Vec<String>)| {
        format!("Measured with {others}: {}.\n\n", names.join(", "))
    };
    cases_of.iter().map(line).collect()
}

fn of_section(section: &Section, results: &Results) -> Result<String, Box<dyn Error>> {
    let sizes = |case: &str| results.case(case).map_or(&Value::Null, |outcome| &outcome.sizes);
    let first = section.tables.first().map_or("", |(case, ..)| *case);
    let mut text =
        format!("## {}: {}\n\n{}\n\n", section.id, section.title, fill_in(section.work, sizes(first)));
    let mut missing: Vec<String> = Vec::new();
    for (index, (case, title, columns)) in section.tables.iter().enumerate() {
        // A section with goals of its own shows no empty tables.
        if section.names_the_best && results.case(case).is_none() {
            missing.push(format!("`{case}`"));
            continue;
        }
        if !title.is_empty() {
            text += &format!("**{}**\n\n", fill_in(title, sizes(case)));
        }
        text += &table(case, columns, results);
        if section.names_the_best {
            text += &best(case, columns, results);
        }
        if section.tables.get(index + 1).is_none_or(|(next, ..)| next != case) {
            for (_, note) in section.notes.iter().filter(|(noted, _)| noted == case) {
                text += &(goals::with_figures(&fill_in(note, sizes(case)), results)? + "\n\n");
            }
        }
    }
    missing.dedup();
    if !missing.is_empty() {
        text += &format!("Not measured yet: {}.\n\n", missing.join(", "));
    }
    Ok(text)
}

/// Returns a line that names the best contestant of each column, by its median. A column whose medians are all the same
/// is left out.
fn best(case: &str, columns: &[Column], results: &Results) -> String {
    let winner = |(key, heading): &Column| {
        let medians = CONTESTANTS
            .iter()
            .filter_map(|one| Some((one.name, results.samples(case, one.name, key)?.median())));
        let mut medians: Vec<(&str, f64)> = medians.collect();
        medians.sort_by(|one, other| one.1.total_cmp(&other.1));
        let (least, most) = (medians.first()?, medians.last()?);
        let (name, _) = if key.ends_with("rate") { most } else { least };
        (least.1 < most.1).then(|| format!("{heading} {name}"))
    };
    let winners: Vec<String> = columns.iter().filter_map(winner).collect();
    if winners.is_empty() { String::new() } else { format!("Best: {}.\n\n", winners.join("; ")) }
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
    // The rows with the same note are collected under its text, in the order of the rows.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::{BULLMQ, OURS};
    use crate::results::{Outcome, Row};
    use serde_json::json;
    use std::collections::BTreeMap;

    pub(crate) fn results(ours: f64, bullmq: f64) -> Results {
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
            seconds: 59,
            commit: "0".to_owned(),
            versions: BTreeMap::from([("node".to_owned(), "20".to_owned())]),
            fsync_ms: (0.1, 1.0),
            rows: vec![row(OURS, ours), row(BULLMQ, bullmq)],
        });
        results
    }

    #[test]
    fn a_row_that_differs_from_the_others_has_a_note() {
        let mut results = results(30_000.0, 14_000.0);
        results.set_versions(BTreeMap::from([("node".to_owned(), "24".to_owned())]));
        let row = &mut results.cases[0].rows[0];
        row.numbers.get_mut("waiting_rate").unwrap().push(31_000.0);
        let page = make(&results, &[]).unwrap();
        assert!(page.contains("\nMeasured with node 20: `create`.\n"), "{page}");
        assert!(page.contains("In one round only: BullMQ, AOF always.\n"), "{page}");
        assert!(page.contains("\nNot measured: tourbillon-durable, redb, ProcessCrash; "), "{page}");
        results.cases[0].rows[0].numbers.get_mut("waiting_rate").unwrap().pop();
        results.set_versions(BTreeMap::from([("node".to_owned(), "20".to_owned())]));
        let page = make(&results, &[]).unwrap();
        assert!(!page.contains("In one round only") && !page.contains("Measured with"), "{page}");
    }

    #[test]
    fn cases_with_the_same_differences_share_a_line() {
        let mut herd = results(30_000.0, 14_000.0).cases.remove(0);
        herd.case = "herd".to_owned();
        let mut both = results(30_000.0, 14_000.0);
        both.put(herd);
        both.set_versions(BTreeMap::from([("node".to_owned(), "24".to_owned())]));
        assert_eq!(other_versions(&both), "Measured with node 20: `create`, `herd`.\n\n");
    }

    #[test]
    fn each_note_has_a_table_and_its_places_name_figures() {
        for (section, (case, note)) in
            SECTIONS.iter().flat_map(|section| section.notes.iter().map(move |note| (section, note)))
        {
            assert!(section.tables.iter().any(|(shown, ..)| shown == case), "{}: {case}", section.id);
            let planned = CASES.iter().find(|known| known.name == *case).unwrap();
            let text = goals::with_figures(&fill_in(note, &(planned.full)()), &Results::default());
            assert!(!text.unwrap().contains('{'), "{note}");
        }
    }

    #[test]
    fn the_page_is_what_the_results_give() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
        let results = Results::read(&folder.join("durable/book.json")).unwrap();
        publish(&results, &folder, true).unwrap();
    }

    #[test]
    fn a_page_or_plot_that_was_edited_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, results) = (folder.path(), results(30_000.0, 14_000.0));
        assert!(publish(&results, folder, true).is_err());
        publish(&results, folder, false).unwrap();
        for (file, from, to) in
            [("durable.md", "2.14", "3.14"), ("durable/creations.svg", "30,000", "40,000")]
        {
            publish(&results, folder, true).unwrap();
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert!(text.contains(from), "{file}");
            fs::write(folder.join(file), text.replace(from, to)).unwrap();
            assert!(publish(&results, folder, true).is_err(), "{file}");
            fs::write(folder.join(file), text).unwrap();
        }
        let stray = folder.join("durable/old.svg");
        fs::write(&stray, "").unwrap();
        assert!(publish(&results, folder, true).is_err());
        publish(&results, folder, false).unwrap();
        assert!(!stray.exists());
    }

    #[test]
    fn texts_have_the_sizes_and_sections_have_their_plots() {
        let results = results(30_000.0, 14_000.0);
        let plots = plots::draw(&results).unwrap();
        let page = make(&results, &plots).unwrap();
        assert!(page.contains("then 20,000 with"), "{page}");
        assert!(page.contains("All cases took 1 minutes together."), "{page}");
        let (before, after) = page.split_once("![Creations a second](durable/creations.svg)").unwrap();
        assert!(before.contains("## D1") && !before.contains("## D2") && after.contains("## D2"), "{page}");
    }
}
