extern crate std;

use crate::level::Level;
use crate::slot::Slot;
use crate::ticket::CHUNK_TICKETS;
use crate::tickets::{FIRST_LOOKS, SPREAD_CHUNKS};
use crate::{Expired, Progress, Tick, TicketWheel, TimerId, Wheel};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs a test body with the smallest radix, with a radix of 64 and with the default radix.
macro_rules! every_radix {
    ($body:ident) => {{
        $body::<5>();
        $body::<6>();
        $body::<8>();
    }};
}

/// A wheel and the list of timers that it must hold. A timer's payload is the tick that it was inserted for.
struct Rig<const BITS: u32> {
    wheel: Wheel<u64, BITS>,
    /// The tick at which each pending timer is due.
    pending: BTreeMap<TimerId, u64>,
    /// The payload of each timer, ended timers included.
    payloads: BTreeMap<TimerId, u64>,
}

impl<const BITS: u32> Rig<BITS> {
    /// One revolution of level 0, and the width of a slot of level 1.
    const REVOLUTION: u64 = 1 << BITS;
    /// The number of slots in a level's ring: two revolutions.
    const RING: u64 = 2 << BITS;
    /// The number of levels that it takes to reach every tick.
    const LEVELS: u32 = u64::BITS.div_ceil(BITS);

    fn at(position: u64) -> Self {
        Self { wheel: Wheel::new(Tick(position)), pending: BTreeMap::new(), payloads: BTreeMap::new() }
    }

    fn insert(&mut self, tick: u64) -> TimerId {
        let id = self.wheel.insert(Tick(tick), tick);
        assert_eq!(self.payloads.insert(id, tick), None, "an id was given out twice");
        self.pending.insert(id, tick);
        self.check();
        id
    }

    fn cancel(&mut self, id: TimerId) {
        let payload = self.pending.remove(&id).map(|_| self.payloads[&id]);
        assert_eq!((self.wheel.get(id).copied(), self.wheel.get_mut(id).copied()), (payload, payload));
        assert_eq!(self.wheel.cancel(id), payload);
        assert_eq!((self.wheel.get(id).copied(), self.wheel.get_mut(id).copied()), (None, None));
        self.check();
    }

    /// Moves a timer if it is pending.
    fn reschedule(&mut self, id: TimerId, tick: u64) {
        let pending = self.pending.get_mut(&id).map(|pending| *pending = tick);
        assert_eq!(self.wheel.reschedule(id, Tick(tick)), pending.is_some());
        self.check();
    }

    /// Makes one advance; returns the ticks of the timers that fired, in order.
    fn step(&mut self, to: u64, budget: usize) -> (Vec<u64>, Progress) {
        let mut fired = Vec::new();
        let Self { wheel, pending, payloads } = self;
        let progress = wheel.advance(Tick(to), budget, |wheel, Expired { id, tick, payload }| {
            assert_eq!(pending.remove(&id), Some(tick.0), "fired twice, or though cancelled or moved");
            assert!(tick.0 <= to.max(wheel.position().0), "early");
            assert_eq!(payload, payloads[&id]);
            fired.push(tick.0);
        });
        self.check();
        fired.sort_unstable();
        (fired, progress)
    }

    /// Makes an unbounded advance, after which nothing due is left.
    fn advance(&mut self, to: u64) -> Vec<u64> {
        let before = self.wheel.position().0;
        let (fired, progress) = self.step(to, usize::MAX);
        assert_eq!(progress, Progress::Settled);
        assert_eq!(self.wheel.position(), Tick(to.max(before)));
        assert!(self.pending.values().all(|&tick| tick > to));
        fired
    }

    fn check(&mut self) {
        self.wheel.check_invariants();
        let held: BTreeMap<TimerId, u64> = self.wheel.iter().map(|(id, payload)| (id, *payload)).collect();
        assert!(held.keys().eq(self.pending.keys()));
        assert!(held.iter().all(|(id, payload)| self.payloads[id] == *payload));
        assert_eq!(self.wheel.len(), self.pending.len());
        assert_eq!(self.wheel.is_empty(), self.pending.is_empty());
        check_sweep_bound(&self.wheel);
        let next = self.wheel.next_expiry().map(|tick| tick.0);
        match self.pending.values().min() {
            None => assert_eq!(next, None),
            Some(&first) => {
                let position = self.wheel.position().0;
                assert!(
                    next.is_some_and(|next| (position..=first.max(position)).contains(&next)),
                    "{next:?}"
                );
            }
        }
    }
}

/// The bound that the module documents.
fn check_sweep_bound<T, const BITS: u32>(wheel: &Wheel<T, BITS>) {
    let (tickets, live) = (wheel.tickets(), wheel.len());
    assert!(2 * tickets <= 5 * live + 2 * 2_048, "{tickets} tickets held for {live} timers");
}

/// The generator xorshift64*: good enough, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// A number of any magnitude, each as likely as the others.
    fn of_any_size(&mut self) -> u64 {
        self.next() >> self.below(64)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap();
            items.swap(at, other);
        }
    }
}

// When a timer fires.

#[test]
fn a_timer_fires_in_its_tick_and_not_in_the_one_before() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        for delay in [1, 2, 10, 1_000] {
            let tick = rig.wheel.position().0 + delay;
            rig.insert(tick);
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick]);
        }
    }
    every_radix!(body);
}

#[test]
fn a_deadline_in_the_past_or_now_fires_on_the_next_advance_even_one_by_nothing() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(1_000);
        for tick in [0, 1, 999, 1_000] {
            rig.insert(tick);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick(1_000)));
            assert_eq!(rig.advance(1_000), [tick]);
            rig.insert(tick);
            assert_eq!(rig.advance(0), [tick]);
        }
    }
    every_radix!(body);
}

#[test]
fn a_cancelled_deadline_in_the_past_does_not_fire() {
    let mut rig = Rig::<8>::at(1_000);
    let id = rig.insert(3);
    rig.insert(4);
    rig.cancel(id);
    assert_eq!(rig.advance(1_000), [4]);
}

#[test]
fn level_boundaries_are_met_one_tick_before_at_and_after() {
    fn body<const BITS: u32>() {
        for depth in 1..Rig::<BITS>::LEVELS {
            let width = 1_u64 << (depth * BITS);
            // The ticks are in a level's first slot; in its last slot of this revolution and first of the next; in the
            // ring's last slot and beyond.
            for slots in [1, 2, Rig::<BITS>::REVOLUTION, Rig::<BITS>::RING] {
                let Some(boundary) = width.checked_mul(slots) else { continue };
                for start in [0, 1, width - 1, width, width / 3] {
                    let mut rig = Rig::<BITS>::at(start);
                    let ticks = [boundary - 1, boundary, boundary.saturating_add(1)];
                    for tick in ticks {
                        rig.insert(start.saturating_add(tick));
                    }
                    for tick in ticks.map(|tick| start.saturating_add(tick)) {
                        rig.advance(tick - 1);
                        let expected = rig.pending.values().filter(|&&pending| pending == tick).count();
                        assert_eq!(rig.advance(tick).len(), expected);
                    }
                    assert!(rig.wheel.is_empty());
                }
            }
        }
    }
    every_radix!(body);
}

#[test]
fn the_first_tick_of_a_coarse_slot_fires_on_time_after_its_cascade() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        for depth in 1..Rig::<BITS>::LEVELS {
            for slot in [1, 2, 3, (1 << BITS) - 1, 1 << BITS] {
                if let Some(tick) = (1_u64 << (depth * BITS)).checked_mul(slot) {
                    rig.insert(tick);
                }
            }
        }
        while let Some(&first) = rig.pending.values().min() {
            assert_eq!(rig.advance(first - 1), []);
            assert!(rig.advance(first).iter().all(|&tick| tick == first));
        }
    }
    every_radix!(body);
}

#[test]
fn a_timer_many_revolutions_ahead_is_reached_in_uneven_steps() {
    fn body<const BITS: u32>() {
        for depth in 0..4 {
            let revolution = 1_u64 << ((depth + 1) * BITS);
            let mut rig = Rig::<BITS>::at(17);
            let tick = 17 + 5 * revolution + 3;
            rig.insert(tick);
            let mut random = Random(7 + u64::from(depth));
            loop {
                let to = rig.wheel.position().0 + 1 + random.below(revolution);
                if to >= tick {
                    break;
                }
                assert_eq!(rig.advance(to), []);
            }
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick]);
        }
    }
    every_radix!(body);
}

#[test]
fn timers_that_share_a_ring_slot_but_not_a_round_fire_in_their_own_rounds() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        // The ticks are the same tick twice, one revolution later, and the same ring index two revolutions later and so
        // on.
        let rounds = [5, 5, 5 + Rig::<BITS>::REVOLUTION, 5 + Rig::<BITS>::RING, 5 + 2 * Rig::<BITS>::RING];
        for tick in rounds {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(4), []);
        assert_eq!(rig.advance(5), [5, 5]);
        for &tick in &rounds[2..] {
            // New timers for the tick meet timers that have come down from coarser levels.
            rig.advance(tick - 2);
            rig.insert(tick);
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick, tick]);
        }
        assert_eq!(rig.wheel.tickets(), 0);
    }
    every_radix!(body);
}

// The ends of time.

#[test]
fn the_last_tick_of_all_is_a_tick_like_any_other() {
    fn body<const BITS: u32>() {
        for start in [0, 1, 1 << 63, u64::MAX - 1] {
            let mut rig = Rig::<BITS>::at(start);
            rig.insert(u64::MAX);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick::MAX));
            rig.advance(u64::MAX - 1);
            rig.insert(u64::MAX);
            assert_eq!(rig.advance(u64::MAX), [u64::MAX; 2]);
            // Time is over, but the wheel still works.
            rig.insert(u64::MAX);
            rig.insert(0);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick::MAX));
            assert_eq!(rig.advance(u64::MAX), [0, u64::MAX]);
            assert_eq!(rig.wheel.next_expiry(), None);
        }
    }
    every_radix!(body);
}

#[test]
fn a_wheel_that_starts_ten_ticks_before_the_last_fires_them_all() {
    fn body<const BITS: u32>() {
        let start = u64::MAX - 10;
        let mut rig = Rig::<BITS>::at(start);
        for tick in start - 1..=u64::MAX {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(start), [start - 1, start]);
        for tick in start + 1..=u64::MAX {
            assert_eq!(rig.advance(tick), [tick]);
        }
        assert!(rig.wheel.is_empty());
    }
    every_radix!(body);
}

#[test]
fn every_slot_of_the_top_level_is_reached() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        let width = 1_u64 << ((Rig::<BITS>::LEVELS - 1) * BITS);
        let slots = u64::MAX / width;
        for slot in 0..=slots {
            rig.insert(slot * width + slot);
        }
        assert_eq!(rig.advance(0), [0]);
        for slot in 1..=slots {
            let tick = slot * width + slot;
            assert_eq!(rig.advance(tick - 1), []);
            assert_eq!(rig.advance(tick), [tick]);
        }
    }
    every_radix!(body);
}

/// tokio#8334: after 2^30 ticks of uptime one far timer hid all near ones.
#[test]
fn near_timers_fire_on_time_at_any_uptime_beside_one_far_away() {
    fn body<const BITS: u32>() {
        for uptime in
            [0, 1 << 30, (1 << 30) - 3, 1 << 36, (1 << 36) - 3, (1 << 42) - 1, 1 << 63, (1 << 63) - 2]
        {
            for far in
                [u64::MAX, u64::MAX - 1, u64::MAX - (1 << 36), uptime + (1 << 36) + 1, uptime + (1 << 42)]
            {
                let mut rig = Rig::<BITS>::at(uptime);
                rig.insert(far);
                for delay in [1, 3, 4, 60, 255, 256, 257, 511, 512, 5_000, 70_000] {
                    let tick = rig.wheel.position().0 + delay;
                    rig.insert(tick);
                    assert_eq!(rig.advance(tick - 1), []);
                    assert_eq!(rig.advance(tick), [tick]);
                }
                assert_eq!(rig.advance(far), [far]);
            }
        }
    }
    every_radix!(body);
}

// Advancing.

#[test]
fn advances_by_nothing_a_tick_a_level_and_more_than_the_range_fire_what_is_due() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(100);
        let steps =
            [0, 1, 0, Rig::<BITS>::REVOLUTION, Rig::<BITS>::RING, 1 << (2 * BITS), 1 << (3 * BITS + 1)];
        for by in steps {
            let to = rig.wheel.position().0 + by;
            assert_eq!(rig.advance(to), [], "empty");
            for tick in [to + 1, to + by, to + by + 1] {
                rig.insert(tick);
            }
            let due = rig.pending.values().filter(|&&tick| tick <= to + by).count();
            assert_eq!(rig.advance(to + by).len(), due);
            rig.advance(to + by + 1);
            assert!(rig.wheel.is_empty());
        }
        for tick in [1 << 20, 1 << 40, 1 << 60] {
            rig.insert(tick);
        }
        assert_eq!(rig.advance(u64::MAX), [1 << 20, 1 << 40, 1 << 60]);
    }
    every_radix!(body);
}

#[test]
fn a_clock_that_steps_back_moves_nothing() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(5_000);
        rig.insert(5_001);
        rig.insert(9_000);
        for back in [4_999, 256, 0] {
            assert_eq!(rig.advance(back), []);
            assert_eq!(rig.wheel.position(), Tick(5_000));
        }
        rig.insert(4_000);
        assert_eq!(rig.advance(17), [4_000]);
        assert_eq!(rig.advance(5_001), [5_001]);
        // The invariants hold also in the midst of a tick that the budget cut short.
        for _ in 0..3 {
            rig.insert(6_000);
        }
        assert_eq!(rig.step(6_000, 4), (vec![6_000], Progress::BudgetSpent));
        assert_eq!(rig.step(10, 1), (vec![], Progress::Settled));
        assert_eq!(rig.advance(6_000), [6_000; 2]);
        assert_eq!(rig.advance(9_000), [9_000]);
    }
    every_radix!(body);
}

#[test]
fn a_bounded_advance_fires_exactly_its_budget_and_resumes_where_it_stopped() {
    fn body<const BITS: u32>() {
        for budget in [1, 7, 31, 32, 33, 64, 100, 1_000] {
            let mut rig = Rig::<BITS>::at(0);
            for at in 0..200 {
                rig.insert([3, 3, 3, 9][at % 4]);
            }
            let mut fired = Vec::new();
            while fired.len() < 200 {
                let (mut now, progress) = rig.step(10, budget);
                assert_eq!(now.len(), budget.min(200 - fired.len()));
                assert_eq!(progress == Progress::Settled, fired.len() + now.len() == 200);
                if progress == Progress::BudgetSpent {
                    assert!(rig.wheel.position() < Tick(10));
                }
                fired.append(&mut now);
            }
            assert!(fired.is_sorted(), "a later tick before an earlier one");
            assert_eq!(rig.wheel.position(), Tick(10));
        }
    }
    every_radix!(body);
}

#[test]
fn a_bounded_advance_moves_and_fires_no_more_than_its_budget() {
    fn body<const BITS: u32>() {
        for budget in [1, 5, 32, 50] {
            let mut wheel = TicketWheel::<Numbered, BITS>::new(Tick(0));
            let start = 1 << (3 * BITS);
            for index in 0..500 {
                wheel.insert(ticket(start + u64::from(index % 100), index));
            }
            let (mut handed_out, mut advances) = (0, 0);
            loop {
                // Not all chunks that move are searched, so these are not all that were moved.
                let (mut searched, mut expired) = (0, 0);
                let progress = wheel.advance(
                    Tick(start + 99),
                    budget,
                    |_| {
                        searched += 1;
                        true
                    },
                    |chunk| expired += chunk.len(),
                );
                wheel.check_invariants();
                assert!(searched + expired <= budget, "{searched} moved and {expired} fired of {budget}");
                handed_out += expired;
                advances += 1;
                if progress == Progress::Settled {
                    break;
                }
            }
            assert_eq!(handed_out, 500);
            // Each ticket moves three times and fires; a chunk or a slot that ends uses a budget up in part.
            let (least, most) = (500 / budget, 4 * 500 / budget.min(5) + 8);
            assert!((least..=most).contains(&advances), "{advances} advances with budgets of {budget}");
        }
    }
    every_radix!(body);
}

#[test]
fn a_budget_of_nothing_fires_nothing_and_loses_nothing() {
    let mut rig = Rig::<8>::at(0);
    assert_eq!(rig.step(5, 0), (vec![], Progress::Settled));
    assert_eq!(rig.wheel.position(), Tick(5));
    for tick in [2, 5, 7, 600, 70_000] {
        rig.insert(tick);
    }
    for to in [5, 7, 700, 80_000] {
        assert_eq!(rig.step(to, 0), (vec![], Progress::BudgetSpent));
    }
    assert_eq!(rig.advance(80_000), [2, 5, 7, 600, 70_000]);
}

#[test]
fn what_is_inserted_between_two_halves_of_a_bounded_advance_is_not_lost() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        let start = 4 * Rig::<BITS>::RING;
        for at in 0..300 {
            rig.insert(start + at % 5);
        }
        let mut fired = 0;
        loop {
            let (now, progress) = rig.step(start + 4, 10);
            fired += now.len();
            if progress == Progress::Settled {
                break;
            }
            if rig.pending.len() + fired < 400 {
                let position = rig.wheel.position().0;
                for tick in [position, position + 1, start, start + 2, start + 4] {
                    rig.insert(tick);
                }
            }
        }
        assert_eq!(fired, 400);
        assert!(rig.wheel.is_empty());
    }
    every_radix!(body);
}

// The fire closure's own use of the wheel.

#[test]
fn a_timer_that_rearms_itself_at_zero_delay_fires_once_an_advance() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<u64, BITS>::new(Tick(0));
        for start in [0, 0, 1, 900] {
            wheel.insert(Tick(start), 0);
        }
        wheel.insert(Tick(950), 1);
        let _ = wheel.advance(Tick(900), usize::MAX, |wheel, timer| {
            wheel.insert(wheel.position(), timer.payload);
        });
        for round in 0..10 {
            let mut fired = Vec::new();
            let progress = wheel.advance(Tick(950 + round), usize::MAX, |wheel, timer| {
                fired.push(timer.payload);
                if timer.payload == 0 {
                    wheel.insert([wheel.position(), timer.tick, Tick(0)][fired.len() % 3], 0);
                }
            });
            assert_eq!(progress, Progress::Settled);
            fired.sort_unstable();
            assert_eq!(fired, if round == 0 { vec![0, 0, 0, 0, 1] } else { vec![0; 4] });
            assert_eq!(wheel.next_expiry(), Some(wheel.position()));
            wheel.check_invariants();
        }
    }
    every_radix!(body);
}

/// More timers re-arm themselves at once than a budget covers; the others must have their turn all the same.
#[test]
fn timers_that_rearm_themselves_at_once_starve_nobody() {
    fn body<const BITS: u32>() {
        for budget in [1, 16, 32, 64, 100] {
            let mut wheel = Wheel::<bool, BITS>::new(Tick(1_000));
            // Patient timers are both late and in time, between and after the busy ones.
            for at in 0..256 {
                wheel.insert(Tick(5), at % 2 == 0);
            }
            for at in 0..50 {
                wheel.insert(Tick(1_000 + at * 20), false);
            }
            let mut patient = 178;
            let mut advances = 0;
            while patient > 0 {
                advances += 1;
                assert!(advances < 20_000, "{patient} starve with a budget of {budget}");
                let _ = wheel.advance(Tick(2_000), budget, |wheel, timer| {
                    if timer.payload {
                        wheel.insert(Tick(0), true);
                    } else {
                        patient -= 1;
                    }
                });
                wheel.check_invariants();
            }
            assert_eq!(wheel.len(), 128);
        }
    }
    every_radix!(body);
}

#[test]
fn a_periodic_timer_keeps_its_phase_while_time_moves_in_strides() {
    let mut wheel = Wheel::<(), 8>::new(Tick(0));
    wheel.insert(Tick(7), ());
    let mut due = 7;
    for to in (0..20_000).step_by(13) {
        // A turn settles when nothing due is left; a timer that was re-armed for a tick that has passed takes another
        // turn.
        while wheel.next_expiry().is_some_and(|next| next <= Tick(to)) {
            let _ = wheel.advance(Tick(to), usize::MAX, |wheel, timer| {
                assert_eq!(timer.tick, Tick(due));
                due += 7;
                wheel.insert(Tick(due), ());
            });
        }
        assert!(due > to && due - to <= 7);
    }
}

#[test]
fn the_fire_closure_may_cancel_those_that_are_due_with_it() {
    let mut wheel = Wheel::<usize, 8>::new(Tick(0));
    let ids: Vec<_> = (0..100).map(|at| wheel.insert(Tick(300), at)).collect();
    let mut fired = Vec::new();
    let _ = wheel.advance(Tick(300), usize::MAX, |wheel, timer| {
        assert_eq!(wheel.cancel(timer.id), None, "its own id is stale");
        let other = 99 - timer.payload;
        assert!(!fired.contains(&other), "cancelled, yet it fired");
        assert_eq!(wheel.cancel(ids[other]), Some(other));
        // The index is reused at once, and the timer there must not be taken for the one that is gone.
        wheel.insert(Tick(301), 1_000);
        fired.push(timer.payload);
    });
    wheel.check_invariants();
    assert_eq!(fired.len(), 50);
    assert_eq!(wheel.len(), 50);
    let _ = wheel.advance(Tick(301), usize::MAX, |_, timer| assert_eq!(timer.payload, 1_000));
    assert!(wheel.is_empty());
}

#[test]
fn the_fire_closure_may_advance_or_replace_the_wheel() {
    let mut wheel = Wheel::<u64, 8>::new(Tick(0));
    for tick in 1..=100 {
        wheel.insert(Tick(tick), tick);
    }
    let mut fired = Vec::new();
    let _ = wheel.advance(Tick(40), usize::MAX, |wheel, timer| {
        fired.push(timer.payload);
        let _ = wheel.advance(Tick(60), usize::MAX, |_, timer| fired.push(timer.payload));
        wheel.check_invariants();
    });
    fired.sort_unstable();
    assert_eq!(fired, Vec::from_iter(1..=60));

    let mut replaced = 0;
    let _ = wheel.advance(Tick(70), usize::MAX, |wheel, _| {
        replaced += 1;
        *wheel = Wheel::new(Tick(7));
        wheel.insert(Tick(8), 8);
    });
    assert_eq!((replaced, wheel.len(), wheel.next_expiry()), (1, 1, Some(Tick(8))));
    wheel.check_invariants();
}

#[test]
fn a_panic_in_the_fire_closure_costs_no_other_timer() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        for at in 0..200 {
            rig.insert(1 + at % 90);
        }
        let Rig { wheel, pending, .. } = &mut rig;
        let mut panics = 0;
        while !pending.is_empty() {
            let mut calls = 0;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                wheel.advance(Tick(90), 50, |_, timer| {
                    assert_eq!(pending.remove(&timer.id), Some(timer.payload), "fired twice");
                    calls += 1;
                    if calls == 3 {
                        resume_unwind(Box::new(()));
                    }
                })
            }));
            panics += usize::from(outcome.is_err());
            wheel.check_invariants();
            assert_eq!(wheel.len(), pending.len());
            if !pending.is_empty() {
                assert!(wheel.next_expiry().is_some_and(|next| next <= Tick(90)));
            }
        }
        assert!(panics >= 50);
        rig.check();
    }
    every_radix!(body);
}

#[test]
fn a_wheel_with_nothing_pending_asks_for_no_advance() {
    let mut wheel = Wheel::<u32, 8>::new(Tick(0));
    let ids: Vec<_> = (0..10).map(|at| wheel.insert(Tick(5), at)).collect();
    // The timers are due, handed out, held up by a panic, and then cancelled.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        wheel.advance(Tick(5), usize::MAX, |_, _| resume_unwind(Box::new(())))
    }));
    assert!(outcome.is_err());
    assert_eq!(wheel.next_expiry(), Some(Tick(5)));
    assert_eq!(ids.into_iter().filter_map(|id| wheel.cancel(id)).count(), 9);
    assert_eq!((wheel.len(), wheel.next_expiry()), (0, None));
    let progress = wheel.advance(Tick(6), 1, |_, timer| panic!("{timer:?} was cancelled"));
    assert_eq!(progress, Progress::Settled);
}

/// Each request has a timeout, which is cancelled when the answer comes; one timer far away is left. The loop wakes
/// when the wheel asks for it.
#[test]
fn an_event_loop_whose_timeouts_are_all_cancelled_is_hardly_ever_woken() {
    fn body<const BITS: u32>() {
        const REQUESTS: u64 = 10_000;
        for (timeout, in_flight) in [(250, 1), (250, 100), (5_000, 20), (30_000, 1_000)] {
            let mut wheel = Wheel::<u64, BITS>::new(Tick(0));
            wheel.insert(Tick(1 << 40), 0);
            let mut requests = VecDeque::new();
            let mut wakes = 0;
            for now in 0..REQUESTS + timeout {
                while wheel.next_expiry().is_some_and(|next| next <= Tick(now)) {
                    wakes += 1;
                    let _ =
                        wheel.advance(Tick(now), usize::MAX, |_, timer| panic!("{timer:?} was cancelled"));
                    assert!(wheel.next_expiry() > Some(Tick(now)), "asks to be woken for what is done");
                }
                if now < REQUESTS {
                    requests.push_back(wheel.insert(Tick(now + timeout), now));
                }
                if requests.len() > in_flight || now >= REQUESTS {
                    requests.pop_front().and_then(|id| wheel.cancel(id));
                }
            }
            wheel.check_invariants();
            assert!(wakes <= REQUESTS / 100, "{wakes} wakes for nothing, timeouts of {timeout} ticks");
        }
    }
    every_radix!(body);
}

#[test]
fn the_next_expiry_is_that_of_the_first_live_timer_whose_neighbours_were_cancelled() {
    fn body<const BITS: u32>() {
        // All timers are in one slot of level 1, then of level 2; then over several levels.
        for spread in [1, 1 << BITS, 1 << (2 * BITS)] {
            let mut rig = Rig::<BITS>::at(3);
            let first = 4 * Rig::<BITS>::REVOLUTION * spread;
            let ids: Vec<_> = (0..20).map(|at| rig.insert(first + at * spread)).collect();
            for id in ids.iter().take(19).rev() {
                rig.cancel(*id);
            }
            assert_eq!(rig.wheel.next_expiry(), Some(Tick(first + 19 * spread)));
            // A timer that comes into a slot that was looked at is seen as well.
            let sooner = rig.insert(first + 10 * spread);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick(first + 10 * spread)));
            rig.cancel(sooner);
            assert_eq!(rig.wheel.next_expiry(), Some(Tick(first + 19 * spread)));
            assert_eq!(rig.advance(first + 19 * spread), [first + 19 * spread]);
        }
    }
    every_radix!(body);
}

#[test]
fn a_call_for_the_next_expiry_looks_at_a_bounded_number_of_tickets() {
    const COUNT: u64 = 100_000;
    for distinct in [1, 100, COUNT] {
        let mut wheel = TicketWheel::<Numbered, 8>::new(Tick(0));
        for (index, at) in (0..).zip(0..COUNT) {
            wheel.insert(ticket(1 + at % distinct, index));
        }
        let mut looks = 0;
        let first = wheel.drop_stale_first(|_| {
            looks += 1;
            false
        });
        assert_eq!(first, Some(Tick(1)));
        assert!((FIRST_LOOKS..FIRST_LOOKS + CHUNK_TICKETS).contains(&looks), "{looks} looks");
        assert_eq!(wheel.len() + looks, 100_000);
        wheel.check_invariants();
        // Live tickets cost one look, however often the call is made.
        for _ in 0..3 {
            let mut looks = 0;
            let first = wheel.drop_stale_first(|_| {
                looks += 1;
                true
            });
            assert_eq!((first, looks), (None, 1));
        }
    }
}

// Ids and cancellation.

#[test]
fn stale_ids_cancel_nobody() {
    let mut wheel = Wheel::<&str, 8>::new(Tick(0));
    let first = wheel.insert(Tick(10), "first");
    assert_eq!(wheel.cancel(first), Some("first"));
    assert_eq!(wheel.cancel(first), None, "cancelled twice");

    let second = wheel.insert(Tick(10), "second");
    assert_eq!(first.index(), second.index(), "the slot is used again");
    assert_ne!(first, second);
    assert_eq!(wheel.cancel(first), None, "the id of an earlier owner of the slot");
    let mut fired = Vec::new();
    let _ = wheel.advance(Tick(10), usize::MAX, |_, timer| fired.push((timer.id, timer.payload)));
    assert_eq!(fired, [(second, "second")], "once, though two tickets name its slot");
    assert_eq!(wheel.cancel(second), None, "cancelled after it fired");

    let third = wheel.insert(Tick(20), "third");
    assert_eq!((wheel.cancel(first), wheel.cancel(second)), (None, None));
    assert_eq!(wheel.cancel(third), Some("third"));
    wheel.check_invariants();
}

#[test]
fn ids_that_no_wheel_made_are_stale() {
    let mut wheel = Wheel::<u8, 8>::new(Tick(0));
    let id = wheel.insert(Tick(1), 1);
    wheel.cancel(id);
    let kept = wheel.insert(Tick(1), 2);
    let other = wheel.insert(Tick(1), 3);
    wheel.cancel(other);
    // These ids are beyond the table, ahead of the generation, and of a free slot's next generation.
    for bits in [u64::MAX, 1 << 20, kept.to_bits() + (1 << 32), other.to_bits() + (1 << 24)] {
        assert_eq!(wheel.cancel(TimerId::from_bits(bits)), None);
        wheel.check_invariants();
    }
    assert_eq!(wheel.cancel(TimerId::from_bits(kept.to_bits())), Some(2));
}

#[test]
fn a_stale_ticket_does_not_fire_the_next_owner_of_its_slot() {
    let mut rig = Rig::<8>::at(0);
    let early = rig.insert(10);
    rig.cancel(early);
    let late = rig.insert(100_000);
    assert_eq!(early.index(), late.index());
    assert_eq!(rig.advance(99_999), []);
    assert_eq!(rig.advance(100_000), [100_000]);
}

/// A cancel that arrives while a bounded advance is half-way through a coarse slot.
#[test]
fn a_cancel_during_a_cascade_is_final() {
    fn body<const BITS: u32>() {
        let mut rig = Rig::<BITS>::at(0);
        let start = 1 << (2 * BITS);
        let ids: Vec<_> = (0..400).map(|at| rig.insert(start + at % 7)).collect();
        let mut ids = ids.into_iter();
        loop {
            let (_, progress) = rig.step(start + 6, 20);
            if progress == Progress::Settled {
                break;
            }
            // `Rig` fails when one of the cancelled timers fires.
            for id in ids.by_ref().take(5) {
                rig.cancel(id);
            }
        }
        assert!(rig.wheel.is_empty());
    }
    every_radix!(body);
}

#[test]
fn payloads_are_dropped_when_they_are_taken_and_with_the_wheel() {
    let payload = alloc::rc::Rc::new(());
    let mut wheel = Wheel::<_, 8>::new(Tick(0));
    let ids: Vec<_> = (0..30).map(|tick| wheel.insert(Tick(tick), payload.clone())).collect();
    for &id in &ids[20..] {
        drop(wheel.cancel(id));
    }
    assert_eq!(alloc::rc::Rc::strong_count(&payload), 21);
    let _ = wheel.advance(Tick(9), usize::MAX, |_, timer| drop(timer));
    assert_eq!(alloc::rc::Rc::strong_count(&payload), 11);
    drop(wheel);
    assert_eq!(alloc::rc::Rc::strong_count(&payload), 1);
}

// Moving a timer.

#[test]
fn a_moved_timer_fires_once_at_its_last_tick_and_keeps_its_id() {
    fn body<const BITS: u32>() {
        let width = Rig::<BITS>::REVOLUTION;
        for (first, then) in
            [(10, 11), (11, 10), (10, 10), (5, 3 * width), (3 * width, 5), (1 << 40, 7), (7, 1 << 40)]
        {
            let mut rig = Rig::<BITS>::at(2);
            let id = rig.insert(first);
            rig.reschedule(id, then);
            assert_eq!(rig.advance(then - 1), []);
            rig.reschedule(id, then);
            assert_eq!(rig.advance(then), [then]);
            rig.reschedule(id, then + 1);
            rig.cancel(id);
            assert_eq!(rig.advance(u64::MAX), []);
        }
    }
    every_radix!(body);
}

#[test]
fn a_timer_moved_to_the_past_fires_on_the_next_advance() {
    let mut rig = Rig::<8>::at(1_000);
    let id = rig.insert(5_000);
    rig.reschedule(id, 3);
    rig.reschedule(id, 4);
    assert_eq!(rig.wheel.next_expiry(), Some(Tick(1_000)));
    assert_eq!(rig.advance(1_000), [4]);
}

/// Half of the timers that are due together move the other half, which must not fire in this advance.
#[test]
fn the_fire_closure_may_move_those_that_are_due_with_it() {
    let mut wheel = Wheel::<u64>::new(Tick(0));
    let ids: Vec<_> = (0..1_000).map(|number| wheel.insert(Tick(5), number)).collect();
    let mut moved = Vec::new();
    let mut fired = Vec::new();
    let progress = wheel.advance(Tick(5), usize::MAX, |wheel, Expired { id, payload, .. }| {
        assert!(!wheel.reschedule(id, Tick(9)), "a timer has ended when it fires");
        fired.push(payload);
        let other = payload ^ 1;
        // The timers move to the past, to this very tick and to a later one.
        let to = Tick([3, 5, 6][usize::try_from(payload % 3).unwrap()]);
        assert!(wheel.reschedule(ids[usize::try_from(other).unwrap()], to), "it has fired, though moved");
        moved.push(other);
    });
    assert_eq!((progress, fired.len()), (Progress::Settled, 500));
    wheel.check_invariants();
    let mut later = Vec::new();
    while wheel.advance(Tick(6), usize::MAX, |_, timer| later.push(timer.payload)) == Progress::BudgetSpent {}
    later.sort_unstable();
    moved.sort_unstable();
    assert_eq!(later, moved);
    assert!(wheel.is_empty());
}

/// Each connection has a timer, which is moved to a later tick at each request.
#[test]
fn the_sweep_bound_holds_for_timers_that_are_put_off_again_and_again() {
    fn body<const BITS: u32>() {
        for count in [1, 100, 5_000] {
            let mut wheel = Wheel::<(), BITS>::new(Tick(0));
            let mut random = Random(9);
            let ids: Vec<_> = (0..count).map(|_| wheel.insert(Tick(1_000), ())).collect();
            for at in 0..60_000 {
                let id = ids[usize::try_from(random.below(count)).unwrap()];
                assert!(wheel.reschedule(id, Tick(1_000 + at).saturating_add(random.below(2) << 30)));
                check_sweep_bound(&wheel);
                if at % 100 == 0 {
                    let _ = wheel.advance(Tick(at / 100), usize::MAX, |_, _| unreachable!());
                }
            }
            wheel.check_invariants();
            assert_eq!(wheel.len() as u64, count);
        }
    }
    every_radix!(body);
}

// Stale tickets.

/// No timer is live, and the tickets lie thinly over every slot of every level.
#[test]
fn the_sweep_bound_holds_for_timers_of_every_magnitude_cancelled_at_once() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(12_345));
        let mut random = Random(1);
        for _ in 0..60_000 {
            let id = wheel.insert(Tick(12_345).saturating_add(random.of_any_size()), ());
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
    }
    every_radix!(body);
}

/// There is one live timer in each slot, and the dead tickets lie where the sweep has just been.
#[test]
fn the_sweep_bound_holds_when_the_dead_lie_behind_the_sweep() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(0));
        for depth in 0..Rig::<BITS>::LEVELS {
            for slot in 1..=1 << BITS {
                if let Some(tick) = (1_u64 << (depth * BITS)).checked_mul(slot) {
                    wheel.insert(Tick(tick), ());
                }
            }
        }
        for at in 0..60_000 {
            let id = wheel.insert(Tick(1 + at % 20), ());
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
    }
    every_radix!(body);
}

/// All live tickets stand before all dead ones, and their timers are cancelled as soon as the sweep has passed them.
#[test]
fn the_sweep_bound_holds_when_timers_die_just_after_the_sweep_looked() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(0));
        let count = 60_000;
        let near = Rig::<BITS>::REVOLUTION;
        let mut living: Vec<_> =
            (0..count).map(|at| wheel.insert(Tick(1 + at * (near - 1) / count), ())).collect();
        let dead: Vec<_> = (0..count + 1_024).map(|_| wheel.insert(Tick(1 << 40), ())).collect();
        for id in dead {
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        for id in living.drain(..) {
            wheel.cancel(id);
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
    }
    every_radix!(body);
}

#[test]
fn the_sweep_bound_holds_when_timers_fire_and_only_the_dead_remain() {
    fn body<const BITS: u32>() {
        let mut wheel = Wheel::<(), BITS>::new(Tick(0));
        for at in 0..30_000 {
            wheel.insert(Tick(1 + at % 40), ());
        }
        let dead: Vec<_> = (0..31_000).map(|at| wheel.insert(Tick(1_000_000 + at), ())).collect();
        for id in dead {
            wheel.cancel(id);
        }
        for tick in 1..=40 {
            let _ = wheel.advance(Tick(tick), usize::MAX, |wheel, _| check_sweep_bound(wheel));
            check_sweep_bound(&wheel);
        }
        wheel.check_invariants();
        assert!(wheel.is_empty());
    }
    every_radix!(body);
}

/// Tickets that are in no level's slot.
#[test]
fn the_sweep_bound_holds_for_timers_that_were_due_when_they_came() {
    let mut wheel = Wheel::<(), 8>::new(Tick(10));
    let storm = |wheel: &mut Wheel<(), 8>| {
        for at in 0..20_000 {
            let id = wheel.insert(Tick(at % 11), ());
            wheel.cancel(id);
            check_sweep_bound(wheel);
        }
        wheel.check_invariants();
    };
    storm(&mut wheel);
    // The same holds among the tickets that a budget has left over.
    let ids: Vec<_> = (0..10_000).map(|_| wheel.insert(Tick(0), ())).collect();
    while wheel.len() == 10_000 {
        let _ = wheel.advance(Tick(10), 1, |_, _| ());
    }
    storm(&mut wheel);
    for id in ids {
        wheel.cancel(id);
        check_sweep_bound(&wheel);
    }
    wheel.check_invariants();
}

#[test]
fn the_sweep_bound_holds_in_a_cancel_storm_of_any_order_while_time_passes() {
    fn body<const BITS: u32>() {
        for order in 0..3 {
            let mut wheel = Wheel::<(), BITS>::new(Tick(0));
            let mut random = Random(3);
            let mut ids: Vec<_> =
                (0..40_000).map(|_| wheel.insert(Tick(1_000 + random.below(60_000)), ())).collect();
            match order {
                0 => {}
                1 => ids.reverse(),
                _ => random.shuffle(&mut ids),
            }
            for (at, id) in ids.into_iter().enumerate() {
                assert!(wheel.cancel(id).is_some());
                check_sweep_bound(&wheel);
                if at % 40 == 0 {
                    let _ = wheel.advance(Tick(at as u64 / 40), 1_000, |_, _| unreachable!());
                }
            }
            wheel.check_invariants();
            assert_eq!((wheel.len(), wheel.next_expiry()), (0, None));
        }
    }
    every_radix!(body);
}

#[test]
fn a_whole_pass_of_the_sweep_drops_all_that_is_stale_and_nothing_else() {
    let mut wheel = TicketWheel::<Numbered, 6>::new(Tick(0));
    let mut random = Random(11);
    for index in 0..20_000 {
        // There are thin slots, and one of many chunks.
        let tick = if index % 2 == 0 { random.of_any_size() } else { 1 << 30 };
        wheel.insert(ticket(tick.max(1), index));
    }
    for divisor in [2, 3, 6] {
        let is_live = |&(_, number): &Numbered| number.is_multiple_of(divisor);
        let mut calls = 0;
        while !wheel.sweep(CHUNK_TICKETS, is_live) {
            wheel.check_invariants();
            calls += 1;
        }
        assert!(calls < 3_000, "each call looks at a chunk's worth");
    }
    assert_eq!(wheel.len(), 20_000_usize.div_ceil(6));
    while !wheel.sweep(7 * CHUNK_TICKETS, |_| false) {}
    wheel.check_invariants();
    assert_eq!((wheel.len(), wheel.wake_tick()), (0, None));
}

// Slots, levels and their bitmaps.

/// A ticket and its number.
type Numbered = (Tick, u32);

fn ticket(tick: u64, number: u32) -> Numbered {
    (Tick(tick), number)
}

#[test]
fn the_last_ticket_out_of_a_slot_clears_its_bit() {
    let mut level = Level::<Numbered, 8>::new(1);
    level.push(ticket(256 * 7 + 3, 0));
    level.push(ticket(256 * 7 + 9, 1));
    assert_eq!(level.first_occupied(0), Some(7));
    let swept = level.with_slot(7, |slot| slot.take(1));
    assert_eq!((swept.map(|chunk| chunk.len()), level.first_occupied(0)), (Some(1), Some(7)));
    let swept = level.with_slot(7, |slot| slot.take(usize::MAX));
    assert_eq!((swept.map(|chunk| chunk.len()), level.first_occupied(0)), (Some(1), None));
    assert_eq!(level.slot(7).earliest(), u64::MAX);

    // Slots are emptied by firing, by a cascade and by the sweep.
    let mut rig = Rig::<8>::at(0);
    for tick in [3, 300, 100_000] {
        rig.insert(tick);
        rig.advance(tick);
        assert_eq!((rig.wheel.tickets(), rig.wheel.wake_tick()), (0, None));
    }
}

#[test]
fn the_first_occupied_slot_is_found_from_every_position_of_the_ring() {
    fn body<const BITS: u32>() {
        let ring = Rig::<BITS>::RING;
        for here in (0..ring + 3).chain(u64::MAX - ring - 3..u64::MAX) {
            for ahead in [1, 2, 31, 32, 63, 64, 65, ring / 2, ring - 2, ring - 1] {
                if ahead >= ring {
                    continue;
                }
                let Some(first) = here.checked_add(ahead) else { continue };
                let mut level = Level::<Numbered, BITS>::new(0);
                level.push(ticket(first, 0));
                assert_eq!(level.first_occupied(here), Some(first));
                if let Some(last) = here.checked_add(ring - 1) {
                    level.push(ticket(last, 1));
                    assert_eq!(level.first_occupied(here), Some(first));
                }
            }
        }
    }
    every_radix!(body);
}

#[test]
fn a_ticket_goes_to_the_finest_level_whose_ring_reaches_it() {
    fn body<const BITS: u32>() {
        let mut random = Random(5);
        for _ in 0..20_000 {
            let position = random.of_any_size();
            let Some(tick) = position.checked_add(random.of_any_size().max(1)) else { continue };
            let reaches =
                |depth: u32| (tick >> (depth * BITS)) - (position >> (depth * BITS)) < Rig::<BITS>::RING;
            let finest = (0..).find(|&depth| reaches(depth)).unwrap();
            assert_eq!(
                Level::<Numbered, BITS>::depth_for(tick, position),
                finest as usize,
                "{tick} seen from {position}"
            );
        }
    }
    every_radix!(body);
}

#[test]
fn a_slot_gives_back_what_was_put_into_it() {
    for count in [0, 1, 31, 32, 33, 64, 65, 1_000] {
        for limit in [1, 5, CHUNK_TICKETS, usize::MAX] {
            let mut slot = Slot::new();
            for index in 0..count {
                slot.push(ticket(100 + u64::from(index), index));
            }
            assert_eq!(slot.chunk_count(), (count as usize).div_ceil(CHUNK_TICKETS));
            let mut seen = vec![false; count as usize];
            while let Some(chunk) = slot.take(limit) {
                assert!((1..=limit.min(CHUNK_TICKETS)).contains(&chunk.len()));
                for (_, number) in chunk {
                    assert!(!core::mem::replace(&mut seen[number as usize], true));
                }
                assert!(slot.tickets().all(|(tick, _)| slot.earliest() <= tick.0));
            }
            assert!(seen.into_iter().all(|seen| seen));
            assert!(slot.is_empty());
        }
    }
}

// Costs.

/// A wheel of tickets that counts the cost of each turn.
struct Turns<const BITS: u32> {
    wheel: TicketWheel<Numbered, BITS>,
    turns: u64,
    /// The number of tickets moved between levels: in all, and by the turn that moved most.
    moved: u64,
    moved_at_most: u64,
    handed_out: usize,
}

/// The number of tickets that a turn may move between levels: the share that is spread and the remainder that is
/// cascaded, on two levels.
const FAIR_TURN: u64 = 4 * SPREAD_CHUNKS * CHUNK_TICKETS as u64;

impl<const BITS: u32> Turns<BITS> {
    fn of(ticks: impl Iterator<Item = u64>) -> Self {
        let mut wheel = TicketWheel::new(Tick(0));
        for (index, tick) in (0..).zip(ticks) {
            wheel.insert(ticket(tick, index));
        }
        Self { wheel, turns: 0, moved: 0, moved_at_most: 0, handed_out: 0 }
    }

    fn turn(&mut self, to: Tick) {
        let before = self.wheel.position();
        let mut moved = 0;
        let is_live = |_: &Numbered| {
            moved += 1;
            true
        };
        let handed_out = &mut self.handed_out;
        let expired = |chunk: Vec<Numbered>| {
            assert!(chunk.iter().all(|(tick, _)| before < *tick && *tick <= to));
            *handed_out += chunk.len();
        };
        assert_eq!(self.wheel.advance(to, usize::MAX, is_live, expired), Progress::Settled);
        self.turns += 1;
        self.moved += moved;
        self.moved_at_most = self.moved_at_most.max(moved);
    }

    fn run_by_its_own_wake_ups(&mut self) {
        while let Some(to) = self.wheel.wake_tick() {
            assert!(to > self.wheel.position(), "asks to be woken for what is done");
            self.turn(to);
        }
        self.wheel.check_invariants();
    }
}

#[test]
fn a_thousand_sparse_timers_cost_little_memory_and_few_turns() {
    fn body<const BITS: u32>() {
        let mut random = Random(17);
        let mut turns = Turns::<BITS>::of((0..1_000).map(|_| random.of_any_size().max(1)));
        let bytes = turns.wheel.heap_bytes();
        assert!(bytes < 512 << 10, "{bytes} bytes");
        turns.run_by_its_own_wake_ups();
        assert_eq!(turns.handed_out, 1_000);
        assert!(turns.turns <= 1_000, "{} turns", turns.turns);
        assert!(turns.moved <= 1_000 * u64::from(Rig::<BITS>::LEVELS), "{} moves", turns.moved);
    }
    every_radix!(body);
}

#[test]
fn a_stall_is_caught_up_in_one_turn_without_a_visit_to_empty_ticks() {
    let mut random = Random(19);
    let mut turns = Turns::<8>::of((0..1_000).map(|_| random.of_any_size().max(1)));
    turns.turn(Tick::MAX);
    assert_eq!(turns.handed_out, 1_000);
    assert!(turns.moved <= 8_000);
}

#[test]
fn no_tick_pays_for_a_crowded_coarse_slot_when_each_tick_has_its_turn() {
    fn body<const BITS: u32>() {
        for depth in 1..=2 {
            let width = 1 << (depth * BITS);
            // The tickets lie over the whole slot, or all of them in its first or its last tick.
            for span in [width, 1] {
                for first in [10 * width, 11 * width - span] {
                    let mut turns = Turns::<BITS>::of((0..100_000).map(|at| first + at % span));
                    // There is no work on the way there.
                    turns.turn(Tick(8 * width));
                    for tick in 8 * width + 1..11 * width {
                        turns.turn(Tick(tick));
                    }
                    assert_eq!(turns.handed_out, 100_000);
                    assert!(turns.moved_at_most <= FAIR_TURN / 2, "{} moved at once", turns.moved_at_most);
                    assert!(turns.moved <= 100_000 * u64::from(depth), "{} moves", turns.moved);
                }
            }
        }
    }
    every_radix!(body);
}

#[test]
fn no_tick_pays_for_a_crowded_coarse_slot_when_turns_come_as_asked_for() {
    fn body<const BITS: u32>() {
        for depth in 1..Rig::<BITS>::LEVELS - 1 {
            let width = 1 << (depth * BITS);
            for first in [2 * width, 2 * width + 1, 7 * width, 8 * width - 1] {
                let mut turns = Turns::<BITS>::of((0..100_000).map(|_| first));
                turns.run_by_its_own_wake_ups();
                assert_eq!(turns.handed_out, 100_000);
                assert!(turns.moved_at_most <= FAIR_TURN, "{} moved at once", turns.moved_at_most);
                assert!(turns.moved <= 100_000 * u64::from(depth), "{} moves", turns.moved);
                let enough = u64::from(depth + 1) * (100_000 / FAIR_TURN * 4 + 8);
                assert!(turns.turns <= enough, "{} turns where {enough} would do", turns.turns);
            }
        }
    }
    every_radix!(body);
}

#[test]
fn a_crowded_slot_is_spread_though_a_late_timer_stands_in_the_slot_before() {
    fn body<const BITS: u32>() {
        for depth in 1..4 {
            let width = 1 << (depth * BITS);
            let crowd = (0..100_000).map(|at| 6 * width + at % 3);
            let mut turns = Turns::<BITS>::of(crowd.chain([6 * width - 1, 7 * width, 7 * width - 1]));
            turns.run_by_its_own_wake_ups();
            assert_eq!(turns.handed_out, 100_003);
            assert!(turns.moved_at_most <= FAIR_TURN, "{} moved at once", turns.moved_at_most);
        }
    }
    every_radix!(body);
}

#[test]
fn no_turn_is_asked_for_before_a_slot_can_be_spread() {
    // There are more tickets than can be spread within a revolution of 32 ticks.
    let mut turns = Turns::<5>::of((0..400_000).map(|_| 10 * 32));
    assert_eq!(turns.wheel.wake_tick(), Some(Tick(9 * 32)));
    turns.run_by_its_own_wake_ups();
    assert!(turns.turns <= 33, "{} turns", turns.turns);
}

// All at once.

#[test]
fn random_operations_keep_every_invariant() {
    fn body<const BITS: u32>() {
        for (seed, start) in (1..).zip([0, 1 << 30, 1 << 36, 1 << 63, u64::MAX - 1_000]) {
            let mut random = Random(seed);
            let mut rig = Rig::<BITS>::at(start);
            let mut ids = Vec::new();
            for _ in 0..600 {
                let position = rig.wheel.position().0;
                let ahead = random.of_any_size();
                let budget = usize::try_from(random.below(40)).unwrap();
                match random.below(12) {
                    0..=4 => ids.push(rig.insert(position.saturating_add(ahead))),
                    5 => ids.push(rig.insert(position.saturating_sub(ahead))),
                    6 if !ids.is_empty() => {
                        rig.cancel(ids[usize::try_from(random.below(ids.len() as u64)).unwrap()]);
                    }
                    7 | 8 if !ids.is_empty() => {
                        let id = ids[usize::try_from(random.below(ids.len() as u64)).unwrap()];
                        rig.reschedule(id, position.saturating_add(ahead));
                    }
                    9 => {
                        rig.advance(position.saturating_add(ahead >> 32));
                    }
                    10 => {
                        drop(rig.step(position.saturating_add(ahead >> 24), budget));
                    }
                    _ => {
                        let next = rig.wheel.next_expiry().unwrap_or_default();
                        drop(rig.step(next.0, 1 + budget));
                    }
                }
            }
            rig.advance(u64::MAX);
            assert!(rig.wheel.is_empty());
            assert_eq!(rig.wheel.tickets(), 0);
        }
    }
    every_radix!(body);
}

#[test]
fn chunks_are_searched_as_they_move_while_many_tickets_are_stale_and_by_samples_otherwise() {
    const TICKETS: usize = 64 * CHUNK_TICKETS;
    /// The tickets that are searched as `TICKETS` tickets move down once, of which every `stale`-th one is stale.
    fn searched(stale: u32) -> usize {
        let mut wheel = TicketWheel::<Numbered, 8>::new(Tick(0));
        for index in 0..TICKETS {
            wheel.insert(ticket(512, u32::try_from(index).unwrap()));
        }
        let mut searched = 0;
        let is_live = |ticket: &Numbered| {
            searched += 1;
            !ticket.1.is_multiple_of(stale)
        };
        let mut fired = 0;
        assert_eq!(
            wheel.advance(Tick(512), usize::MAX, is_live, |chunk| fired += chunk.len()),
            Progress::Settled
        );
        let stale = TICKETS.div_ceil(stale as usize);
        assert!(fired >= TICKETS - stale && fired <= TICKETS, "{fired} fired");
        searched
    }
    assert_eq!(searched(2), TICKETS);
    assert_eq!(searched(4), TICKETS);
    // The first, the third and the seventh chunk; from then on, one of eight.
    assert_eq!(searched(u32::MAX), (3 + (64_usize - 14).div_ceil(8)) * CHUNK_TICKETS);
}

#[test]
fn a_wheel_that_is_never_spread_hands_out_all_at_their_ticks() {
    let mut wheel = TicketWheel::<Numbered, 8>::new(Tick(0));
    for index in 0..50_000 {
        wheel.insert(ticket(600 + u64::from(index % 1_000), index));
    }
    let mut handed_out = 0;
    for tick in 1..1_600 {
        let progress = wheel.hand_out_until(
            Tick(tick),
            usize::MAX,
            |_| true,
            |chunk| {
                assert!(chunk.iter().all(|ticket| ticket.0 == Tick(tick)));
                handed_out += chunk.len();
            },
        );
        assert_eq!(progress, Progress::Settled);
        wheel.check_invariants();
    }
    assert_eq!(handed_out, 50_000);
}
