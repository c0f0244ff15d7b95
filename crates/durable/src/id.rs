//! Defines the ids of timers, and makes them.

use core::fmt;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;
use uuid::Uuid;

/// The id of a timer. Each delivery carries the timer's id, so a receiver that remembers ids recognises a repeated
/// delivery.
///
/// ```
/// use tourbillon_durable::timer::TimerId;
///
/// let id: TimerId = "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70".parse()?;
/// assert_eq!(id.to_string(), "01935560-1c40-7a5e-8b6c-2f9a3d1e4b70");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimerId(Uuid);

impl TimerId {
    /// Makes an id that no other call returns. Ids are ordered by the time of their creation, to a millisecond.
    ///
    /// ```
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// assert_ne!(TimerId::fresh(), TimerId::fresh());
    /// ```
    #[must_use]
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Makes a random id that no other call returns. Random ids have no order in time.
    pub(crate) fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Makes the id with these bits. A caller that chooses an id can safely repeat the call that creates the timer: the
    /// store creates a single timer with this id.
    ///
    /// ```
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// let id = TimerId::from_u128(17);
    /// assert_eq!((id.as_u128(), id.to_string().as_str()), (17, "00000000-0000-0000-0000-000000000011"));
    /// ```
    #[must_use]
    pub const fn from_u128(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }

    /// Returns the id as a number of 128 bits.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    /// Computes the id of the occurrence at `instant` in the series with the id `series`. The same arguments give the
    /// same id, in every store.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::timer::TimerId;
    ///
    /// let of = |instant| TimerId::of_occurrence(TimerId::from_u128(17), UtcMillis::from_millis(instant));
    /// assert_eq!(of(1_000), of(1_000));
    /// assert_ne!(of(1_000), of(2_000));
    /// ```
    #[must_use]
    pub fn of_occurrence(series: Self, instant: UtcMillis) -> Self {
        Self(Uuid::new_v5(&series.0, &instant.as_millis().to_be_bytes()))
    }
}

/// Writes the id as a UUID in text.
impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl core::str::FromStr for TimerId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}
