//! The page: written by hand, but for what stands between `<!-- begin name -->` and `<!-- end name -->`.
//!
//! Blocks are `machine`, `claims`, each workload (all its cases), and `workload: case`.

use super::{claims, tables};
use crate::results::Results;

/// The page with its blocks made anew.
pub(crate) fn fill(page: &str, results: &Results) -> Result<String, String> {
    let mut filled = String::new();
    let mut blocks = Vec::new();
    let mut open: Option<&str> = None;
    for (at, line) in (1..).zip(page.lines()) {
        match (open, marker(line, "begin"), marker(line, "end")) {
            (None, Some(name), _) => {
                let text = block(name, results)
                    .ok_or_else(|| format!("line {at}: no results for block `{name}`"))?;
                filled += &format!("{line}\n\n{text}\n\n");
                blocks.push(name);
                open = Some(name);
            }
            (None, None, None) => filled += &format!("{line}\n"),
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
    match missing(results, &blocks) {
        Some(name) => Err(format!("the results have `{name}`, the page has no block for it")),
        None => Ok(filled),
    }
}

fn marker<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let inner = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    Some(inner.strip_prefix(kind)?.strip_prefix(' ')?.trim())
}

fn block(name: &str, results: &Results) -> Option<String> {
    match name {
        "machine" => Some(tables::machine(results)),
        "claims" => Some(claims::table(results)),
        _ => workload(name, results).or_else(|| {
            let (workload, case) = name.split_once(": ")?;
            results.outcome(workload, case).map(tables::outcome)
        }),
    }
}

/// What is done, then a table a case.
fn workload(name: &str, results: &Results) -> Option<String> {
    let what = sentence(&results.cases(name).next()?.what);
    let cases =
        results.cases(name).map(|case| format!("\n\n### {}\n\n{}", case.case.name, tables::outcome(case)));
    Some(what + &cases.collect::<String>())
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    tables::escaped(&first.chain(letters).chain(['.']).collect::<String>())
}

/// What the page does not show.
fn missing(results: &Results, blocks: &[&str]) -> Option<String> {
    let outcomes = results.outcomes.iter().filter(|outcome| !blocks.contains(&outcome.workload.as_str()));
    let cases = outcomes.map(|outcome| format!("{}: {}", outcome.workload, outcome.case.name));
    let parts = ["machine", "claims"].map(str::to_owned);
    parts.into_iter().chain(cases).find(|name| !blocks.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    const ENDS: &str =
        "<!-- begin machine -->\n<!-- end machine -->\n<!-- begin claims -->\n<!-- end claims -->\n";

    fn results() -> Results {
        let cases = ["few", "many"].map(|case| synthetic::outcome("pair", case, &["t1"], &[("a", &[1.0])]));
        Results { outcomes: cases.into(), ..synthetic::results() }
    }

    fn error(page: &str) -> String {
        fill(page, &results()).unwrap_err()
    }

    #[test]
    fn what_is_in_a_block_is_replaced_and_the_rest_is_kept() {
        let page = format!("# Title\n\n<!-- begin pair -->\nold\n<!-- end pair -->\n\nText.\n{ENDS}");
        let filled = fill(&page, &results()).unwrap();
        assert!(filled.starts_with("# Title\n\n<!-- begin pair -->\n\nWhat pair does.\n\n###"), "{filled}");
        assert!(filled.contains("### few\n\n| contestant") && filled.contains("### many\n\n| contestant"));
        assert!(filled.contains("<!-- end pair -->\n\nText.\n") && !filled.contains("old"));
        assert_eq!(fill(&filled, &results()).unwrap(), filled);
    }

    #[test]
    fn cases_may_have_blocks_of_their_own() {
        let block = |case| format!("<!-- begin pair: {case} -->\n<!-- end pair: {case} -->\n");
        let page = format!("{}{}{ENDS}", block("few"), block("many"));
        let filled = fill(&page, &results()).unwrap();
        assert_eq!((filled.matches("| **1.00** ").count(), filled.contains("###")), (2, false));
        let page = format!("{}{ENDS}", block("few"));
        assert_eq!(error(&page), "the results have `pair: many`, the page has no block for it");
    }

    #[test]
    fn blocks_that_do_not_match_are_errors() {
        assert_eq!(error("<!-- begin other -->\n"), "line 1: no results for block `other`");
        assert_eq!(error("\n<!-- end pair -->\n"), "line 2: end of block `pair` without a begin");
        assert_eq!(error("<!-- begin pair -->\n"), "block `pair` does not end");
        assert_eq!(error("<!-- begin pair -->\n<!-- end other -->"), "line 2: block `pair` has not ended");
        assert_eq!(error("<!-- begin pair -->\n<!-- begin pair -->"), "line 2: block `pair` has not ended");
        assert_eq!(error(ENDS), "the results have `pair: few`, the page has no block for it");
        assert_eq!(error(""), "the results have `machine`, the page has no block for it");
    }
}
