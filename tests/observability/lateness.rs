//! The distribution of lateness.

use crate::support::{Log, MS, Rng};
use std::time::Duration;
use tourbillon::{Builder, Lateness, Timestamp};

/// The buckets, the count and the sum of the lateness agree with the values that handlers saw, up to 3 %.
#[test]
fn buckets_count_what_handlers_saw() {
    let (log, mut rng) = (Log::new(), Rng::new(11));
    let seen = log.clone();
    let mut engine = Builder::new().tick(50 * MS).driven(move |timer| seen.push(timer.lateness())).unwrap();
    for round in 0..2_000 {
        // The lateness is spread over the orders of magnitude below a tick.
        let late = rng.nanos_below(Duration::from_nanos(5 * 10_u64.pow(2 + round % 6)));
        engine.handle().schedule_at(Timestamp::ZERO + (50 * MS * (2 + round / 10) - late), ()).unwrap();
    }
    engine.advance(Duration::from_secs(20));
    let (seen, lateness) = (log.take(), engine.handle().stats().total.lateness);
    assert_eq!((seen.len(), lateness.count), (2_000, 2_000));
    let sum: Duration = seen.iter().sum();
    assert!(lateness.sum.abs_diff(sum) < sum / 50, "{:?} for {sum:?}", lateness.sum);
    assert!(lateness.buckets().map(|(bound, _)| bound).eq(Lateness::BOUNDS));
    for (bound, count) in lateness.buckets() {
        let within = |bound| seen.iter().filter(|&&late| late <= bound).count() as u64;
        assert!((within(bound)..=within(bound + bound / 32)).contains(&count), "{count} within {bound:?}");
    }
    assert_eq!(Lateness::default().buckets().map(|(_, count)| count).sum::<u64>(), 0);
}
