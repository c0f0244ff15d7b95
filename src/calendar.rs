//! Moments by the calendar, of the crate [`tourbillon-calendar`](tourbillon_calendar): cron expressions and days of the
//! month, in the time zones of the world. Tasks repeat by them.
//!
//! ```
//! use tourbillon::calendar::Calendar;
//!
//! let calendar = Calendar::cron("30 2 * * *", "Europe/Berlin")?;
//! let run = calendar.next_after("2024-03-30T00:00:00Z".parse()?);
//! assert_eq!(run, Some("2024-03-30T01:30:00Z".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use tourbillon_calendar::{Calendar, CalendarError, DstPolicy, ShortMonth, jiff};
