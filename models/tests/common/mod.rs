//! The checks that the tests of both models make.

use core::fmt::Debug;
use core::hash::Hash;
use stateright::Model;
use std::collections::BTreeSet;
use std::time::Instant;
use tourbillon_models::explore::{explore, longest_run};

/// Checks that all properties hold in each scope, that each run ends, and that each of the situations is reached in
/// some scope.
pub(crate) fn holds<M>(scopes: impl IntoIterator<Item = (&'static str, M)>, situations: &[&'static str])
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let mut missing: BTreeSet<&str> = situations.iter().copied().collect();
    for (scope, model) in scopes {
        let begin = Instant::now();
        let longest = longest_run(&model);
        let explored = explore(model);
        let (states, transitions) = (explored.states, explored.transitions);
        let took = begin.elapsed();
        println!("{scope}: {states} states, {transitions} transitions, longest run {longest:?}, {took:.1?}");
        assert_eq!(explored.counterexample, None, "{scope}");
        assert!(longest.is_some(), "{scope}: a run goes on for ever");
        missing.retain(|situation| explored.unreached.contains(situation));
    }
    assert!(missing.is_empty(), "not reached: {missing:?}");
}

/// Checks that the search finds a planted fault, by the property that it breaks.
pub(crate) fn is_found<M>(fault: impl Debug, property: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let explored = explore(model);
    let Some((broken, run)) = explored.counterexample else {
        panic!("{fault:?} is not found in {} states", explored.states);
    };
    println!("{fault:?}: {} states, {broken}: {run:?}", explored.states);
    assert_eq!(broken, property, "{fault:?}");
}
