//! Checks that the guide's picture and table of the states of durable timers agree with the library.

use crate::of_repository;
use std::collections::BTreeSet;
use std::fs;
use tourbillon_durable::state::TRANSITIONS;

/// A change of a timer's state: the state before, and the state after.
type Change = (String, String);

fn read(file: &str) -> String {
    fs::read_to_string(of_repository("docs/guide").join(file)).unwrap()
}

/// Returns the changes of a timer's state that the library permits. Leaves out events that do not change the state,
/// because users do not see them.
fn changes() -> BTreeSet<Change> {
    let changes = TRANSITIONS.iter().flat_map(|(from, _, to)| to.iter().map(move |to| (from, to)));
    let words =
        changes.map(|(from, to)| (format!("{from:?}").to_lowercase(), format!("{to:?}").to_lowercase()));
    words.filter(|(from, to)| from != to).collect()
}

/// Returns the changes of a timer's state that a diagram shows as arrows. The id of an arrow's group names the two
/// states.
fn arrows(picture: &str) -> BTreeSet<Change> {
    let ids = picture.split("<g id=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    ids.filter_map(|(id, _)| id.split_once('-')).map(|(from, to)| (from.to_owned(), to.to_owned())).collect()
}

/// Returns the changes of a timer's state that the page's table shows. A row's first column names the states before,
/// and the second column the state after.
fn rows(page: &str) -> BTreeSet<Change> {
    let lines = page.lines().skip_while(|line| !line.starts_with("| from | to |")).skip(2);
    let rows = lines.map_while(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| {
        let mut cells = row.split(" | ");
        Some((cells.next()?, cells.next()?))
    });
    cells.flat_map(|(from, to)| from.split(", ").map(|from| (from.to_owned(), to.to_owned()))).collect()
}

#[test]
fn the_picture_and_the_table_have_each_change_of_state() {
    assert_eq!(arrows(&read("states.svg")), changes());
    assert_eq!(rows(&read("durable.md")), changes());
}

#[test]
fn a_change_that_is_missing_is_found() {
    let one = |from: &str, to: &str| BTreeSet::from([(from.to_owned(), to.to_owned())]);
    assert_eq!(arrows("<g id=\"a-b\"><path/></g><g id=\"schedule\"></g>"), one("a", "b"));
    assert_eq!(rows("| from | to | when |\n|---|---|---|\n| a | b | `c` |\n\n| d | e | f |"), one("a", "b"));
}
