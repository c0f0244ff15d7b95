//! The two words of a timer, and all transitions of their contents.
//!
//! Each transition for which threads may race is a compare-and-swap on the state. The thread whose compare-and-swap
//! succeeds owns the objects that the transition hands over, and no other thread accesses them. A timer needs no other
//! synchronisation. This page describes one-shot timers, which are scheduled once and found by their id. An owned
//! timer, which a handle arms any number of times, uses these two words by a protocol of its own: see [`owned`].
//!
//! # Layout
//! ```text
//! state      63                 24 23        8 7                                       0
//!           | generation          | sequence  | flags                                   |
//! deadline  nanoseconds on the engine's clock; in a vacant slot, the links of a magazine
//! flags      7 shut | 6 dropped | 5 changed | 4 checking | 3 owned | 2 waited | 1 running | 0 queued
//! stamp      15 owned | 14 0 of an owned timer the sequence; otherwise a hash of it and of the 16 bits above
//! ```
//! In this protocol a timer is `queued` or `running`, or its slot is vacant. All other flags are zero. `queued` means
//! the same as armed. A ticket carries the stamp of the arming that it stands for.
//!
//! # Invariants
//! I1. A handler runs at most once for each arming, only after a successful `claim`, and not before the deadline.
//! I1a. The deadline word decides, not the ticket. If the stamp of a stale ticket matches by chance, `claim` finds a
//!      deadline that has not come. Then `claim` reissues the ticket for that deadline under a new sequence. The cost
//!      is a check. At another loop's shard, the timer may fire on that loop, or move to it. The stamps of 16,384
//!      armings of one slot in a row differ if none of them was claimed early, and those of 2^15 tickets of an owned
//!      timer in a row differ. Beyond these, one stamp of 2^15 fits.
//! I1b. `claim_if` asks its caller whether the deadline has come. For a one-shot, `engine::fire` also accepts the
//!      moment at which the shard found the ticket due: a reading of the clock, or the `now` of a loop's turn. If the
//!      clock steps back after this moment, a stale ticket whose stamp fits can fire a timer early, if the timer is due
//!      in the ticket's own tick (`base::ticket`, "Never early"). A loop that turns for a moment in the future fires
//!      one-shots early.
//! I2. An armed timer has a valid ticket that is due when its deadline comes. Other tickets are garbage.
//! I3. The thread that takes a timer out of `queued` owns the timer's payload. The thread that makes the timer vacant
//!     owns the slot.
//! I4. After a `cancel` that returned `Won`, the handler does not run and has not begun.
//!
//! # Access
//! | word     | may be read by          | may be written by                                              |
//! |----------|-------------------------|----------------------------------------------------------------|
//! | state    | any thread              | queued: any CAS; running: the claimer; vacant: the slot's holder |
//! | deadline | any thread; valid while the state does not change | the holder of the vacant slot        |
//! | payload  | its current owner       | its current owner                                              |
//!
//! # Transitions
//! | operation  | from -> to                                | otherwise                                      |
//! |------------|-------------------------------------------|------------------------------------------------|
//! | `arm`      | vacant g -> queued g                      | only the slot's holder calls it                |
//! | `cancel`   | queued g -> vacant g+1                    | running g: `Running`; else `Gone`              |
//! | `claim`    | queued g, deadline passed -> running g    | early: queued g, sequence + 1; else `Stale`    |
//! | `finish`   | running g -> vacant g+1                   | only the claimer calls it                      |
//! | `evict`    | queued -> vacant g+1                      | else `None`                                    |
//!
//! # Races and their legal endings
//! - cancel x fire: only one CAS succeeds. Either `cancel` gives the payload to its caller and no handler runs, or
//!   `cancel` returns `Running` or `Gone`.
//! - cancel x drain: the ticket is dropped when it is drained, or later; it never fires.
//! - two cancels: one caller gets the payload, the other call returns `Gone`.
//! - schedule x shutdown: `evict` returns the payload to the shutdown, or the scheduler cancels its own timer.
//!
//! # Synchronisation
//! | pair | release side      | acquire side                        | handed over         | model |
//! |------|-------------------|-------------------------------------|---------------------|-------|
//! | T1   | `arm`             | `cancel`, `claim`, `evict`, `deadline` | payload and deadline | `state::cancel_races_with_fire` |
//! | T2   | `finish`          | `has_ended`, `cancel`               | the handler's effects | `state::who_waits_sees_what_the_handler_did` |
//! | T3   | `link`, `arm`     | `deadline`                          | the fact that the state had changed before | `state::a_read_deadline_is_the_timers_own` |

pub(crate) mod owned;

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::tick::Timestamp;
use crate::base::ticket::TimerId;

/// State flag: the timer is armed. The ticket (a request to check the timer) with the stamp of this state is valid.
const QUEUED: u64 = 1;
/// State flag: the timer's handler has begun.
const RUNNING: u64 = 1 << 1;
/// State flag: a thread waits for the end of the timer's handler.
const WAITED: u64 = 1 << 2;
/// State flag: the slot belongs to an owned timer. A handle arms and disarms such a timer.
const OWNED: u64 = 1 << 3;
const FLAGS: u64 = 0xff;
const SEQUENCE_SHIFT: u32 = 8;
const SEQUENCE: u64 = 0xffff << SEQUENCE_SHIFT;
const GENERATION_SHIFT: u32 = 24;

/// The outcome of cancelling a one-shot. Either the caller owns the payload and the slot, or the variant says why not.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Cancel {
    /// The caller owns the payload and the slot.
    Won,
    /// The timer's handler has begun, so the caller owns nothing.
    Running,
    /// The timer was fired, was cancelled, or was taken out by a shutdown before.
    Gone,
}

/// The outcome of claiming a one-shot whose ticket is due. It says what the holder of the ticket does next.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Claim {
    /// The timer is due. The caller owns the payload, runs the handler and calls `finish`.
    Won { generation: u64, deadline: Timestamp },
    /// The deadline has not come. The caller issues a ticket with `stamp` for `deadline` (I2).
    Early { stamp: u16, deadline: Timestamp },
    /// The ticket is stale. The caller drops it.
    Stale,
}

/// The state and the deadline of one timer. Both words together have 16 bytes, so that arming touches one cache line.
#[derive(Debug)]
pub(crate) struct Control {
    state: AtomicU64,
    deadline: AtomicU64,
}

const fn generation_of(state: u64) -> u64 {
    state >> GENERATION_SHIFT
}

/// Returns the sequence number in `state` and the 16 bits above it, as one number.
#[expect(clippy::cast_possible_truncation, reason = "a part of the word")]
const fn number_of(state: u64) -> u32 {
    (state >> SEQUENCE_SHIFT) as u32
}

/// The bit of a stamp that says that the ticket belongs to an owned timer.
const OWNED_STAMP: u16 = 1 << 15;

/// Returns the stamp of the ticket that stands for the arming in `state`.
#[expect(clippy::cast_possible_truncation, reason = "parts of the word")]
const fn stamp_of(state: u64) -> u16 {
    if state & OWNED != 0 {
        // The bits above the sequence are a moment, which must not make the stamps of two tickets equal.
        return number_of(state) as u16 | OWNED_STAMP;
    }
    // Multiplicative hashing spreads both the generations and the sequences. The factor is 2^32 divided by the golden
    // ratio.
    (number_of(state).wrapping_mul(0x9e37_79b9) >> 17) as u16
}

/// Returns `state` with the next sequence number. All existing tickets of the slot are stale then.
const fn next_sequence(state: u64) -> u64 {
    state & !SEQUENCE | state.wrapping_add(1 << SEQUENCE_SHIFT) & SEQUENCE
}

/// Returns whether `state` says that the one-shot timer with this id is armed.
#[inline(always)]
const fn is_armed(state: u64, id: TimerId) -> bool {
    state & FLAGS == QUEUED && id.is_of(generation_of(state))
}

/// Returns whether `state` says that the handler of the one-shot timer with this id runs.
const fn is_running(state: u64, id: TimerId) -> bool {
    state & (OWNED | RUNNING) == RUNNING && id.is_of(generation_of(state))
}

/// Returns the state of a vacant slot. The state holds the low 40 bits of `generation`.
const fn vacant(generation: u64) -> u64 {
    generation << GENERATION_SHIFT
}

impl Control {
    /// Makes a vacant slot in its first generation. All its bytes are zero, which `slab` relies on.
    #[cfg(all(test, tourbillon_loom))]
    pub(crate) fn new() -> Self {
        Self { state: AtomicU64::new(0), deadline: AtomicU64::new(0) }
    }

    /// Arms a vacant slot. The caller holds the slot and has written the payload. Returns the timer's id and the stamp
    /// for its ticket.
    #[inline]
    pub(crate) fn arm(&self, index: u32, deadline: Timestamp) -> (TimerId, u16) {
        // Ordering: Relaxed. We hold the vacant slot, and no other thread writes its words.
        let state = self.state.load(Ordering::Relaxed);
        debug_assert_eq!(state, vacant(generation_of(state)), "armed a slot that is in use");
        // Ordering: Release [T3], as in `link`.
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
        // Ordering: Release [T1]. Publishes the payload and the deadline.
        self.state.store(state | QUEUED, Ordering::Release);
        (TimerId::new(index, generation_of(state)), stamp_of(state))
    }

    /// Returns whether a ticket with this stamp may still lead to a firing. This holds for one-shots and for owned
    /// timers.
    #[inline]
    pub(crate) fn is_live(&self, stamp: u16) -> bool {
        self.live_stamp() == Some(stamp)
    }

    /// Returns the stamp of the only ticket that may still make the timer fire. Returns `None` if no ticket may.
    #[inline]
    pub(crate) fn live_stamp(&self) -> Option<u16> {
        // Ordering: Relaxed. A ticket was posted after its arming, so this load reads the state of that arming or a
        // newer one. The result decides only whether a ticket is kept.
        let state = self.state.load(Ordering::Relaxed);
        (state & QUEUED != 0).then(|| stamp_of(state))
    }

    #[inline]
    pub(crate) fn cancel(&self, id: TimerId) -> Cancel {
        // Ordering: Acquire [T1, T2]. The payload of this arming. If the handler has ended, also the handler's effects,
        // which `cancel_and_wait` promises.
        let mut state = self.state.load(Ordering::Acquire);
        while is_armed(state, id) {
            match self.leave_armed(state, vacant(generation_of(state) + 1)) {
                Ok(()) => return Cancel::Won,
                Err(newer) => state = newer,
            }
        }
        if is_running(state, id) { Cancel::Running } else { Cancel::Gone }
    }

    /// Takes a one-shot whose ticket is due, so that the caller may run the handler. `now` is the moment at which the
    /// handler would begin.
    #[cfg(test)]
    pub(crate) fn claim(&self, stamp: u16, now: Timestamp) -> Claim {
        self.claim_if(stamp, |deadline| deadline <= now)
    }

    /// Takes a one-shot whose ticket is due, so that the caller may run the handler. `has_come` says whether the
    /// deadline of the timer has come.
    #[inline]
    pub(crate) fn claim_if(&self, stamp: u16, has_come: impl Fn(Timestamp) -> bool) -> Claim {
        // Ordering: Acquire [T1]. The deadline of this arming.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state & QUEUED == 0 || stamp_of(state) != stamp {
                return Claim::Stale;
            }
            // Ordering: Relaxed. The value is not older than the arming (T1). If it is newer, our CAS fails: the next
            // write of this word comes after a change of the state.
            let deadline = Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed));
            let generation = generation_of(state);
            if has_come(deadline) {
                match self.leave_armed(state, vacant(generation) | RUNNING) {
                    Ok(()) => return Claim::Won { generation, deadline },
                    Err(newer) => state = newer,
                }
            } else {
                let next = next_sequence(state);
                match self.leave_armed(state, next) {
                    Ok(()) => return Claim::Early { stamp: stamp_of(next), deadline },
                    Err(newer) => state = newer,
                }
            }
        }
    }

    #[inline]
    fn leave_armed(&self, from: u64, to: u64) -> Result<(), u64> {
        // Ordering: Release. Our read of the deadline is complete, so it cannot have returned a later owner's deadline
        // (a load that waits for a later store, which loom does not explore). No Acquire: no state occurs twice, so
        // this CAS reads the value that the load which returned `from` acquired (T1). Failure Acquire [T1]: the retry
        // reads the payload and the deadline of a newer arming.
        self.state.compare_exchange_weak(from, to, Ordering::Release, Ordering::Acquire).map(drop)
    }

    /// Ends the handler's run. The caller owns the slot from then on. A thread may wait for the end, so the caller
    /// announces it afterwards.
    #[inline]
    pub(crate) fn finish(&self, generation: u64) {
        debug_assert_eq!(self.state.load(Ordering::Relaxed), vacant(generation) | RUNNING);
        // Ordering: Release [T2]. The handler's effects. A store suffices: while a handler runs, only its claimer
        // changes the state.
        self.state.store(vacant(generation + 1), Ordering::Release);
    }

    pub(crate) fn is_running(&self, id: TimerId) -> bool {
        // Ordering: Acquire [T2]. If the handler has ended, the handler's effects.
        is_running(self.state.load(Ordering::Acquire), id)
    }

    pub(crate) fn has_ended(&self, id: TimerId) -> bool {
        // Ordering: Acquire [T2]. The handler's effects.
        let state = self.state.load(Ordering::Acquire);
        state & OWNED != 0 || !id.is_of(generation_of(state))
    }

    /// Takes an armed timer of any generation out, for the shutdown. Returns the timer's generation and deadline.
    pub(crate) fn evict(&self) -> Option<(u64, Timestamp)> {
        // Ordering: Acquire [T1]. The deadline of this arming.
        let mut state = self.state.load(Ordering::Acquire);
        while state & FLAGS == QUEUED {
            // Ordering: Relaxed, as in `claim`.
            let deadline = Timestamp::from_nanos(self.deadline.load(Ordering::Relaxed));
            let generation = generation_of(state);
            match self.leave_armed(state, vacant(generation + 1)) {
                Ok(()) => return Some((generation, deadline)),
                Err(newer) => state = newer,
            }
        }
        None
    }

    pub(crate) fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        // Ordering: Acquire [T1]. The deadline of this arming.
        let before = self.state.load(Ordering::Acquire);
        if !is_armed(before, id) {
            return None;
        }
        // Ordering: Acquire [T3]. If this is a later owner's word, the next load shows that the state has changed.
        let deadline = self.deadline.load(Ordering::Acquire);
        // Ordering: Relaxed. The load above orders this one.
        let after = self.state.load(Ordering::Relaxed);
        is_armed(after, id).then_some(Timestamp::from_nanos(deadline))
    }

    /// Returns the deadline word. If the timer has ended, the word contains a link or the deadline of a later timer. So
    /// the caller may use the value only as a hint.
    #[inline]
    pub(crate) fn deadline_as_a_hint(&self) -> u64 {
        // Ordering: Relaxed. Nothing depends on the value.
        self.deadline.load(Ordering::Relaxed)
    }

    /// Returns the link word of a vacant slot. The link words chain vacant slots.
    #[inline]
    pub(crate) fn links(&self) -> u64 {
        // Ordering: Relaxed. A thread that follows a link either got the slot by a CAS that acquired it (`slab`, D1),
        // or discards the value when that CAS fails.
        self.deadline.load(Ordering::Relaxed)
    }

    /// Writes the link word of a vacant slot. The link words chain vacant slots. The caller holds the slot.
    #[inline]
    pub(crate) fn link(&self, links: u64) {
        // Ordering: Release [T3]. A reader that takes this link word for a deadline sees that the slot was vacated.
        self.deadline.store(links, Ordering::Release);
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    /// Reuses the slot of an id 2^32 times, and then 2^39 times in all. A tight loop makes 2^32 uses in less than two
    /// minutes.
    #[test]
    fn a_stale_id_stays_stale_when_its_slot_is_reused_for_hours() {
        let at = Timestamp::from_nanos;
        let control = Control { state: AtomicU64::new(vacant(5)), deadline: AtomicU64::new(0) };
        let (stale, _) = control.arm(7, at(1));
        assert_eq!(control.cancel(stale), Cancel::Won);
        for reuses in [1, 1 << 32, (1 << 39) - 1] {
            control.state.store(vacant(5 + reuses), Ordering::Relaxed);
            let (id, _) = control.arm(7, at(2));
            assert_ne!(id, stale);
            assert_eq!((control.cancel(stale), control.deadline(stale)), (Cancel::Gone, None));
            assert!(control.has_ended(stale));
            assert_eq!((control.deadline(id), control.cancel(id)), (Some(at(2)), Cancel::Won));
        }
    }

    #[test]
    fn stamps_differ_for_thousands_of_armings_in_a_row() {
        const ARMINGS: u64 = 1 << 14;
        let generation = |n: u64| vacant((1 << 40) - ARMINGS / 2 + n) | QUEUED;
        // With any moments of the checks.
        let sequence = |n: u64| vacant(n * 3_951) | n << SEQUENCE_SHIFT & SEQUENCE | OWNED;
        for state in [generation, sequence] {
            let stamps: std::collections::BTreeSet<u16> = (0..ARMINGS).map(|n| stamp_of(state(n))).collect();
            assert_eq!(stamps.len() as u64, ARMINGS);
        }
        assert!(stamp_of(u64::MAX) > u16::MAX >> 1 && stamp_of(!OWNED) <= u16::MAX >> 1);
    }

    #[test]
    fn generations_go_round_in_any_slot() {
        let at = Timestamp::from_nanos;
        for index in [7, 1 << 24, u32::MAX - 1] {
            for generation in [(1 << 31) - 1, (1 << 32) - 1, (1 << 39) - 1, (1 << 40) - 1] {
                let control =
                    Control { state: AtomicU64::new(vacant(generation)), deadline: AtomicU64::new(0) };
                for _ in 0..3 {
                    let (id, _) = control.arm(index, at(1));
                    assert_eq!((id.index(), control.deadline(id)), (index, Some(at(1))));
                    assert_eq!(control.cancel(id), Cancel::Won);
                    assert_eq!(control.cancel(id), Cancel::Gone);
                    let (id, stamp) = control.arm(index, at(1));
                    let Claim::Won { generation, .. } = control.claim(stamp, at(1)) else { panic!("{id:?}") };
                    assert_eq!(control.cancel(id), Cancel::Running);
                    assert!(control.is_running(id) && !control.has_ended(id));
                    control.finish(generation);
                    assert!(control.has_ended(id));
                }
            }
        }
    }
}
