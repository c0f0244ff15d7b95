//! Lengthens the pause before the next delivery of a failed timer, if the pause is too short.

use core::time::Duration;
use tourbillon_durable::Verdict;

/// Enforces a least pause before a failed timer is delivered again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPause {
    /// The least pause. Neither the timer's retry policy nor the receiver can shorten it, so no timer calls its
    /// receiver without a pause.
    pub(crate) least: Duration,
}

impl RetryPause {
    /// Makes the pause of a [`Verdict::Retry`] at least as long as `policy_pause` and as the field `least`. So a
    /// receiver that asks for a pause of zero cannot use up all attempts of a timer at once. Returns other verdicts
    /// unchanged.
    pub(super) fn with(self, verdict: Verdict, policy_pause: Duration) -> Verdict {
        match verdict {
            Verdict::Retry { error, after } => {
                let pause = after.unwrap_or(policy_pause).max(policy_pause).max(self.least);
                Verdict::Retry { error, after: (after.is_some() || pause > policy_pause).then_some(pause) }
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
        let retry_pause = RetryPause { least: secs(1) };
        for (policys, asked, pause) in [
            (secs(5), None, None),
            (secs(0), None, Some(secs(1))),
            (secs(0), Some(secs(0)), Some(secs(1))),
            (secs(5), Some(secs(0)), Some(secs(5))),
            (secs(5), Some(secs(9)), Some(secs(9))),
        ] {
            let asked = Verdict::Retry { error: "".into(), after: asked };
            let expected = Verdict::Retry { error: "".into(), after: pause };
            assert_eq!(retry_pause.with(asked, policys), expected);
        }
    }
}
