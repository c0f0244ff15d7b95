//! Tests of the ends of deliveries on their way to the store.

use super::*;
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
        renewed_times: 0,
        alarm: None,
        spawned: None,
        due: timer.due,
        until: UtcMillis::from_millis(10_000),
        key: None,
        begun: None,
        kept: None,
        may_be_removed: false,
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

#[test]
fn a_held_end_whose_lease_is_lost_counts_as_refused_at_once() {
    for held in [Outcome::Held, Outcome::Refused(Refusal::State(Phase::Leased))] {
        let mut ends = ends(&[1]);
        ends.answer(0, Ok(vec![(held, None)]));
        assert!(ends.keep(leased(1, 2)).is_none(), "the new delivery waits");
        let lost = [(TimerId::from_u128(1), token(1))].into();
        assert_eq!(ends.renewed(&Answer { renewed: [].into(), lost }, UtcMillis::from_millis(20_000)), 0);
        let answered = ends.take_answered();
        let outcomes: Vec<_> = answered.batches.iter().flatten().flatten().map(|end| &end.outcome).collect();
        assert_eq!(outcomes, [&Outcome::Refused(Refusal::Stale)]);
        assert_eq!((answered.free.len(), ends.count()), (1, 0), "the new delivery may begin");
    }
}
