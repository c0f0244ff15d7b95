//! Tests of the tick at which the wheel asks to be woken.

use super::{AssertUnwindSafe, Numbered, Rig, catch_unwind, resume_unwind, ticket};
use crate::ticket::CHUNK_TICKETS;
use crate::tickets::FIRST_LOOKS;
use crate::{Progress, Tick, TicketWheel, Wheel};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

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

/// An event loop sets a timeout for each request, and cancels it when the answer comes. Only one timer in the far
/// future is left. The loop wakes only when the wheel asks for a wake-up.
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
