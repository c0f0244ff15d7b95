//! Chooses the contestants for a plot with a line for each. With all contestants the plot could not be read.

use crate::results::Row;
use plotters::prelude::RGBColor;
use tourbillon_book::canvas::{INK, OURS, Pen};

const COLOURS: [RGBColor; 7] = [
    RGBColor(0xd1, 0x4e, 0x0d),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xcc, 0x8a, 0x00),
    RGBColor(0x9a, 0x6c, 0xd0),
    RGBColor(0xa8, 0x7b, 0x4f),
    RGBColor(0x2a, 0xa8, 0xb8),
];

/// For each colour, the well-known contestants that may get the colour. If none of them takes part, another contestant
/// gets the colour.
const KNOWN: [&[&str]; COLOURS.len()] = [
    &["tokio, Sleep", "tokio, tasks"],
    &["Mutex<BinaryHeap>"],
    &["Mutex<cascading wheel>, a shard a core"],
    &["tokio-util, DelayQueue"],
    &["Netty, HashedWheelTimer"],
    &["JDK, ScheduledThreadPoolExecutor"],
    &["Go, runtime timers"],
];

/// Returns the rows to draw: ours, and as many others as there are colours. The best contestant comes first, then
/// well-known contestants, then the rest.
pub(crate) fn chosen<'a>(rows: impl Iterator<Item = &'a Row>, best: Option<&Row>) -> Vec<(&'a Row, Pen)> {
    let (ours, mut others): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| row.is_ours);
    let is_best = |row: &Row| best.is_some_and(|best| best.contestant == row.contestant);
    others.sort_by_key(|row| (!is_best(row), known(row).unwrap_or(COLOURS.len())));
    others.truncate(COLOURS.len());
    let taken: Vec<usize> = others.iter().filter_map(|row| known(row)).collect();
    let mut free = (0..COLOURS.len()).filter(|at| !taken.contains(at)).map(|at| COLOURS[at]);
    let ours = ours.into_iter().zip(OURS.into_iter().cycle());
    let ours = ours.map(|(row, colour)| (row, Pen { colour, width: 4 }));
    let others = others.into_iter().map(|row| {
        let colour = known(row).map(|at| COLOURS[at]).or_else(|| free.next()).unwrap_or(INK);
        (row, Pen { colour, width: 2 })
    });
    ours.chain(others).collect()
}

fn known(row: &Row) -> Option<usize> {
    KNOWN.iter().position(|names| names.contains(&row.contestant.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::synthetic;

    #[test]
    fn ours_the_best_and_the_known_are_chosen() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "tokio, Sleep", "engine, Handle"];
        let outcome = synthetic::outcome("pair", "few", &["t1"], &names.map(|name| (name, [1.0].as_slice())));
        let chosen = chosen(outcome.rows.iter(), outcome.row("h"));
        let names: Vec<&str> = chosen.iter().map(|(row, _)| row.contestant.as_str()).collect();
        assert_eq!(names, ["engine, Handle", "h", "tokio, Sleep", "a", "b", "c", "d", "e"]);
        assert_eq!(chosen[0].1, Pen { colour: OURS[0], width: 4 });
        assert_eq!([1, 2, 3].map(|at: usize| chosen[at].1.colour), [COLOURS[1], COLOURS[0], COLOURS[2]]);
    }
}
