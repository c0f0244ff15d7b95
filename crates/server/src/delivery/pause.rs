//! The pause before a timer is delivered again.

use core::time::Duration;
use tourbillon_durable::Verdict;

/// How long a timer waits at least after a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The least pause, whatever the policy and the receiver say. Without one, a single timer may call its receiver
    /// without end and without a rest.
    pub(crate) least: Duration,
}

impl Patience {
    /// Lengthens a pause that is shorter than the policy's, or than the least one. A receiver that asked for no pause
    /// would spend all attempts of a timer in a moment.
    pub(super) fn with(self, verdict: Verdict, policys: Duration) -> Verdict {
        match verdict {
            Verdict::Retry { error, after } => {
                let pause = after.unwrap_or(policys).max(policys).max(self.least);
                Verdict::Retry { error, after: (after.is_some() || pause > policys).then_some(pause) }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_longest_of_the_policys_the_receivers_and_the_least_one() {
        let secs = Duration::from_secs;
        let patience = Patience { least: secs(1) };
        for (policys, asked, pause) in [
            (secs(5), None, None),
            (secs(0), None, Some(secs(1))),
            (secs(0), Some(secs(0)), Some(secs(1))),
            (secs(5), Some(secs(0)), Some(secs(5))),
            (secs(5), Some(secs(9)), Some(secs(9))),
        ] {
            let asked = Verdict::Retry { error: "".into(), after: asked };
            let expected = Verdict::Retry { error: "".into(), after: pause };
            assert_eq!(patience.with(asked, policys), expected);
        }
    }
}
