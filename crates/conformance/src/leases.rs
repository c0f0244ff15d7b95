//! Tests leases: their renewal, their end, and timers that are parked.

use crate::bench::{Bench, Case, LEASE, Make, at};
use core::time::Duration;
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Death, DeathReason, Phase, Refusal, State, Token};
use tourbillon_durable::store::{Claimant, Op, Outcome, PAUSED, Reaped, Renewal};
use tourbillon_durable::timer::Timer;

pub(crate) const CASES: &[Case] = &[
    ("a lease is renewed while its holder has it", a_lease_is_renewed_while_its_holder_has_it),
    ("leases that have ended are reaped", leases_that_have_ended_are_reaped),
    ("reaps are bounded", reaps_are_bounded),
    ("a timer that takes its process with it is dead in the end", a_timer_that_crashes_is_dead_in_the_end),
    ("a lease that ends too late for the timer's age", a_lease_that_ends_too_late_for_the_age),
    ("a withdrawn timer ends with its lease", a_withdrawn_timer_ends_with_its_lease),
    ("a timer is parked and put back", a_timer_is_parked_and_put_back),
    ("a timer is paused and resumed", a_timer_is_paused_and_resumed),
    ("a timer is fired before its time", a_timer_is_fired_before_its_time),
];

fn a_lease_is_renewed_while_its_holder_has_it(make: Make<'_>) {
    let bench = Bench::new(make);
    let (kept, lost) = (bench.timer(0), bench.timer(0));
    bench.create(&kept);
    bench.create(&lost);
    let token = bench.due()[0].token;
    let both = vec![(kept.id, token), (lost.id, token)];
    bench.set(LEASE - 1);
    assert_eq!(bench.renew(both.clone()), []);
    bench.set(LEASE);
    assert_eq!(bench.reap(9), Reaped { next: Some(at(2 * LEASE - 1)), ..Reaped::default() });
    // After its end, a lease still belongs to its holder until it is reaped.
    bench.set(3 * LEASE);
    assert_eq!(bench.renew(vec![(kept.id, token)]), []);
    assert_eq!(bench.reap(9).returned, [lost.id]);
    assert_eq!(bench.renew(both.clone()), [(lost.id, token)]);
    let other = Token { incarnation: token.incarnation + 1, ..token };
    assert_eq!(bench.renew(vec![(kept.id, other)]), [(kept.id, other)]);
    let again = bench.the_due();
    assert_eq!((again.timer.id, again.timer.deliveries, again.timer.failures), (lost.id, 2, 0));
    assert_eq!(bench.renew(both), [(lost.id, token)], "the lease is another claim's");
    for both in [[token, again.token], [again.token, token]] {
        let leases = both.map(|token| (lost.id, token)).to_vec();
        assert_eq!(bench.renew(leases), [(lost.id, token)], "the later lease of the timer is not lost");
    }
    assert_eq!(bench.apply(Op::Ack(lost.id, token)), Outcome::Refused(Refusal::Stale));
    assert!(matches!(bench.apply(Op::Ack(lost.id, again.token)), Outcome::Ended { phase: Phase::Done, .. }));
    // A renewal by a shorter time does not shorten the lease.
    let short = Claimant { lease: Duration::ZERO, ..bench.by };
    let renewed = pollster::block_on(bench.store.renew(short, vec![(kept.id, token)])).expect("a renewal");
    assert_eq!(renewed, Renewal::default());
    assert_eq!(bench.reap(9), Reaped { next: Some(at(4 * LEASE)), ..Reaped::default() });
}

fn leases_that_have_ended_are_reaped(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.reap(9), Reaped::default());
    let timer = bench.keyed("k", 0);
    bench.create(&timer);
    let token = bench.the_due().token;
    bench.set(LEASE - 1);
    assert_eq!(bench.reap(9), Reaped { next: Some(at(LEASE)), ..Reaped::default() });
    bench.set(LEASE);
    assert_eq!(bench.reap(9), Reaped { returned: vec![timer.id], ..Reaped::default() });
    let back = bench.get("k").expect("it is stored");
    assert_eq!((back.state, back.due, back.deliveries, back.failures), (State::Pending, at(0), 1, 0));
    for late in [
        Op::Ack(timer.id, token),
        Op::Skip(timer.id, token),
        Op::Fail(timer.id, token, tourbillon_durable::state::Failure::default()),
        Op::Snooze(timer.id, token, at(1)),
        Op::Release(timer.id, token),
        Op::Park(timer.id, token, "limit".into()),
    ] {
        assert_eq!(bench.apply(late), Outcome::Refused(Refusal::Stale));
    }
    assert_eq!(bench.due_ids(), [timer.id]);
}

fn reaps_are_bounded(make: Make<'_>) {
    let bench = Bench::new(make);
    for due in 0..10 {
        bench.create(&bench.timer(due));
        bench.set(due);
        let _leased = bench.the_due();
    }
    bench.set(LEASE + 5);
    assert_eq!(bench.reap(0).next, Some(at(LEASE)));
    let first = bench.reap(4);
    assert_eq!((first.returned.len(), first.next), (4, Some(at(LEASE + 4))));
    let second = bench.reap(4);
    assert_eq!((second.returned.len(), second.next), (2, Some(at(LEASE + 6))));
    assert_eq!(bench.reap(4).returned, []);
    assert_eq!(bench.due().len(), 6);
}

fn a_timer_that_crashes_is_dead_in_the_end(make: Make<'_>) {
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
        a_timer_that_crashes_is_dead(make, guarantee);
    }
}

fn a_timer_that_crashes_is_dead(make: Make<'_>, guarantee: Guarantee) {
    let bench = Bench::new(make);
    let policy = Policy { deliveries: 3, guarantee, ..Policy::default() };
    let timer = Timer { policy, ..bench.keyed("k", 0) };
    bench.create(&timer);
    for round in 1..=3 {
        let leased = bench.the_due();
        assert_eq!(leased.timer.deliveries, u32::try_from(round).expect("a few"));
        bench.set(round * LEASE);
        let reaped = bench.reap(9);
        let dead = if round == 3 { vec![timer.id] } else { vec![] };
        assert_eq!((reaped.dead, reaped.returned.len()), (dead, usize::from(round < 3)));
    }
    let death = Death { reason: DeathReason::Deliveries, at: at(3 * LEASE) };
    assert_eq!(bench.get(timer.id).map(|timer| timer.state), Some(State::Dead(death)));
    assert_eq!(bench.get("k"), None, "a dead timer has no key");
}

fn a_lease_that_ends_too_late_for_the_age(make: Make<'_>) {
    let bench = Bench::new(make);
    let aged = |age: u64| {
        let policy = Policy { max_age: Some(Duration::from_millis(age)), ..Policy::default() };
        Timer { policy, ..bench.timer(0) }
    };
    let (too_old, young) = (aged(LEASE - 1), aged(LEASE));
    bench.create(&too_old);
    bench.create(&young);
    assert_eq!(bench.due().len(), 2);
    bench.set(LEASE);
    let reaped = bench.reap(9);
    assert_eq!((reaped.dead, reaped.returned), (vec![too_old.id], vec![young.id]));
    let death = Death { reason: DeathReason::Age, at: at(LEASE) };
    assert_eq!(bench.get(too_old.id).map(|timer| timer.state), Some(State::Dead(death)));
}

fn a_withdrawn_timer_ends_with_its_lease(make: Make<'_>) {
    let bench = Bench::new(make);
    let (cancelled, replaced) = (bench.keyed("c", 0), bench.keyed("r", 0));
    bench.create(&cancelled);
    bench.create(&replaced);
    let token = bench.due()[0].token;
    assert_eq!(bench.apply(Op::Cancel("c".into(), None)), Outcome::InFlight(cancelled.id));
    let new = bench.keyed("r", 900);
    let _replaced = bench.place(&new, tourbillon_durable::store::IfPresent::Replace);
    // The holder may renew the leases of withdrawn timers, so their deliveries go on.
    assert_eq!(bench.renew(vec![(cancelled.id, token), (replaced.id, token)]), []);
    bench.set(LEASE);
    assert_eq!(bench.reap(9), Reaped { withdrawn: 2, ..Reaped::default() });
    assert_eq!(bench.all().into_iter().map(|timer| timer.id).collect::<Vec<_>>(), [new.id]);
    assert_eq!(bench.due_ids(), [new.id]);
}

fn a_timer_is_parked_and_put_back(make: Make<'_>) {
    let bench = Bench::new(make);
    let timers: Vec<Timer> = (0..6).map(|due| bench.timer(due)).collect();
    for timer in &timers {
        bench.create(timer);
    }
    bench.set(10);
    for (nth, leased) in bench.due().into_iter().enumerate() {
        let reason = if nth == 5 { "lim" } else { "limit" };
        let parked = Outcome::Ended { id: leased.timer.id, phase: Phase::Parked, next: None, skipped: 0 };
        assert_eq!(bench.apply(Op::Park(leased.timer.id, leased.token, reason.into())), parked);
    }
    let parked = bench.get(timers[0].id).expect("it is stored");
    assert_eq!((parked.state, parked.deliveries), (State::Parked("limit".into()), 0));
    assert_eq!(bench.due_ids(), [], "a parked timer is not claimed");
    assert_eq!(bench.apply(Op::Unpark("limi".into(), 9)), Outcome::Unparked(0), "a part of the reason");
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 0)), Outcome::Unparked(0));
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 2)), Outcome::Unparked(2));
    assert_eq!(bench.due_ids(), [timers[0].id, timers[1].id], "the longest due comes first");
    assert!(matches!(bench.apply(Op::Cancel(timers[2].id.into(), None)), Outcome::Cancelled(_)));
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 9)), Outcome::Unparked(2));
    assert_eq!(bench.apply(Op::Unpark("lim".into(), 9)), Outcome::Unparked(1));
    assert_eq!(bench.due().len(), 3);
}

fn a_timer_is_paused_and_resumed(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(Op::Pause("k".into())), Outcome::NotFound);
    assert_eq!(bench.apply(Op::Resume("k".into())), Outcome::NotFound);
    let timer = bench.keyed("k", 10);
    bench.create(&timer);
    let refused = |phase| Outcome::Refused(Refusal::State(phase));
    assert_eq!(bench.apply(Op::Resume("k".into())), refused(Phase::Pending));
    assert_eq!(bench.apply(Op::Pause("k".into())), Outcome::Changed(timer.id));
    assert_eq!(bench.get("k").map(|timer| timer.state), Some(State::Parked(PAUSED.into())));
    bench.set(100);
    assert_eq!(bench.due_ids(), []);
    assert_eq!(bench.apply(Op::Resume("k".into())), Outcome::Changed(timer.id));
    let leased = bench.the_due();
    assert_eq!(leased.timer.due, at(10));
    assert_eq!(bench.apply(Op::Pause("k".into())), refused(Phase::Leased));
    // A resume does not affect a timer that is parked for another reason.
    let _parked = bench.apply(Op::Park(timer.id, leased.token, "limit".into()));
    assert_eq!(bench.apply(Op::Resume("k".into())), refused(Phase::Parked));
    assert_eq!(bench.apply(Op::Unpark(PAUSED.into(), 9)), Outcome::Unparked(0));
    assert_eq!(bench.due_ids(), []);
    // A pause lasts although the other reason ends, until the resume. Two pauses are one.
    for _ in 0..2 {
        assert_eq!(bench.apply(Op::Pause("k".into())), Outcome::Changed(timer.id));
        assert_eq!(bench.get("k").map(|timer| timer.state), Some(State::Parked(PAUSED.into())));
    }
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 9)), Outcome::Unparked(0));
    assert_eq!(bench.due_ids(), []);
    assert_eq!(bench.apply(Op::Resume("k".into())), Outcome::Changed(timer.id));
    assert_eq!(bench.due_ids(), [timer.id]);
}

fn a_timer_is_fired_before_its_time(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(Op::Fire("k".into())), Outcome::NotFound);
    let timer = bench.keyed("k", 10_000);
    bench.create(&timer);
    bench.set(5);
    assert_eq!(bench.apply(Op::Fire("k".into())), Outcome::Changed(timer.id));
    let leased = bench.the_due();
    assert_eq!((leased.timer.due, leased.timer.scheduled), (at(5), at(10_000)));
    let refused = Outcome::Refused(Refusal::State(Phase::Leased));
    assert_eq!(bench.apply(Op::Fire("k".into())), refused);
    let _parked = bench.apply(Op::Park(timer.id, leased.token, "limit".into()));
    bench.set(7);
    assert_eq!(bench.apply(Op::Fire("k".into())), Outcome::Changed(timer.id));
    // The fired timer was already due, and keeps its due moment. So it is claimed before timers that became due later.
    assert_eq!(bench.the_due().timer.due, at(5));
}
