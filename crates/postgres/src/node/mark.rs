//! How far the claims of this node have come: the low-water mark, and the snapshot in which it was right.

use super::open::Open;
use crate::layout::Id;
use serde::Deserialize;
use tourbillon_durable::timer::TimerId;

/// The time in milliseconds after which a transaction that ends may have written a timer that the second look does not
/// find. The second look finds timers that were due within an hour.
const LONG: i64 = 50 * 60_000;
/// The greatest number of timers that are asked for again because other transactions hold them.
const MOST_HELD: usize = 10_000;

/// The low-water mark of a node. All timers up to the mark that were visible in the snapshot are leased, or are among
/// the held timers.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The shards for which the mark holds, with their epochs, and the lifetime of the server's memory.
    pub(crate) owned: String,
    pub(crate) due: i64,
    pub(crate) id: Id,
    /// The snapshot of the last look. `None` before the first look, and after the mark was reset.
    pub(crate) seen: Option<String>,
    /// The timers that other transactions held during the last look.
    pub(crate) held: Vec<Id>,
    open: Open,
}

/// The first row of a claim's answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    pub(crate) now: i64,
    /// Whether the node has no row: another node has taken it for dead, or it has not entered.
    pub(crate) gone: bool,
    #[serde(default)]
    owned: String,
    #[serde(default)]
    mark_due: i64,
    mark_id: Option<TimerId>,
    seen: Option<String>,
    #[serde(default)]
    held: Vec<TimerId>,
    /// The due moment of the first timer that is left.
    pub(crate) next: Option<i64>,
}

impl Default for Mark {
    fn default() -> Self {
        let id = Id(TimerId::from_u128(0));
        Self { owned: String::new(), due: -1, id, seen: None, held: Vec::new(), open: Open::default() }
    }
}

impl Mark {
    /// Moves the mark as the answer of a claim says. Returns whether the node has other shards than before.
    pub(crate) fn follow(&mut self, head: &Head) -> bool {
        let has_changed = self.owned != head.owned;
        if lifetime(&self.owned) != lifetime(&head.owned) {
            // The numbers of lost transactions are given out again.
            self.open = Open::default();
        }
        // A look that leaves late timers answers with the snapshot of an earlier look.
        let is_new = has_changed || self.seen != head.seen;
        self.owned.clone_from(&head.owned);
        (self.due, self.id) = (head.mark_due, Id(head.mark_id.unwrap_or(TimerId::from_u128(0))));
        self.seen.clone_from(&head.seen);
        self.held = head.held.iter().copied().map(Id).collect();
        let seen = head.seen.as_deref().filter(|_| is_new);
        let has_long_ended = seen.is_some_and(|seen| self.open.learn(seen, head.now, LONG));
        if has_long_ended || self.held.len() > MOST_HELD {
            self.restart();
        }
        has_changed
    }

    /// Learns the snapshot of a look that has leased nothing. Returns whether the mark starts again.
    pub(crate) fn notice(&mut self, seen: &str, now: i64) -> bool {
        let has_long_ended = self.open.learn(seen, now, LONG);
        if has_long_ended {
            self.restart();
        }
        has_long_ended
    }

    fn restart(&mut self) {
        (self.due, self.seen) = (-1, None);
        self.held.clear();
    }
}

/// Returns the lifetime of the server's memory, which stands before the shards.
fn lifetime(owned: &str) -> &str {
    owned.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seen: &str, held: usize) -> Head {
        let held = (0..held).map(|n| TimerId::from_u128(n as u128)).collect();
        let (mark_id, seen) = (Some(TimerId::from_u128(9)), Some(seen.to_owned()));
        Head { now: 5, gone: false, owned: "life 0:1".into(), mark_due: 5, mark_id, seen, held, next: None }
    }

    #[test]
    fn the_mark_follows_the_answers() {
        let mut mark = Mark::default();
        assert!(mark.follow(&head("7:7:", 2)), "the shards are new");
        assert_eq!((mark.due, mark.held.len(), mark.seen.as_deref()), (5, 2, Some("7:7:")));
        assert!(!mark.follow(&head("7:9:7", 0)));
        assert!(!mark.follow(&head("9:9:", 0)));
        assert_eq!((mark.due, mark.held.len(), mark.seen.as_deref()), (5, 0, Some("9:9:")));
    }

    #[test]
    fn the_mark_starts_again_after_a_long_transaction_and_with_many_held_timers() {
        let mut mark = Mark::default();
        mark.follow(&head("7:7:", 0));
        mark.follow(&head("7:9:7", 0));
        mark.follow(&Head { now: 5 + LONG, ..head("9:9:", 0) });
        assert_eq!((mark.due, mark.seen.as_deref()), (-1, None));
        mark.follow(&head("9:9:", MOST_HELD + 1));
        assert_eq!((mark.due, mark.held.len()), (-1, 0));
    }

    #[test]
    fn a_look_that_leases_nothing_lets_the_mark_start_again() {
        let mut mark = Mark::default();
        mark.follow(&head("7:7:", 0));
        assert!(!mark.notice("7:8:7", 6));
        assert!(mark.notice("8:8:", 6 + LONG));
        assert_eq!((mark.due, mark.seen.as_deref()), (-1, None));
    }

    #[test]
    fn another_lifetime_of_the_server_forgets_the_transactions() {
        let mut mark = Mark::default();
        mark.follow(&head("7:7:", 0));
        mark.follow(&Head { owned: "other 0:1".into(), ..head("3:4:3", 0) });
        mark.follow(&Head { owned: "other 0:1".into(), ..head("4:4:", 0) });
        assert_eq!(mark.due, -1, "nobody knows when the transaction began");
    }
}
