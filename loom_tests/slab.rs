//! Slots that change hands.
//!
//! Each row was tried: the ordering named was made `Relaxed`, or the fence or tag left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | M1: `give` | `a_magazine_changes_hands`, `takers_and_a_giver_never_share_a_slot` |
//! | M1: `take`'s load | the same two |
//! | M1: `take`'s swap that fails | `takers_and_a_giver_never_share_a_slot` |
//! | D2: the tag | `takers_and_a_giver_never_share_a_slot` |
//! | M2: `grow` | `two_threads_grow_one_segment` |
//! | M2: `get` | `two_threads_grow_one_segment` |

use super::model;
use crate::slab::{Magazine, Magazines, Slab};
use crate::sync::{StdArc, thread};
use crate::tick::Timestamp;

/// A slot vacated by one thread is taken by another: its links and its payload cell come along.
#[test]
fn a_magazine_changes_hands() {
    model("a_magazine_changes_hands", || {
        let slab = StdArc::new(Slab::<u32>::new(1, Timestamp::ZERO));
        let index = Magazines::new().take(slab.slots()).unwrap();
        let giving = StdArc::clone(&slab);
        let giver = thread::spawn(move || {
            // SAFETY: we hold the slot.
            unsafe { giving.write(index, 1) };
            let mut magazine = Magazine::new();
            magazine.push(giving.slots(), index);
            giving.slots().give(magazine);
        });
        let mut magazines = Magazines::new();
        let taken = loop {
            match magazines.take(slab.slots()) {
                Some(taken) => break taken,
                None => thread::yield_now(),
            }
        };
        assert_eq!(taken, index);
        // SAFETY: the depot gave us the slot.
        unsafe { slab.write(taken, 2) };
        giver.join().unwrap();
    });
}

/// Two threads take magazines while one of them gives one back: nobody gets a slot that another has. With an untagged
/// depot this is where ABA strikes.
#[test]
fn takers_and_a_giver_never_share_a_slot() {
    model("takers_and_a_giver_never_share_a_slot", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        for index in fresh(&slab, 2) {
            let mut magazine = Magazine::new();
            magazine.push(slab.slots(), index);
            slab.slots().give(magazine);
        }
        let other = StdArc::clone(&slab);
        let churner = thread::spawn(move || {
            let mut magazines = Magazines::new();
            let first = magazines.take(other.slots());
            let second = magazines.take(other.slots());
            if let Some(first) = first {
                let mut magazine = Magazine::new();
                magazine.push(other.slots(), first);
                other.slots().give(magazine);
            }
            second
        });
        let mut magazines = Magazines::new();
        let mine = [magazines.take(slab.slots()), magazines.take(slab.slots())];
        let theirs = churner.join().unwrap();
        let mut held: Vec<u32> = mine.into_iter().flatten().chain(theirs).collect();
        held.extend(core::iter::from_fn(|| magazines.take(slab.slots())));
        held.sort_unstable();
        assert_eq!(held, [0, 1], "every slot is held once");
    });
}

/// A magazine of two slots changes hands whole.
#[test]
fn a_chain_changes_hands() {
    model("a_chain_changes_hands", || {
        let slab = StdArc::new(Slab::<u32>::new(4, Timestamp::ZERO));
        let held = fresh(&slab, 2);
        let giving = StdArc::clone(&slab);
        let giver = thread::spawn(move || {
            let mut magazine = Magazine::new();
            for index in held {
                magazine.push(giving.slots(), index);
            }
            giving.slots().give(magazine);
        });
        let mut magazines = Magazines::new();
        let mut taken = Vec::new();
        while taken.len() < 4 {
            match magazines.take(slab.slots()) {
                Some(index) => taken.push(index),
                None => thread::yield_now(),
            }
        }
        giver.join().unwrap();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3]);
    });
}

fn fresh(slab: &Slab<u32>, count: usize) -> Vec<u32> {
    let mut magazines = Magazines::new();
    (0..count).map(|_| magazines.take(slab.slots()).unwrap()).collect()
}

/// Legal endings: both threads use one segment, whoever made it.
#[test]
fn two_threads_grow_one_segment() {
    model("two_threads_grow_one_segment", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let other = StdArc::clone(&slab);
        let handle = thread::spawn(move || {
            let index = Magazines::new().take(other.slots()).unwrap();
            // SAFETY: we hold the slot.
            unsafe { other.write(index, 1) };
            index
        });
        let index = Magazines::new().take(slab.slots()).unwrap();
        // SAFETY: we hold the slot.
        unsafe { slab.write(index, 2) };
        assert_ne!(index, handle.join().unwrap());
    });
}
