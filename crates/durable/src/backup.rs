//! Writes backups of all timers of a store, and restores them into any store.
//!
//! # Format
//! A backup consists of lines of JSON. The first line is `{"tourbillon":"backup","version":1,"at":…}`, with the time of
//! the backup. If the program attached a value, the first line has it as `attached`. Each timer follows on a line of
//! its own, with its payload in base 64. The last line is `{"timers":…,"crc32":…}`, with the number of timers and the
//! checksum of all bytes before this line. A file without the last line is incomplete.
//!
//! # After a restore
//! Timers that fired after the backup fire again, under the same ids. Timers that were cancelled after the backup exist
//! again. Timers that became due after the backup are due at once, unless [`Restore`] changes their due moments. A
//! store remembers the ids of some timers after these timers have ended. A backup does not contain these ids.

use crate::executor::block_on;
use crate::state::{Lease, State};
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

/// The fields that the first line of a backup has in all versions of the format. A later version may have further
/// fields.
#[derive(Deserialize)]
struct AnyHead {
    tourbillon: Box<str>,
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    timers: u64,
    crc32: u32,
}

/// A writer that passes all bytes on to another writer and computes their checksum.
struct Summed<W> {
    to: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The inner writer may take only a part of the bytes. The caller then passes the rest again, so only the part
        // counts.
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
    /// The store failed during the backup or the restore.
    Store(StoreError),
    /// A line of the file is invalid.
    Line {
        /// The number of the line in the file, counted from 1.
        number: u64,
        /// A description of the fault, for a message.
        fault: Box<str>,
    },
    /// The backup was written by a later version of this crate.
    NewerVersion(u32),
    /// The file ends before the last line of the backup.
    Incomplete,
    /// The checksum is wrong, so the file has changed since it was written.
    Checksum,
    /// The store already has timers. A backup can be restored only into an empty store.
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

/// Writes a backup of all timers of a store, as they were at one moment, and returns the number of timers. The store
/// can be used during the backup. Blocks the calling thread.
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

/// Writes a backup as [`write()`] does, and attaches a value that [`read`] returns.
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
    // The store takes no error from this function. So an error of the file is kept here, and `false` ends the export.
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
    // A buffered writer ignores its errors when it is dropped, so a full disk would go unnoticed without this flush.
    to.flush()?;
    Ok(timers)
}

/// The summary of a complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The time of the backup, by the store's clock.
    pub at: UtcMillis,
    /// The number of timers in the backup.
    pub timers: u64,
    /// The value that the program attached to the backup ([`write_with`]), in JSON. `None` if the program attached no
    /// value.
    pub attached: Option<Box<str>>,
}

/// Reads a whole backup and verifies it, without restoring it.
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

/// Restores a backup. The fields determine when the restored timers become due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restore {
    /// The earliest due moment of a restored timer. A timer whose due moment in the backup is earlier becomes due at
    /// this moment instead. Dead timers keep their due moments. `None` changes no due moments.
    pub due_floor: Option<UtcMillis>,
    /// The number of overdue timers that become due in each second. A timer is overdue if it is not dead, and its due
    /// moment in the backup is not later than [`due_floor`](Self::due_floor). The first overdue timer becomes due at
    /// the floor. The other overdue timers follow in the order of their old due moments. If the rate is `None` or 0,
    /// all overdue timers become due at the floor. Without a floor, the rate has no effect. With a rate, a restore
    /// needs 24 bytes of memory for each overdue timer.
    pub rate: Option<u32>,
}

/// Delays the due moments of restored timers.
struct Delay {
    /// The earliest due moment of a restored timer ([`Restore::due_floor`]).
    floor: UtcMillis,
    /// The number of overdue timers that become due in each second ([`Restore::rate`]). Zero if all overdue timers
    /// become due at the floor.
    rate: u32,
    /// The old due moments and the ids of the overdue timers, in the order in which these timers become due. Empty if
    /// `rate` is zero.
    order: Vec<(UtcMillis, TimerId)>,
}

impl Delay {
    fn concerns(&self, timer: &Timer) -> bool {
        !matches!(timer.state, State::Dead(_)) && timer.due <= self.floor
    }

    fn apply(&self, timer: &mut Timer) {
        if self.concerns(timer) {
            // With the rate 0, `order` is empty. The place is then 0, and the timer becomes due at the floor.
            let place = self.order.binary_search(&(timer.due, timer.id)).unwrap_or(0);
            let pause = (place as u64).saturating_mul(1_000) / u64::from(self.rate.max(1));
            timer.due = self.floor + Duration::from_millis(pause);
        }
    }
}

impl Restore {
    /// Stores the timers of a backup in an empty store, and returns the number of stored timers. Leaves out timers that
    /// were withdrawn during their delivery. Blocks the calling thread.
    ///
    /// The method checks the whole file before it stores the first timer, so a damaged or incomplete backup leaves the
    /// store empty. For this purpose, it calls `read` twice, and each call must return a reader of the whole file.
    ///
    /// # Errors
    ///
    /// Fails if the store has timers, if the file cannot be read or is not a complete backup, or if the store fails. If
    /// the store fails, it may already contain some of the timers.
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
        // An unreadable record may be a timer, too, so a store with such records is not empty.
        if !counts.by_namespace.is_empty() || counts.quarantined > 0 {
            return Err(BackupError::NotEmpty);
        }
        self.read_into(read, |timers| block_on(store.import(timers)))
    }

    /// Reads a backup as [`restore`](Self::restore) does. Passes the timers to `import`, up to 1,000 in each call, and
    /// returns the number of these timers. This method is for a store that imports the whole backup in one transaction.
    ///
    /// The method checks the whole file before the first call of `import`.
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
        // The first pass is needed without a rate, too, because it finds a damaged file before a timer is stored.
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
        let mut passed = 0;
        let _contents = each_timer(read()?, |mut timer| {
            if matches!(timer.state, State::Leased(Lease { withdrawn: Some(_), .. })) {
                return Ok(());
            }
            passed += 1;
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
        Ok(passed)
    }
}

/// Reads a backup, and calls `each` for each timer as soon as its line is read. So if a line is faulty, `each` has
/// already been called for the timers of earlier lines.
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
            let found: AnyHead = serde_json::from_str(&line).map_err(|error| fault(&error))?;
            if *found.tourbillon != *"backup" {
                return Err(fault(&"this is not a backup"));
            }
            if found.version > VERSION {
                return Err(BackupError::NewerVersion(found.version));
            }
            head = Some(serde_json::from_str::<Head>(&line).map_err(|error| fault(&error))?);
        } else if tail.is_some() {
            return Err(fault(&"the backup ends before this line"));
        } else if let Ok(last) = serde_json::from_str::<Tail>(&line) {
            // A timer lacks the fields of a `Tail`, so this line is not that of a timer.
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
