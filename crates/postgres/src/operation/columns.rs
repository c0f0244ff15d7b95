//! Converts many timers to columns: a statement for many timers gets each column as an array.

use crate::layout::{Id, Stored};
use crate::link::Param;
use tokio_postgres::types::Type;
use tourbillon_durable::timer::Timer;

/// The columns of the rows of several timers. Each array has one value for each timer, in the order of the timers.
#[derive(Debug, Default)]
pub(super) struct Columns {
    ids: Vec<Id>,
    dues: Vec<i64>,
    namespaces: Vec<Box<str>>,
    keys: Vec<Option<Box<str>>>,
    kinds: Vec<Box<str>>,
    payloads: Vec<Vec<u8>>,
    labels: Vec<Option<String>>,
    phases: Vec<&'static str>,
    reasons: Vec<Option<Box<str>>>,
    extras: Vec<Option<String>>,
    createds: Vec<i64>,
    dieds: Vec<Option<i64>>,
}

impl Columns {
    pub(super) fn of(timers: &[&Timer]) -> Self {
        let mut columns = Self::default();
        for timer in timers {
            let row = Stored::of(timer);
            columns.labels.push(row.labels_json());
            columns.ids.push(row.id);
            columns.dues.push(row.due);
            columns.namespaces.push(row.namespace);
            columns.keys.push(row.key);
            columns.kinds.push(row.kind);
            columns.payloads.push(row.payload.into_vec());
            columns.phases.push(row.phase);
            columns.reasons.push(row.reason);
            columns.extras.push(row.extra);
            columns.createds.push(row.created);
            columns.dieds.push(row.died);
        }
        columns
    }

    /// Returns the parameters 1 to 10 of a statement that stores new timers: the columns from the ids to `extra`.
    pub(super) fn of_new(&self) -> Vec<Param<'_>> {
        vec![
            (&self.ids, Type::UUID_ARRAY),
            (&self.dues, Type::INT8_ARRAY),
            (&self.namespaces, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.kinds, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.labels, Type::TEXT_ARRAY),
            (&self.phases, Type::TEXT_ARRAY),
            (&self.reasons, Type::TEXT_ARRAY),
            (&self.extras, Type::TEXT_ARRAY),
        ]
    }

    /// Returns the parameters 1 to 12 of a statement that stores timers of any age: the columns of new timers, and the
    /// moments of creation and of death.
    pub(super) fn of_any(&self) -> Vec<Param<'_>> {
        let ages: [Param<'_>; 2] = [(&self.createds, Type::INT8_ARRAY), (&self.dieds, Type::INT8_ARRAY)];
        self.of_new().into_iter().chain(ages).collect()
    }
}
