//! Tests claims with shares: the cases of the suite, late commits and held timers of a namespace that is passed over,
//! and a namespace with very many due timers.

use super::server::{maker, open};
use super::session::{Psql, await_idle, await_sessions};
use crate::PostgresStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tourbillon_conformance::{TURNS, Turns, failures};
use tourbillon_durable::state::Token;
use tourbillon_durable::store::{Claimant, Claimed, Durability, Limit, Op, Shares, TimerStore};
use tourbillon_durable::timer::TimerId;
use tourbillon_fault::Postgres;

const ALL: Limit = Limit { timers: 512, bytes: u64::MAX };

#[test]
fn the_store_conforms_in_turns() {
    let Some(server) = Postgres::start(&[]) else { return };
    assert_eq!(failures(TURNS, &maker(&server)), [""; 0]);
}

/// This test permits fewer claims than the conformance suite until timers behind a herd are claimed.
#[test]
fn timers_behind_a_herd_are_claimed_at_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let mut turns = Turns::new(&maker(&server), 100);
    turns.place("herd", 0, 3_000);
    turns.place("other", 1, 5);
    turns.set(10);
    let (counts, claimed) = turns.claim(ALL);
    assert_eq!(counts, BTreeMap::from([("herd".into(), 75), ("other".into(), 5)]));
    assert!(claimed.next_due.is_some_and(|due| due <= claimed.now));
    assert_eq!(claimed.next_claim, None, "no timer of another namespace is due");
    turns.place("later", 20, 3);
    turns.set(15);
    let (_, claimed) = turns.claim(ALL);
    assert!(claimed.next_claim.is_some_and(|next| next > claimed.now), "the next timer that may be claimed");
    turns.set(20);
    let (counts, _) = turns.claim(ALL);
    assert_eq!(counts, BTreeMap::from([("later".into(), 3)]));
    turns.end("herd", 10, Op::Ack);
    let (counts, _) = turns.claim(ALL);
    assert_eq!(counts, BTreeMap::from([("herd".into(), 4)]), "three times the 23 free places");
}

/// A runtime on a real clock, with `room` places for deliveries. Keeps the deliveries under way by namespace.
struct Places {
    store: Arc<PostgresStore>,
    room: usize,
    under_way: BTreeMap<Box<str>, Vec<(TimerId, Token)>>,
    number: u64,
}

impl Places {
    fn new(store: Arc<PostgresStore>, room: usize) -> Self {
        Self { store, room, under_way: BTreeMap::new(), number: 0 }
    }

    fn claim(&mut self) -> Claimed {
        self.number += 1;
        let counts = self.under_way.iter().map(|(name, timers)| (name.clone(), timers.len()));
        let used: usize = self.under_way.values().map(Vec::len).sum();
        let shares = Shares::new(self.room - used, Arc::new(counts.collect()));
        let by = Claimant { incarnation: 7, lease: Duration::from_secs(300) };
        let claimed = pollster::block_on(self.store.claim(by, self.number, ALL, Some(shares))).unwrap();
        for leased in &claimed.leased {
            let timers = self.under_way.entry(leased.timer.namespace.clone()).or_default();
            timers.push((leased.timer.id, leased.token));
        }
        claimed
    }

    /// Claims, and returns the keys of the claimed timers, in order.
    fn keys(&mut self) -> Vec<String> {
        let keys = self.claim().leased.into_iter().map(|leased| leased.timer.key.unwrap_or_default().into());
        keys.collect()
    }

    /// Claims, and returns the number of claimed timers of each namespace.
    fn counts(&mut self) -> BTreeMap<Box<str>, usize> {
        let mut counts = BTreeMap::new();
        for leased in self.claim().leased {
            *counts.entry(leased.timer.namespace).or_default() += 1;
        }
        counts
    }

    /// Ends deliveries of a namespace.
    fn end(&mut self, namespace: &str, count: usize) {
        let timers = self.under_way.get_mut(namespace).unwrap();
        let ops = timers.drain(..count).map(|(id, token)| Op::Ack(id, token)).collect();
        let _ended = pollster::block_on(self.store.apply(ops, Durability::Volatile)).unwrap();
    }
}

fn schedule(namespace: &str, key: &str) -> String {
    format!("SELECT tourbillon.schedule('mail', namespace => '{namespace}', key => '{key}');")
}

fn schedule_many(server: &Postgres, namespace: &str, name: &str, count: u32) {
    let _count = server.sql(&format!(
        "SELECT count(tourbillon.schedule('mail', namespace => '{namespace}', key => '{name}' || lpad(n::text, 3, '0')))
         FROM generate_series(1, {count}) n"
    ));
}

#[test]
fn a_late_commit_of_a_namespace_that_is_passed_over_is_found_once_it_has_room() {
    let Some(server) = Postgres::start(&[]) else { return };
    let mut places = Places::new(open(&server), 4);
    // If a transaction was open before the first claim, the low-water marks start again at its end. Here both
    // transactions begin after the first claim.
    assert_eq!(places.keys(), [""; 0]);
    let (mut late, mut other) = (Psql::new(&server), Psql::new(&server));
    late.send(&format!("BEGIN; {}", schedule("herd", "late")));
    other.send(&format!("BEGIN; {}", schedule("other", "late other")));
    await_idle(&server, 2);
    // Each timer has another due moment.
    for number in 1..=5 {
        let _id = server.sql(&schedule("herd", &format!("h{number}")));
    }
    assert_eq!(places.keys(), ["h1", "h2", "h3"], "its share of four places");
    late.send("COMMIT;");
    await_idle(&server, 1);
    assert_eq!(places.keys(), [""; 0], "it has its share");
    other.send("COMMIT;");
    await_idle(&server, 0);
    assert_eq!(places.keys(), ["late other"]);
    places.end("other", 1);
    places.end("herd", 3);
    assert_eq!(places.keys(), ["late", "h4", "h5"], "the longest due first");
    places.end("herd", 3);
    assert_eq!(places.keys(), [""; 0], "once");
}

#[test]
fn a_held_timer_of_a_namespace_that_is_passed_over_is_found_once_it_has_room() {
    let Some(server) = Postgres::start(&[]) else { return };
    let mut places = Places::new(open(&server), 4);
    assert_eq!(places.keys(), [""; 0]);
    // Each timer has another due moment.
    for number in 1..=5 {
        let _id = server.sql(&schedule("herd", &format!("h{number}")));
    }
    let mut holder = Psql::new(&server);
    holder.send("BEGIN; SELECT tourbillon.cancel('h1', namespace => 'herd');");
    await_idle(&server, 1);
    assert_eq!(places.keys(), ["h2", "h3"], "one of three is held");
    assert_eq!(places.keys(), ["h4"], "the held one has its turn, and leaves its place to the next");
    holder.send("ROLLBACK;");
    await_idle(&server, 0);
    let _id = server.sql(&schedule("other", "o"));
    assert_eq!(places.keys(), ["o"], "the herd has its share");
    assert_eq!(places.store.node.mark().held.len(), 0, "nothing is asked for by its id");
    places.end("herd", 3);
    assert_eq!(places.keys(), ["h1", "h5"]);
    assert_eq!(pollster::block_on(places.store.check()).unwrap(), []);
}

/// Waits until all sessions have ended, and returns the number of rows that they have read.
fn rows_read(server: &Postgres) -> u64 {
    await_sessions(server, "application_name = 'tourbillon'", 0);
    server.sql("SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables").parse().unwrap()
}

/// Makes due timers of the namespace `herd`, by one statement.
fn herd(count: u32) -> String {
    format!(
        "INSERT INTO tourbillon.timer (id, due, created, xid, shard, namespace, kind, payload)
         SELECT i, w - n / 100, 0, pg_current_xact_id(), tourbillon.shard_of(i), 'herd', 'mail', ''
         FROM tourbillon.now_ms() w, LATERAL (SELECT tourbillon.fresh_id() i, n FROM generate_series(1, {count}) n) x;"
    )
}

/// Claims timers of another namespace, beside a namespace that has `count` due timers and its share of the places.
/// A round creates ten timers, claims them, claims once more, and ends the ten deliveries. Returns the number of rows
/// that a round reads, and the greatest lateness in milliseconds.
fn beside_a_herd(count: u32) -> Option<(u64, u64)> {
    const ROUNDS: u32 = 20;
    let server = Postgres::start(&["autovacuum=off"])?;
    let mut places = Places::new(open(&server), 200);
    let _herd = server.sql(&format!("{} ANALYZE", herd(count)));
    while !places.counts().is_empty() {}
    assert_eq!(places.under_way["herd"].len(), 150);
    pollster::block_on(places.store.leave()).unwrap();
    let Places { under_way, number, store, .. } = places;
    drop(store);
    let before = rows_read(&server);
    // The first claim of this node reads from the first timer on.
    let mut places = Places { under_way, number, ..Places::new(open(&server), 200) };
    let mut latest = Duration::ZERO;
    for round in 0..ROUNDS {
        schedule_many(&server, "other", &format!("{round} "), 10);
        let claimed = places.claim();
        assert_eq!(claimed.leased.len(), 10, "round {round}");
        let late = claimed.leased.iter().map(|leased| claimed.now - leased.timer.due).max();
        latest = latest.max(late.unwrap_or_default());
        assert!(places.counts().is_empty());
        places.end("other", 10);
    }
    drop(places);
    let rows = (rows_read(&server) - before) / u64::from(ROUNDS);
    Some((rows, u64::try_from(latest.as_millis()).unwrap()))
}

const FEW: u32 = 10_000;

/// The number of due timers of the namespace that is passed over. 200,000, or the number in `TOURBILLON_HERD`.
fn herd_size() -> u32 {
    std::env::var("TOURBILLON_HERD").ok().and_then(|count| count.parse().ok()).unwrap_or(200_000)
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures")]
fn a_claim_reads_no_timer_of_a_namespace_that_is_passed_over() {
    let Some((few, few_late)) = beside_a_herd(FEW) else { return };
    let many = herd_size();
    let (all, late) = beside_a_herd(many).unwrap();
    println!("beside {FEW} due timers: {few} rows a round, {few_late} ms late at most");
    println!("beside {many} due timers: {all} rows a round, {late} ms late at most");
    assert!(all < few + 200 && all < 2_000, "{all} rows, and {few} beside few timers");
}

/// A transaction commits very many timers of one namespace, after the low-water mark has passed their due moments.
#[test]
fn a_late_commit_of_very_many_timers_holds_up_no_other_namespace() {
    let Some(server) = Postgres::start(&["autovacuum=off"]) else { return };
    let mut places = Places::new(open(&server), 200);
    assert!(places.counts().is_empty());
    let mut caller = Psql::new(&server);
    caller.send(&format!("BEGIN; {}", herd(100_000)));
    await_idle(&server, 1);
    schedule_many(&server, "other", "before ", 1);
    assert_eq!(places.counts(), BTreeMap::from([("other".into(), 1)]));
    caller.send("COMMIT;");
    await_idle(&server, 0);
    let before = places.store.node.mark();
    schedule_many(&server, "other", "after ", 2);
    let leased = places.claim().leased;
    let mut herd = leased.iter().map(|leased| &leased.timer).filter(|timer| &*timer.namespace == "herd");
    let first = server.sql("SELECT min(due) FROM tourbillon.timer WHERE namespace = 'herd'");
    let due = herd.next().map(|timer| timer.due.as_millis().to_string());
    assert_eq!(
        (due, herd.count(), leased.len()),
        (Some(first), 149, 152),
        "its share, the longest due first"
    );
    assert_ne!(places.store.node.mark().seen, before.seen, "no look reads them a second time");
    let begin = Instant::now();
    for round in 0..20 {
        schedule_many(&server, "other", &format!("{round} "), 1);
        assert_eq!(places.counts(), BTreeMap::from([("other".into(), 1)]), "round {round}");
        places.end("other", 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    places.end("herd", 100);
    assert!(places.counts()["herd"] > 50);
}
