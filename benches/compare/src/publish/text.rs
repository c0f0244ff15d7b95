//! Texts whose figures come from the results.
//!
//! `{workload; case; contestant; column}` stands for a median with its unit.
//! `{workload; case; contestant / other; column}` stands for the ratio of two medians.

use crate::results::{Outcome, Results};
use tourbillon_book::figure::{count, figure};

/// The text in place of a figure that the results lack.
pub(super) const NOT_MEASURED: &str = "(not measured)";

/// A place for a figure in a text: a part between braces that names the figure.
pub(super) struct Place<'a> {
    pub(super) workload: &'a str,
    pub(super) case: &'a str,
    pub(super) contestant: &'a str,
    /// The contestant by whose figure the first contestant's figure is divided. `None` for a plain figure.
    pub(super) divisor: Option<&'a str>,
    pub(super) column: &'a str,
}

/// A part of a text: words, or a place for a figure.
pub(super) enum Piece<'a> {
    Words(&'a str),
    Place(Place<'a>),
}

/// Replaces each place for a figure in `text` by the figure from the results.
pub(super) fn fill_in(text: &str, results: &Results) -> String {
    let piece = |piece| match piece {
        Piece::Words(words) => words.to_owned(),
        Piece::Place(place) => place.figure(results).unwrap_or_else(|| NOT_MEASURED.to_owned()),
    };
    pieces(text).map(piece).collect()
}

/// Splits `text` into words and places for figures, in order. Braces that do not enclose a place are words.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    text.split_inclusive('}').flat_map(|part| {
        let enclosed = part.strip_suffix('}').and_then(|rest| rest.rsplit_once('{'));
        match enclosed.and_then(|(before, place)| Some((before, Place::parse(place)?))) {
            Some((before, place)) => vec![Piece::Words(before), Piece::Place(place)],
            None => vec![Piece::Words(part)],
        }
    })
}

impl<'a> Place<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(';').map(str::trim).collect();
        let [workload, case, contestant, column] = parts[..] else { return None };
        let (contestant, divisor) = match contestant.split_once(" / ") {
            Some((contestant, divisor)) => (contestant, Some(divisor)),
            None => (contestant, None),
        };
        Some(Self { workload, case, contestant, divisor, column })
    }

    fn figure(&self, results: &Results) -> Option<String> {
        let outcome = results.outcome(self.workload, self.case)?;
        let median = |contestant| Some(outcome.row(contestant)?.samples(self.column)?.median());
        let value = median(self.contestant)?;
        match self.divisor {
            Some(divisor) => Some(figure(value / median(divisor)?)),
            None => Some(with_unit(value, outcome, self.column)),
        }
    }
}

/// Writes a figure with its unit, such as `12.3 ns`. A count has no unit.
pub(super) fn with_unit(value: f64, outcome: &Outcome, column: &str) -> String {
    let unit = outcome.columns.iter().find(|known| known.key == column).map_or("", |column| &column.unit);
    match unit.split(' ').next().unwrap_or("") {
        "" | "times" => count(value),
        "us" => format!("{} µs", figure(value)),
        unit => format!("{} {unit}", figure(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    fn results() -> Results {
        let rows: [(&str, &[f64]); 2] = [("engine, Handle", &[10.0, 12.0, 14.0]), ("Mutex<Tree>", &[36.0])];
        let outcome = synthetic::outcome("pair", "1,000 pending", &["t1", "early"], &rows);
        Results { outcomes: vec![outcome], ..synthetic::results() }
    }

    #[test]
    fn a_place_is_a_median_with_its_unit() {
        let text = "A pair takes {pair; 1,000 pending; engine, Handle; t1}, {pair; 1,000 pending; Mutex<Tree>; early} early.";
        assert_eq!(fill_in(text, &results()), "A pair takes 12.0 ns, 36 early.");
    }

    #[test]
    fn a_place_with_two_contestants_is_a_ratio() {
        let text = "{pair; 1,000 pending; Mutex<Tree> / engine, Handle; t1} times ours";
        assert_eq!(fill_in(text, &results()), "3.00 times ours");
    }

    #[test]
    fn what_the_results_do_not_have_is_said() {
        for place in
            ["pair; few; a; t1", "pair; 1,000 pending; a; t1", "pair; 1,000 pending; engine, Handle; t9"]
        {
            assert_eq!(fill_in(&format!("{{{place}}}"), &results()), NOT_MEASURED);
        }
        assert_eq!(fill_in("{}, {a; b} and {", &results()), "{}, {a; b} and {");
    }
}
