//! Limits on sizes: lines of files, and methods of types.
//!
//! The methods of a type are those of its `impl` blocks without a trait. A function without a receiver does not count
//! if it is in another file than the type. It is a constructor that stands beside the value it makes.

use crate::circles::{Sources, block, crates, files_of, module, modules};
use crate::gate;
use crate::tokens::{Token, tokens};
use crate::words::repository;
use std::collections::{BTreeMap, BTreeSet};

/// The largest number of lines that a file may have. Blank lines and comments do not count.
const LINES: usize = 500;

/// The largest number of methods that a type may have.
const METHODS: usize = 40;

/// The largest number of files that may have methods of one type.
const FILES: usize = 4;

/// Returns the number of a source's lines. Leaves out blank lines and comments.
fn lines(source: &str) -> usize {
    let mut is_comment = false;
    source
        .lines()
        .map(str::trim)
        .filter(|line| {
            let was_comment = is_comment;
            is_comment = (is_comment || line.starts_with("/*")) && !line.contains("*/");
            !line.is_empty() && !line.starts_with("//") && !line.starts_with("/*") && !was_comment
        })
        .count()
}

/// A function in an `impl` block.
struct Method {
    /// The path of the method's type, as the `impl` block writes it.
    path: String,
    name: String,
    has_receiver: bool,
}

/// Returns the methods that a file adds to types. Leaves out methods of traits.
fn methods(tokens: &[Token]) -> Vec<Method> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // At the start of an item, `impl` starts a block. Elsewhere it starts a type.
        let is_item = at == 0
            || matches!(&tokens[at - 1], Token::Other(';' | '}' | '{' | ']'))
            || tokens[at - 1].is("unsafe");
        if !(tokens[at].is("impl") && is_item) {
            at += 1;
            continue;
        }
        let Some(open) = tokens[at..].iter().position(|token| *token == Token::Other('{')) else { break };
        let open = at + open;
        let end = open + block(&tokens[open..]);
        if let Some(path) = inherent(&tokens[at + 1..open]) {
            found.extend(functions(&tokens[open + 1..end - 1]).map(|(name, has_receiver)| Method {
                path: path.clone(),
                name,
                has_receiver,
            }));
        }
        at = end;
    }
    found
}

/// Returns the type of an `impl` block without a trait. `head` has the tokens between `impl` and the brace. `None` for
/// an `impl` of a trait.
fn inherent(head: &[Token]) -> Option<String> {
    let mut depth = 0_usize;
    let mut path = Vec::new();
    for (at, token) in head.iter().enumerate() {
        match token {
            Token::Other('<') => depth += 1,
            // The `>` of `->` does not close a bracket.
            Token::Other('>') if at > 0 && head[at - 1] != Token::Other('-') => {
                depth = depth.saturating_sub(1)
            }
            Token::Word(word) if depth == 0 && word == "for" => return None,
            Token::Word(word) if depth == 0 && word == "where" => break,
            Token::Word(word) if depth == 0 => path.push(word.as_str()),
            _ => {}
        }
    }
    (!path.is_empty()).then(|| path.join("::"))
}

/// Returns the functions in a block: the name, and whether the function has a receiver.
fn functions(body: &[Token]) -> impl Iterator<Item = (String, bool)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < body.len() {
        match &body[at..] {
            [Token::Other('{'), ..] => at += block(&body[at..]),
            [Token::Word(word), Token::Word(name), rest @ ..] if word == "fn" => {
                let open = rest.iter().position(|token| *token == Token::Other('(')).unwrap_or(0);
                let first: Vec<_> =
                    rest[open..].iter().take(8).take_while(|token| **token != Token::Other(',')).collect();
                found.push((name.clone(), first.iter().any(|token| token.is("self"))));
                at += 2;
            }
            _ => at += 1,
        }
    }
    found.into_iter()
}

/// A type: the file that defines it, and its name.
type Type = (String, String);

/// Returns the methods of each type in a crate. Each method comes with its file.
fn types(files: &[(String, String)]) -> BTreeMap<Type, Vec<(String, Method)>> {
    let sources = Sources::new(files.iter().map(|(name, source)| (&**name, &**source)));
    let mut types = BTreeMap::<Type, Vec<(String, Method)>>::new();
    for (file, source) in
        files.iter().filter(|(name, _)| !name.ends_with("tests.rs") && !name.starts_with("tests/"))
    {
        let tokens = tokens(source);
        let defined: BTreeSet<&str> = tokens
            .windows(2)
            .filter(|pair| ["struct", "enum", "union"].iter().any(|word| pair[0].is(word)))
            .filter_map(|pair| pair[1].word())
            .collect();
        for method in modules(&tokens).iter().flat_map(|(_, tokens)| methods(tokens)) {
            let name = method.path.rsplit("::").next().unwrap_or(&method.path).to_owned();
            let home = if defined.contains(name.as_str()) {
                file.clone()
            } else {
                let home = sources.defines(&module(file), &method.path, 10);
                home.map_or_else(String::new, |home| sources.name(&home).to_owned())
            };
            types.entry((home, name)).or_default().push((file.clone(), method));
        }
    }
    for ((home, _), methods) in &mut types {
        methods.retain(|(file, method)| method.has_receiver || file == home);
    }
    types
}

/// Returns the types, in all crates, for which `count` returns more items than `limit`. Each type comes with its items.
fn excesses(
    limit: usize,
    count: impl Fn(&[(String, Method)]) -> BTreeSet<String>,
) -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    for folder in crates() {
        for ((home, name), methods) in types(&files_of(&folder)) {
            let items = count(&methods);
            if items.len() > limit {
                found.push((format!("{name} of {folder}/{home}"), items));
            }
        }
    }
    found
}

#[test]
fn files_are_not_too_long() {
    let all = repository();
    let files = all.iter().filter(|(path, _)| path.ends_with(".rs"));
    let long = files.map(|(path, source)| (path.clone(), lines(source))).filter(|(_, lines)| *lines > LINES);
    gate::hold("lines of a file, without blank lines and comments", long);
}

#[test]
fn a_type_has_not_too_many_methods() {
    let names = |methods: &[(String, Method)]| {
        methods.iter().map(|(file, method)| format!("{file}: {}", method.name)).collect()
    };
    gate::hold_for_items("methods of a type", excesses(METHODS, names));
}

#[test]
fn the_methods_of_a_type_are_in_few_files() {
    let files = |methods: &[(String, Method)]| methods.iter().map(|(file, _)| file.clone()).collect();
    gate::hold_for_items("files with methods of a type", excesses(FILES, files));
}

// --- The checks themselves ---

#[test]
fn lines_of_code_are_counted() {
    assert_eq!(
        lines(
            "//! Docs.\n\nlet x = 1; // A comment.\n    // Another.\n/* And\n more\n*/\nlet y = 2;\n/* z */\n"
        ),
        2
    );
}

#[test]
fn methods_are_counted_for_their_type() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::X;"),
        (
            "a.rs",
            "pub struct X; impl X { pub fn new() -> Self { fn g() {} X } fn f(&mut self) {} } impl Default for X { fn default() -> Self { X } }",
        ),
        (
            "b.rs",
            "use crate::X; impl<T: Fn() -> u8> X where T: Y { fn h<'a>(&'a self, x: u8) {} fn from_b() -> X { X } }",
        ),
        (
            "c.rs",
            "struct X; impl X { fn i(self: Arc<Self>) {} } fn j(x: impl X) {} mod tests { impl X { fn k(&self) {} } }",
        ),
    ];
    let files = files.map(|(name, source)| (name.to_owned(), source.to_owned()));
    let types = types(&files);
    let seen: Vec<(&str, Vec<&str>)> = types
        .iter()
        .map(|((home, _), methods)| {
            (home.as_str(), methods.iter().map(|(_, method)| method.name.as_str()).collect())
        })
        .collect();
    assert_eq!(seen, [("a.rs", vec!["new", "f", "h"]), ("c.rs", vec!["i"])]);
}
