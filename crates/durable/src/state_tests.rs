//! Compares [`step`] with [`TRANSITIONS`], for every combination of inputs. Also checks which fields a transition
//! may change.

use super::*;
use crate::policy::{Guarantee, Policy};
use crate::timer::{Payload, TimerId};
use std::collections::{BTreeMap, BTreeSet};

const NOW: UtcMillis = UtcMillis::from_millis(1_000_000);
const OURS: Token = Token { incarnation: 1, claim: 1 };
const THEIRS: Token = Token { incarnation: 2, claim: 1 };

fn at(millis: u64) -> UtcMillis {
    UtcMillis::from_millis(millis)
}

pub(crate) fn timer(state: State) -> Timer {
    Timer {
        key: Some("k".into()),
        payload: Payload(Box::new([1, 2, 3])),
        labels: vec!["a".into()],
        created: at(1),
        deliveries: 1,
        state,
        ..Timer::new(TimerId::from_u128(7), "test", NOW)
    }
}

fn states() -> Vec<State> {
    let lease = |withdrawn| State::Leased(Lease { token: OURS, until: at(2_000_000), withdrawn });
    let death = Death { reason: DeathReason::Attempts, at: at(5) };
    vec![
        State::Pending,
        lease(None),
        lease(Some(Withdrawal::Cancelled)),
        lease(Some(Withdrawal::Replaced)),
        State::Parked("paused".into()),
        State::Parked("limit".into()),
        State::Dead(death),
    ]
}

/// Returns timers in every state, with all variants of fields that matter for a transition.
fn timers() -> Vec<Timer> {
    let mut timers = Vec::new();
    for state in states() {
        for guarantee in [Guarantee::AtLeastOnce, Guarantee::AtMostOnce] {
            for due in [at(0), NOW, at(1_000_001)] {
                for (failures, deliveries) in [(0, 1), (9, 1), (0, 19), (0, 20), (u32::MAX, u32::MAX)] {
                    for max_age in [None, Some(Duration::ZERO), Some(Duration::from_secs(3_600))] {
                        let policy = Policy { guarantee, max_age, ..Policy::default() };
                        timers.push(Timer { policy, due, failures, deliveries, ..timer(state.clone()) });
                    }
                }
            }
        }
    }
    timers
}

fn events() -> Vec<Event> {
    let until = at(3_000_000);
    let mut events = vec![
        Event::Expire,
        Event::Withdraw(Withdrawal::Cancelled),
        Event::Withdraw(Withdrawal::Replaced),
        Event::Park("paused".into(), None),
        Event::Unpark,
        Event::Move(at(5_000_000)),
        Event::Move(at(5)),
        Event::Replay,
    ];
    for token in [OURS, THEIRS] {
        events.extend([
            Event::Claim { token, until },
            Event::Renew { token, until },
            Event::Renew { token, until: at(0) },
            Event::Ack(token),
            Event::Skip(token),
            Event::Snooze(token, at(2_000_000)),
            Event::Release(token),
            Event::Park("limit".into(), Some(token)),
        ]);
        for retry_after in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            for is_final in [false, true] {
                events.push(Event::Fail(token, Failure { error: "e".into(), retry_after, is_final }));
            }
        }
    }
    events
}

fn phase_of(next: &Next) -> Phase {
    match next {
        Next::Stays(timer) => timer.state.phase(),
        Next::Ends(End::Done | End::Skipped) => Phase::Done,
        Next::Ends(End::Withdrawn(_)) => Phase::Withdrawn,
    }
}

/// Checks that [`step`] permits exactly the transitions that [`TRANSITIONS`] lists.
#[test]
fn the_list_is_the_function() {
    let mut seen: BTreeMap<(Phase, EventKind), BTreeSet<Phase>> = BTreeMap::new();
    for timer in timers() {
        for event in events() {
            let kind = event.kind();
            if let Ok(next) = step(&timer, event, NOW) {
                seen.entry((timer.state.phase(), kind)).or_default().insert(phase_of(&next));
            }
        }
    }
    let listed: BTreeMap<(Phase, EventKind), BTreeSet<Phase>> =
        TRANSITIONS.iter().map(|(from, kind, to)| ((*from, *kind), to.iter().copied().collect())).collect();
    assert_eq!(listed.len(), TRANSITIONS.len(), "a transition is listed twice");
    assert_eq!(seen, listed);
}

/// Checks invariants of [`state`](crate::state) for every event: a timer is claimed only when it is due (D1), only the
/// holder of the present lease can renew it or end the delivery (D2), a withdrawn timer is not claimed again (D3), and
/// only a failed delivery adds a failure (D4). Also checks that no transition changes the timer's id, payload, key,
/// labels and moment of creation.
#[test]
fn the_invariants_hold_for_every_event() {
    for before in timers() {
        for event in events() {
            let Ok(next) = step(&before, event.clone(), NOW) else { continue };
            if let Event::Claim { .. } = event {
                assert!(before.due <= NOW && before.state == State::Pending, "D1, D3: {before:?}");
            }
            let held = match event {
                Event::Renew { token, .. }
                | Event::Ack(token)
                | Event::Skip(token)
                | Event::Fail(token, _)
                | Event::Snooze(token, _)
                | Event::Release(token)
                | Event::Park(_, Some(token)) => Some(token),
                _ => None,
            };
            if let Some(token) = held {
                assert!(
                    matches!(before.state, State::Leased(lease) if lease.token == token),
                    "D2: {before:?}"
                );
            }
            let is_withdrawn = matches!(before.state, State::Leased(Lease { withdrawn: Some(_), .. }));
            let stays_leased = matches!(event, Event::Renew { .. } | Event::Withdraw(_));
            if is_withdrawn && !stays_leased {
                assert!(matches!(next, Next::Ends(_)), "D3: {event:?} of {before:?}");
            }
            let Next::Stays(after) = next else { continue };
            assert_eq!(
                (after.id, &after.payload, &after.key, &after.labels, after.created),
                (before.id, &before.payload, &before.key, &before.labels, before.created)
            );
            let failed = matches!(event, Event::Fail(..));
            let replayed = matches!(event, Event::Replay);
            let counts = after.failures == before.failures.saturating_add(u32::from(failed)) || replayed;
            assert!(counts, "D4: {event:?} of {before:?}");
        }
    }
}

#[test]
fn a_delivery_is_counted_when_it_begins_and_uncounted_when_it_is_given_back() {
    let until = at(3_000_000);
    let pending = Timer { deliveries: 0, ..timer(State::Pending) };
    let claim = |timer: &Timer| match step(timer, Event::Claim { token: OURS, until }, NOW) {
        Ok(Next::Stays(timer)) => timer,
        other => panic!("{other:?}"),
    };
    let leased = claim(&pending);
    assert_eq!(leased.deliveries, 1);
    for event in [Event::Release(OURS), Event::Park("limit".into(), Some(OURS)), Event::Snooze(OURS, NOW)] {
        let Ok(Next::Stays(back)) = step(&leased, event, NOW) else { panic!("it stays") };
        assert_eq!(back.deliveries, 0);
    }
    let Ok(Next::Stays(expired)) = step(&leased, Event::Expire, NOW) else { panic!("it stays") };
    assert_eq!((expired.deliveries, expired.failures), (1, 0));
    // The handler of a timer at most once may end the process before it begins the delivery, so the claim counts.
    let policy = Policy { guarantee: Guarantee::AtMostOnce, deliveries: 2, ..Policy::default() };
    let leased = claim(&Timer { policy, ..pending });
    let Ok(Next::Stays(expired)) = step(&leased, Event::Expire, NOW) else { panic!("it stays") };
    assert_eq!((expired.deliveries, &expired.state), (1, &State::Pending));
    let Ok(Next::Stays(dead)) = step(&claim(&expired), Event::Expire, NOW) else { panic!("it stays") };
    assert!(matches!(&dead.state, State::Dead(death) if death.reason == DeathReason::Deliveries), "{dead:?}");
}

#[test]
fn a_lease_is_never_shortened() {
    let lease = Lease { token: OURS, until: at(2_000_000), withdrawn: None };
    let renewed = step(&timer(State::Leased(lease)), Event::Renew { token: OURS, until: at(5) }, NOW);
    let Ok(Next::Stays(Timer { state: State::Leased(renewed), .. })) = renewed else { panic!("{renewed:?}") };
    assert_eq!(renewed.until, lease.until);
}

#[test]
fn a_lease_of_a_clock_that_was_ahead_is_brought_back() {
    let lease = Lease { token: OURS, until: at(86_400_006), withdrawn: None };
    let renewed = step(&timer(State::Leased(lease)), Event::Renew { token: OURS, until: at(5) }, NOW);
    let Ok(Next::Stays(Timer { state: State::Leased(renewed), .. })) = renewed else { panic!("{renewed:?}") };
    assert_eq!(renewed.until, at(5));
}

/// Tests that a withdrawal during the lease decides the end of the timer, unless the delivery succeeds.
#[test]
fn a_timer_that_is_withdrawn_during_its_lease_ends_as_withdrawn_unless_its_delivery_succeeds() {
    for reason in [Withdrawal::Cancelled, Withdrawal::Replaced] {
        let lease = Lease { token: OURS, until: at(2_000_000), withdrawn: Some(reason) };
        let withdrawn = timer(State::Leased(lease));
        for event in events() {
            let kind = event.kind();
            let Ok(Next::Ends(end)) = step(&withdrawn, event, NOW) else { continue };
            let expected = if kind == EventKind::Ack { End::Done } else { End::Withdrawn(reason) };
            assert_eq!(end, expected, "{kind:?}");
        }
    }
}
