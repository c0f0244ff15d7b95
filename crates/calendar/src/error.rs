//! The error of a calendar that could not be made.

use core::fmt;

/// The reason why a [`Calendar`](crate::Calendar) could not be made. Each variant contains the offending value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CalendarError {
    /// The cron expression is empty.
    EmptyExpression,
    /// The text is not a cron expression.
    Syntax {
        /// The expression as it was given.
        expression: String,
        /// The fault in the expression.
        fault: String,
    },
    /// The cron expression never matches: no year has a day that it names, or no listed year has one.
    NeverFires {
        /// The expression as it was given.
        expression: String,
    },
    /// The name of the time zone is empty.
    EmptyZone,
    /// The time zone is not in this machine's database.
    UnknownZone {
        /// The name as it was given.
        zone: String,
        /// The name that was probably meant, if one resembles it.
        meant: Option<String>,
        /// The error of the database, if there is one.
        source: Option<jiff::Error>,
    },
    /// The name stands for the zone of a machine, such as `localtime`, or for none, as `Factory` does.
    NoPlace {
        /// The name as it was given.
        zone: String,
    },
    /// A month or a day of a month does not exist.
    OutOfBounds {
        /// The name of the argument.
        argument: &'static str,
        /// The value of the argument.
        value: i8,
        /// The greatest value that is allowed; the least is 1.
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
