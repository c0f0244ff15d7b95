//! Phrases that the prose must not have. The prose is the documentation and comments of all sources, and the pages.
//!
//! Code in backticks or in a fence is not prose. The change log is left out, since it is history. Text that the book of
//! benchmarks took along with its results is left out, too.

use std::env;
use std::fs;
use std::path::Path;

/// A phrase that prose may not have, and the words to write instead. A phrase in lower case also finds capitals. A
/// phrase with capitals finds only itself.
const UNWANTED: [(&str, &str); 26] = [
    ("told", "say what the call does: returns, fails with, is called; `stays distinguishable from`"),
    ("hear", "say what the call does: gets, sees, is called with"),
    ("hears", "say what the call does: gets, sees, is called with"),
    ("heard", "say what happened: received, sent, was called with"),
    ("tells of", "shows, reports, returns"),
    ("tell of", "show, report, return"),
    ("as there.", "name the place, with a link"),
    ("as there,", "name the place, with a link"),
    ("as there;", "name the place, with a link"),
    ("as there:", "name the place, with a link"),
    ("that one.", "repeat the noun"),
    ("that one,", "repeat the noun"),
    ("that one;", "repeat the noun"),
    ("that one:", "repeat the noun"),
    ("that one is", "repeat the noun"),
    ("those who", "name them: threads that, callers that"),
    ("whoever", "name it: the thread that, a caller that"),
    ("Who", "start with a noun: the thread that, a caller that"),
    ("by who", "by the thread that, by the caller that"),
    ("while who", "while the thread that"),
    ("says who", "says which thread, has the names of"),
    ("oneself", "name the one: the caller would wait for itself"),
    ("one's own", "an owned timer, the user's clock"),
    ("be had", "is ready, is free, runs"),
    ("begins anew", "starts again"),
    ("the begin", "the start"),
];

/// Successive lines of a comment or page, with their numbers.
type Paragraph = Vec<(usize, String)>;

/// Returns the paragraphs of a page, or those of a source's comments.
fn prose(text: &str, is_page: bool) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut is_code, mut is_made) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let Some(line) = (if is_page { Some(line) } else { comment(line) }) else { continue };
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        // Between these marks a page has generated text.
        is_made = line.starts_with("<!-- begin ") || is_made && !line.starts_with("<!-- end ");
        if is_code || is_made {
            continue;
        }
        let line = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        match paragraphs.last_mut().filter(|lines| lines.last().is_some_and(|(last, _)| last + 1 == number)) {
            Some(lines) => lines.push((number, line)),
            None => paragraphs.push(vec![(number, line)]),
        }
    }
    paragraphs
}

/// Returns the comment on a line of Rust or C. `None` without a comment.
pub(crate) fn comment(line: &str) -> Option<&str> {
    let start = line.trim_start();
    if let Some(rest) = start.strip_prefix("/*").or_else(|| start.strip_prefix("* ")) {
        return Some(rest);
    }
    let rest = start.strip_prefix("//").or_else(|| line.split_once(" // ").map(|(_, rest)| rest))?;
    Some(rest.trim_start_matches(['/', '!']))
}

/// Returns the unwanted phrases in a page or source: the line, the phrase, and the words to write instead.
fn unwanted(text: &str, is_page: bool) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for lines in prose(text, is_page) {
        let (mut joined, mut starts) = (String::new(), Vec::new());
        for (number, line) in &lines {
            starts.push((joined.len(), *number));
            joined.push_str(line);
            joined.push(' ');
        }
        let small = joined.to_ascii_lowercase();
        for (phrase, instead) in UNWANTED {
            let has_capital = phrase.starts_with(char::is_uppercase);
            let text = if has_capital { &joined } else { &small };
            for (at, _) in text.match_indices(phrase).filter(|&(at, _)| is_whole(text, at, phrase)) {
                let start = starts.iter().rfind(|&&(start, _)| start <= at).expect("the first starts at 0");
                found.push((start.1, phrase, instead));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Returns whether the phrase at the index `at` begins and ends at the edges of words.
fn is_whole(text: &str, at: usize, phrase: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    let before = text[..at].chars().next_back();
    let after = text[at + phrase.len()..].chars().next().filter(|_| phrase.ends_with(is_inside));
    !before.is_some_and(is_inside) && !after.is_some_and(is_inside)
}

/// Adds the pages and sources below `folder` to `texts`. Paths begin at the repository's root.
fn texts(root: &Path, folder: &str, texts: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            let is_theirs = name.starts_with('.')
                || ["target", "node_modules"].contains(&&*name)
                || path == "benches/results";
            if !is_theirs {
                self::texts(root, &path, texts);
            }
        } else if [".rs", ".md", ".c", ".h"].iter().any(|end| name.ends_with(end)) && name != "CHANGELOG.md" {
            texts.push((path, fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

/// Returns all pages and sources of the repository, by their paths. `TOURBILLON_ROOT` names the folder of another
/// commit's files, which are read instead.
pub(crate) fn repository() -> Vec<(String, String)> {
    let root = env::var_os("TOURBILLON_ROOT").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut all = Vec::new();
    texts(Path::new(&root), "", &mut all);
    all
}

/// The largest length of a line of prose, in characters.
const COLUMNS: usize = 120;

/// Returns the numbers of the lines of prose that are too long. Rows of tables and addresses may be long, because a row
/// is one line and an address is one word.
fn too_long(text: &str, is_page: bool) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_long = |number: &usize| {
        let line = lines[number - 1];
        let may_be = comment(line).unwrap_or(line).trim_start().starts_with('|') || line.contains("://");
        !may_be && line.chars().count() > COLUMNS
    };
    prose(text, is_page).iter().flatten().map(|(number, _)| *number).filter(is_long).collect()
}

#[test]
fn lines_of_prose_are_not_too_long() {
    let all = repository();
    let found = all.iter().flat_map(|(path, text)| {
        too_long(text, path.ends_with(".md")).into_iter().map(move |line| format!("{path}:{line}"))
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "lines with more than {COLUMNS} characters:\n{}", found.join("\n"));
}

#[test]
fn a_line_is_long_unless_it_cannot_be_shorter() {
    let (row, words) = ("| a cell ".repeat(20), "word ".repeat(40));
    let text = format!("/// {row}\n/// {words}\nlet code = 1; // {words}\n/// https://{words}\n/// short\n");
    assert_eq!(too_long(&text, false), [2, 3]);
    assert_eq!(too_long(&format!("{row}\n\n{words}\n```\n{words}\n```\n"), true), [3]);
}

#[test]
fn the_prose_does_without_unwanted_phrases() {
    let all = repository();
    for path in
        ["README.md", "src/DESIGN.md", "src/lib.rs", "crates/c/include/tourbillon.h", "loom_tests/mod.rs"]
    {
        assert!(all.iter().any(|(name, _)| name == path), "{path} is not read");
    }
    let found = all.iter().flat_map(|(path, text)| {
        let found = unwanted(text, path.ends_with(".md")).into_iter();
        found.map(move |(line, phrase, instead)| format!("{path}:{line}: \"{phrase}\"; instead: {instead}"))
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "{found:#?}");
}

// --- The check itself ---

#[test]
fn phrases_are_found_in_prose_only() {
    let phrases = |text: &str, is_page: bool| -> Vec<_> {
        unwanted(text, is_page).into_iter().map(|(line, phrase, _)| (line, phrase)).collect()
    };
    let source = [
        "//! It is",
        "//! Told so.",
        "let told = \"heard\";\x20// As there: whoever.",
        "/// `told` and as there are.",
        "/// Who, those",
        "/// who.",
        "/// ```",
        "/// told",
        "/// ```",
        "/* One's own */ x",
        "untold();",
    ];
    let expected =
        [(2, "told"), (3, "as there:"), (3, "whoever"), (5, "Who"), (5, "those who"), (10, "one's own")];
    assert_eq!(phrases(&source.join("\n"), false), expected);
    let page = "Told.\n\n```sh\ntold\n```\n<!-- begin x -->\nheard\n<!-- end x -->\n// whoever, `hears`\n";
    assert_eq!(phrases(page, true), [(1, "told"), (9, "whoever")]);
}
