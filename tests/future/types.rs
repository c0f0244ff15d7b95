//! The traits and sizes of the futures' types. Most of this is checked by compiling.

use std::cell::Cell;
use std::error::Error;
use std::fmt::Debug;
use std::future::Ready;
use std::marker::{PhantomData, PhantomPinned};
use std::rc::Rc;
use tourbillon::future::{
    Elapsed, Interval, ReusableTimeout, ShutDown, Sleep, Timeout, Wakeup, Within, ZeroPeriod,
};
use tourbillon::{DrivenEngine, Engine, Handle, Missed};

/// Shows whether a type has a trait. A generic function cannot show this.
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

type NotSync = Ready<Cell<u8>>;
type NotSend = Ready<Rc<u8>>;

#[test]
fn sleeps_and_intervals_go_anywhere() {
    fn anywhere<T: Send + Sync + Unpin + Debug + 'static>() {}
    anywhere::<Sleep>();
    anywhere::<Interval>();
    anywhere::<ReusableTimeout>();
    anywhere::<Timeout<Ready<()>>>();
    anywhere::<Within<'static, Ready<()>>>();
    anywhere::<Handle<Wakeup>>();
    anywhere::<Engine<Wakeup>>();
    fn sendable<T: Send + Debug + 'static>() {}
    sendable::<DrivenEngine<Wakeup>>();
    sendable::<Wakeup>();
}

#[test]
fn timeouts_are_what_their_futures_are() {
    const { assert!(Is::<Timeout<Ready<u8>>>::SYNC) };
    const { assert!(Is::<Timeout<NotSync>>::SEND && !Is::<Timeout<NotSync>>::SYNC) };
    const { assert!(Is::<Within<'_, NotSync>>::SEND && !Is::<Within<'_, NotSync>>::SYNC) };
    const { assert!(!Is::<Timeout<NotSend>>::SEND && !Is::<Within<'_, NotSend>>::SEND) };
    const { assert!(Is::<Timeout<NotSend>>::UNPIN && !Is::<Timeout<PhantomPinned>>::UNPIN) };
    const { assert!(Is::<Within<'_, NotSend>>::UNPIN && !Is::<Within<'_, PhantomPinned>>::UNPIN) };
}

#[test]
fn errors_are_errors_and_values() {
    fn error<T: Error + Copy + Eq + Send + Sync + Unpin + 'static>() {}
    error::<Elapsed>();
    error::<ShutDown>();
    error::<ZeroPeriod>();
    fn value<T: Copy + Eq + Debug + Send + Sync + 'static>() {}
    value::<Missed>();
}

#[test]
fn futures_of_async_functions_may_be_spawned() {
    fn spawn<F: Future + Send + 'static>(_: &F) {}
    async fn all(mut interval: Interval, mut timeout: ReusableTimeout, sleep: Sleep) {
        interval.tick().await;
        let _ = timeout.timeout(interval.period(), sleep).await;
    }
    let engine = crate::tasks::driven();
    let period = std::time::Duration::from_millis(1);
    spawn(&all(
        engine.handle().interval(period).unwrap(),
        engine.handle().reusable_timeout(),
        engine.handle().sleep(period),
    ));
}
