//! A pool's sleep: no offer is lost.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the fence was left out.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | U1: `sleep_unless`'s fence | `an_offer_races_with_sleep`, `closing_races_with_sleep` |
//! | U1: `wake_one`'s fence | `an_offer_races_with_sleep` |
//! | U1: `wake_all`'s fence | `closing_races_with_sleep` |
//! | U2: `sleep_unless` | `a_bit_brings_its_thread` |
//! | U2: `wake_one` | `a_bit_brings_its_thread` |
//! | U2: `wake_all` | not tried: it takes bits away as `wake_one` does |

use super::model;
use crate::base::sync::{AtomicBool, AtomicU64, Ordering, StdArc, UnsafeCell, thread};
use crate::lockfree::roster::Roster;
use crate::lockfree::sleepers::Sleepers;

/// A pool of threads. The pool's work is a count of pieces of work. The count's atomic operations order no other memory
/// accesses.
struct Pool {
    work: AtomicU64,
    closed: AtomicBool,
    roster: StdArc<Roster>,
    sleepers: Sleepers,
}

impl Pool {
    fn new(threads: usize) -> StdArc<Self> {
        let roster = Roster::new(threads);
        StdArc::new(Self {
            work: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            sleepers: Sleepers::new(StdArc::clone(&roster)),
            roster,
        })
    }

    fn offer(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
        self.sleepers.wake_one();
    }

    fn take(&self) -> bool {
        let take = |work: u64| work.checked_sub(1);
        self.work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Runs thread `n` of the pool. The thread ends when it has taken one piece of work.
    fn take_one(&self, n: usize) {
        self.roster.enter_current_thread(n);
        while !self.take() {
            self.sleepers.sleep_unless(n, || self.work.load(Ordering::Relaxed) > 0);
        }
    }
}

/// A thread of the pool goes to sleep while work is offered. Legal endings: (a) the thread finds the work at its last
/// check before the sleep; (b) the thread is woken. A lost offer is a deadlock, which loom reports.
#[test]
fn an_offer_races_with_sleep() {
    model("an_offer_races_with_sleep", || {
        let pool = Pool::new(1);
        let sleeper = StdArc::clone(&pool);
        let thread = thread::spawn(move || sleeper.take_one(0));
        pool.offer();
        thread.join().unwrap();
    });
}

/// Two pieces of work are offered, and each finds a thread of the pool.
#[test]
fn two_offers_wake_two() {
    model("two_offers_wake_two", || {
        let pool = Pool::new(2);
        let threads: Vec<_> = (0..2)
            .map(|n| {
                let sleeper = StdArc::clone(&pool);
                thread::spawn(move || sleeper.take_one(n))
            })
            .collect();
        pool.offer();
        pool.offer();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The pool is closed while a thread goes to sleep. Either the thread sees that the pool is closed, or it is woken.
#[test]
fn closing_races_with_sleep() {
    model("closing_races_with_sleep", || {
        let pool = Pool::new(1);
        let sleeper = StdArc::clone(&pool);
        let thread = thread::spawn(move || {
            sleeper.roster.enter_current_thread(0);
            while !sleeper.closed.load(Ordering::Relaxed) {
                sleeper.sleepers.sleep_unless(0, || sleeper.closed.load(Ordering::Relaxed));
            }
        });
        pool.closed.store(true, Ordering::Relaxed);
        pool.sleepers.wake_all();
        thread.join().unwrap();
    });
}

/// A thread that goes to sleep sets its bit. Another thread that clears the bit sees the sleeper's earlier writes, such
/// as the registration of the sleeper's thread. Loom does not track the registration, so a cell stands for it.
#[test]
fn a_bit_brings_its_thread() {
    struct Adopted(UnsafeCell<bool>, Sleepers);
    // SAFETY: the cell is written before the bit is set, and read by the thread that takes the bit away.
    unsafe impl Sync for Adopted {}
    // SAFETY: as for `Sync` above.
    unsafe impl Send for Adopted {}

    model("a_bit_brings_its_thread", || {
        let roster = Roster::new(1);
        let sleepers = Sleepers::new(StdArc::clone(&roster));
        let shared = StdArc::new(Adopted(UnsafeCell::new(false), sleepers));
        let sleeper = StdArc::clone(&shared);
        let thread = thread::spawn(move || {
            // SAFETY: no thread reads before the bit is set.
            sleeper.0.with_mut(|adopted| unsafe { *adopted = true });
            roster.enter_current_thread(0);
            sleeper.1.sleep_unless(0, || false);
        });
        while !shared.1.wake_one() {
            thread::yield_now();
        }
        // SAFETY: the bit was taken away.
        assert!(shared.0.with(|adopted| unsafe { *adopted }), "the bit came without the sleeper's thread");
        thread.join().unwrap();
    });
}
