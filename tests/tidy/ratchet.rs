//! The excesses that the gates let pass for now. A number here only shrinks: a gate fails if it finds more, and also if
//! it finds less, so that the entry is lowered. A place without an entry passes its gate, and must keep to it.

use std::collections::{BTreeMap, BTreeSet};

/// Gate, place, and the number found there. A failing gate prints its lines as they hold now.
const EXCESSES: &[Excess] = &[
];

type Excess = (Gate, &'static str, usize);

/// A rule with a number for each place that breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    /// Marked sentences of a crate or of pages, in per cent.
    Prose,
    /// Folders of a crate that has no list of floors.
    Unlisted,
    /// Uses of a higher floor in a crate.
    Climbs,
    /// Folders of a crate that are in circles.
    Circles,
    /// Tags that a crate explains twice, and invariants that share a line.
    Tags,
    /// Lines of a file, without blank lines and comments.
    Lines,
    /// Methods of a type.
    Methods,
    /// Files with methods of a type.
    Spread,
    /// Uses of names that say nothing, in a package.
    Names,
    /// Tests of a file that are named by the number of a list.
    Numbered,
}

impl Gate {
    /// Numbers are rounded up to a multiple of this, so that an edit that changes nothing much needs no new entry.
    const fn step(self) -> usize {
        match self {
            Self::Lines => 50,
            Self::Methods => 5,
            _ => 1,
        }
    }

    /// Fails unless `found` is what the table has for this gate.
    pub(crate) fn hold(self, found: impl IntoIterator<Item = (String, usize)>) {
        if let Err(difference) = compare(self, EXCESSES, found) {
            panic!("{difference}");
        }
    }

    /// As [`Gate::hold`], with the items that are counted, which are printed for the places that differ.
    pub(crate) fn hold_all(self, found: impl IntoIterator<Item = (String, BTreeSet<String>)>) {
        let found: BTreeMap<String, BTreeSet<String>> = found.into_iter().collect();
        let numbers = found.iter().map(|(place, items)| (place.clone(), items.len()));
        if let Err(difference) = compare(self, EXCESSES, numbers) {
            let mentioned = found
                .iter()
                .filter(|(place, _)| difference.lines().any(|line| line.starts_with(&format!("{place}: "))));
            for (place, items) in mentioned {
                eprintln!("{place}: {items:#?}");
            }
            panic!("{difference}");
        }
    }
}

fn compare(
    gate: Gate,
    entries: &[Excess],
    found: impl IntoIterator<Item = (String, usize)>,
) -> Result<(), String> {
    let entries: BTreeMap<&str, usize> =
        entries.iter().filter(|entry| entry.0 == gate).map(|entry| (entry.1, entry.2)).collect();
    let found: BTreeMap<String, usize> = found
        .into_iter()
        .filter(|(_, number)| *number > 0)
        .map(|(place, number)| (place, number.next_multiple_of(gate.step())))
        .collect();
    let places: BTreeSet<&str> = entries.keys().copied().chain(found.keys().map(String::as_str)).collect();
    let mut differences = Vec::new();
    for place in places {
        match (entries.get(place).copied().unwrap_or(0), found.get(place).copied().unwrap_or(0)) {
            (entry, found) if found > entry => {
                differences.push(format!("{place}: {found}, and at most {entry} may be there"));
            }
            (entry, found) if found < entry => {
                differences.push(format!("{place}: {found}, so the entry of {entry} is to shrink"));
            }
            _ => {}
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> =
        found.iter().map(|(place, number)| format!("    (Gate::{gate:?}, {place:?}, {number}),")).collect();
    Err(format!(
        "{}\nThe lines of this gate in tests/tidy/ratchet.rs, as they would hold:\n{}",
        differences.join("\n"),
        lines.join("\n"),
    ))
}

#[test]
fn the_table_is_in_order() {
    let keys: Vec<_> = EXCESSES.iter().map(|&(gate, place, _)| (gate, place)).collect();
    let ordered: BTreeSet<_> = keys.iter().copied().collect();
    assert_eq!(keys, ordered.into_iter().collect::<Vec<_>>(), "each place once for a gate, in order");
}

#[test]
fn an_excess_neither_grows_nor_shrinks_unseen() {
    let entries = [(Gate::Names, "crates/a", 3), (Gate::Tags, "crates/b", 1)];
    let check = |found: &[(&str, usize)]| {
        compare(Gate::Names, &entries, found.iter().map(|&(place, number)| (place.to_owned(), number)))
    };
    assert_eq!(check(&[("crates/a", 3), ("crates/c", 0)]), Ok(()));
    assert!(check(&[("crates/a", 4)]).unwrap_err().contains("at most 3 may be there"));
    assert!(check(&[("crates/a", 2)]).unwrap_err().contains("    (Gate::Names, \"crates/a\", 2),"));
    assert!(check(&[]).unwrap_err().contains("crates/a: 0, so the entry of 3"));
    assert!(check(&[("crates/a", 3), ("crates/d", 1)]).unwrap_err().contains("crates/d: 1, and at most 0"));
    let lines = [(Gate::Lines, "a.rs", 550)];
    let check = |number| compare(Gate::Lines, &lines, [(String::from("a.rs"), number)]).is_ok();
    assert_eq!([500, 501, 550, 551].map(check), [false, true, true, false]);
}
