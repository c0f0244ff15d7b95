//! The transactions in progress on the server, and the earliest moment at which each of them may have begun.

use core::mem::take;
use std::collections::{BTreeMap, BTreeSet};

/// Stands for an unknown moment: the transaction may have begun at any time.
const UNKNOWN: i64 = i64::MIN;

/// The transactions that were in progress in the last snapshot. A moment is the server's time in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// The transactions by their numbers, each with a moment at which it had not begun yet.
    since: BTreeMap<u64, i64>,
    /// The first transaction number that was free in the last snapshot, and a moment before that snapshot.
    last: Option<(u64, i64)>,
}

/// Reads a snapshot, which is the text `xmin:xmax:list`. Returns the first free transaction number, and the numbers of
/// the transactions in progress. `None` if the text cannot be read.
fn read(snapshot: &str) -> Option<(u64, BTreeSet<u64>)> {
    let (_, rest) = snapshot.split_once(':')?;
    let (next, list) = rest.split_once(':')?;
    let numbers = list.split(',').filter(|number| !number.is_empty());
    Some((next.parse().ok()?, numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?))
}

impl Open {
    /// Records a snapshot that was taken after the moment `now`. Returns whether a long transaction has ended since the
    /// last snapshot. A transaction is long if it may have been in progress for `long` milliseconds. Also returns
    /// `true` if the snapshot cannot be read.
    pub(super) fn learn(&mut self, snapshot: &str, now: i64, long: i64) -> bool {
        let Some((next, list)) = read(snapshot) else { return true };
        if self.last.is_some_and(|(_, before)| now < before) {
            // The server's clock was set back.
            self.since.values_mut().for_each(|since| *since = UNKNOWN);
        }
        let mut has_long_ended = false;
        for (number, since) in take(&mut self.since) {
            if list.contains(&number) || number >= next {
                self.since.insert(number, since);
            } else {
                has_long_ended |= now.saturating_sub(since) >= long;
            }
        }
        for number in list {
            // If the number was free in the last snapshot, the transaction began after the moment of that snapshot.
            let since = self.last.filter(|(next, _)| number >= *next).map_or(UNKNOWN, |(_, now)| now);
            self.since.entry(number).or_insert(since);
        }
        if self.last.is_none_or(|(before, _)| next >= before) {
            self.last = Some((next, now));
        }
        has_long_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: i64 = 50;

    /// Passes each snapshot with its moment to [`Open::learn`]. Returns the last result.
    fn has_long_ended(snapshots: &[(&str, i64)]) -> bool {
        let mut open = Open::default();
        snapshots.iter().fold(false, |_, (snapshot, now)| open.learn(snapshot, *now, LONG))
    }

    #[test]
    fn the_age_of_each_transaction_is_known_and_not_only_that_of_the_oldest() {
        let begin = [("7:7:", 0), ("7:9:7,8", 1), ("8:9:8", 40)];
        assert!(!has_long_ended(&begin), "the oldest was open for 40 minutes");
        assert!(!has_long_ended(&[&begin[..], &[("9:9:", 45)]].concat()));
        assert!(has_long_ended(&[&begin[..], &[("9:9:", 80)]].concat()));
    }

    #[test]
    fn a_transaction_that_was_open_at_the_first_look_may_be_long() {
        assert!(has_long_ended(&[("7:9:7,8", 1000), ("8:9:8", 1001)]));
        assert!(!has_long_ended(&[("7:7:", 999), ("7:9:7,8", 1000), ("8:9:8", 1001)]));
    }

    #[test]
    fn a_transaction_may_be_as_old_as_the_look_before_its_first() {
        assert!(has_long_ended(&[("7:7:", 0), ("7:8:7", 70), ("8:8:", 71)]));
        assert!(!has_long_ended(&[("7:7:", 60), ("7:8:7", 70), ("8:8:", 71)]));
    }

    #[test]
    fn an_answer_that_comes_late_and_a_clock_that_goes_back_make_nothing_younger() {
        assert!(!has_long_ended(&[("7:7:", 0), ("7:9:7,8", 2), ("7:8:7", 1)]), "8 has not begun");
        assert!(has_long_ended(&[("7:7:", 0), ("8:8:", 60), ("7:8:7", 59), ("8:8:", 61)]));
        assert!(has_long_ended(&[("7:7:", 100), ("7:8:7", 101), ("7:8:7", 20), ("8:8:", 21)]));
    }

    #[test]
    fn a_snapshot_that_cannot_be_read_counts_as_a_long_end() {
        assert!(has_long_ended(&[("7:", 0)]) && has_long_ended(&[("7:8:x", 0)]));
    }
}
