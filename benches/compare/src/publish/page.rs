//! The page: written by hand, except for the blocks between `<!-- begin name -->` and `<!-- end name -->`.

use super::{families, prose, questions, tables};
use crate::results::Results;

/// The largest number of lines that the page may have.
const LONGEST: usize = 230;

/// The name of a block on the page, and the function that makes the block's text.
type Block = (&'static str, fn(&Results) -> String);

/// The page's generated blocks. The page must have each block.
const BLOCKS: [Block; 5] = [
    ("machine", tables::in_a_line),
    ("questions", questions::table),
    ("cautions", questions::cautions),
    ("losses", questions::losses),
    ("index", families::index),
];

/// Fills the page's blocks from the results. Fails if the page becomes too long. Fails if the page has figures that do
/// not come from the results.
pub(super) fn fill(page: &str, results: &Results) -> Result<String, String> {
    let mut filled = String::new();
    let mut blocks = Vec::new();
    let mut open: Option<&str> = None;
    for (at, line) in (1..).zip(page.lines()) {
        match (open, marker(line, "begin"), marker(line, "end")) {
            (None, Some(name), _) => {
                let (_, block) = BLOCKS
                    .iter()
                    .find(|(known, _)| *known == name)
                    .ok_or_else(|| format!("line {at}: there is no block `{name}`"))?;
                filled += &format!("{line}\n\n{}\n\n", block(results));
                blocks.push(name);
                open = Some(name);
            }
            (None, None, None) => {
                if let Some(figure) = prose::figures(line).first() {
                    return Err(format!(
                        "line {at}: `{figure}` is written by hand: figures come from the results"
                    ));
                }
                filled += &format!("{line}\n");
            }
            (Some(name), None, Some(end)) if name == end => {
                filled += &format!("{line}\n");
                open = None;
            }
            (Some(_), None, None) => {}
            (None, None, Some(end)) => {
                return Err(format!("line {at}: end of block `{end}` without a begin"));
            }
            (Some(name), ..) => return Err(format!("line {at}: block `{name}` has not ended")),
        }
    }
    if let Some(name) = open {
        return Err(format!("block `{name}` does not end"));
    }
    if let Some((name, _)) = BLOCKS.iter().find(|(name, _)| !blocks.contains(name)) {
        return Err(format!("there is no block `{name}` on the page"));
    }
    match filled.lines().count() {
        lines if lines > LONGEST => Err(format!("{lines} lines, of {LONGEST} at most")),
        _ => Ok(filled),
    }
}

fn marker<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let inner = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    Some(inner.strip_prefix(kind)?.strip_prefix(' ')?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    fn filled(page: &str) -> Result<String, String> {
        fill(page, &synthetic::results())
    }

    fn error(page: &str) -> String {
        filled(page).unwrap_err()
    }

    #[test]
    fn the_page_of_the_project_is_short_and_has_no_figures_of_its_own() {
        let page = include_str!("../../../../BENCHMARKS.md");
        assert!(page.lines().count() <= LONGEST);
        assert!(filled(page).is_ok(), "{}", error(page));
        assert!(error(&(page.to_owned() + "\nOurs takes 71 ns.\n")).contains("`71 ns` is written by hand"));
    }

    #[test]
    fn what_is_in_a_block_is_replaced_and_the_rest_is_kept() {
        let page = format!("# Title\n\n{}\nText.\n", synthetic::page())
            .replace("begin index -->", "begin index -->\nold");
        let filled = filled(&page).unwrap();
        assert!(filled.starts_with("# Title\n\n") && filled.ends_with("\nText.\n"), "{filled}");
        assert!(filled.contains("<!-- begin questions -->\n\n**Of ") && !filled.contains("old"));
        assert_eq!(fill(&filled, &synthetic::results()).unwrap(), filled);
    }

    #[test]
    fn blocks_that_do_not_match_are_errors() {
        assert_eq!(error("<!-- begin pair -->\n"), "line 1: there is no block `pair`");
        assert_eq!(error("\n<!-- end index -->\n"), "line 2: end of block `index` without a begin");
        assert_eq!(error("<!-- begin index -->\n"), "block `index` does not end");
        let crossed = ["<!-- end losses -->", "<!-- begin index -->"];
        for line in crossed {
            assert_eq!(
                error(&format!("<!-- begin index -->\n{line}")),
                "line 2: block `index` has not ended"
            );
        }
        assert_eq!(error(""), "there is no block `machine` on the page");
    }

    #[test]
    fn a_figure_outside_of_blocks_is_refused() {
        let page = format!("{}\nOurs takes 71 ns.\n", synthetic::page());
        assert!(error(&page).ends_with("`71 ns` is written by hand: figures come from the results"));
        assert!(filled(&page.replace("71 ns", "[a few](benches/results/arming.md)")).is_ok());
        let inside = synthetic::page().replace("begin machine -->", "begin machine -->\nOurs takes 71 ns.");
        assert!(filled(&inside).is_ok());
    }

    #[test]
    fn a_page_that_is_too_long_is_refused() {
        let page = synthetic::page();
        let lines = filled(&page).unwrap().lines().count();
        let longest = page.clone() + &"\n".repeat(LONGEST - lines);
        assert!(filled(&longest).is_ok());
        assert_eq!(error(&(longest + "\n")), "231 lines, of 230 at most");
    }
}
