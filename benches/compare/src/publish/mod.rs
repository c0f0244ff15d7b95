//! Publishes raw results: as the generated blocks of a hand-written page, as files with all tables, and as plots.

mod claims;
mod families;
mod figure;
mod lookup;
mod page;
mod plots;
mod prose;
mod questions;
mod tables;
mod text;
mod verdict;

#[cfg(test)]
pub(crate) mod synthetic;

use crate::results::Results;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use tourbillon_book::files;

/// Files in the folder of tables that the package `benches/durable` makes and checks.
const OTHERS: [&str; 1] = ["durable.md"];

/// The paths of the page, of the tables and of the plots.
pub(crate) struct Places {
    pub(crate) page: PathBuf,
    /// The folder of the tables. All its Markdown files are generated.
    pub(crate) tables: PathBuf,
    pub(crate) plots: PathBuf,
}

/// Fills the page's blocks, writes the table files and draws the plots. With `is_check`, fails if a published file
/// would change.
pub(crate) fn publish(results: &Results, places: &Places, is_check: bool) -> Result<(), Box<dyn Error>> {
    let Places { page, tables, plots } = places;
    let of_page = |error: String| format!("{}: {error}", page.display());
    let old = fs::read_to_string(page).map_err(|error| of_page(error.to_string()))?;
    let mut files = vec![(page.clone(), page::fill(&old, results).map_err(of_page)?)];
    for file in families::files(results) {
        files.push((tables.join(file.name), file.text));
    }
    for (name, svg) in plots::draw(results)? {
        files.push((plots.join(name).with_extension("svg"), svg));
    }
    if let Some(stray) = stray(tables, &files) {
        return Err(format!("{} is nothing that the results give: remove it", stray.display()).into());
    }
    files::put(&files, is_check, families::COMMAND)
}

/// Returns a Markdown file in the folder of tables that neither this package nor another package made.
fn stray(tables: &Path, files: &[(PathBuf, String)]) -> Option<PathBuf> {
    let is_others = |path: &PathBuf| OTHERS.iter().any(|name| path.ends_with(name));
    files::strays(tables, "md", files).into_iter().find(|path| !is_others(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("tourbillon-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn places(&self) -> Places {
            let [page, tables, plots] = ["BENCHMARKS.md", "tables", "plots"].map(|name| self.0.join(name));
            Places { page, tables, plots }
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn what_was_published_passes_the_check_until_it_is_edited() {
        let scratch = Scratch::new("publish");
        let places = scratch.places();
        let results = synthetic::results();
        let error = |is_check| publish(&results, &places, is_check).unwrap_err().to_string();
        fs::write(&places.page, synthetic::page()).unwrap();

        assert!(error(true).contains("BENCHMARKS.md is not what the results give: run"), "{}", error(true));
        assert!(!places.tables.exists() && !places.plots.exists());

        publish(&results, &places, false).unwrap();
        publish(&results, &places, true).unwrap();

        for edited in [places.plots.join("pair.svg"), places.tables.join("arming.md")] {
            let text = fs::read_to_string(&edited).unwrap();
            fs::write(&edited, "").unwrap();
            let name = edited.file_name().unwrap().to_string_lossy();
            assert!(error(true).contains(&format!("{name} is not what the results give")), "{}", error(true));
            fs::write(&edited, text).unwrap();
        }
        publish(&results, &places, true).unwrap();
    }

    #[test]
    fn a_file_that_nothing_makes_is_refused() {
        let scratch = Scratch::new("stray");
        let places = scratch.places();
        let results = synthetic::results();
        fs::write(&places.page, synthetic::page()).unwrap();
        publish(&results, &places, false).unwrap();
        fs::write(places.tables.join("book.json"), "{}").unwrap();
        fs::write(places.tables.join("durable.md"), "another package's").unwrap();
        publish(&results, &places, true).unwrap();
        fs::write(places.tables.join("by_hand.md"), "71 ns").unwrap();
        for is_check in [false, true] {
            let error = publish(&results, &places, is_check).unwrap_err().to_string();
            assert!(error.contains("by_hand.md is nothing that the results give: remove it"), "{error}");
        }
    }
}
