//! How many arms of our owned timers reach a shard. No timing: the engine runs on a manual clock, and counts.

use crate::common::{Payload, payload};
use crate::report::markdown;
use crate::sizes::Sizes;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tourbillon::{Builder, Disarm, DrivenEngine, Timer};

pub(crate) const NAME: &str = "reach";

const TIMEOUT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);

/// What connections do, over and over.
struct Pattern {
    name: &'static str,
    arms: &'static [Duration],
    disarms: bool,
    /// Tickets that a connection may cost in a timeout.
    most_tickets: u64,
}

const PATTERNS: [Pattern; 3] = [
    Pattern { name: "5 s, put off", arms: &[TIMEOUT], disarms: false, most_tickets: 1 },
    Pattern { name: "5 s, disarmed", arms: &[TIMEOUT], disarms: true, most_tickets: 1 },
    // A ticket that comes due in the idle phase goes out for that; then the next request needs one of its own.
    Pattern { name: "5 s and 60 s in turns", arms: &[TIMEOUT, IDLE], disarms: false, most_tickets: 2 },
];

pub(crate) struct Reach {
    connections: u32,
    arms_per_timeout: u32,
    timeouts: u32,
    found: Vec<Found>,
}

struct Found {
    pattern: &'static Pattern,
    arms: u64,
    /// Arms that posted a ticket to a shard.
    posted: u64,
    /// Tickets that the shard posted again.
    put_off: u64,
}

impl Reach {
    pub(crate) fn count(sizes: &Sizes) -> Self {
        let (connections, arms_per_timeout, timeouts) = sizes.reach;
        let mut reach = Self { connections, arms_per_timeout, timeouts, found: Vec::new() };
        reach.found = PATTERNS.iter().map(|pattern| reach.run(pattern)).collect();
        reach
    }

    fn run(&self, pattern: &'static Pattern) -> Found {
        let mut engine = Builder::new().build_driven(|_| {}).expect("an engine without threads");
        let timers: Vec<Timer<Payload>> = (0..u64::from(self.connections))
            .map(|at| engine.timer(payload(at)).expect("there is room"))
            .collect();
        let mut arms = 0;
        for round in 0..self.arms_per_timeout * self.timeouts {
            let delay = pattern.arms[round as usize % pattern.arms.len()];
            for timer in &timers {
                timer.arm(delay).expect("nobody shuts the engine down");
                arms += 1;
                if pattern.disarms {
                    assert_eq!(timer.disarm(), Disarm::Disarmed);
                }
            }
            engine.advance(TIMEOUT / self.arms_per_timeout);
        }
        let owned = engine.stats().owned;
        let found = Found { pattern, arms, posted: owned.posted, put_off: owned.put_off };
        self.check(&found, &mut engine);
        found
    }

    fn check(&self, found: &Found, engine: &mut DrivenEngine<Payload>) {
        let Found { pattern, arms, posted, put_off } = found;
        let connections = u64::from(self.connections);
        assert_eq!(*arms, connections * u64::from(self.arms_per_timeout * self.timeouts), "{}", pattern.name);
        let most = connections * u64::from(self.timeouts + 1) * pattern.most_tickets;
        assert!(posted + put_off <= most, "{}: {posted} and {put_off} tickets, at most {most}", pattern.name);
        assert_eq!(engine.stats().owned.fired, 0, "{}: always armed again in time", pattern.name);
        engine.advance(IDLE);
        let left = if pattern.disarms { 0 } else { connections };
        assert_eq!(engine.stats().owned.fired, left, "{}: what was left armed", pattern.name);
    }

    pub(crate) fn to_json(&self) -> Value {
        let found = self.found.iter().map(|found| {
            json!({
                "pattern": found.pattern.name,
                "arms": found.arms,
                "posted": found.posted,
                "put_off": found.put_off,
            })
        });
        json!({
            "connections": self.connections,
            "arms_per_timeout": self.arms_per_timeout,
            "timeouts": self.timeouts,
            "patterns": found.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, arms_per_timeout, timeouts, .. } = self;
        writeln!(
            f,
            "## {NAME}: arms that reach a shard; {connections} connections, each armed {arms_per_timeout} times in 5 s, {timeouts} times over\n"
        )?;
        let mut table =
            markdown(&["pattern", "arms", "posted", "posted again by the shard", "arms a ticket"]);
        for Found { pattern, arms, posted, put_off } in &self.found {
            let ratio = *arms as f64 / (posted + put_off) as f64;
            table.add_row([
                pattern.name.to_owned(),
                arms.to_string(),
                posted.to_string(),
                put_off.to_string(),
                format!("{ratio:.0}"),
            ]);
        }
        writeln!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Scale;

    #[test]
    fn few_arms_reach_a_shard() {
        let reach = Reach::count(&Sizes::of(Scale::Smoke));
        assert_eq!(reach.found.len(), PATTERNS.len());
        assert!(reach.found.iter().all(|found| found.posted > 0));
    }
}
