//! Converts timers to the columns of their rows, and back.
//!
//! A claim does not change the row of a timer, but inserts a row into the table `lease`. So while a timer is leased,
//! the number of deliveries in its row is one less than [`Timer::deliveries`].

use super::id::Id;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::Series;
use tourbillon_durable::policy::Policy;
use tourbillon_durable::state::{Death, DeathReason, Lease, State, Token, Withdrawal};
use tourbillon_durable::timer::{Payload, Timer};

/// The columns of the view `stored_timer`, in the order in which [`read`] reads them.
pub(crate) const COLUMNS: &str = "r.id, r.due, r.created, r.phase, r.namespace, r.key, r.kind, r.payload, r.labels, \
                                  r.reason, r.died, r.extra, r.until, r.incarnation, r.claim";

/// The column `extra`. It has the fields of a timer that have their default values in most timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Extra {
    /// The moment for which the timer is scheduled. Retries and snoozes move the due moment, but not this moment.
    /// `None` if the two moments are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled: Option<UtcMillis>,
    #[serde(skip_serializing_if = "is_default")]
    deliveries: u32,
    #[serde(skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Box<str>>,
    /// Whether the caller chose the id. The field is written only if it is true, because SQL functions only check
    /// whether the field exists.
    #[serde(skip_serializing_if = "is_default")]
    chosen: bool,
    /// The moment from which the age of an occurrence of a schedule counts. SQL functions check whether the field
    /// exists, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_from: Option<UtcMillis>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The columns of a timer's row, and the lease of a leased timer.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) id: Id,
    pub(crate) due: i64,
    pub(crate) created: i64,
    pub(crate) phase: &'static str,
    pub(crate) namespace: Box<str>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) kind: Box<str>,
    pub(crate) payload: Box<[u8]>,
    /// The labels. `None` if the timer has none.
    pub(crate) labels: Option<Vec<Box<str>>>,
    pub(crate) reason: Option<Box<str>>,
    pub(crate) died: Option<i64>,
    pub(crate) extra: Option<String>,
    /// The end of the lease, and the lease's token. `None` if the timer is not leased.
    pub(crate) lease: Option<(i64, Token)>,
}

/// Returns the milliseconds of a moment as a value of the type `bigint`. Each moment fits, because a moment is before
/// the year 10,000.
pub(crate) fn millis(moment: UtcMillis) -> i64 {
    moment.as_millis().cast_signed()
}

/// Returns the moment of a value of the type `bigint`. A negative value counts as the start of 1970.
pub(crate) fn moment(millis: i64) -> UtcMillis {
    UtcMillis::from_millis(u64::try_from(millis).unwrap_or(0))
}

const DEATHS: [(DeathReason, &str); 5] = [
    (DeathReason::Attempts, "attempts"),
    (DeathReason::Deliveries, "deliveries"),
    (DeathReason::Age, "age"),
    (DeathReason::Refused, "refused"),
    (DeathReason::Plan, "plan"),
];

impl Stored {
    pub(crate) fn of(timer: &Timer) -> Self {
        let (mut phase, mut reason, mut died, mut lease) = ("p", None, None, None);
        let mut deliveries = timer.deliveries;
        match &timer.state {
            State::Pending => {}
            State::Leased(held) => {
                deliveries = deliveries.saturating_sub(1);
                lease = Some((millis(held.until), held.token));
                phase = match held.withdrawn {
                    None => "p",
                    Some(Withdrawal::Cancelled) => "c",
                    Some(Withdrawal::Replaced) => "r",
                };
            }
            State::Parked(why) => (phase, reason) = ("k", Some(why.clone())),
            State::Dead(death) => {
                let word = DEATHS.into_iter().find(|(known, _)| *known == death.reason);
                (phase, died) = ("d", Some(millis(death.at)));
                reason = Some(word.map_or("refused", |(_, word)| word).into());
            }
        }
        let extra = Extra {
            scheduled: (timer.scheduled != timer.due).then_some(timer.scheduled),
            deliveries,
            failures: timer.failures,
            last_error: timer.last_error.clone(),
            policy: (timer.policy != Policy::default()).then(|| timer.policy.clone()),
            series: timer.series.clone(),
            trace: timer.trace.clone(),
            chosen: timer.has_chosen_id,
            age_from: timer.age_from,
        };
        Self {
            id: Id(timer.id),
            due: millis(timer.due),
            created: millis(timer.created),
            phase,
            namespace: timer.namespace.clone(),
            key: timer.key.clone(),
            kind: timer.kind.clone(),
            payload: timer.payload.0.clone(),
            labels: (!timer.labels.is_empty()).then(|| timer.labels.clone()),
            reason,
            died,
            extra: (extra != Extra::default()).then(|| json(&extra)),
            lease,
        }
    }

    /// Returns the labels as the text of a JSON list. `None` if the timer has no labels.
    pub(crate) fn labels_json(&self) -> Option<String> {
        self.labels.as_ref().map(json)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("the values have no maps with other keys than texts")
}

/// Reads the timer of a row. The columns [`COLUMNS`] begin at the index `first` of the row. If the timer cannot be
/// read, returns its id as the error.
pub(crate) fn read(row: &Row, first: usize) -> Result<Timer, Id> {
    let id: Id = row.get(first);
    decode(id, row, first).ok_or(id)
}

fn decode(id: Id, row: &Row, first: usize) -> Option<Timer> {
    let text = |nth: usize| row.try_get::<_, Option<&str>>(first + nth).ok();
    let number = |nth: usize| row.try_get::<_, Option<i64>>(first + nth).ok();
    let due = moment(number(1)??);
    let (phase, reason) = (text(3)??, text(9)?);
    let extra: Extra = match text(11)? {
        Some(extra) => serde_json::from_str(extra).ok()?,
        None => Extra::default(),
    };
    let mut deliveries = extra.deliveries;
    let state = match (phase, number(12)?) {
        ("p" | "c" | "r", Some(until)) => {
            deliveries = deliveries.saturating_add(1);
            let token =
                Token { incarnation: number(13)??.cast_unsigned(), claim: number(14)??.cast_unsigned() };
            let withdrawn = match phase {
                "c" => Some(Withdrawal::Cancelled),
                "r" => Some(Withdrawal::Replaced),
                _ => None,
            };
            State::Leased(Lease { token, until: moment(until), withdrawn })
        }
        ("p", None) => State::Pending,
        ("k", None) => State::Parked(reason?.into()),
        ("d", None) => {
            let (reason, _) = DEATHS.into_iter().find(|(_, word)| Some(*word) == reason)?;
            State::Dead(Death { reason, at: moment(number(10)??) })
        }
        _ => return None,
    };
    let labels: Option<Vec<String>> = row.try_get(first + 8).ok()?;
    Some(Timer {
        id: id.0,
        namespace: text(4)??.into(),
        key: text(5)?.map(Into::into),
        kind: text(6)??.into(),
        payload: Payload(row.try_get::<_, &[u8]>(first + 7).ok()?.into()),
        labels: labels.unwrap_or_default().into_iter().map(Into::into).collect(),
        policy: extra.policy.unwrap_or_default(),
        series: extra.series,
        created: moment(number(2)??),
        scheduled: extra.scheduled.unwrap_or(due),
        due,
        deliveries,
        failures: extra.failures,
        last_error: extra.last_error,
        state,
        trace: extra.trace,
        has_chosen_id: extra.chosen,
        age_from: extra.age_from,
    })
}
