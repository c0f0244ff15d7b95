//! The low-water marks of this node: the due moments up to which its claims have read the index of due timers. The next
//! claim reads the timers that are due after the marks.
//!
//! A lane is a group of namespaces. All lanes share one mark, which is the moment of the last claim. If that claim has
//! left due timers of a lane, the lane is *behind*: it has a mark of its own, before the first timer that was left. A
//! lane *has its share* if as many of its timers are being delivered as the rules for shares permit. A claim does not
//! read such a lane, so the lane costs nothing, however many due timers it has.
//!
//! | event | the mark of the timer's lane |
//! |---|---|
//! | a claim takes all due timers of the lane | becomes the mark of all lanes |
//! | a claim takes some due timers of the lane | moves to the last timer that was taken; the lane is behind |
//! | a claim passes over the lane, because the lane has its share | stays where it was |
//! | a transaction commits a timer that is due before the mark (a *late* timer), and a claim takes the timer | stays where it was |
//! | a transaction commits a late timer, and a claim leaves the timer | moves back to before the timer |
//! | another transaction has locked a timer that a claim has chosen (a *held* timer) | passes the timer; the timer is added to the list of held timers |
//! | a claim leaves a held timer, because the lane has its share | moves back to before the timer; the timer is removed from the list of held timers |
//! | a claim has read very many rows of the lane that are leased or belong to other nodes | moves to the last row that was read |
//!
//! At the events that `DESIGN.md` lists ("The low-water marks"), all marks are *reset*: the next claim reads all timers
//! again, from the earliest due moment on.

use super::open::Open;
use crate::layout::Id;
use crate::link::Param;
use serde::Deserialize;
use tokio_postgres::types::Type;
use tourbillon_durable::timer::TimerId;

/// The age, in milliseconds, from which on an open transaction counts as long. When a long transaction ends, the
/// low-water marks are reset: the next claim reads all timers again, from the earliest due moment on. Otherwise claims
/// could miss a timer that the transaction has stored, because the marks passed the timer's due moment before the
/// commit. Claims usually find such a timer by the transaction id in the timer's row. But a row has no transaction id
/// if the timer was due more than an hour after the row was written. The marks can pass such a timer before the commit
/// only if the transaction is open for an hour. The limit is a little shorter than an hour.
const LONG: i64 = 50 * 60_000;
/// The greatest length of the list [`Mark::held`] of timers that a claim could not lease, because other transactions
/// had locked them. The next claim first tries to lock these timers again.
const MOST_HELD: usize = 10_000;
/// The shortest and the longest delay, in milliseconds, before the low-water marks are reset because a claim has found
/// more than [`MOST_HELD`] timers that other transactions have locked. The delay begins once the claims have read all
/// timers that were already due at the moment of that claim. After the reset, the next claim reads all timers again,
/// from the earliest due moment on. So it finds the locked timers for which [`Mark::held`] had no room.
const RESCAN: (i64, i64) = (10_000, 600_000);

/// The low-water marks of a node. A mark is a due moment with a timer id: the claims of this node have read the timers
/// up to this place in the order of the due moments. Some lanes (groups of namespaces) have marks of their own, and all
/// other lanes share one mark. If the snapshot `seen` shows a timer of this node at or before the mark of the timer's
/// lane, the timer is leased, or is in the list `held` (unless the list is full).
///
/// The marks are *reset* if claims might miss a timer otherwise. Then the next claim reads all timers again, from the
/// earliest due moment on.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The shards of this node at the last claim, as text from the SQL function `owned_by`. The part before the space
    /// identifies a run of the server: it is different after each start, crash or failover of the server. The part
    /// after the space lists the numbers of the shards, each with its epoch (a counter of the shard's changes of
    /// owner). If a claim finds another text, the marks are reset.
    pub(crate) owned: String,
    /// The due moment of the mark that the lanes (groups of namespaces) share, except for the lanes in `lanes`. The
    /// claims of this node have read the timers of these lanes up to this moment.
    pub(crate) due: i64,
    /// The timer id that completes the mark at `due`. Timers with the same due moment are ordered by their ids. Of the
    /// timers that are due exactly at `due`, the claims have read the timers up to this id.
    pub(crate) id: Id,
    /// The lanes (groups of namespaces) that have a mark of their own instead of the shared mark at `due`. The last
    /// claim may not have taken all due timers of such a lane. So the claims have read this lane only up to its own
    /// mark, which is before the shared mark.
    pub(crate) lanes: Vec<i16>,
    /// For each lane in `lanes`, in the same order: the due moment up to which the claims have read this lane.
    pub(crate) lane_dues: Vec<i64>,
    /// For each lane in `lanes`, in the same order: the timer id up to which the claims have read the timers that are
    /// due exactly at the moment in `lane_dues`.
    pub(crate) lane_ids: Vec<Id>,
    /// The lanes (groups of namespaces) that have a due timer, but from which a claim takes no timer at present. Either
    /// as many timers of the lane are being delivered as the rules for shares permit, or the lane's overdue timers need
    /// a permit from the limit for late timers. A claim can take timers of such a lane again once a delivery ends or a
    /// new permit exists. In both cases the runtime claims without being woken. So the [looks](crate::upkeep), which
    /// read between claims, leave these lanes out.
    pub(crate) withheld: Vec<i16>,
    /// The snapshot of the last claim, or of a later [look](crate::upkeep) (a read between claims). The next claim or
    /// look searches for timers that were committed since this snapshot, although their due moments are before the
    /// low-water marks. `None` before the first claim, and after a reset of the marks: the next claim then reads all
    /// timers, from the earliest due moment on.
    pub(crate) seen: Option<String>,
    /// The timers that the last claim could not lease, because other transactions had locked them. Up to [`MOST_HELD`]
    /// timers. The next claim tries to lock these timers first.
    pub(crate) held: Vec<Id>,
    /// Whether a [look](crate::upkeep) (a read between claims) since the last claim has shown that another claim is
    /// needed. The look shows this in three cases: it finds a late timer, which was committed after claims had read
    /// beyond the timer's due moment; it finds very many new rows; or the list [`held`](Self::held) is not empty. Once
    /// this is true, the next look need not search for late timers again.
    pub(crate) has_late: bool,
    /// The server's time at the last claim that read all timers, from the earliest due moment on. The first claim does
    /// this, and the first claim after a reset of the marks.
    started: i64,
    /// The server's time at the first claim that has found more locked timers than `held` has room for. Only claims
    /// since the last reset of the marks count. `None` if there was no such claim.
    overflow: Option<i64>,
    /// The moment at which the low-water marks are reset because `held` had no room for all locked timers. After the
    /// reset, the next claim reads all timers again, and finds these locked timers. `None` until the claims have read
    /// all timers that were already due at the moment `overflow`.
    rescan: Option<i64>,
    /// The transactions in progress. They show when a [`LONG`] transaction ends.
    open: Open,
}

/// The first row of a claim's answer: the new low-water marks, and the other results of the claim. The leased timers
/// follow in the other rows.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Head {
    /// The server's time at the claim.
    pub(crate) now: i64,
    /// Whether the table of nodes has no row of this node. Another node has removed the row because it took this node
    /// for dead, or this process was not a node yet. The claim has leased nothing then.
    pub(crate) gone: bool,
    #[serde(default)]
    owned: String,
    #[serde(default)]
    mark_due: i64,
    mark_id: Option<TimerId>,
    seen: Option<String>,
    /// The number (transaction id) that the server assigns to the next transaction.
    #[serde(default)]
    free: u64,
    #[serde(default)]
    held: Vec<TimerId>,
    /// The earliest due moment of a timer of this node that the claim has neither leased nor put into the list `held`
    /// (timers that other transactions have locked). All lanes (groups of namespaces) count.
    pub(crate) next: Option<i64>,
    /// As `next`, but without the due timers of [withheld](Mark::withheld) lanes, from which a claim takes no timer at
    /// present.
    pub(crate) next_claim: Option<i64>,
    /// The lanes that have low-water marks of their own (see [`Mark::lanes`]): the number of the lane, and the due
    /// moment and the timer id up to which claims have read the lane.
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
        let (has_late, started, overflow, rescan) = (false, 0, None, None);
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
            overflow,
            rescan,
            open: Open::default(),
        }
    }
}

impl Mark {
    /// Replaces the low-water marks by the marks in a claim's answer. Returns whether the text [`owned`](Self::owned)
    /// has changed since the last claim. Then the shards of the node have changed, or the server has started again, has
    /// crashed, or has been replaced by another server.
    pub(crate) fn follow(&mut self, head: &Head) -> bool {
        let has_changed = self.owned != head.owned;
        if lifetime(&self.owned) != lifetime(&head.owned) {
            // The server may have lost transactions in a crash, and may give their numbers to new transactions.
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
        let has_long_ended =
            head.seen.as_deref().is_some_and(|seen| self.open.learn(seen, head.free, head.now, LONG));
        if head.held.len() > MOST_HELD {
            self.overflow.get_or_insert(head.now);
        }
        if has_long_ended || self.is_rescan_due(head.now) {
            self.reset();
        } else if self.rescan.is_none() && self.overflow.is_some_and(|moment| self.has_read(moment, head.now))
        {
            // Until the reset, the claims read on for three times as long as they took to come this far. So they take
            // most of their time for timers that they can lease.
            let (least, most) = RESCAN;
            let took = head.now.saturating_sub(self.started);
            self.rescan = Some(head.now.saturating_add(took.saturating_mul(3).clamp(least, most)));
        }
        has_changed
    }

    /// Returns whether the claims have read all timers that were due at `moment`. Timers of withheld lanes (lanes from
    /// which claims take no timer at present) do not count. Before the claims have come this far, the low-water marks
    /// must not be reset to the earliest due moment. Otherwise the claims would read the same locked timers after each
    /// reset, and would never come to the timers with later due moments. Also returns `true` ten minutes after
    /// `moment`, because transactions may have released the locked timers by then.
    fn has_read(&self, moment: i64, now: i64) -> bool {
        let is_read = |(lane, due): (&i16, &i64)| *due >= moment || self.withheld.contains(lane);
        let are_read = self.due >= moment && self.lanes.iter().zip(&self.lane_dues).all(is_read);
        are_read || now.saturating_sub(moment) >= RESCAN.1
    }

    /// Returns whether the low-water marks must be reset now, because the moment [`rescan`](Self::rescan) has come.
    /// After the reset, the next claim reads all timers again, and finds the locked timers for which `held` had no
    /// room. Also returns `true` if the moment `rescan` is too far ahead: then the server's clock was set back.
    fn is_rescan_due(&self, now: i64) -> bool {
        self.rescan.is_some_and(|moment| moment <= now || moment - now > RESCAN.1)
    }

    /// Records the answer of a [look](crate::upkeep), which reads between claims and leases nothing. `seen` is the
    /// snapshot of the look. `has_late` says whether the look has shown that a claim is needed (see
    /// [`Mark::has_late`]). If no claim is needed, the next look searches only for timers that were committed since the
    /// snapshot `seen`. Returns true if the low-water marks were reset: the next claim then reads all timers again,
    /// from the earliest due moment on.
    pub(crate) fn notice(&mut self, seen: &str, free: u64, now: i64, has_late: bool) -> bool {
        let has_long_ended = self.open.learn(seen, free, now, LONG);
        let resets = has_long_ended || self.is_rescan_due(now);
        if resets {
            self.reset();
        } else if has_late {
            self.has_late = true;
        } else {
            self.seen = Some(seen.to_owned());
        }
        resets
    }

    /// Returns the arguments that the SQL functions `claim`, `peek` and `tick` have in common, in their order.
    pub(crate) fn params(&self) -> [Param<'_>; 8] {
        [
            (&self.owned, Type::TEXT),
            (&self.due, Type::INT8),
            (&self.id, Type::UUID),
            (&self.seen, Type::TEXT),
            (&self.held, Type::UUID_ARRAY),
            (&self.lanes, Type::INT2_ARRAY),
            (&self.lane_dues, Type::INT8_ARRAY),
            (&self.lane_ids, Type::UUID_ARRAY),
        ]
    }

    /// Returns the shards that are not this node's, as a set of bits: bit `n` stands for shard `n`.
    pub(crate) fn others(&self) -> u32 {
        let numbers = self.owned.split(' ').nth(1).unwrap_or_default().split(',');
        let number = |shard: &str| shard.split(':').next()?.parse::<u32>().ok();
        let owned =
            numbers.filter_map(number).fold(0_u32, |owned, number| owned | 1_u32.unbounded_shl(number));
        u32::from(u16::MAX) & !owned
    }

    fn reset(&mut self) {
        (self.due, self.seen) = (-1, None);
        (self.overflow, self.rescan) = (None, None);
        self.held.clear();
        (self.lanes, self.lane_dues, self.lane_ids) = (Vec::new(), Vec::new(), Vec::new());
        self.withheld.clear();
    }
}

/// Returns the part of the text [`Mark::owned`] before the space. It identifies a run of the server: it is different
/// after each start, crash or failover of the server.
fn lifetime(owned: &str) -> &str {
    owned.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seen: &str, held: usize) -> Head {
        let held = (0..held).map(|n| TimerId::from_u128(n as u128)).collect();
        let free = super::super::open::next(seen);
        let (mark_id, seen) = (Some(TimerId::from_u128(9)), Some(seen.to_owned()));
        let behind = vec![(3, 4, TimerId::from_u128(7))];
        Head {
            now: 5,
            owned: "life 0:1".into(),
            mark_due: 5,
            mark_id,
            seen,
            free,
            held,
            behind,
            ..Head::default()
        }
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

    /// Passes the answer of a claim at the moment `now` to `mark`. The claim has found `held` timers that other
    /// transactions have locked. It has read all lanes up to the due moment `now`, but lane 3 only up to `left` if
    /// `left` is earlier. Returns the due moment of the mark that the other lanes share, which is -1 after a reset.
    fn claims(mark: &mut Mark, now: i64, held: usize, left: i64) -> i64 {
        let behind = if left < now { vec![(3, left, TimerId::from_u128(7))] } else { Vec::new() };
        mark.follow(&Head { now, mark_due: now, behind, ..head("9:9:", held) });
        mark.due
    }

    #[test]
    fn the_mark_passes_many_held_timers_and_comes_back_for_those_beyond_the_limit() {
        let (mut mark, (least, most)) = (Mark::default(), RESCAN);
        let mark = &mut mark;
        assert_eq!(claims(mark, 1_000_000, MOST_HELD, 1_000_000), 1_000_000);
        // The claims took one second to read all that is due, so the marks are reset after the shortest delay.
        let moment = 1_001_000 + least;
        assert_eq!(claims(mark, 1_001_000, MOST_HELD + 1, 1_001_000), 1_001_000);
        assert_eq!(mark.held.len(), MOST_HELD);
        assert_eq!(claims(mark, moment - 1, MOST_HELD + 1, 0), moment - 1);
        assert_eq!(claims(mark, moment, 3, moment), -1);
        assert!(mark.held.is_empty());
        // The claims took 15 seconds, so the marks are reset after 45 seconds. A read between claims resets them, too.
        claims(mark, 1_020_000, 0, 1_020_000);
        claims(mark, 1_035_000, MOST_HELD + 1, 1_035_000);
        assert!(!mark.notice("9:9:", 9, 1_079_999, false));
        assert!(mark.notice("9:9:", 9, 1_080_000, false));
        // The claims took ten minutes, so the marks are reset after the longest delay. Then the clock is set back.
        claims(mark, 2_000_000, 0, 2_000_000);
        claims(mark, 2_600_000, MOST_HELD + 1, 2_600_000);
        assert!(!mark.notice("9:9:", 9, 2_600_000 + most - 1, false));
        assert!(mark.notice("9:9:", 9, 1_000_000, false));
    }

    /// Other transactions have locked very many timers. The runtime can start only a few deliveries at a time, so each
    /// claim reads only a few of the locked timers. Many claims are needed until one of them reads the timers with
    /// later due moments.
    #[test]
    fn the_mark_comes_back_only_after_all_that_was_due_was_read() {
        let mut mark = Mark::default();
        let (begin, most) = (1_000_000, RESCAN.1);
        claims(&mut mark, begin, 0, 1);
        for second in 1..300 {
            let now = begin + 1_000 * second;
            assert_eq!(claims(&mut mark, now, MOST_HELD + 1, 1 + second), now, "the claims read on");
        }
        // The claims have read all that was due at the overflow. They took 300 seconds.
        let now = begin + 300_000;
        assert_eq!(claims(&mut mark, now, 9, begin + 1_000), now);
        assert!(!mark.notice("9:9:", 9, now + most - 1, false));
        assert!(mark.notice("9:9:", 9, now + most, false));
    }

    #[test]
    fn a_lane_that_is_never_read_to_its_end_does_not_keep_the_mark_from_coming_back() {
        // The lane has its share, for ever.
        let behind = vec![(3, 1, TimerId::from_u128(7))];
        let mut mark = Mark::default();
        mark.follow(&Head {
            now: 1_000_000,
            mark_due: 1_000_000,
            behind,
            withheld: vec![3],
            ..head("9:9:", MOST_HELD + 1)
        });
        assert!(mark.notice("9:9:", 9, 1_000_000 + RESCAN.0, false));
        // More becomes due than the claims can take.
        let (mut mark, begin, most) = (Mark::default(), 1_000_000, RESCAN.1);
        let mut comes_back = |now| claims(&mut mark, now, MOST_HELD + 1, 1) == -1;
        assert!((0..2 * most / 1_000).all(|second| !comes_back(begin + 1_000 * second)));
        assert!(comes_back(begin + 2 * most));
    }

    #[test]
    fn a_look_that_leases_nothing_lets_the_mark_start_again() {
        let mut mark = Mark::default();
        mark.follow(&head("7:7:", 0));
        assert!(!mark.notice("7:8:7", 8, 6, true));
        assert_eq!(mark.seen.as_deref(), Some("7:7:"), "a claim must find the late timer");
        assert!(mark.has_late, "the next look need not find it again");
        mark.follow(&head("7:7:", 0));
        assert!(!mark.has_late);
        assert!(!mark.notice("7:9:7", 9, 7, false));
        assert_eq!((mark.due, mark.seen.as_deref(), &mark.lanes[..]), (5, Some("7:9:7"), &[3][..]));
        assert!(mark.notice("9:9:", 9, 7 + LONG, false));
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
