//! Floors and folders of each package. A package whose sources have folders lists its modules in its root under
//! `// Floor N: ...`, from 0 upwards, as the engine does. No file uses a file of a higher floor. No folders use each
//! other in a circle: neither the modules of the root, nor the folders inside a folder.
//!
//! The uses are those of `circles`: a path counts for the file that defines the item.

use crate::circles::{Sources, Uses, crates, files_of};
use crate::floors;
use crate::gate;
use std::collections::{BTreeMap, BTreeSet};

/// The modules of a crate and their uses of each other.
struct House {
    floors: BTreeMap<String, usize>,
    /// The modules that exist only in tests. They may use all modules.
    tests: BTreeSet<String>,
    /// The modules of the crate's program. The program has its own root.
    program: BTreeSet<String>,
    uses: Uses,
    has_folders: bool,
}

impl House {
    fn new(files: &[(String, String)]) -> Self {
        let root = files.iter().find(|(name, _)| name == "lib.rs").map_or("", |(_, source)| source);
        let program = files.iter().find(|(name, _)| name == "main.rs").map_or("", |(_, source)| source);
        let tests = test_modules(root);
        let sources = Sources::new(files.iter().map(|(name, source)| (&**name, &**source)));
        Self {
            floors: floors(root),
            has_folders: files.iter().any(|(name, _)| {
                name.split_once('/').is_some_and(|(folder, _)| folder != "bin" && !tests.contains(folder))
            }),
            tests,
            program: program
                .lines()
                .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
                .map(str::to_owned)
                .collect(),
            uses: sources.uses(),
        }
    }

    /// Returns the uses by files that are not tests: the user, the used file, and the path that names it.
    fn pairs(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let uses = self.uses.iter().filter(|(user, _)| !self.tests.contains(room(user)));
        uses.flat_map(|(user, used)| {
            used.iter().map(|(used, path)| (user.as_str(), used.as_str(), path.as_str()))
        })
    }

    /// Returns the uses of a higher floor (level of the module order) or of the root. Also returns the modules without
    /// a floor.
    fn climbs(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        if self.floors.is_empty() {
            return found;
        }
        let is_outside = |file| is_face(file) || self.program.contains(room(file));
        for (user, used, path) in self.pairs().filter(|(user, ..)| !is_outside(user)) {
            match (self.floors.get(room(user)), self.floors.get(room(used))) {
                (None, _) => {
                    found.insert(format!("{} is on no floor", room(user)));
                }
                (Some(from), Some(to)) if from >= to => {}
                (Some(from), _) => {
                    found.insert(format!("{user}, on floor {from}, uses {path} of {used}"));
                }
            }
        }
        found
    }

    /// Returns the folders from which a chain of uses leads through other folders and back.
    fn circles(&self) -> BTreeSet<String> {
        let mut arrows = BTreeMap::<String, BTreeSet<String>>::new();
        for (user, used, _) in self.pairs().filter(|(user, used, _)| !is_face(user) && !is_face(used)) {
            if let Some((from, to)) = apart(user, used) {
                arrows.entry(from).or_default().insert(to);
            }
        }
        arrows.keys().filter(|room| reaches(&arrows, room, room)).cloned().collect()
    }
}

/// Returns whether a file is the root of the crate, or the root of a program.
fn is_face(file: &str) -> bool {
    ["lib.rs", "main.rs"].contains(&file) || file.starts_with("bin/")
}

/// Returns the *room* of a file: the top-level module that contains the file.
fn room(file: &str) -> &str {
    file.split_once('/').map_or_else(|| file.trim_end_matches(".rs"), |(folder, _)| folder)
}

/// Returns the first parts in which the paths of two files differ: two top-level modules, or two folders. Returns
/// `None` if one of the parts is a file inside a folder.
fn apart(user: &str, used: &str) -> Option<(String, String)> {
    let (mut from, mut to): (Vec<_>, Vec<_>) = (user.split('/').collect(), used.split('/').collect());
    let depth = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let are_folders = from.len() > depth + 1 && to.len() > depth + 1;
    from.truncate(depth + 1);
    to.truncate(depth + 1);
    (depth == 0 || are_folders).then(|| (from.join("/"), to.join("/")))
}

/// Returns whether a chain of uses leads from the room (top-level module) `from` to the room `to`.
fn reaches(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(room) = open.pop() {
        for next in arrows.get(room).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

/// Returns the modules in the source `root` that exist only in tests.
fn test_modules(root: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::from([String::from("tests")]);
    let mut is_test = false;
    for line in root.lines().map(str::trim) {
        let module = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ").strip_prefix("mod ");
        if let Some(module) = module.filter(|_| is_test) {
            modules.insert(module.trim_end_matches([';', '{', ' ']).to_owned());
        }
        is_test = line.starts_with("#[cfg(") && line.contains("test") || is_test && line.starts_with("#[");
    }
    modules
}

fn our_houses() -> impl Iterator<Item = (String, House)> {
    crates().into_iter().map(|folder| {
        let house = House::new(&files_of(&folder));
        (folder.trim_end_matches("/src").to_owned(), house)
    })
}

#[test]
fn a_crate_with_folders_lists_its_floors() {
    let unlisted = our_houses().filter(|(_, house)| house.has_folders && house.floors.is_empty());
    gate::hold("crates with folders and without a list of floors", unlisted.map(|(name, _)| (name, 1)));
}

#[test]
fn no_file_of_a_crate_uses_a_higher_floor() {
    let climbs = our_houses().map(|(name, house)| (name, house.climbs()));
    gate::hold_for_items("uses of a higher floor", climbs);
}

#[test]
fn no_folders_use_each_other_in_a_circle() {
    let circles = our_houses().map(|(name, house)| (name, house.circles()));
    gate::hold_for_items("folders in a circle", circles);
}

// --- The check itself ---

fn house(files: &[(&str, &str)]) -> House {
    let files: Vec<_> = files.iter().map(|&(name, source)| (name.to_owned(), source.to_owned())).collect();
    House::new(&files)
}

#[test]
fn climbing_is_seen_in_any_crate() {
    let root = "// Floor 0: words.\nmod base;\n#[cfg(test)]\nmod rig;\n// Floor 1: work.\npub mod work;\npub use work::X;";
    let climbs = |base: &'static str, work: &'static str| {
        house(&[
            ("lib.rs", root),
            ("base/mod.rs", "pub mod one;"),
            ("base/one.rs", base),
            ("work.rs", work),
            ("rig.rs", "use crate::work::X;"),
        ])
        .climbs()
        .len()
    };
    assert_eq!(climbs("pub struct Y;", "use crate::base::one::Y; pub struct X;"), 0);
    assert_eq!(climbs("use crate::work::X;", "pub struct X;"), 1);
    assert_eq!(climbs("fn f() { crate::X::g() }", "pub struct X;"), 1, "through the face");
    assert_eq!(climbs("fn f() { crate::g() }", ""), 1, "the root itself");
    let attic = house(&[("lib.rs", root), ("base.rs", "pub struct Y;"), ("attic.rs", "use crate::base::Y;")]);
    assert_eq!(attic.climbs().len(), 1, "on no floor");
    let program =
        [("lib.rs", root), ("base.rs", ""), ("main.rs", "mod attic;"), ("attic.rs", "use crate::base::Y;")];
    assert_eq!(house(&program).climbs().len(), 0, "of the program");
    assert!(house(&[("lib.rs", "mod a;"), ("a/mod.rs", "mod b;"), ("a/b.rs", "")]).has_folders);
    assert!(!house(&[("lib.rs", "mod a;"), ("a.rs", ""), ("tests/b.rs", "")]).has_folders);
}

#[test]
fn circles_of_folders_are_seen() {
    let circles = |files: &[(&str, &str)]| house(files).circles().into_iter().collect::<Vec<_>>();
    let (one, two) = (("a/one.rs", "pub struct X; use crate::b::one::Y;"), ("a/two.rs", "pub struct Z;"));
    let y = ("b/one.rs", "pub struct Y;");
    let circles = |files: &[(&str, &str)]| {
        let faces = ["a/mod.rs", "b/mod.rs", "a/b/mod.rs", "a/c/mod.rs"].map(|face| (face, ""));
        circles(&[files, &faces].concat())
    };
    assert_eq!(circles(&[one, two, y]), [""; 0]);
    // The files use each other in no circle, but the folders do.
    assert_eq!(circles(&[one, two, y, ("b/two.rs", "use crate::a::two::Z;")]), ["a", "b"]);
    let inside = [
        ("a/b/one.rs", "use super::super::c::two::X;"),
        ("a/c/one.rs", "use crate::a::b::two::Y;"),
        ("a/b/two.rs", "pub struct Y;"),
        ("a/c/two.rs", "pub struct X;"),
    ];
    assert_eq!(circles(&inside), ["a/b", "a/c"]);
    assert_eq!(circles(&[one, two, y, ("tests/mod.rs", "use crate::a::two::Z;")]), [""; 0]);
}
