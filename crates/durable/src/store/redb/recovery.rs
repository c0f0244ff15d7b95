//! Closes the database after an error and opens it again, because redb does not work after an error. The pauses between
//! failed attempts become longer. The attempts need no request, because readers wait for the database, too.
//!
//! | state | begins with | ends with |
//! |---|---|---|
//! | open | the start, an attempt that succeeds | an error of the database, or of a read |
//! | closed | an error | an attempt that succeeds, once the pause is over |

use super::common::{Common, being_opened};
use super::opening::Opener;
use crate::panics::survive;
use crate::store::error::{StoreError, StoreErrorKind};
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// The first and the longest pause between attempts to open the database again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Describes a period during which the database is closed: the last error, the moment from which the database may be
/// opened again, and the length of the next pause.
struct Outage {
    error: StoreError,
    again: Instant,
    pause: Duration,
}

/// Tracks whether the database is open, and opens it again after an error.
pub(super) struct Recovery {
    common: Arc<Common>,
    opener: Opener,
    /// The store's random number, by which the store recognizes its own database.
    store: u64,
    /// The current outage. `None` while the database is open.
    outage: Option<Outage>,
}

impl Recovery {
    /// Makes the recovery for a database that is open.
    pub(super) fn new(common: Arc<Common>, opener: Opener, store: u64) -> Self {
        Self { common, opener, store, outage: None }
    }

    pub(super) fn is_open(&self) -> bool {
        self.outage.is_none()
    }

    /// Returns the moment from which the database may be opened again. `None` while the database is open.
    pub(super) fn again(&self) -> Option<Instant> {
        self.outage.as_ref().map(|outage| outage.again)
    }

    /// Ends the current pause, so that the database may be opened again at once.
    pub(super) fn end_pause(&mut self) {
        self.outage.iter_mut().for_each(|outage| outage.again = Instant::now());
    }

    /// Closes the database after an error. The first attempt to open it again may follow at once.
    pub(super) fn fall(&mut self, error: StoreError) {
        self.close();
        // `room` does not see some limits in advance, for example a quota. Only such an error shows them.
        if error.kind() == StoreErrorKind::Full {
            self.common.room.release();
        }
        let pause = self.outage.as_ref().map_or(PAUSES.0, |outage| longer(outage.pause));
        self.outage = Some(Outage { error, again: Instant::now(), pause });
    }

    pub(super) fn close(&self) {
        let taken = self.common.take_database();
        // redb may panic on damaged pages, which must not end the thread.
        survive(|| drop(taken));
    }

    /// Returns whether the database is closed and may be opened now. If a read has failed, first closes the database.
    /// During a pause, fails with the error of the outage.
    pub(super) fn must_open(&mut self) -> Result<bool, StoreError> {
        if self.outage.is_none() && self.common.has_read_failed() {
            self.outage = Some(Outage { error: being_opened(), again: Instant::now(), pause: PAUSES.0 });
            self.close();
        }
        match &self.outage {
            None => Ok(false),
            Some(outage) if Instant::now() < outage.again => Err(outage.error.clone()),
            Some(_) => Ok(true),
        }
    }

    /// Opens the database. Returns the number of the last batch that the database contains. The second value says
    /// whether the database has a note that the store was closed after this batch. Readers wait for a call of
    /// [`Common::publish`], before which the caller replays the later batches.
    pub(super) fn open(&self) -> Result<(u64, bool), StoreError> {
        let opened = self.opener.open()?;
        // The file may have been replaced while the database was closed.
        if opened.store != self.store {
            return Err(StoreError::new(StoreErrorKind::Corrupt, "another database is in its place"));
        }
        self.common.lengths.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(opened.place);
        self.common.put_database(opened.database);
        Ok((opened.sequence, opened.is_closed))
    }

    /// Notes the result of an attempt to open the database. A failed attempt begins the next pause.
    pub(super) fn note_attempt(&mut self, opened: Result<(), StoreError>) -> Result<(), StoreError> {
        match opened {
            Ok(()) => {
                self.outage = None;
                self.common.count(|stats| stats.reopened += 1);
                Ok(())
            }
            Err(error) => {
                // The replay may have failed after the database was opened.
                self.close();
                let pause = self.outage.as_ref().map_or(PAUSES.0, |outage| outage.pause);
                let again = Instant::now() + pause;
                self.outage = Some(Outage { error: error.clone(), again, pause: longer(pause) });
                Err(error)
            }
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSES.1)
}
