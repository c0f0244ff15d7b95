//! Tests a process that is killed directly after an answer.

use crate::place::Place;
use crate::{ALL, apply, assert_whole, claimant, get, place, timer};
use pollster::block_on;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use tourbillon_durable::store::{Durability, Limit, Op, Outcome, RedbStore, StoreErrorKind, TimerStore};

const CHILD: &str = "TOURBILLON_CHILD_STORE";

/// Runs as the process that a test kills. Writes a line to a pipe after each answer of the store. The pipe keeps the
/// lines after the process is killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = RedbStore::open(path).unwrap();
    let mut out = std::io::stdout();
    let mut say = |line: String| out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
    let first = u128::from(std::process::id()) << 64;
    for number in 0_u64.. {
        let id = first + u128::from(number);
        apply(&store, place(timer(id, 1)), Durability::ProcessCrash).unwrap();
        say(format!("\nplaced {id}\n"));
        if number % 4 == 3 {
            // The claim is not durable by itself, but the acknowledgement depends on it.
            let one = Limit { timers: 1, ..ALL };
            let claimed = block_on(store.claim(claimant(number), number, one, None)).unwrap();
            let leased = &claimed.leased[0];
            let ended = apply(&store, Op::Ack(leased.timer.id, leased.token), Durability::ProcessCrash);
            assert!(matches!(ended, Ok(Outcome::Ended { .. })));
            say(format!("ended {}\n", leased.timer.id.as_u128()));
        }
    }
}

/// Kills a process again and again after an answer of its store. `TOURBILLON_ROUNDS` sets the number of kills, 10 by
/// default.
#[test]
fn a_process_that_is_killed_after_an_answer_has_lost_nothing() {
    let place_of = Place::new();
    let rounds = std::env::var("TOURBILLON_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    let (mut placed, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::child", "--nocapture"])
            .env(CHILD, place_of.file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let before = placed.len();
        let kill_after = 20 + 37 * round;
        while let Some(Ok(line)) = lines.next() {
            let id = line.split(' ').nth(1).and_then(|id| id.parse::<u128>().ok());
            match (line.split(' ').next(), id) {
                (Some("placed"), Some(id)) => drop(placed.insert(id)),
                (Some("ended"), Some(id)) => drop(ended.insert(id)),
                _ => {}
            }
            if placed.len() == before + kill_after {
                // This process cannot open the store while the child has it open.
                if round == 0 {
                    let second = RedbStore::open(place_of.file()).unwrap_err();
                    assert_eq!(second.kind(), StoreErrorKind::Locked);
                }
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success());
        assert!(placed.len() >= before + kill_after);
        let store = RedbStore::open(place_of.file()).unwrap();
        assert_whole(&store);
        // The last acknowledgement may have had its effect, although the kill came before its line.
        let missing: Vec<u128> =
            placed.difference(&ended).copied().filter(|id| get(&store, *id).is_none()).collect();
        assert!(missing.len() <= 1, "lost: {missing:?}");
        ended.extend(missing);
        for id in &placed {
            assert_eq!(get(&store, *id).is_none(), ended.contains(id), "timer {id}");
        }
    }
}
