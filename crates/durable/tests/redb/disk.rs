//! Simulates a disk that loses writes that were not synced, fails when asked to, or is full.

use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tourbillon_durable::store::Part;
use tourbillon_durable::store::{RedbBuilder, RedbStore, StoreError};

/// A change of a file that the disk may still lose, because no sync has followed.
#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                if file.len() < offset + data.len() {
                    file.resize(offset + data.len(), 0);
                }
                file[*offset..offset + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => file.resize(*length, 0),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Image {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Default)]
struct State {
    images: [Image; 2],
    /// The number of changes so far: writes, changes of length, and syncs.
    changes: u64,
    /// The number of the change at which the power goes. The disk does not make this change. `None` if the power stays
    /// on.
    cut: Option<u64>,
    /// The kind of error with which changes fail, and the number of changes that fail. Before the failures, `good`
    /// changes succeed. `None` if no change fails.
    failing: Option<(io::ErrorKind, u64)>,
    good: u64,
    /// Whether the file gets the first half of a failed write.
    is_short: bool,
    /// Whether the next write to the journal's file panics.
    panics: bool,
    /// The number of reads that fail. Before the failures, `good_reads` reads succeed.
    failing_reads: u64,
    good_reads: u64,
    reads: u64,
    /// The greatest length of both files together, in bytes. `None` for no limit.
    capacity: Option<usize>,
    sync_takes: [Duration; 2],
    /// The number of syncs so far. `fails_at` orders a failing sync: the number of syncs before it, and the random
    /// numbers that choose the lost writes.
    syncs: u64,
    fails_at: Option<(u64, Numbers)>,
}

/// A simulated disk with the two files of a store. All clones of a value are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct File {
    disk: Disk,
    part: usize,
}

/// A generator of random numbers (splitmix64). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Disk {
    fn state<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn open(&self, builder: RedbBuilder) -> Result<RedbStore, StoreError> {
        let disk = self.clone();
        builder.open_with(move |part| {
            let part = match part {
                Part::Timers => 0,
                Part::Operations => 1,
            };
            Ok(Box::new(File { disk: disk.clone(), part }))
        })
    }

    /// Makes the power go at change number `change`, counted from now. A change is a write, a change of length, or a
    /// sync.
    pub(crate) fn cut_at(&self, change: u64) {
        self.state(|state| state.cut = Some(state.changes + change));
    }

    /// Returns whether the disk has lost its power.
    pub(crate) fn is_cut(&self) -> bool {
        self.state(|state| state.cut.is_some_and(|cut| state.changes >= cut))
    }

    /// Makes the next `changes` changes of the files fail with an error of the kind `kind`.
    pub(crate) fn fail(&self, kind: io::ErrorKind, changes: u64) {
        self.fail_after(0, kind, changes);
    }

    /// Makes `changes` changes of the files fail, after `good` changes that succeed.
    pub(crate) fn fail_after(&self, good: u64, kind: io::ErrorKind, changes: u64) {
        self.state(|state| {
            (state.good, state.failing) = (good, (changes > 0).then_some((kind, changes)));
        });
    }

    /// Makes a sync fail, after `after` syncs that succeed. The disk gets only some of the writes before the end of the
    /// failed sync, and never gets the other writes. The system counts all these writes as synced. Readers see the lost
    /// writes until the power goes.
    pub(crate) fn lose_a_sync(&self, after: u64, some: Numbers) {
        self.state(|state| state.fails_at = Some((state.syncs + after, some)));
    }

    /// Returns whether the sync that [`lose_a_sync`](Self::lose_a_sync) has chosen has failed.
    pub(crate) fn has_lost_a_sync(&self) -> bool {
        self.state(|state| state.fails_at.as_ref().is_some_and(|(at, _)| state.syncs > *at))
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.state(|state| state.syncs)
    }

    /// Returns the number of changes so far. A change is a write, a change of length, or a sync.
    pub(crate) fn changes(&self) -> u64 {
        self.state(|state| state.changes)
    }

    /// Makes the files get the first half of each failed write.
    pub(crate) fn write_in_part(&self) {
        self.state(|state| state.is_short = true);
    }

    /// Makes the next write to the journal panic.
    pub(crate) fn panic_at_a_write_to_the_journal(&self) {
        self.state(|state| state.panics = true);
    }

    /// Makes `reads` reads fail, after `good` reads that succeed.
    pub(crate) fn fail_reads_after(&self, good: u64, reads: u64) {
        self.state(|state| (state.good_reads, state.failing_reads) = (good, reads));
    }

    /// Returns the number of further reads that fail.
    pub(crate) fn read_failures_left(&self) -> u64 {
        self.state(|state| state.failing_reads)
    }

    /// Returns the number of reads so far.
    pub(crate) fn reads(&self) -> u64 {
        self.state(|state| state.reads)
    }

    /// Returns the number of further changes that fail.
    pub(crate) fn failures_left(&self) -> u64 {
        self.state(|state| state.failing.map_or(0, |(_, left)| left))
    }

    pub(crate) fn set_capacity(&self, capacity: Option<usize>) {
        self.state(|state| state.capacity = capacity);
    }

    pub(crate) fn used(&self) -> usize {
        self.state(|state| state.images.iter().map(|image| image.current.len()).sum())
    }

    pub(crate) fn slow_syncs(&self, takes: Duration) {
        self.state(|state| state.sync_takes = [takes; 2]);
    }

    /// Makes each sync of the journal take the time `takes`. The syncs of the database are quick.
    pub(crate) fn slow_syncs_of_the_journal(&self, takes: Duration) {
        self.state(|state| state.sync_takes = [Duration::ZERO, takes]);
    }

    /// Returns the disk as the system finds it after a loss of power. The disk has all synced bytes. `some` chooses
    /// unsynced changes that the disk has, and writes that the disk has only in part. With `None` the disk has no
    /// unsynced changes.
    pub(crate) fn after_the_cut(&self, mut some: Option<Numbers>) -> Self {
        let images = self.state(|state| state.images.clone()).map(|image| {
            let mut kept = image.synced;
            for change in image.unsynced {
                let Some(numbers) = &mut some else { break };
                let chosen = numbers.next();
                match (&change, chosen % 4) {
                    (_, 0) => {}
                    (Change::Write(offset, data), 1) => {
                        // A disk writes whole sectors of 512 bytes.
                        let sectors = data.len() / 512;
                        let end = 512 * (usize::try_from(chosen >> 32).unwrap() % (sectors + 1));
                        Change::Write(*offset, data[..end].to_vec()).apply(&mut kept);
                    }
                    _ => change.apply(&mut kept),
                }
            }
            Image { current: kept.clone(), synced: kept, unsynced: Vec::new() }
        });
        Self(Arc::new(Mutex::new(State { images, ..State::default() })))
    }
}

impl State {
    /// Counts a change of the files. Fails if the disk must fail at this change.
    fn change(&mut self) -> io::Result<()> {
        if self.cut.is_some_and(|cut| self.changes >= cut) {
            return Err(io::Error::other("the power is off"));
        }
        self.changes += 1;
        if self.cut.is_some_and(|cut| self.changes >= cut) {
            return Err(io::Error::other("the power goes"));
        }
        if self.failing.is_some() && self.good > 0 {
            self.good -= 1;
        } else if let Some((kind, left)) = self.failing {
            self.failing = (left > 1).then_some((kind, left - 1));
            return Err(kind.into());
        }
        Ok(())
    }

    fn has_room(&self, part: usize, length: usize) -> bool {
        let others: usize =
            (0..2).filter(|other| *other != part).map(|other| self.images[other].current.len()).sum();
        length <= self.images[part].current.len()
            || self.capacity.is_none_or(|capacity| others + length <= capacity)
    }
}

impl File {
    fn make(&self, change: Change) -> io::Result<()> {
        self.disk.state(|state| {
            if let Err(error) = state.change() {
                if let (true, Change::Write(offset, data)) = (state.is_short, change) {
                    let part = Change::Write(offset, data[..data.len() / 2].to_vec());
                    let image = &mut state.images[self.part];
                    part.apply(&mut image.current);
                    image.unsynced.push(part);
                }
                return Err(error);
            }
            let length = match &change {
                Change::Write(offset, data) => offset + data.len(),
                Change::Length(length) => *length,
            };
            if !state.has_room(self.part, length) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let image = &mut state.images[self.part];
            change.apply(&mut image.current);
            image.unsynced.push(change);
            Ok(())
        })
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state(|state| state.images[self.part].current.len()) as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.state(|state| {
            state.reads += 1;
            if state.failing_reads > 0 {
                if state.good_reads == 0 {
                    state.failing_reads -= 1;
                    return Err(io::Error::other("the sector cannot be read"));
                }
                state.good_reads -= 1;
            }
            let offset = usize::try_from(offset).unwrap();
            let read = state.images[self.part].current.get(offset..offset + out.len());
            out.copy_from_slice(read.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.make(Change::Length(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        // A sync does not cover writes that come while it is under way.
        let (takes, begun) =
            self.disk.state(|state| (state.sync_takes[self.part], state.images[self.part].unsynced.len()));
        std::thread::sleep(takes);
        self.disk.state(|state| {
            state.change()?;
            state.syncs += 1;
            let fails = match &mut state.fails_at {
                Some((at, some)) if *at + 1 == state.syncs => Some(some),
                _ => None,
            };
            let image = &mut state.images[self.part];
            if let Some(some) = fails {
                // The file system keeps the lengths in a log of its own, so they are not lost.
                // The system writes pages out at any time, so the error can be that of a write during the sync.
                let writes = image.unsynced.extract_if(.., |change| match change {
                    Change::Length(_) => false,
                    Change::Write(..) => true,
                });
                for write in writes.filter(|_| some.next() % 2 == 0) {
                    write.apply(&mut image.synced);
                }
                return Err(io::Error::other("the sync fails"));
            }
            for change in image.unsynced.drain(..begun.min(image.unsynced.len())) {
                change.apply(&mut image.synced);
            }
            image.synced.resize(image.current.len(), 0);
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let panics = self.disk.state(|state| self.part == 1 && core::mem::take(&mut state.panics));
        assert!(!panics, "a file of the caller's panics");
        self.make(Change::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}
