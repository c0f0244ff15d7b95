//! Tests claims of due timers and of parked timers.

use crate::bench::{Bench, Case, LEASE, Make, at};
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Failure, Lease, Phase, Refusal, State, Token};
use tourbillon_durable::store::{Claimant, IfPresent, Leased, Limit, Op, Outcome};
use tourbillon_durable::timer::{Payload, Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    ("a timer is claimed when it is due, and once", a_timer_is_claimed_when_it_is_due_and_once),
    ("the longest due comes first", the_longest_due_comes_first),
    ("claims are bounded", claims_are_bounded),
    ("a claim of no timers takes none", a_claim_of_no_timers_takes_none),
    ("at most once is at most once", at_most_once_is_at_most_once),
    (
        "a timer at most once is withdrawn until its delivery begins",
        a_timer_at_most_once_is_withdrawn_until_its_delivery_begins,
    ),
    (
        "a timer at most once that does not begin comes again",
        a_timer_at_most_once_that_does_not_begin_comes_again,
    ),
    ("a lost answer is recovered", a_lost_answer_is_recovered),
    ("a store calls for earlier timers", a_store_calls_for_earlier_timers),
    ("upcoming timers", upcoming_timers),
    ("parked timers are claimed by their reason", parked_timers_are_claimed_by_their_reason),
    ("a clock that steps back makes no timer early", a_clock_that_steps_back_makes_no_timer_early),
];

fn a_timer_is_claimed_when_it_is_due_and_once(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = bench.timer(1_000);
    bench.create(&timer);
    bench.set(999);
    let early = bench.claim(9, 9_999);
    assert_eq!((early.leased.len(), early.next_due), (0, Some(at(1_000))));
    // A microsecond before its due moment the timer is still early.
    bench.clock.advance(Duration::from_micros(999));
    assert_eq!(bench.due_ids(), []);
    bench.clock.advance(Duration::from_micros(1));
    let claimed = bench.claim(9, 9_999);
    assert_eq!(claimed.next_due, None);
    let [leased] = &claimed.leased[..] else { panic!("one timer is due") };
    let until = at(1_000 + LEASE);
    let lease = Lease { token: leased.token, until, withdrawn: None };
    let stored = Timer { created: at(0), deliveries: 1, state: State::Leased(lease), ..timer };
    assert_eq!(leased.timer, stored);
    assert_eq!(bench.get(stored.id), Some(stored));
    assert_eq!(bench.due_ids(), [], "a leased timer is not claimed again");
}

fn the_longest_due_comes_first(make: Make<'_>) {
    let bench = Bench::new(make);
    let mut timers: Vec<Timer> =
        [700, 3, 255, 256, 65_535, 65_536, 0, 16_777_216, 300].map(|due| bench.timer(due)).into();
    for timer in &timers {
        bench.create(timer);
    }
    timers.sort_by_key(|timer| timer.due);
    bench.set(20_000_000);
    let wanted: Vec<TimerId> = timers.iter().map(|timer| timer.id).collect();
    let mut order = Vec::new();
    while let [id] =
        bench.claim(1, u64::MAX).leased.iter().map(|leased| leased.timer.id).collect::<Vec<_>>()[..]
    {
        order.push(id);
    }
    assert_eq!(order, wanted);
}

fn claims_are_bounded(make: Make<'_>) {
    let bench = Bench::new(make);
    let sized = |bytes: usize, due| Timer { payload: Payload(vec![7; bytes].into()), ..bench.timer(due) };
    for (nth, bytes) in [0, 100, 100, 100, 0, 5_000, 1].into_iter().enumerate() {
        bench.create(&sized(bytes, nth as u64));
    }
    bench.set(3);
    let none = bench.claim(0, u64::MAX);
    assert_eq!((none.leased.len(), none.next_due), (0, Some(at(0))));
    let sizes = |timers, bytes| {
        let claimed = bench.claim(timers, bytes);
        let sizes: Vec<usize> = claimed.leased.iter().map(|leased| leased.timer.payload.0.len()).collect();
        (sizes, claimed.next_due)
    };
    assert_eq!(
        sizes(9, 150),
        (vec![0, 100, 100], Some(at(3))),
        "no further timer once 150 bytes are reached"
    );
    assert_eq!(sizes(9, 100), (vec![100], Some(at(4))));
    bench.set(1_000);
    assert_eq!(sizes(1, u64::MAX), (vec![0], Some(at(5))));
    assert_eq!(sizes(9, 1), (vec![5_000], Some(at(6))), "one timer always goes");
    assert_eq!(sizes(9, u64::MAX), (vec![1], None));
}

fn a_claim_of_no_timers_takes_none(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.claim(0, 0).leased, []);
    let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
    let timers = [Timer { policy, ..bench.timer(5) }, bench.timer(6), bench.timer(7)];
    for timer in &timers {
        bench.create(timer);
    }
    bench.set(10);
    for bytes in [0, 1, u64::MAX] {
        let claimed = bench.claim(0, bytes);
        assert_eq!((claimed.leased.len(), claimed.next_due), (0, Some(at(5))));
    }
    let upcoming = |limit| pollster::block_on(bench.store.upcoming(at(0), at(10), limit));
    assert_eq!(upcoming(0).expect("a read failed"), []);
    assert_eq!(upcoming(9).expect("a read failed").len(), 3);
    // A claim with a limit of 0 bytes takes a timer, however long its payload is.
    for timer in &timers {
        let claimed = bench.claim(9, 0).leased;
        assert_eq!(claimed.into_iter().map(|leased| leased.timer.id).collect::<Vec<_>>(), [timer.id]);
    }
}

fn at_most_once_is_at_most_once(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy { guarantee: Guarantee::AtMostOnce, deliveries: 2, ..Policy::default() };
    let timer = Timer { policy, labels: vec!["l".into()], ..bench.keyed("k", 5) };
    bench.create(&timer);
    assert_eq!(bench.due_ids(), []);
    bench.set(5);
    let leased = bench.the_due();
    assert_eq!((leased.timer.id, leased.timer.deliveries), (timer.id, 1));
    assert_eq!(bench.get("k").as_ref(), Some(&leased.timer), "a claim only leases it");
    let recovered = pollster::block_on(bench.store.recover(bench.by, bench.claims.get())).expect("a read");
    assert_eq!(recovered, core::slice::from_ref(&leased));
    assert_eq!(bench.renew(vec![(timer.id, leased.token)]), []);
    // The holder dies. The delivery has not begun. It counts, since its handler may have ended the process.
    bench.set(5 + LEASE);
    let reaped = bench.reap(9);
    assert_eq!((&*reaped.returned, &*reaped.not_begun), (&[timer.id][..], &[timer.id][..]));
    assert_eq!(bench.get("k").map(|timer| timer.deliveries), Some(1));
    let again = bench.the_due();
    assert_eq!((again.timer.id, again.timer.deliveries), (timer.id, 2));
    // The delivery of the first holder does not begin, and that of the second holder begins once.
    let stale = Outcome::Refused(Refusal::Stale);
    assert_eq!(bench.apply(Op::Skip(timer.id, leased.token)), stale);
    let begun = Outcome::Ended { id: timer.id, phase: Phase::Done, next: None, skipped: 0 };
    assert_eq!(bench.apply(Op::Skip(timer.id, again.token)), begun);
    assert_eq!((bench.all(), bench.get("k")), (Vec::new(), None));
    for op in [Op::Skip(timer.id, again.token), Op::Ack(timer.id, again.token)] {
        assert_eq!(bench.apply(op), stale, "its delivery would begin a second time");
    }
    assert_eq!(bench.renew(vec![(timer.id, again.token)]), [(timer.id, again.token)]);
    bench.set(5 + 2 * LEASE);
    assert_eq!(bench.reap(9), tourbillon_durable::store::Reaped::default());
    assert_eq!(bench.due_ids(), []);
}

/// A caller changes a timer that is delivered at most once, between its claim and the removal that begins the delivery.
fn a_timer_at_most_once_is_withdrawn_until_its_delivery_begins(make: Make<'_>) {
    for is_replaced in [false, true] {
        let bench = Bench::new(make);
        let policy = Policy { guarantee: Guarantee::AtMostOnce, ..Policy::default() };
        let timer = Timer { policy: policy.clone(), labels: vec!["l".into()], ..bench.keyed("k", 5) };
        bench.create(&timer);
        bench.set(5);
        let leased = bench.the_due();
        let in_flight = Outcome::Refused(Refusal::State(Phase::Leased));
        for op in [Op::Move("k".into(), at(50)), Op::Pause("k".into()), Op::Fire("k".into())] {
            assert_eq!(bench.apply(op), in_flight);
        }
        let new = Timer { policy, ..bench.keyed("k", 5) };
        if is_replaced {
            let replaced = Outcome::Replaced { new: new.id, old: timer.id, was: Phase::Leased };
            assert_eq!(bench.place(&new, IfPresent::Replace), replaced);
        } else {
            assert_eq!(bench.apply(Op::Cancel("k".into(), None)), Outcome::InFlight(timer.id));
            assert_eq!(bench.place(&new, IfPresent::Reject), Outcome::Created(new.id));
        }
        let withdrawn = Outcome::Ended { id: timer.id, phase: Phase::Withdrawn, next: None, skipped: 0 };
        assert_eq!(bench.apply(Op::Skip(timer.id, leased.token)), withdrawn, "it does not begin");
        assert_eq!(bench.due_ids(), [new.id], "the other has its key, and is delivered");
    }
}

/// If a delivery does not begin, its timer is released, snoozed or parked like any other timer. No delivery is counted.
fn a_timer_at_most_once_that_does_not_begin_comes_again(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy { guarantee: Guarantee::AtMostOnce, deliveries: 1, ..Policy::default() };
    bench.create(&Timer { policy, ..bench.keyed("k", 5) });
    bench.set(5);
    for number in 0..3 {
        let Leased { timer, token } = bench.the_due();
        let (op, then, phase) = match number {
            0 => (Op::Release(timer.id, token), None, Phase::Pending),
            1 => (Op::Snooze(timer.id, token, at(20)), None, Phase::Pending),
            _ => {
                (Op::Park(timer.id, token, "full".into()), Some(Op::Unpark("full".into(), 9)), Phase::Parked)
            }
        };
        let ended = Outcome::Ended { id: timer.id, phase, next: None, skipped: 0 };
        assert_eq!(bench.apply(op), ended);
        let stored = bench.get("k").map(|timer| (timer.deliveries, timer.failures));
        assert_eq!(stored, Some((0, 0)));
        if let Some(unpark) = then {
            assert_eq!(bench.apply(unpark), Outcome::Unparked(1));
        }
        bench.set(20);
    }
    let Leased { timer, token } = bench.the_due();
    let begun = Outcome::Ended { id: timer.id, phase: Phase::Done, next: None, skipped: 0 };
    assert_eq!(bench.apply(Op::Skip(timer.id, token)), begun);
    assert_eq!(bench.all(), []);
}

fn a_lost_answer_is_recovered(make: Make<'_>) {
    let bench = Bench::new(make);
    for due in 0..5 {
        bench.create(&bench.timer(due));
    }
    bench.set(100);
    let taken = bench.claim(2, u64::MAX).leased;
    let number = bench.claims.get();
    let more = bench.claim(2, u64::MAX).leased;
    let by_others = Claimant { incarnation: bench.by.incarnation + 1, ..bench.by };
    let recover = |by, claim| {
        let mut leased = pollster::block_on(bench.store.recover(by, claim)).expect("a recovery failed");
        leased.sort_by_key(|leased| leased.timer.due);
        leased
    };
    assert_eq!(recover(bench.by, number), taken);
    assert_eq!(recover(bench.by, number + 1), more);
    assert_eq!(recover(bench.by, number + 2), []);
    assert_eq!(recover(by_others, number), []);
    // The recovery returns only the leases that still belong to the claim.
    let _done = bench.apply(Op::Ack(taken[0].timer.id, taken[0].token));
    assert_eq!(recover(bench.by, number), taken[1..]);
    bench.set(100 + LEASE);
    let _reaped = bench.reap(9);
    assert_eq!(recover(bench.by, number), []);
}

fn a_store_calls_for_earlier_timers(make: Make<'_>) {
    let bench = Bench::new(make);
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    bench.store.subscribe(Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let called = |name: &str, act: &dyn Fn()| {
        let before = calls.load(Ordering::Relaxed);
        act();
        // A thread of the store may call the subscriber, even after the answer.
        let begin = Instant::now();
        while calls.load(Ordering::Relaxed) == before {
            assert!(begin.elapsed() < Duration::from_secs(5), "{name} calls nobody");
            std::thread::yield_now();
        }
    };
    let timer = bench.keyed("k", 5_000);
    called("a creation", &|| {
        bench.create(&timer);
    });
    called("a move", &|| drop(bench.apply(Op::Move("k".into(), at(4_000)))));
    called("a fire", &|| drop(bench.apply(Op::Fire("k".into()))));
    let token = bench.the_due().token;
    called("a release", &|| drop(bench.apply(Op::Release(timer.id, token))));
    let _leased = bench.the_due();
    called("a step of the clock", &|| bench.set(LEASE));
    called("a reap", &|| drop(bench.reap(1)));
    let _parked = bench.apply(Op::Pause("k".into()));
    called("a resume", &|| drop(bench.apply(Op::Resume("k".into()))));
    let new = bench.keyed("k", 1);
    called("a replacement", &|| drop(bench.place(&new, IfPresent::Replace)));
}

fn upcoming_timers(make: Make<'_>) {
    let bench = Bench::new(make);
    let timers: Vec<Timer> = (0..20).map(|n| bench.timer(n / 2 * 10)).collect();
    for timer in &timers {
        bench.create(timer);
    }
    let _parked = bench.apply(Op::Pause(timers[10].id.into()));
    let upcoming = |from, until, limit| {
        pollster::block_on(bench.store.upcoming(at(from), at(until), limit)).expect("a read failed")
    };
    let all = upcoming(0, 100, 100);
    assert_eq!(all.len(), 19, "a parked timer is not upcoming");
    assert!(all.is_sorted(), "{all:?}");
    let wanted = |from: u64, until: u64| -> Vec<_> {
        all.iter().copied().filter(|(due, _)| (at(from)..at(until)).contains(due)).collect()
    };
    assert_eq!(upcoming(10, 40, 100), wanted(10, 40), "from the first moment to before the last");
    assert_eq!(upcoming(11, 40, 100), wanted(20, 40));
    assert_eq!(upcoming(0, 100, 7), all[..7]);
    assert_eq!(upcoming(40, 40, 7), []);
    bench.set(30);
    let _leased = bench.due();
    assert_eq!(upcoming(0, 100, 100), wanted(31, 100), "a leased timer is not upcoming");
    assert_eq!(bench.phase(timers[10].id), Some(Phase::Parked));
}

fn a_clock_that_steps_back_makes_no_timer_early(make: Make<'_>) {
    let bench = Bench::new(make);
    bench.set(86_400_000);
    let timer = bench.timer(86_400_500);
    bench.create(&timer);
    bench.set(0);
    assert_eq!(bench.due_ids(), []);
    let near = bench.timer(10);
    bench.create(&near);
    bench.set(10);
    assert_eq!(bench.due_ids(), [near.id]);
    bench.set(2 * 86_400_000);
    assert_eq!(bench.due_ids(), [timer.id]);
}

/// Checks that a claim takes the timers that were parked for a reason. Ends at once if the store cannot claim parked
/// timers.
fn parked_timers_are_claimed_by_their_reason(make: Make<'_>) {
    let bench = Bench::new(make);
    let fetch = |reason: &str, wanted: u32, most: u32| {
        let number = bench.claims.get() + 1;
        bench.claims.set(number);
        let limit = Limit { timers: most, bytes: u64::MAX };
        let claimed =
            pollster::block_on(bench.store.claim_parked(bench.by, number, reason.into(), wanted, limit))
                .expect("a claim failed");
        bench.audit();
        claimed.map(|claimed| {
            let token = Token { incarnation: bench.by.incarnation, claim: number };
            assert!(claimed.leased.iter().all(|leased| leased.token == token), "the token is the claim's");
            claimed.leased
        })
    };
    if fetch("q", 1, 1).is_none() {
        return;
    }
    let fetch = |reason: &str, wanted, most| fetch(reason, wanted, most).expect("the store has such a claim");
    let ids: Vec<TimerId> =
        (0..40).map(|n| bench.create(&bench.keyed(&format!("k{n}"), n * 7 % 40))).collect();
    let mut wanted: Vec<TimerId> =
        (0..40).map(|due| ids[(0..40).find(|n| n * 7 % 40 == due).unwrap_or(0)]).collect();
    bench.set(50);
    for leased in bench.due() {
        let reason = if leased.timer.due == at(39) { "qq" } else { "q" };
        let _parked = bench.apply(Op::Park(leased.timer.id, leased.token, reason.into()));
    }
    wanted.pop();
    let first = fetch("q", 5, 5);
    let ids_of = |leased: &[Leased]| leased.iter().map(|leased| leased.timer.id).collect::<Vec<_>>();
    assert_eq!(ids_of(&first), wanted.drain(..5).collect::<Vec<_>>(), "the longest due, in order");
    for (nth, leased) in first.iter().enumerate() {
        let stored = bench.get(leased.timer.id).expect("a fetched timer is stored");
        assert_eq!((stored.state.phase(), stored.deliveries), (Phase::Leased, 1));
        assert_eq!(stored, leased.timer);
        let (id, token) = (leased.timer.id, leased.token);
        let ended = |phase| Outcome::Ended { id, phase, next: None, skipped: 0 };
        match nth {
            0 => assert_eq!(bench.apply(Op::Ack(id, token)), ended(Phase::Done)),
            1 => assert_eq!(bench.apply(Op::Release(id, token)), ended(Phase::Pending)),
            2 => {
                let failure = Failure { retry_after: Some(Duration::from_secs(3_600)), ..Failure::default() };
                assert_eq!(bench.apply(Op::Fail(id, token, failure)), ended(Phase::Pending));
            }
            3 => assert_eq!(bench.apply(Op::Park(id, token, "other".into())), ended(Phase::Parked)),
            _ => assert_eq!(bench.apply(Op::Cancel(id.into(), None)), Outcome::InFlight(id)),
        }
    }
    let more = fetch("q", 4, 12);
    assert!((4..=12).contains(&more.len()), "{} timers", more.len());
    assert_eq!(ids_of(&more), wanted.drain(..more.len()).collect::<Vec<_>>());
    let number = bench.claims.get();
    let recovered = pollster::block_on(bench.store.recover(bench.by, number)).expect("a recovery failed");
    assert_eq!(recovered.len(), more.len(), "a lost answer is recovered");
    let ahead = wanted.remove(0);
    let _moved = bench.apply(Op::Move(ahead.into(), at(1_000)));
    let mut rest = Vec::new();
    loop {
        let some = fetch("q", 3, 3);
        if some.is_empty() {
            break;
        }
        rest.extend(ids_of(&some));
    }
    assert_eq!(
        (rest, bench.phase(ahead)),
        (wanted, Some(Phase::Pending)),
        "all but the timer that was moved into the future"
    );
    bench.set(1_000);
    assert_eq!(ids_of(&fetch("q", 9, 9)), []);
    assert_eq!(bench.due_ids(), [first[1].timer.id, ahead], "what was released, and what was moved");
    assert_eq!(fetch("qq", 9, 9).len(), 1);
    bench.set(1_000 + LEASE);
    let reaped = bench.reap(1_000);
    assert_eq!((reaped.withdrawn, reaped.returned.len()), (1, 36), "leases that are over end");
}
