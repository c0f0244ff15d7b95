//! Lists timers page by page. A cursor is valid only for the list that made it.
//!
//! Each namespace has its own indexes of labels and keys. So a list by label or key over all namespaces is a *walk*: it
//! reads the lists of the namespaces in turn, and is ordered by namespace first.

use crate::convert::unavailable;
use crate::service::{DeadGroup, Service};
use crate::walk::Place;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use tourbillon_api::{Problem, ProblemKind};
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Cursor, Filter, Page, StoreError};
use tourbillon_durable::timer::Timer;
use uuid::Uuid;

/// The greatest number of reads from the store for one page of a list that is not a walk.
const MOST_PAGES: usize = 10;
/// The greatest number of reads from the store for one page of a walk, a list by label or key over all namespaces. It
/// exceeds [`MOST_PAGES`], because a walk reads each namespace separately.
const MOST_OF_A_WALK: usize = 50;
/// The greatest number of timers in the first read for a page. The payload sizes of these timers determine the number
/// of timers in the next read.
const FIRST: u32 = 50;
/// The total size of payloads, in bytes, at which a page ends early.
const ENOUGH: usize = 1 << 20;

/// A list of the timers that `filter` selects. If `group` is set, the list has only the dead timers of this group,
/// which have the same destination and the same last error.
pub(crate) struct Listing {
    filter: Filter,
    group: Option<DeadGroup>,
    /// A hash of the list's conditions, with which each cursor of the list begins. Other cursors are refused.
    mark: [u8; 8],
}

/// A page of a list of timers. `next` is the cursor of the next page, or `None` after the last page.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) timers: Vec<Timer>,
    pub(crate) next: Option<String>,
}

/// The UUID namespace for [`mark`], which makes a hash of a list's conditions.
const LISTS: Uuid = Uuid::from_u128(0x0c1d_91a5_6f3a_4e0c_b7c4_7f2d_5a6e_9b13);

/// Makes the text of a cursor from `mark`, which identifies the list, and `place`, a position in the list.
pub(crate) fn cursor_text(mark: &[u8], place: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode([mark, place].concat())
}

/// Returns the position in a list from a cursor. Fails if the cursor does not begin with `mark`, which identifies the
/// list.
pub(crate) fn place_of(cursor: &str, mark: &[u8]) -> Result<Vec<u8>, Problem> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    let place = bytes.as_deref().and_then(|bytes| bytes.strip_prefix(mark));
    place
        .map(<[u8]>::to_vec)
        .ok_or_else(|| Problem::new(ProblemKind::BadRequest, "the cursor is of another list, or of none"))
}

fn mark(filter: &Filter, group: Option<&DeadGroup>) -> [u8; 8] {
    let list = serde_json::to_vec(&(filter, group)).unwrap_or_default();
    let [.., a, b, c, d, e, f, g, h] = Uuid::new_v5(&LISTS, &list).into_bytes();
    [a, b, c, d, e, f, g, h]
}

impl Listing {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { mark: mark(&filter, None), filter, group: None }
    }

    /// Makes a list of the dead timers that `filter` selects and that belong to the group.
    pub(crate) fn of_group(filter: Filter, group: DeadGroup) -> Self {
        let filter = Filter { phase: Some(Phase::Dead), ..filter };
        Self { mark: mark(&filter, Some(&group)), filter, group: Some(group) }
    }

    /// Returns the page of the list that begins at the cursor, or the first page. A page may have fewer than `limit`
    /// timers although more follow, because some timers were filtered out or because payloads are large.
    pub(crate) async fn page(
        &self,
        service: &Service,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Listed, Problem> {
        let place = cursor.map(|cursor| place_of(cursor, &self.mark)).transpose()?;
        let is_walk = self.filter.namespace.is_none()
            && (self.filter.label.is_some() || self.filter.key_prefix.is_some());
        let listed = match is_walk {
            true => self.walk(service, place, limit).await,
            false => self.go_on(service, place, limit).await,
        };
        listed.map_err(|error| unavailable(&error))
    }

    /// Filters a page: if the list is limited to a group of dead timers ([`DeadGroup`]), removes all other timers.
    /// Always removes the internal timers, in which the store keeps schedules.
    fn keep(&self, page: &mut Page) {
        page.timers.retain(|timer| {
            let is_of_group = self.group.as_ref().is_none_or(|group| group.has(timer));
            is_of_group && !timer.namespace.starts_with(Schedules::NAMESPACES)
        });
    }

    /// Reads a page of a list that is not a walk: a list within one namespace, or a list over all namespaces without a
    /// label and without a key prefix. [`walk`](Self::walk) reads the other lists, namespace by namespace.
    async fn go_on(
        &self,
        service: &Service,
        place: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<Listed, StoreError> {
        let mut cursor = place.map(|place| Cursor::from_bytes(&place));
        let mut page = Page::default();
        let mut most = limit.min(FIRST);
        for _ in 0..MOST_PAGES {
            let mut read = service.timers().list(self.filter.clone(), cursor, most).await?;
            self.keep(&mut read);
            let is_whole = read.timers.len() >= most as usize;
            page.timers.extend(read.timers);
            page.next = read.next;
            most = room(&page.timers, limit);
            // The page ends here if timers of this read were filtered out and the page has at least one timer.
            if page.next.is_none() || most == 0 || !(is_whole || page.timers.is_empty()) {
                break;
            }
            cursor = page.next.clone();
        }
        let next = page.next.map(|next| cursor_text(&self.mark, next.as_bytes()));
        Ok(Listed { timers: page.timers, next })
    }

    /// Reads a page of a walk. A walk is a list by label or key over all namespaces, which reads the namespaces one
    /// after the other.
    async fn walk(
        &self,
        service: &Service,
        place: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<Listed, StoreError> {
        let mut listed = Listed::default();
        let mut place = match place {
            Some(bytes) => Place::of(&bytes),
            None => Place::behind(&service.namespaces().all(), None, self.filter.descending),
        };
        for _ in 0..MOST_OF_A_WALK {
            let Some(Place { namespace, cursor }) = place else { return Ok(listed) };
            let filter = Filter { namespace: Some(namespace.clone()), ..self.filter.clone() };
            let left = if listed.timers.is_empty() { limit.min(FIRST) } else { room(&listed.timers, limit) };
            let mut page = service.timers().list(filter, cursor, left).await?;
            self.keep(&mut page);
            listed.timers.append(&mut page.timers);
            let has_more = page.next.is_some();
            place = match page.next {
                Some(next) => Some(Place { namespace, cursor: Some(next) }),
                None => Place::behind(&service.namespaces().all(), Some(&namespace), self.filter.descending),
            };
            let is_full = !listed.timers.is_empty() && room(&listed.timers, limit) == 0;
            if is_full || has_more && !listed.timers.is_empty() {
                break;
            }
        }
        listed.next = place.map(|place| cursor_text(&self.mark, &place.bytes()));
        Ok(listed)
    }
}

/// Returns how many further timers fit into a page with `timers`, estimated by the average size of their payloads.
fn room(timers: &[Timer], limit: u32) -> u32 {
    let count = u32::try_from(timers.len()).unwrap_or(u32::MAX);
    let bytes: usize = timers.iter().map(|timer| timer.payload.0.len()).sum();
    let each = (bytes / timers.len().max(1)).max(1);
    let more = u32::try_from(ENOUGH.saturating_sub(bytes) / each).unwrap_or(u32::MAX);
    more.min(limit.saturating_sub(count))
}
