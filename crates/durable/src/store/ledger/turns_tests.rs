use super::super::entries::due_entry;
use super::*;
use crate::samples::plain;
use crate::state::{State, Token};
use crate::store::{Claimant, Claimed, Durability, IfPresent, MemoryStore, Op, TimerStore};
use crate::timer::Timer;
use core::future::Future;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use tourbillon::{ManualClock, Timestamp};

const BY: Claimant = Claimant { incarnation: 1, lease: Duration::from_secs(60) };
const START: u64 = 1_000_000;
const ALL: Limit = Limit { timers: 512, bytes: u64::MAX };

fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    match core::pin::pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.unwrap(),
        Poll::Pending => panic!("the store in memory answers at once"),
    }
}

/// A store with a clock, and the deliveries under way by namespace, as a runtime has them.
struct Rig {
    store: MemoryStore,
    clock: ManualClock,
    room: usize,
    late: Option<Late>,
    under_way: BTreeMap<Box<str>, Vec<(TimerId, Token)>>,
    claims: u64,
    made: u128,
}

impl Rig {
    fn new(room: usize) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_millis(START));
        let store = MemoryStore::new(clock.clone());
        Self { store, clock, room, late: None, under_way: BTreeMap::new(), claims: 0, made: 0 }
    }

    /// Stores timers of a namespace that are due so long after the start.
    fn place(&mut self, namespace: &str, due: u64, count: u128) {
        for _ in 0..count {
            self.made += 1;
            let id = TimerId::from_u128(self.made);
            let (due, namespace) = (UtcMillis::from_millis(START + due), namespace.into());
            let timer = Timer { id, namespace, key: None, due, scheduled: due, ..plain() };
            let timer = Timer { state: State::Pending, labels: Vec::new(), ..timer };
            now(self.store.apply(vec![Op::Place(Box::new(timer), IfPresent::Reject)], Durability::Volatile));
        }
    }

    /// Claims, and returns the claimed timers by namespace.
    fn claim(&mut self, limit: Limit) -> (BTreeMap<Box<str>, usize>, Claimed) {
        self.claims += 1;
        let counts = self.under_way.iter().map(|(namespace, timers)| (namespace.clone(), timers.len()));
        let used: usize = self.under_way.values().map(Vec::len).sum();
        let shares = Shares::new(self.room - used, Arc::new(counts.collect())).with_late(self.late.clone());
        let claimed = now(self.store.claim_in_turn(BY, self.claims, limit, shares));
        let mut counts = BTreeMap::new();
        for leased in &claimed.leased {
            let namespace = &leased.timer.namespace;
            *counts.entry(namespace.clone()).or_default() += 1;
            self.under_way.entry(namespace.clone()).or_default().push((leased.timer.id, leased.token));
        }
        (counts, claimed)
    }

    /// Ends so many deliveries of a namespace by this operation.
    fn end(&mut self, namespace: &str, count: usize, op: impl Fn(TimerId, Token) -> Op) {
        let timers = self.under_way.get_mut(namespace).unwrap();
        let ops = timers.drain(..count).map(|(id, token)| op(id, token)).collect();
        now(self.store.apply(ops, Durability::Volatile));
    }
}

fn ack(id: TimerId, token: Token) -> Op {
    Op::Ack(id, token)
}

#[test]
fn a_herd_gets_its_share_and_those_behind_it_are_claimed() {
    let mut rig = Rig::new(100);
    rig.place("herd", 0, 10_000);
    rig.place("other", 1, 5);
    rig.clock.advance(Duration::from_millis(10));
    let (mut herd, mut other) = (0, 0);
    // A bounded number of entries is passed over by one claim.
    for _ in 0..4 {
        let (counts, _) = rig.claim(ALL);
        herd += counts.get("herd").copied().unwrap_or(0);
        other += counts.get("other").copied().unwrap_or(0);
    }
    assert_eq!((herd, other), (75, 5));
    let (counts, claimed) = rig.claim(ALL);
    assert!(counts.is_empty() && claimed.next_due.is_some() && claimed.next_claim.is_none());
    // Its timers are claimed as soon as its share has room, in their order.
    rig.end("herd", 10, ack);
    let (counts, claimed) = rig.claim(ALL);
    let ids: Vec<_> = claimed.leased.iter().map(|leased| leased.timer.id.as_u128()).collect();
    assert_eq!(counts.get("herd"), Some(&ids.len()));
    assert_eq!(ids, (76..76 + ids.len() as u128).collect::<Vec<_>>());
}

#[test]
fn namespaces_that_wait_are_served_in_turn() {
    let mut rig = Rig::new(40);
    for namespace in ["a", "b", "c"] {
        rig.place(namespace, 0, 2_000);
    }
    let mut sums: BTreeMap<Box<str>, usize> = BTreeMap::new();
    for round in 0..120 {
        let (counts, _) = rig.claim(ALL);
        if round > 20 {
            counts.into_iter().for_each(|(namespace, count)| *sums.entry(namespace).or_default() += count);
        }
        // Deliveries of all end.
        for namespace in ["a", "b", "c"] {
            let has = rig.under_way.get(namespace).map_or(0, Vec::len);
            if has > 0 {
                rig.end(namespace, has.min(5), ack);
            }
        }
    }
    let (least, most) = (sums.values().min().unwrap(), sums.values().max().unwrap());
    assert!(sums.len() == 3 && most - least <= most / 4, "{sums:?}");
}

#[test]
fn no_timer_is_forgotten_whatever_makes_it_due_again() {
    let mut rig = Rig::new(40);
    rig.place("herd", 0, 5_000);
    rig.place("other", 0, 20);
    let mut ended = 0;
    let (mut returned, mut late) = (0, 0);
    for round in 0..20_000 {
        let (counts, claimed) = rig.claim(ALL);
        for (namespace, count) in counts {
            // Some come back, under due moments that claims have passed.
            if round % 7 == 0 && returned < 500 {
                returned += count;
                rig.end(&namespace, count, Op::Release);
            } else if round % 11 == 0 {
                rig.end(&namespace, count, |id, token| Op::Park(id, token, "r".into()));
                now(rig.store.apply(vec![Op::Unpark("r".into(), 1_000)], Durability::Volatile));
            } else {
                ended += count;
                rig.end(&namespace, count, ack);
            }
        }
        if late < 50 && round % 3 == 0 {
            late += 1;
            rig.place("late", 0, 1);
        }
        if claimed.next_due.is_none() && late == 50 {
            break;
        }
    }
    assert_eq!(ended, 5_000 + 20 + 50);
    assert!(now(rig.store.check()).is_empty());
}

#[test]
fn what_claims_remember_is_bounded() {
    let mut rig = Rig::new(4);
    rig.place("herd", 0, 3 * EXACT as u128);
    for _ in 0..10 {
        rig.claim(ALL);
    }
    let mut waiting = Waiting::nothing();
    for number in 0..3 * EXACT as u128 {
        waiting.add(due_entry(UtcMillis::from_millis(START), TimerId::from_u128(number)));
    }
    assert!(matches!(waiting, Waiting::From(first) if id_at_end(&first) == Some(TimerId::from_u128(0))));
}

#[test]
fn a_clock_that_goes_back_hides_no_timer() {
    let mut rig = Rig::new(40);
    rig.place("herd", 0, 100);
    rig.place("herd", 5_000, 100);
    rig.clock.advance(Duration::from_secs(10));
    rig.claim(ALL);
    rig.clock.set(Timestamp::ZERO + Duration::from_millis(START + 1_000));
    rig.place("other", 2_000, 1);
    rig.clock.set(Timestamp::ZERO + Duration::from_millis(START + 10_000));
    let (counts, _) = rig.claim(ALL);
    assert_eq!(counts.get("other"), Some(&1));
}

#[test]
fn a_clock_that_goes_back_to_after_the_first_claim_is_no_error() {
    let mut rig = Rig::new(4);
    rig.place("herd", 0, 10);
    rig.claim(ALL);
    rig.place("herd", 10_000, 10);
    rig.place("other", 12_000, 2);
    rig.clock.advance(Duration::from_secs(30));
    let (counts, _) = rig.claim(ALL);
    assert_eq!(counts.get("other"), Some(&1), "three quarters of the rest");
    rig.clock.set(Timestamp::ZERO + Duration::from_millis(START + 11_000));
    rig.end("herd", 3, ack);
    let (counts, _) = rig.claim(ALL);
    assert_eq!(counts.get("herd"), Some(&3));
    rig.clock.set(Timestamp::ZERO + Duration::from_millis(START + 13_000));
    rig.end("herd", 3, ack);
    rig.end("other", 1, ack);
    let mut other = 0;
    for _ in 0..4 {
        let (counts, _) = rig.claim(ALL);
        other += counts.get("other").copied().unwrap_or(0);
        if let Some(herd) = counts.get("herd") {
            rig.end("herd", *herd, ack);
        }
    }
    assert_eq!(other, 1, "the second one");
}

#[test]
fn those_that_wait_are_served_while_the_frontier_has_far_to_go() {
    let mut rig = Rig::new(8);
    rig.place("herd", 5, 3 * LOOKS as u128);
    rig.clock.advance(Duration::from_millis(10));
    rig.claim(ALL);
    rig.place("other", 0, 1);
    // Of a claim of one timer, too.
    for limit in [ALL, Limit { timers: 1, ..ALL }] {
        let mut came = 0;
        for _ in 0..3 {
            let (counts, _) = rig.claim(limit);
            came += counts.get("other").copied().unwrap_or(0);
        }
        assert_eq!(came, 1, "{limit:?}");
        rig.end("other", 1, Op::Release);
    }
}

#[test]
fn a_herd_whose_deliveries_end_at_once_leaves_a_part_of_each_claim() {
    let mut rig = Rig::new(1_024);
    rig.place("herd", 0, 5_000);
    rig.clock.advance(Duration::from_millis(10));
    // It never ends, and has room for all of a claim.
    for round in 0..50 {
        rig.place("other", 10 + round, 3);
        let (counts, claimed) = rig.claim(ALL);
        let herd = counts.get("herd").copied().unwrap_or(0);
        assert!(herd > 100, "{counts:?}");
        assert!(claimed.next_claim.is_some_and(|next| next <= claimed.now), "the next claim takes more of it");
        // Before the frontier has come to the end of the herd, the others wait.
        if round > 2 {
            assert_eq!(counts.get("other"), Some(&3), "{round}: {counts:?}");
        }
        rig.end("herd", herd, ack);
        rig.place("herd", 0, herd as u128);
        rig.clock.advance(Duration::from_millis(1));
    }
}

#[test]
fn each_namespace_has_its_own_rate_of_late_timers() {
    let mut rig = Rig::new(1_000);
    rig.place("herd", 0, 100);
    rig.place("other", 0, 100);
    rig.place("third", 60_000, 50);
    rig.clock.advance(Duration::from_secs(60));
    let limited = |left: &[(&str, usize)]| {
        let left = left.iter().map(|(name, count)| ((*name).into(), *count)).collect();
        Some(Late::new(Duration::from_secs(5), 10, Arc::new(left)))
    };
    rig.late = limited(&[("other", 3)]);
    let (counts, claimed) = rig.claim(ALL);
    let expected = [("herd".into(), 10), ("other".into(), 3), ("third".into(), 50)];
    assert_eq!(counts, BTreeMap::from(expected));
    assert_eq!(claimed.next_claim, None, "those that wait have no permit");
    rig.late = limited(&[("herd", 0)]);
    let (counts, _) = rig.claim(ALL);
    assert_eq!(counts, BTreeMap::from([("other".into(), 10)]));
    // Those that wait are claimed in their order once there are permits.
    rig.late = None;
    let mut all = BTreeMap::<Box<str>, usize>::new();
    for _ in 0..4 {
        let (counts, _) = rig.claim(ALL);
        counts.into_iter().for_each(|(name, count)| *all.entry(name).or_default() += count);
    }
    assert_eq!(all, BTreeMap::from([("herd".into(), 90), ("other".into(), 87)]));
}
