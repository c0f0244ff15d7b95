//! Claims in turn: a namespace that has its share is passed over.

use super::plain;
use crate::RedisStore;
use crate::layout::lane_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{
    Claimant, Claimed, Durability, IfPresent, Late, Leased, Limit, Op, Shares, StoreError, TimerStore,
};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_fault::Server;

const BY: Claimant = Claimant { incarnation: 1, lease: Duration::from_secs(600) };
const ALL: Limit = Limit { timers: 512, bytes: u64::MAX };
/// On one server, and where a script names one shard.
const KINDS: [(u16, bool); 3] = [(1, false), (16, false), (4, true)];

fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    pollster::block_on(answer).unwrap()
}

/// A store with a clock, and the deliveries under way by namespace, as a runtime has them.
struct Rig {
    store: RedisStore,
    clock: ManualClock,
    room: usize,
    late: Option<Late>,
    under_way: BTreeMap<Box<str>, Vec<(TimerId, Token)>>,
    claims: u64,
    made: u128,
}

impl Rig {
    fn new(server: &Server, (shards, is_split): (u16, bool), room: usize) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(3_600));
        let builder = RedisStore::builder(format!("turns-{shards}-{is_split}-{room}"));
        let builder = builder.shards(shards).poll(None).on_clock(clock.clone());
        let builder = if is_split { builder.split() } else { builder };
        let store = now(builder.open_on(plain::Plain::to(server.port()).session()));
        Self { store, clock, room, late: None, under_way: BTreeMap::new(), claims: 0, made: 0 }
    }

    /// Stores timers of a namespace that are due after a delay.
    fn place(&mut self, namespace: &str, delay: Duration, count: usize) {
        let due = self.store.now() + delay;
        self.place_at(namespace, due, count);
    }

    fn place_at(&mut self, namespace: &str, due: UtcMillis, count: usize) {
        let numbers = (0..count).map(|_| {
            self.made += 1;
            TimerId::from_u128(self.made)
        });
        let timer = |id| Timer { namespace: namespace.into(), ..Timer::new(id, "kind", due) };
        let ops: Vec<_> = numbers.map(|id| Op::Place(Box::new(timer(id)), IfPresent::Reject)).collect();
        for ops in ops.chunks(500) {
            now(self.store.apply(ops.to_vec(), Durability::Volatile));
        }
    }

    /// Claims, and returns the number of claimed timers of each namespace.
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

    /// Ends deliveries of a namespace by an operation.
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
fn a_herd_gets_its_share_and_those_behind_it_are_claimed_at_once() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 100);
        rig.place("herd", Duration::ZERO, 3_000);
        rig.place("other", Duration::from_millis(1), 5);
        rig.clock.advance(Duration::from_millis(10));
        let (counts, claimed) = rig.claim(ALL);
        assert_eq!(counts, BTreeMap::from([("herd".into(), 75), ("other".into(), 5)]), "{kind:?}");
        assert!(claimed.next_due.is_some_and(|due| due <= claimed.now));
        assert_eq!(claimed.next_claim, None, "nothing of another one is due: {kind:?}");
        let (counts, _) = rig.claim(ALL);
        assert!(counts.is_empty(), "{counts:?}");
        // Its timers are claimed as soon as its share has room, in their order.
        rig.end("herd", 10, ack);
        let (_, claimed) = rig.claim(ALL);
        let ids: Vec<_> = claimed.leased.iter().map(|leased| leased.timer.id.as_u128()).collect();
        assert_eq!(ids, (76..76 + ids.len() as u128).collect::<Vec<_>>());
        assert!(ids.len() > 5, "{ids:?}");
        // What comes later is claimed beside it.
        rig.place("later", Duration::from_millis(1), 3);
        rig.clock.advance(Duration::from_millis(1));
        let (counts, _) = rig.claim(ALL);
        assert_eq!(counts, BTreeMap::from([("later".into(), 3)]), "{kind:?}");
    }
}

#[test]
fn many_namespaces_are_claimed_in_their_order_and_all_of_them() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 10_000);
        let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
        let lanes: BTreeSet<u64> = names.iter().map(|name| lane_of(name)).collect();
        assert!(lanes.len() > 40);
        for (nth, name) in (0..).zip(&names) {
            rig.place(name, Duration::from_millis(nth), 3);
        }
        rig.clock.advance(Duration::from_secs(1));
        let mut dues: BTreeMap<u64, Vec<UtcMillis>> = BTreeMap::new();
        let (mut claims, mut first_dues) = (0, Vec::new());
        while dues.values().map(Vec::len).sum::<usize>() < 300 {
            let (counts, claimed) = rig.claim(Limit { timers: 100, ..ALL });
            claims += 1;
            assert!(!counts.is_empty() && claims <= 5, "{kind:?}");
            first_dues.extend(claimed.leased.first().map(|leased| leased.timer.due));
            for Leased { timer, .. } in claimed.leased {
                dues.entry(lane_of(&timer.namespace)).or_default().push(timer.due);
            }
        }
        assert!(first_dues.is_sorted(), "the longest due first: {kind:?}");
        assert!(dues.values().all(|dues| dues.is_sorted()), "each lane in its order: {kind:?}");
    }
}

#[test]
fn namespaces_whose_timers_are_due_at_the_same_moment_are_all_claimed() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 9_999);
        for number in 0..100 {
            rig.place(&format!("n{number}"), Duration::from_secs(1), 4);
        }
        rig.clock.advance(Duration::from_secs(1));
        let mut came = 0;
        for _ in 0..8 {
            let (counts, _) = rig.claim(Limit { timers: 100, ..ALL });
            came += counts.values().sum::<usize>();
        }
        assert_eq!(came, 400, "{kind:?}");
    }
}

#[test]
fn hundreds_of_slices_that_are_passed_over_hide_no_other_namespace() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 9_998);
        let start = rig.store.now();
        for period in 0..60 {
            let due = start + Duration::from_secs(7_200 * period);
            for number in 0..16 {
                rig.place_at(&format!("n{number}"), due, 1);
            }
        }
        let now = start + Duration::from_secs(7_200 * 60);
        rig.place_at("quiet", now, 1);
        rig.clock.advance(Duration::from_secs(7_200 * 60));
        let left = (0..16).map(|number| (format!("n{number}").into(), 0)).collect();
        rig.late = Some(Late::new(Duration::from_secs(5), 10, Arc::new(left)));
        let (counts, claimed) = rig.claim(ALL);
        assert_eq!(counts, BTreeMap::from([("quiet".into(), 1)]), "{kind:?}");
        assert_eq!(claimed.next_claim, None);
    }
}

#[test]
fn timers_of_a_namespace_wait_behind_its_late_ones_over_the_end_of_a_period() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 9_997);
        let start = rig.store.now();
        rig.place_at("a", start, 5);
        let later = start + Duration::from_secs(7_200);
        rig.place_at("a", later, 1);
        rig.place_at("b", later, 1);
        rig.clock.advance(Duration::from_secs(7_200));
        rig.late = Some(Late::new(Duration::from_secs(5), 3, Arc::default()));
        let (counts, claimed) = rig.claim(ALL);
        // A shard knows of its own timers only.
        let shards_of_a = if kind.0 == 1 { 0 } else { 1 };
        assert_eq!(counts["b"], 1);
        assert!((3..=3 + shards_of_a).contains(&counts["a"]), "{kind:?}: {counts:?}");
        let late = claimed.leased.iter().filter(|leased| leased.timer.due == start).count();
        assert_eq!(late, 3, "{kind:?}");
        rig.late = None;
        rig.claim(ALL);
        assert_eq!(rig.under_way["a"].len(), 6, "{kind:?}");
    }
}

#[test]
fn no_timer_is_forgotten_whatever_makes_it_due_again() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 40);
        let start = rig.store.now();
        rig.place("herd", Duration::ZERO, 600);
        rig.place("other", Duration::ZERO, 20);
        let (mut ended, mut returned, mut late) = (0, 0, 0);
        for round in 0..2_000 {
            let (counts, claimed) = rig.claim(ALL);
            let mut is_over = claimed.next_due.is_none() && late == 20;
            for (namespace, count) in counts {
                is_over &= round % 7 != 0 && round % 11 != 0;
                // Some come back, under due moments that claims have passed.
                if round % 7 == 0 && returned < 100 {
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
            if late < 20 && round % 3 == 0 {
                late += 1;
                rig.place_at("late", start, 1);
            }
            if is_over {
                break;
            }
        }
        assert_eq!(ended, 600 + 20 + 20, "{kind:?}");
        assert_eq!(now(rig.store.check()), []);
    }
}

#[test]
fn a_herd_whose_deliveries_end_at_once_leaves_a_part_of_each_claim() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 1_024);
        rig.place("herd", Duration::ZERO, 2_000);
        rig.clock.advance(Duration::from_millis(10));
        // It never ends, and has room for all of a claim.
        for round in 0..10 {
            rig.place("other", Duration::ZERO, 3);
            let (counts, claimed) = rig.claim(ALL);
            let herd = counts.get("herd").copied().unwrap_or(0);
            assert!(herd > 100, "{kind:?}, {round}: {counts:?}");
            assert_eq!(counts.get("other"), Some(&3), "{kind:?}, {round}");
            assert!(claimed.next_claim.is_some_and(|next| next <= claimed.now), "{kind:?}, {round}");
            rig.end("herd", herd, ack);
            rig.place("herd", Duration::ZERO, herd);
            rig.clock.advance(Duration::from_millis(1));
        }
    }
}

#[test]
fn each_namespace_has_its_own_rate_of_late_timers() {
    let Some(server) = Server::start(&[]) else { return };
    for kind in KINDS {
        let mut rig = Rig::new(&server, kind, 1_000);
        rig.place("herd", Duration::ZERO, 100);
        rig.place("other", Duration::ZERO, 100);
        rig.clock.advance(Duration::from_secs(60));
        rig.place("third", Duration::ZERO, 50);
        let left = Arc::new(BTreeMap::from([("other".into(), 3)]));
        rig.late = Some(Late::new(Duration::from_secs(5), 10, left));
        let (counts, claimed) = rig.claim(ALL);
        let expected = [("herd".into(), 10), ("other".into(), 3), ("third".into(), 50)];
        assert_eq!(counts, BTreeMap::from(expected), "{kind:?}");
        assert_eq!(claimed.next_claim, None);
    }
}

#[test]
fn a_herd_that_is_passed_over_costs_each_claim_one_script() {
    let Some(server) = Server::start(&[]) else { return };
    let mut rig = Rig::new(&server, (16, false), 100);
    rig.place("herd", Duration::ZERO, 3_000);
    rig.claim(ALL);
    rig.claim(ALL);
    let scripts = || {
        let stats: String = server.query(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap()
    };
    let before = scripts();
    for _ in 0..20 {
        rig.claim(ALL);
    }
    assert!(scripts() - before <= 21, "{}", scripts() - before);
    let before = scripts();
    for _ in 0..20 {
        rig.end("herd", 5, ack);
        let (counts, _) = rig.claim(ALL);
        assert!(counts.contains_key("herd"), "{counts:?}");
    }
    // A claim, and the end of its five.
    assert!(scripts() - before <= 100, "{}", scripts() - before);
}
