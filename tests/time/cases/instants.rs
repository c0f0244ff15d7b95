//! `Instant`: its arithmetic, its conversions and the present.

use super::time::{self, Duration, Instant};
use super::{NANO, SECOND, panic_of};
use crate::support::{HOUR, MS};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::time::Instant as StdInstant;

#[test]
fn an_instant_converts_to_the_standard_librarys_and_back() {
    let std = StdInstant::now();
    let instant = Instant::from_std(std);
    assert_eq!((instant.into_std(), Instant::from(std)), (std, instant));
    assert_eq!(StdInstant::from(instant), std);
    let (converted, back): (Instant, StdInstant) = (std.into(), instant.into());
    assert_eq!((converted, back), (instant, std));
    assert_eq!(format!("{instant:?}"), format!("{std:?}"));
}

#[test]
fn outside_of_a_runtime_the_present_is_that_of_the_standard_library() {
    let before = StdInstant::now();
    let now = Instant::now().into_std();
    assert!(before <= now && now <= StdInstant::now());
}

#[tokio::test]
async fn in_a_runtime_that_was_never_paused_the_present_is_that_of_the_standard_library() {
    let before = StdInstant::now();
    let now = Instant::now().into_std();
    assert!(before <= now && now <= StdInstant::now());
}

#[test]
fn the_time_between_two_instants_is_never_negative() {
    let earlier = Instant::now();
    let later = earlier + 3 * SECOND;
    assert_eq!((later - earlier, earlier - later), (3 * SECOND, Duration::ZERO));
    assert_eq!((later.duration_since(earlier), earlier.duration_since(later)), (3 * SECOND, Duration::ZERO));
    assert_eq!(later.saturating_duration_since(earlier), 3 * SECOND);
    assert_eq!(earlier.saturating_duration_since(later), Duration::ZERO);
    assert_eq!(later.checked_duration_since(earlier), Some(3 * SECOND));
    assert_eq!(earlier.checked_duration_since(later), None);
    assert_eq!(earlier.checked_duration_since(earlier), Some(Duration::ZERO));
}

#[test]
fn instants_add_and_subtract_durations() {
    let now = Instant::now();
    let mut moved = now;
    moved += HOUR;
    assert_eq!((moved, moved - HOUR, now.checked_add(HOUR)), (now + HOUR, now, Some(moved)));
    moved -= HOUR - NANO;
    assert_eq!((moved, moved.checked_sub(NANO)), (now + NANO, Some(now)));
    assert_eq!((now.checked_add(Duration::MAX), now.checked_sub(Duration::MAX)), (None, None));
}

#[test]
fn an_instant_beyond_the_last_panics() {
    let now = Instant::now();
    let added = panic_of(|| now + Duration::MAX);
    assert_eq!(added.text, "overflow when adding duration to instant");
    let subtracted = panic_of(|| now - Duration::MAX);
    assert_eq!(subtracted.text, "overflow when subtracting duration from instant");
    let mut moved = now;
    assert_eq!(panic_of(|| moved += Duration::MAX).text, added.text);
    assert_eq!(panic_of(|| moved -= Duration::MAX).text, subtracted.text);
}

#[test]
fn instants_are_ordered_and_hashed() {
    let now = Instant::now();
    let instants = [now - NANO, now, now + NANO, now + HOUR];
    assert!(instants.is_sorted());
    assert_eq!(now.cmp(&(now + NANO)), Ordering::Less);
    assert_eq!(now.partial_cmp(&now), Some(Ordering::Equal));
    assert_eq!(instants.into_iter().max(), Some(now + HOUR));
    assert_eq!(instants.into_iter().chain(instants).collect::<HashSet<_>>().len(), instants.len());
}

#[tokio::test(start_paused = true)]
async fn an_instant_says_the_time_since_it() {
    let now = Instant::now();
    let (earlier, later) = (now - MS, now + MS);
    assert_eq!((earlier.elapsed(), now.elapsed(), later.elapsed()), (MS, Duration::ZERO, Duration::ZERO));
    time::sleep(SECOND).await;
    assert_eq!((earlier.elapsed(), later.elapsed()), (SECOND + MS, SECOND - MS));
    let woken = Instant::now();
    assert_eq!((woken.checked_duration_since(now), now.checked_duration_since(woken)), (Some(SECOND), None));
}
