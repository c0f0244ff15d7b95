//! Publishes raw results: the generated blocks of a hand-written page, and plots.

mod claims;
mod figure;
mod lookup;
mod page;
mod plots;
mod tables;

#[cfg(test)]
pub(crate) mod synthetic;

use crate::results::Results;
use std::error::Error;
use std::fs;
use std::path::Path;

/// What makes the page and the plots anew.
const COMMAND: &str = "cargo run --release -- publish";

/// Fills the page's blocks and draws the plots; or, with `is_check`, says whether that would change anything.
pub(crate) fn publish(
    results: &Results,
    page: &Path,
    plots: &Path,
    is_check: bool,
) -> Result<(), Box<dyn Error>> {
    let old = fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let new = page::fill(&old, results).map_err(|error| format!("{}: {error}", page.display()))?;
    let mut files = vec![(page.to_owned(), new)];
    for (name, svg) in plots::draw(results)? {
        files.push((plots.join(name).with_extension("svg"), svg));
    }
    if !is_check {
        fs::create_dir_all(plots)?;
    }
    for (path, text) in files {
        if is_check {
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                return Err(
                    format!("{} is not what the results give: run `{COMMAND}`", path.display()).into()
                );
            }
        } else {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_passes_the_check_until_it_is_edited() {
        let directory = std::env::temp_dir().join(format!("tourbillon-publish-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (page, plots) = (directory.join("BENCHMARKS.md"), directory.join("plots"));
        let results = synthetic::results();
        fs::write(&page, synthetic::page(&results)).unwrap();

        let error = publish(&results, &page, &plots, true).unwrap_err().to_string();
        assert!(error.contains("BENCHMARKS.md is not what the results give: run"), "{error}");
        assert!(!plots.exists());

        publish(&results, &page, &plots, false).unwrap();
        publish(&results, &page, &plots, true).unwrap();

        fs::write(plots.join("pair.svg"), "").unwrap();
        let error = publish(&results, &page, &plots, true).unwrap_err().to_string();
        assert!(error.contains("pair.svg is not what the results give"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
