//! The rules of the architecture, checked on the text of the sources.
//!
//! - Floors: the modules of `src/` are arranged in floors, which `src/lib.rs` lists from 0 upwards. A module uses its
//!   own floor and the floors below it. Unsafe code stands on two of the floors, and elsewhere in listed calls only.
//! - Doors: a door is the only file that may name the atomics, the threads, the system's time or a logging facade. The
//!   face of a crate or of a folder is the file that re-exports its items (`lib.rs`, `mod.rs`).
//! - Crates that stand alone name neither the engine nor the facilities that they do without. The layer
//!   (`crates/tasks`) has its own doors. It uses the engine by its public interface, and by the module `extend`, the
//!   *seam*.
//! - No circles: `circles` checks the uses among files.
//! - Rooms: `rooms` checks the floors of all crates, and that folders do not use each other in a circle.
//! - Words: `words` checks the phrases of the prose, and `prose` the share of sentences with one of six habits.
//! - Names: `names` checks identifiers, the names of tests, and the tags of invariants.
//! - Sizes: `sizes` checks the lines of files and the methods of types.
//!
//! `gate` has the functions that fail if a rule is broken. There are no exceptions.

mod circles;
mod gate;
mod names;
mod prose;
mod rooms;
mod sizes;
mod tokens;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use tokens::{Token, is_within, paths, tokens};

/// A door: the only file that may name certain paths, such as those of atomics. The second part has these paths.
type Door = (&'static str, &'static [&'static str]);

const ATOMICS_AND_THREADS: &[&str] =
    &["std::sync", "core::sync", "std::thread", "std::cell::UnsafeCell", "core::cell::UnsafeCell", "loom"];
const THE_SYSTEMS_TIME: &[&str] =
    &["std::time::Instant::now", "std::time::SystemTime::now", "Instant::now", "SystemTime::now"];

/// The engine's doors: files that alone may name certain paths.
const DOORS: [Door; 4] = [
    ("base/sync.rs", ATOMICS_AND_THREADS),
    ("system/clock/system.rs", THE_SYSTEMS_TIME),
    ("base/trace.rs", &["tracing"]),
    ("report/stats/facade.rs", &["metrics"]),
];

/// The sources of the layer. The layer is a crate that uses the engine's public interface and has its own doors (files
/// that alone may name certain paths).
const LAYER: &str = "crates/tasks/src";
const DOORS_OF_THE_LAYER: [Door; 2] = [("sync.rs", ATOMICS_AND_THREADS), ("task/wall.rs", THE_SYSTEMS_TIME)];

/// Exceptions to the doors (files that alone may name certain paths): a file, a path that it may name, and the reason.
const BESIDE_THE_DOORS: [(&str, &str, &str); 8] = [
    ("system/affinity.rs", "std::thread::available_parallelism", "a question to the system, not a thread"),
    ("system/clock/alarms.rs", "Instant::now", "a short time from now, which a model does not have"),
    ("system/clock/runtime.rs", "Instant::now", "the clock of a tokio runtime, which is tokio's"),
    ("lockfree/barrier.rs", "core::sync::atomic", "a fence for the compiler only, which loom does not have"),
    ("base/fork.rs", "std::sync::atomic::AtomicU32", "a number in a static, which loom's cannot be"),
    ("system/forks.rs", "std::sync::atomic::AtomicPtr", "a list in a static, which loom's cannot be"),
    (
        "shard/set.rs",
        "std::sync::atomic::AtomicU64",
        "numbers the engines and sets from a static, which loom's cannot be",
    ),
    (
        "engine/place.rs",
        "std::sync::atomic::AtomicU32",
        "counts of engines in a static, which loom's cannot be",
    ),
];

/// The floors (levels of the module order) on which unsafe code may stand. These floors have the files that call the
/// system, and the lock-free parts.
const UNSAFE_FLOORS: RangeInclusive<usize> = 2..=3;

/// Functions that unsafe code may call on floors that permit no other unsafe code. Each entry has the file, the
/// function, and the reason.
const UNSAFE_ABOVE: [(&str, &str, &str); 7] = [
    ("engine/one_shot.rs", "self.slab.write", "the magazine gave the slot (I3)"),
    ("engine/one_shot.rs", "self.slab.take", "the cancel or the eviction made the payload ours (I3)"),
    ("engine/fire.rs", "self.slab.take", "the claim made the payload ours (I3)"),
    ("engine/fire.rs", "self.slab.peek", "the run that we began keeps the payload (O5)"),
    ("engine/owned.rs", "self.slab.write", "the magazine gave the slot (I3)"),
    ("engine/owned.rs", "self.slab.take", "the slot that we vacated is ours (O5)"),
    ("engine/owned.rs", "self.slab.peek", "who has the slot has not released it (O5)"),
];

/// The highest floor (level of the module order) on which tags of invariants and of pairs of orderings are checked.
/// Files above may use any tags.
const TAGGED_FLOOR: usize = 3;

/// Crates that stand alone: the folder under `crates/`, and the paths that the crate's sources may not name. The
/// sources never name the engine, and all forbid unsafe code.
const ALONE: [(&str, &[&str]); 2] = [
    ("wheel", &["std", "core::sync", "core::cell"]),
    // This crate may not name a clock either.
    ("calendar", &["std::sync", "core::sync", "std::thread", "std::time", "Timestamp::now", "jiff::Zoned"]),
];

/// Returns whether `path` is reserved for a door (a file that alone may name it) and `file` is another file.
fn is_behind(doors: &[Door], file: &str, path: &str) -> bool {
    doors.iter().any(|&(door, places)| door != file && places.iter().any(|place| is_within(path, place)))
}

/// Returns the paths in a file that are reserved for a door (another file that alone may name them).
fn past_the_doors(file: &str, source: &str, used: &mut BTreeSet<usize>) -> Vec<String> {
    let mut found = Vec::new();
    for path in paths(&tokens(source)) {
        let forbidden = is_behind(&DOORS, file, &path);
        let exception =
            BESIDE_THE_DOORS.iter().position(|&(other, place, _)| other == file && is_within(&path, place));
        match exception {
            _ if !forbidden => {}
            Some(exception) => drop(used.insert(exception)),
            None => found.push(format!("{file} names {path}")),
        }
    }
    found
}

/// Returns the floor (level of the module order) of each module. `lib.rs` lists the modules under `// Floor N`.
fn floors(lib: &str) -> BTreeMap<String, usize> {
    let mut floor = None;
    let mut floors = BTreeMap::new();
    for line in lib.lines().map(str::trim) {
        if let Some(number) = line.strip_prefix("// Floor ").and_then(|rest| rest.split(':').next()) {
            floor = Some(number.parse().expect("a floor is a number"));
        }
        let module =
            line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        if let (Some(module), Some(floor)) = (module, floor) {
            floors.insert(module.to_owned(), floor);
        }
    }
    floors
}

/// Returns the top-level module to which a file belongs.
fn module_of(file: &str) -> &str {
    file.split_once('/').map_or_else(|| file.trim_end_matches(".rs"), |(folder, _)| folder)
}

/// Returns the paths by which a file uses a higher floor (level of the module order), or the crate's root.
fn climbs(file: &str, source: &str, floors: &BTreeMap<String, usize>) -> Vec<String> {
    let Some(&floor) = floors.get(module_of(file)) else { return vec![format!("{file} is on no floor")] };
    let is_module_root = !file.contains('/') || (file.ends_with("/mod.rs") && file.matches('/').count() == 1);
    let mut found = Vec::new();
    for path in paths(&tokens(source)) {
        let from_root = path.strip_prefix("crate::").or_else(|| {
            // In this file `super` is the root. The glob of a test module means the file itself.
            path.strip_prefix("super::").filter(|rest| is_module_root && *rest != "*")
        });
        let Some(target) = from_root.and_then(|rest| rest.split("::").next()) else { continue };
        // A target that is not a module is a re-export of the face.
        let its_floor =
            floors.get(target).copied().unwrap_or_else(|| floors.values().copied().max().unwrap_or(0));
        if its_floor > floor {
            found.push(format!("{file}, on floor {floor}, uses {path} on floor {its_floor}"));
        }
    }
    found
}

/// Returns the unsafe code in a file that may have none.
fn unsafe_elsewhere(
    file: &str,
    source: &str,
    floors: &BTreeMap<String, usize>,
    used: &mut BTreeSet<usize>,
) -> Vec<String> {
    if floors.get(module_of(file)).is_some_and(|floor| UNSAFE_FLOORS.contains(floor)) {
        return Vec::new();
    }
    let tokens = tokens(source);
    let mut found = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| **token == Token::Word("unsafe".to_owned()))
    {
        let called: String = tokens[at + 1..]
            .iter()
            .skip_while(|token| **token == Token::Other('{'))
            .map_while(|token| match token {
                Token::Word(word) => Some(word.clone()),
                Token::Other('.') => Some(".".to_owned()),
                _ => None,
            })
            .collect();
        match UNSAFE_ABOVE.iter().position(|&(other, function, _)| other == file && function == called) {
            Some(exception) => drop(used.insert(exception)),
            None => found.push(format!("{file} has unsafe code: {called}")),
        }
    }
    found
}

/// Returns whether `word` is the tag of an invariant or of a pair, such as `T1` or `I1a`.
fn is_tag(word: &str) -> bool {
    let Some(number) = word.strip_prefix(|c: char| c.is_ascii_uppercase()) else { return false };
    let number = number.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(number);
    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns the tags that a file explains in the docs of its modules and types. An explained tag stands in a table's
/// first column, or before a full stop.
fn tags(source: &str) -> Vec<String> {
    let docs = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//! ").or_else(|| line.strip_prefix("/// "))
    });
    docs.filter_map(|line| {
        let first = match line.strip_prefix("| ") {
            Some(row) => row.split('|').next()?.trim(),
            None => line.split_once(". ")?.0,
        };
        is_tag(first).then(|| first.to_owned())
    })
    .collect()
}

/// Returns the tags that a source's comments on orderings cite.
fn cited(source: &str) -> Vec<String> {
    let comments = source.lines().filter_map(|line| line.trim_start().strip_prefix("// "));
    let brackets =
        comments.flat_map(|line| line.split('[').skip(1).filter_map(|rest| rest.split(']').next()));
    let words = brackets.flat_map(|inside| inside.split([',', ' ']).map(str::to_owned));
    words.filter(|word| is_tag(word)).collect()
}

/// Returns the macros for unfinished code, such as `todo`, that a file uses.
fn unfinished(file: &str, source: &str) -> Vec<String> {
    let tokens = tokens(source);
    tokens
        .windows(2)
        .filter_map(|pair| match pair {
            [Token::Word(word), Token::Other('!')] if ["todo", "unimplemented", "dbg"].contains(&&**word) => {
                Some(format!("{file} has a {word}!"))
            }
            _ => None,
        })
        .collect()
}

/// Returns the files of `src/` except `lib.rs`. Paths begin at `src/`.
fn sources() -> Vec<(String, String)> {
    let files = sources_in("src");
    assert!(files.len() > 20);
    files
}

/// Returns the files of a folder except `lib.rs`. Paths begin at the folder.
fn sources_in(folder: &str) -> Vec<(String, String)> {
    fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                collect(&entry.path(), &format!("{name}/"), files);
            } else if name.ends_with(".rs") && name != "lib.rs" {
                files.push((name, fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), "", &mut files);
    files
}

/// Returns the faults of a file in a crate that stands alone: forbidden paths, and unfinished code.
fn leans(file: &str, source: &str, without: &[&str]) -> Vec<String> {
    let mut found = unfinished(file, source);
    for path in paths(&tokens(source)) {
        if is_within(&path, "tourbillon") || without.iter().any(|place| is_within(&path, place)) {
            found.push(format!("{file} names {path}"));
        }
    }
    if source.contains("doc(hidden)") {
        found.push(format!("{file} has a door that its documentation does not show"));
    }
    found
}

/// Returns the faults of a file in the layer's crate: paths that are reserved for a door (another file that alone may
/// name them), hidden items, and unfinished code.
fn strays(file: &str, source: &str) -> Vec<String> {
    let mut found = unfinished(file, source);
    let past = paths(&tokens(source)).into_iter().filter(|path| is_behind(&DOORS_OF_THE_LAYER, file, path));
    found.extend(past.map(|path| format!("{file} names {path}")));
    if source.contains("doc(hidden)") {
        found.push(format!("{file} has a door that its documentation does not show"));
    }
    found
}

fn our_floors() -> BTreeMap<String, usize> {
    floors(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap())
}

#[test]
fn only_the_doors_name_atomics_cells_threads_and_clocks() {
    let mut used = BTreeSet::new();
    let found: Vec<String> =
        sources().iter().flat_map(|(file, source)| past_the_doors(file, source, &mut used)).collect();
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(used.len(), BESIDE_THE_DOORS.len(), "an exception is no longer needed");
}

#[test]
fn a_file_uses_its_own_floor_and_those_below() {
    let floors = our_floors();
    assert_eq!(floors.values().collect::<BTreeSet<_>>(), (0..=9).collect::<Vec<_>>().iter().collect());
    let found: Vec<String> =
        sources().iter().flat_map(|(file, source)| climbs(file, source, &floors)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn unsafe_code_stays_on_its_floor() {
    let (floors, mut used) = (our_floors(), BTreeSet::new());
    let found: Vec<String> = sources()
        .iter()
        .flat_map(|(file, source)| unsafe_elsewhere(file, source, &floors, &mut used))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(used.len(), UNSAFE_ABOVE.len(), "an exception is no longer needed");
}

#[test]
fn a_tag_is_explained_once_and_an_ordering_cites_one_that_is() {
    let floors = our_floors();
    let is_low = |file: &str| floors.get(module_of(file)).is_some_and(|&floor| floor <= TAGGED_FLOOR);
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for (file, source) in sources() {
        // Files of higher floors may only cite tags.
        let low = is_low(&file);
        for tag in tags(&source) {
            places.entry(tag).or_default().extend(low.then(|| file.clone()));
        }
    }
    let twice: Vec<_> = places.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
    for (file, source) in sources() {
        let unknown: Vec<_> = cited(&source).into_iter().filter(|tag| !places.contains_key(tag)).collect();
        assert!(unknown.is_empty(), "{file} cites {unknown:?}, which no table explains");
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let found: Vec<String> = sources().iter().flat_map(|(file, source)| unfinished(file, source)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_crates_that_stand_alone_name_neither_the_engine_nor_what_they_do_without() {
    for (name, without) in ALONE {
        let folder = format!("crates/{name}/src");
        let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(&folder).join("lib.rs");
        let lib = fs::read_to_string(lib).unwrap();
        let mut files = sources_in(&folder);
        assert!(files.len() > 2, "{folder}");
        // Only the crate's tests may need the standard library.
        files.retain(|(file, _)| file != "tests.rs");
        files.push((String::from("lib.rs"), lib));
        let found: Vec<String> =
            files.iter().flat_map(|(file, source)| leans(file, source, without)).collect();
        assert!(found.is_empty(), "{folder}: {found:#?}");
        let (_, lib) = files.last().unwrap();
        assert!(lib.contains("\n#![forbid(unsafe_code)]\n"), "{folder}/lib.rs allows unsafe code");
    }
}

#[test]
fn the_layer_has_its_doors_and_no_unsafe_code_and_the_seam_hides_nothing() {
    let files = sources_in(LAYER);
    assert!(files.len() > 20, "{LAYER}");
    let found: Vec<String> = files.iter().flat_map(|(file, source)| strays(file, source)).collect();
    assert!(found.is_empty(), "{LAYER}: {found:#?}");
    for (door, _) in DOORS_OF_THE_LAYER {
        assert!(files.iter().any(|(file, _)| file == door), "{LAYER}/{door} is a door no more");
    }
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(LAYER).join("lib.rs")).unwrap();
    assert!(lib.contains("\n#![forbid(unsafe_code)]\n"), "{LAYER}/lib.rs allows unsafe code");
    let explained: BTreeSet<String> = files.iter().flat_map(|(_, source)| tags(source)).collect();
    for (file, source) in &files {
        let unknown: Vec<_> = cited(source).into_iter().filter(|tag| !explained.contains(tag)).collect();
        assert!(unknown.is_empty(), "{LAYER}/{file} cites {unknown:?}, which no table explains");
    }
    // A layer can only reach items that the engine's documentation shows.
    let hidden: Vec<String> = sources()
        .into_iter()
        .filter(|(_, source)| source.contains("doc(hidden)"))
        .map(|(file, _)| file)
        .collect();
    assert!(hidden.is_empty(), "{hidden:#?}");
}

// --- The checks themselves ---

#[test]
fn the_doors_are_watched() {
    let check = |file, source| past_the_doors(file, source, &mut BTreeSet::new()).len();
    assert_eq!(check("slab/mod.rs", "use std::sync::atomic::AtomicU64;"), 1);
    assert_eq!(check("slab/mod.rs", "use std::{fmt, thread};"), 1);
    assert_eq!(check("slab/mod.rs", "use core::{cell::{Cell, UnsafeCell}, sync::atomic::fence};"), 2);
    assert_eq!(check("slab/mod.rs", "fn f() { std::thread::spawn(g); Instant::now(); }"), 2);
    assert_eq!(check("slab/mod.rs", "use crate::sync::{UnsafeCell, thread}; // std::sync"), 0);
    assert_eq!(check("slab/mod.rs", "use std::synchrony::x;"), 0);
    assert_eq!(check("base/sync.rs", "use std::sync::Arc; use loom::thread;"), 0);
    assert_eq!(check("base/sync.rs", "let now = std::time::Instant::now();"), 1);
    assert_eq!(check("system/affinity.rs", "std::thread::available_parallelism()"), 0);
    assert_eq!(check("system/affinity.rs", "std::thread::park()"), 1);
}

#[test]
fn the_stairs_are_watched() {
    let lib = "// Floor 0: words.\nmod tick;\n// Floor 1: x.\npub mod wheel;\n#[cfg(x)]\nmod slab;\n// Floor 2: y.\nmod face;";
    let floors = floors(lib);
    assert_eq!(
        floors,
        BTreeMap::from([("tick", 0), ("wheel", 1), ("slab", 1), ("face", 2)].map(|(m, f)| (m.to_owned(), f)))
    );
    let check = |file, source| climbs(file, source, &floors).len();
    assert_eq!(check("wheel/mod.rs", "use crate::tick::Tick; use crate::slab::Slot;"), 0);
    assert_eq!(check("tick.rs", "use crate::{tick::Tick, wheel::Wheel};"), 1);
    assert_eq!(check("wheel/level.rs", "use super::Chunk; fn f() { crate::face::g(); }"), 1);
    assert_eq!(check("wheel/mod.rs", "use super::face::g; mod tests { use super::*; }"), 1);
    assert_eq!(check("wheel/mod.rs", "use crate::Builder; /// [`Engine`](crate::Engine)"), 1);
    assert_eq!(check("face.rs", "use crate::Builder;"), 0);
    assert_eq!(check("attic.rs", ""), 1);
}

#[test]
fn leaning_is_seen() {
    let check = |source| leans("x.rs", source, &["std", "core::sync"]).len();
    assert_eq!(check("use core::{mem, sync::atomic::AtomicU64}; use std::vec::Vec;"), 2);
    assert_eq!(check("use tourbillon::Timestamp; fn f() -> tourbillon::Cancel { todo!() }"), 3);
    assert_eq!(check("use tourbillon_wheel::Tick; use core::fmt; // std::sync"), 0);
    assert_eq!(check("#[doc(hidden)] pub fn f() {}"), 1);
}

#[test]
fn straying_is_seen() {
    let check = |file, source| strays(file, source).len();
    assert_eq!(check("keyed/mod.rs", "use std::sync::Arc; use crate::sync::StdArc; SystemTime::now()"), 2);
    assert_eq!(check("sync.rs", "use std::sync::Arc; use loom::thread; SystemTime::now()"), 1);
    assert_eq!(check("task/wall.rs", "SystemTime::now(); std::thread::park();"), 1);
    assert_eq!(check("map.rs", "#[doc(hidden)] pub fn f() { todo!() }"), 2);
}

#[test]
fn tags_are_seen() {
    let source = "//! I1. It holds.\n//! I1a. It does.\n//! | T1   | a | b |\n/// G1. So.\n//! A. No.\n// T9. No.\n\
        //! | pair | one |\nlet x = 1; // Ordering: no.\n    // Ordering: Acquire [T1, I1a of `x`]. Not (K1), nor [it].";
    assert_eq!(tags(source), ["I1", "I1a", "T1", "G1"]);
    assert_eq!(cited(source), ["T1", "I1a"]);
}

#[test]
fn unsafe_code_is_seen() {
    let floors = BTreeMap::from([("slab".to_owned(), 2), ("engine".to_owned(), 5), ("shard".to_owned(), 4)]);
    let check = |file, source| unsafe_elsewhere(file, source, &floors, &mut BTreeSet::new()).len();
    assert_eq!(check("slab/mod.rs", "unsafe { anything() }"), 0);
    assert_eq!(check("engine/one_shot.rs", "unsafe { self.slab.write(index, payload) };"), 0);
    assert_eq!(check("engine/one_shot.rs", "unsafe { other(index) }; unsafe impl Send for X {}"), 2);
    assert_eq!(check("engine/fire.rs", "unsafe {\n    self.slab.peek(index)\n}"), 0);
    assert_eq!(check("shard/mod.rs", "// unsafe\nlet x = \"unsafe\"; not_unsafe();"), 0);
    assert_eq!(unfinished("x.rs", "todo!(); // unimplemented!()\nlet todo = dbg!(1);").len(), 2);
}
