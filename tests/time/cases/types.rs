//! The names of the module, the signatures of its functions and the traits of its types, checked by compiling.

use super::super::MUST_BE_PINNED;
use super::time::error::{Elapsed, Error as TimeError};
use super::time::{
    Duration, Instant, Interval, MissedTickBehavior, Sleep, Timeout, advance, interval, interval_at, pause,
    resume, sleep, sleep_until, timeout, timeout_at,
};
use crate::support::MS;
use std::error::Error;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::hash::Hash;
use std::io;
use std::marker::{PhantomData, PhantomPinned};
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Shows whether a type has a trait. A generic function could only demand the trait.
struct Is<T>(PhantomData<T>);

macro_rules! ask {
    ($($question:ident $otherwise:ident $bound:path;)*) => { $(
        trait $otherwise {
            const $question: bool = false;
        }
        impl<T> $otherwise for Is<T> {}
        impl<T: $bound> Is<T> {
            const $question: bool = true;
        }
    )* };
}

ask! {
    SEND OtherwiseSend Send;
    SYNC OtherwiseSync Sync;
    UNPIN OtherwiseUnpin Unpin;
}

type Local = Pin<Box<dyn Future<Output = ()>>>;
type Sent = Pin<Box<dyn Future<Output = ()> + Send>>;
type Shared = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

#[test]
fn the_functions_have_their_signatures() {
    let _: fn(Duration) -> Sleep = sleep;
    let _: fn(Instant) -> Sleep = sleep_until;
    let _: fn(Duration, Ready<u8>) -> Timeout<Ready<u8>> = timeout;
    let _: fn(Instant, Ready<u8>) -> Timeout<Ready<u8>> = timeout_at;
    let _: fn(Duration) -> Interval = interval;
    let _: fn(Instant, Duration) -> Interval = interval_at;
    let _: [fn(); 2] = [pause, resume];
    fn nothing<F: Future<Output = ()>>(_: fn(Duration) -> F) {}
    nothing(advance);
}

#[test]
fn the_methods_have_their_signatures() {
    let _: fn(&Sleep) -> Instant = Sleep::deadline;
    let _: fn(&Sleep) -> bool = Sleep::is_elapsed;
    let _: fn(Pin<&mut Sleep>, Instant) = Sleep::reset;
    let _: fn(&Timeout<Ready<u8>>) -> &Ready<u8> = Timeout::get_ref;
    let _: fn(&mut Timeout<Ready<u8>>) -> &mut Ready<u8> = Timeout::get_mut;
    let _: fn(Timeout<Ready<u8>>) -> Ready<u8> = Timeout::into_inner;
    let _: fn(&mut Interval, &mut Context<'_>) -> Poll<Instant> = Interval::poll_tick;
    let _: [fn(&mut Interval); 2] = [Interval::reset, Interval::reset_immediately];
    let _: fn(&mut Interval, Duration) = Interval::reset_after;
    let _: fn(&mut Interval, Instant) = Interval::reset_at;
    let _: fn(&Interval) -> Duration = Interval::period;
    let _: fn(&Interval) -> MissedTickBehavior = Interval::missed_tick_behavior;
    let _: fn(&mut Interval, MissedTickBehavior) = Interval::set_missed_tick_behavior;
    let _: fn() -> Instant = Instant::now;
    let _: fn(std::time::Instant) -> Instant = Instant::from_std;
    let _: fn(Instant) -> std::time::Instant = Instant::into_std;
    let _: fn(&Instant) -> Duration = Instant::elapsed;
    let _: [fn(&Instant, Instant) -> Duration; 2] =
        [Instant::duration_since, Instant::saturating_duration_since];
    let _: fn(&Instant, Instant) -> Option<Duration> = Instant::checked_duration_since;
    let _: [fn(&Instant, Duration) -> Option<Instant>; 2] = [Instant::checked_add, Instant::checked_sub];
}

#[test]
fn the_policies_can_be_named_and_matched() {
    for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let name = match behavior {
            MissedTickBehavior::Burst => "Burst",
            MissedTickBehavior::Delay => "Delay",
            MissedTickBehavior::Skip => "Skip",
        };
        assert_eq!(format!("{behavior:?}"), name);
    }
}

#[test]
fn the_types_have_their_traits() {
    fn anywhere<T: Send + Sync + Debug + 'static>() {}
    fn unpinned<T: Unpin>() {}
    fn future<F: Future<Output = O>, O>() {}
    fn error<T: Error + Send + Sync + Unpin + 'static>() {}
    fn moment<T: Copy + Ord + Hash + From<std::time::Instant> + Into<std::time::Instant>>() {}
    fn counts<T>()
    where
        T: Add<Duration, Output = T> + AddAssign<Duration>,
        T: Sub<Duration, Output = T> + SubAssign<Duration> + Sub<Output = Duration>,
    {
    }
    anywhere::<Sleep>();
    anywhere::<Timeout<Ready<u8>>>();
    anywhere::<Interval>();
    unpinned::<Interval>();
    unpinned::<Pin<Box<Sleep>>>();
    future::<Sleep, ()>();
    future::<Timeout<Ready<u8>>, Result<u8, Elapsed>>();
    error::<Elapsed>();
    error::<TimeError>();
    fn value<T: Copy + Eq + Default + Send + Sync + Unpin + Debug>() {}
    value::<MissedTickBehavior>();
    fn kept<T: Eq + Into<io::Error>>() {}
    kept::<Elapsed>();
    moment::<Instant>();
    anywhere::<Instant>();
    unpinned::<Instant>();
    counts::<Instant>();
}

#[test]
fn a_timeout_crosses_threads_as_its_future_does() {
    const { assert!(Is::<Timeout<Shared>>::SEND && Is::<Timeout<Shared>>::SYNC) };
    const { assert!(Is::<Timeout<Sent>>::SEND && !Is::<Timeout<Sent>>::SYNC) };
    const { assert!(!Is::<Timeout<Local>>::SEND && !Is::<Timeout<Local>>::SYNC) };
}

#[test]
fn an_interval_need_not_be_pinned() {
    const { assert!(Is::<Interval>::UNPIN && !Is::<PhantomPinned>::UNPIN) };
    const { assert!(Is::<Sleep>::UNPIN != MUST_BE_PINNED) };
    const { assert!(Is::<Timeout<Shared>>::UNPIN != MUST_BE_PINNED) };
}

#[test]
fn sleeps_and_timeouts_must_be_used() {
    #[expect(unused_must_use, reason = "the compiler complains")]
    fn a_sleep_is_forgotten() {
        sleep(MS);
    }
    #[expect(unused_must_use, reason = "the compiler complains")]
    fn a_timeout_is_forgotten() {
        timeout(MS, ready(17));
    }
    let _never_called: [fn(); 2] = [a_sleep_is_forgotten, a_timeout_is_forgotten];
}

#[tokio::test(start_paused = true)]
async fn the_futures_of_async_functions_cross_threads() {
    fn crosses<F: Future + Send + Sync>(future: F) -> F {
        future
    }
    crosses(advance(MS)).await;
    crosses(interval(MS).tick()).await;
    crosses(async {
        sleep(MS).await;
        timeout(MS, ready(17)).await
    })
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_types_say_their_names() {
    assert!(format!("{:?}", sleep(MS)).contains("Sleep"));
    assert!(format!("{:?}", timeout(MS, ready(17))).contains("Timeout"));
    assert!(format!("{:?}", interval(MS)).contains("Interval"));
}

#[test]
fn the_error_of_a_timer_says_its_kind() {
    let kinds = [TimeError::shutdown(), TimeError::at_capacity(), TimeError::invalid()];
    let said = kinds.map(|error| (error.is_shutdown(), error.is_at_capacity(), error.is_invalid()));
    assert_eq!(said, [(true, false, false), (false, true, false), (false, false, true)]);
    let texts = [
        "the timer is shutdown, must be called from the context of Tokio runtime",
        "timer is at capacity and cannot create a new entry",
        "timer duration exceeds maximum duration",
    ];
    assert_eq!(kinds.map(|error| error.to_string()), texts);
    let copy = kinds[0];
    assert!(copy.is_shutdown() && format!("{copy:?}").contains("Shutdown"));
}
