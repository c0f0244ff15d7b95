//! The policy of a timer: retries, deadlines and late deliveries.

use crate::shape::{absent, needed};
use serde::{Deserialize, Serialize};
use tourbillon_words::Guarantee;

/// How a timer is delivered: its retries, its timeout, its late deliveries and its delivery guarantee. Each field that
/// is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The number of failures after which the timer is dead: 10 by default, at most 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    pub attempts: Option<u32>,
    /// The greatest age of the timer, counted from its scheduled moment. For an occurrence of a schedule it counts from
    /// the creation or the due moment, whichever is later. A move and a replay begin the age anew. If a delivery fails
    /// and the retry would be due after this age, the timer becomes dead. By default there is no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
    /// The timeout of one attempt: 15 s by default, from 100 ms to 30 s. For a timer that a receiver fetches, at most
    /// an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 3_600_000))]
    pub timeout_ms: Option<u64>,
    /// The pause after a failure. It is at least the service's `deliveries.least_pause`, which is 1 s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The greatest lateness with which the timer is still delivered; a later delivery is skipped. By default, the
    /// timer is delivered however late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfire_within_ms: Option<u64>,
    /// The length of a window that begins at the requested due moment. The timer becomes due at a moment in this
    /// window. Zero by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// The delivery guarantee: how often the timer may be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
}

/// The pause after a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", try_from = "Shape")]
#[non_exhaustive]
pub enum Backoff {
    /// Pauses of 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, each lengthened at random by up to a fifth.
    Standard {},
    /// The same pause after each failure.
    Fixed {
        /// The pause.
        pause_ms: u64,
    },
    /// A random pause, whose upper bound is `first_ms` after the first failure and doubles with each further failure,
    /// up to `max_ms`.
    Exponential {
        /// The upper bound of the first pause.
        first_ms: u64,
        /// The upper bound of every pause.
        max_ms: u64,
    },
    /// The given pauses in order. The last pause repeats.
    Ladder {
        /// The pauses, at most 32.
        #[cfg_attr(feature = "openapi", schema(max_items = 32))]
        pauses_ms: Vec<u64>,
    },
}

/// The fields of all kinds of backoff together, as a request contains them. [`Backoff`] is converted from this struct.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    kind: Kind,
    pause_ms: Option<u64>,
    first_ms: Option<u64>,
    max_ms: Option<u64>,
    pauses_ms: Option<Vec<u64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Standard,
    Fixed,
    Exponential,
    Ladder,
}

impl TryFrom<Shape> for Backoff {
    type Error = String;

    fn try_from(shape: Shape) -> Result<Self, String> {
        let Shape { kind, pause_ms, first_ms, max_ms, pauses_ms } = shape;
        let fixed = ("pause_ms", pause_ms.is_some());
        let (first, max) = (("first_ms", first_ms.is_some()), ("max_ms", max_ms.is_some()));
        let ladder = ("pauses_ms", pauses_ms.is_some());
        match kind {
            Kind::Standard => {
                absent("standard", &[fixed, first, max, ladder])?;
                Ok(Self::Standard {})
            }
            Kind::Fixed => {
                absent("fixed", &[first, max, ladder])?;
                Ok(Self::Fixed { pause_ms: needed("pause_ms", pause_ms)? })
            }
            Kind::Exponential => {
                absent("exponential", &[fixed, ladder])?;
                let (first_ms, max_ms) = (needed("first_ms", first_ms)?, needed("max_ms", max_ms)?);
                Ok(Self::Exponential { first_ms, max_ms })
            }
            Kind::Ladder => {
                absent("ladder", &[fixed, first, max])?;
                Ok(Self::Ladder { pauses_ms: needed("pauses_ms", pauses_ms)? })
            }
        }
    }
}
