//! Defines the error of a calendar that could not be made.

use core::fmt;

/// The reason why a [`Calendar`](crate::Calendar) could not be made. A variant about a wrong value contains the value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CalendarError {
    /// The caller gave an empty cron expression.
    EmptyExpression,
    /// The text that the caller gave is not a cron expression.
    Syntax {
        /// The cron expression, as the caller gave it.
        expression: String,
        /// The description of the fault in the expression.
        fault: String,
    },
    /// The cron expression never matches. Its days never exist, or do not exist in the years that it lists.
    NeverFires {
        /// The cron expression, as the caller gave it.
        expression: String,
    },
    /// The caller gave an empty name of a time zone.
    EmptyZone,
    /// The name of the time zone is not in this machine's database of zones.
    UnknownZone {
        /// The name of the zone, as the caller gave it.
        zone: String,
        /// The name of a zone that the caller probably meant. `None` if no zone has a similar name.
        meant: Option<String>,
        /// The error that the database of zones returned. `None` if the database returned a zone without a name.
        source: Option<jiff::Error>,
    },
    /// The name of the time zone does not stand for a place. `localtime` means a different zone on each machine, and
    /// `Factory` means no zone.
    NoPlace {
        /// The name of the zone, as the caller gave it.
        zone: String,
    },
    /// The number of a month, or of a day in a month, is out of range.
    OutOfBounds {
        /// The name of the argument that is out of range.
        argument: &'static str,
        /// The value that the caller gave for the argument.
        value: i8,
        /// The greatest value that the argument may have. The least value is 1.
        most: i8,
    },
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyExpression => f.write_str("the cron expression is empty"),
            Self::Syntax { expression, fault } => {
                write!(f, "{expression:?} is not a cron expression: {fault}")
            }
            Self::NeverFires { expression } => write!(f, "the cron expression {expression:?} never fires"),
            Self::EmptyZone => f.write_str("the name of the time zone is empty"),
            Self::UnknownZone { zone, meant: None, .. } => write!(f, "the time zone {zone:?} is unknown"),
            Self::UnknownZone { zone, meant: Some(meant), .. } => {
                write!(f, "the time zone {zone:?} is unknown; is {meant:?} meant?")
            }
            Self::NoPlace { zone } => {
                write!(
                    f,
                    "the time zone {zone:?} differs by machine; name that of a place, such as \"Europe/Zurich\""
                )
            }
            Self::OutOfBounds { argument, value, most } => {
                write!(f, "the {argument} is {value}, but must be from 1 to {most}")
            }
        }
    }
}

impl std::error::Error for CalendarError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::UnknownZone { source: Some(source), .. } => Some(source),
            _ => None,
        }
    }
}
