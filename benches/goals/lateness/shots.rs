//! What handlers note, and what it says.

use crate::common::Payload;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One firing, as its handler saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shot {
    /// What was asked for, in ns on the contestant's clock.
    deadline: u64,
    /// Negative when it was early.
    lateness: i64,
    number: u32,
    /// What the contestant said of it, in ns.
    reported: Option<u32>,
}

type Page = Arc<Mutex<Vec<Shot>>>;

thread_local! {
    /// Where this thread's handlers write. A process has one log.
    static PAGE: OnceCell<Page> = const { OnceCell::new() };
}

/// A page for each thread that runs handlers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pages: Arc<Mutex<Vec<Page>>>,
    capacity: usize,
}

impl Log {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { pages: Arc::default(), capacity }
    }

    #[inline]
    pub(crate) fn note(&self, [deadline, number]: Payload, now: u64, reported: Option<Duration>) {
        let shot = Shot {
            deadline,
            lateness: now.wrapping_sub(deadline).cast_signed(),
            number: u32::try_from(number).unwrap_or(u32::MAX),
            reported: reported.map(|lateness| u32::try_from(lateness.as_nanos()).unwrap_or(u32::MAX)),
        };
        PAGE.with(|page| lock(page.get_or_init(|| self.new_page())).push(shot));
    }

    #[cold]
    fn new_page(&self) -> Page {
        let page = Arc::new(Mutex::new(Vec::with_capacity(self.capacity)));
        lock(&self.pages).push(Arc::clone(&page));
        page
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.pages).iter().map(|page| lock(page).len()).sum()
    }

    pub(crate) fn take(&self) -> Vec<Shot> {
        lock(&self.pages).iter().flat_map(|page| std::mem::take(&mut *lock(page))).collect()
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Deadlines that are looked at together, by the contestant's clock.
const BUCKET: u64 = 64_000_000;
/// Buckets to a slot of the second level: the first of them comes after a boundary.
const BUCKETS_PER_BOUNDARY: u64 = 4;

/// Percentiles in ms, of all and by due time, after checking that each timer fired once.
pub(crate) fn analyse(shots: Vec<Shot>, count: usize) -> Value {
    let mut fired = vec![false; count];
    let mut all = histogram();
    let mut reported = histogram();
    let mut early = 0;
    let mut buckets = BTreeMap::new();
    for shot in shots {
        let fired = &mut fired[shot.number as usize];
        assert!(!std::mem::replace(fired, true), "timer {} fired twice", shot.number);
        early += u64::from(shot.lateness < 0);
        let lateness = u64::try_from(shot.lateness).unwrap_or(0);
        all.saturating_record(lateness);
        buckets.entry(shot.deadline / BUCKET).or_insert_with(histogram).saturating_record(lateness);
        if let Some(lateness) = shot.reported {
            reported.saturating_record(u64::from(lateness));
        }
    }
    assert!(fired.iter().all(|&fired| fired), "a timer never fired");

    let worst = |after_boundary: bool| {
        let chosen = buckets
            .iter()
            .filter(|(number, _)| !after_boundary || number.is_multiple_of(BUCKETS_PER_BOUNDARY));
        chosen.map(|(_, lateness)| millis(lateness.max())).max_by(f64::total_cmp)
    };
    let mut maxima: Vec<f64> = buckets.values().map(|lateness| millis(lateness.max())).collect();
    maxima.sort_unstable_by(f64::total_cmp);
    let by_due_time: Vec<Value> = buckets
        .iter()
        .map(|(number, lateness)| {
            json!({
                "due_ms": number * BUCKET / 1_000_000,
                "timers": lateness.len(),
                "p50": millis(lateness.value_at_quantile(0.5)),
                "p99": millis(lateness.value_at_quantile(0.99)),
                "p999": millis(lateness.value_at_quantile(0.999)),
                "max": millis(lateness.max()),
            })
        })
        .collect();
    json!({
        "early": early,
        "p50": millis(all.value_at_quantile(0.5)),
        "p99": millis(all.value_at_quantile(0.99)),
        "p999": millis(all.value_at_quantile(0.999)),
        "max": millis(all.max()),
        "reported_p999": (!reported.is_empty()).then(|| millis(reported.value_at_quantile(0.999))),
        "worst_bucket": worst(false),
        "worst_boundary": worst(true),
        "median_bucket": maxima.get(maxima.len() / 2),
        "by_due_time": by_due_time,
    })
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds")
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 * 1e-6
}
