//! Keeps a sample of the service's statistics for every ten seconds of the last 72 hours, in memory and in a file.
//!
//! # The file
//! The file has a head of 64 bytes and then up to 25,920 records of 48 bytes, together at most 1.2 MB. The moment of a
//! sample decides the position of its record. The record contains this moment and a checksum, so records need no order
//! and the file needs no end mark. A record that is torn, belongs to another time, or is not yet written counts as a
//! gap.
//!
//! The file is written once a minute and when the service stops. It is not synced to the disk. A killed process loses
//! at most a minute of history. A power failure may lose more, because the system may not have written the whole file.
//! A file with foreign contents is renamed. If the file cannot be written, the history is kept only in memory.

use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tourbillon_api::{self as api, HistoryPoint, Moment};

/// The time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
const STEP: u64 = 10_000;
/// The greatest number of samples: one every ten seconds for 72 hours.
const SAMPLES: usize = 25_920;
const HEAD: usize = 64;
const RECORD: usize = 48;
/// The first bytes of the history's file. The last character is the version of the format.
const MARK: &[u8; 16] = b"tourbillon hist1";
/// The greatest time, in milliseconds, by which a sample may come before the end of its ten seconds. The store's clock
/// may be set back by some milliseconds just before a sample.
const EARLY: u64 = 1_000;
/// The number of new samples that are collected in memory before they are written into the history's file together.
const WRITTEN: usize = 6;

/// The service's statistics for a span of time: ten seconds, several of these, or the time since the service's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) created: u64,
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) dead: u64,
    /// How long the oldest pending timer had been due, in milliseconds. In a span longer than ten seconds, the greatest
    /// of the values at the ends of its ten-second parts.
    pub(crate) overdue_ms: u64,
    /// The number of pending timers at the end of the span. If the store failed to count them, an earlier number.
    pub(crate) pending: u64,
}

impl Sample {
    /// Adds this sample and the sample `later` of a later span. Returns the sample of both spans together.
    fn and(self, later: Self) -> Self {
        Self {
            created: self.created + later.created,
            delivered: self.delivered + later.delivered,
            failed: self.failed + later.failed,
            cancelled: self.cancelled + later.cancelled,
            dead: self.dead + later.dead,
            overdue_ms: self.overdue_ms.max(later.overdue_ms),
            pending: later.pending,
        }
    }

    /// Returns the statistics of the interval that begins at `at`, in the form of the API. The service ran for the time
    /// `covered_ms` of the interval.
    fn point(self, at: Moment, covered_ms: u64) -> HistoryPoint {
        let Self { created, delivered, failed, cancelled, dead, overdue_ms, pending } = self;
        HistoryPoint { at, covered_ms, created, delivered, failed, cancelled, dead, overdue_ms, pending }
    }
}

/// A slot for a sample. `number` counts the ten-second spans since 1970, and is 0 in an empty slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    number: u64,
    sample: Sample,
}

impl Slot {
    fn bytes(&self) -> [u8; RECORD] {
        let Sample { created, delivered, failed, cancelled, dead, overdue_ms, pending } = self.sample;
        let mut bytes = [0; RECORD];
        let mut at = 0;
        let mut write = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        write(&self.number.to_le_bytes());
        for number in [created, delivered, failed, cancelled, dead] {
            write(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        write(&overdue_ms.to_le_bytes());
        write(&pending.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..RECORD - 4]);
        bytes[RECORD - 4..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a record of the history's file. Returns `None` if the record is damaged.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (data, rest) = bytes.split_at_checked(RECORD - 4)?;
        if rest.first_chunk() != Some(&crc32fast::hash(data).to_le_bytes()) {
            return None;
        }
        let long = |at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
        let short = |at: usize| Some(u64::from(u32::from_le_bytes(*data.get(at..)?.first_chunk()?)));
        let sample = Sample {
            created: short(8)?,
            delivered: short(12)?,
            failed: short(16)?,
            cancelled: short(20)?,
            dead: short(24)?,
            overdue_ms: long(28)?,
            pending: long(36)?,
        };
        Some(Self { number: long(0)?, sample })
    }
}

fn place(number: u64) -> usize {
    // The remainder is less than `SAMPLES`, so the conversion does not fail.
    usize::try_from(number % SAMPLES as u64).unwrap_or(0)
}

/// The samples of the last 72 hours, and the file that keeps them over restarts.
#[derive(Debug)]
pub(crate) struct History {
    inner: Mutex<Inner>,
    /// The file, or `None` if it cannot be used. Locked during a write, while `inner` stays unlocked.
    file: Mutex<Option<File>>,
}

#[derive(Debug)]
struct Inner {
    slots: Vec<Slot>,
    unwritten: Vec<Slot>,
}

impl History {
    /// Opens the history's file, or creates it. If the file cannot be used, returns the error, together with a history
    /// that is only in memory. The service starts with this history.
    pub(crate) fn open(path: &Path) -> (Self, Option<io::Error>) {
        let mut slots = vec![Slot::default(); SAMPLES];
        let (file, error) = match open(path, &mut slots) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error)),
        };
        let inner = Mutex::new(Inner { slots, unwritten: Vec::new() });
        (Self { inner, file: Mutex::new(file) }, error)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the sample of the ten seconds that have just ended at `now`, or that end at most [`EARLY`] milliseconds
    /// later. A further sample of the same ten seconds counts only since the first, and is added to it. Returns true if
    /// the caller must call [`write`](Self::write), because at least [`WRITTEN`] samples are not yet in the file.
    pub(crate) fn note(&self, now: Moment, sample: Sample) -> bool {
        let number = (now.as_millis().saturating_add(EARLY) / STEP).saturating_sub(1);
        let mut inner = self.lock();
        let before = inner.slots[place(number)];
        let sample = if before.number == number { before.sample.and(sample) } else { sample };
        let slot = Slot { number, sample };
        inner.slots[place(number)] = slot;
        inner.unwritten.push(slot);
        inner.unwritten.len() >= WRITTEN
    }

    /// Writes the new samples into the history's file. After an error, the samples that were not written are missing in
    /// the file for ever, but remain in memory. Blocks the calling thread.
    pub(crate) fn write(&self) -> io::Result<()> {
        // The file is locked before the samples are taken. So the last write during a stop waits until an earlier write
        // has stored its samples.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // The samples are taken even without a file. Otherwise their number would grow without end.
        let unwritten = core::mem::take(&mut self.lock().unwritten);
        let Some(file) = &mut *file else { return Ok(()) };
        for slot in unwritten {
            // A write beyond the end of the file fills the space before the record with zeros. The checksum of zeros is
            // not zero, so the space counts as a gap.
            file.seek(SeekFrom::Start((HEAD + place(slot.number) * RECORD) as u64))?;
            file.write_all(&slot.bytes())?;
        }
        Ok(())
    }

    /// Returns the samples since the moment `since`, summed up in at most `points` intervals. If `since` is `None`,
    /// returns the samples of the last 72 hours.
    pub(crate) fn show(&self, now: Moment, since: Option<Moment>, points: usize) -> api::History {
        let last = now.as_millis() / STEP;
        let first = last.saturating_sub(SAMPLES as u64);
        let first = since.map_or(first, |since| (since.as_millis() / STEP).clamp(first, last));
        let points = u64::try_from(points).unwrap_or(u64::MAX).max(1);
        // Intervals begin at fixed moments, so reports at different times have the same intervals. An empty span gives
        // 0 steps, and the lines below divide by this number.
        let steps = (last - first).div_ceil(points).max(1);
        let mut steps = steps;
        // The fixed beginnings may cut the first and the last interval, so the span may need more than `points`
        // intervals.
        while (last.div_ceil(steps) - first / steps) > points {
            steps += 1;
        }
        let inner = self.lock();
        let mut sums: Vec<(Moment, u64, Sample)> = Vec::new();
        for number in first..last {
            let Slot { sample, .. } = match inner.slots.get(place(number)) {
                Some(slot) if slot.number == number => *slot,
                // The slot is empty, or has a sample from an earlier turn of the ring.
                _ => continue,
            };
            let at = Moment::from_millis(number / steps * steps * STEP);
            match sums.last_mut() {
                Some((last, covered_ms, sum)) if *last == at => {
                    (*covered_ms, *sum) = (*covered_ms + STEP, sum.and(sample));
                }
                _ => sums.push((at, STEP, sample)),
            }
        }
        api::History {
            since: Moment::from_millis(first / steps * steps * STEP),
            until: Moment::from_millis(last.div_ceil(steps) * steps * STEP),
            interval_ms: steps * STEP,
            points: sums.into_iter().map(|(at, covered_ms, sum)| sum.point(at, covered_ms)).collect(),
        }
    }
}

fn open(path: &Path, slots: &mut [Slot]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut bytes = Vec::new();
    // The read is limited, because a foreign file may have any length.
    (&file).take((HEAD + SAMPLES * RECORD) as u64).read_to_end(&mut bytes)?;
    if !bytes.is_empty() && !bytes.starts_with(MARK) {
        drop(file);
        std::fs::rename(path, path.with_extension("unknown"))?;
        file = options.open(path)?;
        bytes.clear();
    }
    if bytes.is_empty() {
        let mut head = [0; HEAD];
        head[..MARK.len()].copy_from_slice(MARK);
        file.write_all(&head)?;
    }
    // A power failure may have left a file that is shorter than its head.
    for (place_of, record) in bytes.get(HEAD..).unwrap_or_default().chunks_exact(RECORD).enumerate() {
        if let Some(slot) = Slot::read(record)
            && place(slot.number) == place_of
            && let Some(kept) = slots.get_mut(place_of)
        {
            *kept = slot;
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 1_800_000_000_000;

    fn at(steps: u64) -> Moment {
        Moment::from_millis(BEGIN + steps * STEP)
    }

    fn sample(created: u64, overdue_ms: u64) -> Sample {
        Sample { created, delivered: 1, failed: 2, cancelled: 3, dead: 4, overdue_ms, pending: created }
    }

    fn numbers(history: &History, now: u64, points: usize) -> Vec<(u64, u64)> {
        let shown = history.show(at(now), None, points);
        assert!(shown.points.len() <= points, "{} of {points}", shown.points.len());
        shown.points.iter().map(|point| ((point.at.as_millis() - BEGIN) / STEP, point.created)).collect()
    }

    #[test]
    fn a_history_survives_a_restart_with_a_gap_for_the_time_without_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.ring");
        let (history, error) = History::open(&path);
        assert!(error.is_none());
        assert_eq!(numbers(&history, 0, 1_000), []);
        for step in 1..=7 {
            let is_due = history.note(at(step), sample(step, 0));
            assert_eq!(is_due, step >= 6);
        }
        history.write().unwrap();
        let (history, error) = History::open(&path);
        assert!(error.is_none());
        let before: Vec<_> = (1..=7).map(|step| (step - 1, step)).collect();
        assert_eq!(numbers(&history, 10, 1_000_000), before);
        // Written after an hour without the service.
        history.note(at(360), sample(9, 0));
        history.write().unwrap();
        let (history, _) = History::open(&path);
        assert_eq!(numbers(&history, 360, 1_000_000), [&before[..], &[(359, 9)]].concat());
        // After 72 hours, other samples have replaced these.
        assert_eq!(numbers(&history, SAMPLES as u64 + 7, 1_000_000), [(359, 9)]);
        history.note(at(SAMPLES as u64 + 360), sample(1, 0));
        assert_eq!(numbers(&history, SAMPLES as u64 + 360, 1_000_000), [(SAMPLES as u64 + 359, 1)]);
        assert!(std::fs::metadata(&path).unwrap().len() <= (HEAD + SAMPLES * RECORD) as u64);
    }

    #[test]
    fn a_sample_after_a_step_back_of_the_clock_replaces_no_sample() {
        let folder = tempfile::tempdir().unwrap();
        let (history, _) = History::open(&folder.path().join("history.ring"));
        history.note(at(1), sample(1, 5));
        let early = |ms| Moment::from_millis(at(2).as_millis() - ms);
        history.note(early(3), sample(20, 9));
        history.note(at(2), sample(300, 7));
        assert_eq!(numbers(&history, 2, 1_000_000), [(0, 1), (1, 320)]);
        let last = history.show(at(2), Some(at(1)), 1).points[0];
        assert_eq!((last.overdue_ms, last.pending, last.delivered, last.covered_ms), (9, 300, 2, STEP));
        // After a step by more, the sample is added to an earlier one.
        history.note(early(2_000), sample(4_000, 0));
        assert_eq!(numbers(&history, 2, 1_000_000), [(0, 4_001), (1, 320)]);
    }

    #[test]
    fn intervals_add_what_was_done_and_keep_the_worst_age_and_the_last_number() {
        let folder = tempfile::tempdir().unwrap();
        let (history, _) = History::open(&folder.path().join("history.ring"));
        for step in 0..SAMPLES as u64 {
            history.note(at(step + 1), sample(1, if step == 100 { 77 } else { 5 }));
        }
        for points in [1, 2, 7, 100, 360, 1_000] {
            let shown = history.show(at(SAMPLES as u64), None, points);
            assert!(shown.points.len() <= points);
            assert_eq!(shown.points.iter().map(|point| point.created).sum::<u64>(), SAMPLES as u64);
            assert_eq!(shown.points.iter().map(|point| point.covered_ms).sum::<u64>(), 72 * 3_600_000);
            assert_eq!(shown.points.iter().map(|point| point.overdue_ms).max(), Some(77));
            assert!(shown.points.iter().all(|point| point.at.as_millis() % shown.interval_ms == 0));
        }
        let shown = history.show(at(SAMPLES as u64), Some(at(SAMPLES as u64 - 6)), 6);
        assert_eq!((shown.points.len(), shown.interval_ms), (6, STEP));
        let wrong = [Some(Moment::from_millis(0)), Some(Moment::from_millis(u64::MAX))];
        for since in wrong {
            assert!(history.show(at(SAMPLES as u64), since, 10).points.len() <= 10);
        }
    }

    #[test]
    fn a_torn_or_damaged_record_is_a_gap_and_a_foreign_file_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.ring");
        let (history, _) = History::open(&path);
        for step in 1..=5 {
            history.note(at(step), sample(step, 0));
        }
        history.write().unwrap();
        drop(history);
        let whole = std::fs::read(&path).unwrap();
        let record = |step: u64| HEAD + place(BEGIN / STEP + step) * RECORD;
        for cut in [HEAD, record(4) + 1, record(4) + RECORD - 5, whole.len() - RECORD] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (history, error) = History::open(&path);
            assert!(error.is_none());
            let left: Vec<_> =
                (1..5).filter(|step| record(step - 1) + RECORD <= cut).map(|s| (s - 1, s)).collect();
            assert_eq!(numbers(&history, 5, 1_000_000), left, "cut at {cut}");
        }
        for bit in 0..RECORD * 8 {
            let mut bytes = whole.clone();
            bytes[record(2) + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).unwrap();
            let (history, _) = History::open(&path);
            assert_eq!(numbers(&history, 5, 1_000_000), [(0, 1), (1, 2), (3, 4), (4, 5)], "bit {bit}");
        }
        std::fs::write(&path, b"something else").unwrap();
        let (history, error) = History::open(&path);
        assert!(error.is_none() && numbers(&history, 5, 9).is_empty());
        history.note(at(5), sample(5, 0));
        history.write().unwrap();
        assert_eq!(numbers(&History::open(&path).0, 5, 1_000_000), [(4, 5)]);
        assert_eq!(std::fs::read(path.with_extension("unknown")).unwrap(), b"something else");
    }

    #[test]
    fn a_file_that_cannot_be_used_leaves_the_history_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (history, error) = History::open(folder.path());
        assert!(error.is_some());
        history.note(at(1), sample(1, 0));
        history.write().unwrap();
        assert_eq!(numbers(&history, 1, 1_000_000), [(0, 1)]);
    }
}
