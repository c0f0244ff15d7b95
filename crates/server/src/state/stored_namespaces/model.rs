//! Tests the join by a model: all orders of a few changes, losses and starts of two nodes.
//!
//! Each document and each copy has, beside its namespaces, the changes that it is made of. A read unites the changes,
//! as it joins the namespaces. The namespaces must always be those that follow from the changes in the order of their
//! moments. So no change is lost that a node knows, and nothing comes back that a later change has removed.

use super::*;
use crate::state::ALL;
use tourbillon_api::Moment;

const NAME: &str = "a";
/// The number of the namespace in the backup that is restored.
const RESTORED: u64 = 1_000_000;

/// A change as people see it. `Found` is the change of a start that finds timers in a namespace that is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Make,
    Found,
    Rate(bool),
    Pause(bool),
    All,
    Secret,
    Remove,
    OfDefault,
    Restore(Option<Seen>, Option<u32>),
}

/// The namespace as people see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    number: u64,
    rate: Option<u32>,
    paused: bool,
    /// The moments at which the secrets were made.
    secrets: BTreeSet<u64>,
}

type Changes = BTreeSet<(u64, Change)>;

/// Returns the namespace and the rate of `default` that follow from the changes in the order of their moments. A change
/// of a namespace that another node has removed makes it again.
fn follow(changes: &Changes) -> (Option<Seen>, Option<u32>) {
    let (mut is_there, mut seen, mut rate) = (false, Seen::default(), None);
    for (at, change) in changes {
        is_there |= !matches!(change, Change::OfDefault);
        match change {
            Change::Make => seen = Seen { number: *at, ..Seen::default() },
            Change::Found => {}
            Change::Rate(is_set) => seen.rate = is_set.then(|| rate_at(*at)),
            Change::Pause(paused) => seen.paused = *paused,
            Change::All => (seen.rate, seen.paused) = (Some(rate_at(*at)), false),
            Change::Secret => {
                seen.secrets.insert(*at);
            }
            Change::Remove => (is_there, seen) = (false, Seen::default()),
            Change::OfDefault => rate = Some(rate_at(*at)),
            Change::Restore(namespace, of_default) => {
                (is_there, seen, rate) =
                    (namespace.is_some(), namespace.clone().unwrap_or_default(), *of_default);
            }
        }
    }
    (is_there.then_some(seen), rate)
}

fn rate_at(at: u64) -> u32 {
    u32::try_from(at).unwrap()
}

fn seen(stored: &StoredNamespaces) -> (Option<Seen>, Option<u32>) {
    let namespace = stored.namespaces.get(NAME).map(|namespace| Seen {
        number: namespace.number,
        rate: namespace.limits.rate_per_second,
        paused: namespace.limits.paused,
        secrets: namespace.secrets.iter().map(|secret| secret.made.as_millis()).collect(),
    });
    (namespace, stored.namespaces.get(DEFAULT).and_then(|default| default.limits.rate_per_second))
}

/// A document or a copy, with the changes of which it is made.
#[derive(Clone, Debug, Default)]
struct Document {
    stored: StoredNamespaces,
    changes: Changes,
}

impl Document {
    fn new(copies: Copies) -> Self {
        Self { stored: StoredNamespaces { copies, ..StoredNamespaces::default() }, ..Self::default() }
    }

    fn is_there(&self) -> bool {
        self.stored.namespaces.contains_key(NAME)
    }

    /// Makes a change at the moment `at`, if a client or a start may make it now.
    fn change(&mut self, at: u64, mut change: Change) {
        let before = self.stored.clone();
        self.stored.begin(at);
        let default = self.stored.namespaces.entry(DEFAULT.into()).or_default();
        if change == Change::OfDefault {
            default.limits.rate_per_second = Some(rate_at(at));
        }
        match &change {
            Change::OfDefault => {}
            Change::Make | Change::Found if self.is_there() => return self.stored = before,
            Change::Make => {
                let made = Namespace { number: at, ..Namespace::default() };
                self.stored.namespaces.insert(NAME.into(), made);
            }
            Change::Found => drop(self.stored.namespaces.insert(NAME.into(), Namespace::default())),
            Change::Restore(..) => {
                let place = self.stored.namespaces.entry(NAME.into()).or_default();
                if place.is_unset() {
                    let secret =
                        SigningSecret { secret: "0".into(), made: Moment::from_millis(0), until: None };
                    *place = Namespace { number: RESTORED, secrets: vec![secret], ..Namespace::default() };
                }
                self.stored.refuse_earlier();
            }
            _ => {
                let Some(namespace) = self.stored.namespaces.get_mut(NAME) else {
                    return self.stored = before;
                };
                let made = Moment::from_millis(at);
                let secret = SigningSecret { secret: at.to_string().into(), made, until: None };
                match change {
                    Change::Rate(is_set) => {
                        namespace.limits.rate_per_second = is_set.then(|| rate_at(at));
                        self.stored.set_limits(NAME, &["rate_per_second"]);
                    }
                    Change::Pause(paused) => {
                        namespace.limits.paused = paused;
                        self.stored.set_limits(NAME, &["paused"]);
                    }
                    Change::All => {
                        let rate_per_second = Some(rate_at(at));
                        namespace.limits = NamespaceLimits { rate_per_second, ..NamespaceLimits::default() };
                        self.stored.set_limits(NAME, &[ALL]);
                    }
                    Change::Secret => {
                        let made = namespace.secrets.drain(..).chain([secret]).collect();
                        namespace.secrets = in_rotation(made);
                    }
                    _ => drop(self.stored.namespaces.remove(NAME)),
                }
            }
        }
        self.stored.note(&before);
        if let Change::Restore(namespace, of_default) = &mut change {
            (*namespace, *of_default) = seen(&self.stored);
        }
        self.changes.insert((at, change));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Change(usize, Change),
    Start(usize),
    Lose,
    Copy,
    PutBackServersCopy,
    Restore,
    Mend,
    EndWait,
}

/// A store, the server's own backup of it, and two nodes with their copies. A node without a copy does not run.
#[derive(Clone, Debug, Default)]
struct World {
    document: Option<Document>,
    backup: Option<Document>,
    nodes: [Option<Document>; 2],
}

impl World {
    /// A node reads the document, and puts its copy back. Returns false if the document is lost.
    fn read(&mut self, node: usize) -> bool {
        let Some(document) = &mut self.document else { return false };
        if let Some(copy) = self.nodes[node].as_ref().filter(|copy| copy.stored.copies != Copies::Awaited) {
            document.changes.extend(copy.changes.iter().cloned());
            if let Some(joined) = document.stored.with(&copy.stored) {
                document.stored = joined;
            }
            assert!(document.stored.with(&copy.stored).is_none(), "a second put-back changes nothing");
        }
        self.nodes[node] = Some(document.clone());
        true
    }

    fn step(&mut self, at: u64, step: &Step) {
        match step {
            Step::Read(node) => {
                let _is_there = self.nodes[*node].is_some() && self.read(*node);
            }
            Step::Change(node, change) => {
                if self.nodes[*node].is_some()
                    && self.read(*node)
                    && let Some(document) = &mut self.document
                {
                    document.change(at, change.clone());
                    self.nodes[*node] = Some(document.clone());
                }
            }
            Step::Start(node) => {
                self.nodes[*node] = None;
                let document = self.document.get_or_insert_with(|| Document::new(Copies::Added));
                document.change(at, Change::Found);
                document.stored.await_no_copy();
                self.nodes[*node] = Some(document.clone());
            }
            Step::Lose => self.document = None,
            Step::Copy => self.backup.clone_from(&self.document),
            Step::PutBackServersCopy => {
                if self.backup.is_some() {
                    self.document.clone_from(&self.backup);
                }
            }
            Step::Restore => {
                let document = self.document.get_or_insert_with(|| Document::new(Copies::Added));
                document.change(at, Change::Restore(None, None));
            }
            Step::Mend => {
                self.document.get_or_insert_with(|| Document::new(Copies::Awaited));
            }
            Step::EndWait => {
                if let Some(document) = &mut self.document {
                    document.stored.await_no_copy();
                }
            }
        }
    }

    /// Checks that each document and each copy has what follows from its changes, and that all nodes come to the same
    /// document, with all changes that any of them knows.
    fn check(&self, way: &[Step]) {
        for document in self.nodes.iter().chain([&self.document, &self.backup]).flatten() {
            assert_eq!(seen(&document.stored), follow(&document.changes), "{way:?}: {document:#?}");
        }
        if self.document.is_none() {
            return;
        }
        let ends = [[0, 1], [1, 0]].map(|order| {
            let mut world = self.clone();
            for node in order.into_iter().chain(order).filter(|node| self.nodes[*node].is_some()) {
                assert!(world.read(node));
            }
            let end = world.document.unwrap();
            for copy in world.nodes.iter().flatten() {
                assert_eq!(copy.stored, end.stored, "{way:?}");
            }
            assert_eq!(seen(&end.stored), follow(&end.changes), "{way:?}: {end:#?}");
            (end.stored.namespaces, Past { last: 0, ..end.stored.past }, end.changes)
        });
        assert_eq!(ends[0], ends[1], "{way:?}");
    }
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        Step::Read(0),
        Step::Read(1),
        Step::Start(1),
        Step::Lose,
        Step::Copy,
        Step::PutBackServersCopy,
        Step::Restore,
        Step::Mend,
        Step::EndWait,
    ];
    let of_both = [Change::Make, Change::Rate(true), Change::Remove];
    steps.extend((0..2).flat_map(|node| of_both.clone().map(|change| Step::Change(node, change))));
    let of_one = [Change::Rate(false), Change::Pause(true), Change::All, Change::Secret, Change::OfDefault];
    steps.extend(of_one.into_iter().enumerate().map(|(at, change)| Step::Change(at % 2, change)));
    steps
}

/// Walks all orders of `depth` steps. Leaves out a world that it has seen at the same time.
fn walk(depth: u64, begin: World) -> Vec<StoredNamespaces> {
    let steps = steps();
    let mut worlds = vec![(begin, Vec::new())];
    let mut found = BTreeSet::new();
    for time in 1..=depth {
        let (mut next, mut known) = (Vec::new(), BTreeSet::new());
        for (world, way) in &worlds {
            for step in &steps {
                let mut world = world.clone();
                world.step(1_000 * time, step);
                let place = |document: &Option<Document>| {
                    let document = document.as_ref()?;
                    Some((serde_json::to_string(&document.stored).unwrap(), document.changes.clone()))
                };
                let all = [&world.document, &world.backup, &world.nodes[0], &world.nodes[1]].map(place);
                found.extend(all.iter().flatten().map(|(stored, _)| stored.clone()));
                if known.insert(all) {
                    let way = way.iter().chain([step]).cloned().collect::<Vec<_>>();
                    world.check(&way);
                    next.push((world, way));
                }
            }
        }
        worlds = next;
    }
    found.iter().map(|stored| serde_json::from_str(stored).unwrap()).collect()
}

/// Two nodes that have read a document in which a client has made the namespace and set a limit.
fn running() -> World {
    let mut world = World::default();
    for (at, step) in [
        (1, Step::Start(0)),
        (2, Step::Change(0, Change::Remove)),
        (3, Step::Change(0, Change::Make)),
        (4, Step::Change(0, Change::Pause(true))),
        (5, Step::Start(1)),
    ] {
        world.step(at, &step);
    }
    assert!(world.nodes.iter().flatten().all(|node| node.stored.namespaces[NAME].limits.paused));
    world
}

#[test]
fn in_all_orders_no_change_is_lost_and_nothing_removed_comes_back() {
    walk(4, running());
}

#[test]
fn a_join_depends_neither_on_the_order_of_the_copies_nor_on_repetitions() {
    let join = |one: &StoredNamespaces, two: &StoredNamespaces| {
        let mut joined = one.with(two).unwrap_or_else(|| one.clone());
        // Neither is a part of the namespaces.
        (joined.copies, joined.past.last) = (Copies::Added, 0);
        joined
    };
    let all = walk(3, running());
    let some: Vec<_> = all.iter().step_by(all.len().div_ceil(40)).collect();
    assert!(some.len() >= 20, "{}", all.len());
    for one in &some {
        assert!(one.copies == Copies::Awaited || one.with(one).is_none());
        for two in &some {
            let joined = join(one, two);
            assert_eq!(joined, join(two, one));
            for three in &some {
                assert_eq!(join(&joined, three), join(one, &join(two, three)));
            }
        }
    }
}

#[test]
fn the_oldest_of_many_removals_are_forgotten_and_stay_removed() {
    let mut document = Document::new(Copies::Added);
    let mut stale = None;
    for round in 0..2 * u64::try_from(MOST_GONE).unwrap() {
        let before = document.stored.clone();
        document.stored.begin(2 * round + 1);
        let name: Box<str> = format!("n{round}").into();
        let made = Namespace { number: 1, ..Namespace::default() };
        document.stored.namespaces.insert(name.clone(), made);
        document.stored.note(&before);
        stale.get_or_insert_with(|| document.stored.clone());
        let before = document.stored.clone();
        document.stored.begin(0);
        document.stored.namespaces.remove(&name);
        document.stored.note(&before);
    }
    assert_eq!(document.stored.past.gone.len(), MOST_GONE);
    assert!(document.stored.past.floor > 0);
    assert!(document.stored.with(&stale.unwrap()).is_none(), "the first namespace is back");
}
