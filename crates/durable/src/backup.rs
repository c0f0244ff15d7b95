//! Copies of all timers of a store, which any store reads: the way to keep them, and to move them to another store.
//!
//! # Format
//! Lines of JSON. The first one is `{"tourbillon":"backup","version":1,"at":…}`, with the moment of the copy. Then comes
//! one line for each timer, with payloads in base 64. The last one is `{"timers":…}`, their number: a file without it is
//! not complete.
//!
//! # After a restore
//! Timers that fired after the copy was made fire again, under the same ids, and timers that were cancelled after it are
//! there again. Timers that became due in the meantime are due at once, unless the [`Restore`] says otherwise.

use crate::executor::block_on;
use crate::state::State;
use crate::store::{StoreError, StoreErrorKind, TimerStore};
use crate::timer::Timer;
use crate::utc::UtcMillis;
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

const VERSION: u32 = 1;
/// Timers that a restore stores in one transaction.
const AT_ONCE: usize = 1_000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    tourbillon: Box<str>,
    version: u32,
    at: UtcMillis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    timers: u64,
}

/// A backup or a restore that failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackupError {
    /// The file could not be read or written.
    Io(io::Error),
    /// The store failed.
    Store(StoreError),
    /// A line is none of a backup.
    Line {
        /// The number of the line, from 1 on.
        number: u64,
        /// The fault.
        fault: Box<str>,
    },
    /// The backup was written by a later version of this crate.
    NewerVersion(u32),
    /// The file ends before the backup does.
    Incomplete,
    /// The store has timers. A restore changes an empty store only.
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

/// Writes all timers of a store as they were at one moment. Returns their number. The store goes on working meanwhile.
/// The calling thread waits.
///
/// # Errors
///
/// Fails if the store cannot be read, or the file cannot be written.
pub fn write(store: &dyn TimerStore, mut to: impl Write + Send) -> Result<u64, BackupError> {
    write_line(&mut to, &Head { tourbillon: "backup".into(), version: VERSION, at: store.now() })?;
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
    write_line(&mut to, &Tail { timers })?;
    to.flush()?;
    Ok(timers)
}

/// How a backup is restored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restore {
    /// Timers that are due before this moment become due then.
    pub due_floor: Option<UtcMillis>,
    /// Timers that the floor moves become due at this rate, in timers a second, the first ones first in the order of the
    /// file. `None` for all at the floor.
    pub rate: Option<u32>,
}

impl Restore {
    /// Stores the timers of a backup in a store that has none. Returns their number. The calling thread waits.
    ///
    /// The file is read to its end before the first timer is stored, if it can be read twice: a backup that is damaged
    /// or not complete leaves the store empty. For that, `read` is called twice.
    ///
    /// # Errors
    ///
    /// Fails if the store has timers, if the file cannot be read or is no complete backup, or if the store fails. If the
    /// store fails, some timers have been stored.
    pub fn restore<R: BufRead>(
        self,
        store: &dyn TimerStore,
        mut read: impl FnMut() -> io::Result<R>,
    ) -> Result<u64, BackupError> {
        if !block_on(store.counts())?.by_namespace.is_empty() {
            return Err(BackupError::NotEmpty);
        }
        each_timer(read()?, |_| Ok(()))?;
        let (mut waiting, mut moved) = (Vec::with_capacity(AT_ONCE), 0);
        let timers = each_timer(read()?, |mut timer| {
            self.delay(&mut timer, &mut moved);
            waiting.push(timer);
            if waiting.len() == AT_ONCE {
                block_on(store.import(core::mem::take(&mut waiting)))?;
            }
            Ok(())
        })?;
        block_on(store.import(waiting))?;
        Ok(timers)
    }

    fn delay(&self, timer: &mut Timer, moved: &mut u64) {
        let is_waiting = matches!(timer.state, State::Pending | State::Leased(_));
        if let Some(floor) = self.due_floor.filter(|floor| is_waiting && timer.due < *floor) {
            let pause = self.rate.map_or(0, |rate| *moved * 1_000 / u64::from(rate.max(1)));
            timer.due = floor + Duration::from_millis(pause);
            *moved += 1;
        }
    }
}

/// Calls `each` for the timers of a backup. Returns their number.
fn each_timer(
    from: impl BufRead,
    mut each: impl FnMut(Timer) -> Result<(), BackupError>,
) -> Result<u64, BackupError> {
    let (mut timers, mut tail, mut number) = (0, None, 0);
    for line in from.lines() {
        let line = line?;
        number += 1;
        let fault = |fault: &dyn fmt::Display| BackupError::Line { number, fault: fault.to_string().into() };
        if number == 1 {
            let head: Head = serde_json::from_str(&line).map_err(|error| fault(&error))?;
            if *head.tourbillon != *"backup" {
                return Err(fault(&"this is no backup"));
            }
            if head.version > VERSION {
                return Err(BackupError::NewerVersion(head.version));
            }
        } else if tail.is_some() {
            return Err(fault(&"there are lines after the last one"));
        } else if let Ok(last) = serde_json::from_str::<Tail>(&line) {
            tail = Some(last.timers);
        } else {
            each(serde_json::from_str(&line).map_err(|error| fault(&error))?)?;
            timers += 1;
        }
    }
    if tail == Some(timers) { Ok(timers) } else { Err(BackupError::Incomplete) }
}

impl From<BackupError> for StoreError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(error) => error,
            other => Self::caused_by(StoreErrorKind::Io, other),
        }
    }
}
