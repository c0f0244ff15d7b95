//! Searches all worlds of the model. From each world it also makes a run without further faults.

use crate::transactions::Model;
use crate::world::{MiniState, PERIOD, STEPS, Scenario, Seen, Step, World, Wrong};
use std::collections::{BTreeMap, HashSet, VecDeque};

impl Model {
    /// Runs a world (a state of the model) to its end, without crashes or failures. Fails with the invariant that the
    /// end breaks.
    fn drain(&self, world: &World) -> Result<(), String> {
        let mut world = world.clone();
        let calm = Model {
            scenario: Scenario { last_tick: 60, crashes: 0, failures: 0, ..self.scenario.clone() },
            wrong: self.wrong,
        };
        for _ in 0..400 {
            // The user takes no further steps. The search reaches each prefix of the user's operations as a world of
            // its own.
            let order =
                [Step::Sync, Step::Begin, Step::Remove, Step::Succeed, Step::Claim, Step::Reap, Step::Tick];
            let mut goes_on = false;
            for step in order {
                if let Some(next) = calm.step(&world, step)? {
                    (world, goes_on) = (next, true);
                    break;
                }
            }
            if !goes_on {
                break;
            }
        }
        if world.store.iter().any(|timer| timer.state != MiniState::Dead) {
            return Err("I1: a timer stays without an end".into());
        }
        let withdrawn = |seen: &Seen| seen.cancelled || seen.last.is_some();
        for (id, seen) in &world.seen {
            if seen.accepted && !withdrawn(seen) {
                let is_lost_once = self.is_once() && world.crashes > 0;
                let is_delivered = if self.is_once() { seen.begun == 1 } else { seen.succeeded };
                if !is_delivered && !seen.dead && !is_lost_once {
                    return Err(format!("I1: {id} was accepted and is lost"));
                }
            }
        }
        if let Some(until) = self.scenario.series_until {
            let was_withdrawn = world.seen.values().any(withdrawn) || world.user > 1;
            let is_accepted = world.seen.values().any(|seen| seen.accepted);
            for instant in (1..=until).step_by(PERIOD.into()) {
                let is_it = |seen: &&Seen| seen.scheduled == instant && (seen.begun > 0 || seen.dead);
                if is_accepted && !was_withdrawn && world.seen.values().filter(is_it).count() != 1 {
                    return Err(format!("I6: the instant {instant} is left out"));
                }
            }
        }
        Ok(())
    }

    /// Searches all worlds (states of the model) that steps can reach. Returns the number of worlds. Fails with the
    /// steps to the first world that breaks an invariant.
    fn search(&self) -> Result<usize, String> {
        let first = World {
            now: 0,
            tokens: 0,
            crashes: 0,
            failures: 0,
            user: 0,
            fresh: 0,
            expired: false,
            store: Vec::new(),
            disk: Vec::new(),
            log: VecDeque::new(),
            worker: None,
            seen: BTreeMap::new(),
        };
        let mut ways: Vec<(usize, Option<Step>)> = vec![(0, None)];
        let mut found = HashSet::from([first.clone()]);
        let mut open = VecDeque::from([(0, first)]);
        let way = |ways: &[(usize, Option<Step>)], mut at: usize| {
            let mut steps = Vec::new();
            while let (before, Some(step)) = ways[at] {
                steps.push(step);
                at = before;
            }
            steps.reverse();
            steps
        };
        while let Some((at, world)) = open.pop_front() {
            self.drain(&world).map_err(|broken| format!("{broken}, after {:?}", way(&ways, at)))?;
            for step in STEPS {
                let next = self.step(&world, step);
                let next =
                    next.map_err(|broken| format!("{broken}, after {:?}, {step:?}", way(&ways, at)))?;
                if let Some(next) = next.filter(|next| !found.contains(next)) {
                    found.insert(next.clone());
                    ways.push((at, Some(step)));
                    open.push_back((ways.len() - 1, next));
                }
            }
        }
        Ok(found.len())
    }
}

pub(crate) fn search(scenario: &Scenario, wrong: Wrong) -> Result<usize, String> {
    Model { scenario: scenario.clone(), wrong }.search()
}
