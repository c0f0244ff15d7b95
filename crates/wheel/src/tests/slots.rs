//! Tests of slots, levels and their bitmaps.

use super::{Numbered, Random, Rig, ticket};
use crate::level::Level;
use crate::slot::Slot;
use crate::ticket::CHUNK_TICKETS;
use alloc::vec;

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
