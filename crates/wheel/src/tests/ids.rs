//! Tests of stale ids and of cancellation.

use super::Rig;
use crate::{Progress, Tick, TimerId, Wheel};
use alloc::vec::Vec;

#[test]
fn stale_ids_cancel_nobody() {
    let mut wheel = Wheel::<&str, 8>::new(Tick(0));
    let first = wheel.insert(Tick(10), "first");
    assert_eq!(wheel.cancel(first), Some("first"));
    assert_eq!(wheel.cancel(first), None, "cancelled twice");

    let second = wheel.insert(Tick(10), "second");
    assert_eq!(first.index(), second.index(), "the slot is used again");
    assert_ne!(first, second);
    assert_eq!(wheel.cancel(first), None, "the id of an earlier owner of the slot");
    let mut fired = Vec::new();
    let _ = wheel.advance(Tick(10), usize::MAX, |_, timer| fired.push((timer.id, timer.payload)));
    assert_eq!(fired, [(second, "second")], "once, though two tickets name its slot");
    assert_eq!(wheel.cancel(second), None, "cancelled after it fired");

    let third = wheel.insert(Tick(20), "third");
    assert_eq!((wheel.cancel(first), wheel.cancel(second)), (None, None));
    assert_eq!(wheel.cancel(third), Some("third"));
    wheel.check_invariants();
}

#[test]
fn ids_that_no_wheel_made_are_stale() {
    let mut wheel = Wheel::<u8, 8>::new(Tick(0));
    let id = wheel.insert(Tick(1), 1);
    wheel.cancel(id);
    let kept = wheel.insert(Tick(1), 2);
    let other = wheel.insert(Tick(1), 3);
    wheel.cancel(other);
    // These ids are beyond the table, ahead of the generation, and of a free slot's next generation.
    for bits in [u64::MAX, 1 << 20, kept.to_bits() + (1 << 32), other.to_bits() + (1 << 24)] {
        assert_eq!(wheel.cancel(TimerId::from_bits(bits)), None);
        wheel.check_invariants();
    }
    assert_eq!(wheel.cancel(TimerId::from_bits(kept.to_bits())), Some(2));
}

#[test]
fn a_stale_ticket_does_not_fire_the_next_owner_of_its_slot() {
    let mut rig = Rig::<8>::at(0);
    let early = rig.insert(10);
    rig.cancel(early);
    let late = rig.insert(100_000);
    assert_eq!(early.index(), late.index());
    assert_eq!(rig.advance(99_999), []);
    assert_eq!(rig.advance(100_000), [100_000]);
}

/// Timers are cancelled while an advance with a budget is half-way through their coarse slot.
#[test]
fn a_cancel_during_a_cascade_is_final() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        let start = 1 << (2 * BITS);
        let ids: Vec<_> = (0..400).map(|at| rig.insert(start + at % 7)).collect();
        let mut ids = ids.into_iter();
        loop {
            let (_, progress) = rig.step(start + 6, 20);
            if progress == Progress::Settled {
                break;
            }
            // `Rig` fails when one of the cancelled timers fires.
            for id in ids.by_ref().take(5) {
                rig.cancel(id);
            }
        }
        assert!(rig.wheel.is_empty());
    }
    every_radix!(body);
}

#[test]
fn payloads_are_dropped_when_they_are_taken_and_with_the_wheel() {
    let payload = alloc::rc::Rc::new(());
    let mut wheel = Wheel::<_, 8>::new(Tick(0));
    let ids: Vec<_> = (0..30).map(|tick| wheel.insert(Tick(tick), payload.clone())).collect();
    for &id in &ids[20..] {
        drop(wheel.cancel(id));
    }
    assert_eq!(alloc::rc::Rc::strong_count(&payload), 21);
    let _ = wheel.advance(Tick(9), usize::MAX, |_, timer| drop(timer));
    assert_eq!(alloc::rc::Rc::strong_count(&payload), 11);
    drop(wheel);
    assert_eq!(alloc::rc::Rc::strong_count(&payload), 1);
}
