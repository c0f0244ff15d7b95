//! The errors of limited services and bodies.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

/// The target of a time limit: the response of a service, a single frame of a body, or a whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The response of a service. The time limit counts from the call of the service.
    Response,
    /// The wait for a single frame of a body. The time limit starts again with each wait.
    BodyIdle,
    /// A whole body. The time limit counts from the call that sets the limit to the end of the body.
    BodyTotal,
}

/// The error of a time limit. Either the limit has passed, or the limit's engine was shut down earlier.
/// [`part`](Self::part) returns the target of the limit: a response, a frame of a body, or a whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    part: Part,
    limit: Duration,
    is_shut_down: bool,
}

impl Elapsed {
    pub(crate) fn new(part: Part, limit: Duration, is_shut_down: bool) -> Self {
        Self { part, limit, is_shut_down }
    }

    /// Returns the target of the limit: the response of a service, a single frame of a body, or a whole body.
    #[must_use]
    pub fn part(&self) -> Part {
        self.part
    }

    /// Returns the limit: the longest time that was allowed.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns true if the limit's timer engine was shut down before the limit had passed, and false if the limit has
    /// passed. Without the engine, the wait for the response or the body could last longer than the limit permits. So
    /// the wait ends with this error.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match (self.is_shut_down, self.part) {
            (false, Part::Response) => write!(f, "no response within {limit:?}"),
            (false, Part::BodyIdle) => write!(f, "no frame of the body within {limit:?}"),
            (false, Part::BodyTotal) => write!(f, "the body had not ended within {limit:?}"),
            (true, Part::Response) => {
                write!(f, "the engine that limits a response to {limit:?} was shut down")
            }
            (true, Part::BodyIdle) => {
                write!(f, "the engine that limits the wait for a frame to {limit:?} was shut down")
            }
            (true, Part::BodyTotal) => write!(f, "the engine that limits a body to {limit:?} was shut down"),
        }
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        let kind = if elapsed.is_shut_down() { io::ErrorKind::Other } else { io::ErrorKind::TimedOut };
        Self::new(kind, elapsed)
    }
}

/// The error of a limited service or body. Either a limit has passed, or the service or body has failed by itself.
///
/// Other layers of tower return boxed errors of the type `Box<dyn Error + Send + Sync>`. If the inner error converts
/// into the boxed error, a `TimeoutError` converts, too. The box then contains the inner error itself or an
/// [`Elapsed`], which `downcast_ref` finds. The conversion is possible only because `TimeoutError` does not implement
/// [`Error`].
///
/// A limited service fails in no other way, so a `match` on the error needs no other arm.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use tourbillon_tower::{Elapsed, TimeoutError};
///
/// fn status(error: &TimeoutError<Infallible>) -> u16 {
///     match error {
///         TimeoutError::Elapsed(elapsed) if elapsed.is_shut_down() => 503,
///         TimeoutError::Elapsed(_) => 504,
///         TimeoutError::Inner(never) => match *never {},
///     }
/// }
///
/// fn is_timeout(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
///     error.downcast_ref::<Elapsed>().is_some()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutError<E> {
    /// The limit has passed, or its engine was shut down.
    Elapsed(Elapsed),
    /// The service or the body has failed by itself, with this error.
    Inner(E),
}

impl<E> TimeoutError<E> {
    /// Returns the error of the time limit; `None` if the service or the body has failed by itself.
    #[must_use]
    pub fn elapsed(&self) -> Option<Elapsed> {
        match self {
            Self::Elapsed(elapsed) => Some(*elapsed),
            Self::Inner(_) => None,
        }
    }

    /// Returns the error with which the service or the body has failed by itself; `None` if this is the error of a time
    /// limit.
    #[must_use]
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Elapsed(_) => None,
            Self::Inner(error) => Some(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for TimeoutError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elapsed(elapsed) => elapsed.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<TimeoutError<E>> for Box<dyn Error + Send + Sync> {
    fn from(error: TimeoutError<E>) -> Self {
        match error {
            TimeoutError::Elapsed(elapsed) => elapsed.into(),
            TimeoutError::Inner(error) => error.into(),
        }
    }
}
