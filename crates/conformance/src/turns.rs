//! Tests claims in turn, which divide the handlers between namespaces. Such a claim takes no timers of a namespace that
//! already uses its whole share of the handlers. In the cases, the namespace `herd` has many due timers.

use crate::bench::{Case, Make, START, at};
use core::fmt;
use core::time::Duration;
use pollster::block_on;
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon::{ManualClock, Timestamp};
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Claimant, Claimed, Durability, IfPresent, Late, Limit, Op, Shares, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    (
        "turns: a herd gets its share and those behind it are claimed",
        a_herd_gets_its_share_and_those_behind_it_are_claimed,
    ),
    ("turns: namespaces that wait are served in turn", namespaces_that_wait_are_served_in_turn),
    (
        "turns: no timer is forgotten whatever makes it due again",
        no_timer_is_forgotten_whatever_makes_it_due_again,
    ),
    ("turns: a clock that goes back hides no timer", a_clock_that_goes_back_hides_no_timer),
    (
        "turns: a clock that goes back to after the first claim causes no error",
        a_clock_that_goes_back_to_after_the_first_claim_is_no_error,
    ),
    (
        "turns: those that wait are served while the frontier has far to go",
        those_that_wait_are_served_while_the_frontier_has_far_to_go,
    ),
    (
        "turns: a herd whose deliveries end at once leaves a part of each claim",
        a_herd_whose_deliveries_end_at_once_leaves_a_part_of_each_claim,
    ),
    (
        "turns: a claim without shares takes the timers that others have left",
        a_claim_without_shares_takes_the_timers_that_others_have_left,
    ),
    ("turns: namespaces behind many herds get their parts", namespaces_behind_many_herds_get_their_parts),
    ("turns: many late herds hold up no other namespace", many_late_herds_hold_up_no_other_namespace),
    ("turns: each namespace has its own rate of late timers", each_namespace_has_its_own_rate_of_late_timers),
];

const CLAIMANT: Claimant = Claimant { incarnation: 1, lease: Duration::from_secs(600) };
const ALL: Limit = Limit { timers: 512, bytes: u64::MAX };
/// The greatest number of operations in a transaction of [`Turns`].
const BATCH: usize = 500;

/// Makes claims that divide the handlers between namespaces, on a store with a manual clock. Records the deliveries
/// under way, as a runtime does.
pub struct Turns {
    /// The store under test.
    pub store: Arc<dyn TimerStore>,
    /// The deliveries under way, by namespace, the oldest first.
    pub under_way: BTreeMap<Box<str>, Vec<(TimerId, Token)>>,
    /// The limits for late timers that are passed to the next claims. `None` means no limits.
    pub late: Option<Late>,
    clock: ManualClock,
    room: usize,
    claims: u64,
    made: u128,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Turns {
    /// Makes a store, and permits at most `room` deliveries at a time.
    pub fn new(make: Make<'_>, room: usize) -> Self {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_nanos(START * 1_000_000));
        let store = make(clock.clone());
        Self { store, under_way: BTreeMap::new(), late: None, clock, room, claims: 0, made: 0 }
    }

    /// Sets the clock to `millis` milliseconds after the start of the test case.
    pub fn set(&self, millis: u64) {
        self.clock.set(Timestamp::from_nanos((START + millis) * 1_000_000));
    }

    /// Stores `count` timers of a namespace, which are due `due` milliseconds after the start of the test case. The ids
    /// are consecutive over all calls, from 1 on.
    ///
    /// # Panics
    ///
    /// Panics if the store fails.
    pub fn place(&mut self, namespace: &str, due: u64, count: usize) {
        let place = |_| {
            self.made += 1;
            let id = TimerId::from_u128(self.made);
            let timer = Timer { namespace: namespace.into(), ..Timer::new(id, "kind", at(due)) };
            Op::Place(Box::new(timer), IfPresent::Reject)
        };
        let ops: Vec<Op> = (0..count).map(place).collect();
        for ops in ops.chunks(BATCH) {
            self.apply(ops.to_vec());
        }
    }

    fn apply(&self, ops: Vec<Op>) {
        block_on(self.store.apply(ops, Durability::Volatile)).expect("the store fails");
    }

    /// Claims timers. Returns the number of claimed timers of each namespace, and the store's answer.
    ///
    /// # Panics
    ///
    /// Panics if the store fails.
    pub fn claim(&mut self, limit: Limit) -> (BTreeMap<Box<str>, usize>, Claimed) {
        self.claims += 1;
        let counts = self.under_way.iter().map(|(namespace, timers)| (namespace.clone(), timers.len()));
        let used: usize = self.under_way.values().map(Vec::len).sum();
        let shares = Shares::new(self.room - used, Arc::new(counts.collect())).with_late(self.late.clone());
        let call = self.store.claim(CLAIMANT, self.claims, limit, Some(shares));
        let claimed = block_on(call).expect("the store fails");
        let mut counts = BTreeMap::new();
        for leased in &claimed.leased {
            let namespace = &leased.timer.namespace;
            *counts.entry(namespace.clone()).or_default() += 1;
            self.under_way.entry(namespace.clone()).or_default().push((leased.timer.id, leased.token));
        }
        (counts, claimed)
    }

    /// Ends the `count` oldest deliveries of a namespace. `op` makes the operation that ends the delivery of a timer.
    ///
    /// # Panics
    ///
    /// Panics if fewer than `count` deliveries are under way, or if the store fails.
    pub fn end(&mut self, namespace: &str, count: usize, op: impl Fn(TimerId, Token) -> Op) {
        let timers = self.under_way.get_mut(namespace).expect("it has deliveries");
        let ops = timers.drain(..count).map(|(id, token)| op(id, token)).collect();
        self.apply(ops);
    }
}

fn a_herd_gets_its_share_and_those_behind_it_are_claimed(make: Make<'_>) {
    let mut turns = Turns::new(make, 100);
    turns.place("herd", 0, 10_000);
    turns.place("other", 1, 5);
    turns.clock.advance(Duration::from_millis(10));
    let (mut herd, mut other) = (0, 0);
    // A claim passes over a limited number of timers, so several claims may be needed.
    for _ in 0..4 {
        let (counts, _) = turns.claim(ALL);
        herd += counts.get("herd").copied().unwrap_or(0);
        other += counts.get("other").copied().unwrap_or(0);
    }
    assert_eq!((herd, other), (75, 5));
    let (counts, claimed) = turns.claim(ALL);
    assert!(counts.is_empty() && claimed.next_due.is_some() && claimed.next_claim.is_none());
    // As soon as its share permits, the timers of the herd are claimed in their order.
    turns.end("herd", 10, Op::Ack);
    let (counts, claimed) = turns.claim(ALL);
    let ids: Vec<_> = claimed.leased.iter().map(|leased| leased.timer.id.as_u128()).collect();
    assert_eq!(counts.get("herd"), Some(&ids.len()));
    assert_eq!(ids, (76..76 + ids.len() as u128).collect::<Vec<_>>());
}

fn a_claim_without_shares_takes_the_timers_that_others_have_left(make: Make<'_>) {
    let mut turns = Turns::new(make, 8);
    turns.place("herd", 0, 20);
    turns.place("other", 1, 2);
    turns.clock.advance(Duration::from_millis(10));
    let (counts, _) = turns.claim(ALL);
    assert!(counts.get("herd").is_none_or(|count| *count <= 6), "the herd has a share: {counts:?}");
    let mut left = 22 - counts.values().sum::<usize>();
    for claim in 1..=20 {
        let limit = Limit { timers: 3, ..ALL };
        let other = Claimant { incarnation: 2, ..CLAIMANT };
        let claimed = block_on(turns.store.claim(other, claim, limit, None)).expect("the store fails");
        left -= claimed.leased.len();
        assert_eq!((claimed.next_due.is_some(), claimed.next_claim), (left > 0, None));
        if claim == 1 {
            assert!(claimed.leased.iter().all(|leased| &*leased.timer.namespace == "herd"), "{claimed:?}");
        }
    }
    assert_eq!(left, 0);
    let (counts, claimed) = turns.claim(ALL);
    assert_eq!((counts.len(), claimed.next_due, claimed.next_claim), (0, None, None));
}

fn namespaces_that_wait_are_served_in_turn(make: Make<'_>) {
    let mut turns = Turns::new(make, 40);
    for namespace in ["a", "b", "c"] {
        turns.place(namespace, 0, 2_000);
    }
    let mut sums: BTreeMap<Box<str>, usize> = BTreeMap::new();
    for round in 0..120 {
        let (counts, _) = turns.claim(ALL);
        if round > 20 {
            counts.into_iter().for_each(|(namespace, count)| *sums.entry(namespace).or_default() += count);
        }
        // Some deliveries of each namespace end.
        for namespace in ["a", "b", "c"] {
            let has = turns.under_way.get(namespace).map_or(0, Vec::len);
            if has > 0 {
                turns.end(namespace, has.min(5), Op::Ack);
            }
        }
    }
    let (least, most) =
        (sums.values().min().copied().unwrap_or(0), sums.values().max().copied().unwrap_or(0));
    assert!(sums.len() == 3 && most - least <= most / 4, "{sums:?}");
}

fn no_timer_is_forgotten_whatever_makes_it_due_again(make: Make<'_>) {
    let mut turns = Turns::new(make, 40);
    turns.place("herd", 0, 5_000);
    turns.place("other", 0, 20);
    let all = 5_000 + 20 + 50;
    let (mut ended, mut returned, mut late) = (0, 0, 0);
    for round in 0..20_000 {
        let (counts, _) = turns.claim(ALL);
        for (namespace, count) in counts {
            // Some timers are given back. Their due moments are earlier than those of timers already claimed.
            if round % 7 == 0 && returned < 500 {
                returned += count;
                turns.end(&namespace, count, Op::Release);
            } else if round % 11 == 0 {
                turns.end(&namespace, count, |id, token| Op::Park(id, token, "r".into()));
                turns.apply(vec![Op::Unpark("r".into(), 1_000)]);
            } else {
                ended += count;
                turns.end(&namespace, count, Op::Ack);
            }
        }
        if late < 50 && round % 3 == 0 {
            late += 1;
            turns.place("late", 0, 1);
        }
        if ended == all {
            break;
        }
    }
    assert_eq!(ended, all);
    let (counts, claimed) = turns.claim(ALL);
    assert!(counts.is_empty() && claimed.next_due.is_none());
    assert_eq!(block_on(turns.store.check()).expect("the store fails"), []);
}

fn a_clock_that_goes_back_hides_no_timer(make: Make<'_>) {
    let mut turns = Turns::new(make, 40);
    turns.place("herd", 0, 100);
    turns.place("herd", 5_000, 100);
    turns.clock.advance(Duration::from_secs(10));
    turns.claim(ALL);
    turns.set(1_000);
    turns.place("other", 2_000, 1);
    turns.set(10_000);
    let (counts, _) = turns.claim(ALL);
    assert_eq!(counts.get("other"), Some(&1));
}

fn a_clock_that_goes_back_to_after_the_first_claim_is_no_error(make: Make<'_>) {
    let mut turns = Turns::new(make, 4);
    turns.place("herd", 0, 10);
    turns.claim(ALL);
    turns.place("herd", 10_000, 10);
    turns.place("other", 12_000, 2);
    turns.clock.advance(Duration::from_secs(30));
    let (counts, _) = turns.claim(ALL);
    assert_eq!(counts.get("other"), Some(&1), "three quarters of the rest");
    turns.set(11_000);
    turns.end("herd", 3, Op::Ack);
    let (counts, _) = turns.claim(ALL);
    assert_eq!(counts.get("herd"), Some(&3));
    turns.set(13_000);
    turns.end("herd", 3, Op::Ack);
    turns.end("other", 1, Op::Ack);
    let mut other = 0;
    for _ in 0..4 {
        let (counts, _) = turns.claim(ALL);
        other += counts.get("other").copied().unwrap_or(0);
        if let Some(herd) = counts.get("herd") {
            turns.end("herd", *herd, Op::Ack);
        }
    }
    assert_eq!(other, 1, "the second namespace");
}

fn those_that_wait_are_served_while_the_frontier_has_far_to_go(make: Make<'_>) {
    let mut turns = Turns::new(make, 8);
    turns.place("herd", 5, 25_000);
    turns.clock.advance(Duration::from_millis(10));
    turns.claim(ALL);
    turns.place("other", 0, 1);
    // The same must hold for claims of a single timer.
    for limit in [ALL, Limit { timers: 1, ..ALL }] {
        let mut came = 0;
        for _ in 0..3 {
            let (counts, _) = turns.claim(limit);
            came += counts.get("other").copied().unwrap_or(0);
        }
        assert_eq!(came, 1, "{limit:?}");
        turns.end("other", 1, Op::Release);
    }
}

fn a_herd_whose_deliveries_end_at_once_leaves_a_part_of_each_claim(make: Make<'_>) {
    let mut turns = Turns::new(make, 1_024);
    turns.place("herd", 0, 5_000);
    turns.clock.advance(Duration::from_millis(10));
    // The herd always has due timers, and its share permits all timers of a claim.
    for round in 0..20 {
        turns.place("other", 10 + round, 3);
        let (counts, claimed) = turns.claim(ALL);
        let herd = counts.get("herd").copied().unwrap_or(0);
        assert!(herd > 100, "{counts:?}");
        let next = claimed.next_claim;
        assert!(next.is_some_and(|next| next <= claimed.now), "the next claim takes more of it");
        // A claim passes over a limited number of timers, so the first claims may leave the other timers.
        if round > 2 {
            assert_eq!(counts.get("other"), Some(&3), "{round}: {counts:?}");
        }
        turns.end("herd", herd, Op::Ack);
        turns.place("herd", 0, herd);
        turns.clock.advance(Duration::from_millis(1));
    }
}

/// Stores due timers in sixteen namespaces, the herds, and three timers in the namespace `tenant` that are due last. A
/// store may divide the namespaces into groups, and limit each group instead of each namespace. The name `tenant` is
/// chosen so that no herd is in its group. Claims four times, and returns the number of claimed timers of `tenant`.
fn behind_many_herds(make: Make<'_>, are_late: bool) -> usize {
    let mut turns = Turns::new(make, 1_024);
    let herds: Vec<String> = (0..16).map(|number| format!("herd {number}")).collect();
    for due in 0..40 {
        herds.iter().for_each(|herd| turns.place(herd, due, 10));
    }
    turns.clock.advance(Duration::from_secs(60));
    if are_late {
        let left = herds.iter().map(|name| (name.as_str().into(), 0)).collect();
        turns.late = Some(Late::new(Duration::from_secs(5), 10, Arc::new(left)));
    }
    turns.place("tenant", 59_999, 3);
    let mut came = 0;
    // A claim passes over a limited number of timers, so several claims may be needed.
    for _ in 0..4 {
        let (counts, _) = turns.claim(ALL);
        came += counts.get("tenant").copied().unwrap_or(0);
        for (name, count) in counts.into_iter().filter(|(name, _)| **name != *"tenant") {
            turns.end(&name, count, Op::Ack);
        }
    }
    came
}

fn namespaces_behind_many_herds_get_their_parts(make: Make<'_>) {
    assert_eq!(behind_many_herds(make, false), 3);
}

/// Checks claims while all timers of the herds (namespaces with many due timers) are late. The limits permit no further
/// late timers of the herds.
fn many_late_herds_hold_up_no_other_namespace(make: Make<'_>) {
    assert_eq!(behind_many_herds(make, true), 3);
}

fn each_namespace_has_its_own_rate_of_late_timers(make: Make<'_>) {
    let mut turns = Turns::new(make, 1_000);
    turns.place("herd", 0, 100);
    turns.place("other", 0, 100);
    turns.place("third", 60_000, 50);
    turns.clock.advance(Duration::from_secs(60));
    let limited = |left: &[(&str, usize)]| {
        let left = left.iter().map(|(name, count)| ((*name).into(), *count)).collect();
        Some(Late::new(Duration::from_secs(5), 10, Arc::new(left)))
    };
    turns.late = limited(&[("other", 3)]);
    let (counts, claimed) = turns.claim(ALL);
    let expected = [("herd".into(), 10), ("other".into(), 3), ("third".into(), 50)];
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(claimed.next_claim, None, "those that wait have no permit");
    turns.late = limited(&[("herd", 0)]);
    let (counts, _) = turns.claim(ALL);
    assert_eq!(counts, BTreeMap::from([("other".into(), 10)]));
    // Without limits, the remaining timers are claimed.
    turns.late = None;
    let mut all = BTreeMap::<Box<str>, usize>::new();
    for _ in 0..4 {
        let (counts, _) = turns.claim(ALL);
        counts.into_iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
    }
    assert_eq!(all, BTreeMap::from([("herd".into(), 90), ("other".into(), 87)]));
}
