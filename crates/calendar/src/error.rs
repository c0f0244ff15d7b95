//! Why a calendar was not made.

use core::fmt;

/// Why a [`Calendar`](crate::Calendar) was not made. Each contains what was offending.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CalendarError {
    /// The cron expression is empty.
    EmptyExpression,
    /// The cron expression is none.
    Syntax {
        /// As it was given.
        expression: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The cron expression names days that no year has, or none of the years that it lists.
    NeverFires {
        /// As it was given.
        expression: String,
    },
    /// The name of the time zone is empty.
    EmptyZone,
    /// The time zone is not in this machine's database.
    UnknownZone {
        /// As it was given.
        zone: String,
        /// What the database says, if it says anything.
        source: Option<jiff::Error>,
    },
    /// A month or a day of it is none.
    OutOfBounds {
        /// Which of the arguments.
        argument: &'static str,
        /// What it was.
        value: i8,
        /// The greatest that it may be; the least is 1.
        most: i8,
    },
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyExpression => f.write_str("the cron expression is empty"),
            Self::Syntax { expression, fault } => {
                write!(f, "{expression:?} is no cron expression: {fault}")
            }
            Self::NeverFires { expression } => write!(f, "the cron expression {expression:?} never fires"),
            Self::EmptyZone => f.write_str("the name of the time zone is empty"),
            Self::UnknownZone { zone, .. } => write!(f, "the time zone {zone:?} is unknown"),
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
