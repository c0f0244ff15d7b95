//! Runs the model checker, and proves that each run of a model ends.

use core::hash::Hash;
use core::sync::atomic::{AtomicBool, Ordering};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hasher};

/// Notes which events the transitions of a model have caused. A model in which an event never happens says nothing
/// about that event.
#[derive(Debug)]
pub struct Reached<const EVENTS: usize>([AtomicBool; EVENTS]);

impl<const EVENTS: usize> Default for Reached<EVENTS> {
    fn default() -> Self {
        Self(core::array::from_fn(|_| AtomicBool::new(false)))
    }
}

impl<const EVENTS: usize> Reached<EVENTS> {
    /// Notes an event by its number.
    pub fn note(&self, event: usize) {
        if let Some(reached) = self.0.get(event) {
            reached.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the event with this number has happened.
    #[must_use]
    pub fn has(&self, event: usize) -> bool {
        self.0.get(event).is_some_and(|reached| reached.load(Ordering::Relaxed))
    }
}

/// The result of the search through a model's states.
#[derive(Debug)]
pub struct Explored<A> {
    /// The number of different states.
    pub states: usize,
    /// The number of transitions.
    pub transitions: usize,
    /// The property that does not hold, with a short run that shows it.
    pub counterexample: Option<(&'static str, Vec<A>)>,
    /// The situations that no run reaches, although one should.
    pub unreached: Vec<&'static str>,
}

/// Searches all states of a model, or the states up to the first counterexample. The search is breadth first, on one
/// thread, so it is the same each time.
///
/// # Panics
///
/// Panics if the model does.
pub fn explore<M>(model: M) -> Explored<M::Action>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (mut counterexample, mut unreached): (Option<(_, Vec<_>)>, _) = (None, Vec::new());
    for property in checker.model().properties() {
        let discovery = checker.discovery(property.name);
        match (property.expectation, discovery) {
            (Expectation::Sometimes, None) => unreached.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                // The checker goes on for some states. The run ends where it first breaks the property.
                let steps = path.into_vec().into_iter();
                let holds = |state: &M::State| (property.condition)(checker.model(), state);
                let run: Vec<_> =
                    steps.take_while(|(state, _)| holds(state)).filter_map(|(_, next)| next).collect();
                if counterexample.as_ref().is_none_or(|(_, shortest)| run.len() < shortest.len()) {
                    counterexample = Some((property.name, run));
                }
            }
        }
    }
    let (states, transitions) = (checker.unique_state_count(), checker.state_count());
    Explored { states, transitions, counterexample, unreached }
}

/// Returns the length of a model's longest run. `None` if a run goes on for ever.
///
/// The property that holds when nothing can happen any more is then a promise about every run: each run comes to such a
/// state. The properties of the model checker that begin with "eventually" are of no use here, for they do not see a
/// run that goes round in a circle.
#[must_use]
pub fn longest_run<M>(model: &M) -> Option<usize>
where
    M: Model,
    M::State: Hash,
{
    struct Visit<S> {
        name: u64,
        next: Vec<S>,
        longest: usize,
    }
    let visit = |name: u64, state: &S<M>| Visit { name, next: model.next_states(state), longest: 0 };
    // `None` while the states behind it are being visited.
    let mut lengths: HashMap<u64, Option<usize>> = HashMap::new();
    let mut longest = 0;
    for first in model.init_states() {
        let name = name(&first);
        lengths.insert(name, None);
        let mut visits = vec![visit(name, &first)];
        while let Some(last) = visits.last_mut() {
            if let Some(next) = last.next.pop() {
                match lengths.entry(self::name(&next)) {
                    Entry::Occupied(entry) => last.longest = last.longest.max((*entry.get())? + 1),
                    Entry::Vacant(entry) => {
                        let name = *entry.key();
                        entry.insert(None);
                        visits.push(visit(name, &next));
                    }
                }
            } else if let Some(Visit { name, longest: length, .. }) = visits.pop() {
                lengths.insert(name, Some(length));
                match visits.last_mut() {
                    Some(before) => before.longest = before.longest.max(length + 1),
                    None => longest = longest.max(length),
                }
            }
        }
    }
    Some(longest)
}

/// Returns the hash of a state, which stands for the state.
fn name(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

type S<M> = <M as Model>::State;

#[cfg(test)]
mod tests {
    use super::*;
    use stateright::Property;

    /// Counts up to a limit, and goes back to 0 from there if it is a circle.
    struct Counter {
        limit: u8,
        is_circle: bool,
    }

    impl Model for Counter {
        type State = u8;
        type Action = ();

        fn init_states(&self) -> Vec<u8> {
            vec![0]
        }

        fn actions(&self, _: &u8, actions: &mut Vec<()>) {
            actions.push(());
        }

        fn next_state(&self, last: &u8, (): ()) -> Option<u8> {
            if *last < self.limit { Some(last + 1) } else { self.is_circle.then_some(0) }
        }

        fn properties(&self) -> Vec<Property<Self>> {
            vec![
                Property::always("it is less than 5", |_, state| *state < 5),
                Property::sometimes("it is 4", |_, state| *state == 4),
            ]
        }
    }

    #[test]
    fn a_circle_has_no_longest_run() {
        assert_eq!(longest_run(&Counter { limit: 3, is_circle: false }), Some(3));
        assert_eq!(longest_run(&Counter { limit: 3, is_circle: true }), None);
    }

    #[test]
    fn a_search_names_what_does_not_hold_and_what_it_has_not_reached() {
        let explored = explore(Counter { limit: 3, is_circle: false });
        assert_eq!((explored.states, explored.counterexample), (4, None));
        assert_eq!(explored.unreached, ["it is 4"]);
        let explored = explore(Counter { limit: 9, is_circle: false });
        assert_eq!(explored.counterexample, Some(("it is less than 5", vec![(); 5])));
    }
}
