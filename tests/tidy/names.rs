//! Names: identifiers without a meaning, tests that are named by a number of a list, and the tags of invariants.

use crate::circles::{crates, files_of};
use crate::gate;
use crate::tags;
use crate::tokens::{Token, tokens};
use crate::words::repository;
use std::collections::{BTreeMap, BTreeSet};

/// Names that say nothing as a binding, a parameter or a field. A function may have them, because its name stands with
/// a type or a receiver.
const EMPTY: [&str; 4] = ["of", "its", "what", "who"];

/// Words of a letter and digits that are real names, not the numbers of a list.
const WORDS: [&str; 16] = [
    "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "h1", "h2", "p50", "p99", "x86",
    "v1",
];

/// Returns the places of a source that use an empty name, such as `of` for a binding.
fn empty_names(source: &str) -> Vec<String> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(word) = token.word().filter(|word| EMPTY.contains(word)) else { continue };
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let after = tokens.get(at + 1);
        let is_function = after == Some(&Token::Other('('))
            || before.is_some_and(|before| before.is("fn") || *before == Token::PathSeparator);
        // `r#what` counts as a use. The name of a macro does not.
        if !is_function && after != Some(&Token::Other('!')) {
            found.push(word.to_owned());
        }
    }
    found
}

/// Returns the functions of a source whose names begin with the number of a list, as `f13_a_lost_answer`.
fn numbered(source: &str) -> Vec<String> {
    let tokens = tokens(source);
    let names = tokens.windows(2).filter(|pair| pair[0].is("fn")).filter_map(|pair| pair[1].word());
    names.filter(|name| is_numbered(name)).map(str::to_owned).collect()
}

fn is_numbered(name: &str) -> bool {
    let Some((first, _)) = name.split_once('_') else { return false };
    let number = first.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = first.len() - number.len();
    let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    (1..=2).contains(&letters)
        && number.len() - digits.len() <= 1
        && !digits.is_empty()
        && digits.bytes().all(|digit| digit.is_ascii_digit())
        && !WORDS.contains(&first)
}

/// Returns the tags that follow another tag of the same letter on one line. This happens in docs whose paragraph starts
/// with a tag: `I2` of `I1. It holds. I2. So does this.`
fn crowded(source: &str) -> Vec<String> {
    let (mut found, mut letter) = (Vec::new(), None);
    for line in source.lines().map(str::trim_start) {
        let Some(text) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")).map(str::trim_start)
        else {
            letter = None;
            continue;
        };
        let mut words = text.split(' ').peekable();
        let mut before = words.next().unwrap_or("");
        if let Some(tag) = tag_of(before) {
            letter = tag.chars().next();
        } else if text.is_empty() || text.starts_with('|') {
            letter = None;
        }
        for word in words {
            let is_next = before.ends_with('.') && tag_of(before).is_none();
            found.extend(
                tag_of(word).filter(|tag| is_next && tag.chars().next() == letter).map(str::to_owned),
            );
            before = word;
        }
    }
    found
}

/// Returns the tag in `word` if `word` is a tag with a full stop.
fn tag_of(word: &str) -> Option<&str> {
    word.strip_suffix('.').filter(|word| crate::is_tag(word))
}

/// Returns the tags that several places of a crate explain, and the tags that share a line.
fn unclear_tags(files: &[(String, String)]) -> BTreeSet<String> {
    let (mut places, mut found) = (BTreeMap::<String, Vec<&str>>::new(), BTreeSet::new());
    for (file, source) in files {
        for tag in tags(source) {
            places.entry(tag).or_default().push(file);
        }
        found.extend(
            crowded(source).into_iter().map(|tag| format!("{file}: {tag} follows another on its line")),
        );
    }
    let twice = places.into_iter().filter(|(_, files)| files.len() > 1);
    found.extend(twice.map(|(tag, files)| format!("{tag} is explained in {}", files.join(" and in "))));
    found
}

/// Returns the name of the package to which a file of the repository belongs.
fn package(path: &str) -> String {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", name, ..] => format!("crates/{name}"),
        ["benches", name @ ("compare" | "durable"), ..] => format!("benches/{name}"),
        _ => String::from("the engine"),
    }
}

fn by_place(
    place: impl Fn(&str) -> String,
    find: impl Fn(&str) -> Vec<String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for (path, source) in repository().iter().filter(|(path, _)| path.ends_with(".rs")) {
        let names = find(source).into_iter().enumerate().map(|(at, name)| format!("{path}: {name} ({at})"));
        found.entry(place(path)).or_default().extend(names);
    }
    found
}

#[test]
fn no_binding_has_a_name_that_says_nothing() {
    gate::hold_for_items("names that say nothing", by_place(package, empty_names));
}

#[test]
fn no_test_is_named_by_a_number() {
    gate::hold_for_items("tests that are named by the number of a list", by_place(package, numbered));
}

#[test]
fn a_tag_is_of_one_invariant_of_a_crate_on_its_own_line() {
    let crates =
        crates().into_iter().map(|folder| (folder.trim_end_matches("/src").to_owned(), files_of(&folder)));
    let unclear = crates.map(|(name, files)| (name, unclear_tags(&files)));
    gate::hold_for_items("tags that a crate explains twice, and invariants that share a line", unclear);
}

// --- The checks themselves ---

#[test]
fn empty_names_are_seen() {
    let count = |source| empty_names(source).len();
    assert_eq!(count("fn f(of: u8, by: u8) { let its = self.what; } struct S { who: u8 }"), 4);
    assert_eq!(count("let c = |of, (what, _)| x; match y { Some(who) => {} }"), 3);
    assert_eq!(count("fn of(x: u8) {} Draft::of(y); z.what(); use a::who;"), 0);
    assert_eq!(count("// of its\nlet offer = \"what\"; what!(1);"), 0);
}

#[test]
fn numbers_of_a_list_are_seen() {
    assert_eq!(numbered("fn f13_a_lost_answer() {} async fn t4b_x() {} fn ab12_y() {}").len(), 3);
    assert_eq!(
        numbered("fn u32_is_read() {} fn f() {} fn x1() {} fn first_1_of() {} let f1_x = f2_y();").len(),
        0
    );
}

#[test]
fn tags_that_are_not_clear_are_seen() {
    let count = |files: &[(&str, &str)]| {
        let files: Vec<_> =
            files.iter().map(|&(name, source)| (name.to_owned(), source.to_owned())).collect();
        unclear_tags(&files).len()
    };
    let a = ("a.rs", "//! I1. It holds, as I3. And\n//!     more.\n//! I2. It does.\n//! | T1 | x |");
    assert_eq!(count(&[a]), 0);
    assert_eq!(count(&[a, ("b.rs", "//! I2. Another.\n//! J1. Not by I1. It is.")]), 1);
    assert_eq!(count(&[a, ("b.rs", "//! | T1 | y |")]), 1);
    assert_eq!(count(&[("b.rs", "//! K1. It holds. K2. So\n//! does this. K3. And this.")]), 2);
}
