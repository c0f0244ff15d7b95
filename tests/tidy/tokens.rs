//! Splits sources into tokens and string literals, without comments, and finds the paths that the tokens name.

/// A token of source code. Comments and strings have no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier or a keyword.
    Word(String),
    PathSeparator,
    Other(char),
}

impl Token {
    pub(crate) fn word(&self) -> Option<&str> {
        if let Self::Word(word) = self { Some(word) } else { None }
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.word() == Some(word)
    }
}

pub(crate) fn tokens(source: &str) -> Vec<Token> {
    split(source).0
}

/// Returns the contents of the string literals of a source. Escapes stay as they are written, but a line that is
/// continued is joined with the next line.
pub(crate) fn literals(source: &str) -> Vec<String> {
    let continued = |literal: &str| {
        let mut lines = literal.split("\\\n");
        let first = lines.next().unwrap_or_default().to_owned();
        lines.fold(first, |joined, line| joined + line.trim_start())
    };
    split(source).1.into_iter().map(continued).collect()
}

/// Splits a source into its tokens and the contents of its string literals.
fn split(source: &str) -> (Vec<Token>, Vec<&str>) {
    let (mut tokens, mut literals) = (Vec::new(), Vec::new());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            let length = quoted(rest, '"');
            literals.push(rest[1..length].trim_end_matches('"'));
            length
        } else if first == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else if let Some(length) = raw(rest) {
            literals.push(rest[..length].trim_start_matches(['b', 'r']).trim_matches('#').trim_matches('"'));
            length
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else if rest.starts_with("::") {
            tokens.push(Token::PathSeparator);
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Other(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    (tokens, literals)
}

/// Returns the length of the literal that begins `text`. `quote` ends the literal.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the raw string that begins `text`. `None` if `text` begins otherwise.
fn raw(text: &str) -> Option<usize> {
    let start = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let inside = start.trim_start_matches('#');
    let marks = start.len() - inside.len();
    let end = format!("\"{}", "#".repeat(marks));
    let inside = inside.strip_prefix('"')?;
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(text.len() - inside.len() + length)
}

/// Returns whether the quote that begins `text` opens a character literal. If not, the quote begins a lifetime.
fn is_character(text: &str) -> bool {
    let mut after = text.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) => true,
        (_, next) => next == Some('\''),
    }
}

/// Returns every path that `tokens` name. The paths of a `use` tree are written out.
pub(crate) fn paths(tokens: &[Token]) -> Vec<String> {
    let (imports, code) = imports(tokens);
    imports.into_iter().map(|import| import.path).chain(code_paths(&code)).collect()
}

/// A name that a `use` item brings into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The path that the imported name stands for.
    pub(crate) path: String,
    /// The name under which the file uses the import. `*` for a glob.
    pub(crate) name: String,
    /// Whether the import is a re-export: other modules can see it.
    pub(crate) is_exported: bool,
}

/// Splits a source's tokens into its imports and its other tokens.
pub(crate) fn imports(tokens: &[Token]) -> (Vec<Import>, Vec<Token>) {
    let (mut imports, mut code) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let is_tree = matches!(&tokens[at..], [Token::Word(word), next, ..]
            // `impl Trait + use<T>` is not an import.
            if word == "use" && *next != Token::Other('<'));
        if is_tree {
            let from = imports.len();
            at = spread(tokens, at + 1, "", &mut imports);
            let is_exported = ends_in_visibility(&code);
            imports[from..].iter_mut().for_each(|import| import.is_exported = is_exported);
            // The tokens before the import must not seem to stand before the tokens after it.
            code.push(Token::Other(';'));
        } else {
            code.push(tokens[at].clone());
            at += 1;
        }
    }
    (imports, code)
}

/// Returns whether `tokens` end in `pub` or `pub(...)`.
fn ends_in_visibility(tokens: &[Token]) -> bool {
    let before = match tokens.iter().rposition(|token| *token == Token::Other('(')) {
        Some(open) if tokens.last() == Some(&Token::Other(')')) => &tokens[..open],
        _ => tokens,
    };
    before.last().is_some_and(|token| token.is("pub"))
}

/// Returns the paths that `code` names. The tokens of imports are not part of `code`.
pub(crate) fn code_paths(code: &[Token]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut at = 0;
    while at < code.len() {
        match &code[at] {
            Token::Word(_) => {
                let end = path_end(code, at);
                paths.push(joined(&code[at..end]));
                at = end;
            }
            _ => at += 1,
        }
    }
    paths
}

/// Returns the index behind the path that starts at the index `at`.
fn path_end(tokens: &[Token], mut at: usize) -> usize {
    at += 1;
    while let [Token::PathSeparator, Token::Word(_), ..] = tokens[at..] {
        at += 2;
    }
    at
}

fn joined(tokens: &[Token]) -> String {
    tokens.iter().filter_map(Token::word).collect::<Vec<_>>().join("::")
}

/// Adds the paths of the `use` tree that starts at the index `at` to `imports`. Returns the index behind the tree.
fn spread(tokens: &[Token], at: usize, prefix: &str, imports: &mut Vec<Import>) -> usize {
    let mut at = at;
    let (mut path, mut alias) = (prefix.to_owned(), None);
    while let Some(token) = tokens.get(at) {
        match token {
            Token::Word(word) if word == "as" => {
                at += 1;
                alias = tokens.get(at).and_then(Token::word).map(str::to_owned);
            }
            Token::Word(word) => {
                if !path.is_empty() {
                    path.push_str("::");
                }
                path.push_str(word);
            }
            Token::Other('{') => {
                at = spread(tokens, at + 1, &path, imports);
                path.clear();
                continue;
            }
            Token::Other(end @ (',' | '}' | ';')) => {
                if !path.is_empty() && path != prefix {
                    let name = alias.take().unwrap_or_else(|| last_name(&path).to_owned());
                    imports.push(Import { path, name, is_exported: false });
                }
                if *end != ',' {
                    return at + 1;
                }
                path = prefix.to_owned();
            }
            Token::Other('*') => path.push_str("::*"),
            Token::PathSeparator | Token::Other(_) => {}
        }
        at += 1;
    }
    at
}

/// Returns the name that an import of `path` brings in. For `a::b::self` it is `b`.
fn last_name(path: &str) -> &str {
    let path = path.strip_suffix("::self").unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

pub(crate) fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn trees_of_use_are_spread_and_text_is_skipped() {
    let source = r###"
        use a::{b::{self, C as D}, e::*};
        // use comment::x;
        pub(crate) use f::g;
        fn h<'a>(x: &'a i::J) -> char { let _ = "std::k \" l::m"; n::o(); '"' }
        /* p::q */ r
        b"s::t"; r"u::v \"; br##"w::x " "# "##; raw::y(); r#type
    "###;
    let named = paths(&tokens(source));
    for path in ["a::b::self", "a::b::C", "a::e::*", "f::g", "i::J", "n::o", "r", "raw::y"] {
        assert!(named.iter().any(|named| named == path), "{path} of {named:?}");
    }
    for text in ["comment", "std", "l::m", "p::q", "s::t", "u::v", "w::x"] {
        assert!(!named.iter().any(|named| named.contains(text)), "{text} of {named:?}");
    }
    assert_eq!(literals(source), ["std::k \\\" l::m", "s::t", "u::v \\", "w::x \" \"# "]);
    assert_eq!(literals("f(\"one \\\n      line\", \"\")"), ["one line", ""]);
}

#[test]
fn imports_are_distinguished_from_code() {
    let source = "pub use a::{b as c, d}; pub(super) use e::f::{self, g}; use h::*; fn i() -> impl J + use<K> { l::m(); }";
    let (imports, code) = imports(&tokens(source));
    let seen: Vec<_> = imports.iter().map(|i| (&*i.path, &*i.name, i.is_exported)).collect();
    let expected = [
        ("a::b", "c", true),
        ("a::d", "d", true),
        ("e::f::self", "f", true),
        ("e::f::g", "g", true),
        ("h::*", "*", false),
    ];
    assert_eq!(seen, expected);
    assert!(code_paths(&code).iter().any(|path| path == "l::m"), "{code:?}");
}
