//! Reads lists a page at a time. A page begins behind the last timer of the page before.

use crate::deployment::Deployment;
use crate::layout::{COLUMNS, Id, millis, read};
use crate::link::{Failure, Param};
use tokio_postgres::types::{ToSql, Type};
use tourbillon_durable::state::Phase;
use tourbillon_durable::store::{Cursor, Filter, Page, StoreError, StoreErrorKind};
use tourbillon_durable::timer::TimerId;

/// The column by which a list is ordered. Timers with the same value are ordered by their ids.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Id,
    Key,
    Due,
    Until,
    Died,
}

impl Order {
    fn for_filter(filter: &Filter) -> Self {
        match filter {
            Filter { label: Some(_), .. } => Self::Id,
            Filter { key_prefix: Some(_), phase, .. } if *phase != Some(Phase::Dead) => Self::Key,
            Filter { reason: Some(_), .. } => Self::Due,
            Filter { phase: Some(Phase::Pending | Phase::Parked), .. } => Self::Due,
            Filter { phase: Some(Phase::Leased), .. } => Self::Until,
            Filter { phase: Some(Phase::Dead), .. } => Self::Died,
            _ => Self::Id,
        }
    }

    fn column(self) -> Option<&'static str> {
        match self {
            Self::Id => None,
            Self::Key => Some("r.key"),
            Self::Due => Some("r.due"),
            Self::Until => Some("r.until"),
            Self::Died => Some("r.died"),
        }
    }
}

/// The position of a timer in an ordered list: the value of the column by which the list is ordered, and the timer's
/// id. A cursor contains the position of the last timer of a page.
#[derive(serde::Serialize, serde::Deserialize)]
struct Place {
    number: Option<i64>,
    key: Option<String>,
    id: TimerId,
}

/// The conditions of a statement, with their values.
#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Conditions {
    /// Adds a value. Returns the number of its parameter.
    fn value(&mut self, value: impl ToSql + Sync + Send + 'static, sql_type: Type) -> usize {
        self.values.push((Box::new(value), sql_type));
        self.values.len()
    }

    fn add(&mut self, condition: impl Into<String>) {
        self.texts.push(condition.into());
    }

    fn text(&mut self, text: &str) -> usize {
        self.value(text.to_owned(), Type::TEXT)
    }

    fn number(&mut self, number: i64) -> usize {
        self.value(number, Type::INT8)
    }
}

/// Returns the end of the range of texts with the prefix `prefix`: the first text that comes after all of them. `None`
/// if there is no such text.
fn behind(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            return Some(chars.into_iter().chain([next]).collect());
        }
    }
    None
}

fn conditions(filter: &Filter) -> Conditions {
    let mut all = Conditions::default();
    if let Some(label) = &filter.label {
        let label = all.text(label);
        all.add(format!("r.labels @> ARRAY[${label}] AND r.labels IS NOT NULL"));
    }
    if let Some(namespace) = filter.only_namespace() {
        let namespace = all.text(namespace);
        all.add(format!("r.namespace = ${namespace}"));
    }
    if let Some(prefix) = &filter.key_prefix {
        if filter.phase != Some(Phase::Dead) {
            all.add("r.phase IN ('p', 'k')");
        }
        let first = all.text(prefix);
        all.add(format!("r.key >= ${first} AND starts_with(r.key, ${first})"));
        if let Some(last) = behind(prefix) {
            let last = all.text(&last);
            all.add(format!("r.key < ${last}"));
        }
    }
    match filter.phase {
        Some(Phase::Pending) => all.add("r.phase = 'p' AND r.until IS NULL"),
        Some(Phase::Leased) => all.add("r.until IS NOT NULL"),
        Some(Phase::Parked) => all.add("r.phase = 'k'"),
        Some(Phase::Dead) => all.add("r.phase = 'd'"),
        _ => {}
    }
    if let Some(kind) = &filter.kind {
        let kind = all.text(kind);
        all.add(format!("r.kind = ${kind}"));
    }
    if let Some(reason) = &filter.reason {
        let reason = all.text(reason);
        all.add(format!("r.phase = 'k' AND r.reason = ${reason}"));
    }
    let moments = [("r.due >", filter.due_after), ("r.due <", filter.due_before)];
    for (bound, moment) in moments.into_iter().chain([("r.created >", filter.created_after)]) {
        if let Some(moment) = moment {
            let moment = all.number(millis(moment));
            all.add(format!("{bound} ${moment}"));
        }
    }
    all
}

/// Returns whether a text of a filter has a zero byte, which no stored text has.
fn has_zero(filter: &Filter) -> bool {
    let Filter { namespace, label, key_prefix, kind, reason, .. } = filter;
    let texts = [namespace, label, key_prefix, kind, reason];
    texts.into_iter().flatten().any(|text| text.contains('\0'))
}

/// Returns a page of the timers that match a filter.
pub(crate) async fn list(
    deployment: &Deployment,
    filter: &Filter,
    cursor: Option<&Cursor>,
    limit: u32,
) -> Result<Page, StoreError> {
    if matches!(filter.phase, Some(Phase::Done | Phase::Withdrawn)) || has_zero(filter) {
        return Ok(Page::default());
    }
    let (order, mut all) = (Order::for_filter(filter), conditions(filter));
    let (direction, sign) = if filter.descending { ("DESC", "<") } else { ("ASC", ">") };
    if let Some(cursor) = cursor {
        let place: Place = serde_json::from_slice(cursor.as_bytes())
            .map_err(|_| StoreError::new(StoreErrorKind::Limit, "the cursor is not one of this store"))?;
        let id = all.value(Id(place.id), Type::UUID);
        match (order.column(), place.number, place.key) {
            (Some(column), Some(number), _) => {
                let number = all.number(number);
                all.add(format!("({column}, r.id) {sign} (${number}, ${id})"));
            }
            (Some(column), None, Some(key)) => {
                let key = all.text(&key);
                all.add(format!("({column}, r.id) {sign} (${key} COLLATE \"C\", ${id})"));
            }
            _ => all.add(format!("r.id {sign} ${id}")),
        }
    }
    let limit = i64::from(limit.max(1));
    let most = all.number(limit + 1);
    let by = order.column().map_or_else(String::new, |column| format!("{column} {direction}, "));
    let is_by_lane = filter.phase == Some(Phase::Pending) && order == Order::Due;
    if is_by_lane {
        all.add("r.lane = s.number");
    }
    let conditions =
        if all.texts.is_empty() { String::new() } else { format!("WHERE {}", all.texts.join(" AND ")) };
    let page = format!("{conditions} ORDER BY {by}r.id {direction} LIMIT ${most}");
    let sql = if is_by_lane {
        // The index by due moments begins with the lane. So the statement reads a page of each lane, and takes the
        // first timers of all these pages.
        format!(
            "SELECT {COLUMNS} FROM generate_series(0, 63) AS s (number),
                 LATERAL (SELECT r.* FROM tourbillon.stored_timer r {page}) r
             ORDER BY {by}r.id {direction} LIMIT ${most}"
        )
    } else {
        format!("SELECT {COLUMNS} FROM tourbillon.stored_timer r {page}")
    };
    let params: Vec<Param<'_>> = all
        .values
        .iter()
        .map(|(value, sql_type)| (&**value as &(dyn ToSql + Sync), sql_type.clone()))
        .collect();
    let mut session = deployment.session_for_read().await?;
    let mut rows = session.read(&sql, &params).await.map_err(Failure::into_error)?;
    let has_more = i64::try_from(rows.len()).unwrap_or(i64::MAX) > limit;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let mut page = Page::default();
    if let Some(last) = rows.last().filter(|_| has_more) {
        let number = |nth: usize| last.get::<_, Option<i64>>(nth);
        let place = Place {
            number: match order {
                Order::Due => number(1),
                Order::Died => number(10),
                Order::Until => number(12),
                Order::Id | Order::Key => None,
            },
            key: (order == Order::Key).then(|| last.get::<_, Option<String>>(5)).flatten(),
            id: last.get::<_, Id>(0).0,
        };
        page.next = serde_json::to_vec(&place).ok().map(|place| Cursor::from_bytes(&place));
    }
    page.timers = rows.iter().filter_map(|row| read(row, 0).ok()).collect();
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_behind_a_prefix_is_behind_all_that_begin_with_it() {
        for (prefix, after) in [("a", "b"), ("k1", "k2"), ("\u{d7ff}", "\u{e000}"), ("a\u{10ffff}", "b")] {
            assert_eq!(behind(prefix).as_deref(), Some(after), "{prefix:?}");
        }
        assert_eq!(behind(""), None);
        assert_eq!(behind("\u{10ffff}"), None);
    }
}
