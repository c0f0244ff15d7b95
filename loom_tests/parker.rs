//! The shard's sleep: no wake is lost.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence or tag was left out. The models in
//! `shard.rs` run the same races with the shard's own loop.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | F1: `sleep`'s fence | `push_races_with_park`, `push_races_with_a_nap` |
//! | F1: `notify`'s fence | `push_races_with_park` |
//! | K2: `announce` | `an_announcement_brings_its_thread` |
//! | K2: `wake` | `an_announcement_brings_its_thread` |
//! | K2: `close` | none: it takes an announcement away as `wake` does |
//! | `announce`'s compare-and-swap made a load and a store | `close_races_with_a_nap`, `close_races_with_park`, `close_races_with_withdraw` |
//! | `withdraw`'s swap made a store | `close_races_with_a_nap`, `close_races_with_withdraw`, `shard::a_wanted_sweep_races_with_sleep` |
//! | K4: a nap is not withdrawn | `push_races_with_a_nap` |
//! | K1: `sleep` ignores `may_sleep` | `push_races_with_park`, `close_races_with_withdraw` |

use super::{model, nap, sleep, sleep_by};
use crate::base::sync::{Arc, AtomicBool, Ordering, StdArc, thread};
use crate::base::tick::Timestamp;
use crate::base::ticket::Insertion;
use crate::lockfree::inbox::{Inbox, InboxReader};
use crate::lockfree::parker::{Look, Notified, Parker};
use crate::lockfree::roster::Roster;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn push_and_notify(inbox: &Inbox, parker: &Parker, deadline: Timestamp) {
    let _ = inbox.register().push(Insertion { deadline, index: 0, stamp: 0 });
    assert_eq!(parker.notify(deadline), Notified::Open, "the parker is closed, though the engine is open");
}

/// Makes a parker (what a thread sleeps on), and the roster (the list of sleepers) of its thread.
fn parker() -> (StdArc<Roster>, StdArc<Parker>) {
    let roster = Roster::new(1);
    (StdArc::clone(&roster), StdArc::new(Parker::new(roster)))
}

/// Drains all lanes (queues to the shard). Returns whether a drained timer is due before `until`.
fn finds_earlier(reader: &mut InboxReader, until: Timestamp) -> bool {
    let mut found = false;
    reader.walk(|lane| lane.drain(|insertion| found |= insertion.deadline < until));
    found
}

/// A shard goes to sleep until 100 while a producer pushes a timer for 5. Legal endings: (a) the drain after the
/// shard's announcement sees the timer; (b) the producer unparks the shard. A lost wake is a deadlock, which loom
/// reports, because a park has no time limit in the model. (tokio #6682, gRPC #11667)
#[test]
fn push_races_with_park() {
    model("push_races_with_park", || {
        let inbox = StdArc::new(Inbox::new(64));
        let (roster, parker) = parker();
        let (shard_inbox, shard_parker) = (StdArc::clone(&inbox), StdArc::clone(&parker));
        let shard = thread::spawn(move || {
            roster.enter_current_thread(0);
            let mut reader = shard_inbox.reader();
            let mut found = false;
            while !found {
                let may_sleep = || {
                    found = finds_earlier(&mut reader, at(100));
                    !found
                };
                let _ = sleep(&shard_parker, Some(at(100)), may_sleep);
            }
        });
        push_and_notify(&inbox, &parker, at(5));
        shard.join().unwrap();
    });
}

/// A shard naps without a look at its lanes (the producers' queues), and then goes to sleep, while a producer pushes.
/// Legal endings: (a) the drain before the sleep sees the timer, even if the producer saw the nap; (b) the producer
/// unparks the shard.
#[test]
fn push_races_with_a_nap() {
    model("push_races_with_a_nap", || {
        let inbox = StdArc::new(Inbox::new(64));
        let (roster, parker) = parker();
        let (shard_inbox, shard_parker) = (StdArc::clone(&inbox), StdArc::clone(&parker));
        let shard = thread::spawn(move || {
            roster.enter_current_thread(0);
            let mut reader = shard_inbox.reader();
            assert!(nap(&shard_parker, at(100)), "the engine is open");
            assert_eq!(shard_parker.looks_at(), Some(Look::AtOnce), "the nap is not withdrawn");
            let mut found = false;
            while !found {
                let may_sleep = || {
                    found = finds_earlier(&mut reader, at(100));
                    !found
                };
                let _ = sleep(&shard_parker, Some(at(100)), may_sleep);
            }
        });
        push_and_notify(&inbox, &parker, at(5));
        shard.join().unwrap();
    });
}

/// A parker (what a thread sleeps on) is closed during a nap, a short sleep. The nap does not undo the close, and the
/// next sleep sees the close.
#[test]
fn close_races_with_a_nap() {
    model("close_races_with_a_nap", || {
        let (roster, parker) = parker();
        let shard_parker = StdArc::clone(&parker);
        let shard = thread::spawn(move || {
            roster.enter_current_thread(0);
            let _ = nap(&shard_parker, at(100));
            while !shard_parker.is_closed() {
                let _ = sleep(&shard_parker, None, || true);
            }
        });
        parker.close();
        shard.join().unwrap();
        assert!(parker.is_closed());
    });
}

/// A shard sleeps, or is about to sleep. Two producers push timers that are due before the end of that sleep. One
/// producer unparks the shard. If the shard was awake, neither producer unparks it.
#[test]
fn two_pushes_unpark_once() {
    model("two_pushes_unpark_once", || {
        let inbox = StdArc::new(Inbox::new(64));
        let (_, parker) = parker();
        let asleep = || {
            let other = (StdArc::clone(&inbox), StdArc::clone(&parker));
            let producer = thread::spawn(move || push_and_notify(&other.0, &other.1, at(5)));
            push_and_notify(&inbox, &parker, at(6));
            producer.join().unwrap();
            true
        };
        assert!(sleep_by(&parker, Some(at(100)), || true, asleep), "the shard did not go to sleep");
        assert_eq!(parker.unparks(), 1, "two producers unparked the shard, or none did");
    });
}

/// A timer that is later than the shard's first timer does not wake the shard, in any order of the steps.
#[test]
fn a_later_push_does_not_wake() {
    model("a_later_push_does_not_wake", || {
        let inbox = StdArc::new(Inbox::new(64));
        let (_, parker) = parker();
        let other = (StdArc::clone(&inbox), StdArc::clone(&parker));
        let producer = thread::spawn(move || push_and_notify(&other.0, &other.1, at(100)));
        let mut producer = Some(producer);
        let asleep = || producer.take().is_some_and(|producer| producer.join().is_ok());
        assert!(sleep_by(&parker, Some(at(100)), || true, asleep), "the shard did not go to sleep");
        assert_eq!(parker.unparks(), 0, "a later timer woke the shard");
    });
}

/// A thread is unparked before it parks. The unpark is not lost: the park ends at once.
#[test]
fn unpark_before_park_is_kept() {
    model("unpark_before_park_is_kept", || {
        let (roster, parker) = parker();
        let shard_parker = StdArc::clone(&parker);
        let announced = Arc::new(AtomicBool::new(false));
        let shard_announced = Arc::clone(&announced);
        let shard = thread::spawn(move || {
            roster.enter_current_thread(0);
            let may_sleep = || {
                shard_announced.store(true, Ordering::Release);
                true
            };
            assert!(sleep(&shard_parker, None, may_sleep), "the shard did not go to sleep");
        });
        while !announced.load(Ordering::Acquire) {
            thread::yield_now();
        }
        parker.wake_if_asleep();
        shard.join().unwrap();
    });
}

/// An engine is closed while a shard goes to sleep. Either the shard stays awake, or it is woken.
#[test]
fn close_races_with_park() {
    model("close_races_with_park", || {
        let (roster, parker) = parker();
        let shard_parker = StdArc::clone(&parker);
        let shard = thread::spawn(move || {
            roster.enter_current_thread(0);
            while !shard_parker.is_closed() {
                let _ = sleep(&shard_parker, None, || true);
            }
        });
        parker.close();
        shard.join().unwrap();
        assert!(parker.is_closed(), "the shard's way to sleep undid the close");
    });
}

/// A thread withdraws the announcement of its sleep while the parker (the word on which a thread sleeps) is closed. The
/// withdrawal does not undo the close.
#[test]
fn close_races_with_withdraw() {
    model("close_races_with_withdraw", || {
        let (_, parker) = parker();
        let shard_parker = StdArc::clone(&parker);
        let shard = thread::spawn(move || {
            let _ = sleep_by(&shard_parker, None, || false, || unreachable!());
        });
        parker.close();
        shard.join().unwrap();
        assert!(parker.is_closed(), "the withdrawal undid the close");
    });
}

/// A thread that takes away a shard's announcement of its sleep sees the shard's earlier writes. One of these writes
/// registers the shard's thread.
#[test]
fn an_announcement_brings_its_thread() {
    use crate::base::sync::UnsafeCell;
    struct Adopted(UnsafeCell<bool>, Parker);
    // SAFETY: the cell is written before the announcement, and read by the thread that takes the announcement away.
    unsafe impl Sync for Adopted {}
    // SAFETY: as for `Sync` above.
    unsafe impl Send for Adopted {}

    model("an_announcement_brings_its_thread", || {
        let shared = StdArc::new(Adopted(UnsafeCell::new(false), Parker::new(Roster::new(1))));
        let shard_shared = StdArc::clone(&shared);
        let shard = thread::spawn(move || {
            // SAFETY: no thread reads before the announcement.
            shard_shared.0.with_mut(|adopted| unsafe { *adopted = true });
            assert!(sleep_by(&shard_shared.1, None, || true, || true), "the shard did not go to sleep");
        });
        shared.1.wake_if_asleep();
        if shared.1.unparks() == 1 {
            // SAFETY: the announcement was taken away.
            assert!(
                shared.0.with(|adopted| unsafe { *adopted }),
                "the announcement came without the shard's thread"
            );
        }
        shard.join().unwrap();
    });
}
