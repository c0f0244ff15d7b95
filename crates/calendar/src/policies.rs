//! Defines the policies of a calendar for clock changes, and for days that a month lacks.

/// Decides what a fixed calendar does about local times that clocks skip. A calendar is fixed if it names times of the
/// day, such as 2:30. See [the table](crate#when-clocks-are-changed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DstPolicy {
    /// If clocks skip a local time, the calendar runs at the first instant after the skipped times, as Vixie's cron
    /// does.
    #[default]
    Vixie,
    /// If clocks skip a local time, the calendar does not run for that time.
    SkipGap,
}

/// Decides what a calendar does in months that do not have its day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShortMonth {
    /// The calendar does not run in short months. The 31st exists in seven months, and 29 February in leap years.
    Skip,
    /// The calendar runs on the last day of a short month. So "on the 31st" means "at the end of the month".
    LastDay,
}
