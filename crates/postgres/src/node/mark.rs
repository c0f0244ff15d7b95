//! How far the claims of this node have come: the low-water marks, and the snapshot in which they were right.
//!
//! All lanes (groups of namespaces) have one mark, which is the moment of the last claim. A lane that had more due
//! timers than that claim took is *behind*: it has a mark of its own, before the first timer that is left. A claim
//! begins in each lane at the lane's mark. So a lane that is passed over costs nothing, however many due timers it has.
//!
//! | event | the mark of the timer's lane |
//! |---|---|
//! | a claim takes all due timers of the lane | is that of all lanes |
//! | a claim takes some of them | is behind, at the last one that was taken |
//! | a claim passes over the lane, which has its share | stays where it was |
//! | a transaction commits a timer before the mark, and a claim takes the timer | does not move for it |
//! | the same, and the claim leaves the timer | goes back to before the timer |
//! | another transaction holds a timer that a claim has chosen | passes the timer, which is among the held ones |
//! | a claim leaves a held timer, because the lane has its share | goes back to before the timer, and the timer leaves the list of held timers |
//! | a claim has read very many rows of the lane that are leased or are other nodes' | is at the last row that was read |
//!
//! All marks start again at the events that `DESIGN.md` lists.

use super::open::Open;
use crate::layout::Id;
use serde::Deserialize;
use tourbillon_durable::timer::TimerId;

/// The time in milliseconds after which a transaction that ends may have written a timer that the second look does not
/// find. The second look finds timers that were due within an hour.
const LONG: i64 = 50 * 60_000;
/// The greatest number of timers that are asked for again because other transactions hold them.
const MOST_HELD: usize = 10_000;
/// The least and the greatest time in milliseconds after which the marks start again because some held timers are not
/// asked for again.
const RESCAN: (i64, i64) = (10_000, 60_000);

/// The low-water marks of a node. All timers up to the mark of their lane that were visible in the snapshot are leased,
/// or are among the held timers.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The shards for which the mark holds, with their epochs, and the lifetime of the server's memory.
    pub(crate) owned: String,
    pub(crate) due: i64,
    pub(crate) id: Id,
    /// The lanes that are behind, with the due moments and ids of their marks.
    pub(crate) lanes: Vec<i16>,
    pub(crate) lane_dues: Vec<i64>,
    pub(crate) lane_ids: Vec<Id>,
    /// The lanes behind from which the last claim would take no timer, because they have their shares. Only the end of
    /// a delivery or a new permit changes that, after which the runtime claims by itself.
    pub(crate) withheld: Vec<i16>,
    /// The snapshot of the last look. `None` before the first look, and after the mark was reset.
    pub(crate) seen: Option<String>,
    /// The timers that other transactions held during the last look, up to [`MOST_HELD`].
    pub(crate) held: Vec<Id>,
    /// Whether a look since the last claim has found a late timer or a held one. Another look before the next claim
    /// would find it again.
    pub(crate) has_late: bool,
    /// The moment of the claim that began at the first timer.
    started: i64,
    /// When the marks start again because there were more held timers than are asked for again.
    rescan: Option<i64>,
    open: Open,
}

/// The first row of a claim's answer.
#[derive(Debug, Default, Deserialize)]
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
    /// The moment from which the next claim takes a timer.
    pub(crate) next_claim: Option<i64>,
    /// The lanes that are behind, with their marks.
    #[serde(default)]
    behind: Vec<(i16, i64, TimerId)>,
    #[serde(default)]
    withheld: Vec<i16>,
}

impl Default for Mark {
    fn default() -> Self {
        let id = Id(TimerId::from_u128(0));
        let (lanes, lane_dues, lane_ids) = (Vec::new(), Vec::new(), Vec::new());
        let (owned, withheld, held) = (String::new(), Vec::new(), Vec::new());
        let (has_late, started, rescan, open) = (false, 0, None, Open::default());
        Self {
            owned,
            due: -1,
            id,
            lanes,
            lane_dues,
            lane_ids,
            withheld,
            seen: None,
            held,
            has_late,
            started,
            rescan,
            open,
        }
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
        if has_changed || self.seen.is_none() {
            self.started = head.now;
        }
        self.owned.clone_from(&head.owned);
        (self.due, self.id) = (head.mark_due, Id(head.mark_id.unwrap_or(TimerId::from_u128(0))));
        self.lanes = head.behind.iter().map(|(lane, ..)| *lane).collect();
        self.lane_dues = head.behind.iter().map(|(_, due, _)| *due).collect();
        self.lane_ids = head.behind.iter().map(|(.., id)| Id(*id)).collect();
        self.withheld.clone_from(&head.withheld);
        self.seen.clone_from(&head.seen);
        self.held = head.held.iter().copied().map(Id).take(MOST_HELD).collect();
        self.has_late = false;
        let has_long_ended = head.seen.as_deref().is_some_and(|seen| self.open.learn(seen, head.now, LONG));
        if has_long_ended || self.is_rescan_due(head.now) {
            self.restart();
        } else if head.held.len() > MOST_HELD && self.rescan.is_none() {
            // The marks have passed the timers beyond the limit. Claims of others have three times as long as the marks
            // took to come so far.
            let (least, most) = RESCAN;
            let took = head.now.saturating_sub(self.started);
            self.rescan = Some(head.now + took.saturating_mul(3).clamp(least, most));
        }
        has_changed
    }

    /// Returns whether held timers that are not asked for again must be looked for now. A moment that is far ahead is
    /// from before the server's clock was set back.
    fn is_rescan_due(&self, now: i64) -> bool {
        self.rescan.is_some_and(|moment| moment <= now || moment - now > RESCAN.1)
    }

    /// Learns the snapshot of a look that has leased nothing. If the look has found no late timer, the next look begins
    /// at its snapshot. Returns whether the marks start again.
    pub(crate) fn notice(&mut self, seen: &str, now: i64, has_late: bool) -> bool {
        let has_long_ended = self.open.learn(seen, now, LONG);
        let restarts = has_long_ended || self.is_rescan_due(now);
        if restarts {
            self.restart();
        } else if has_late {
            self.has_late = true;
        } else {
            self.seen = Some(seen.to_owned());
        }
        restarts
    }

    /// Returns the shards that are not this node's, a bit for each.
    pub(crate) fn others(&self) -> u32 {
        let numbers = self.owned.split(' ').nth(1).unwrap_or_default().split(',');
        let number = |shard: &str| shard.split(':').next()?.parse::<u32>().ok();
        let owned =
            numbers.filter_map(number).fold(0_u32, |owned, number| owned | 1_u32.unbounded_shl(number));
        u32::from(u16::MAX) & !owned
    }

    fn restart(&mut self) {
        (self.due, self.seen) = (-1, None);
        self.rescan = None;
        self.held.clear();
        (self.lanes, self.lane_dues, self.lane_ids) = (Vec::new(), Vec::new(), Vec::new());
        self.withheld.clear();
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
        let behind = vec![(3, 4, TimerId::from_u128(7))];
        Head { now: 5, owned: "life 0:1".into(), mark_due: 5, mark_id, seen, held, behind, ..Head::default() }
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
    fn the_mark_starts_again_after_a_long_transaction() {
        let mut mark = Mark::default();
        mark.follow(&head("7:7:", 0));
        mark.follow(&head("7:9:7", 0));
        mark.follow(&Head { now: 5 + LONG, ..head("9:9:", 0) });
        assert_eq!((mark.due, mark.seen.as_deref()), (-1, None));
    }

    #[test]
    fn the_mark_passes_many_held_timers_and_comes_back_for_those_beyond_the_limit() {
        let (mut mark, (least, most)) = (Mark::default(), RESCAN);
        let mut follow = |now, held| {
            mark.follow(&Head { now, ..head("9:9:", held) });
            (mark.due, mark.held.len())
        };
        assert_eq!(follow(1_000_000, MOST_HELD), (5, MOST_HELD));
        // The marks come so far within a second, so the time is the shortest.
        let moment = 1_001_000 + least;
        assert_eq!(follow(1_001_000, MOST_HELD + 1), (5, MOST_HELD));
        assert_eq!(follow(moment - 1, MOST_HELD + 1), (5, MOST_HELD));
        assert_eq!(follow(moment, 3), (-1, 0));
        // Within 15 seconds. A look finds that it is time, too.
        assert_eq!(follow(1_020_000, 0), (5, 0));
        assert_eq!(follow(1_035_000, MOST_HELD + 1), (5, MOST_HELD));
        assert!(!mark.notice("9:9:", 1_079_999, false));
        assert!(mark.notice("9:9:", 1_080_000, false));
        // Within ten minutes. Then the clock is set back.
        for (now, held) in [(2_000_000, 0), (2_600_000, MOST_HELD + 1)] {
            mark.follow(&Head { now, ..head("9:9:", held) });
        }
        assert!(!mark.notice("9:9:", 2_600_000 + most - 1, false));
        assert!(mark.notice("9:9:", 1_000_000, false));
    }

    #[test]
    fn a_look_that_leases_nothing_lets_the_mark_start_again() {
        let mut mark = Mark::default();
        mark.follow(&head("7:7:", 0));
        assert!(!mark.notice("7:8:7", 6, true));
        assert_eq!(mark.seen.as_deref(), Some("7:7:"), "a claim must find the late timer");
        assert!(mark.has_late, "the next look need not find it again");
        mark.follow(&head("7:7:", 0));
        assert!(!mark.has_late);
        assert!(!mark.notice("7:9:7", 7, false));
        assert_eq!((mark.due, mark.seen.as_deref(), &mark.lanes[..]), (5, Some("7:9:7"), &[3][..]));
        assert!(mark.notice("9:9:", 7 + LONG, false));
        assert_eq!((mark.due, mark.seen.as_deref(), &mark.lanes[..]), (-1, None, &[][..]));
    }

    #[test]
    fn the_shards_of_other_nodes_are_those_that_a_claim_does_not_name() {
        let others = |owned: &str| {
            let mut mark = Mark::default();
            mark.follow(&Head { owned: owned.into(), ..head("7:7:", 0) });
            mark.others()
        };
        assert_eq!(others("life "), 0xffff);
        assert_eq!(others("life 0:1,3:20,15:2"), 0x7ff6);
        let all: Vec<String> = (0..16).map(|shard| format!("{shard}:1")).collect();
        assert_eq!(others(&format!("life {}", all.join(","))), 0);
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
