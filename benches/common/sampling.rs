//! The settings of Criterion for all benches. The book of benchmarks has the rest of this folder and does without
//! Criterion.

use criterion::Criterion;
use std::time::Duration;

pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .without_plots()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args()
}
