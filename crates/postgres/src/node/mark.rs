//! How far the claims of this node have come: the low-water mark, and the snapshot in which it was right.

use crate::layout::Id;
use core::time::Duration;
use serde::Deserialize;
use std::time::Instant;
use tourbillon_durable::timer::TimerId;

/// The time after which a transaction that ends may have written a timer without a mark of its transaction. Timers that
/// are due within an hour have such a mark.
const LONG: Duration = Duration::from_secs(50 * 60);
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
    oldest: Option<Oldest>,
}

/// The oldest transaction that was in progress at a look.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    number: u64,
    since: Instant,
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
        Self { owned: String::new(), due: -1, id, seen: None, held: Vec::new(), oldest: None }
    }
}

impl Mark {
    /// Moves the mark as the answer of a claim says. Returns whether the node has other shards than before.
    pub(crate) fn follow(&mut self, head: &Head) -> bool {
        let has_changed = self.owned != head.owned;
        self.owned.clone_from(&head.owned);
        (self.due, self.id) = (head.mark_due, Id(head.mark_id.unwrap_or(TimerId::from_u128(0))));
        self.seen.clone_from(&head.seen);
        self.held = head.held.iter().copied().map(Id).collect();
        let oldest = head.seen.as_deref().and_then(oldest_of);
        let has_long_ended = match (self.oldest, oldest) {
            (Some(before), Some(number)) if number != before.number => before.since.elapsed() >= LONG,
            _ => false,
        };
        if self.oldest.map(|before| before.number) != oldest {
            self.oldest = oldest.map(|number| Oldest { number, since: Instant::now() });
        }
        if has_long_ended || self.held.len() > MOST_HELD {
            (self.due, self.seen) = (-1, None);
            self.held.clear();
        }
        has_changed
    }
}

/// Returns the oldest transaction that was in progress in a snapshot. A snapshot is the text `xmin:xmax:list`.
fn oldest_of(snapshot: &str) -> Option<u64> {
    snapshot.split(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seen: &str, held: usize) -> Head {
        let held = (0..held).map(|n| TimerId::from_u128(n as u128)).collect();
        let (mark_id, seen) = (Some(TimerId::from_u128(9)), Some(seen.to_owned()));
        Head { now: 5, gone: false, owned: "0:1".into(), mark_due: 5, mark_id, seen, held, next: None }
    }

    #[test]
    fn the_mark_follows_the_answers() {
        let mut mark = Mark::default();
        assert!(mark.follow(&head("7:9:7", 2)), "the shards are new");
        assert_eq!((mark.due, mark.held.len(), mark.seen.as_deref()), (5, 2, Some("7:9:7")));
        assert!(!mark.follow(&head("8:9:8", 0)));
        assert_eq!((mark.due, mark.oldest.map(|oldest| oldest.number)), (5, Some(8)));
    }

    #[test]
    fn the_mark_starts_again_after_a_long_transaction_and_with_many_held_timers() {
        let mut mark = Mark::default();
        mark.follow(&head("7:9:7", 0));
        if let Some(since) = Instant::now().checked_sub(LONG) {
            mark.oldest = Some(Oldest { number: 7, since });
            mark.follow(&head("8:9:8", 0));
            assert_eq!((mark.due, mark.seen.as_deref()), (-1, None));
        }
        mark.follow(&head("8:9:8", MOST_HELD + 1));
        assert_eq!((mark.due, mark.held.len()), (-1, 0));
    }
}
