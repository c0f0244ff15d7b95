//! Decides which of two contestants is better, if less is better.

use crate::results::Samples;
use std::fmt;

/// The result of comparing our contestant with another contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All our rounds have smaller figures than all rounds of the other contestant.
    Won,
    /// The ranges of the two contestants' rounds overlap.
    Level,
    /// All our rounds have larger figures than all rounds of the other contestant.
    Lost,
}

impl Verdict {
    pub(super) fn of(ours: &Samples, other: &Samples) -> Self {
        if ours.max() < other.min() {
            Self::Won
        } else if ours.min() > other.max() {
            Self::Lost
        } else {
            Self::Level
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Won => "won",
            Self::Level => "level",
            Self::Lost => "lost",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ours: &[f64], other: &[f64]) -> Verdict {
        Verdict::of(&Samples::new(ours), &Samples::new(other))
    }

    #[test]
    fn the_better_one_is_better_in_every_round() {
        assert_eq!(verdict(&[3.0, 1.0, 2.0], &[4.0, 9.0]), Verdict::Won);
        assert_eq!(verdict(&[4.0, 9.0], &[3.0, 1.0, 2.0]), Verdict::Lost);
    }

    #[test]
    fn rounds_that_overlap_decide_nothing() {
        assert_eq!(verdict(&[1.0, 4.0], &[4.0, 9.0]), Verdict::Level);
        assert_eq!(verdict(&[4.0, 9.0], &[1.0, 4.0]), Verdict::Level);
        assert_eq!(verdict(&[2.0, 3.0], &[1.0, 9.0]), Verdict::Level);
        assert_eq!(verdict(&[0.0], &[0.0]), Verdict::Level);
    }
}
