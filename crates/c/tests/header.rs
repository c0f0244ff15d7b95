//! Checks that the header in the repository is the header that the sources generate.

use std::path::{Path, PathBuf};

/// The source files of the library, in the order in which the header has their items.
const SOURCES: [&str; 14] = [
    "version", "status", "outcome", "options", "event", "engine", "shot", "keyed", "timer", "task", "poll",
    "loops", "stats", "annotate",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generate() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root().join("src").join(source).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    with_version(&without_safety(&String::from_utf8(bytes).unwrap()))
}

fn with_version(header: &str) -> String {
    header
        .replace("@MAJOR@", env!("CARGO_PKG_VERSION_MAJOR"))
        .replace("@MINOR@", env!("CARGO_PKG_VERSION_MINOR"))
        .replace("@PATCH@", env!("CARGO_PKG_VERSION_PATCH"))
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
}

/// Removes the safety sections from the header's text, because they are for Rust programmers. The top of the header has
/// the rules for C.
fn without_safety(header: &str) -> String {
    let (mut kept, mut is_safety) = (Vec::new(), false);
    for line in header.lines() {
        is_safety = line.starts_with("//") && (is_safety || line.trim_end() == "// # Safety");
        if is_safety {
            while kept.last().is_some_and(|&last: &&str| last.trim_end() == "//") {
                kept.pop();
            }
        } else {
            kept.push(line.trim_end());
        }
    }
    // cbindgen puts some text after the include guard. This moves the text inside.
    let mut text = kept.join("\n");
    const END: &str = "\n#endif  /* TOURBILLON_H */\n";
    if let Some((before, after)) = text.split_once(END).filter(|(_, after)| !after.trim().is_empty()) {
        text = format!("{before}\n{}\n{END}", after.trim());
    }
    text.trim_end().to_owned() + "\n"
}

#[test]
fn the_header_is_fresh() {
    let path: PathBuf = root().join("include/tourbillon.h");
    let fresh = generate();
    if std::env::var_os("TOURBILLON_BLESS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let stale = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = fresh.lines().zip(stale.lines()).find(|(fresh, stale)| fresh != stale);
    assert!(fresh == stale, "{} is stale: TOURBILLON_BLESS=1 writes it: {differs:#?}", path.display());
}

#[test]
fn every_source_with_a_function_is_in_the_header() {
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let path = entry.unwrap().path();
        let exports = std::fs::read_to_string(&path).unwrap().contains("#[unsafe(no_mangle)]");
        let name = path.file_stem().unwrap().to_str().unwrap();
        let has_types = ["event", "options", "outcome"].contains(&name);
        assert_eq!(exports || has_types, SOURCES.contains(&name), "{name}");
    }
}

/// Each exported function must use `guard`, because a panic would leave any other function.
#[test]
fn every_function_goes_through_the_guard() {
    const WITHOUT: [&str; 5] =
        ["tb_last_error", "tb_status_name", "tb_version", "tb_annotate_with", "tb_hand_over"];
    let mut seen = 0;
    for source in SOURCES {
        let text = std::fs::read_to_string(root().join("src").join(source).with_extension("rs")).unwrap();
        for function in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = function.split_once("fn ").unwrap().1.split('(').next().unwrap();
            let body = function.split_once("{\n").unwrap().1.split("\n}").next().unwrap();
            let last = body.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<String>();
            // Exported functions that call a shared function, such as `create`, are guarded if the shared function is.
            let shared = ["create(", "schedule(", "cancel(", "disarm(", "stop("];
            let calls_shared = shared.iter().find(|call| last.contains(&format!("unsafe {{ {call}")));
            let is_guarded = last.contains("guard(")
                || calls_shared.is_some_and(|call| {
                    let definition = text.split(&format!("unsafe fn {call}")).nth(1).unwrap();
                    definition.split("\n}").next().unwrap().contains("\n    guard(")
                });
            assert!(is_guarded || WITHOUT.contains(&name), "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 25, "{seen}");
}
