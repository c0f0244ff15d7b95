//! Gates: functions that fail if a rule is broken at any place. There are no exceptions.

use std::collections::BTreeSet;

/// Fails if a place breaks the rule: its number is above zero. The message has the number found at the place.
#[track_caller]
pub(crate) fn hold(rule: &str, found: impl IntoIterator<Item = (String, usize)>) {
    let broken: Vec<String> = found
        .into_iter()
        .filter(|(_, number)| *number > 0)
        .map(|(place, number)| format!("{place}: {number}"))
        .collect();
    assert!(broken.is_empty(), "{rule}\n{}", broken.join("\n"));
}

/// Fails as [`hold`] does. The message has the items that break the rule.
#[track_caller]
pub(crate) fn hold_for_items(rule: &str, found: impl IntoIterator<Item = (String, BTreeSet<String>)>) {
    let broken: Vec<String> = found
        .into_iter()
        .filter(|(_, items)| !items.is_empty())
        .map(|(place, items)| format!("{place}: {} of them: {items:#?}", items.len()))
        .collect();
    assert!(broken.is_empty(), "{rule}\n{}", broken.join("\n"));
}

#[test]
#[should_panic(expected = "nothing is red\nb: 2")]
fn a_place_that_breaks_a_rule_is_named() {
    hold("nothing is red", [("a".to_owned(), 0), ("b".to_owned(), 2)]);
}

#[test]
#[should_panic(expected = "nothing is red\nb: 1 of them: {\n    \"apple\",\n}")]
fn the_items_that_break_a_rule_are_named() {
    let apple = BTreeSet::from(["apple".to_owned()]);
    hold_for_items("nothing is red", [("a".to_owned(), BTreeSet::new()), ("b".to_owned(), apple)]);
}

#[test]
fn a_place_that_keeps_a_rule_passes() {
    hold("nothing is red", [("a".to_owned(), 0)]);
    hold_for_items("nothing is red", [("a".to_owned(), BTreeSet::new())]);
}
