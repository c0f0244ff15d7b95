//! Writes backups, which are copies of all timers of a store, and restores them into any store.
//!
//! # Format
//! A backup has lines of JSON. The first line is `{"tourbillon":"backup","version":1,"at":…}`, with the moment of the
//! copy. If the program gave a value, the first line has it as `attached`. Then comes a line for each timer, with its
//! payload in base 64. The last line is `{"timers":…,"crc32":…}`: the number of timers and the checksum of all bytes
//! before this line. A file without the last line is incomplete.
//!
//! # After a restore
//! Timers that fired after the copy was made fire again, under the same ids. Timers that were cancelled after the copy
//! exist again. Timers that became due after the copy are due at once, unless [`Restore`] changes their due moments. A
//! store remembers some ids after their timers have ended. A backup does not contain these ids.

use crate::executor::block_on;
use crate::state::State;
use crate::store::{StoreError, StoreErrorKind, TimerStore};
use crate::timer::{Timer, TimerId};
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};
use tourbillon_words::UtcMillis;

const VERSION: u32 = 1;
/// The number of timers that a restore stores in one transaction.
const AT_ONCE: usize = 1_000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    tourbillon: Box<str>,
    version: u32,
    at: UtcMillis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attached: Option<serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    timers: u64,
    crc32: u32,
}

/// A writer that computes the checksum of the bytes that it passes on to another writer.
struct Summed<W> {
    to: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The reason why a backup or a restore failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackupError {
    /// The backup file could not be read or written.
    Io(io::Error),
    /// The store failed while it was copied or restored.
    Store(StoreError),
    /// A line of the file is not valid in a backup.
    Line {
        /// The number of the line in the file, counted from 1.
        number: u64,
        /// The description of the fault in the line.
        fault: Box<str>,
    },
    /// The backup was written by a later version of this crate.
    NewerVersion(u32),
    /// The file ends before the last line of the backup.
    Incomplete,
    /// The checksum is wrong. So the file has changed after it was written.
    Checksum,
    /// The store already has timers. Only an empty store can be restored.
    NotEmpty,
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Line { number, fault } => write!(f, "line {number}: {fault}"),
            Self::NewerVersion(version) => {
                write!(f, "the backup is of version {version}, which is not known here")
            }
            Self::Incomplete => f.write_str("the file ends before the backup does"),
            Self::Checksum => f.write_str("the checksum is wrong: the file is not as it was written"),
            Self::NotEmpty => f.write_str("the store has timers"),
        }
    }
}

impl core::error::Error for BackupError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn write_line(to: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

/// Writes a backup with all timers of a store, as they were at one moment. Returns the number of timers. The store can
/// be used during the backup. The calling thread waits.
///
/// # Errors
///
/// Fails if the store cannot be read, or the file cannot be written.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::backup;
///
/// # use std::time::Duration;
/// # use tourbillon_durable::store::MemoryStore;
/// # use tourbillon_durable::{Durable, Spec};
/// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
/// # let hour = Duration::from_secs(3_600);
/// # durable.handle().schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("order 17").after(hour))?;
/// # let store = durable.handle().timer_store();
/// let mut copy = Vec::new();
/// assert_eq!(backup::write(&*store, &mut copy)?, 1);
/// assert_eq!(backup::read(&copy[..])?.timers, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(store: &dyn TimerStore, to: impl Write + Send) -> Result<u64, BackupError> {
    write_all(store, None, to)
}

/// Writes a backup as [`write()`] does, and adds a value of the program. [`read`] returns this value.
///
/// # Errors
///
/// Fails as [`write()`] does, and if the value cannot be written as JSON.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::backup;
///
/// # use std::time::Duration;
/// # use tourbillon_durable::store::MemoryStore;
/// # use tourbillon_durable::{Durable, Spec};
/// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
/// # let hour = Duration::from_secs(3_600);
/// # durable.handle().schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("order 17").after(hour))?;
/// # let store = durable.handle().timer_store();
/// let mut copy = Vec::new();
/// backup::write_with(&*store, &["shop", "mail"], &mut copy)?;
/// assert_eq!(backup::read(&copy[..])?.attached.as_deref(), Some(r#"["shop","mail"]"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_with(
    store: &dyn TimerStore,
    attached: &impl Serialize,
    to: impl Write + Send,
) -> Result<u64, BackupError> {
    let attached = serde_json::to_value(attached).map_err(io::Error::from)?;
    write_all(store, Some(attached), to)
}

fn write_all(
    store: &dyn TimerStore,
    attached: Option<serde_json::Value>,
    to: impl Write + Send,
) -> Result<u64, BackupError> {
    let mut to = Summed { to, sum: crc32fast::Hasher::new() };
    let head = Head { tourbillon: "backup".into(), version: VERSION, at: store.now(), attached };
    write_line(&mut to, &head)?;
    let (mut timers, mut failed) = (0, None);
    let each = |timer: &Timer| match write_line(&mut to, timer) {
        Ok(()) => {
            timers += 1;
            true
        }
        Err(error) => {
            failed = Some(error);
            false
        }
    };
    block_on(store.export(Box::new(each)))?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let crc32 = to.sum.clone().finalize();
    write_line(&mut to, &Tail { timers, crc32 })?;
    to.flush()?;
    Ok(timers)
}

/// The summary of a complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The moment at which the backup copied the timers.
    pub at: UtcMillis,
    /// The number of timers in the backup.
    pub timers: u64,
    /// The value that the program added, in JSON. `None` if it added no value.
    pub attached: Option<Box<str>>,
}

/// Reads a backup to its end and verifies it. Changes no store.
///
/// # Errors
///
/// Fails if the file cannot be read, or is not a complete backup.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::backup::{self, BackupError};
///
/// # use std::time::Duration;
/// # use tourbillon_durable::store::MemoryStore;
/// # use tourbillon_durable::{Durable, Spec};
/// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
/// # let hour = Duration::from_secs(3_600);
/// # durable.handle().schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("order 17").after(hour))?;
/// # let store = durable.handle().timer_store();
/// let mut copy = Vec::new();
/// backup::write(&*store, &mut copy)?;
/// assert_eq!(backup::read(&copy[..])?.timers, 1);
/// copy.truncate(copy.len() - 10);
/// assert!(backup::read(&copy[..]).is_err(), "a copy that was cut is noticed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(from: impl BufRead) -> Result<Contents, BackupError> {
    each_timer(from, |_| Ok(()))
}

/// Restores a backup. The fields decide when the restored timers become due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restore {
    /// The earliest due moment after the restore. Timers that were due before the floor become due at the floor. Dead
    /// timers keep their due moments. `None` changes no due moments.
    pub due_floor: Option<UtcMillis>,
    /// The rate, in timers a second, at which overdue timers become due. A timer is overdue if it was due at the floor
    /// or before. Overdue timers become due one after the other from the floor on, in the order of their due moments.
    /// `None` means that all overdue timers become due at the floor. A restore needs 24 bytes of memory for each
    /// overdue timer.
    pub rate: Option<u32>,
}

/// The rule that delays the due moments of restored timers.
struct Delay {
    floor: UtcMillis,
    rate: u32,
    /// The due moments and ids of the timers that were due at the floor or before, in order. Empty if the restore has
    /// no rate.
    order: Vec<(UtcMillis, TimerId)>,
}

impl Delay {
    fn concerns(&self, timer: &Timer) -> bool {
        !matches!(timer.state, State::Dead(_)) && timer.due <= self.floor
    }

    fn apply(&self, timer: &mut Timer) {
        if self.concerns(timer) {
            let place = self.order.binary_search(&(timer.due, timer.id)).unwrap_or(0);
            let pause = (place as u64).saturating_mul(1_000) / u64::from(self.rate.max(1));
            timer.due = self.floor + Duration::from_millis(pause);
        }
    }
}

impl Restore {
    /// Stores the timers of a backup in an empty store. Returns the number of timers. The calling thread waits.
    ///
    /// The whole file is checked before the first timer is stored. So a damaged or incomplete backup leaves the store
    /// empty. For this reason `read` is called twice, and must return the whole file each time.
    ///
    /// # Errors
    ///
    /// Fails if the store has timers, if the file cannot be read or is not a complete backup, or if the store fails.
    /// After a failure of the store, some timers may have been stored.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::backup::{self, Restore};
    ///
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let hour = Duration::from_secs(3_600);
    /// # durable.handle().schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("order 17").after(hour))?;
    /// # let store = durable.handle().timer_store();
    /// let mut copy = Vec::new();
    /// backup::write(&*store, &mut copy)?;
    /// let empty = MemoryStore::default();
    /// assert_eq!(Restore::default().restore(&empty, || Ok(&copy[..]))?, 1);
    /// assert!(Restore::default().restore(&empty, || Ok(&copy[..])).is_err(), "it is empty no more");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore<R: BufRead>(
        self,
        store: &dyn TimerStore,
        read: impl FnMut() -> io::Result<R>,
    ) -> Result<u64, BackupError> {
        let counts = block_on(store.counts())?;
        if !counts.by_namespace.is_empty() || counts.quarantined > 0 {
            return Err(BackupError::NotEmpty);
        }
        self.read_into(read, |timers| block_on(store.import(timers)))
    }

    /// Reads a backup as [`restore`](Self::restore) does, and hands the timers to `import`, up to 1,000 at a time. This
    /// method is for a store that takes the whole backup in one transaction. Returns the number of timers.
    ///
    /// The whole file is checked before the first call of `import`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is not a complete backup, or if `import` fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::backup::{self, Restore};
    ///
    /// # use std::time::Duration;
    /// # use tourbillon_durable::store::MemoryStore;
    /// # use tourbillon_durable::{Durable, Spec};
    /// # let durable = Durable::builder(MemoryStore::default()).bytes_handler("mail", async |_, _| {}).start()?;
    /// # let hour = Duration::from_secs(3_600);
    /// # durable.handle().schedule_bytes_blocking("mail", Spec::new(Vec::new()).key("order 17").after(hour))?;
    /// # let store = durable.handle().timer_store();
    /// let mut copy = Vec::new();
    /// backup::write(&*store, &mut copy)?;
    /// let mut timers = Vec::new();
    /// let import = |portion| {
    ///     timers.extend(portion);
    ///     Ok(())
    /// };
    /// Restore::default().read_into(|| Ok(&copy[..]), import)?;
    /// assert_eq!(timers[0].key.as_deref(), Some("order 17"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_into<R: BufRead>(
        self,
        mut read: impl FnMut() -> io::Result<R>,
        mut import: impl FnMut(Vec<Timer>) -> Result<(), StoreError>,
    ) -> Result<u64, BackupError> {
        let rate = self.rate.unwrap_or_default();
        let mut delay = self.due_floor.map(|floor| Delay { floor, rate, order: Vec::new() });
        each_timer(read()?, |timer| {
            if let Some(delay) = delay.as_mut().filter(|delay| delay.rate > 0 && delay.concerns(&timer)) {
                delay.order.push((timer.due, timer.id));
            }
            Ok(())
        })?;
        if let Some(delay) = &mut delay {
            delay.order.sort_unstable();
        }
        let mut waiting = Vec::with_capacity(AT_ONCE);
        let contents = each_timer(read()?, |mut timer| {
            if let Some(delay) = &delay {
                delay.apply(&mut timer);
            }
            waiting.push(timer);
            if waiting.len() == AT_ONCE {
                import(core::mem::take(&mut waiting))?;
            }
            Ok(())
        })?;
        import(waiting)?;
        Ok(contents.timers)
    }
}

/// Calls `each` for each timer of a backup while the file is read. A fault at a later line is found only after the
/// calls for the earlier lines.
fn each_timer(
    from: impl BufRead,
    mut each: impl FnMut(Timer) -> Result<(), BackupError>,
) -> Result<Contents, BackupError> {
    let (mut timers, mut head, mut tail, mut number) = (0, None, None, 0);
    let mut sum = crc32fast::Hasher::new();
    for line in from.lines() {
        let line = line?;
        number += 1;
        let fault = |fault: &dyn fmt::Display| BackupError::Line { number, fault: fault.to_string().into() };
        if number == 1 {
            let found: Head = serde_json::from_str(&line).map_err(|error| fault(&error))?;
            if *found.tourbillon != *"backup" {
                return Err(fault(&"this is not a backup"));
            }
            if found.version > VERSION {
                return Err(BackupError::NewerVersion(found.version));
            }
            head = Some(found);
        } else if tail.is_some() {
            return Err(fault(&"there are lines after the last one"));
        } else if let Ok(last) = serde_json::from_str::<Tail>(&line) {
            if last.crc32 != sum.clone().finalize() {
                return Err(BackupError::Checksum);
            }
            tail = Some(last.timers);
        } else {
            each(serde_json::from_str(&line).map_err(|error| fault(&error))?)?;
            timers += 1;
        }
        sum.update(line.as_bytes());
        sum.update(b"\n");
    }
    match head {
        Some(Head { at, attached, .. }) if tail == Some(timers) => {
            Ok(Contents { at, timers, attached: attached.map(|attached| attached.to_string().into()) })
        }
        _ => Err(BackupError::Incomplete),
    }
}

impl From<BackupError> for StoreError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(error) => error,
            other => Self::caused_by(StoreErrorKind::Io, other),
        }
    }
}
