//! Schedules, which make timers again and again.

use crate::error::Error;
use crate::path::{push, query};
use crate::transport::{Call, Transport};
use core::fmt;
use http::Method;
use std::sync::Arc;
use tourbillon_api::{
    Backfill, NewSchedule, Operation, Page, Removed, SchedulePatch, ScheduleView, Triggered,
};

/// A schedule by its key.
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

    /// The schedule with its next ten instants.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such schedule.
    pub async fn get(&self) -> Result<ScheduleView, Error> {
        self.transport.send(&Call::read(self.path.clone())).await
    }

    /// Makes the schedule, or changes it as a whole.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn put(&self, schedule: &NewSchedule) -> Result<ScheduleView, Error> {
        self.transport.send(&Call::change(Method::PUT, self.path.clone()).json(schedule)?).await
    }

    /// Changes the fields that are given.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such schedule.
    pub async fn patch(&self, patch: &SchedulePatch) -> Result<ScheduleView, Error> {
        self.transport.send(&Call::change(Method::PATCH, self.path.clone()).json(patch)?).await
    }

    /// Removes the schedule. Its occurrences stay. That there is none is an answer, no error.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn delete(&self) -> Result<Removed, Error> {
        self.transport.send(&Call::change(Method::DELETE, self.path.clone())).await
    }

    /// Pauses the schedule: its instants pass by.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such schedule.
    pub async fn pause(&self) -> Result<ScheduleView, Error> {
        self.transport.send(&self.verb("pause")).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such schedule.
    pub async fn resume(&self) -> Result<ScheduleView, Error> {
        self.transport.send(&self.verb("resume")).await
    }

    /// Makes an occurrence now.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such schedule.
    pub async fn trigger(&self) -> Result<Triggered, Error> {
        self.transport.send(&self.verb("trigger")).await
    }

    /// Begins to make the occurrences of a range in the past.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found` if there is no such schedule.
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

/// The pages of a list of schedules, in the order of their keys.
#[derive(Clone)]
pub struct SchedulePages {
    transport: Arc<Transport>,
    path: String,
    key_prefix: Option<String>,
    cursor: Option<String>,
    is_done: bool,
}

impl SchedulePages {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self { transport, path, key_prefix: None, cursor: None, is_done: false }
    }

    /// Only schedules whose keys begin so.
    #[must_use]
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        Self { key_prefix: Some(prefix.into()), ..self }
    }

    /// The next page, or none after the last one.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an error the same page is asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<ScheduleView>>, Error> {
        if self.is_done {
            return Ok(None);
        }
        let query = query(&[("key_prefix", self.key_prefix.as_deref()), ("cursor", self.cursor.as_deref())]);
        let Page { items, next } = self.transport.send(&Call::read(format!("{}{query}", self.path))).await?;
        if next.is_some() && next == self.cursor {
            let reason = "the cursor of the next page is that of this page".into();
            return Err(Error::Decode { status: 200, reason });
        }
        self.is_done = next.is_none();
        self.cursor = next;
        Ok(Some(items))
    }
}

impl fmt::Debug for SchedulePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulePages").field("path", &self.path).finish_non_exhaustive()
    }
}
