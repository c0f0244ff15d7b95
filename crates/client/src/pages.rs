//! Reads lists, which the service returns page by page.

use crate::error::Error;
use crate::path::query;
use crate::transport::{Call, Transport};
use core::fmt;
use futures_util::stream::{self, Stream, TryStreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tourbillon_api::{Moment, Page, Phase, Timer};

/// A list that is read page by page, with its conditions and the position of the next page.
#[derive(Clone)]
pub(crate) struct Paged {
    transport: Arc<Transport>,
    path: String,
    conditions: Vec<(&'static str, String)>,
    cursor: Option<String>,
    is_done: bool,
}

impl Paged {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self { transport, path, conditions: Vec::new(), cursor: None, is_done: false }
    }

    /// Sets a condition of the list. Replaces an earlier condition with the same name.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.conditions.retain(|(other, _)| *other != name);
        self.conditions.push((name, value.into()));
        self
    }

    /// Fetches the next page of the list. Returns `None` after the last page. If a call fails, the next call asks for
    /// the same page again.
    pub(crate) async fn next_page<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, Error> {
        if self.is_done {
            return Ok(None);
        }
        let conditions = self.conditions.iter().map(|(name, value)| (*name, Some(&**value)));
        let pairs: Vec<_> = conditions.chain([("cursor", self.cursor.as_deref())]).collect();
        let path = format!("{}{}", self.path, query(&pairs));
        let Page { items, next } = self.transport.send(&Call::read(path)).await?;
        if next.is_some() && next == self.cursor {
            let reason = "the cursor of the next page is that of this page".into();
            return Err(Error::Decode { status: 200, reason });
        }
        self.is_done = next.is_none();
        self.cursor = next;
        Ok(Some(items))
    }
}

impl fmt::Debug for Paged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paged").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Converts a variant of an enum into the word by which a query names it.
pub(crate) fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.as_ref().and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

/// A list of timers, narrowed by conditions. [`pages`](Self::pages) and [`stream`](Self::stream) read the list.
#[derive(Clone, Debug)]
pub struct List(Paged);

impl List {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self(Paged::new(transport, path))
    }

    /// Keeps only timers in this phase.
    #[must_use]
    pub fn phase(self, phase: Phase) -> Self {
        Self(self.0.with("phase", word(phase)))
    }

    /// Keeps only timers that have this label.
    #[must_use]
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.with("label", label))
    }

    /// Keeps only timers whose keys begin with this text.
    #[must_use]
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        Self(self.0.with("key_prefix", prefix))
    }

    /// Keeps only timers that are due before this moment.
    #[must_use]
    pub fn due_before(self, moment: Moment) -> Self {
        Self(self.0.with("due_before", moment.to_string()))
    }

    /// Keeps only timers that are due after this moment.
    #[must_use]
    pub fn due_after(self, moment: Moment) -> Self {
        Self(self.0.with("due_after", moment.to_string()))
    }

    /// Keeps only timers that were made after this moment. If the moment is in the future, the list has only timers
    /// that were made while the service's clock was ahead of the true time.
    #[must_use]
    pub fn created_after(self, moment: Moment) -> Self {
        Self(self.0.with("created_after", moment.to_string()))
    }

    /// Sets the greatest number of timers in a page. The default is 50, the maximum 200.
    #[must_use]
    pub fn page_size(self, timers: u32) -> Self {
        Self(self.0.with("limit", timers.to_string()))
    }

    /// Makes a reader of the list's pages. Sends no request yet.
    #[must_use]
    pub fn pages(self) -> Pages {
        Pages(self.0)
    }

    /// Returns a stream of the list's timers. The stream sends a request for each page.
    pub fn stream(self) -> impl Stream<Item = Result<Timer, Error>> + Send {
        let pages = stream::try_unfold(self.pages(), async |mut pages| {
            let page = pages.next_page().await?;
            Ok(page.map(|timers| (stream::iter(timers.into_iter().map(Ok)), pages)))
        });
        pages.try_flatten()
    }
}

/// Reads a list of timers page by page. If a timer is made, moved or ended during the reading, the pages may contain
/// the timer twice or not at all.
#[derive(Clone, Debug)]
pub struct Pages(Paged);

impl Pages {
    /// Fetches the next page of timers. Returns `None` after the last page. Further pages may follow an empty page.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If a call fails, the next call asks for the same page again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Timer>>, Error> {
        self.0.next_page().await
    }
}
