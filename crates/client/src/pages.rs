//! Lists of timers.

use crate::error::Error;
use crate::path::query;
use crate::transport::{Call, Transport};
use core::fmt;
use futures_util::stream::{self, Stream, TryStreamExt as _};
use std::sync::Arc;
use tourbillon_api::{Moment, Page, Phase, Timer};

/// The conditions of a list.
#[derive(Clone)]
pub struct List {
    transport: Arc<Transport>,
    path: String,
    phase: Option<Phase>,
    label: Option<String>,
    key_prefix: Option<String>,
    due_before: Option<Moment>,
    due_after: Option<Moment>,
    created_after: Option<Moment>,
    page_size: Option<u32>,
}

impl List {
    pub(crate) fn new(transport: Arc<Transport>, path: String) -> Self {
        Self {
            transport,
            path,
            phase: None,
            label: None,
            key_prefix: None,
            due_before: None,
            due_after: None,
            created_after: None,
            page_size: None,
        }
    }

    /// Only timers in this phase.
    #[must_use]
    pub fn phase(self, phase: Phase) -> Self {
        Self { phase: Some(phase), ..self }
    }

    /// Only timers that have this label.
    #[must_use]
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// Only timers whose keys begin so.
    #[must_use]
    pub fn key_prefix(self, prefix: impl Into<String>) -> Self {
        Self { key_prefix: Some(prefix.into()), ..self }
    }

    /// Only timers that are due before this moment.
    #[must_use]
    pub fn due_before(self, moment: Moment) -> Self {
        Self { due_before: Some(moment), ..self }
    }

    /// Only timers that are due after this moment.
    #[must_use]
    pub fn due_after(self, moment: Moment) -> Self {
        Self { due_after: Some(moment), ..self }
    }

    /// Only timers that were made after this moment. A moment in the future finds the timers that were made while the
    /// service's clock was ahead.
    #[must_use]
    pub fn created_after(self, moment: Moment) -> Self {
        Self { created_after: Some(moment), ..self }
    }

    /// Sets the greatest number of timers of a page. 50 by default, at most 200.
    #[must_use]
    pub fn page_size(self, timers: u32) -> Self {
        Self { page_size: Some(timers), ..self }
    }

    /// The list's pages. The call asks the service nothing.
    #[must_use]
    pub fn pages(self) -> Pages {
        Pages { list: self, cursor: None, is_done: false }
    }

    /// The list's timers, with a request for each page.
    pub fn stream(self) -> impl Stream<Item = Result<Timer, Error>> + Send {
        let pages = stream::try_unfold(self.pages(), async |mut pages| {
            let page = pages.next_page().await?;
            Ok(page.map(|timers| (stream::iter(timers.into_iter().map(Ok)), pages)))
        });
        pages.try_flatten()
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The pages of a list. A timer that is made, moved or ended while the pages are read may be left out or come twice.
#[derive(Clone, Debug)]
pub struct Pages {
    list: List,
    cursor: Option<String>,
    is_done: bool,
}

impl Pages {
    /// The next page, or none after the last one. A page may be empty, and yet not the last one.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an error the same page is asked for again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Timer>>, Error> {
        if self.is_done {
            return Ok(None);
        }
        let List { transport, path, phase, label, key_prefix, page_size, .. } = &self.list;
        let text = |moment: Option<Moment>| moment.map(|moment| moment.to_string());
        let due_before = text(self.list.due_before);
        let (due_after, created_after) = (text(self.list.due_after), text(self.list.created_after));
        let page_size = page_size.map(|size| size.to_string());
        let query = query(&[
            ("phase", phase.map(word)),
            ("label", label.as_deref()),
            ("key_prefix", key_prefix.as_deref()),
            ("due_before", due_before.as_deref()),
            ("due_after", due_after.as_deref()),
            ("created_after", created_after.as_deref()),
            ("limit", page_size.as_deref()),
            ("cursor", self.cursor.as_deref()),
        ]);
        let Page { items, next } = transport.send(&Call::read(format!("{path}{query}"))).await?;
        if next.is_some() && next == self.cursor {
            let reason = "the cursor of the next page is that of this page".into();
            return Err(Error::Decode { status: 200, reason });
        }
        self.is_done = next.is_none();
        self.cursor = next;
        Ok(Some(items))
    }
}

/// The word of a phase.
fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "pending",
        Phase::Leased => "leased",
        Phase::Parked => "parked",
        Phase::Dead => "dead",
        Phase::Done => "done",
        Phase::Withdrawn => "withdrawn",
    }
}
