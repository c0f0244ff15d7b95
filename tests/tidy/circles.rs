//! No files use each other in a circle: if file A uses file B, neither B nor a file that B leads to uses A.
//!
//! A file uses another file if it names an item of that file by a path. The path may start at the crate's root, at
//! `super` or `self`, at an import, or at a child module's name. The item counts for the file that defines it: a path
//! through re-exports leads to that file. So a re-export itself is not a use. It is a use if it is a glob, or if the
//! file also names the item in its own code. A `mod.rs` that only declares and re-exports its children (a *face*) uses
//! none of them. Unit tests may name everything.
//!
//! Methods are not seen. If another file adds a method to a type, a call of this method names no path.

use crate::sources_in;
use crate::tokens::{Import, Token, code_paths, imports, tokens};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::{fs, iter};

/// For each file, the files that it uses. Each used file comes with a path that names it.
pub(crate) type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// A source file of a crate. Each file is a module, too.
struct File {
    /// The file's path below the folder of the crate's sources.
    name: String,
    imports: Vec<Import>,
    /// The paths that the file's code names, without its imports.
    paths: Vec<String>,
    /// The words of the file's code, without its imports.
    words: BTreeSet<String>,
}

impl File {
    fn new(name: &str, source: &str) -> Self {
        let (mut all, mut paths, mut words) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (depth, tokens) in modules(&tokens(source)) {
            let (imports, code) = imports(&tokens);
            all.extend(
                imports.into_iter().map(|import| Import { path: outside(&import.path, depth), ..import }),
            );
            paths.extend(code_paths(&code).iter().map(|path| outside(path, depth)));
            words.extend(code.iter().filter_map(Token::word).map(str::to_owned));
        }
        Self { name: name.to_owned(), imports: all, paths, words }
    }
}

/// Returns the tokens of a file's module and of each module inside the file, with the module's depth. Leaves out unit
/// tests.
pub(crate) fn modules(tokens: &[Token]) -> Vec<(usize, Vec<Token>)> {
    let (mut own, mut modules) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at..] {
            [Token::Word(word), Token::Word(name), Token::Other('{'), ..] if word == "mod" => {
                let end = at + 2 + block(&tokens[at + 2..]);
                if name != "tests" {
                    let inside = self::modules(&tokens[at + 3..end - 1]);
                    modules.extend(inside.into_iter().map(|(depth, tokens)| (depth + 1, tokens)));
                }
                at = end;
            }
            _ => {
                own.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    modules.push((0, own));
    modules
}

/// Returns the number of tokens in the block that begins `tokens`.
pub(crate) fn block(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Other('{') => depth += 1,
            Token::Other('}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Converts a path from a module inside a file into a path from the file's own module. `depth` is the depth of the
/// inner module.
fn outside(path: &str, depth: usize) -> String {
    let mut path = path;
    for _ in 0..depth {
        path = path.strip_prefix("super::").unwrap_or(path);
    }
    if path == "super" && depth > 0 { String::from("self") } else { path.to_owned() }
}

/// The files of a crate. The key is the path of the file's module.
pub(crate) struct Sources(BTreeMap<Vec<String>, File>);

impl Sources {
    pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files.into_iter().filter(|(name, _)| !name.ends_with("tests.rs"));
        Self(files.map(|(name, source)| (module(name), File::new(name, source))).collect())
    }

    /// Returns the module of the file that defines the item `path`, as seen from `module`. Returns `None` for an item
    /// of another crate.
    pub(crate) fn defines(&self, module: &[String], path: &str, patience: usize) -> Option<Vec<String>> {
        let mut segments = path.split("::").peekable();
        let mut place = module.to_vec();
        match segments.peek().copied()? {
            "crate" => {
                segments.next();
                place.clear();
            }
            "self" => {
                segments.next();
            }
            "super" => {
                while segments.next_if_eq(&"super").is_some() {
                    place.pop()?;
                }
            }
            first if self.child(&place, first).is_none() && self.import(&place, first).is_none() => {
                return None;
            }
            _ => {}
        }
        while let Some(segment) = segments.next() {
            if let Some(child) = self.child(&place, segment) {
                place = child;
                continue;
            }
            let import = self.import(&place, segment).filter(|import| import.path != segment && patience > 0);
            let Some(import) = import else { break };
            let path: Vec<_> = iter::once(import.path.trim_end_matches("::self")).chain(segments).collect();
            return self.defines(&place, &path.join("::"), patience - 1);
        }
        self.0.contains_key(&place).then_some(place)
    }

    /// Returns the name of the file that contains `module`.
    pub(crate) fn name(&self, module: &[String]) -> &str {
        &self.0[module].name
    }

    fn child(&self, place: &[String], name: &str) -> Option<Vec<String>> {
        let child: Vec<String> = place.iter().cloned().chain([name.to_owned()]).collect();
        self.0.contains_key(&child).then_some(child)
    }

    /// Returns the import called `name` in the file of the module `place`.
    fn import(&self, place: &[String], name: &str) -> Option<&Import> {
        self.0.get(place)?.imports.iter().find(|import| import.name == name)
    }

    pub(crate) fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, file) in &self.0 {
            let imports = file.imports.iter().filter(|import| {
                !import.is_exported || import.name == "*" || file.words.contains(&import.name)
            });
            let imported = imports.map(|import| import.path.trim_end_matches("::*"));
            let named = file.paths.iter().map(String::as_str).filter(|path| path.contains("::"));
            for path in imported.chain(named) {
                if let Some(used) = self.defines(module, path, 10).filter(|used| used != module) {
                    let used = self.0[&used].name.clone();
                    uses.entry(file.name.clone()).or_default().entry(used).or_insert_with(|| path.to_owned());
                }
            }
        }
        uses
    }
}

/// Returns the module path of a file. The crate's root has an empty path.
pub(crate) fn module(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// Returns the shortest circle of files in which each file uses the next. The last file uses the first. `None` without
/// a circle.
fn circle(uses: &Uses) -> Option<Vec<&str>> {
    uses.keys().filter_map(|file| way_back(uses, file)).min_by_key(Vec::len)
}

/// Returns the shortest chain of uses that leads from the file `start` back to it.
fn way_back<'a>(uses: &'a Uses, start: &'a str) -> Option<Vec<&'a str>> {
    let mut users = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(file) = open.pop_front() {
        for used in uses.get(file).into_iter().flat_map(BTreeMap::keys) {
            if used == start {
                let mut way: Vec<_> = iter::successors(Some(file), |file| users.get(file).copied()).collect();
                way.reverse();
                return Some(way);
            }
            if !users.contains_key(used.as_str()) {
                users.insert(used.as_str(), file);
                open.push_back(used);
            }
        }
    }
    None
}

/// Returns the uses in a circle of files as text, one use after the other.
fn steps(uses: &Uses, circle: &[&str]) -> String {
    let next = circle.iter().cycle().skip(1);
    let steps = circle.iter().zip(next).map(|(user, used)| format!("{user} names {}", uses[*user][*used]));
    steps.collect::<Vec<_>>().join(", ")
}

/// Returns the uses among the files of the engine, and those among the files of each crate. Paths begin at the
/// repository's root.
fn our_uses() -> Uses {
    let mut uses = Uses::new();
    for folder in crates() {
        for (user, used) in sources_of(&folder).uses() {
            let used = used.into_iter().map(|(file, path)| (format!("{folder}/{file}"), path));
            uses.insert(format!("{folder}/{user}"), used.collect());
        }
    }
    uses
}

/// Returns the folders of sources: the folder `src` of each package in the repository, the benches and the models
/// included.
pub(crate) fn crates() -> Vec<String> {
    fn collect(root: &Path, folder: &str, found: &mut Vec<String>) {
        if ["lib.rs", "main.rs"].iter().any(|face| root.join(folder).join("src").join(face).exists()) {
            found.push(format!("{folder}/src").trim_start_matches('/').to_owned());
        }
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_theirs = name.starts_with('.') || ["src", "target", "node_modules"].contains(&&*name);
            if entry.file_type().unwrap().is_dir() && !is_theirs {
                collect(root, format!("{folder}/{name}").trim_start_matches('/'), found);
            }
        }
    }
    let mut found = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut found);
    found.sort_unstable();
    found
}

/// Returns the files of a crate, including its root. The root of a package that is only a program is called `lib.rs`
/// here, too. A module to which the root gives a path outside of the package has its name in the package. Paths begin
/// at the crate's folder of sources.
pub(crate) fn files_of(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = sources_in(folder);
    let library = root.join(folder).join("lib.rs");
    if library.exists() {
        files.push((String::from("lib.rs"), fs::read_to_string(library).unwrap()));
    } else {
        let program = files.iter_mut().find(|(name, _)| name == "main.rs");
        program.expect("a library or a program").0 = String::from("lib.rs");
    }
    let face = files.iter().find(|(name, _)| name == "lib.rs").map_or("", |(_, source)| source);
    for (path, module) in placed(face) {
        let path = format!("{folder}/{path}");
        if let Some(outside) = path.strip_suffix("/mod.rs") {
            let outside = sources_in(outside).into_iter();
            files.extend(outside.map(|(name, source)| (format!("{module}/{name}"), source)));
        } else {
            files.push((format!("{module}.rs"), fs::read_to_string(root.join(path)).unwrap()));
        }
    }
    files
}

/// Returns the modules to which a source gives a path: the path and the name of each.
fn placed(source: &str) -> Vec<(String, String)> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let placed = lines.windows(2).filter_map(|pair| {
        let path = pair[0].strip_prefix("#[path = \"")?.strip_suffix("\"]")?;
        let module = pair[1].trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')?;
        Some((path.to_owned(), module.to_owned()))
    });
    placed.collect()
}

fn sources_of(folder: &str) -> Sources {
    Sources::new(files_of(folder).iter().map(|(name, source)| (&**name, &**source)))
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let all = our_uses();
    assert!(all.values().map(BTreeMap::len).sum::<usize>() > 300, "the uses are not seen: {all:#?}");
    let found = circle(&all).map(|circle| steps(&all, &circle));
    assert_eq!(found, None, "files use each other in a circle, of which this is the shortest");
}

// --- The check itself ---

/// Returns the uses among files, as texts. Each file is given by its name and its source.
fn uses_of(files: &[(&str, &str)]) -> Vec<String> {
    let uses = Sources::new(files.iter().copied()).uses();
    uses.iter().flat_map(|(user, used)| used.keys().map(move |used| format!("{user} -> {used}"))).collect()
}

#[test]
fn uses_are_seen() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use b::X;"),
        ("a.rs", "use super::b::{Y as Z, two::three}; use std::fmt; // use crate::c;"),
        ("b/mod.rs", "mod two; mod one; pub use self::one::X; pub struct Y;"),
        ("b/one.rs", "fn f() { crate::c(); super::two::g(); }"),
        ("b/two.rs", "pub fn three() {} mod tests { use super::super::one::*; }"),
    ];
    assert_eq!(
        uses_of(&files),
        ["a.rs -> b/mod.rs", "a.rs -> b/two.rs", "b/one.rs -> b/two.rs", "b/one.rs -> lib.rs"]
    );
}

#[test]
fn a_re_export_leads_on_and_is_no_use_by_itself() {
    let one = ("b/one.rs", "pub struct X; pub struct Y;");
    let root = ("lib.rs", "mod a; mod b; pub use self::b::X as W;");
    let a = ("a.rs", "use crate::{W, b::Y}; fn f() { crate::b::Y::g(); }");
    let face = ("b/mod.rs", "mod one; pub(crate) use one::{X, Y};");
    assert_eq!(uses_of(&[root, a, face, one]), ["a.rs -> b/one.rs"]);
    let named = ("b/mod.rs", "mod one; pub use one::{X, Y}; struct Z(Y);");
    assert_eq!(uses_of(&[named, one]), ["b/mod.rs -> b/one.rs"]);
    let globs = ("b/mod.rs", "mod one; pub use one::*;");
    assert_eq!(uses_of(&[globs, one]), ["b/mod.rs -> b/one.rs"]);
    let called = ("b/mod.rs", "mod one; fn f() { one::g() }");
    assert_eq!(uses_of(&[called, one]), ["b/mod.rs -> b/one.rs"]);
}

#[test]
fn a_module_inside_a_file_is_of_that_file() {
    let files = [
        ("a/mod.rs", "pub struct X; mod one; mod two;"),
        ("a/one.rs", "mod imp { use super::Y; use super::super::X; use super::super::two::Z; } struct Y;"),
        ("a/two.rs", "pub struct Z;"),
    ];
    assert_eq!(uses_of(&files), ["a/one.rs -> a/mod.rs", "a/one.rs -> a/two.rs"]);
}

#[test]
fn circles_are_found() {
    let found = |files: &[(&str, &str)]| {
        let uses = Sources::new(files.iter().copied()).uses();
        circle(&uses).map_or_else(String::new, |circle| steps(&uses, &circle))
    };
    let (a, b) = (("a.rs", "use crate::b::X;"), ("b.rs", "use crate::c::Y; pub struct X;"));
    assert_eq!(found(&[a, b, ("c.rs", "pub struct Y;")]), "");
    let closed = ("c.rs", "fn f() { crate::a::g() }");
    let circle = "a.rs names crate::b::X, b.rs names crate::c::Y, c.rs names crate::a::g";
    assert_eq!(found(&[a, b, closed]), circle);
    let shorter = ("g.rs", "use crate::h::X;");
    let shortest = "g.rs names crate::h::X, h.rs names crate::g::f";
    assert_eq!(found(&[a, b, closed, shorter, ("h.rs", "fn f() { crate::g::f() }")]), shortest);
    // The circle leads through a face, which is not in the circle itself.
    let (face, d) = (("d/mod.rs", "mod e; pub use e::Z;"), ("d/e.rs", "use crate::f::W; pub struct Z;"));
    let through = "d/e.rs names crate::f::W, f.rs names crate::d::Z";
    assert_eq!(found(&[face, d, ("f.rs", "use crate::d::Z; pub struct W;")]), through);
}
