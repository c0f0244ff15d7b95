//! The share of sentences that a reader must read twice, in the comments of each crate, in the messages to users, and
//! in the pages. These are the sentences with one of the [`HABITS`]. Messages are the string literals of sources,
//! without tests. `TOURBILLON_PROSE=1` prints the shares. `TOURBILLON_PROSE=crates/redis` also prints the marked
//! sentences of that part:
//!
//! ```sh
//! TOURBILLON_PROSE=1 cargo test --test tidy --all-features prose -- --nocapture
//! ```
//!
//! At f4e018f such sentences were first counted by hand. There this test finds 3 % in `src`, and up to 20 % elsewhere.

use crate::gate;
use crate::tokens;
use crate::words::{comment, repository};
use std::collections::BTreeMap;
use std::env;

/// The largest permitted share of marked sentences, in per cent. Some marked sentences are right as they are.
const SHARE: usize = 2;

/// The smallest number of sentences for which a share is computed.
const FEW: usize = 4;

/// A habit of writing that makes a reader read a sentence twice.
struct Habit {
    name: &'static str,
    instead: &'static str,
    /// The forms of the habit. Each form has a key in brackets: the marked word. A word stands for itself, `a|b` for
    /// either word, `*` for any word, `*est` for an ending, and `.` for the end of a clause.
    forms: &'static [&'static str],
    /// Exceptions: forms with the same keys that are right, although a form of the habit fits.
    unless: &'static [&'static str],
}

const HABITS: [Habit; 6] = [
    Habit {
        name: "what as a noun",
        instead: "name the thing: the entries that, the first value read",
        forms: &["[what]"],
        unless: &[
            // These words introduce a question that somebody or something answers.
            "say|says|said|saying|show|shows|know|knows|see|sees|decide|decides|explain|explains|describe|describes|\
             matter|about|exactly|state|states|clear|check|checks|ask|asks [what]",
            "[what] if|kind|happens|happened|to",
        ],
    },
    Habit {
        name: "one for a noun",
        instead: "repeat the noun: the last request",
        forms: &[
            "the|this|that|another|other|first|second|third|last|next|present|new|old|own|same|earlier|later|former|\
             empty|each|every|such|any|which|only|following|previous|pending|shared|younger|older|whole|further|\
             larger|smaller|greater|longer|shorter|*ed|*est \
             [one|ones]",
            "[ones]",
            "of|in|with|without|for|to|at|on|after|before|from|as [one] .",
            "[one] that|which|who|whose|is|are|was|has|had|does|would|may|can|with|without|before|after|in|on|at|\
             from|if|and|where|when|while|than|too|yet",
        ],
        unless: &[
            // Here the word is a number.
            "by|than|least|most|exactly|and|or|to [one]",
            "[one] or|and|to|by more|many|two|several|one|all|none",
            "there is [one]",
            "[one] after the other",
            "is|are|has|have|had|need|needs|wants [one] .",
        ],
    },
    Habit {
        name: "so many as a demonstrative",
        instead: "give the number its name: `shards` shards, at most five seconds",
        forms: &["so [many|long|much|few|often]"],
        unless: &[
            "so [many|long|much|few|often] as|that",
            "so [many|long|much|few|often] * that",
            "not so [*]",
        ],
    },
    Habit {
        name: "is no X",
        instead: "is not a, is invalid",
        forms: &["is|are|was|were|be|been [no]"],
        unless: &["* [no] longer|more|later|earlier|matter", "there is|are|was|were|be|been [no]"],
    },
    Habit {
        name: "is to be",
        instead: "must be, shall be, or the plain present",
        forms: &["is|are|was|were to [be]"],
        unless: &[],
    },
    Habit {
        name: "meanwhile",
        instead: "name the time: during the call, before the answer",
        forms: &["[meanwhile]", "in the [meantime]"],
        unless: &[],
    },
];

/// Splits a sentence into words in lower case, and into marks that end a clause.
fn parts(sentence: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for word in sentence.split_whitespace() {
        let is_inside = |c: char| c.is_alphanumeric() || c == '`';
        let bare = word.trim_matches(|c: char| !is_inside(c));
        if !bare.is_empty() {
            parts.push(bare.to_lowercase());
        }
        if word.trim_end_matches(['*', '_', '"', '\'', ']']).ends_with(['.', ',', ';', ':', '?', '!', ')']) {
            parts.push(String::from("."));
        }
    }
    if parts.last().is_some_and(|last| last != ".") {
        parts.push(String::from("."));
    }
    parts
}

/// Returns whether `form` fits a sentence, with the form's key at the index `key` of `parts`.
fn stands(form: &str, parts: &[String], key: usize) -> bool {
    let form: Vec<&str> = form.split_whitespace().collect();
    let own = form.iter().position(|word| word.starts_with('[')).expect("a form has a key");
    key >= own
        && form.iter().enumerate().all(|(at, words)| {
            parts.get(key - own + at).is_some_and(|part| {
                let words = words.trim_matches(['[', ']']);
                words.split('|').any(|word| match word.strip_prefix('*') {
                    Some(end) => part != "." && part.len() > end.len() && part.ends_with(end),
                    None => part == word,
                })
            })
        })
}

/// Returns the habit that marks a sentence. The first habit that fits counts.
fn habit(sentence: &str) -> Option<&'static Habit> {
    let parts = parts(sentence);
    HABITS.iter().find(|habit| {
        (0..parts.len()).any(|key| {
            let stands = |forms: &[&str]| forms.iter().any(|form| stands(form, &parts, key));
            stands(habit.forms) && !stands(habit.unless)
        })
    })
}

/// Returns the sentences of a page, or of a source's comments. A sentence has at least three words. Code becomes the
/// word `code`. Headings are left out.
fn sentences(text: &str, is_page: bool) -> Vec<String> {
    let mut sentences = Vec::new();
    let (mut paragraph, mut is_code, mut is_made) = (String::new(), false, false);
    for line in text.lines().chain([""]) {
        let prose = if is_page { Some(line) } else { comment(line) };
        if !is_page && !line.trim_start().starts_with(['/', '*']) {
            // A comment behind code starts a new paragraph.
            split(&paragraph, &mut sentences);
            paragraph.clear();
        }
        let line = prose.unwrap_or("").trim();
        is_made = line.starts_with("<!-- begin ") || is_made && !line.starts_with("<!-- end ");
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_row = line.starts_with('|');
        let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
        if line.is_empty()
            || is_row
            || item.is_some()
            || line.starts_with(['#', '<'])
            || line.starts_with("```")
        {
            split(&paragraph, &mut sentences);
            paragraph.clear();
        }
        if is_code || is_made || line.starts_with(['#', '<']) || line.starts_with("```") {
            continue;
        }
        if is_row {
            line.split('|').for_each(|cell| split(cell, &mut sentences));
        } else {
            paragraph.push_str(item.unwrap_or(line));
            paragraph.push(' ');
        }
    }
    sentences
}

fn split(paragraph: &str, sentences: &mut Vec<String>) {
    // Code counts as a word, and a link counts as its text.
    let mut text = String::new();
    for (at, part) in paragraph.split('`').enumerate() {
        text.push_str(if at % 2 == 0 { part } else { "code" });
    }
    while let Some((before, after)) = text.split_once("](") {
        let after = after.split_once(')').map_or("", |(_, after)| after);
        text = format!("{before}] {after}");
    }
    let mut sentence = String::new();
    let words: Vec<&str> = text.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        sentence.push_str(word);
        sentence.push(' ');
        let ends = word.trim_end_matches(['*', '_', '"', ')']).ends_with(['.', '?', '!']);
        let begins = words.get(at + 1).is_none_or(|next| {
            next.trim_start_matches(['*', '_', '"', '(', '[']).starts_with(char::is_uppercase)
        });
        if ends && begins || at + 1 == words.len() {
            let is_word = |word: &&str| word.chars().any(char::is_alphabetic);
            if sentence.split_whitespace().filter(is_word).count() >= 3 {
                sentences.push(sentence.trim().to_owned());
            }
            sentence.clear();
        }
    }
}

/// Returns the sentences of a source's string literals, up to its tests.
fn messages(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut sentences = Vec::new();
    for literal in tokens::literals(source) {
        literal.split("\\n").for_each(|line| split(line, &mut sentences));
    }
    sentences
}

fn is_test(path: &str) -> bool {
    let mut folders = path.split('/');
    folders.any(|folder| ["tests", "benches", "loom_tests", "examples", "tests.rs"].contains(&folder))
}

/// Returns the part of the repository to which a text belongs: a crate, a folder of the root, or pages of one kind.
fn part_of(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut folders = path.split('/');
    match (name, folders.next(), folders.next()) {
        ("README.md", ..) => String::from("README.md of all folders"),
        ("DESIGN.md" | "design.md" | "architecture.md", ..) => String::from("pages on the design"),
        (_, Some("docs"), _) => String::from("docs/guide"),
        (_, Some("crates"), Some(name)) => format!("crates/{name}"),
        (_, Some(folder), Some(_)) => folder.to_owned(),
        _ => path.to_owned(),
    }
}

/// For each part of the repository, its sentences: the path, the text, and the habit that marks the sentence.
type Parts = BTreeMap<String, Vec<(String, String, Option<&'static Habit>)>>;

fn counted(texts: &[(String, String)]) -> Parts {
    let mut parts = Parts::new();
    for (path, text) in texts {
        let is_page = path.ends_with(".md");
        let mut add = |part: String, sentences: Vec<String>| {
            let sentences = sentences.into_iter().map(|sentence| (path.clone(), habit(&sentence), sentence));
            parts.entry(part).or_default().extend(sentences.map(|(path, habit, text)| (path, text, habit)));
        };
        add(part_of(path), sentences(text, is_page));
        if !is_page && !is_test(path) {
            add(format!("messages of {}", part_of(path)), messages(text));
        }
    }
    parts.retain(|_, sentences| sentences.len() >= FEW);
    parts
}

/// Returns the percentage of marked sentences, rounded up.
fn share(sentences: &[(String, String, Option<&Habit>)]) -> usize {
    let marked = sentences.iter().filter(|(_, _, habit)| habit.is_some()).count();
    (marked * 100).div_ceil(sentences.len())
}

fn print(parts: &Parts, wanted: &str) {
    eprintln!("{:28} sentences  marked  share", "part");
    for (part, sentences) in parts {
        let marked: Vec<_> =
            sentences.iter().filter_map(|(path, text, habit)| Some((path, text, (*habit)?))).collect();
        let share = 100.0 * marked.len() as f64 / sentences.len() as f64;
        eprintln!("{part:28} {:9}  {:6}  {share:4.1} %", sentences.len(), marked.len());
        for (path, text, habit) in marked.iter().filter(|_| part == wanted) {
            eprintln!("  {path}: {} ({}): {text}", habit.name, habit.instead);
        }
    }
}

#[test]
fn the_share_of_marked_prose_is_small() {
    let parts = counted(&repository());
    let read = ["src", "crates/durable", "docs/guide", "pages on the design", "README.md of all folders"];
    for part in read.into_iter().chain(["messages of crates/server", "messages of crates/durable"]) {
        assert!(parts.get(part).is_some_and(|sentences| sentences.len() > 100), "{part} is not read");
    }
    if let Ok(wanted) = env::var("TOURBILLON_PROSE") {
        print(&parts, &wanted);
    }
    let shares = parts.iter().map(|(part, sentences)| (part.clone(), share(sentences)));
    gate::hold("marked sentences, in per cent", shares.filter(|&(_, share)| share > SHARE));
}

// --- The check itself ---

#[test]
fn each_habit_is_found_and_plain_sentences_are_not_marked() {
    let name = |sentence: &str| habit(sentence).map(|habit| habit.name);
    for (marked, expected) in [
        ("What was read first is of one moment.", "what as a noun"),
        ("It keeps what it has.", "what as a noun"),
        ("The commit replaces the last one.", "one for a noun"),
        ("A request is sent after another one, and the newest one wins.", "one for a noun"),
        ("The key of a timer without one, which has none.", "one for a noun"),
        ("Sends the spans that wait, for at most so long.", "so many as a demonstrative"),
        ("A deployment with so many shards", "so many as a demonstrative"),
        ("The query is no UTF-8.", "is no X"),
        ("The timers that are to be cancelled.", "is to be"),
        ("If the store changed *meanwhile*, it starts again.", "meanwhile"),
    ] {
        assert_eq!(name(marked), Some(expected), "{marked}");
    }
    for plain in [
        "The documentation says what the call does.",
        "One thread writes at a time, by one store.",
        "It grows by one, and holds at least one.",
        "The number is no longer needed.",
        "The caller wants to be called.",
        "It takes so much that the rest is refused.",
        "A one-shot is cancelled, one by one.",
        "There is one.",
    ] {
        assert_eq!(name(plain), None, "{plain}");
    }
}

#[test]
fn sentences_are_counted_once_and_code_is_none() {
    let source = [
        "/// The first sentence. The second goes",
        "/// on, with `what`. So.",
        "let what = 1; // what it is, and the last one",
        "/// ```",
        "/// what is here",
        "/// ```",
        "/// | a cell of three | two words |",
        "/// # What a heading is",
    ]
    .join("\n");
    let found = sentences(&source, false);
    assert_eq!(
        found,
        [
            "The first sentence.",
            "The second goes on, with code.",
            "what it is, and the last one",
            "a cell of three"
        ]
    );
    let counted = counted(&[(String::from("crates/a/src/b.rs"), source)]);
    let [(part, sentences)] = &counted.iter().collect::<Vec<_>>()[..] else { panic!("{:?}", counted.keys()) };
    assert_eq!((part.as_str(), share(sentences)), ("crates/a", 25));
    let paths = ["crates/a/README.md", "docs/design.md", "docs/guide/b.md", "tests/c.rs", "D.md"];
    let parts = ["README.md of all folders", "pages on the design", "docs/guide", "tests", "D.md"];
    assert_eq!(paths.map(part_of), parts);
}
