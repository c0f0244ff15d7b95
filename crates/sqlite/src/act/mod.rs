//! Reads and writes timers within a transaction.

mod check;
mod leases;
mod lists;
mod operations;
mod turns;

pub(crate) use check::Check;
pub(crate) use leases::Leases;
pub(crate) use lists::Lists;
pub(crate) use turns::{Rotation, Turns};

use crate::error::{Result, failed};
use crate::row::{Columns, id_bytes, id_of, millis, moment};
use crate::schema::forgets;
use core::cell::Cell;
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{State, Token};
use tourbillon_durable::store::dry_run;
use tourbillon_durable::timer::{Address, KeyOf, Timer, TimerId};

/// A transaction of a connection, which takes place at the moment `now` of the store's clock. The caller begins and
/// ends the transaction.
pub(crate) struct Act<'a> {
    sql: &'a Connection,
    pub(crate) now: UtcMillis,
    /// True if the transaction only reads.
    reads_only: bool,
    /// The earliest due moment of the timers that the transaction has made pending, or `None` without such timers.
    first_due: Cell<Option<UtcMillis>>,
    /// `None` until the transaction claims due timers. Afterwards, the inner option is the due moment of the first
    /// timer that the claim has left pending, or `None` if no timer is pending.
    claimed: Cell<Option<Option<UtcMillis>>>,
    /// The number of timers with unreadable records that the transaction has moved to the table `tourbillon_set_aside`.
    set_aside: Cell<u32>,
}

/// A row: the id, and the timer if its record can be read.
type Read = (TimerId, Option<Timer>);

fn read(row: &Row<'_>) -> rusqlite::Result<Read> {
    let id = row.get_ref(0)?.as_blob().ok().and_then(id_of);
    let id = id.unwrap_or_else(|| TimerId::from_u128(0));
    Ok((id, row.get_ref(1)?.as_blob().ok().and_then(|record| dry_run::decode(id, record))))
}

impl<'a> Act<'a> {
    pub(crate) fn new(sql: &'a Connection, now: UtcMillis) -> Self {
        Self {
            sql,
            now,
            reads_only: false,
            first_due: Cell::new(None),
            claimed: Cell::new(None),
            set_aside: Cell::new(0),
        }
    }

    /// Makes the handle of a transaction that only reads. Records that cannot be read count as missing.
    pub(crate) fn reading(sql: &'a Connection, now: UtcMillis) -> Self {
        Self { reads_only: true, ..Self::new(sql, now) }
    }

    pub(crate) fn first_due(&self) -> Option<UtcMillis> {
        self.first_due.get()
    }

    pub(crate) fn claimed(&self) -> Option<Option<UtcMillis>> {
        self.claimed.get()
    }

    fn run(&self, sql: &str, with: impl rusqlite::Params) -> Result<usize> {
        self.sql.prepare_cached(sql).and_then(|mut run| run.execute(with)).map_err(failed)
    }

    /// Returns the rows of a query whose first columns are the id and the record. Stops after the row for which `more`
    /// returns false.
    fn rows(&self, sql: &str, with: &[&dyn ToSql], mut more: impl FnMut(&Read) -> bool) -> Result<Vec<Read>> {
        let mut query = self.sql.prepare_cached(sql).map_err(failed)?;
        let mut rows = query.query(with).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let row = read(row).map_err(failed)?;
            let goes_on = more(&row);
            found.push(row);
            if !goes_on {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the timers of a query. The arguments are the same as for [`rows`](Self::rows). Each row whose record
    /// cannot be read is left out, and moved to another table by [`put_aside`](Self::put_aside).
    fn timers(&self, sql: &str, with: &[&dyn ToSql], more: impl FnMut(&Read) -> bool) -> Result<Vec<Timer>> {
        let mut timers = Vec::new();
        for (id, timer) in self.rows(sql, with, more)? {
            match timer {
                Some(timer) => timers.push(timer),
                None => self.put_aside(id)?,
            }
        }
        Ok(timers)
    }

    /// Moves a timer whose record cannot be read to the table `tourbillon_set_aside`, which keeps the bytes of the
    /// record. Does nothing if the transaction only reads.
    fn put_aside(&self, id: TimerId) -> Result<()> {
        if self.reads_only {
            return Ok(());
        }
        let sql = "INSERT INTO tourbillon_set_aside SELECT id, record, ? FROM tourbillon_timers WHERE id = ?";
        self.run(sql, params![millis(self.now), id_bytes(id)])?;
        self.run("DELETE FROM tourbillon_timers WHERE id = ?", [id_bytes(id)])?;
        // The labels are in the unreadable record, so this reads the whole table of labels. Damage is rare.
        self.run("DELETE FROM tourbillon_labels WHERE id = ?", [id_bytes(id)])?;
        self.set_aside.set(self.set_aside.get() + 1);
        Ok(())
    }

    /// Removes all unreadable records from the table `tourbillon_set_aside`. Returns their number.
    pub(crate) fn forget_set_aside(&self) -> Result<u64> {
        self.run("DELETE FROM tourbillon_set_aside", []).map(|count| count as u64)
    }

    fn get_id(&self, id: TimerId) -> Result<Option<Timer>> {
        let sql = "SELECT id, record FROM tourbillon_timers WHERE id = ?";
        Ok(self.timers(sql, &[&id_bytes(id)], |_| true)?.pop())
    }

    fn get_key(&self, at: &KeyOf) -> Result<Option<Timer>> {
        let sql = "SELECT id, record FROM tourbillon_timers WHERE namespace = ? AND key = ? AND owns_key";
        Ok(self.timers(sql, &[&at.namespace, &at.key], |_| true)?.pop())
    }

    pub(crate) fn get(&self, at: &Address) -> Result<Option<Timer>> {
        match at {
            Address::Id(id) => self.get_id(*id),
            Address::Key(at) => self.get_key(at),
        }
    }

    fn is_stored(&self, id: TimerId) -> Result<bool> {
        Ok(self.get_id(id)?.is_some())
    }

    fn is_remembered(&self, id: TimerId) -> Result<bool> {
        let sql = "SELECT 1 FROM tourbillon_remembered WHERE id = ? AND until > ?";
        let mut query = self.sql.prepare_cached(sql).map_err(failed)?;
        query.exists(params![id_bytes(id), millis(self.now)]).map_err(failed)
    }

    /// Stores a timer. If the table has a row with the timer's id, overwrites this row. Otherwise, inserts a new row.
    fn write(&self, timer: &Timer) -> Result<()> {
        if timer.state == State::Pending {
            let first = self.first_due.get().map_or(timer.due, |first| first.min(timer.due));
            self.first_due.set(Some(first));
        }
        let row = Columns::of(timer);
        self.run(
            "INSERT INTO tourbillon_timers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
             ON CONFLICT (id) DO UPDATE SET namespace = ?2, key = ?3, owns_key = ?4, kind = ?5, phase = ?6, created = ?7,
             due = ?8, until = ?9, incarnation = ?10, claim = ?11, reason = ?12, died = ?13, record = ?14",
            params![
                id_bytes(timer.id),
                row.namespace,
                row.key,
                row.owns_key,
                row.kind,
                row.phase,
                row.created,
                row.due,
                row.until,
                row.incarnation,
                row.claim,
                row.reason,
                row.died,
                dry_run::encode(timer),
            ],
        )?;
        for label in &timer.labels {
            let with = params![timer.namespace, label, id_bytes(timer.id)];
            self.run("INSERT INTO tourbillon_labels VALUES (?, ?, ?) ON CONFLICT DO NOTHING", with)?;
        }
        Ok(())
    }

    /// Removes a timer that has ended. If the caller chose the timer's id, keeps the id for a time, so that the store
    /// recognizes a repeated creation.
    fn end(&self, timer: &Timer) -> Result<()> {
        if timer.has_chosen_id {
            let until = millis(forgets(self.now));
            let sql =
                "INSERT INTO tourbillon_remembered VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET until = ?2";
            self.run(sql, params![id_bytes(timer.id), until])?;
        }
        self.run("DELETE FROM tourbillon_timers WHERE id = ?", [id_bytes(timer.id)])?;
        for label in &timer.labels {
            let with = params![timer.namespace, label, id_bytes(timer.id)];
            self.run("DELETE FROM tourbillon_labels WHERE namespace = ? AND label = ? AND id = ?", with)?;
        }
        Ok(())
    }

    /// Returns the moment that a query computes, or `None` for NULL or no row.
    fn moment(&self, sql: &str, with: impl rusqlite::Params) -> Result<Option<UtcMillis>> {
        let mut query = self.sql.prepare_cached(sql).map_err(failed)?;
        let found: Option<Option<i64>> =
            query.query_row(with, |row| row.get(0)).optional().map_err(failed)?;
        Ok(found.flatten().map(moment))
    }

    /// Returns the due moment of the first pending timer, if there is one.
    pub(crate) fn first_pending(&self) -> Result<Option<UtcMillis>> {
        self.moment("SELECT due FROM tourbillon_timers WHERE phase = 0 ORDER BY due, id LIMIT 1", [])
    }

    /// Writes a note that the user's program has ended a delivery in one of its own transactions. Later, the runtime
    /// reports the end of the same delivery. This report succeeds because the store then finds the note. The note is
    /// kept for a day.
    ///
    /// `next` is the id of the next occurrence (timer) of the timer's series, if there is one. `skipped` is the number
    /// of scheduled moments of the series that get no timer, because they have already passed.
    fn note_end(&self, id: TimerId, token: Token, next: Option<TimerId>, skipped: u64) -> Result<()> {
        let until = millis(self.now + core::time::Duration::from_secs(86_400));
        self.run(
            "INSERT INTO tourbillon_ends VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO UPDATE SET
             incarnation = ?2, claim = ?3, next = ?4, skipped = ?5, until = ?6",
            params![
                id_bytes(id),
                token.incarnation.cast_signed(),
                token.claim.cast_signed(),
                next.map(id_bytes),
                skipped.cast_signed(),
                until
            ],
        )?;
        Ok(())
    }

    /// Returns the note that [`note_end`](Self::note_end) has written about the delivery with this token: the arguments
    /// `next` and `skipped`. Returns `None` if there is no note, because the user's program has not ended the delivery
    /// in one of its own transactions.
    fn noted_end(&self, id: TimerId, token: Token) -> Result<Option<(Option<TimerId>, u64)>> {
        let sql = "SELECT next, skipped FROM tourbillon_ends WHERE id = ? AND incarnation = ? AND claim = ?";
        let with = params![id_bytes(id), token.incarnation.cast_signed(), token.claim.cast_signed()];
        let mut query = self.sql.prepare_cached(sql).map_err(failed)?;
        let note = query.query_row(with, |row| {
            let next: Option<Vec<u8>> = row.get(0)?;
            Ok((next.as_deref().and_then(id_of), row.get::<_, i64>(1)?.cast_unsigned()))
        });
        note.optional().map_err(failed)
    }
}
