//! A thread's part of an engine: a lane to its home shard and two magazines of slots.
//!
//! Each thread keeps one part per engine, found by the engine's number. The part is dropped when the thread ends, and
//! its slots and its lane go back.

use super::anchors::Moored;
use super::core::Core;
use crate::base::sync::{StdArc, Weak};
use crate::lockfree::inbox::LaneWriter;
use crate::lockfree::slab::{Magazines, Slots};
use crate::system::affinity;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(crate) struct Local {
    engine: u64,
    /// The number of the engine's crew.
    crew: u64,
    pub(super) home: usize,
    pub(super) lane: LaneWriter,
    /// Lanes to other shards, which calls that name a shard have used.
    elsewhere: Vec<(usize, LaneWriter)>,
    pub(super) magazines: Magazines,
    /// The reference to the thread's anchor, once the thread has made an owned timer.
    pub(super) moored: Option<Moored>,
    slots: Weak<Slots>,
}

impl Local {
    pub(crate) fn new<T: Send + 'static>(core: &Core<T>, home: usize) -> Self {
        Self {
            engine: core.id,
            crew: core.crew.id(),
            home,
            lane: core.stations[home].inbox.register(),
            elsewhere: Vec::new(),
            magazines: Magazines::new(),
            moored: None,
            slots: StdArc::downgrade(core.slab.slots()),
        }
    }

    /// Exchanges the lane for a lane to shard `home`. The slots and the anchor stay.
    pub(crate) fn use_shard<T: Send + 'static>(&mut self, core: &Core<T>, home: usize) {
        if self.home != home {
            self.home = home;
            self.lane = core.stations[home].inbox.register();
        }
    }

    /// Calls `f` with a lane to `shard` in place of the lane to the home shard.
    pub(crate) fn on_shard<T: Send + 'static, R>(
        &mut self,
        core: &Core<T>,
        shard: usize,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if self.home == shard {
            return f(self);
        }
        let at = self.elsewhere.iter().position(|&(other, _)| other == shard).unwrap_or_else(|| {
            self.elsewhere.push((shard, core.stations[shard].inbox.register()));
            self.elsewhere.len() - 1
        });
        self.swap_lanes(at);
        let result = f(self);
        self.swap_lanes(at);
        result
    }

    fn swap_lanes(&mut self, at: usize) {
        let (shard, lane) = &mut self.elsewhere[at];
        core::mem::swap(&mut self.home, shard);
        core::mem::swap(&mut self.lane, lane);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.upgrade() {
            self.magazines.empty_into(&slots);
        }
    }
}

thread_local! {
    /// The calling thread's part of the engine that the thread used last. Empty while the part is lent. `FRONT` has no
    /// destructor, so that an access to it is a load. `OTHERS` has a destructor for both; without `OTHERS` nothing is
    /// put here.
    static FRONT: Cell<Option<Part>> = const { Cell::new(None) };
    /// The thread's parts of other engines.
    static OTHERS: Others = const { Others(RefCell::new(Vec::new())) };
}

/// A part, on cache lines of its own: its thread writes to the part with each call.
type Part = ManuallyDrop<Box<CachePadded<Local>>>;

struct Others(RefCell<Vec<Local>>);

/// Runs when the thread ends.
impl Drop for Others {
    fn drop(&mut self) {
        drop(take_front().map(ManuallyDrop::into_inner));
    }
}

/// A thread's part of an engine while the part is out of its place. Dropping the `Lent` puts the part back.
pub(crate) struct Lent {
    part: Option<Part>,
    /// False if the thread is ending: then the part is dropped altogether.
    has_place: bool,
}

impl Deref for Lent {
    type Target = Local;

    #[inline(always)]
    fn deref(&self) -> &Local {
        self.part.as_ref().expect("until the drop")
    }
}

impl DerefMut for Lent {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Local {
        self.part.as_mut().expect("until the drop")
    }
}

impl Drop for Lent {
    #[inline(always)]
    fn drop(&mut self) {
        let part = self.part.take();
        // `FRONT` is empty, or has a part that was made for a call within this call.
        let surplus = if self.has_place { FRONT.replace(part) } else { part };
        if let Some(surplus) = surplus {
            discard(surplus);
        }
    }
}

#[cold]
fn discard(part: Part) {
    drop(ManuallyDrop::into_inner(part));
}

/// Takes the part out of `FRONT`. A system without native thread-locals may destroy `FRONT` before the thread ends;
/// then the result is `None`, and the part that was there is lost with its slots.
#[inline(always)]
fn take_front() -> Option<Part> {
    FRONT.try_with(Cell::take).ok().flatten()
}

/// Makes `shard` the calling thread's home in the engines on a crew: drops the thread's parts that have another home.
pub(crate) fn come_home(crew: u64, shard: usize) {
    let front = take_front().map(|front| ManuallyDrop::into_inner(front).into_inner());
    let forgotten = OTHERS.try_with(|Others(others)| {
        let mut others = others.borrow_mut();
        others.extend(front);
        others.extract_if(.., |local| local.crew == crew && local.home != shard).collect::<Vec<_>>()
    });
    drop(forgotten);
}

/// Lends the calling thread's part of the engine.
#[inline(always)]
pub(crate) fn lend<T: Send + 'static>(core: &Core<T>) -> Lent {
    match take_front() {
        Some(part) if part.engine == core.id => Lent { part: Some(part), has_place: true },
        another => find(another, core),
    }
}

/// Puts `front` into `OTHERS`, and takes the part of this engine out or makes it.
#[cold]
fn find<T: Send + 'static>(front: Option<Part>, core: &Core<T>) -> Lent {
    let front = front.map(ManuallyDrop::into_inner);
    let known = OTHERS.try_with(|Others(others)| {
        let mut others = others.borrow_mut();
        others.extend(front.map(|front| front.into_inner()));
        others.retain(|local| local.slots.strong_count() > 0);
        let at = others.iter().position(|local| local.engine == core.id)?;
        Some(others.swap_remove(at))
    });
    let has_place = known.is_ok();
    let local = match known {
        Ok(Some(local)) => local,
        _ => Local::new(core, home_of_current_thread(core)),
    };
    Lent { part: Some(ManuallyDrop::new(Box::new(CachePadded::new(local)))), has_place }
}

/// The shard to which the calling thread's timers go from now on: the shard whose loop runs on the thread, if there is
/// one. In an engine that the program drives it is the first shard, since the outcome must not depend on a core.
fn home_of_current_thread<T: Send + 'static>(core: &Core<T>) -> usize {
    if !core.crew.is_served() {
        return 0;
    }
    if let Some(shard) = core.crew.loop_here() {
        return shard;
    }
    let chosen: Vec<u64> = core.stations.iter().map(|station| station.inbox.registered()).collect();
    home(affinity::current_core(), &core.crew.settings().cores, &chosen)
}

/// The shard that threads have `chosen` least often among the shards that are pinned to core `here`, or among all
/// shards if there is no such shard or the core is unknown. `cores` are the cores of the shards, in order.
fn home(here: Option<usize>, cores: &[usize], chosen: &[u64]) -> usize {
    let is_here = |&shard: &usize| here.is_some() && cores.get(shard).copied() == here;
    let least = |shard: &usize| chosen[*shard];
    let shards = 0..chosen.len();
    shards.clone().filter(is_here).min_by_key(least).or_else(|| shards.min_by_key(least)).unwrap_or(0)
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    /// The homes of threads that come one after the other.
    fn homes(here: Option<usize>, cores: &[usize], shards: usize, threads: usize) -> Vec<usize> {
        let mut chosen = vec![0; shards];
        let choose = |_| {
            let home = home(here, cores, &chosen);
            chosen[home] += 1;
            home
        };
        (0..threads).map(choose).collect()
    }

    #[test]
    fn a_thread_is_at_home_on_its_core() {
        assert_eq!(homes(Some(1), &[0, 1, 2], 3, 3), [1, 1, 1]);
    }

    #[test]
    fn homes_go_round_among_the_shards_of_a_core() {
        assert_eq!(homes(Some(1), &[0, 1, 0, 1, 0], 5, 4), [1, 3, 1, 3]);
    }

    #[test]
    fn homes_go_round_among_all_shards_where_none_is_on_the_core() {
        for (here, cores) in [(None, &[0, 1, 2][..]), (Some(7), &[0, 1, 2][..]), (Some(1), &[][..])] {
            assert_eq!(homes(here, cores, 3, 4), [0, 1, 2, 0], "{here:?} of {cores:?}");
        }
    }
}
