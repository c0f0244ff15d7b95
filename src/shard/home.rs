//! The home of a shard's thread: the core to which the thread is pinned.
//!
//! A pinned thread that wakes on a core of a busy thread waits for that core, and then takes it from the busy thread:
//! the timers are late, and the program's own work waits. Where another core is free, the system would have chosen that
//! core. So the thread *leaves* its home while it has to wait there, and the system places it. Later the thread
//! *returns*, and stays if it does not have to wait any more.
//!
//! ```text
//!            the thread waited too long in CROWDED_WINDOWS windows in a row
//!   at home ────────────────────────────────────────────────────────────────► away
//!      ▲                                                                        │
//!      └──────────────── `away_for` windows have passed ◄───────────────────────┘
//! ```
//! A *window* is a number of wake-ups. If timers are due in each tick of a millisecond, the first stay away lasts eight
//! seconds. Each further stay is twice as long, up to four minutes, until the thread has found its home free for a
//! while. A visit to a home that stays crowded takes three windows.

use crate::system::affinity::{self, AllowedCores, Pin};
use crate::system::waits::{WaitMeter, Waits};

/// The number of wake-ups in a window.
const WINDOW: u32 = 64;
/// The greatest mean wait for a core, in nanoseconds, that does not count as crowded. On a free core a wait takes less
/// than 1 µs, and beside a busy thread at least 8 µs.
const LONGEST_WAIT: u64 = 4_000;
/// The number of crowded windows in a row after which the thread leaves its home. A single one may be an accident.
const CROWDED_WINDOWS: u32 = 2;
/// The number of windows that the first stay away lasts.
const SHORTEST_STAY: u32 = 128;
const LONGEST_STAY: u32 = 4_096;
/// The number of windows without a crowd after which the next stay away is the shortest again.
const CALM_WINDOWS: u32 = 64;

/// The core of a shard's thread, and whether the thread is there.
#[derive(Debug)]
pub(super) struct Home<'a> {
    core: usize,
    allowed: &'a AllowedCores,
    meter: Option<WaitMeter>,
    crowding: Crowding,
}

impl<'a> Home<'a> {
    /// Pins the calling thread to `core`. Returns the reason if the system refuses. Away from `core`, the thread runs
    /// on the cores `allowed`.
    pub(super) fn enter(core: usize, allowed: &'a AllowedCores) -> Result<Self, Pin> {
        match affinity::pin_current_thread(core) {
            Pin::Pinned => {
                let meter = WaitMeter::of_current_thread();
                Ok(Self { core, allowed, meter, crowding: Crowding::default() })
            }
            refused => Err(refused),
        }
    }

    /// Counts a wake-up of the thread. Now and then lets the thread leave its home, or brings it back. Returns true if
    /// the thread left.
    pub(super) fn count_wake(&mut self) -> bool {
        let Self { core, allowed, meter, crowding } = self;
        match crowding.count_wake(|| meter.as_ref()?.read()) {
            None => false,
            Some(Move::Leave) => {
                allowed.restore();
                true
            }
            Some(Move::Return) => {
                // If the system refuses now, the thread stays where the system places it.
                let _pinned = affinity::pin_current_thread(*core);
                false
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Leave,
    Return,
}

/// Decides by a thread's waits whether the thread leaves its home or returns.
#[derive(Debug)]
struct Crowding {
    /// The wake-ups in the present window.
    wakes: u32,
    /// The waits at the start of the present window; `None` in the first window at home.
    waits: Option<Waits>,
    /// The crowded windows in a row, and the windows in a row that were not crowded.
    crowded: u32,
    calm: u32,
    /// The number of windows for which the thread is still away; zero at home.
    away_for: u32,
    next_stay: u32,
}

impl Default for Crowding {
    fn default() -> Self {
        Self { wakes: 0, waits: None, crowded: 0, calm: 0, away_for: 0, next_stay: SHORTEST_STAY }
    }
}

impl Crowding {
    fn count_wake(&mut self, waits: impl FnOnce() -> Option<Waits>) -> Option<Move> {
        self.wakes += 1;
        if self.wakes < WINDOW {
            return None;
        }
        self.wakes = 0;
        if self.away_for == 0 { self.end_window_at_home(waits()?) } else { self.end_window_away() }
    }

    fn end_window_at_home(&mut self, waits: Waits) -> Option<Move> {
        let before = self.waits.replace(waits)?;
        let times = waits.times.saturating_sub(before.times).max(1);
        if waits.nanos.saturating_sub(before.nanos) / times <= LONGEST_WAIT {
            self.crowded = 0;
            self.calm = self.calm.saturating_add(1);
            if self.calm == CALM_WINDOWS {
                self.next_stay = SHORTEST_STAY;
            }
            return None;
        }
        self.calm = 0;
        self.crowded += 1;
        if self.crowded < CROWDED_WINDOWS {
            return None;
        }
        self.crowded = 0;
        self.waits = None;
        self.away_for = self.next_stay;
        self.next_stay = (2 * self.next_stay).min(LONGEST_STAY);
        Some(Move::Leave)
    }

    fn end_window_away(&mut self) -> Option<Move> {
        self.away_for -= 1;
        (self.away_for == 0).then_some(Move::Return)
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    /// A thread whose waits are simulated.
    #[derive(Default)]
    struct Thread {
        crowding: Crowding,
        waits: Waits,
        is_away: bool,
    }

    impl Default for Waits {
        fn default() -> Self {
            Self { nanos: 7_000_000, times: 900 }
        }
    }

    impl Thread {
        /// Wakes the thread in `windows` windows; each time it waits for `nanos` ns. Returns the number of windows
        /// that the thread spent at home.
        fn wake(&mut self, windows: u32, nanos: u64) -> u32 {
            let mut at_home = 0;
            for _ in 0..windows {
                at_home += u32::from(!self.is_away);
                for _ in 0..WINDOW {
                    self.waits.times += 1;
                    self.waits.nanos += if self.is_away { 0 } else { nanos };
                    match self.crowding.count_wake(|| Some(self.waits)) {
                        Some(Move::Leave) => self.is_away = true,
                        Some(Move::Return) => self.is_away = false,
                        None => {}
                    }
                }
            }
            at_home
        }
    }

    #[test]
    fn a_free_core_is_never_left() {
        let mut thread = Thread::default();
        assert_eq!(thread.wake(10_000, 1_000), 10_000);
        assert_eq!(thread.wake(10_000, LONGEST_WAIT), 10_000);
    }

    #[test]
    fn a_single_crowded_window_is_an_accident() {
        let mut thread = Thread::default();
        for _ in 0..100 {
            thread.wake(1, 1_000_000);
            thread.wake(1, 0);
        }
        assert!(!thread.is_away);
    }

    #[test]
    fn a_crowded_core_is_left_and_tried_again_ever_more_seldom() {
        let mut thread = Thread::default();
        // The first window has no window before it to compare with.
        thread.wake(1 + CROWDED_WINDOWS, 8_000);
        assert!(thread.is_away);
        let at_home = thread.wake(100_000, 8_000);
        assert!(at_home < 120, "{at_home} of 100,000 windows in a crowd");
    }

    #[test]
    fn the_thread_returns_when_the_crowd_has_gone_and_forgets_it() {
        let mut thread = Thread::default();
        thread.wake(1_000, 8_000);
        thread.wake(LONGEST_STAY, 0);
        assert!(!thread.is_away);
        assert_eq!(thread.wake(10 * CALM_WINDOWS, 500), 10 * CALM_WINDOWS);
        assert_eq!(thread.crowding.next_stay, SHORTEST_STAY);
    }

    #[test]
    fn without_a_meter_the_thread_stays() {
        let mut crowding = Crowding::default();
        assert!((0..100_000).all(|_| crowding.count_wake(|| None).is_none()));
    }

    #[test]
    fn counts_that_step_back_or_stand_still_do_no_harm() {
        let mut crowding = Crowding::default();
        let mut odd = [u64::MAX, 0, u64::MAX, 5, 5].into_iter().cycle();
        for _ in 0..10_000 {
            crowding.count_wake(|| Some(Waits { nanos: odd.next()?, times: odd.next()? }));
        }
    }
}
