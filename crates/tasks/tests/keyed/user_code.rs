//! User code in hashes, comparisons and drops: it panics, or calls the map.

use crate::support::{HOUR, Log, MS, within_patience};
use crate::{SECOND, assert_empty, driven, ms};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tourbillon_tasks::IfPresent;
use tourbillon_tasks::keyed::{DueKey, Keyed};

/// A key whose hash or comparison panics if the test has set the key's switches (`Thorns`) to panic.
#[derive(Clone, Debug)]
struct Thorny(u64, Arc<Thorns>);

#[derive(Debug, Default)]
struct Thorns {
    hash: AtomicBool,
    eq: AtomicBool,
}

impl PartialEq for Thorny {
    fn eq(&self, other: &Self) -> bool {
        if self.1.eq.load(Ordering::Relaxed) {
            resume_unwind(Box::new("eq"));
        }
        self.0 == other.0
    }
}

impl Eq for Thorny {}

impl Hash for Thorny {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.1.hash.load(Ordering::Relaxed) {
            resume_unwind(Box::new("hash"));
        }
        // All keys have one of two hashes, so that they are compared with each other.
        (self.0 % 2).hash(state);
    }
}

/// If a key's hash or comparison panics, the call that used the key panics. The map stays whole, and no lock stays
/// locked.
#[test]
fn keys_whose_hash_or_comparison_panics_cost_the_call_that_used_them() {
    within_patience(|| {
        let (mut tasks, thorns) = (driven(), Arc::new(Thorns::default()));
        let key = |n| Thorny(n, Arc::clone(&thorns));
        let values = Arc::new(());
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let keyed = tasks.handle().keyed(move |_: DueKey<'_, Thorny, Arc<()>>| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        for n in 0..10 {
            keyed.schedule(key(n), MS, Arc::clone(&values)).unwrap();
        }
        for thorn in [&thorns.hash, &thorns.eq] {
            thorn.store(true, Ordering::Relaxed);
            let panics = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
            panics(&|| drop(keyed.schedule(key(1), MS, Arc::clone(&values))));
            panics(&|| drop(keyed.cancel(&key(1))));
            panics(&|| assert!(keyed.reschedule(&key(1), HOUR).is_err()));
            panics(&|| assert!(keyed.contains(&key(1))));
            thorn.store(false, Ordering::Relaxed);
        }
        assert_eq!((keyed.len(), tasks.handle().stats().pending, Arc::strong_count(&values)), (10, 10, 11));
        drop(keyed.cancel(&key(1)).expect("it is there"));
        tasks.advance(SECOND);
        assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&values)), (9, 1));
        assert_empty(&keyed, &mut tasks);
    });
}

/// The hash of a key panics when the key's timer looks its entry up. The engine counts the panic, and the entry stays
/// until it is cancelled.
#[test]
fn a_key_whose_hash_panics_when_it_is_due_can_still_be_cancelled() {
    let (mut tasks, thorns) = (driven(), Arc::new(Thorns::default()));
    let keyed = tasks.handle().keyed(|_: DueKey<'_, Thorny, u64>| {});
    let key = Thorny(1, Arc::clone(&thorns));
    keyed.schedule(key.clone(), MS, 7).unwrap();
    thorns.hash.store(true, Ordering::Relaxed);
    tasks.advance(MS);
    thorns.hash.store(false, Ordering::Relaxed);
    assert_eq!((tasks.handle().stats().total.panics, tasks.handle().stats().pending), (1, 0));
    assert_eq!((keyed.cancel(&key), keyed.schedule(key, MS, 8).unwrap()), (Some(7), None));
    tasks.advance(MS);
    assert_empty(&keyed, &mut tasks);
}

/// A value or a key uses its own map in its drop. This works in every call that drops values or keys.
#[test]
fn nothing_of_the_users_is_dropped_under_a_lock() {
    struct Returns(u64, Arc<OnceLock<Keyed<u64, Returns>>>, Log<u64>);
    impl Drop for Returns {
        fn drop(&mut self) {
            let keyed = self.1.get().expect("it is there");
            assert!(!keyed.contains(&1_000));
            drop(keyed.cancel(&(self.0 + 1)));
            self.2.push(self.0);
        }
    }
    within_patience(|| {
        let (mut tasks, place, log) = (driven(), Arc::new(OnceLock::new()), Log::new());
        let keyed = tasks.handle().keyed(|due: DueKey<'_, u64, Returns>| drop(due.value));
        place.set(keyed.clone()).ok().unwrap();
        let schedule = |n: u64| keyed.schedule(n, MS, Returns(n, Arc::clone(&place), log.clone())).unwrap();
        for n in 0..20 {
            assert!(schedule(n).is_none());
        }
        // Each drop cancels the next key.
        drop(keyed.cancel(&10));
        assert_eq!(log.take_sorted(), (10..20).collect::<Vec<u64>>());
        drop(schedule(5));
        assert_eq!(log.take_sorted(), [5, 6, 7, 8, 9]);
        drop(
            keyed
                .schedule_at(IfPresent::Keep, 0, ms(1), Returns(0, Arc::clone(&place), log.clone()))
                .unwrap(),
        );
        assert_eq!(log.take_sorted(), [0, 1, 2, 3, 4, 5]);
        drop(schedule(2));
        tasks.advance(MS);
        assert_eq!(keyed.len(), 0);
        drop(keyed.drain());
        assert_eq!(log.take_sorted(), [0, 2]);
    });
}
