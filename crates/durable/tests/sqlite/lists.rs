//! Reads lists and counts of the store in SQLite.

use crate::transaction::{Act, Result, bytes, failed, json, millis, name};
use rusqlite::types::Value;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Counts, Cursor, Filter, Page};

impl Act<'_> {
    pub(crate) fn list(&self, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page> {
        let mut conditions = vec!["TRUE".to_owned()];
        let mut with: Vec<Value> = Vec::new();
        let mut namespace = filter.namespace.as_deref();
        let order = match filter {
            Filter { label: Some(_), .. } => "x''",
            Filter { key_prefix: Some(_), phase, .. } if *phase != Some(Phase::Dead) => "CAST(key AS BLOB)",
            Filter { reason: Some(_), .. } => "due",
            Filter { phase: Some(Phase::Pending | Phase::Parked), .. } => "due",
            Filter { phase: Some(Phase::Leased), .. } => "until",
            Filter { phase: Some(Phase::Dead), .. } => "died",
            _ => "x''",
        };
        if let Some(label) = &filter.label {
            namespace = namespace.or(Some(""));
            conditions.push("EXISTS (SELECT 1 FROM labels WHERE labels.id = timers.id AND label = ?)".into());
            with.push(label.to_string().into());
        }
        if let Some(prefix) = &filter.key_prefix {
            namespace = namespace.or(Some(""));
            let is_dead = filter.phase == Some(Phase::Dead);
            conditions.push(format!("(has_key OR {is_dead}) AND substr(key, 1, length(?)) = ?"));
            with.extend([Value::from(prefix.to_string()), Value::from(prefix.to_string())]);
        }
        if let Some(phase) = filter.phase {
            conditions.push("phase = ?".into());
            with.push(name(phase).to_owned().into());
        }
        for (column, text) in [("namespace", namespace), ("kind", filter.kind.as_deref())] {
            if let Some(text) = text {
                conditions.push(format!("{column} = ?"));
                with.push(text.to_owned().into());
            }
        }
        if let Some(reason) = &filter.reason {
            conditions.push("phase = 'parked' AND reason = ?".into());
            with.push(reason.to_string().into());
        }
        for (bound, moment) in
            [("due >", filter.due_after), ("due <", filter.due_before), ("created >", filter.created_after)]
        {
            if let Some(moment) = moment {
                conditions.push(format!("{bound} ?"));
                with.push(millis(moment).into());
            }
        }
        let (direction, behind) = if filter.descending { ("DESC", "<") } else { ("ASC", ">") };
        // A cursor has the last timer's id, and the value that gave the timer its place in the order.
        if let Some(cursor) = cursor {
            let (place, id): (Place, Vec<u8>) = serde_json::from_slice(cursor.as_bytes()).unwrap();
            conditions.push(format!("({order}, id) {behind} (?, ?)"));
            with.push(match place {
                Place::Number(number) => number.into(),
                Place::Bytes(bytes) => bytes.into(),
            });
            with.push(id.into());
        }
        with.push((i64::from(limit) + 1).into());
        let rest = format!(
            "WHERE {} ORDER BY {order} {direction}, id {direction} LIMIT ?",
            conditions.join(" AND ")
        );
        let mut timers = self.timers(&rest, with)?;
        let has_more = timers.len() > limit as usize;
        timers.truncate(limit as usize);
        let next = timers.last().filter(|_| has_more).map(|last| {
            let place = match order {
                "due" => Place::Number(millis(last.due)),
                "x''" => Place::Bytes(Vec::new()),
                "CAST(key AS BLOB)" => Place::Bytes(last.key.as_deref().unwrap().as_bytes().into()),
                _ => Place::Number(match &last.state {
                    State::Leased(lease) => millis(lease.until),
                    State::Dead(death) => millis(death.at),
                    _ => unreachable!("the order is by the end of the lease or by the death"),
                }),
            };
            Cursor::from_bytes(json(&(place, bytes(last.id))).as_bytes())
        });
        Ok(Page { timers, next })
    }

    pub(crate) fn counts(&self, sql: &str) -> Result<Counts> {
        let mut query = self.sql.prepare(sql).map_err(failed)?;
        let phases = [Phase::Pending, Phase::Leased, Phase::Parked, Phase::Dead];
        let rows = query.query_map([], |row| {
            let (namespace, phase): (String, String) = (row.get(0)?, row.get(1)?);
            let phase = phases.into_iter().find(|known| name(*known) == phase).unwrap();
            Ok(((namespace.into(), phase), row.get::<_, i64>(2)?.cast_unsigned()))
        });
        let by_namespace = rows.and_then(Iterator::collect).map_err(failed)?;
        Ok(Counts { by_namespace, ..Counts::default() })
    }
}

/// The value by which a list orders its timers: a moment, or the bytes of a timer's key.
#[derive(serde::Serialize, serde::Deserialize)]
enum Place {
    Number(i64),
    Bytes(Vec<u8>),
}
