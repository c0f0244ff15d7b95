//! Tests of the ends of deliveries, without a runtime.

use super::*;
use crate::handler::Verdict;
use crate::runtime::shared::{Removal, UnderWay};
use crate::state::Lease;
use crate::store::{MemoryStore, Op};
use crate::timer::Timer;

const LEASE: Duration = Duration::from_secs(10);

fn token(claim: u64) -> Token {
    Token { incarnation: 1, claim }
}

/// Makes a timer that the claim with the number `claim` has leased until the 10th second.
fn leased(number: u128, claim: u64) -> Leased {
    let lease = Lease { token: token(claim), until: UtcMillis::from_millis(10_000), withdrawn: None };
    let timer = Timer::new(TimerId::from_u128(number), "kind", UtcMillis::from_millis(5));
    Leased { timer: Timer { state: State::Leased(lease), ..timer }, token: token(claim) }
}

/// Makes the result of a delivery of timer 1 that the claim with the number `claim` has begun.
fn end(claim: u64) -> DeliveryEnd {
    let Leased { timer, token } = leased(1, claim);
    let delivery = UnderWay {
        id: timer.id,
        token,
        settlement: Arc::default(),
        removal: Removal::Never,
        number: claim,
        timeout: Duration::ZERO,
        alarm: None,
        spawned: None,
        due: timer.due,
        until: UtcMillis::from_millis(10_000),
        key: None,
        begun: None,
        held_since: None,
        is_snoozed: false,
        observed: None,
    };
    DeliveryEnd { delivery, op: Op::Ack(timer.id, token) }
}

/// Makes the value for a store of one part, which has the results of these claims' deliveries of timer 1.
fn ends(claims: &[u64]) -> Ends {
    let mut ends = Ends::new(Arc::new(MemoryStore::default()), Durability::Volatile, LEASE);
    ends.store_parts = 1;
    ends.take(claims.iter().map(|claim| end(*claim)).collect());
    ends
}

#[test]
fn a_delivery_begins_after_the_answers_to_all_ends_of_its_timer() {
    let mut ends = ends(&[1, 2]);
    assert!(ends.keep(leased(2, 3)).is_some() && ends.keep(leased(1, 3)).is_none());
    ends.answered.push((0, Err(vec![end(1)])));
    assert_eq!(ends.take_answered().free.len(), 0, "the second end has no answer yet");
    ends.answered.push((0, Err(vec![end(2)])));
    assert_eq!(ends.take_answered().free.len(), 1);
    assert!(ends.keep(leased(1, 4)).is_some());
}

/// Tests a stop whose patience is over. The leases of held ends expire.
#[test]
fn a_stop_counts_a_held_end_as_lost() {
    let mut ends = ends(&[1]);
    ends.stop(Instant::now());
    assert!(!ends.hold(0, vec![end(1)]));
    let lost: Vec<_> = ends.answered.iter().flat_map(|(_, batch)| batch.as_ref().err()).flatten().collect();
    assert!(matches!(lost[..], [DeliveryEnd { op: Op::Ack(..), .. }]), "{} are lost", lost.len());
    assert!(!ends.parts.contains_key(&HELD));
}

#[test]
fn a_call_has_removals_or_other_ends() {
    let is_removed = [false, true, true, false, true];
    let waiting = (1..).zip(is_removed).map(|(claim, is_removed)| {
        let mut end = end(claim);
        if is_removed {
            end.delivery.removal = Removal::AtStore;
        }
        end
    });
    let mut ends = ends(&[9]);
    ends.take(waiting.collect());
    let mut batches = Vec::new();
    while let Some(part) = ends.parts.get(&0) {
        batches.push(part.batch.iter().map(|end| end.delivery.number).collect::<Vec<_>>());
        let answers = part.batch.iter().map(|end| (done(end), None)).collect();
        ends.answer(0, Ok(answers));
    }
    assert_eq!(batches, [vec![9], vec![1, 4], vec![2, 3, 5]]);
}

#[test]
fn a_call_has_few_removals() {
    let mut ends = ends(&[9]);
    ends.take((0..300).map(end_at_the_store).collect());
    ends.answer(0, Ok(vec![(Outcome::Refused(Refusal::Stale), None)]));
    assert_eq!(ends.parts[&0].batch.len(), REMOVALS);
}

fn end_at_the_store(claim: u64) -> DeliveryEnd {
    let mut end = end(claim);
    end.delivery.removal = Removal::AtStore;
    end.op = Op::Skip(end.delivery.id, end.delivery.token);
    end
}

/// Tests the ends that take the place of a removal that cannot take effect, or whose delivery is settled.
#[test]
fn a_removal_that_does_not_take_effect_becomes_another_end() {
    let at = UtcMillis::from_millis(70_000);
    let sent = |settle: &dyn Fn(&mut Ends)| {
        let mut ends = ends(&[]);
        ends.take(vec![end_at_the_store(1)]);
        settle(&mut ends);
        ends.end_rests(|_| true);
        let end = ends.parts.values().find_map(|part| part.batch.first()).expect("it is sent");
        (end.op.clone(), end.is_removal(), end.delivery.settlement.is_settled())
    };
    let settlement = |ends: &Ends| Arc::clone(&ends.parts[&0].batch[0].delivery.settlement);
    let fail = |ends: &mut Ends| ends.answer(0, Err(StoreError::new(StoreErrorKind::Unknown, "lost")));
    let (id, token) = (TimerId::from_u128(1), token(1));
    assert_eq!(sent(&|ends| fail(ends)), (Op::Skip(id, token), true, false));
    let release = sent(&|ends| {
        assert!(settlement(ends).settle());
        fail(ends);
    });
    assert_eq!(release, (Op::Release(id, token), false, true));
    for (verdict, op) in [
        (Verdict::Done, Op::Ack(id, token)),
        (Verdict::Park("full".into()), Op::Park(id, token, "full".into())),
        (Verdict::Snooze(at), Op::Snooze(id, token, at)),
    ] {
        let sent = sent(&|ends| {
            settlement(ends).settle_by(Instead { verdict: verdict.clone(), answered: None });
            fail(ends);
        });
        assert_eq!(sent, (op, false, true));
    }
    let refused = sent(&|ends| {
        ends.answer(0, Ok(vec![(Outcome::Refused(Refusal::State(Phase::Leased)), None)]));
    });
    assert!(matches!(refused, (Op::Snooze(..), false, true)), "{refused:?}");
    for (time, is_put_off) in [(HELD_LONGEST / 2, false), (HELD_LONGEST, true)] {
        let (op, ..) = sent(&|ends| {
            ends.parts.get_mut(&0).unwrap().batch[0].delivery.held_since = Instant::now().checked_sub(time);
            ends.answer(0, Ok(vec![(Outcome::Held, None)]));
        });
        assert_eq!(matches!(op, Op::Snooze(..)), is_put_off, "{op:?}");
    }
}

fn done(end: &DeliveryEnd) -> Outcome {
    Outcome::Ended { id: end.delivery.id, phase: Phase::Done, next: None, skipped: 0 }
}

/// Tests a claimed timer that waits, and the answers to renewals that were sent before and after its claim.
#[test]
fn the_lease_of_a_timer_that_waits_is_extended_only_by_a_renewal_that_has_asked_for_it() {
    let mut ends = ends(&[1]);
    assert!(ends.keep(leased(1, 2)).is_none());
    let until = |ends: &Ends| match &ends.kept[&TimerId::from_u128(1)].timer.state {
        State::Leased(lease) => lease.until.as_millis(),
        other => panic!("{other:?}"),
    };
    let lease_of = |claim| [(TimerId::from_u128(1), token(claim))].into();
    let later = UtcMillis::from_millis(20_000);
    assert_eq!(ends.renewed(&Answer { renewed: lease_of(1), lost: [].into() }, later), 0);
    assert_eq!(until(&ends), 10_000, "the renewal was sent before the claim");
    assert_eq!(ends.renewed(&Answer { renewed: lease_of(2), lost: lease_of(1) }, later), 0);
    assert_eq!(until(&ends), 20_000);
    assert_eq!(ends.renewed(&Answer { renewed: [].into(), lost: lease_of(2) }, later), 1);
    assert_eq!(ends.kept(), 0);
}

/// Tests a store without parts. A held result permits claims, and its timer is delivered again only after its
/// answer.
#[test]
fn a_held_end_holds_up_its_own_timer_alone() {
    let mut ends = Ends::new(Arc::new(MemoryStore::default()), Durability::Volatile, LEASE);
    ends.take(vec![end(1)]);
    assert!(ends.holds_up_claims());
    ends.answer(0, Ok(vec![(Outcome::Held, None)]));
    assert_eq!((ends.holds_up_claims(), ends.sends_at_once(), ends.count()), (false, true, 1));
    assert!(ends.take_answered().free.is_empty() && ends.first_rest().is_some());
    assert_eq!(ends.leases().count(), 1, "its lease is renewed");
    assert!(ends.keep(leased(2, 2)).is_some() && ends.keep(leased(1, 2)).is_none());
    ends.end_rests(|_| true);
    ends.answer(HELD, Ok(vec![(Outcome::Held, None)]));
    assert!(ends.take_answered().free.is_empty());
    ends.end_rests(|_| true);
    ends.answer(HELD, Ok(vec![(Outcome::Refused(Refusal::Stale), None)]));
    assert_eq!((ends.take_answered().free.len(), ends.count(), ends.parts.len()), (1, 0, 0));
}
