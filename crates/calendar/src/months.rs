//! Computes the civil times of a rule with one day of the month, in every month or in one month of every year.

use crate::policies::ShortMonth;
use jiff::civil::{Date, DateTime, Time};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Months {
    pub(super) months: Which,
    pub(super) day: i8,
    pub(super) short: ShortMonth,
    pub(super) time: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    One(i8),
}

impl Months {
    /// Returns the first civil time of the monthly or yearly rule that is at `from` or later. Returns `None` after the
    /// year 9999.
    pub(super) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let (first, last) = match self.months {
            Which::All => (1, 12),
            Which::One(month) => (month, month),
        };
        (from.year()..=9999)
            .flat_map(|year| (first..=last).map(move |month| (year, month)))
            .filter_map(|(year, month)| self.within(year, month))
            .find(|&due| due >= from)
    }

    fn within(&self, year: i16, month: i8) -> Option<DateTime> {
        let length = Date::new(year, month, 1).ok()?.days_in_month();
        let day = match self.short {
            ShortMonth::Skip => self.day,
            ShortMonth::LastDay => self.day.min(length),
        };
        Some(Date::new(year, month, day).ok()?.to_datetime(self.time))
    }
}
