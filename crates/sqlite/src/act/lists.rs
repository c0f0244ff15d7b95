//! Reads lists and counts.

use super::{Act, read};
use crate::error::{Result, failed, limit};
use crate::row::{PHASES, id_bytes, millis, moment, number};
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Counts, Cursor, Filter, Horizon, Page, ReasonCount, Reasons};
use tourbillon_durable::timer::Timer;

/// The greatest number of rows that are read for a page. The limit does not apply to a filter with conditions on only
/// the namespace and the phase.
const LOOKS: u32 = 20_000;
/// The greatest number of index entries that are counted for a horizon (numbers of pending timers by the time until
/// they are due). The count takes a few milliseconds.
const COUNTED: u32 = 50_000;

/// The index by which [`Lists::list`] reads timers. The timers are listed in the order of this index.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Id,
    Label,
    Key,
    Due,
    DueInNamespace,
    Reason,
    Lease,
    Death,
}

impl Index {
    fn of(filter: &Filter) -> Self {
        match filter {
            Filter { label: Some(_), .. } => Self::Label,
            Filter { key_prefix: Some(_), phase, .. } if *phase != Some(Phase::Dead) => Self::Key,
            Filter { reason: Some(_), .. } => Self::Reason,
            Filter { phase: Some(Phase::Pending | Phase::Parked), namespace, .. } => match namespace {
                Some(_) => Self::DueInNamespace,
                None => Self::Due,
            },
            Filter { phase: Some(Phase::Leased), .. } => Self::Lease,
            Filter { phase: Some(Phase::Dead), .. } => Self::Death,
            _ => Self::Id,
        }
    }

    fn from(self) -> &'static str {
        match self {
            Self::Id => "tourbillon_timers AS t NOT INDEXED",
            Self::Label => "tourbillon_labels AS l CROSS JOIN tourbillon_timers AS t ON t.id = l.id",
            Self::Key => "tourbillon_timers AS t INDEXED BY tourbillon_keys",
            Self::Due => "tourbillon_timers AS t INDEXED BY tourbillon_by_due",
            Self::DueInNamespace => "tourbillon_timers AS t INDEXED BY tourbillon_by_namespace",
            Self::Reason => "tourbillon_timers AS t INDEXED BY tourbillon_parked",
            Self::Lease => "tourbillon_timers AS t INDEXED BY tourbillon_leased",
            Self::Death => "tourbillon_timers AS t INDEXED BY tourbillon_dead",
        }
    }

    /// Returns the column by which a list that reads this index is ordered. Timers with the same value in this column
    /// are ordered by their ids. Returns `None` if the list is ordered only by the ids.
    fn column(self) -> Option<&'static str> {
        match self {
            Self::Id | Self::Label => None,
            Self::Key => Some("t.key"),
            Self::Due | Self::DueInNamespace | Self::Reason => Some("t.due"),
            Self::Lease => Some("t.until"),
            Self::Death => Some("t.died"),
        }
    }

    fn place_of(self, timer: &Timer) -> Option<Place> {
        Some(match (self, &timer.state) {
            (Self::Id | Self::Label, _) => Place::None,
            (Self::Key, _) => Place::Text(timer.key.as_deref()?.to_owned()),
            (Self::Due | Self::DueInNamespace | Self::Reason, _) => Place::Number(millis(timer.due)),
            (Self::Lease, State::Leased(lease)) => Place::Number(millis(lease.until)),
            (Self::Death, State::Dead(death)) => Place::Number(millis(death.at)),
            _ => return None,
        })
    }
}

/// The value of a timer in the column by which a list of timers is ordered ([`Index::column`]): a moment or a key. It
/// is `None` if the list is ordered only by the ids.
enum Place {
    None,
    Number(i64),
    Text(String),
}

/// Makes the cursor of the page that begins after a timer. The cursor consists of the timer's id, and of the timer's
/// value `place` in the column by which the list is ordered.
fn cursor_behind(id: [u8; 16], place: &Place) -> Cursor {
    let mut bytes = id.to_vec();
    match place {
        Place::None => {}
        Place::Number(number) => bytes.extend(number.to_be_bytes()),
        Place::Text(text) => bytes.extend(text.as_bytes()),
    }
    Cursor::from_bytes(&bytes)
}

fn place_in(cursor: &Cursor, index: Index) -> Result<(Vec<u8>, Place)> {
    let foreign = || limit("the cursor is not one of this list");
    let (id, place) = cursor.as_bytes().split_at_checked(16).ok_or_else(foreign)?;
    let place = match index.column() {
        None => Place::None,
        Some("t.key") => Place::Text(core::str::from_utf8(place).map_err(|_| foreign())?.to_owned()),
        Some(_) => Place::Number(i64::from_be_bytes(place.try_into().map_err(|_| foreign())?)),
    };
    Ok((id.to_vec(), place))
}

/// Returns the first text that comes after all texts with the prefix `prefix`, or `None` if there is no such text.
fn end_of(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// Conditions of an SQL query, with the values of the conditions' parameters.
#[derive(Default)]
struct Conditions {
    sql: Vec<String>,
    with: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, sql: impl Into<String>, with: impl IntoIterator<Item = Value>) {
        self.sql.push(sql.into());
        self.with.extend(with);
    }

    fn joined(&self) -> String {
        if self.sql.is_empty() { "TRUE".to_owned() } else { self.sql.join(" AND ") }
    }
}

fn text(text: &str) -> [Value; 1] {
    [Value::Text(text.to_owned())]
}

/// Lists and counts timers within a transaction.
pub(crate) struct Lists<'a>(pub(crate) &'a Act<'a>);

impl Lists<'_> {
    pub(crate) fn list(&self, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page> {
        // A page of 0 timers would have no cursor, and would look like the end of the list.
        let limit = limit.max(1);
        let index = Index::of(filter);
        let (mut within, mut hits) = (Conditions::default(), Conditions::default());
        within_index(index, filter, &mut within);
        hit(index, filter, &mut hits);
        let (direction, behind) = if filter.descending { ("DESC", "<") } else { ("ASC", ">") };
        if let Some(cursor) = cursor {
            let (id, place) = place_in(cursor, index)?;
            let id = Value::Blob(id);
            let id_column = if index == Index::Label { "l.id" } else { "t.id" };
            match (index.column(), place) {
                (Some(column), Place::Number(number)) => {
                    within.add(format!("({column}, t.id) {behind} (?, ?)"), [Value::Integer(number), id]);
                }
                (Some(column), Place::Text(key)) => {
                    within.add(format!("({column}, t.id) {behind} (?, ?)"), [Value::Text(key), id]);
                }
                _ => within.add(format!("{id_column} {behind} ?"), [id]),
            }
        }
        let order = match index.column() {
            Some(column) => format!("{column} {direction}, t.id {direction}"),
            None if index == Index::Label => format!("l.id {direction}"),
            None => format!("t.id {direction}"),
        };
        let sql = format!(
            "SELECT t.id, t.record, ({}) FROM {} WHERE {} ORDER BY {order}",
            hits.joined(),
            index.from(),
            within.joined()
        );
        let values: Vec<Value> = hits.with.into_iter().chain(within.with).collect();
        self.page(&sql, values, index, limit, is_by_phase(filter))
    }

    fn page(
        &self,
        sql: &str,
        with: Vec<Value>,
        index: Index,
        limit: u32,
        is_unbounded: bool,
    ) -> Result<Page> {
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let mut rows = query.query(params_from_iter(with)).map_err(failed)?;
        let (mut page, mut looks, mut last, mut may_end) = (Page::default(), 0_u32, None, false);
        while let Some(row) = rows.next().map_err(failed)? {
            if page.timers.len() >= limit as usize || may_end {
                page.next = last;
                break;
            }
            looks = looks.saturating_add(1);
            let is_hit = row.get::<_, Option<bool>>(2).map_err(failed)?.unwrap_or(false);
            let is_enough = !is_unbounded && looks >= LOOKS;
            // If the filter does not match a row, its place is needed only if the page ends at this row.
            if is_hit || is_enough {
                // A record that cannot be read is left out, and is set aside by the next change of its timer.
                let (id, Some(timer)) = read(row).map_err(failed)? else { continue };
                if let Some(place) = index.place_of(&timer) {
                    last = Some(cursor_behind(id_bytes(id), &place));
                    may_end = is_enough;
                }
                if is_hit {
                    page.timers.push(timer);
                }
            }
        }
        Ok(page)
    }

    /// Counts the parked timers by their reasons, and finds the earliest due moment of each reason. A page has at most
    /// `limit` reasons, and its cursor is the last one.
    pub(crate) fn reasons(&self, after: Option<&Cursor>, limit: u32) -> Result<Reasons> {
        let after = after.map(|cursor| String::from_utf8_lossy(cursor.as_bytes()).into_owned());
        let sql = "SELECT reason, count(*), min(due) FROM tourbillon_timers INDEXED BY tourbillon_parked
                   WHERE phase = 2 AND (?1 IS NULL OR reason > ?1) GROUP BY reason ORDER BY reason LIMIT ?2";
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let rows = query.query_map(params![after, limit.max(1)], |row| {
            Ok(ReasonCount {
                reason: row.get::<_, String>(0)?.into(),
                timers: row.get::<_, i64>(1)?.cast_unsigned(),
                first_due: moment(row.get(2)?),
            })
        });
        let counts: Vec<ReasonCount> = rows.and_then(Iterator::collect).map_err(failed)?;
        let is_full = counts.len() >= limit.max(1) as usize;
        let last = counts.last().filter(|_| is_full);
        let next = last.map(|last| Cursor::from_bytes(last.reason.as_bytes()));
        Ok(Reasons { counts, next })
    }

    pub(crate) fn counts(&self) -> Result<Counts> {
        self.counts_by("SELECT namespace, phase, count FROM tourbillon_counts")
    }

    pub(super) fn counts_by(&self, sql: &str) -> Result<Counts> {
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let rows = query.query_map([], |row| {
            let (namespace, phase): (String, i64) = (row.get(0)?, row.get(1)?);
            let phase = PHASES.into_iter().find(|known| number(*known) == Some(phase));
            Ok(phase
                .map(|phase| ((namespace.into(), phase), row.get::<_, i64>(2).unwrap_or(0).cast_unsigned())))
        });
        let rows: Vec<_> = rows.and_then(Iterator::collect).map_err(failed)?;
        let aside: i64 = self
            .0
            .sql
            .query_row("SELECT count(*) FROM tourbillon_set_aside", [], |row| row.get(0))
            .map_err(failed)?;
        let by_namespace = rows.into_iter().flatten().collect();
        Ok(Counts { by_namespace, quarantined: aside.cast_unsigned() })
    }

    /// Counts the pending timers in each span of time of a [`Horizon`], beginning with the timers that are due first.
    /// Stops after [`COUNTED`] timers, so the counts of the last spans may be too low.
    pub(crate) fn horizon(&self) -> Result<Horizon> {
        let mut horizon = Horizon::empty(self.0.now);
        let pending = self.counts()?.of(Phase::Pending);
        let (mut from, mut budget) = (-1, COUNTED);
        for span in &mut horizon.spans {
            if pending == 0 {
                break;
            }
            if budget == 0 {
                span.is_exact = false;
                continue;
            }
            let until = millis(span.until);
            let sql = "SELECT count(*) FROM (SELECT 1 FROM tourbillon_timers INDEXED BY tourbillon_by_due
                       WHERE phase = 0 AND due > ? AND due <= ? LIMIT ?)";
            let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
            let count: u32 =
                query.query_row(params![from, until, budget], |row| row.get(0)).map_err(failed)?;
            span.count = count.into();
            span.is_exact = count < budget;
            budget -= count;
            from = until;
        }
        horizon.unplaced = pending.saturating_sub(horizon.placed());
        Ok(horizon)
    }

    /// Calls `each` for all timers in the order of their ids, until `each` returns false.
    pub(crate) fn each(&self, mut each: impl FnMut(&Timer) -> bool) -> Result<()> {
        let sql = "SELECT id, record FROM tourbillon_timers NOT INDEXED ORDER BY id";
        let mut query = self.0.sql.prepare(sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if let (_, Some(timer)) = read(row).map_err(failed)?
                && !each(&timer)
            {
                break;
            }
        }
        Ok(())
    }

    /// Returns the due moment of the first pending timer that is not yet due, or `None` if there is no such timer.
    pub(super) fn first_after_now(&self) -> Result<Option<UtcMillis>> {
        let sql = "SELECT due FROM tourbillon_timers INDEXED BY tourbillon_by_due
                   WHERE phase = 0 AND due > ? ORDER BY due, id LIMIT 1";
        let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
        let mut rows = query.query([millis(self.0.now)]).map_err(failed)?;
        match rows.next().map_err(failed)? {
            Some(row) => Ok(Some(moment(row.get(0).map_err(failed)?))),
            None => Ok(None),
        }
    }
}

/// Returns whether the filter has conditions on only the namespace and the phase.
fn is_by_phase(filter: &Filter) -> bool {
    let Filter { namespace, phase, descending, .. } = filter.clone();
    *filter == Filter { namespace, phase, descending, ..Filter::default() }
}

/// Adds to `within` the conditions of the filter that select a range of the index `index`. The query reads only the
/// timers in this range.
fn within_index(index: Index, filter: &Filter, within: &mut Conditions) {
    let namespace = filter.only_namespace().unwrap_or("");
    let phase = filter.phase.and_then(number).unwrap_or(-1);
    match index {
        Index::Id => {}
        Index::Label => {
            within.add("l.namespace = ?", text(namespace));
            within.add("l.label = ?", text(filter.label.as_deref().unwrap_or("")));
        }
        Index::Key => {
            let prefix = filter.key_prefix.as_deref().unwrap_or("");
            within.add("t.owns_key", []);
            within.add("t.namespace = ?", text(namespace));
            within.add("t.key >= ?", text(prefix));
            if let Some(end) = end_of(prefix) {
                within.add("t.key < ?", text(&end));
            }
        }
        Index::Due => within.add("t.phase = ?", [Value::Integer(phase)]),
        Index::DueInNamespace => {
            within.add("t.namespace = ?", text(namespace));
            within.add("t.phase = ?", [Value::Integer(phase)]);
        }
        Index::Reason => {
            within.add("t.phase = 2", []);
            within.add("t.reason = ?", text(filter.reason.as_deref().unwrap_or("")));
        }
        Index::Lease => within.add("t.phase = 1", []),
        Index::Death => within.add("t.phase = 3", []),
    }
}

/// Adds to `hits` the conditions of the filter that the query checks for each row in the range of the index. The
/// function [`within_index`] selects this range.
fn hit(index: Index, filter: &Filter, hits: &mut Conditions) {
    if let Some(phase) = filter.phase {
        hits.add("t.phase = ?", [Value::Integer(number(phase).unwrap_or(-1))]);
    }
    for (column, wanted) in [("namespace", filter.only_namespace()), ("kind", filter.kind.as_deref())] {
        if let Some(wanted) = wanted {
            hits.add(format!("t.{column} = ?"), text(wanted));
        }
    }
    if let Some(prefix) = filter.key_prefix.as_deref().filter(|_| index != Index::Key) {
        let is_dead = filter.phase == Some(Phase::Dead);
        hits.add(
            format!(
                "({is_dead} OR t.owns_key) AND substr(CAST(t.key AS BLOB), 1, length(CAST(? AS BLOB))) = CAST(? AS BLOB)"
            ),
            [Value::Text(prefix.to_owned()), Value::Text(prefix.to_owned())],
        );
    }
    if let Some(reason) = filter.reason.as_deref() {
        hits.add("t.phase = 2 AND t.reason = ?", text(reason));
    }
    let bounds = [
        ("t.due >", filter.due_after),
        ("t.due <", filter.due_before),
        ("t.created >", filter.created_after),
    ];
    for (bound, moment) in bounds {
        if let Some(moment) = moment {
            hits.add(format!("{bound} ?"), [Value::Integer(millis(moment))]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn the_end_of_a_prefix_comes_after_each_text_with_the_prefix() {
        assert_eq!(end_of("ab").as_deref(), Some("ac"));
        assert_eq!(end_of("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(end_of("a\u{d7ff}").as_deref(), Some("a\u{e000}"), "no text has a surrogate");
        assert_eq!(end_of("\u{10ffff}"), None);
        assert_eq!(end_of(""), None);
    }
}
