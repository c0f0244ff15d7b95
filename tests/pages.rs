//! The pages of the project. Their links lead somewhere, the tests that their tables name exist, and the plots are
//! where readers look for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the paths of all Markdown files, including those with generated tables.
fn pages() -> Vec<PathBuf> {
    let folders = [
        "",
        "docs",
        "docs/guide",
        "src",
        "benches/results",
        "benches/compare",
        "benches/compare/foreign",
        "benches/durable",
        "examples/ported/coturn",
        "examples/ported/tokio_time",
        "examples/reactors",
        "models",
        "patch/futures-timer",
        "patch/pingora-timeout",
    ];
    let folders = folders.iter().map(|folder| root().join(folder)).chain(crates());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

fn crates() -> impl Iterator<Item = PathBuf> {
    fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path())
}

/// Returns the design pages of the engine and of each crate, by their paths in the repository.
fn design_pages() -> Vec<String> {
    let pages = pages().into_iter().filter(|page| page.ends_with("DESIGN.md"));
    pages.map(|page| page.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the targets of a page's links and images. Leaves out links to other sites.
fn targets(page: &str) -> Vec<&str> {
    let after = page.split("](").skip(1);
    let targets = after.filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

/// Returns the anchors that GitHub makes for the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(slug).collect()
}

/// Returns the reason why a link on `page` leads nowhere. `None` if the link is right.
fn broken(page: &Path, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    let place = format!("{}: {target}", page.display());
    if !path.exists() {
        return Some(format!("{place}: there is no such file"));
    }
    let anchor = anchor?;
    let known = anchors(&read(&path));
    (!known.contains(anchor)).then(|| format!("{place}: there is no such heading"))
}

#[test]
fn links_lead_to_files_and_headings() {
    let pages = pages();
    for name in ["README.md", "BENCHMARKS.md", "src/DESIGN.md", "crates/redis/DESIGN.md"] {
        assert!(pages.contains(&root().join(name)), "{name}");
    }
    let mut count = 0;
    let mut errors = Vec::new();
    for page in &pages {
        for target in targets(&read(page)) {
            count += 1;
            errors.extend(broken(page, target));
        }
    }
    assert_eq!(errors, [""; 0]);
    assert!(count > 50, "{count} links");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = root().join("README.md");
    assert_eq!(targets("[a](b.md#c), ![d](e.svg) and [f](https://g.h)"), ["b.md#c", "e.svg"]);
    assert_eq!(broken(&page, "BENCHMARKS.md#the-answers"), None);
    assert!(broken(&page, "BENCHMARKS.md#no-such-answers").unwrap().ends_with("no such heading"));
    assert!(broken(&page, "docs/plots/none.svg").unwrap().ends_with("no such file"));
}

/// Returns the Rust sources below a folder, by their paths in the repository.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap());
        if root().join(&path).is_dir() {
            sources.extend(self::sources(&path));
        } else if path.ends_with(".rs") {
            sources.push((path.clone(), read(&path)));
        }
    }
    sources
}

/// Returns the tests that the text's tables name. A test is a path in backticks whose last part is a sentence. Shorter
/// names are not tests.
fn named_tests(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|line| line.trim_start_matches("//! ").strip_prefix("| "));
    let codes = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let is_name =
        |code: &&str| code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c));
    codes.filter(is_name).filter(|code| last_of(code).matches('_').count() >= 3).collect()
}

fn last_of(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Returns whether a source has the test's function, in the folders and the file that the test's path names.
fn exists(test: &str, sources: &[(String, String)]) -> bool {
    let function = format!("fn {}(", last_of(test));
    // The module `tests` of unit tests is not a file.
    let modules: Vec<_> =
        test.split("::").filter(|module| *module != "tests" && *module != last_of(test)).collect();
    sources.iter().any(|(path, source)| {
        let mut places = path.trim_end_matches(".rs").split('/');
        source.contains(&function) && modules.iter().all(|module| places.any(|place| place == *module))
    })
}

#[test]
fn tests_that_tables_name_exist() {
    let sources: Vec<_> = ["src", "tests", "loom_tests", "crates"].into_iter().flat_map(sources).collect();
    let models = sources.iter().filter(|(path, _)| path.starts_with("loom_tests/"));
    let tables = design_pages().into_iter().chain(["docs/guide/limits.md".to_owned()]);
    let tables = tables.map(|page| (page.clone(), read(page)));
    let texts = models.cloned().chain(tables);
    let (mut missing, mut count) = (Vec::new(), 0);
    for (file, text) in texts {
        let named = named_tests(&text);
        count += named.len();
        let gone = named.into_iter().filter(|test| !exists(test, &sources));
        missing.extend(gone.map(|test| format!("{file}: {test}")));
    }
    assert_eq!(missing, [""; 0]);
    assert!(count > 200, "{count} tests");
}

#[test]
fn a_test_that_is_gone_is_found() {
    let named = named_tests(
        "| a | `b_c_d_e`, `f::g_h_i_j` (`k`: `l::m_n`) |\n`no_row_no_row`\n//! | x | `y_y_y_y` |",
    );
    assert_eq!(named, ["b_c_d_e", "f::g_h_i_j", "y_y_y_y"]);
    let sources =
        [("tests/a/b.rs", "fn it_is_a_test() {}"), ("src/c/mod.rs", "mod tests { fn so_is_this_one() {} }")];
    let sources = sources.map(|(path, source)| (path.to_owned(), source.to_owned()));
    for test in ["it_is_a_test", "b::it_is_a_test", "a::b::it_is_a_test", "c::tests::so_is_this_one"] {
        assert!(exists(test, &sources), "{test}");
    }
    for test in ["it_was_a_test", "it_is_a", "c::it_is_a_test", "b::a::it_is_a_test"] {
        assert!(!exists(test, &sources), "{test}");
    }
}

/// Returns the numbers in a text, in the format that the benchmark book uses.
fn numbers(text: &str) -> Vec<&str> {
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
    parts.map(|part| part.trim_matches(['.', ','])).filter(|part| !part.is_empty()).collect()
}

/// Returns the paragraphs, items of lists and rows of tables of a page.
fn parts(page: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut before = "";
    for line in page.lines() {
        let begins = before.trim().is_empty() || line.starts_with(['|', '#', '-', '*', '`']);
        match parts.last_mut() {
            Some(last) if !begins => *last += &format!("\n{line}"),
            _ => parts.push(line.to_owned()),
        }
        before = line;
    }
    parts
}

/// Returns the numbers in `part` that are in no table of results to which `part` leads. Returns none if it leads to no
/// such table.
fn strays(page: &Path, part: &str) -> Vec<String> {
    let targets: Vec<_> =
        targets(part).into_iter().filter(|target| target.contains("benches/results/")).collect();
    let files = targets.iter().map(|target| target.split('#').next().unwrap());
    let figures: String = files.map(|file| read(page.parent().unwrap().join(file))).collect();
    let words = targets.iter().fold(part.to_owned(), |words, target| words.replace(target, ""));
    // Code has names with digits.
    let words: String = words.split('`').step_by(2).collect();
    let known = numbers(&figures);
    let numbers = numbers(&words).into_iter().filter(|_| !targets.is_empty());
    numbers.filter(|number| !known.contains(number)).map(str::to_owned).collect()
}

#[test]
fn figures_beside_a_link_to_results_stand_there() {
    let is_for_users =
        |page: &&PathBuf| page.ends_with("README.md") || page.parent().unwrap().ends_with("guide");
    let mut count = 0;
    let mut errors = Vec::new();
    for page in pages().iter().filter(is_for_users) {
        for part in parts(&read(page)) {
            count += usize::from(part.contains("benches/results/"));
            errors.extend(
                strays(page, &part).into_iter().map(|number| format!("{}: {number}", page.display())),
            );
        }
    }
    assert_eq!(errors, [""; 0]);
    assert!(count > 6, "{count} parts");

    let page = root().join("README.md");
    assert_eq!(parts("a\nb\n\n- c\n  d\n- e\n| f |"), ["a\nb\n", "- c\n  d", "- e", "| f |"]);
    let part = "It takes [0.123456 ms](benches/results/servers.md#requests), or 32.5 ms with `x2`.";
    assert_eq!(strays(&page, part), ["0.123456"]);
    assert_eq!(strays(&page, "It takes 0.123456 ms."), [""; 0]);
}

#[test]
fn the_numbers_of_the_first_screen_stand_in_the_book() {
    let page = read("README.md");
    let rows = page.lines().skip_while(|line| !line.starts_with("| the timers live")).skip(2);
    let mut count = 0;
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let [target] = targets(cell)[..] else { panic!("{cell}: a link to the figures") };
        let figures = read(target.split('#').next().unwrap());
        for number in numbers(&cell.replace(target, "")) {
            assert!(figures.contains(number), "{number} is not in {target}");
            count += 1;
        }
    }
    assert!(count > 6, "{count} numbers");
    assert_eq!(numbers("1.5 ms, of 20,000; p99."), ["1.5", "20,000", "99"]);
}

#[test]
fn plots_are_where_readers_look_for_them() {
    let plots = |page: &str| -> BTreeSet<String> {
        let page = read(page);
        let plots = targets(&page).into_iter().filter_map(|target| target.strip_prefix("docs/plots/"));
        plots.map(str::to_owned).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| format!("{name}.svg")).collect::<BTreeSet<_>>();
    assert_eq!(plots("README.md"), set(&["pair", "rearm", "expiry"]));
    assert_eq!(plots("BENCHMARKS.md"), set(&["pair", "rearm", "expiry", "mixed"]));
    // Each drawn plot is shown on some page.
    let drawn = fs::read_dir(root().join("docs/plots")).unwrap().map(|file| file.unwrap().file_name());
    let tables = pages().iter().map(read).collect::<String>();
    for name in drawn {
        let name = name.to_str().unwrap();
        assert!(tables.contains(&format!("docs/plots/{name})")), "{name} stands nowhere");
    }
}
