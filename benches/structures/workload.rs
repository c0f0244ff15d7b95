//! What the structures are given to do.

use crate::common::{Chance, Demand, TICKS};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Delays uniform between 1 and 60 s
    Uniform,
    /// Eight different delays between 1 and 60 s, as servers have timeouts
    Few,
}

/// In ticks of 1 ms.
const TIMEOUTS: [u64; 8] = [1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 45_000, 60_000];

impl Workload {
    /// No timer is due before.
    pub(crate) const SHORTEST: u64 = TICKS.start;

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Uniform => "Delays uniform between 1 and 60 s",
            Self::Few => "Eight different delays between 1 and 60 s",
        }
    }

    pub(crate) fn demand(self, timers: usize) -> Demand {
        match self {
            Self::Uniform => Demand::uniform(timers, &TICKS),
            Self::Few => Demand { span: self.longest(), durations: TIMEOUTS.len(), timers },
        }
    }

    pub(crate) fn longest(self) -> u64 {
        match self {
            Self::Uniform => TICKS.end - 1,
            Self::Few => TIMEOUTS[TIMEOUTS.len() - 1],
        }
    }

    pub(crate) fn delay(self, chance: &mut Chance) -> u64 {
        match self {
            Self::Uniform => chance.within(&TICKS),
            Self::Few => {
                let choice = chance.within(&(0..TIMEOUTS.len() as u64));
                TIMEOUTS[usize::try_from(choice).expect("an index")]
            }
        }
    }
}
