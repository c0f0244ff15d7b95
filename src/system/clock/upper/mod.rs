//! An upper bound of the true time, at the cost of reading the processor's counter.
//!
//! A deadline is `now + delay`, and a timer must not fire before `delay` has passed by the system's own clock. So the
//! `now` of an arming must not be before the true time, but may be a little after it. This clock returns the value of a
//! *line*, a function of the counter that stays above the true time and close to it. The line consists of straight
//! *pieces*.
//!
//! # The line
//! ```text
//!  time │                      ___/   the next piece begins at the end of the last one, or at the
//!       │                 ___/·       truth and the margin if that is later, and comes down to the
//!       │            ___/· ·          truth and the margin by its own end
//!       │       ___/ ·
//!       │   __/· ·    · the true time
//!       └──────────────────────────── counter
//! ```
//! A piece is valid for at most [`PIECE_NANOS`]. A call that finds the piece ended reads the true clock. If calls are
//! frequent, it also publishes the next piece. No thread runs and no thread wakes for the line.
//!
//! A piece costs several readings of the true clock, so a piece has to serve some calls. A call
//! publishes a piece if the last piece ended just before the call, or if it is the last of [`FREQUENT`] calls without a
//! valid piece within the length of a piece. Other calls are *rare*: they return the true time and publish nothing.
//!
//! # Invariants
//! Q1. A piece is at or above the true time for every counter at which the piece is valid. This holds even if the
//!     system slews its clock within the piece ([`RATES`]). The margin covers the largest change of the rate over one
//!     piece, the error of the measured rate, and the reads themselves, which the processor may reorder by some tens of
//!     nanoseconds.
//! Q2. A piece starts at or above the last value of the piece before. A call that finds no valid piece returns at least
//!     the last value of the last piece, and otherwise the true time, which no later piece is below (Q1). So the
//!     moments that successive calls return never decrease.
//! Q3. A piece is ahead of the true time by at most [`AHEAD_NANOS`].
//!
//! Why Q1 holds: a sample consists of a counter read, a read of the true time after it, and another counter read after
//! that. At the first counter read, the true time was the sample's true time or earlier. So a line that has the
//! sample's true time at the first counter read is not below the truth, even if the thread was off its core. A sample
//! with a long interruption would break Q3, so it is not used (`SLACK_NANOS`).
//!
//! # Slews
//! A *slew* is a change of the rate of the system's clock, by which the system corrects its time. A slew may begin or
//! end at any moment, even within a piece, and nothing announces it. So the margin is for a change from the slowest
//! rate to the fastest, and pieces are short: a piece of 10 µs has a margin of 7 µs. `adjtimex` moves the rate by 10 %
//! by the length of a tick, by 12.5 % by the phase-locked loop (half a second of offset, a quarter of which goes into
//! one second), and by 0.05 % each by the frequency and by `adjtime`. chrony slews by the tick, up to 8.3 %;
//! systemd-timesyncd slews by the loop, up to 5 %.
//!
//! If a sample differs from the prediction of the rate, the measurement of the rate starts again. The difference does
//! not count as a step if a slew explains it ([`Found`]).
//!
//! # Layout
//! `turn` counts the pieces. Piece `turn % 2` is current, and the other piece belongs to the writer. A reader that
//! finds `turn` unchanged after its reads has read one piece, not parts of two pieces. A writer may lose its core with
//! a piece half written. This holds up no other thread: the current piece stays readable, and calls beyond its end read
//! the true clock.
//!
//! # Synchronisation
//! | pair | release side                  | acquire side          | handed over or ruled out         | model |
//! |------|-------------------------------|-----------------------|----------------------------------|-------|
//! | SQ1  | `publish`, the store of `turn`| `piece`, the first load | the words of the piece          | `upper::a_reader_sees_one_piece` |
//! | SQ2  | `publish`, the fence          | `piece`, the fence    | words of a later piece under an old `turn` | `upper::a_reader_sees_one_piece` |
//! | SQ3  | `Writing`'s drop              | `try_write`           | the calibration                  | `upper::the_first_sample_changes_hands` |
//!
//! # When the counter is not to be trusted
//! Each reading of the true time by a shard is checked against the line, and each sample against the sample before.
//! Three findings mean that the counter stepped or changed its rate by itself: the line is below the truth; the line is
//! ahead of the truth by more than Q3 allows; or no slew explains a sample. The clock counts a step, and the line
//! starts again from the truth. After [`STEPS_TO_GIVE_UP`] steps within a minute the clock stops using the counter, and
//! every call reads the true clock.
//!
//! While the clock does not use the counter, each reading of the true time by a shard still checks the counter. After
//! an hour in which at least [`LOOKS_TO_TRUST`] readings found no step, the clock uses the counter again.
//!
//! One error remains: until a step is noticed, the line is wrong by the size of the step. If the counter runs ahead, or
//! timers are armed, the step is noticed within the length of a piece. Otherwise the next turn of a shard notices it.

#[cfg(all(test, not(tourbillon_loom)))]
mod tests;

use crate::base::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell, fence};
use core::fmt;
use crossbeam_utils::CachePadded;

/// The maximum length of a piece of the line, in nanoseconds. The line is an upper bound of the true time.
const PIECE_NANOS: u64 = 10_000;
/// The slowest and the fastest rate to which `adjtimex` can set the system's clock, in parts per million of the clock's
/// nominal rate.
const RATES: (u64, u64) = (774_000, 1_226_000);
/// The largest increase of the system clock's rate, in parts per million: from the slowest rate to the fastest.
const FASTER_PPM: u64 = (RATES.1 - RATES.0) * 1_000_000 / RATES.0 + 1;
/// The largest decrease of the system clock's rate, in parts per million: from the fastest rate to the slowest.
const SLOWER_PPM: u64 = (RATES.1 - RATES.0) * 1_000_000 / RATES.1 + 1;
/// The greatest error, in nanoseconds, that the measured rate may cause over one piece of the line.
const RATE_ERROR_NANOS: u64 = 500;
/// The distance above the true time at which a piece of the line ends, in nanoseconds (Q1).
const MARGIN_NANOS: u64 = PIECE_NANOS * FASTER_PPM / 1_000_000 + RATE_ERROR_NANOS + 500;
/// The greatest time by which the clock is ahead of the true time, in nanoseconds (Q3). It is the sum of the margin,
/// the effect of the largest decrease of the rate, and the time of the reads.
pub(crate) const AHEAD_NANOS: u64 = 12_000;
/// The largest change of the system clock's rate, in parts per million, that does not count as a slew. The system makes
/// such small changes all the time.
const STEERING_PPM: u64 = 2_000;
/// The greatest difference, in nanoseconds, between a sample and its prediction that the duration of the reads
/// explains.
const NOISE_NANOS: u64 = 2_000;
/// The minimum length of a piece of the line, in nanoseconds. While the counter's rate is not known well enough for
/// this length, calls read the true clock.
const SHORTEST_PIECE_NANOS: u64 = 2_000;
/// The number of calls without a valid piece, within the length of a piece, that make a piece worth its cost.
const FREQUENT: u64 = if cfg!(tourbillon_loom) { 2 } else { 5 };
/// The time, in nanoseconds, after which the counter's rate is measured again.
const FRESH_NANOS: u64 = 250_000;
/// The minimum time, in nanoseconds, over which the counter's rate is measured.
const SHORTEST_WINDOW_NANOS: u64 = 16_000;
/// The maximum time, in nanoseconds, that a sample may take. A sample that took longer is not used, because its thread
/// was off its core.
const SLACK_NANOS: u64 = 1_000;
/// The maximum time, in nanoseconds, over which the counter's rate is measured. Once the samples reach back that far,
/// the rate is measured over at least half of this time.
const WINDOW_NANOS: u64 = 1_000_000_000;
/// The number of steps of the counter after which the clock stops using the counter. Steps count together if successive
/// steps are at most [`FORGIVEN_AFTER_NANOS`] apart.
const STEPS_TO_GIVE_UP: u32 = 3;
const FORGIVEN_AFTER_NANOS: u64 = 60_000_000_000;
/// The time without a step, in nanoseconds, after which the clock uses a counter again that it had stopped using. At
/// least [`LOOKS_TO_TRUST`] readings must fall into this time.
const QUIET_NANOS: u64 = 3_600_000_000_000;
const LOOKS_TO_TRUST: u32 = 60;
/// The greatest number of samples that a thread takes in order to get a sample without an interruption.
const ATTEMPTS: u32 = 3;
/// The number of fractional bits of a slope. A slope is the number of nanoseconds that one count of the counter takes,
/// in units of 2^-32.
const SLOPE_BITS: u32 = 32;

/// Reads the processor's counter and the true time, for the clock that compares them.
pub(crate) trait Source: Send + Sync {
    /// Reads the processor's counter.
    fn counter(&self) -> u64;
    /// Reads the true time, in nanoseconds.
    fn truth(&self) -> u64;
}

/// A straight piece of the line, the clock's upper bound of the true time. It starts at counter `base` with the value
/// `start`, and is valid for `len` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    base: u64,
    start: u64,
    slope: u64,
    len: u64,
}

impl Piece {
    /// Returns the line's value at `counter`, or `None` if the piece is not valid at that counter.
    #[inline(always)]
    fn at(&self, counter: u64) -> Option<u64> {
        let passed = counter.wrapping_sub(self.base);
        (passed < self.len).then(|| self.after(passed))
    }

    #[inline(always)]
    fn after(&self, passed: u64) -> u64 {
        self.start + (passed.wrapping_mul(self.slope) >> SLOPE_BITS)
    }

    /// Returns the piece's value at its end, in nanoseconds.
    fn end(&self) -> u64 {
        self.after(self.len)
    }

    /// Returns a piece that is valid at no counter value. Its value at the end is that of `self`.
    fn ended(&self) -> Piece {
        Piece { base: 0, start: self.end(), slope: 0, len: 0 }
    }
}

/// The calls without a valid piece that came within the length of a piece: the counter at the first of them in the
/// upper bits, and their number in the lower bits.
#[derive(Clone, Copy)]
struct Misses(u64);

impl Misses {
    const COUNT: u64 = 0b111;

    /// Adds a call at `counter`. Starts again if the first call was more than `len` counts before.
    fn and(self, counter: u64, len: u64) -> Self {
        let first = self.0 & !Self::COUNT;
        if counter.wrapping_sub(first) > len {
            return Self(counter & !Self::COUNT | 1);
        }
        Self(first | (self.count() + 1).min(Self::COUNT))
    }

    fn count(self) -> u64 {
        self.0 & Self::COUNT
    }
}

/// A piece that all threads may read while a writer changes it.
#[derive(Debug)]
struct SharedPiece {
    base: AtomicU64,
    start: AtomicU64,
    slope: AtomicU64,
    len: AtomicU64,
}

impl SharedPiece {
    fn new() -> Self {
        Self {
            base: AtomicU64::new(0),
            start: AtomicU64::new(0),
            slope: AtomicU64::new(0),
            len: AtomicU64::new(0),
        }
    }

    // Ordering in this type: Relaxed. `turn` and the fences beside it order the words (SQ1, SQ2).
    #[inline(always)]
    fn load(&self) -> Piece {
        Piece {
            base: self.base.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
            slope: self.slope.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
        }
    }

    fn store(&self, piece: Piece) {
        self.base.store(piece.base, Ordering::Relaxed);
        self.start.store(piece.start, Ordering::Relaxed);
        self.slope.store(piece.slope, Ordering::Relaxed);
        self.len.store(piece.len, Ordering::Relaxed);
    }
}

/// A reading of the true time, with the counter before and after the reading.
#[derive(Clone, Copy, Debug)]
struct Sample {
    before: u64,
    truth: u64,
    after: u64,
}

impl Sample {
    /// Returns the number of counts of the counter during which the sample was taken.
    fn slack(&self) -> u64 {
        self.after.wrapping_sub(self.before)
    }
}

/// The clock's data that only one thread at a time accesses: the thread that has set `writing`.
#[derive(Debug, Default)]
struct Calibration {
    samples: Option<Samples>,
    steps: u32,
    last_step: u64,
    /// The number of readings without a step of the counter after the clock stopped using the counter.
    quiet_looks: u32,
}

/// The result of comparing a sample of the true time with its prediction from the last sample and the counter's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    AsPredicted,
    /// The sample differs from the prediction. A slew (a change of the system clock's rate) explains the difference.
    Slewed,
    /// No slew (change of the system clock's rate) explains the sample: the counter stepped.
    Stepped,
}

/// The samples of the true time from which the counter's rate is measured.
#[derive(Clone, Copy, Debug)]
struct Samples {
    older: Sample,
    /// The sample that replaces `older` after half of [`WINDOW_NANOS`].
    newer: Sample,
    last: Sample,
    /// The counter's rate from `older` to `last`; `None` if it could not be measured.
    rate: Option<Rate>,
}

/// The counter's rate, as measured between two samples.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The number of nanoseconds that one count takes, in units of 2^-32.
    slope: u64,
    /// The time over which the rate was measured, in nanoseconds.
    window: u64,
    /// The greatest error of `window`, in nanoseconds.
    error: u64,
}

/// The observed errors of the clock's readings, and the state of the processor's counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ahead_nanos: u64,
    pub(crate) behind_nanos: u64,
    pub(crate) steps: u64,
    pub(crate) given_up: bool,
}

/// The clock that returns an upper bound of the true time, from the processor's counter.
pub(crate) struct UpperClock<S> {
    line: CachePadded<Line>,
    source: S,
    writing: CachePadded<AtomicBool>,
    /// The last calls that found no valid piece ([`Misses`]).
    misses: AtomicU64,
    calibration: UnsafeCell<Calibration>,
    given_up: AtomicBool,
    ahead: AtomicU64,
    behind: AtomicU64,
    steps: AtomicU64,
}

#[derive(Debug)]
struct Line {
    turn: AtomicU64,
    pieces: [SharedPiece; 2],
}

// SAFETY: only the thread that set `writing` touches the calibration (SQ3); all else is atomic, or `Sync` by `S`.
unsafe impl<S: Sync> Sync for UpperClock<S> {}

/// A thread's exclusive right to write the calibration and the clock's next piece. Dropping this value gives the right
/// back.
struct Writing<'a, S> {
    clock: &'a UpperClock<S>,
}

impl<S> Drop for Writing<'_, S> {
    fn drop(&mut self) {
        // Ordering: Release [SQ3]. Pairs with `try_write`: the calibration.
        self.clock.writing.store(false, Ordering::Release);
    }
}

impl<S: Source> UpperClock<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            line: CachePadded::new(Line {
                turn: AtomicU64::new(0),
                pieces: [SharedPiece::new(), SharedPiece::new()],
            }),
            source,
            writing: CachePadded::new(AtomicBool::new(false)),
            misses: AtomicU64::new(0),
            calibration: UnsafeCell::new(Calibration::default()),
            given_up: AtomicBool::new(false),
            ahead: AtomicU64::new(0),
            behind: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// Returns a moment that is ahead of the true time by zero to [`AHEAD_NANOS`] nanoseconds. The moment is not before
    /// any moment that an earlier call returned.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        // Ordering: Acquire [SQ1]. Pairs with `publish`: the words of the piece.
        let turn = self.line.turn.load(Ordering::Acquire);
        let piece = self.line.pieces[(turn & 1) as usize].load();
        let counter = self.source.counter();
        // Ordering: Acquire fence [SQ2]. Pairs with the fence of `publish`: if we read words of a later piece, the next
        // load of `turn` shows that `turn` has changed.
        fence(Ordering::Acquire);
        // Ordering: Relaxed. The fence orders this load.
        let is_whole = self.line.turn.load(Ordering::Relaxed) == turn;
        match piece.at(counter) {
            Some(now) if is_whole => now,
            None if is_whole => self.without_piece(piece, counter),
            _ => self.now_slowly(),
        }
    }

    /// Reads the true time, in nanoseconds. Also checks the line (the upper bound) against the true time.
    pub(crate) fn true_now(&self) -> u64 {
        let piece = self.piece();
        let sample = self.sample();
        if let (Some(early), Some(late)) = (piece.at(sample.before), piece.at(sample.after)) {
            self.judge(early, late, sample.truth);
        }
        if self.is_given_up()
            && let Some(mut writing) = self.try_write()
        {
            writing.watch(sample);
        }
        sample.truth
    }

    pub(crate) fn seen(&self) -> Seen {
        // Ordering: Relaxed. Counters.
        Seen {
            ahead_nanos: self.ahead.load(Ordering::Relaxed),
            behind_nanos: self.behind.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            given_up: self.is_given_up(),
        }
    }

    /// Compares the line (the upper bound) with a reading of the true time. `early` and `late` are the line's values
    /// just before and just after the reading.
    fn judge(&self, early: u64, late: u64, truth: u64) {
        let ahead = early.saturating_sub(truth);
        let behind = truth.saturating_sub(late);
        // Ordering: Relaxed. Counters. They are loaded first, since they are shared and seldom rise.
        if ahead > self.ahead.load(Ordering::Relaxed) {
            self.ahead.fetch_max(ahead, Ordering::Relaxed);
        }
        if behind > self.behind.load(Ordering::Relaxed) {
            self.behind.fetch_max(behind, Ordering::Relaxed);
        }
        if (behind > 0 || ahead > AHEAD_NANOS)
            && let Some(mut writing) = self.try_write()
        {
            writing.step(truth);
        }
    }

    #[cold]
    #[inline(never)]
    fn now_slowly(&self) -> u64 {
        let piece = self.piece();
        let counter = self.source.counter();
        piece.at(counter).unwrap_or_else(|| self.without_piece(piece, counter))
    }

    /// Returns the moment for a call that found the current piece ended at `counter`.
    #[cold]
    #[inline(never)]
    fn without_piece(&self, piece: Piece, counter: u64) -> u64 {
        if !self.is_rare(counter, piece)
            && !self.is_given_up()
            && let Some(mut writing) = self.try_write()
        {
            return writing.now();
        }
        self.source.truth().max(piece.end())
    }

    /// Returns whether calls are so rare that the next piece would serve few of them. Counts the call at `counter`,
    /// which has found `piece` ended.
    fn is_rare(&self, counter: u64, piece: Piece) -> bool {
        // Ordering: Relaxed. A hint about the costs: each answer is right.
        let misses = Misses(self.misses.load(Ordering::Relaxed)).and(counter, piece.len);
        self.misses.store(misses.0, Ordering::Relaxed);
        let since_end = counter.wrapping_sub(piece.base.wrapping_add(piece.len));
        // Before the first piece and after a step of the counter there is no length to compare with.
        piece.len > 0 && since_end > piece.len / 8 && misses.count() < FREQUENT
    }

    fn is_given_up(&self) -> bool {
        // Ordering: Relaxed. A hint: a thread that misses it does not extend the line, since the last piece has ended
        // for good.
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns the current piece of the line, the clock's upper bound.
    fn piece(&self) -> Piece {
        loop {
            // Ordering: as in `now`.
            let turn = self.line.turn.load(Ordering::Acquire);
            let piece = self.line.pieces[(turn & 1) as usize].load();
            fence(Ordering::Acquire);
            if self.line.turn.load(Ordering::Relaxed) == turn {
                return piece;
            }
        }
    }

    fn sample(&self) -> Sample {
        let before = self.source.counter();
        let truth = self.source.truth();
        Sample { before, truth, after: self.source.counter() }
    }

    fn try_write(&self) -> Option<Writing<'_, S>> {
        // Ordering: Acquire [SQ3]. Pairs with `Writing`'s drop: the calibration. Relaxed on failure: nothing is read.
        let taken = self.writing.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // The value is made only if we have the right, since its drop gives the right back.
        taken.then(|| Writing { clock: self })
    }
}

impl<S: Source> Writing<'_, S> {
    fn calibration<R>(&mut self, f: impl FnOnce(&mut Calibration) -> R) -> R {
        self.clock.calibration.with_mut(|calibration| {
            // SAFETY: SQ3: `writing` is ours, and `&mut self` lends the calibration once at a time.
            f(unsafe { &mut *calibration })
        })
    }

    /// Returns the moment for a call that found no valid piece of the line. Publishes the next piece if the counter's
    /// rate is known well enough.
    fn now(&mut self) -> u64 {
        let last = self.clock.piece();
        if let Some(now) = last.at(self.clock.source.counter()) {
            return now;
        }
        let sample = self.best_sample();
        let floor = last.end();
        match self.extend(sample, floor) {
            Some(piece) => {
                self.publish(piece);
                piece.start
            }
            None => sample.truth.max(floor),
        }
    }

    /// Takes a few samples of the true time and returns the sample that took the least time. Usually the first sample
    /// is good enough.
    fn best_sample(&mut self) -> Sample {
        let rate = self.calibration(|calibration| calibration.samples.and_then(|samples| samples.rate));
        let is_tight =
            |sample: &Sample| rate.is_some_and(|rate| rate.nanos(sample.slack()) <= SLACK_NANOS / 4);
        let mut best = self.clock.sample();
        for _ in 1..ATTEMPTS {
            if is_tight(&best) {
                break;
            }
            let another = self.clock.sample();
            if another.slack() < best.slack() {
                best = another;
            }
        }
        best
    }

    /// Returns a piece of the line that starts with `sample`, at `floor` or above. Returns `None` while the counter's
    /// rate is not known well enough.
    fn extend(&mut self, sample: Sample, floor: u64) -> Option<Piece> {
        let Some(mut samples) = self.calibration(|calibration| calibration.samples) else {
            self.calibration(|calibration| calibration.samples = Some(Samples::first(sample)));
            return None;
        };
        match samples.find(sample) {
            Found::AsPredicted => {}
            Found::Slewed => {
                self.calibration(|calibration| calibration.samples = Some(Samples::first(sample)));
                return None;
            }
            Found::Stepped => {
                self.step(sample.truth);
                return None;
            }
        }
        let rate = match samples.rate.filter(|_| samples.is_fresh_at(sample)) {
            Some(rate) => rate,
            None => Rate::between(samples.older, sample)?,
        };
        if rate.nanos(sample.slack()) > SLACK_NANOS {
            return None;
        }
        if !samples.is_fresh_at(sample) {
            samples.take(sample, rate);
            self.calibration(|calibration| calibration.samples = Some(samples));
        }
        let length = rate.known_for().min(PIECE_NANOS);
        let is_within_reach = floor <= sample.truth + AHEAD_NANOS;
        (length >= SHORTEST_PIECE_NANOS && is_within_reach)
            .then(|| descend(sample, floor, rate.slope, length))
    }

    /// Handles a step of the counter: the line (the upper bound) ends, and a new line starts from the true time.
    fn step(&mut self, truth: u64) {
        // Ordering: Relaxed. A counter.
        self.clock.steps.fetch_add(1, Ordering::Relaxed);
        let steps = self.calibration(|calibration| {
            let forgiven = truth.saturating_sub(calibration.last_step) > FORGIVEN_AFTER_NANOS;
            calibration.steps = if forgiven { 1 } else { calibration.steps + 1 };
            calibration.last_step = truth;
            calibration.quiet_looks = 0;
            calibration.samples = None;
            calibration.steps
        });
        if steps >= STEPS_TO_GIVE_UP {
            // Ordering: Relaxed. See `is_given_up`.
            self.clock.given_up.store(true, Ordering::Relaxed);
        }
        let last = self.clock.piece();
        self.publish(last.ended());
    }

    /// Checks the counter by one more sample while the clock does not use the counter. After an hour without a step,
    /// the clock uses the counter again.
    fn watch(&mut self, sample: Sample) {
        let samples = self.calibration(|calibration| calibration.samples);
        // Another thread may have taken a later sample before this thread got the right to write.
        if samples.is_some_and(|samples| sample.truth < samples.last.truth) {
            return;
        }
        let found = samples.map_or(Found::Slewed, |samples| samples.find(sample));
        if found == Found::Stepped {
            return self.step(sample.truth);
        }
        let is_trusted = self.calibration(|calibration| {
            let mut samples =
                samples.filter(|_| found == Found::AsPredicted).unwrap_or(Samples::first(sample));
            if let Some(rate) = Rate::between(samples.older, sample) {
                samples.take(sample, rate);
            }
            calibration.samples = Some(samples);
            calibration.quiet_looks = calibration.quiet_looks.saturating_add(1);
            let quiet = sample.truth.saturating_sub(calibration.last_step);
            let is_trusted = quiet >= QUIET_NANOS && calibration.quiet_looks >= LOOKS_TO_TRUST;
            if is_trusted {
                calibration.steps = 0;
            }
            is_trusted
        });
        if is_trusted {
            // Ordering: Relaxed. See `is_given_up`.
            self.clock.given_up.store(false, Ordering::Relaxed);
        }
    }

    fn publish(&mut self, piece: Piece) {
        let line = &self.clock.line;
        // Ordering: Relaxed. Only writers change `turn`, and we have the right to write now (SQ3).
        let turn = line.turn.load(Ordering::Relaxed);
        // Ordering: Release fence [SQ2]. Pairs with the fence of the readers: a reader of the piece before the current
        // one that meets a word of ours finds that `turn` has moved on.
        fence(Ordering::Release);
        line.pieces[(turn.wrapping_add(1) & 1) as usize].store(piece);
        // Ordering: Release [SQ1]. Pairs with the readers' load: the words of the piece.
        line.turn.store(turn.wrapping_add(1), Ordering::Release);
    }
}

impl Samples {
    fn first(sample: Sample) -> Self {
        Self { older: sample, newer: sample, last: sample, rate: None }
    }

    fn take(&mut self, sample: Sample, rate: Rate) {
        self.last = sample;
        self.rate = Some(rate);
        if sample.truth - self.newer.truth > WINDOW_NANOS / 2 {
            self.older = self.newer;
            self.newer = sample;
        }
    }

    /// Returns whether the last sample is recent at `sample`. Then the counter's rate need not be measured again.
    fn is_fresh_at(&self, sample: Sample) -> bool {
        self.rate.is_some() && sample.truth.saturating_sub(self.last.truth) < FRESH_NANOS
    }

    /// Compares `sample` with its prediction from the last sample and the counter's rate.
    fn find(&self, sample: Sample) -> Found {
        let Some(rate) = self.rate else { return Found::AsPredicted };
        let passed = sample.truth.saturating_sub(self.last.truth);
        let counts = sample.before.wrapping_sub(self.last.before).cast_signed();
        // A recent sample is compared without the divisions below.
        if counts >= 0 && rate.nanos(counts.unsigned_abs()).abs_diff(passed) <= NOISE_NANOS {
            return Found::AsPredicted;
        }
        let noise = NOISE_NANOS
            .saturating_add(rate.error_over(passed))
            .saturating_add(rate.nanos(self.last.slack().saturating_add(sample.slack())));
        let counted = i128::from(rate.nanos(counts.unsigned_abs())) * i128::from(counts.signum());
        let (passed, noise) = (i128::from(passed), i128::from(noise));
        let part = |nanos: i128, ppm: u64| nanos * i128::from(ppm) / 1_000_000;
        if (counted - passed).abs() <= noise + part(passed, STEERING_PPM) {
            Found::AsPredicted
        } else if passed <= counted + part(counted, FASTER_PPM) + noise
            && passed >= counted - part(counted, SLOWER_PPM) - noise
        {
            Found::Slewed
        } else {
            Found::Stepped
        }
    }
}

impl Rate {
    /// Measures the counter's rate from one sample to another. Returns `None` if the time between the samples is too
    /// short.
    fn between(older: Sample, newer: Sample) -> Option<Self> {
        let counts = newer.before.wrapping_sub(older.before);
        let window =
            newer.truth.checked_sub(older.truth).filter(|&window| window >= SHORTEST_WINDOW_NANOS)?;
        let slope = scaled_by(window, counts).filter(|&slope| slope > 0)?;
        let mut rate = Self { slope, window, error: 0 };
        rate.error = rate.nanos(older.slack().saturating_add(newer.slack())).max(1);
        Some(rate)
    }

    /// Returns the nanoseconds that `counts` counts take at this rate.
    fn nanos(&self, counts: u64) -> u64 {
        let nanos = (u128::from(counts) * u128::from(self.slope)) >> SLOPE_BITS;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn error_over(&self, time: u64) -> u64 {
        let error = u128::from(time) * u128::from(self.error) / u128::from(self.window);
        u64::try_from(error).unwrap_or(u64::MAX)
    }

    /// Returns the longest time, in nanoseconds, over which the error of this rate is at most [`RATE_ERROR_NANOS`].
    fn known_for(&self) -> u64 {
        self.window.saturating_mul(RATE_ERROR_NANOS) / self.error
    }
}

/// Divides `nanos` by `counts`, in units of 2^-32. Returns `None` if `counts` is zero or the result is too large.
fn scaled_by(nanos: u64, counts: u64) -> Option<u64> {
    // A division of 128 bits costs twice as much, and a piece lasts for 10 µs.
    if nanos >> SLOPE_BITS == 0 {
        return (nanos << SLOPE_BITS).checked_div(counts);
    }
    let scaled = (u128::from(nanos) << SLOPE_BITS).checked_div(u128::from(counts))?;
    u64::try_from(scaled).ok()
}

/// Makes a piece of the line that begins at `sample` and ends at the margin above the true time. Its first value is the
/// later of two moments: `floor`, and the margin above the true time.
fn descend(sample: Sample, floor: u64, slope: u64, length: u64) -> Piece {
    let target = sample.truth + MARGIN_NANOS;
    let start = target.max(floor);
    let len = scaled_by(length, slope).unwrap_or(u64::MAX);
    let down = scaled_by(start - target, len).unwrap_or(0).min(slope / 2);
    Piece { base: sample.before, start, slope: slope - down, len }
}

impl<S> fmt::Debug for UpperClock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpperClock").field("line", &*self.line).finish_non_exhaustive()
    }
}
