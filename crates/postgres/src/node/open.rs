//! The transactions in progress on the server, and the earliest moment at which each of them may have begun.

use core::mem::take;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

/// Stands for the unknown start of a transaction, which may have begun at any time.
const UNKNOWN: i64 = i64::MIN;

/// The transactions that may have been in progress when this node last read a snapshot. The numbers in the fields are
/// transaction ids. Each moment in the fields is a time of the server in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// The transactions that the snapshot listed as in progress, by their numbers. The value is a moment at which the
    /// transaction had not begun yet. So the transaction cannot be older than that.
    since: BTreeMap<u64, i64>,
    /// The numbers that are at least the `xmax` of the snapshot, but that the server had already assigned to
    /// transactions when the snapshot was read. A snapshot does not list such numbers. These transactions may have been
    /// open.
    hidden: Range<u64>,
    /// Records from earlier reads of snapshots, in ascending order. Each record is a transaction number, and a moment
    /// at which the server had not yet assigned this number to a transaction.
    free: Vec<(u64, i64)>,
}

/// Reads a snapshot, which is the text `xmin:xmax:list`. Returns `xmax`, and the numbers in the list. Transactions
/// below `xmax` that are not in the list have ended. Transactions from `xmax` on have not ended, although they are not
/// in the list. `None` if the text cannot be read.
fn read(snapshot: &str) -> Option<(u64, BTreeSet<u64>)> {
    let (_, rest) = snapshot.split_once(':')?;
    let (next, list) = rest.split_once(':')?;
    let numbers = list.split(',').filter(|number| !number.is_empty());
    Some((next.parse().ok()?, numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?))
}

/// Returns the `xmax` of a snapshot: the highest number of a transaction that has ended, plus one. Returns 0 if the
/// text cannot be read.
#[cfg(test)]
pub(super) fn next(snapshot: &str) -> u64 {
    read(snapshot).map_or(0, |(next, _)| next)
}

impl Open {
    /// Records a snapshot that was read after the moment `now`. `free` is a number that the server had not assigned to
    /// a transaction at `now`. Returns whether a long transaction has ended since the last read of a snapshot. A
    /// transaction is long if it may have been in progress for `long` milliseconds. Also returns `true` if the snapshot
    /// cannot be read.
    pub(super) fn learn(&mut self, snapshot: &str, free: u64, now: i64, long: i64) -> bool {
        let Some((next, list)) = read(snapshot) else { return true };
        if self.free.last().is_some_and(|(_, before)| now < *before) {
            // The server's clock was set back.
            self.since.values_mut().for_each(|since| *since = UNKNOWN);
            self.free.clear();
        }
        // The first of the hidden transactions that have ended began before the others.
        let mut hidden = self.hidden.start..self.hidden.end.min(next);
        let first_ended = hidden.find(|number| !list.contains(number));
        let is_long = |since: i64| now.saturating_sub(since) >= long;
        let mut has_long_ended = first_ended.is_some_and(|number| is_long(self.not_begun_at(number)));
        for (number, since) in take(&mut self.since) {
            if list.contains(&number) || number >= next {
                self.since.insert(number, since);
            } else {
                has_long_ended |= is_long(since);
            }
        }
        for number in list {
            let since = self.not_begun_at(number);
            self.since.entry(number).or_insert(since);
        }
        self.hidden = next..free.max(next);
        self.remember(free.max(next), now, long);
        has_long_ended
    }

    /// Returns the latest recorded moment at which the server had not yet assigned this number to a transaction. The
    /// transaction with this number began later. Without a record, returns [`UNKNOWN`].
    fn not_begun_at(&self, number: u64) -> i64 {
        self.free.iter().rfind(|(free, _)| number >= *free).map_or(UNKNOWN, |(_, moment)| *moment)
    }

    /// Records that the server had not assigned the number `free` at the moment `now`. Removes the records whose
    /// moments are at least `long` ago. They are not needed: they could only show that a transaction may be long, and a
    /// transaction counts as long anyway if no record shows the earliest moment at which it may have begun. Keeps about
    /// 300 records at most.
    fn remember(&mut self, free: u64, now: i64, long: i64) {
        self.free.retain(|(_, moment)| now.saturating_sub(*moment) < long);
        match self.free.last_mut() {
            Some((last, moment)) if *last == free => *moment = now,
            Some((last, moment)) if free < *last || now.saturating_sub(*moment) < long / 300 => {}
            _ => self.free.push((free, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: i64 = 50;

    /// Passes each snapshot with its moment to [`Open::learn`]. Returns the last result.
    fn has_long_ended(snapshots: &[(&str, i64)]) -> bool {
        let mut open = Open::default();
        let learn = |_, (snapshot, now): &(&str, i64)| open.learn(snapshot, next(snapshot), *now, LONG);
        snapshots.iter().fold(false, learn)
    }

    /// Passes each snapshot to [`Open::learn`], together with the number that the server gives to the next transaction,
    /// and with a moment. Returns the last result.
    fn has_long_ended_of(looks: &[(&str, u64, i64)]) -> bool {
        let mut open = Open::default();
        looks.iter().fold(false, |_, (snapshot, free, now)| open.learn(snapshot, *free, *now, LONG))
    }

    #[test]
    fn a_transaction_that_no_snapshot_lists_yet_is_as_old_as_it_may_be() {
        // Number 7 is given out before the second look. It is listed once a later transaction has ended.
        let looks = [("7:7:", 7, 0), ("7:7:", 8, 10), ("7:9:7", 9, 40)];
        assert!(!has_long_ended_of(&[&looks[..], &[("9:9:", 9, 49)]].concat()));
        assert!(has_long_ended_of(&[&looks[..], &[("9:9:", 9, 50)]].concat()));
        // No snapshot ever lists it.
        assert!(has_long_ended_of(&[("7:7:", 7, 0), ("7:7:", 8, 70), ("8:8:", 8, 71)]));
        assert!(!has_long_ended_of(&[("7:7:", 7, 60), ("7:7:", 8, 70), ("8:8:", 8, 71)]));
        // It was open at the first look.
        assert!(has_long_ended_of(&[("7:7:", 8, 0), ("8:8:", 8, 1)]));
        assert!(
            !has_long_ended_of(&[("7:7:", 7, 0), ("8:8:", 8, 1)]),
            "it began and ended between two looks"
        );
    }

    #[test]
    fn transactions_that_no_snapshot_lists_are_as_old_as_the_oldest_that_has_ended() {
        // Number 7 is listed, and stays open. Number 8 has ended.
        let looks = [("7:7:", 7, 0), ("7:7:", 8, 10), ("7:7:", 9, 40)];
        assert!(!has_long_ended_of(&[&looks[..], &[("7:9:7", 9, 59)]].concat()));
        assert!(has_long_ended_of(&[&looks[..], &[("7:9:7", 9, 60)]].concat()));
        // A caller has very many savepoints.
        assert!(!has_long_ended_of(&[("7:7:", 7, 0), ("7:7:", 1 << 40, 1), ("9:9:", 1 << 40, 2)]));
    }

    #[test]
    fn the_looks_of_a_long_time_take_little_memory() {
        let mut open = Open::default();
        let long = 3_000_000;
        for look in 0..20_000 {
            let (free, now) = (8 + u64::try_from(look).unwrap(), look * 250);
            let _has_ended = open.learn(&format!("7:{free}:7"), free, now, long);
        }
        assert!(open.free.len() <= 301, "{}", open.free.len());
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

    /// A server that gives numbers to transactions, which begin and end at random.
    struct Server {
        random: fastrand::Rng,
        now: i64,
        /// The start of each transaction, by its number.
        begins: Vec<i64>,
        open: BTreeSet<usize>,
        /// The highest number of a transaction that has ended, plus one. A snapshot of this server has it as `xmax`.
        next: usize,
    }

    impl Server {
        fn new(seed: u64) -> Self {
            let random = fastrand::Rng::with_seed(seed);
            // Some transactions began long ago.
            Self { random, now: 1_000, begins: vec![0; 4], open: (0..4).collect(), next: 0 }
        }

        /// Lets some time pass. Returns the transactions that end.
        fn go_on(&mut self) -> Vec<usize> {
            let mut ended = Vec::new();
            for _ in 0..self.random.usize(0..4) {
                self.now += self.random.i64(0..4);
                if self.random.bool() {
                    self.open.insert(self.begins.len());
                    self.begins.push(self.now);
                } else if let Some(number) = self.random.choice(&self.open).copied()
                    // Few transactions last for long.
                    && (self.random.u8(0..8) == 0 || self.now - self.begins[number] < 5)
                {
                    self.open.remove(&number);
                    self.next = self.next.max(number + 1);
                    ended.push(number);
                }
            }
            ended
        }

        fn snapshot(&self) -> String {
            let listed: Vec<_> = self.open.range(..self.next).map(ToString::to_string).collect();
            let first = self.open.first().map_or(self.next, |first| self.next.min(*first));
            format!("{first}:{}:{}", self.next, listed.join(","))
        }
    }

    /// In each round, the node first reads the server's time and the number of the next transaction, and later a
    /// snapshot. Transactions begin and end between the two reads.
    #[test]
    fn no_long_transaction_ends_unnoticed_and_no_short_one_counts_as_long() {
        let (mut long_ends, mut calm_looks) = (0, 0);
        for seed in 0..400 {
            let (mut server, mut open) = (Server::new(seed), Open::default());
            // The longest time between two looks, the moment of the last look, and that of the first snapshot.
            let (mut pause, mut last, mut first) = (0, server.now, None);
            for look in 0..60 {
                let mut ended = server.go_on();
                let (now, free) = (server.now, server.begins.len());
                ended.extend(server.go_on());
                let has_long_ended = open.learn(&server.snapshot(), u64::try_from(free).unwrap(), now, LONG);
                if look == 0 {
                    // What has ended before the first snapshot is of no interest.
                    ended.clear();
                }
                let first = *first.get_or_insert(server.now);
                pause = pause.max(now - last);
                last = now;
                let begins = ended.iter().map(|number| server.begins[*number]);
                if begins.clone().any(|begin| now - begin >= LONG) {
                    assert!(has_long_ended, "seed {seed}, at {now}: a long transaction has ended");
                    long_ends += 1;
                } else if has_long_ended {
                    let may_be_long = |begin: i64| begin <= first || now - begin + pause >= LONG;
                    assert!(
                        begins.clone().any(may_be_long),
                        "seed {seed}, at {now}: all that ended were short"
                    );
                } else {
                    calm_looks += 1;
                }
            }
        }
        assert!(long_ends > 200 && calm_looks > 2_000, "{long_ends} long ends, {calm_looks} calm looks");
    }
}
