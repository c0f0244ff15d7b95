//! Lists of timers for people and programs, a page at a time, with cursors that hold for one list.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use tourbillon_api::{Problem, ProblemKind};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Cursor, Filter, Page, StoreError};
use tourbillon_durable::timer::Timer;
use tourbillon_durable::{Timers, UtcMillis};
use uuid::Uuid;

/// The greatest number of pages of the store that one page is made of.
const MOST_PAGES: usize = 10;
/// The greatest number of timers that are read before it is known how large they are.
const FIRST: u32 = 50;
/// The number of bytes of payloads with which a page ends early.
const ENOUGH: usize = 1 << 20;

/// A list, of which a cursor shows a place.
pub(crate) struct Listing {
    filter: Filter,
    due_before: Option<UtcMillis>,
    /// The mark of the list's cursors, since a cursor means nothing in another list.
    mark: [u8; 8],
}

/// The name space of lists.
const LISTS: Uuid = Uuid::from_u128(0x0c1d_91a5_6f3a_4e0c_b7c4_7f2d_5a6e_9b13);

fn mark(filter: &Filter, due_before: Option<UtcMillis>) -> [u8; 8] {
    let list = serde_json::to_vec(&(filter, due_before)).unwrap_or_default();
    let [.., a, b, c, d, e, f, g, h] = Uuid::new_v5(&LISTS, &list).into_bytes();
    [a, b, c, d, e, f, g, h]
}

impl Listing {
    pub(crate) fn new(filter: Filter, due_before: Option<UtcMillis>) -> Self {
        Self { mark: mark(&filter, due_before), filter, due_before }
    }

    /// The place that a cursor shows.
    pub(crate) fn cursor(&self, text: &str) -> Result<Cursor, Problem> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let place = bytes.as_deref().and_then(|bytes| bytes.strip_prefix(&self.mark));
        place
            .map(Cursor::from_bytes)
            .ok_or_else(|| Problem::new(ProblemKind::BadRequest, "the cursor is of another list, or of none"))
    }

    pub(crate) fn shown_cursor(&self, cursor: &Cursor) -> String {
        BASE64_URL_SAFE_NO_PAD.encode([&self.mark, cursor.as_bytes()].concat())
    }

    /// The page at a place. It may have fewer timers than asked for, although there are further ones: if the conditions
    /// leave some out, or the payloads of the first fifty have a megabyte together.
    pub(crate) async fn page(
        &self,
        timers: &Timers,
        mut cursor: Option<Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        let mut page = Page::default();
        let mut most = limit.min(FIRST);
        for _ in 0..MOST_PAGES {
            let read = self.part(timers, cursor, most).await?;
            let is_whole = read.timers.len() >= most as usize;
            page.timers.extend(read.timers);
            page.next = read.next;
            most = room(&page.timers, limit);
            // A page that has timers goes on only if none were left out.
            if page.next.is_none() || most == 0 || !(is_whole || page.timers.is_empty()) {
                break;
            }
            cursor = page.next.clone();
        }
        Ok(page)
    }

    /// One page of the store, without the timers that are due too late.
    async fn part(&self, timers: &Timers, cursor: Option<Cursor>, limit: u32) -> Result<Page, StoreError> {
        let is_by_due = self.filter.phase == Some(Phase::Pending)
            && self.filter.label.is_none()
            && self.filter.key_prefix.is_none();
        let mut page = timers.list(self.filter.clone(), cursor, limit).await?;
        if let Some(before) = self.due_before {
            let is_over = is_by_due && page.timers.last().is_some_and(|timer| timer.due >= before);
            page.timers.retain(|timer| timer.due < before);
            if is_over {
                page.next = None;
            }
        }
        Ok(page)
    }
}

/// The number of timers that a page with these ones has room for, if the others are as large.
fn room(timers: &[Timer], limit: u32) -> u32 {
    let count = u32::try_from(timers.len()).unwrap_or(u32::MAX);
    let bytes: usize = timers.iter().map(|timer| timer.payload.0.len()).sum();
    let each = (bytes / timers.len().max(1)).max(1);
    let more = u32::try_from(ENOUGH.saturating_sub(bytes) / each).unwrap_or(u32::MAX);
    more.min(limit.saturating_sub(count))
}
