//! The store: one row a timer, in columns, with the indexes of SQL and counts by triggers.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::future::ready;
use std::sync::{Arc, Mutex};
use tourbillon::{Clock, ManualClock};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{
    Death, End, Event, Lease, Next, Phase, Refusal, State, Token, Withdrawal, step,
};
use tourbillon_durable::store::{
    Answer, Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, IfPresent, Leased,
    LeftOut, Limit, Op, Outcome, PAUSED, Page, Reaped, StoreError, StoreErrorKind, TimerStore,
};
use tourbillon_durable::timer::{Address, Payload, Timer, TimerId};

const SCHEMA: &str = "
    CREATE TABLE timers (
        id BLOB PRIMARY KEY, namespace TEXT NOT NULL, key TEXT, has_key INTEGER NOT NULL, kind TEXT NOT NULL,
        payload BLOB NOT NULL, labels TEXT NOT NULL, policy TEXT NOT NULL, series TEXT, created INTEGER NOT NULL,
        scheduled INTEGER NOT NULL, due INTEGER NOT NULL, deliveries INTEGER NOT NULL, failures INTEGER NOT NULL,
        last_error TEXT, phase TEXT NOT NULL, incarnation INTEGER, claim INTEGER, until INTEGER, withdrawn TEXT,
        reason TEXT, died INTEGER, trace TEXT, has_chosen_id INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX keys ON timers (namespace, key) WHERE has_key;
    CREATE INDEX pending ON timers (due, id) WHERE phase = 'pending';
    CREATE INDEX leased ON timers (until, id) WHERE phase = 'leased';
    CREATE INDEX parked ON timers (reason, due, id) WHERE phase = 'parked';
    CREATE INDEX dead ON timers (died, id) WHERE phase = 'dead';
    CREATE TABLE labels (namespace TEXT, label TEXT, id BLOB, PRIMARY KEY (namespace, label, id)) WITHOUT ROWID;
    CREATE TABLE remembered (id BLOB PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE counts (namespace TEXT, phase TEXT, count INTEGER NOT NULL, PRIMARY KEY (namespace, phase));
    CREATE TRIGGER comes AFTER INSERT ON timers BEGIN
        INSERT INTO counts VALUES (new.namespace, new.phase, 1) ON CONFLICT DO UPDATE SET count = count + 1;
    END;
    CREATE TRIGGER goes AFTER DELETE ON timers BEGIN
        UPDATE counts SET count = count - 1 WHERE namespace = old.namespace AND phase = old.phase;
        DELETE FROM counts WHERE count = 0;
        DELETE FROM labels WHERE id = old.id;
    END;
";
const HOUR: i64 = 3_600_000;

type Result<T> = std::result::Result<T, StoreError>;
type Wake = Box<dyn Fn() + Send + Sync>;

pub(crate) struct SqliteStore {
    database: Mutex<Connection>,
    clock: ManualClock,
    wakes: Arc<Mutex<Vec<Wake>>>,
}

fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::caused_by(StoreErrorKind::Corrupt, error)
}

fn limit(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Limit, message)
}

fn millis(moment: UtcMillis) -> i64 {
    moment.as_millis().try_into().unwrap()
}

fn moment(millis: i64) -> UtcMillis {
    UtcMillis::from_millis(millis.try_into().unwrap())
}

fn bytes(id: TimerId) -> Vec<u8> {
    id.as_u128().to_be_bytes().into()
}

fn id_of(bytes: Vec<u8>) -> TimerId {
    TimerId::from_u128(u128::from_be_bytes(bytes.try_into().unwrap()))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn of_json<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "pending",
        Phase::Leased => "leased",
        Phase::Parked => "parked",
        Phase::Dead => "dead",
        Phase::Done | Phase::Withdrawn => "not stored",
    }
}

fn timer_of(row: &Row<'_>) -> rusqlite::Result<Timer> {
    let text = |column: &str| row.get::<_, Option<String>>(column);
    let some = |column: &str| row.get::<_, String>(column);
    let phase = some("phase")?;
    let state = match &*phase {
        "pending" => State::Pending,
        "leased" => State::Leased(Lease {
            token: Token {
                incarnation: row.get::<_, i64>("incarnation")?.cast_unsigned(),
                claim: row.get::<_, i64>("claim")?.cast_unsigned(),
            },
            until: moment(row.get("until")?),
            withdrawn: text("withdrawn")?.map(|text| of_json(&text)),
        }),
        "parked" => State::Parked(some("reason")?.into()),
        _ => State::Dead(Death { reason: of_json(&some("reason")?), at: moment(row.get("died")?) }),
    };
    Ok(Timer {
        id: id_of(row.get("id")?),
        namespace: some("namespace")?.into(),
        key: text("key")?.map(Into::into),
        kind: some("kind")?.into(),
        payload: Payload(row.get::<_, Vec<u8>>("payload")?.into()),
        labels: of_json(&some("labels")?),
        policy: of_json(&some("policy")?),
        series: text("series")?.map(|text| of_json(&text)),
        created: moment(row.get("created")?),
        scheduled: moment(row.get("scheduled")?),
        due: moment(row.get("due")?),
        deliveries: row.get("deliveries")?,
        failures: row.get("failures")?,
        last_error: text("last_error")?.map(Into::into),
        state,
        trace: text("trace")?.map(Into::into),
        has_chosen_id: row.get("has_chosen_id")?,
    })
}

/// A transaction.
struct Act<'a> {
    sql: &'a Transaction<'a>,
    now: UtcMillis,
    wakes: Cell<bool>,
}

impl Act<'_> {
    fn timers(&self, rest: &str, with: Vec<Value>) -> Result<Vec<Timer>> {
        let mut query =
            self.sql.prepare_cached(&format!("SELECT timers.* FROM timers {rest}")).map_err(failed)?;
        let rows = query.query_map(params_from_iter(with), timer_of).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    fn run(&self, sql: &str, with: impl rusqlite::Params) -> Result<()> {
        self.sql.prepare_cached(sql).and_then(|mut run| run.execute(with)).map(drop).map_err(failed)
    }

    fn get(&self, at: &Address) -> Result<Option<Timer>> {
        let mut timers = match at {
            Address::Id(id) => self.timers("WHERE id = ?", vec![bytes(*id).into()]),
            Address::Key(at) => self.timers(
                "WHERE namespace = ? AND key = ? AND has_key",
                vec![at.namespace.to_string().into(), at.key.to_string().into()],
            ),
        }?;
        Ok(timers.pop())
    }

    fn remove(&self, id: TimerId) -> Result<()> {
        self.run("DELETE FROM timers WHERE id = ?", [bytes(id)])
    }

    /// Stores a timer in place of the stored timer with its id.
    fn store(&self, timer: &Timer) -> Result<()> {
        self.remove(timer.id)?;
        let (mut lease, mut reason, mut died, mut has_key) = (None, None, None, timer.key.is_some());
        match &timer.state {
            State::Pending => self.wakes.set(true),
            State::Leased(held) => {
                has_key &= held.withdrawn.is_none();
                lease = Some(*held);
            }
            State::Parked(why) => reason = Some(why.to_string()),
            State::Dead(death) => {
                (reason, died, has_key) = (Some(json(&death.reason)), Some(millis(death.at)), false);
            }
        }
        self.run(
            "INSERT INTO timers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                bytes(timer.id),
                timer.namespace,
                timer.key,
                has_key,
                timer.kind,
                timer.payload.0,
                json(&timer.labels),
                json(&timer.policy),
                timer.series.as_ref().map(json),
                millis(timer.created),
                millis(timer.scheduled),
                millis(timer.due),
                timer.deliveries,
                timer.failures,
                timer.last_error,
                name(timer.state.phase()),
                lease.map(|lease| lease.token.incarnation.cast_signed()),
                lease.map(|lease| lease.token.claim.cast_signed()),
                lease.map(|lease| millis(lease.until)),
                lease.and_then(|lease| lease.withdrawn).map(|withdrawn| json(&withdrawn)),
                reason,
                died,
                timer.trace,
                timer.has_chosen_id,
            ],
        )?;
        for label in &timer.labels {
            let with = params![timer.namespace, label, bytes(timer.id)];
            self.run("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)", with)?;
        }
        Ok(())
    }

    /// Removes a timer that has ended.
    fn end(&self, timer: &Timer) -> Result<()> {
        if timer.has_chosen_id {
            let until = millis(self.now) + HOUR;
            self.run("INSERT OR REPLACE INTO remembered VALUES (?, ?)", params![bytes(timer.id), until])?;
        }
        self.remove(timer.id)
    }

    fn is_stored(&self, id: TimerId) -> Result<bool> {
        Ok(self.get(&Address::Id(id))?.is_some())
    }

    fn place(&self, mut timer: Timer, if_present: IfPresent) -> Result<Outcome> {
        if timer.namespace.len() > 255 || timer.labels.iter().any(|label| label.len() > 255) {
            return Err(limit("a text is too long"));
        }
        if matches!(timer.state, State::Leased(_) | State::Dead(_)) {
            return Err(limit("a new timer is pending or parked"));
        }
        self.run("DELETE FROM remembered WHERE until <= ?", [millis(self.now)])?;
        let sql = "SELECT 1 FROM remembered WHERE id = ?";
        let remembered = self.sql.query_row(sql, [bytes(timer.id)], |_| Ok(())).optional().map_err(failed)?;
        if remembered.is_some() || self.is_stored(timer.id)? {
            return Ok(Outcome::Repeated(timer.id));
        }
        timer.created = self.now;
        let old = match timer.key_of() {
            Some(key) => self.get(&Address::Key(key))?,
            None => None,
        };
        let new = timer.id;
        match (old, if_present) {
            (None, IfPresent::ReplaceOnly(_)) => Ok(Outcome::NotFound),
            (None, _) => {
                self.store(&timer)?;
                Ok(Outcome::Created(new))
            }
            (Some(old), IfPresent::ReplaceOnly(only)) if only != old.id => {
                Ok(Outcome::KeyExists { holder: old.id, refused: Box::new(timer) })
            }
            (Some(old), IfPresent::Reject) => {
                Ok(Outcome::KeyExists { holder: old.id, refused: Box::new(timer) })
            }
            (Some(old), IfPresent::Keep) => Ok(Outcome::Kept { id: old.id, was: old.state.phase() }),
            (Some(old), _) => {
                if if_present == IfPresent::ReplaceKeepDue {
                    (timer.due, timer.scheduled) = (old.due, old.scheduled);
                }
                let was = old.state.phase();
                self.withdraw(&old, Withdrawal::Replaced)?;
                self.store(&timer)?;
                Ok(Outcome::Replaced { new, old: old.id, was })
            }
        }
    }

    /// Returns whether the timer is in flight.
    fn withdraw(&self, timer: &Timer, why: Withdrawal) -> Result<bool> {
        match step(timer, Event::Withdraw(why), self.now).unwrap() {
            Next::Stays(marked) => self.store(&marked).map(|()| true),
            Next::Ends(_) => self.end(timer).map(|()| false),
        }
    }

    fn change(&self, at: &Address, change: impl FnOnce(Timer) -> Result<Outcome>) -> Result<Outcome> {
        self.get(at)?.map_or(Ok(Outcome::NotFound), change)
    }

    fn apply(&self, op: Op) -> Result<Outcome> {
        match op {
            Op::Place(timer, if_present) => self.place(*timer, if_present),
            Op::Cancel(at, only) => self.change(&at, |timer| {
                if only.is_some_and(|only| only != timer.id) {
                    Ok(Outcome::NotFound)
                } else if self.withdraw(&timer, Withdrawal::Cancelled)? {
                    Ok(Outcome::InFlight(timer.id))
                } else {
                    Ok(Outcome::Cancelled(Box::new(timer)))
                }
            }),
            Op::CancelLabelled { namespace, label, limit } => {
                let mut timers = self.timers(
                    "JOIN labels USING (id) WHERE labels.namespace = ? AND label = ? ORDER BY id",
                    vec![namespace.to_string().into(), label.to_string().into()],
                )?;
                // Those that were withdrawn before are only counted as left if the batch ends before them.
                let is_withdrawn =
                    |timer: &Timer| matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some());
                let (mut cancelled, mut in_flight) = (0, 0);
                while let Some(timer) = timers.first().filter(|_| cancelled < limit) {
                    if !is_withdrawn(timer) {
                        cancelled += 1;
                        in_flight += u32::from(self.withdraw(timer, Withdrawal::Cancelled)?);
                    }
                    timers.remove(0);
                }
                Ok(Outcome::CancelledMany { cancelled, in_flight, more: !timers.is_empty() })
            }
            Op::Move(at, due) => self.change(&at, |timer| self.step(&timer, Event::Move(due))),
            Op::Pause(at) => self.change(&at, |timer| self.pause(timer, true)),
            Op::Resume(at) => self.change(&at, |timer| self.pause(timer, false)),
            Op::Ack(id, token) => self.delivered(id, Event::Ack(token)),
            Op::Skip(id, token) => self.delivered(id, Event::Skip(token)),
            Op::Fail(id, token, failure) => self.delivered(id, Event::Fail(token, failure)),
            Op::Snooze(id, token, due) => self.delivered(id, Event::Snooze(token, due)),
            Op::Release(id, token) => self.delivered(id, Event::Release(token)),
            Op::Return(timer, _) => self.put_back(*timer),
            Op::Park(_, _, reason) if reason.len() > 255 => Err(limit("a text is too long")),
            Op::Park(id, token, reason) => self.delivered(id, Event::Park(reason, Some(token))),
            Op::Unpark(reason, limit) => self.unpark(&reason, limit),
            Op::Replay(id) => self.change(&id.into(), |timer| self.replay(&timer)),
            Op::Fire(at) => self.change(&at, |timer| match timer.state {
                State::Leased(_) => Ok(Outcome::Refused(Refusal::State(Phase::Leased))),
                State::Dead(_) => self.replay(&timer),
                State::Pending | State::Parked(_) => {
                    let due = timer.due.min(self.now);
                    self.store(&Timer { due, state: State::Pending, ..timer.clone() })?;
                    Ok(Outcome::Changed(timer.id))
                }
            }),
            other => panic!("an operation that the oracle does not know: {other:?}"),
        }
    }

    fn put_back(&self, mut timer: Timer) -> Result<Outcome> {
        if self.is_stored(timer.id)? {
            return Ok(Outcome::Repeated(timer.id));
        }
        timer.series = None;
        if let Some(key) = timer.key_of()
            && self.get(&Address::Key(key))?.is_some()
        {
            timer.key = None;
        }
        self.store(&timer).map(|()| Outcome::Created(timer.id))
    }

    fn step(&self, timer: &Timer, event: Event) -> Result<Outcome> {
        match step(timer, event, self.now) {
            Ok(Next::Stays(next)) => self.store(&next).map(|()| Outcome::Changed(timer.id)),
            Ok(Next::Ends(end)) => panic!("no change ends a timer: {end:?}"),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn replay(&self, timer: &Timer) -> Result<Outcome> {
        if let Some(key) = timer.key_of()
            && let Some(holder) = self.get(&Address::Key(key))?.filter(|holder| holder.id != timer.id)
        {
            return Ok(Outcome::KeyExists { holder: holder.id, refused: Box::new(timer.clone()) });
        }
        self.step(timer, Event::Replay)
    }

    fn pause(&self, mut timer: Timer, pause: bool) -> Result<Outcome> {
        let is_paused = timer.state == State::Parked(PAUSED.into());
        let target = match (pause, &timer.state) {
            (true, State::Pending) => State::Parked(PAUSED.into()),
            (false, _) if is_paused => State::Pending,
            (_, state) if timer.series.is_some() => state.clone(),
            (_, state) => return Ok(Outcome::Refused(Refusal::State(state.phase()))),
        };
        timer.state = target;
        timer.series.iter_mut().for_each(|series| series.paused = pause);
        self.store(&timer).map(|()| Outcome::Changed(timer.id))
    }

    fn unpark(&self, reason: &str, limit: u32) -> Result<Outcome> {
        let mut unparked = 0;
        for mut timer in self.timers(
            "WHERE phase = 'parked' AND reason = ? ORDER BY due, id",
            vec![reason.to_owned().into()],
        )? {
            if unparked == limit {
                break;
            }
            let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
            if is_paused && reason != PAUSED {
                timer.state = State::Parked(PAUSED.into());
            } else {
                timer.state = State::Pending;
                timer.series.iter_mut().for_each(|series| series.paused = false);
                unparked += 1;
            }
            self.store(&timer)?;
        }
        Ok(Outcome::Unparked(unparked))
    }

    /// The end of a delivery.
    fn delivered(&self, id: TimerId, event: Event) -> Result<Outcome> {
        let Some(timer) = self.get(&id.into())? else { return Ok(Outcome::Refused(Refusal::Stale)) };
        match step(&timer, event, self.now) {
            Ok(next) => self.settle(&timer, next),
            Err(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn settle(&self, timer: &Timer, next: Next) -> Result<Outcome> {
        let (phase, goes_on) = match next {
            Next::Ends(End::Withdrawn(_)) => {
                self.end(timer)?;
                (Phase::Withdrawn, false)
            }
            Next::Ends(_) => {
                self.end(timer)?;
                let is_withdrawn = matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some());
                (Phase::Done, !is_withdrawn)
            }
            Next::Stays(mut next) => {
                let is_paused = next.series.as_ref().is_some_and(|series| series.paused);
                let is_dead = next.state.phase() == Phase::Dead;
                if is_dead {
                    next.series = None;
                } else if is_paused && next.state == State::Pending {
                    next.state = State::Parked(PAUSED.into());
                }
                self.store(&next)?;
                (next.state.phase(), is_dead)
            }
        };
        let (next, skipped) = if goes_on { self.follow(timer)? } else { (None, 0) };
        Ok(Outcome::Ended { id: timer.id, phase, next, skipped })
    }

    /// The next occurrence of the timer's series.
    fn follow(&self, timer: &Timer) -> Result<(Option<TimerId>, u64)> {
        let Some(series) = &timer.series else { return Ok((None, 0)) };
        let (mut last, mut skipped) = (timer.scheduled, 0);
        loop {
            let following = series.following(last, self.now);
            skipped += following.skipped;
            let Some(instant) = following.instant else { return Ok((None, skipped)) };
            let id = TimerId::of_occurrence(series.id, instant);
            if self.is_stored(id)? {
                (last, skipped) = (instant, skipped + 1);
                continue;
            }
            self.store(&Timer {
                id,
                created: self.now,
                scheduled: instant,
                due: instant + timer.policy.jitter_of(id),
                deliveries: 0,
                failures: 0,
                last_error: None,
                state: if series.paused { State::Parked(PAUSED.into()) } else { State::Pending },
                has_chosen_id: false,
                ..timer.clone()
            })?;
            return Ok((Some(id), skipped));
        }
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Result<Claimed> {
        let token = Token { incarnation: by.incarnation, claim };
        let due = self.timers(
            "WHERE phase = 'pending' AND due <= ? ORDER BY due, id LIMIT ?",
            vec![millis(self.now).into(), i64::from(limit.timers).into()],
        )?;
        let mut claimed = Claimed { now: self.now, ..Claimed::default() };
        let mut bytes = 0;
        for timer in due {
            if bytes > 0 && bytes >= limit.bytes {
                break;
            }
            bytes += timer.payload.0.len() as u64;
            let until = self.now + by.lease;
            let next = step(&timer, Event::Claim { token, until }, self.now).unwrap();
            let timer = match next {
                Next::Stays(leased) => {
                    self.store(&leased)?;
                    leased
                }
                Next::Ends(_) => {
                    let outcome = self.settle(&timer, next)?;
                    claimed.left_out.extend(LeftOut::of(&timer, &outcome));
                    Timer { deliveries: timer.deliveries + 1, ..timer }
                }
            };
            claimed.leased.push(Leased { timer, token });
        }
        let first = self.timers("WHERE phase = 'pending' ORDER BY due, id LIMIT 1", vec![])?;
        claimed.next_due = first.first().map(|timer| timer.due);
        Ok(claimed)
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Result<Vec<TimerId>> {
        let mut lost = Vec::new();
        for (id, token) in leases {
            let event = Event::Renew { token, until: self.now + by.lease };
            match self.get(&id.into())?.map(|timer| step(&timer, event, self.now)) {
                Some(Ok(Next::Stays(renewed))) => self.store(&renewed)?,
                _ => lost.push(id),
            }
        }
        Ok(lost)
    }

    fn reap(&self, limit: u32) -> Result<Reaped> {
        let mut reaped = Reaped::default();
        for timer in self.timers(
            "WHERE phase = 'leased' AND until <= ? ORDER BY until, id LIMIT ?",
            vec![millis(self.now).into(), i64::from(limit).into()],
        )? {
            let next = step(&timer, Event::Expire, self.now).unwrap();
            let outcome = self.settle(&timer, next)?;
            reaped.left_out.extend(LeftOut::of(&timer, &outcome));
            match outcome {
                Outcome::Ended { phase: Phase::Dead, .. } => reaped.dead.push(timer.id),
                Outcome::Ended { phase: Phase::Withdrawn, .. } => reaped.withdrawn += 1,
                _ => reaped.returned.push(timer.id),
            }
        }
        let sql = "SELECT min(until) FROM timers WHERE phase = 'leased'";
        let next: Option<i64> = self.sql.query_row(sql, [], |row| row.get(0)).map_err(failed)?;
        reaped.next = next.map(moment);
        Ok(reaped)
    }

    fn list(&self, filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Result<Page> {
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
        // A cursor is the last timer's id, and its place in the order as it was then.
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

    fn counts(&self, sql: &str) -> Result<Counts> {
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

    fn import(&self, timers: Vec<Timer>) -> Result<()> {
        for mut timer in timers {
            if timer.namespace.len() > 255 || self.is_stored(timer.id)? {
                return Err(limit("it does not fit"));
            }
            if let State::Leased(lease) = timer.state {
                if lease.withdrawn.is_some() {
                    continue;
                }
                let is_paused = timer.series.as_ref().is_some_and(|series| series.paused);
                timer.state = if is_paused { State::Parked(PAUSED.into()) } else { State::Pending };
            }
            let is_dead = timer.state.phase() == Phase::Dead;
            if let Some(key) = timer.key_of().filter(|_| !is_dead)
                && self.get(&Address::Key(key))?.is_some()
            {
                return Err(limit("the key is taken"));
            }
            self.store(&timer)?;
        }
        Ok(())
    }
}

/// A place in an order.
#[derive(serde::Serialize, serde::Deserialize)]
enum Place {
    Number(i64),
    Bytes(Vec<u8>),
}

impl SqliteStore {
    pub(crate) fn new(clock: ManualClock) -> rusqlite::Result<Self> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(SCHEMA)?;
        let wakes: Arc<Mutex<Vec<Wake>>> = Arc::default();
        let on_step = Arc::clone(&wakes);
        clock.subscribe(Box::new(move || {
            on_step.lock().unwrap().iter().for_each(|wake| wake());
            true
        }));
        Ok(Self { database: Mutex::new(database), clock, wakes })
    }

    fn act<'a, T: Send + 'a>(&self, act: impl FnOnce(&Act<'_>) -> Result<T>) -> Answer<'a, T> {
        let mut database = self.database.lock().unwrap();
        let run = |sql: Transaction<'_>| {
            let transaction = Act { sql: &sql, now: self.now(), wakes: Cell::new(false) };
            let result = act(&transaction);
            let wakes = transaction.wakes.get();
            match result {
                Ok(answer) => sql.commit().map_err(failed).map(|()| (answer, wakes)),
                Err(error) => sql.rollback().map_err(failed).and(Err(error)),
            }
        };
        let result = database.transaction().map_err(failed).and_then(run);
        drop(database);
        if matches!(result, Ok((_, true))) {
            self.wakes.lock().unwrap().iter().for_each(|wake| wake());
        }
        Box::pin(ready(result.map(|(answer, _)| answer)))
    }
}

impl TimerStore for SqliteStore {
    fn now(&self) -> UtcMillis {
        UtcMillis::from_timestamp(self.clock.now())
    }

    fn apply(&self, ops: Vec<Op>, _: Durability) -> Answer<'_, Vec<Outcome>> {
        self.act(|act| ops.into_iter().map(|op| act.apply(op)).collect())
    }

    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed> {
        self.act(|act| act.claim(by, claim, limit))
    }

    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>> {
        self.act(|act| {
            let timers = act.timers(
                "WHERE phase = 'leased' AND incarnation = ? AND claim = ? ORDER BY until, id",
                vec![by.incarnation.cast_signed().into(), claim.cast_signed().into()],
            )?;
            let token = Token { incarnation: by.incarnation, claim };
            Ok(timers.into_iter().map(|timer| Leased { timer, token }).collect())
        })
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>> {
        self.act(|act| act.renew(by, leases))
    }

    fn reap(&self, limit: u32) -> Answer<'_, Reaped> {
        self.act(|act| act.reap(limit))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>> {
        self.act(|act| {
            let timers = act.timers(
                "WHERE phase = 'pending' AND due >= ? AND due < ? ORDER BY due, id LIMIT ?",
                vec![millis(from).into(), millis(until).into(), i64::from(limit).into()],
            )?;
            Ok(timers.into_iter().map(|timer| (timer.due, timer.id)).collect())
        })
    }

    fn get(&self, at: Address) -> Answer<'_, Option<Timer>> {
        self.act(|act| act.get(&at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page> {
        self.act(|act| act.list(&filter, cursor.as_ref(), limit))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        self.act(|act| act.counts("SELECT namespace, phase, count FROM counts"))
    }

    fn horizon(&self) -> Answer<'_, Horizon> {
        self.act(|act| {
            let mut horizon = Horizon::empty(act.now);
            for timer in act.timers("WHERE phase = 'pending'", vec![])? {
                horizon.add(timer.due, 1);
            }
            Ok(horizon)
        })
    }

    /// The counts against a recount; a fault is an error, since only the library makes faults.
    fn check(&self) -> Answer<'_, Vec<Fault>> {
        self.act(|act| {
            let counts = act.counts("SELECT namespace, phase, count FROM counts")?;
            let recount =
                act.counts("SELECT namespace, phase, count(*) FROM timers GROUP BY namespace, phase")?;
            if counts == recount {
                return Ok(Vec::new());
            }
            let message = format!("{counts:?} counted as {recount:?}");
            Err(StoreError::new(StoreErrorKind::Corrupt, message))
        })
    }

    fn export<'a>(&'a self, mut each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()> {
        self.act(|act| {
            let timers = act.timers("ORDER BY id", vec![])?;
            let _all = timers.iter().all(&mut each);
            Ok(())
        })
    }

    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()> {
        self.act(|act| act.import(timers))
    }

    fn subscribe(&self, wake: Wake) {
        self.wakes.lock().unwrap().push(wake);
    }
}
