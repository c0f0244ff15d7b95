//! Sessions, in which handlers run, and their races with a stop of the engine. When the engine has stopped and no
//! session is open, it is *quiescent*.
//!
//! Each row was tried: the named ordering was made `Relaxed`, or the step was changed as the row says.
//!
//! | weakened | model that goes red |
//! |----------|---------------------|
//! | E1, E2: `begin` is a load and a store | `a_quiescent_engine_has_what_its_handlers_did`, `another_session_hides_nothing`, `the_last_end_says_so_or_stop_finds_quiescence` |
//! | E1, E2: `stop` is a load and a store | all of them |
//! | E1: `stop` lets each caller evict | `the_second_stop_has_what_the_first_evicted` |
//! | E3: `end` never says that it was the last | `the_last_end_says_so_or_stop_finds_quiescence` |
//! | E4: `end` | `a_quiescent_engine_has_what_its_handlers_did`, `another_session_hides_nothing` |
//! | E4: `is_quiescent` | `a_quiescent_engine_has_what_its_handlers_did`, `another_session_hides_nothing` |
//! | E5: `evicted` | `the_second_stop_has_what_the_first_evicted` |
//! | E5: `has_evicted` | `the_second_stop_has_what_the_first_evicted` |

use super::model;
use crate::base::sync::{AtomicU64, Ordering, StdArc, UnsafeCell, thread};
use crate::lockfree::sessions::Sessions;

/// An engine with a cell in place of its timers. Handlers and the eviction write the cell without an ordering of their
/// own.
struct Engine {
    sessions: Sessions,
    cell: UnsafeCell<u32>,
}

// SAFETY: the cell is touched inside sessions. When the engine is quiescent, only the thread that may evict touches it.
unsafe impl Sync for Engine {}
// SAFETY: as for `Sync` above.
unsafe impl Send for Engine {}

impl Engine {
    fn new() -> StdArc<Self> {
        StdArc::new(Self { sessions: Sessions::new(), cell: UnsafeCell::new(0) })
    }

    fn write(&self, value: u32) {
        // SAFETY: the caller may touch the cell: see `Sync`.
        self.cell.with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: as in `write` above.
        self.cell.with(|cell| unsafe { *cell })
    }

    /// Runs a session (the firing of a chunk of timers) as `engine::fire` does. Returns whether the session fired.
    fn session(&self) -> bool {
        self.sessions.begin();
        let fires = !self.sessions.is_stopping();
        if fires {
            self.write(1);
        }
        let _is_last = self.sessions.end();
        fires
    }

    fn await_quiescence(&self) {
        while !self.sessions.is_quiescent() {
            thread::yield_now();
        }
    }
}

/// A session races with a shutdown. Legal endings: (a) the session fires, and the shutdown that finds the engine
/// quiescent sees the session's write; (b) the session fires nothing. If a session fired after the stop, its write
/// would race with the read here.
#[test]
fn a_quiescent_engine_has_what_its_handlers_did() {
    model("a_quiescent_engine_has_what_its_handlers_did", || {
        let engine = Engine::new();
        let working = StdArc::clone(&engine);
        let worker = thread::spawn(move || working.session());
        let right = engine.sessions.stop();
        assert!(right.is_some(), "the only stop is the first");
        engine.await_quiescence();
        let seen = engine.read();
        let fired = worker.join().unwrap();
        assert_eq!(seen, u32::from(fired), "the shutdown missed what a handler did");
    });
}

/// A session races with a shutdown. Another session changes the word of sessions in between.
#[test]
fn another_session_hides_nothing() {
    model("another_session_hides_nothing", || {
        let engine = Engine::new();
        let (working, idling) = (StdArc::clone(&engine), StdArc::clone(&engine));
        let worker = thread::spawn(move || working.session());
        let idler = thread::spawn(move || {
            idling.sessions.begin();
            let _is_last = idling.sessions.end();
        });
        let _right = engine.sessions.stop();
        engine.await_quiescence();
        let seen = engine.read();
        let fired = worker.join().unwrap();
        idler.join().unwrap();
        assert_eq!(seen, u32::from(fired), "the shutdown missed what a handler did");
    });
}

/// Two sessions (firings of some timers) race with a shutdown. Legal endings: (a) the shutdown finds the engine
/// quiescent at once; (b) one of the two sessions ends last, and its call of `end` returns true.
#[test]
fn the_last_end_says_so_or_stop_finds_quiescence() {
    model("the_last_end_says_so_or_stop_finds_quiescence", || {
        let engine = Engine::new();
        let said = StdArc::new(AtomicU64::new(0));
        let workers = [(); 2].map(|()| {
            let (working, said) = (StdArc::clone(&engine), StdArc::clone(&said));
            thread::spawn(move || {
                working.sessions.begin();
                if working.sessions.end() {
                    said.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let _right = engine.sessions.stop();
        let is_quiescent = engine.sessions.is_quiescent();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(is_quiescent || said.load(Ordering::Relaxed) > 0, "a shutdown waits, and nobody wakes it");
    });
}

/// Two calls of `stop` race. Legal endings: either call is the first, and the other call sees the eviction of the
/// first.
#[test]
fn the_second_stop_has_what_the_first_evicted() {
    fn shut_down(engine: &Engine) -> bool {
        let right = engine.sessions.stop();
        let is_first = right.is_some();
        match right {
            Some(right) => {
                engine.write(1);
                engine.sessions.evicted(right);
            }
            None => {
                while !engine.sessions.has_evicted() {
                    thread::yield_now();
                }
            }
        }
        assert_eq!(engine.read(), 1, "it returned before the eviction");
        is_first
    }

    model("the_second_stop_has_what_the_first_evicted", || {
        let engine = Engine::new();
        let ending = StdArc::clone(&engine);
        let another = thread::spawn(move || shut_down(&ending));
        let is_first = shut_down(&engine);
        assert!(is_first != another.join().unwrap(), "one shutdown is the first");
    });
}
