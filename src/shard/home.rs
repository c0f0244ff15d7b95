//! The home of a shard's thread: the core to which the thread is pinned.
//!
//! A pinned thread that wakes on the core of a busy thread takes that core: the program's own work waits. Where another
//! core is free, the system would have chosen that core. So now and then the thread asks the system. It gives its
//! pinning up for a *trial* of some wake-ups. The system prefers the core on which a thread ran last, if that core is
//! free. If it places the thread elsewhere in the trial, the thread's home is crowded, and another core is free. Then
//! the thread stays *away* for a while.
//!
//! ```text
//!            the stay is over              the system chose other cores
//!   at home ──────────────────► in a trial ─────────────────────────────► away
//!      ▲ ▲                          │                                       │
//!      │ └──────────────────────────┘                                       │
//!      │    the system chose home                                           │
//!      └────────────────────────────────────────────────────────────────────┘
//!        the stay is over: the next wake-up begins a trial
//! ```
//!
//! If timers are due in each tick of a millisecond, a trial takes 16 ms. The first stay at home lasts 128 ms, and each
//! further one is twice as long, up to a second, until a trial finds the home crowded. The first stay away lasts eight
//! seconds, and each further one is twice as long, up to four minutes, until a trial finds the home free. Between two
//! stays away the thread wakes at home twice.

use crate::system::affinity::{self, AllowedCores, Pin};

/// The number of wake-ups in a trial. In a trial the thread is unpinned, to see which core the system chooses.
const TRIAL: u32 = 16;
/// The least number of wake-ups on other cores in a trial that shows that the thread's own core is crowded. A few may
/// be accidents.
const CROWDED: u32 = 12;
/// The shortest and the longest stay of a thread on its own core, in wake-ups.
const AT_HOME: [u32; 2] = [128, 1_024];
/// The shortest and the longest stay of a thread away from its own core, in wake-ups.
const AWAY: [u32; 2] = [8_192, 262_144];

/// The home of a shard's thread: the core to which it is pinned. Also records whether the thread is there.
#[derive(Debug)]
pub(super) struct Home<'a> {
    core: usize,
    allowed: &'a AllowedCores,
    stay: Stay,
}

impl<'a> Home<'a> {
    /// Pins the calling thread to `core`. Returns the reason if the system refuses. Away from `core`, the thread runs
    /// on the cores `allowed`.
    pub(super) fn enter(core: usize, allowed: &'a AllowedCores) -> Result<Self, Pin> {
        match affinity::pin_current_thread(core) {
            Pin::Pinned => Ok(Self { core, allowed, stay: Stay::default() }),
            refused => Err(refused),
        }
    }

    /// Counts a wake-up of the thread. Now and then unpins the thread for a trial of some wake-ups, in which the system
    /// chooses its core, or pins it again. Returns true if the thread leaves its home, the core to which it is pinned.
    pub(super) fn count_wake(&mut self) -> bool {
        let Self { core, allowed, stay } = self;
        match stay.count_wake(|| affinity::current_core().is_none_or(|current| current == *core)) {
            None => false,
            Some(Change::Unpin) => {
                allowed.restore();
                false
            }
            Some(Change::Leave) => true,
            Some(Change::Pin) => {
                // If the system refuses now, the thread stays where the system places it.
                let _pinned = affinity::pin_current_thread(*core);
                false
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Unpin,
    /// The thread stays unpinned and so leaves its home core.
    Leave,
    Pin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home,
    /// The thread is unpinned for some wake-ups, to see which core the system chooses. The number counts the wake-ups
    /// on other cores than the home.
    Trial(u32),
    Away,
}

/// Decides whether a thread stays on its home core, by the cores on which it wakes.
#[derive(Debug)]
struct Stay {
    place: Place,
    /// The number of wake-ups until the place changes; at least 1.
    left: u32,
    /// The numbers of wake-ups in the next stay on the home core, and in the next stay away from it.
    next_at_home: u32,
    next_away: u32,
}

impl Default for Stay {
    fn default() -> Self {
        Self { place: Place::Home, left: 1, next_at_home: AT_HOME[0], next_away: AWAY[0] }
    }
}

impl Stay {
    fn count_wake(&mut self, is_at_home: impl FnOnce() -> bool) -> Option<Change> {
        if let Place::Trial(elsewhere) = &mut self.place {
            *elsewhere += u32::from(!is_at_home());
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let (place, left, change) = match self.place {
            Place::Home => (Place::Trial(0), TRIAL, Change::Unpin),
            Place::Trial(CROWDED..) => {
                let stay = self.next_away;
                self.next_away = (2 * stay).min(AWAY[1]);
                self.next_at_home = AT_HOME[0];
                (Place::Away, stay, Change::Leave)
            }
            Place::Trial(_) => {
                let stay = self.next_at_home;
                self.next_at_home = (2 * stay).min(AT_HOME[1]);
                self.next_away = AWAY[0];
                (Place::Home, stay, Change::Pin)
            }
            Place::Away => (Place::Home, 1, Change::Pin),
        };
        (self.place, self.left) = (place, left);
        Some(change)
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Thread {
        stay: Stay,
        is_pinned: bool,
        at_home: u32,
        departures: u32,
        trials: u32,
    }

    impl Thread {
        fn new() -> Self {
            Self { is_pinned: true, ..Self::default() }
        }

        /// Wakes the thread `times` times. Where the thread is not pinned, `is_free` says whether the system chooses
        /// its home.
        fn wake(&mut self, times: u32, mut is_free: impl FnMut() -> bool) {
            for _ in 0..times {
                let is_at_home = self.is_pinned || is_free();
                self.at_home += u32::from(is_at_home);
                match self.stay.count_wake(|| is_at_home) {
                    Some(Change::Unpin) => {
                        self.is_pinned = false;
                        self.trials += 1;
                    }
                    Some(Change::Pin) => self.is_pinned = true,
                    Some(Change::Leave) => self.departures += 1,
                    None => {}
                }
            }
        }
    }

    #[test]
    fn a_free_core_is_never_left() {
        let mut thread = Thread::new();
        thread.wake(1_000_000, || true);
        assert_eq!((thread.at_home, thread.departures), (1_000_000, 0));
        assert!(thread.trials > 900, "{}", thread.trials);
    }

    #[test]
    fn a_few_wake_ups_elsewhere_are_accidents() {
        let mut thread = Thread::new();
        let mut count = 0;
        thread.wake(1_000_000, || {
            count += 1;
            count % 3 == 0
        });
        assert_eq!(thread.departures, 0);
    }

    #[test]
    fn a_crowded_core_is_left_in_the_first_trial_and_visited_ever_more_seldom() {
        let mut thread = Thread::new();
        thread.wake(1 + TRIAL, || false);
        assert_eq!((thread.at_home, thread.departures), (1, 1));
        thread.wake(10_000_000, || false);
        let visits = thread.departures;
        assert!((30..60).contains(&visits), "{visits}");
        assert!(thread.at_home <= 2 * visits, "{} wake-ups at home", thread.at_home);
    }

    #[test]
    fn a_crowd_that_comes_later_is_noticed_soon() {
        let mut thread = Thread::new();
        thread.wake(100_000, || true);
        let before = thread.at_home;
        thread.wake(5_000, || false);
        assert_eq!(thread.departures, 1);
        assert!(thread.at_home - before <= AT_HOME[1] + 2);
    }

    #[test]
    fn the_thread_returns_when_the_crowd_has_gone_and_forgets_it() {
        let mut thread = Thread::new();
        thread.wake(1_000_000, || false);
        thread.wake(AWAY[1] + 2 * TRIAL, || true);
        assert!(thread.is_pinned);
        assert_eq!(thread.stay.next_away, AWAY[0]);
    }
}
