//! The policy: retries, deadlines and late deliveries.

use crate::shape::{absent, needed};
use serde::{Deserialize, Serialize};
use tourbillon_words::Guarantee;

/// The policy of one timer. Each field that is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The number of failures after which the timer is dead. 10 by default, at most 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    pub attempts: Option<u32>,
    /// The age, from the scheduled moment on, after which no further delivery is planned. None by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
    /// The time for one attempt: 15 s by default, at least 100 ms, at most 30 s; up to an hour for a timer that a
    /// receiver fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 3_600_000))]
    pub timeout_ms: Option<u64>,
    /// The pause after a failure. The service has a least pause (`deliveries.least_pause`, 1 s by default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// A delivery that would be later than this is skipped. By default a timer is delivered however late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfire_within_ms: Option<u64>,
    /// The width of the window, from the due moment on, in which the timer becomes due. Zero by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<u64>,
    /// How often a delivery may happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
}

/// The pause after a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", try_from = "Shape")]
#[non_exhaustive]
pub enum Backoff {
    /// 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, each lengthened at random by up to a fifth.
    Standard {},
    /// The same pause each time.
    Fixed {
        /// The pause.
        pause_ms: u64,
    },
    /// A random pause of up to `first_ms`, twice that, four times and so on, but of at most `max_ms`.
    Exponential {
        /// The longest first pause.
        first_ms: u64,
        /// The longest pause.
        max_ms: u64,
    },
    /// These pauses in order. The last pause repeats.
    Ladder {
        /// The pauses, at most 32.
        #[cfg_attr(feature = "openapi", schema(max_items = 32))]
        pauses_ms: Vec<u64>,
    },
}

/// The fields of all kinds of backoff together, as a request gives them. [`Backoff`] is made from this form.
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
