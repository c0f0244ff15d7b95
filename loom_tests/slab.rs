//! Slots for timers that go from thread to thread. A thread takes slots from its magazine. The depot gives magazines
//! out and takes them back.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence or tag was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | D1: `publish` | `a_magazine_changes_hands`, `takers_and_a_giver_never_share_a_slot`, and two more |
//! | D1: `take_magazine`'s load | the same four |
//! | D1: `take_magazine`'s swap that fails | `takers_and_a_giver_never_share_a_slot`, `a_magazine_is_split` |
//! | D2: the tag, in both | `takers_and_a_giver_never_share_a_slot` |
//! | `give` counts the slots after it publishes them | `a_chain_changes_hands` |
//! | `take` discounts the slots that it splits off | `a_magazine_is_split` |
//! | `take` keeps the slots that it splits off | `a_magazine_is_split`, `a_chain_changes_hands` |
//! | a thread that finds no magazine does not look again | `a_magazine_is_split` |
//! | G2: `grow` | `two_threads_grow_one_segment` |
//! | G2: `get` | `two_threads_grow_one_segment` |

use super::model;
use crate::base::sync::{StdArc, thread};
use crate::base::tick::Timestamp;
use crate::lockfree::slab::{Magazine, Magazines, Slab};

/// A thread takes a slot that another thread has vacated. The first thread sees the slot's links and the slot's payload
/// cell as the other thread left them.
#[test]
fn a_magazine_changes_hands() {
    model("a_magazine_changes_hands", || {
        let slab = StdArc::new(Slab::<u32>::new(1, Timestamp::ZERO));
        let index = Magazines::new().take(slab.slots()).unwrap();
        let giving = StdArc::clone(&slab);
        let giver = thread::spawn(move || {
            // SAFETY: this thread holds the slot.
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
        assert_eq!(taken, index, "a slot came from nowhere");
        // SAFETY: the depot gave the slot to this thread.
        unsafe { slab.write(taken, 2) };
        giver.join().unwrap();
    });
}

/// Two threads take magazines (stocks of free slots) while one of them gives a magazine back. No thread gets a slot
/// that another thread has. Without tags, the depot, the store of magazines, would have the ABA problem here.
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
        assert_eq!(held, [0, 1], "a slot is held twice, or lost");
    });
}

/// A magazine with two slots goes to another thread as a whole.
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
        assert_eq!(taken, [0, 1, 2, 3], "a slot of the chain was lost, or taken twice");
    });
}

/// Two threads want a slot each. Only one magazine with two slots is left, so the magazine is split. If necessary, the
/// second thread waits for the remaining slot.
#[test]
fn a_magazine_is_split() {
    model("a_magazine_is_split", || {
        let slab = StdArc::new(Slab::<u32>::new(4, Timestamp::ZERO));
        let held = fresh(&slab, 4);
        let mut magazine = Magazine::new();
        magazine.push(slab.slots(), held[0]);
        magazine.push(slab.slots(), held[1]);
        slab.slots().give(magazine);
        let other = StdArc::clone(&slab);
        let taker = thread::spawn(move || Magazines::new().take(other.slots()).unwrap());
        let mut taken = [Magazines::new().take(slab.slots()).unwrap(), taker.join().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [held[0], held[1]], "a slot of the split magazine was lost, or taken twice");
        assert_eq!(Magazines::new().take(slab.slots()), None, "a slot was left over, or came back");
    });
}

fn fresh(slab: &Slab<u32>, count: usize) -> Vec<u32> {
    let mut magazines = Magazines::new();
    (0..count).map(|_| magazines.take(slab.slots()).unwrap()).collect()
}

/// Two threads make the slab grow. Legal ending: both use one new segment, which either thread has made.
#[test]
fn two_threads_grow_one_segment() {
    model("two_threads_grow_one_segment", || {
        let slab = StdArc::new(Slab::<u32>::new(2, Timestamp::ZERO));
        let other = StdArc::clone(&slab);
        let handle = thread::spawn(move || {
            let index = Magazines::new().take(other.slots()).unwrap();
            // SAFETY: the other thread holds the slot.
            unsafe { other.write(index, 1) };
            index
        });
        let index = Magazines::new().take(slab.slots()).unwrap();
        // SAFETY: this thread holds the slot.
        unsafe { slab.write(index, 2) };
        assert_ne!(index, handle.join().unwrap(), "two threads have one slot");
    });
}
