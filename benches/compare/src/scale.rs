//! The sizes of a run.

use clap::ValueEnum;

/// The size of a run: it decides the numbers of timers and operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scale {
    /// Sizes of the published results
    Full,
    /// A few minutes: shows that the book works, and gives a first impression
    Quick,
    /// Seconds: shows that the book runs at all
    Smoke,
}

impl Scale {
    pub(crate) fn pick<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.pick("full", "quick", "smoke")
    }
}
