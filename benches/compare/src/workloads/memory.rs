//! Resident memory for each pending timer. It includes the payload of 16 bytes. It does not include the handle or id
//! with which the owner cancels the timer.

use super::owned::Armed;
use super::pairs::Pairs;
use super::{HOUR, LONG};
use crate::case::Case;
use crate::contestants::{Connections, OneShots, OursTimer, Owned};
use crate::process::resident;
use crate::results::{Column, Figures};
use crate::roster::{entrants, schedule_and_cancel};
use crate::scale::Scale;
use crate::workload::{Entrant, Family, Workload};
use std::ops::Range;
use tourbillon_book::figure::thousands;

pub(super) const WORKLOAD: Workload = Workload {
    name: "memory",
    operation: "resident memory that pending timers add, by their number (bytes a timer)",
    family: Family::Memory,
    about: "The handle or id with which an owner refers to its timer is not counted. The payload of 16 bytes \
        is counted, for timers that have one; timers that are futures without a task have none. The figures \
        of Java are the heap in use after collections. Checked: all timers are pending, and none fires.",
    reading: "The intrusive wheel behind a mutex keeps its links in the timer. Ours has a word for each \
        timer, on which threads race, its payload, and a ticket in a wheel; an owned timer has a few words \
        more.",
    cases,
    columns: |_| vec![Column::new("bytes", "a pending timer", "bytes")],
    rounds: |scale, _| scale.pick(3, 1, 1),
    entrants,
};

const DELAYS: Range<u64> = HOUR + LONG.start..HOUR + LONG.end;

fn entrants() -> Vec<Entrant> {
    let mut entrants = entrants![owned: OursTimer<false>];
    entrants.extend(schedule_and_cancel!(turn));
    entrants
}

fn cases(scale: Scale) -> Vec<Case> {
    let timers = scale.pick(1_000_000, 50_000, 500);
    let settle_ms = scale.pick(100, 20, 5);
    vec![Case { timers, settle_ms, ..Case::named(format!("{} pending", thousands(timers))) }]
}

fn turn<C: OneShots>(case: &Case) -> Figures {
    let mut pairs = Pairs::<C>::new(1, DELAYS);
    pairs.fill(1, case.settle());
    let before = resident();
    pairs.fill(1 + case.timers, case.settle());
    let after = resident();
    pairs.check();
    bytes_each(before, after, pairs.bytes_of_ids(), case.timers)
}

fn owned<C: Owned>(case: &Case) -> Figures {
    let before = resident();
    let mut armed = Armed::<C>::new(case.timers, &DELAYS, case.settle());
    let after = resident();
    armed.check();
    let bytes_of_handles = case.timers * C::Connections::BYTES_OF_HANDLE;
    bytes_each(before, after, bytes_of_handles, case.timers)
}

fn bytes_each(before: Option<u64>, after: Option<u64>, not_counted: usize, timers: usize) -> Figures {
    let bytes = || Some((after? as f64 - before? as f64 - not_counted as f64) / timers as f64);
    Figures::default().number("bytes", bytes())
}
