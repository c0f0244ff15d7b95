//! Searches the tables for damage.

use super::Act;
use super::lists::Lists;
use crate::error::{Result, failed};
use crate::row::{Columns, id_bytes, id_of};
use rusqlite::params;
use tourbillon_durable::store::{Fault, dry_run};
use tourbillon_durable::timer::Timer;

/// The greatest number of faults of the file that SQLite's own check reports.
const MOST: u32 = 100;

/// A search for damage in the database, within a transaction.
pub(crate) struct Check<'a>(pub(crate) &'a Act<'a>);

impl Check<'_> {
    /// Returns all faults that the search finds. First, SQLite's own check searches the pages of the file. Then the
    /// record of each timer is compared with the timer's columns and labels. Finally, the stored counts of timers are
    /// compared with the stored timers.
    pub(crate) fn run(&self) -> Result<Vec<Fault>> {
        let mut faults = Vec::new();
        let mut pages = self.0.sql.prepare(&format!("PRAGMA integrity_check({MOST})")).map_err(failed)?;
        let found = pages.query_map([], |row| row.get::<_, String>(0));
        let found: Vec<String> = found.and_then(Iterator::collect).map_err(failed)?;
        faults.extend(
            found.into_iter().filter(|text| text != "ok").map(|text| Fault::new("pages", None, text)),
        );
        self.check_timers(&mut faults)?;
        self.check_labels(&mut faults)?;
        let counts = Lists(self.0).counts()?;
        let sql = "SELECT namespace, phase, count(*) FROM tourbillon_timers GROUP BY namespace, phase";
        let recount = Lists(self.0).counts_by(sql)?;
        if counts != recount {
            faults.push(Fault::new("tourbillon_counts", None, format!("{counts:?}, counted as {recount:?}")));
        }
        Ok(faults)
    }

    fn check_timers(&self, faults: &mut Vec<Fault>) -> Result<()> {
        const TABLE: &str = "tourbillon_timers";
        let sql = "SELECT id, record, namespace, key, owns_key, kind, phase, created, due, until, incarnation, claim,
                   reason, died FROM tourbillon_timers NOT INDEXED";
        let mut query = self.0.sql.prepare(sql).map_err(failed)?;
        let mut rows = query.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let bytes: Vec<u8> = row.get(0).map_err(failed)?;
            let Some(id) = id_of(&bytes) else {
                faults.push(Fault::new(TABLE, None, format!("an id has {} bytes", bytes.len())));
                continue;
            };
            let record: Vec<u8> = row.get(1).map_err(failed)?;
            let Some(timer) = dry_run::decode(id, &record) else {
                faults.push(Fault::new(TABLE, Some(id), "the record cannot be read"));
                continue;
            };
            let columns = |row: &rusqlite::Row<'_>| -> rusqlite::Result<bool> {
                let (namespace, key): (String, Option<String>) = (row.get(2)?, row.get(3)?);
                let (kind, reason): (String, Option<String>) = (row.get(5)?, row.get(12)?);
                let stored = Columns {
                    namespace: &namespace,
                    key: key.as_deref(),
                    owns_key: row.get(4)?,
                    kind: &kind,
                    phase: row.get(6)?,
                    created: row.get(7)?,
                    due: row.get(8)?,
                    until: row.get(9)?,
                    incarnation: row.get(10)?,
                    claim: row.get(11)?,
                    reason: reason.as_deref(),
                    died: row.get(13)?,
                };
                Ok(stored == Columns::of(&timer))
            };
            if !columns(row).unwrap_or(false) {
                faults.push(Fault::new(TABLE, Some(id), "the columns are not those of the record"));
            }
            self.check_labels_of(&timer, faults)?;
        }
        Ok(())
    }

    fn check_labels_of(&self, timer: &Timer, faults: &mut Vec<Fault>) -> Result<()> {
        for label in &timer.labels {
            let sql = "SELECT 1 FROM tourbillon_labels WHERE namespace = ? AND label = ? AND id = ?";
            let mut query = self.0.sql.prepare_cached(sql).map_err(failed)?;
            let is_there =
                query.exists(params![timer.namespace, label, id_bytes(timer.id)]).map_err(failed)?;
            if !is_there {
                faults.push(Fault::new("tourbillon_labels", Some(timer.id), format!("{label:?} is missing")));
            }
        }
        Ok(())
    }

    /// Finds labels whose timers are no longer stored.
    fn check_labels(&self, faults: &mut Vec<Fault>) -> Result<()> {
        let sql = "SELECT id FROM tourbillon_labels
                   WHERE NOT EXISTS (SELECT 1 FROM tourbillon_timers AS t WHERE t.id = tourbillon_labels.id)";
        let mut query = self.0.sql.prepare(sql).map_err(failed)?;
        let strays = query.query_map([], |row| row.get::<_, Vec<u8>>(0));
        let strays: Vec<Vec<u8>> = strays.and_then(Iterator::collect).map_err(failed)?;
        let fault = |id: &Vec<u8>| Fault::new("tourbillon_labels", id_of(id), "a label of no stored timer");
        faults.extend(strays.iter().map(fault));
        Ok(())
    }
}
