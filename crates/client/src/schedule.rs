//! Offers the calls about a schedule, which makes timers repeatedly.

use crate::error::Error;
use crate::pages::Paged;
use crate::path::push;
use crate::transport::{Call, Transport};
use core::fmt;
use http::Method;
use std::sync::Arc;
use tourbillon_api::{Backfill, NewSchedule, Operation, Removed, SchedulePatch, ScheduleView, Triggered};

/// Gives access to a schedule by its key.
#[derive(Clone)]
pub struct ScheduleAt<'a> {
    transport: &'a Transport,
    path: String,
}

impl<'a> ScheduleAt<'a> {
    pub(crate) fn new(transport: &'a Transport, namespace: &str, key: &str) -> Self {
        let mut path = format!("{namespace}/schedules");
        push(&mut path, key);
        Self { transport, path }
    }

    /// Returns the schedule, with the next ten instants at which it makes a timer.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the schedule does not exist.
    pub async fn get(&self) -> Result<ScheduleView, Error> {
        self.transport.send(&Call::read(self.path.clone())).await
    }

    /// Makes the schedule, or replaces an existing schedule completely.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn put(&self, schedule: &NewSchedule) -> Result<ScheduleView, Error> {
        self.transport.send(&Call::change(Method::PUT, self.path.clone()).json(schedule)?).await
    }

    /// Changes the fields that the patch sets. The other fields of the schedule stay.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the schedule does not exist.
    pub async fn patch(&self, patch: &SchedulePatch) -> Result<ScheduleView, Error> {
        self.transport.send(&Call::change(Method::PATCH, self.path.clone()).json(patch)?).await
    }

    /// Removes the schedule. The timers that it has made stay. If there was no schedule, the call succeeds, and the
    /// answer says so.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn delete(&self) -> Result<Removed, Error> {
        self.transport.send(&Call::change(Method::DELETE, self.path.clone())).await
    }

    /// Pauses the schedule. It makes no timers for the instants during the pause.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the schedule does not exist.
    pub async fn pause(&self) -> Result<ScheduleView, Error> {
        self.transport.send(&self.verb("pause")).await
    }

    /// Ends a pause of the schedule.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the schedule does not exist.
    pub async fn resume(&self) -> Result<ScheduleView, Error> {
        self.transport.send(&self.verb("resume")).await
    }

    /// Makes a timer of the schedule at once. The timer is due now.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the schedule does not exist.
    pub async fn trigger(&self) -> Result<Triggered, Error> {
        self.transport.send(&self.verb("trigger")).await
    }

    /// Starts an operation that makes timers for the past instants of the schedule in a range of time.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if the schedule does not exist.
    pub async fn backfill(&self, backfill: &Backfill) -> Result<Operation, Error> {
        self.transport.send(&self.verb("backfill").json(backfill)?).await
    }

    fn verb(&self, verb: &str) -> Call {
        Call::change(Method::POST, format!("{}/{verb}", self.path))
    }
}

impl fmt::Debug for ScheduleAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleAt").field("path", &self.path).finish()
    }
}

/// A reader of a list of schedules. The list is read page by page, in the order of the keys.
#[derive(Clone, Debug)]
pub struct SchedulePages(Paged);

impl SchedulePages {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self(Paged::new(transport, path))
    }

    /// Keeps only schedules whose keys begin with this text.
    #[must_use]
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        Self(self.0.with("key_prefix", prefix))
    }

    /// Fetches the next page of schedules. Returns `None` after the last page.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If a call fails, the next call asks for the same page again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<ScheduleView>>, Error> {
        self.0.next_page().await
    }
}
