//! Reads the pages of the guide and their code blocks. Tests the blocks that need no program.

use crate::of_repository;
use std::fs;

/// A page of the guide: the name of its file, and its text.
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A code block of a page. The block stands between two fences, lines of three backticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The number of the page's line with the block's first fence.
    pub(crate) line: usize,
    /// The text behind the block's first fence, such as `sh` or `text of NAME`.
    pub(crate) info: String,
    pub(crate) text: String,
}

/// The way in which a test checks a code block. The table in `main.rs` lists all ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    DocTest,
    Run,
    Until,
    Background,
    /// The block shows the output of the commands in the block before it.
    Output,
    /// The block shows the output of a program that an earlier block has started in the background. The text is the
    /// program's name.
    OutputOf(String),
    PartOf(String),
    Sql,
    /// The block shows the rows of the statements in the block before it.
    Rows,
    Settings,
    C,
    /// The block is a configuration of Prometheus.
    Prometheus,
    /// The block is a configuration of a proxy. The tests of the service run the proxy with this configuration.
    Proxy,
}

impl Block {
    /// Returns the way in which a test checks the block. `before` is the preceding block of the page. `None` if no test
    /// checks the block.
    pub(crate) fn usage(&self, before: Option<&Self>) -> Option<Use> {
        let follows = |infos: &[&str]| before.is_some_and(|block| infos.contains(&&*block.info));
        match self.info.split_once(' ').map_or((&*self.info, ""), |(language, rest)| (language, rest)) {
            ("rust" | "rust,no_run", "") => Some(Use::DocTest),
            ("sh", "") => Some(Use::Run),
            ("sh", "until") => Some(Use::Until),
            ("sh", "background") => Some(Use::Background),
            ("sql", "") => Some(Use::Sql),
            ("text", "") if follows(&["sql"]) => Some(Use::Rows),
            ("json" | "text", "") => follows(&["sh", "sh until"]).then_some(Use::Output),
            ("python" | "js", rest) => rest.strip_prefix("from ").map(|path| Use::PartOf(path.to_owned())),
            ("text", rest) => {
                let output = rest.strip_prefix("of ").map(|name| Use::OutputOf(name.to_owned()));
                output.or_else(|| rest.strip_prefix("from ").map(|path| Use::PartOf(path.to_owned())))
            }
            ("toml", "") => Some(Use::Settings),
            ("c", "") => Some(Use::C),
            ("yaml", "prometheus") => Some(Use::Prometheus),
            ("nginx" | "caddyfile", "") | ("yaml", "envoy") => Some(Use::Proxy),
            _ => None,
        }
    }
}

/// Returns the code blocks of a page, in the page's order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in (1..).zip(page.lines()) {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                open = Some(Block { line: number, info: info.trim().to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a block has no end");
    blocks
}

/// Returns the code blocks of a page, each with the way in which a test checks it. Panics at a block that no test
/// checks.
pub(crate) fn uses(page: &Page) -> Vec<(Block, Use)> {
    let all = blocks(&page.text);
    let mut uses = Vec::new();
    for (at, block) in all.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &all[before]);
        let usage = block.usage(before);
        let usage = usage.unwrap_or_else(|| panic!("{}:{}: no test looks at this", page.name, block.line));
        uses.push((block.clone(), usage));
    }
    uses
}

/// Reads all pages of the guide.
pub(crate) fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(of_repository("docs/guide")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            pages.push(Page { name, text: fs::read_to_string(&path).unwrap() });
        }
    }
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    pages
}

/// Returns the code blocks of all pages that a test checks in the way `usage`. With each block comes the name of its
/// page.
pub(crate) fn all_of(usage: &Use) -> Vec<(String, Block)> {
    let mut found = Vec::new();
    for page in pages() {
        let uses = uses(&page).into_iter().filter(|(_, other)| other == usage);
        found.extend(uses.map(|(block, _)| (format!("{}:{}", page.name, block.line), block)));
    }
    found
}

#[test]
fn a_test_looks_at_each_block() {
    let count: usize = pages().iter().map(|page| uses(page).len()).sum();
    assert!(count > 40, "{count} blocks");
}

/// The service's test of proxies reads only the page on proxies, and one code block for each proxy. So no other page
/// may have a block for a proxy.
#[test]
fn the_proxies_are_on_their_page() {
    let blocks = all_of(&Use::Proxy);
    let kinds: Vec<_> = blocks.iter().map(|(_, block)| &*block.info).collect();
    assert_eq!(kinds, ["nginx", "caddyfile", "yaml envoy"]);
    assert!(blocks.iter().all(|(place, _)| place.starts_with("proxies.md:")), "{blocks:?}");
}

#[test]
fn a_block_that_no_test_looks_at_is_found() {
    let usage = |page: &str| {
        let blocks = blocks(page);
        let (last, before) = blocks.split_last().unwrap();
        last.usage(before.last())
    };
    assert_eq!(usage("```yaml\na: b\n```"), None);
    assert_eq!(usage("```\na\n```"), None);
    assert_eq!(usage("```rust,ignore\na\n```"), None);
    assert_eq!(usage("```sh never\na\n```"), None);
    // Without a block of commands before it, a block of JSON is not the output of a command.
    assert_eq!(usage("```json\n1\n```"), None);
    assert_eq!(usage("```toml\n```\n```text\n1\n```"), None);
    assert_eq!(usage("```sh\n```\n```json\n1\n```"), Some(Use::Output));
    assert_eq!(usage("```sql\n```\n```json\n1\n```"), None);
    assert_eq!(usage("```sql\n```\n```text\n1\n```"), Some(Use::Rows));
    assert_eq!(usage("```python\n```"), None);
    assert_eq!(usage("```text from a/b\n```"), Some(Use::PartOf("a/b".to_owned())));
    let block = Block { line: 2, info: "sh until".to_owned(), text: "c\n\nd\n".to_owned() };
    assert_eq!(blocks("a\n```sh until\nc\n\nd\n```\ne"), [block]);
}

#[test]
fn each_page_is_in_the_doc_tests_and_in_the_summary() {
    let lib = fs::read_to_string(of_repository("crates/guide/src/lib.rs")).unwrap();
    let summary = fs::read_to_string(of_repository("docs/guide/SUMMARY.md")).unwrap();
    let index = fs::read_to_string(of_repository("docs/guide/README.md")).unwrap();
    let pages: Vec<_> =
        pages().into_iter().map(|page| page.name).filter(|name| name != "SUMMARY.md").collect();
    for name in &pages {
        assert!(summary.contains(&format!("]({name})")), "{name} is not in SUMMARY.md");
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "{name} is not in README.md");
        assert!(lib.contains(&format!(" = \"{name}\",\n")), "{name} is not in the doc tests");
    }
    assert!(pages.len() > 9, "{pages:?}");
    // `SUMMARY.md` and the index in `README.md` list the pages in the same order.
    let order = |text: &str| -> Vec<String> {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let links = links.map(|(link, _)| link.to_owned());
        links.filter(|link| link != "README.md" && pages.contains(link)).collect()
    };
    assert_eq!(order(&summary), order(&index));
}

#[test]
fn the_receiver_of_the_guide_is_the_program_of_that_name() {
    let source = fs::read_to_string(of_repository("crates/guide/src/bin/receiver.rs")).unwrap();
    let blocks = all_of(&Use::DocTest);
    assert!(blocks.iter().any(|(_, block)| block.text.contains("fn main") && source.ends_with(&block.text)));
}

/// Returns whether `lines` stand in `text`, one after another. Ignores empty lines, and spaces and `#` at the beginning
/// of a line.
fn stand_in(lines: &str, text: &str) -> bool {
    let bare = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_start_matches(['#', ' ']).trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let (lines, text) = (bare(lines), bare(text));
    !lines.is_empty() && text.windows(lines.len()).any(|window| window == lines)
}

#[test]
fn parts_of_files_stand_in_them() {
    let mut count = 0;
    for page in pages() {
        for (block, usage) in uses(&page) {
            let Use::PartOf(path) = usage else { continue };
            let file =
                fs::read_to_string(of_repository(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(stand_in(&block.text, &file), "{}:{} is not in {path}", page.name, block.line);
            count += 1;
        }
    }
    assert!(count > 0);
    assert!(
        stand_in("b\n c\n", "# a\n#  b\n#  c\n")
            && !stand_in("b\nd\n", "a\nb\nc\nd\n")
            && !stand_in("\n", "\n")
    );
}
