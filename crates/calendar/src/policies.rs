//! The policies of a calendar: for clock changes, and for days that a month lacks.

/// The policy of a fixed calendar for local times that clocks skip; see [the table](crate#when-clocks-are-changed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DstPolicy {
    /// The calendar runs at the first instant after the gap, as with Vixie's cron.
    #[default]
    Vixie,
    /// The calendar does not run.
    SkipGap,
}

/// The policy of a calendar for months that are too short for its day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShortMonth {
    /// The calendar does not run in short months. The 31st exists in seven months, and 29 February in leap years.
    Skip,
    /// The calendar runs on the last day of a short month, so that "on the 31st" means "at the end of the month".
    LastDay,
}
