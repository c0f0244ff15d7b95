//! A thread's own part of an engine: a lane to its home shard, and two magazines of slots.
//!
//! Each thread has one part for each engine that it uses. The part of the engine that the thread used last is in
//! `FRONT`. The parts of up to [`PLACES`] engines are in the array `NEAR`, each at the index that is its engine's
//! place. Further parts are in the table `FAR`, by the engine's number. When the thread ends, its parts are dropped,
//! and their slots and lanes go back. The parts of engines that have ended are dropped when new parts are made
//! ([`Parts`]).

use super::admission::Admission;
use super::anchors::Moored;
use super::place::PLACES;
#[cfg(feature = "async")]
use super::spares::Spares;
use crate::base::error::Refusal;
use crate::base::sync::{StdArc, Weak};
use crate::base::tick::Timestamp;
use crate::lockfree::inbox::{LaneWriter, Pushed};
use crate::lockfree::parker::Notified;
use crate::lockfree::slab::{Magazines, Slots};
use crate::system::affinity;
use core::cell::{Cell, RefCell};
use core::hash::{BuildHasherDefault, Hasher};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use crossbeam_utils::CachePadded;
use std::collections::HashMap;

/// A vacant slot that the calling thread has reserved for a timer.
#[derive(Debug)]
#[must_use]
pub(crate) struct Slot(pub(super) u32);

#[derive(Debug)]
pub(crate) struct Local {
    engine: u64,
    /// The engine's place: the index in [`NEAR`] at which this thread keeps its part (its data) of the engine.
    place: usize,
    /// The number that identifies the engine's set of shards.
    set: u64,
    pub(super) home: usize,
    /// Whether the thread's timers go to `home` because a loop of the thread turns that shard. Once that loop has left
    /// the thread, they go to another loop of the thread.
    follows_a_loop: bool,
    pub(super) lane: LaneWriter,
    /// The lanes (queues of this thread) to other shards than `home`, each with the shard's number. A call that names
    /// another shard makes such a lane.
    elsewhere: Vec<(usize, LaneWriter)>,
    pub(super) magazines: Magazines,
    /// A weak reference to the thread's anchor, by which its owned timers keep the engine alive. `None` before the
    /// thread's first owned timer.
    pub(super) moored: Option<Moored>,
    /// The thread's spares: owned timers without a handle, for the next futures of the thread.
    #[cfg(feature = "async")]
    pub(super) spares: Spares,
    slots: Weak<Slots>,
}

impl Local {
    /// Makes a thread's part (its data) of the engine to which `admission` belongs. The thread's timers go to the shard
    /// `home`.
    pub(crate) fn new(admission: &Admission, home: usize) -> Self {
        Self {
            engine: admission.engine(),
            place: admission.place(),
            set: admission.set().id(),
            home,
            follows_a_loop: false,
            lane: admission.stations().at(home).inbox.register(),
            elsewhere: Vec::new(),
            magazines: Magazines::new(),
            moored: None,
            #[cfg(feature = "async")]
            spares: Spares::new(),
            slots: StdArc::downgrade(admission.slots()),
        }
    }

    /// Reserves a slot for a timer that the caller is about to schedule. Fails if this thread's lane or the engine is
    /// full.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, admission: &Admission) -> Result<Slot, Refusal> {
        if !self.lane.has_room() {
            return Err(self.refuse_for_want_of_room(admission));
        }
        self.take_slot(admission)
    }

    /// Reserves a slot for a timer, even if this thread's lane is full.
    #[inline(always)]
    pub(super) fn take_slot(&mut self, admission: &Admission) -> Result<Slot, Refusal> {
        match self.magazines.take(admission.slots()) {
            Some(index) => Ok(Slot(index)),
            None => Err(admission.refuse_for_want_of_a_slot()),
        }
    }

    /// Returns whether a new owned timer of this thread will probably fire.
    pub(super) fn expects_fire(&self) -> bool {
        #[cfg(feature = "async")]
        return self.spares.expects_fire();
        #[cfg(not(feature = "async"))]
        true
    }

    /// Refuses a timer because this thread's lane is full. Returns the reason.
    #[cold]
    pub(super) fn refuse_for_want_of_room(&self, admission: &Admission) -> Refusal {
        admission.refuse_for_want_of_room(self.home, self.lane.lane().capacity())
    }

    /// Notifies the shard that reads this thread's lane about a pushed ticket (a request to check a timer).
    #[inline]
    pub(super) fn notify(&self, admission: &Admission, pushed: Pushed, deadline: Timestamp) -> Notified {
        admission.stations().notify(self.home, pushed, deadline)
    }

    /// Returns whether the engine and its slots were dropped.
    fn has_ended(&self) -> bool {
        self.slots.strong_count() == 0
    }

    /// Replaces this thread's lane by a lane to the shard `home`. The thread keeps its vacant slots and its owned
    /// timers.
    pub(crate) fn use_shard(&mut self, admission: &Admission, home: usize) {
        self.follows_a_loop = false;
        if self.home != home {
            self.home = home;
            self.lane = admission.stations().at(home).inbox.register();
        }
    }

    /// Calls `f` while this thread's lane leads to `shard` instead of the home shard.
    pub(crate) fn on_shard<R>(
        &mut self,
        admission: &Admission,
        shard: usize,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if self.home == shard {
            return f(self);
        }
        let at = self.elsewhere.iter().position(|&(other, _)| other == shard).unwrap_or_else(|| {
            self.elsewhere.push((shard, admission.stations().at(shard).inbox.register()));
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
            #[cfg(feature = "async")]
            self.spares.release_all(&slots, self.lane.lane(), &mut self.magazines);
            self.magazines.empty_into(&slots);
        }
    }
}

thread_local! {
    /// The thread's part (its data) of the engine that it used last. `FRONT` is empty while a call uses that part.
    /// `FRONT` has no destructor, so that reading it is a plain load. The destructor of `FAR` drops the parts in
    /// `FRONT`, `NEAR` and `FAR`. So a part is stored in `FRONT` only while `FAR` exists.
    static FRONT: Cell<Option<Part>> = const { Cell::new(None) };
    /// The thread's parts (its data) of engines that it used before, each at the index that is its engine's place. Like
    /// `FRONT`, `NEAR` has no destructor.
    static NEAR: [Cell<Option<Part>>; PLACES] = const { [const { Cell::new(None) }; PLACES] };
    /// The thread's parts (its data) of further engines. The places of these engines in `NEAR` have parts of other
    /// engines.
    static FAR: Far = const { Far(RefCell::new(Parts::new())) };
}

/// A thread's part (its data) of an engine, on cache lines of its own, because the thread writes to it in each call.
/// `ManuallyDrop` never drops the part, so the code that takes the part out must drop it.
type Part = ManuallyDrop<OwnPart>;

/// A thread's part (its data) of an engine. Unlike a [`Part`], it is dropped when it goes out of scope.
type OwnPart = Box<CachePadded<Local>>;

struct Far(RefCell<Parts>);

/// The parts that a thread has of several engines, by the engines' numbers. A part is the thread's data about one
/// engine.
struct Parts {
    parts: HashMap<u64, OwnPart, BuildHasherDefault<NumberHasher>>,
    /// The number of parts at which the thread searches for parts of ended engines next.
    look_at: usize,
}

impl Parts {
    /// The number of parts below which a thread does not search for parts of ended engines. A part is the thread's data
    /// about one engine.
    const FEWEST: usize = 16;

    const fn new() -> Self {
        Self { parts: HashMap::with_hasher(BuildHasherDefault::new()), look_at: Self::FEWEST }
    }

    /// Stores a thread's part (its data) of an engine. If a part of the same engine was stored already, returns the
    /// older part for the caller to drop.
    fn put(&mut self, part: OwnPart) -> Option<OwnPart> {
        self.parts.insert(part.engine, part)
    }

    /// Takes out the parts (the thread's data) of engines that have ended. Searches only if the number of parts has
    /// doubled after the last search. So each part is checked only a few times, and at most half of the parts are
    /// useless.
    fn take_ended(&mut self) -> Vec<OwnPart> {
        if self.parts.len() < self.look_at {
            return Vec::new();
        }
        let ended: Vec<_> = self.parts.extract_if(|_, part| part.has_ended()).map(|(_, part)| part).collect();
        self.look_at = (2 * self.parts.len()).max(Self::FEWEST);
        self.parts.shrink_to(self.look_at);
        ended
    }
}

/// A fast hash function for the numbers of engines. An attacker cannot choose these numbers, because they are given out
/// in order.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 << 8 | u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // This multiplies by the golden ratio, as in D. E. Knuth, "The Art of Computer Programming", volume 3, section
        // 6.4. The table uses the upper and the lower bits.
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

/// Drops the thread's parts (its data) of all engines, because the thread ends.
impl Drop for Far {
    fn drop(&mut self) {
        drop(take_all());
    }
}

/// A thread's part (its data) of an engine, while a call uses the part. Dropping the `Lent` puts the part back into the
/// thread's storage.
pub(crate) struct Lent {
    part: Option<Part>,
    /// Whether the thread can still store the part, its data about an engine. If false, the thread is ending, and the
    /// part is dropped.
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
        // `FRONT` is empty, or has a part that was made for a nested call.
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

/// Takes the part (the thread's data) of an engine out of `FRONT`. A system without native thread-locals may destroy
/// `FRONT` and `NEAR` before the thread ends. Then the result is `None`. The stored parts and their slots are lost.
#[inline(always)]
fn take_front() -> Option<Part> {
    FRONT.try_with(Cell::take).ok().flatten()
}

/// Takes the thread's parts (its data) of all engines out of `FRONT` and `NEAR`.
fn take_all() -> Vec<OwnPart> {
    let near = NEAR.try_with(|near| near.each_ref().map(Cell::take)).ok();
    let parts = near.into_iter().flatten().chain([take_front()]).flatten();
    parts.map(ManuallyDrop::into_inner).collect()
}

/// Makes `shard` the calling thread's home, the shard for its timers, for the engines on the set `set`. A loop of the
/// thread turns this shard. Drops the thread's parts of engines on that set that have another home.
pub(crate) fn come_home(set: u64, shard: usize) {
    drop_parts(|part| {
        let is_of_set = part.set == set;
        part.follows_a_loop |= is_of_set;
        is_of_set && part.home != shard
    });
}

/// Works as [`come_home`], after a loop has left its thread. Keeps the parts (the thread's data) of engines for which
/// the program has chosen a shard.
#[cold]
pub(crate) fn follow_a_loop(set: u64, shard: usize) {
    drop_parts(|part| part.set == set && part.follows_a_loop && part.home != shard);
}

/// Drops the calling thread's parts (its data) of the engines for which `is_useless` returns true.
fn drop_parts(is_useless: impl Fn(&mut Local) -> bool) {
    let parts = take_all();
    let forgotten = FAR.try_with(|Far(far)| {
        let mut far = far.borrow_mut();
        let doubles: Vec<_> = parts.into_iter().filter_map(|part| far.put(part)).collect();
        let useless: Vec<_> = far.parts.extract_if(|_, part| is_useless(part)).collect();
        (doubles, useless)
    });
    // The drop happens outside of the borrow, since an engine may be dropped with its part.
    drop(forgotten);
}

/// Lends the calling thread's part (its data) of the engine to a call. Makes the part at the thread's first call.
#[inline(always)]
pub(crate) fn lend(admission: &Admission) -> Lent {
    match take_front() {
        Some(part) if part.engine == admission.engine() => Lent { part: Some(part), has_place: true },
        another => exchange(another, admission),
    }
}

/// Puts `front`, the thread's part (its data) of another engine, at that engine's place in `NEAR`. Takes the part of
/// this engine from `NEAR`. If `NEAR` does not have the part, calls [`find`].
#[inline(never)]
fn exchange(front: Option<Part>, admission: &Admission) -> Lent {
    let exchanged = NEAR.try_with(|near| {
        let put_off = front.and_then(|front| near[front.place % PLACES].replace(Some(front)));
        (put_off, near[admission.place()].take())
    });
    match exchanged {
        Ok((None, Some(part))) if part.engine == admission.engine() => {
            Lent { part: Some(part), has_place: true }
        }
        Ok((put_off, part)) => find([put_off, part], admission),
        Err(_) => find([None, None], admission),
    }
}

/// Puts `off`, the thread's parts (its data) of other engines, into `FAR`, because other engines need their places.
/// Then takes the part of this engine out of `FAR`, or makes the part. This engine's part may be among `off`.
#[cold]
fn find(off: [Option<Part>; 2], admission: &Admission) -> Lent {
    let off = off.map(|part| part.map(ManuallyDrop::into_inner));
    let known = FAR.try_with(|Far(far)| {
        let mut far = far.borrow_mut();
        let doubles = off.map(|part| part.and_then(|part| far.put(part)));
        let known = far.parts.remove(&admission.engine());
        let ended = if known.is_some() { Vec::new() } else { far.take_ended() };
        (known, doubles, ended)
    });
    let has_place = known.is_ok();
    // The other values are dropped here, outside of the borrow, as in `drop_parts`.
    let part = known.ok().and_then(|(known, ..)| known);
    let make = || {
        let home = home_of_current_thread(admission);
        let mut local = Local::new(admission, home.shard);
        local.follows_a_loop = home.is_of_a_loop;
        Box::new(CachePadded::new(local))
    };
    let part = part.unwrap_or_else(make);
    Lent { part: Some(ManuallyDrop::new(part)), has_place }
}

/// The shard for a thread's timers, and whether a loop of the thread turns the shard.
struct Home {
    shard: usize,
    is_of_a_loop: bool,
}

/// Chooses the shard for the calling thread's timers. If loops of shards run on the thread, chooses the first of these
/// shards. In an engine that the program drives, chooses the first shard, because the outcome must not depend on the
/// thread's core.
fn home_of_current_thread(admission: &Admission) -> Home {
    let set = admission.set();
    if !set.is_served() {
        return Home { shard: 0, is_of_a_loop: false };
    }
    if let Some(shard) = set.loop_here() {
        return Home { shard, is_of_a_loop: true };
    }
    let stations = admission.stations().all().iter();
    let chosen: Vec<u64> = stations.map(|station| station.inbox.registered()).collect();
    let shard = home(affinity::current_core(), &set.settings().cores, &chosen);
    Home { shard, is_of_a_loop: false }
}

/// Returns the shard that the fewest threads have chosen. If shards are pinned to the core `here`, considers only these
/// shards. `cores` lists the cores of the shards, in order. `chosen` lists how many threads have chosen each shard.
fn home(here: Option<usize>, cores: &[usize], chosen: &[u64]) -> usize {
    let is_here = |&shard: &usize| here.is_some() && cores.get(shard).copied() == here;
    let least = |shard: &usize| chosen[*shard];
    let shards = 0..chosen.len();
    shards.clone().filter(is_here).min_by_key(least).or_else(|| shards.min_by_key(least)).unwrap_or(0)
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    /// Returns the homes of `threads` threads that choose their homes one after the other. A home is the shard for a
    /// thread's timers.
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
