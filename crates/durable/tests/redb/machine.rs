//! Simulates a machine that loses its power at a sync. Tests can read and change its files.

use crate::faults::builder;
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use tourbillon::ManualClock;
use tourbillon_durable::store::{Fault, Part, RedbBuilder, RedbStore, StoreError};

/// A file of the simulated machine, with its bytes on the disk and in the system's memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// The bytes that the disk has. A loss of power leaves these bytes.
    pub(crate) synced: Vec<u8>,
    /// The bytes that readers see. The disk may lack some of the bytes.
    pub(crate) current: Vec<u8>,
    /// The offset behind the last write, in bytes. `synced_end` has the offset behind the last write before the last
    /// sync.
    pub(crate) end: usize,
    pub(crate) synced_end: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// The file of the database, and then the file of the journal.
    pub(crate) files: [File; 2],
    /// Whether the power goes at the next sync. The sync and all later changes fail.
    pub(crate) loses_power: bool,
    /// Whether the power is off. All changes fail.
    pub(crate) is_off: bool,
    /// Whether the journal's file cannot become longer.
    pub(crate) cannot_grow: bool,
    /// The number of syncs of the database that succeed before a sync fails. The file may keep the writes before the
    /// failed sync. `None` if no sync fails.
    pub(crate) fails_at: Option<u32>,
    /// The offsets and lengths of all reads of the database, in bytes.
    pub(crate) reads: Vec<(usize, usize)>,
}

/// Gives a store access to a file of a simulated machine. The number is the index of the file.
#[derive(Clone, Debug)]
struct Medium(Arc<Mutex<Machine>>, usize);

impl Medium {
    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut File)) -> io::Result<()> {
        let mut machine = self.machine();
        if machine.is_off {
            return Err(io::Error::other("the power is off"));
        }
        change(&mut machine.files[self.1]);
        Ok(())
    }
}

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        Ok(self.machine().files[self.1].current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let mut machine = self.machine();
        let read = machine.files[self.1].current.get(offset..offset + out.len());
        out.copy_from_slice(read.ok_or(io::ErrorKind::UnexpectedEof)?);
        if self.1 == 0 {
            machine.reads.push((offset, out.len()));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.1 == 1 && self.machine().cannot_grow {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.change(|file| file.current.resize(usize::try_from(len).unwrap(), 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut machine = self.machine();
        machine.is_off |= machine.loses_power;
        if self.1 == 0 {
            let fails = machine.fails_at == Some(0);
            machine.fails_at = machine.fails_at.and_then(|at| at.checked_sub(1));
            if fails {
                return Err(io::Error::other("the sync fails"));
            }
        }
        drop(machine);
        self.change(|file| {
            file.synced.clone_from(&file.current);
            file.synced_end = file.end;
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|file| {
            let start = usize::try_from(offset).unwrap();
            file.end = start + data.len();
            if file.current.len() < file.end {
                file.current.resize(file.end, 0);
            }
            file.current[start..file.end].copy_from_slice(data);
        })
    }
}

pub(crate) type Shared = Arc<Mutex<Machine>>;

pub(crate) fn machine_with(timers: &[u8], journal: &[u8]) -> Shared {
    let files = [timers, journal].map(|bytes| {
        let synced = bytes.to_vec();
        File { current: synced.clone(), synced, ..File::default() }
    });
    Arc::new(Mutex::new(Machine { files, ..Machine::default() }))
}

/// Returns the function that gives a store access to the two files of a simulated machine.
fn medium(machine: &Shared) -> impl Fn(Part) -> io::Result<Box<dyn StorageBackend>> + Send + Sync + 'static {
    let machine = Arc::clone(machine);
    move |part| {
        let file = match part {
            Part::Timers => 0,
            Part::Operations => 1,
        };
        Ok(Box::new(Medium(Arc::clone(&machine), file)))
    }
}

pub(crate) fn open(machine: &Shared, clock: &ManualClock) -> Result<RedbStore, StoreError> {
    open_by(builder(clock), machine)
}

pub(crate) fn open_by(builder: RedbBuilder, machine: &Shared) -> Result<RedbStore, StoreError> {
    builder.open_with(medium(machine))
}

pub(crate) fn verify(machine: &Shared, clock: &ManualClock) -> Result<Vec<Fault>, StoreError> {
    builder(clock).verify_with(medium(machine))
}
