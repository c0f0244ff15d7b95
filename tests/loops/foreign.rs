//! Loops that poll. At the same time other threads arm and cancel timers, loops end, and other threads take their
//! shards.

use crate::index;
use crate::ledger::Ledger;
use crate::players::Player;
use crate::polling::Polling;
use crate::stage::Stage;
use crate::support::{HOUR, wait_until};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Fired, Shards};

/// The number of *players*: threads that arm and cancel timers and lead no loop.
pub(crate) const PLAYERS: u64 = 3;
/// The number of owned timers that each player has.
pub(crate) const OWN_TIMERS: u64 = 40;
/// The number of loops that end while the players arm and cancel. Later each shard's loop ends once more, after the
/// players have stopped.
const HANDOVERS: usize = 4;
/// The number of timers that become due at each handover, while no loop leads the shard.
const ORPHANS: usize = 50;
/// The number of one-shots that the main thread schedules in the whole test.
pub(crate) const EXTRA: u64 = ((HANDOVERS + 2) * ORPHANS) as u64 + 6;
/// The number of one-shots in the players' shared list. Any player may cancel or move them.
pub(crate) const REMEMBERED: usize = 60;
pub(crate) const LONGEST_DELAY: Duration = Duration::from_millis(3);
/// The shortest time of a poll that waits for a timer that is due in an hour.
pub(crate) const LONG_POLL: Duration = Duration::from_secs(60);

/// A flag in a payload: the timer is a one-shot that is due in an hour or later. The outcome of its cancel is therefore
/// certain.
pub(crate) const FAR: u64 = 1 << 62;
/// A flag in a payload: the timer is an owned timer.
pub(crate) const OWNED: u64 = 1 << 63;

pub(crate) fn number(payload: u64) -> usize {
    index(payload & !(FAR | OWNED))
}

/// Each timer ends once, and none is early. Each shard also has timers that are due in an hour. A loop that is not
/// woken for a timer therefore lets that timer wait in vain.
#[test]
fn loops_and_foreign_threads_end_each_timer_once() {
    play_on_loops(true);
}

/// Loops and other threads end each timer once. The shutdown comes while no loop leads one of the shards.
#[test]
fn loops_and_foreign_threads_end_each_timer_once_though_a_loop_is_missing() {
    play_on_loops(false);
}

fn play_on_loops(loops_stay: bool) {
    let each = std::env::var("TOURBILLON_STRESS").map_or(20_000, |n| n.parse::<u64>().unwrap() / 20);
    let (shards, loops) = Builder::new().loops(2).unwrap();
    let ledger = Arc::new(Ledger::new(PLAYERS * each));
    let sink = Arc::clone(&ledger);
    let engine = shards.engine().start(move |timer: Fired<'_, u64>| sink.on_fire(&timer)).unwrap();
    let stage = Stage {
        timers: engine.handle().clone(),
        ledger,
        remembered: Mutex::default(),
        allowed: AtomicU64::new(0),
    };
    let mut loops: Vec<_> = loops.into_iter().map(|shard| Polling::spawn(move || shard)).collect();
    let mut players: Vec<_> = (0..PLAYERS).map(|n| Player::new(&stage, n, each)).collect();
    let far = [0, 1, 0, 1].map(|shard| stage.schedule_extra(shard, HOUR));

    // In the first half, loops end, and other threads take their shards.
    thread::scope(|scope| {
        players.iter_mut().for_each(|player| drop(scope.spawn(move || player.play(each / 2))));
        let part = PLAYERS * (each / 2) / HANDOVERS as u64;
        for n in 0..HANDOVERS {
            let before = part * n as u64;
            stage.allow(before + part / 2);
            stage.await_submitted(before + part / 2);
            // The players schedule the other half of this part during the handover.
            stage.allow(before + part);
            hand_over(&stage, &shards, &mut loops, n % 2);
        }
        stage.allow(u64::MAX);
    });
    // Nothing races here, so no outcome is a matter of chance.
    wait_until("all that is not far has ended", || stage.ledger.is_at_rest());
    players.iter_mut().for_each(Player::arm_and_await_all);
    for one in stage.remembered.lock().unwrap().drain(..).chain(far[..2].iter().copied()) {
        assert_eq!(stage.cancel(one, true), one.payload & FAR != 0, "{one:?}");
    }
    (0..2).for_each(|shard| hand_over(&stage, &shards, &mut loops, shard));
    for (n, polling) in loops.iter().enumerate() {
        wait_until("the loop polls for long", || polling.polls_for_long());
        let before = polling.wakes();
        stage.schedule_extra(n, Duration::ZERO);
        assert!(polling.wakes() > before, "loop {n} is not woken");
        wait_until("the loop has fired it", || stage.ledger.is_at_rest());
    }

    // The second half lasts until the shutdown.
    let returned = thread::scope(|scope| {
        players.iter_mut().for_each(|player| drop(scope.spawn(move || player.play(u64::MAX))));
        stage.await_submitted(PLAYERS * each * 5 / 8);
        if !loops_stay {
            loops.pop().expect("two loops").end();
        }
        stage.await_submitted(PLAYERS * each * 3 / 4);
        stage.timers.shutdown()
    });
    loops.into_iter().for_each(Polling::end);
    returned.iter().for_each(|timer| stage.ledger.note_end(timer.payload));
    let owned_fired = players.into_iter().map(Player::end).sum();
    stage.ledger.check(&stage.timers.stats(), returned.len() as u64, owned_fired);
}

/// Ends the loop of a shard. Another thread then leads the shard, and fires the timers that became due while no loop
/// led the shard.
fn hand_over(stage: &Stage, shards: &Shards, loops: &mut Vec<Polling>, shard: usize) {
    assert!(shards.take_loop(shard).is_none(), "a loop has the shard");
    loops.remove(shard).end();
    let orphans: Vec<_> = (0..ORPHANS).map(|_| stage.schedule_extra(shard, Duration::ZERO)).collect();
    let have_ended = |count| orphans.iter().all(|one| stage.ledger.ends_of(one.payload) == count);
    assert!(have_ended(0), "fired at a shard that has no loop");
    let shards = shards.clone();
    loops.insert(shard, Polling::spawn(move || shards.take_loop(shard).expect("no loop has the shard")));
    wait_until("the next loop has fired them", || have_ended(1));
}
