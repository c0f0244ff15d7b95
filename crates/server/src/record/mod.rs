//! Records the service's work for the people and programs that monitor it. All records are bounded. A report from these
//! records takes the same time for any number of stored timers.
//!
//! ```text
//!   deliveries ── started, answered ──┐
//!   durable's loop ── events ─────────┼─► in_flight ─► timer_history   the attempts of single timers
//!   changes ── cancelled, replaced ───┘      ├───────► metrics         numbers and histograms for machines
//!                                            ├───────► lateness        lateness by the second of the minute
//!   creations ── requests ───────────────────┴───────► idempotency     idempotency keys of the last hour
//!   callbacks ── answers ────────────────────► endpoints               the hosts of callbacks
//!   changes ── errors ───────────────────────► refusals                refusals for reasons of the store
//!   a task, every ten seconds ───────────────► history ─► file         72 hours, over restarts
//! ```

mod by_word;
mod endpoints;
mod history;
mod idempotency;
mod in_flight;
mod lateness;
mod metrics;
mod percentiles;
mod refusals;
mod tenants;
mod timed_store;
mod timer_history;

pub(crate) use endpoints::{Endpoints, MOST_HOSTS, Met, Sent};
pub(crate) use history::{History, INTERVAL, Sample};
pub(crate) use idempotency::{Entered, Idempotency, fingerprint};
pub(crate) use in_flight::{Answered, GONE, InFlight, LOST, MayBeRemoved, PERHAPS_LOST, is_lost};
pub(crate) use metrics::{Metrics, SharedTimes};
pub(crate) use refusals::Refusals;
pub(crate) use tenants::Tenants;
pub(crate) use timed_store::{StoreTimes, TimedStore, Timing};
pub(crate) use timer_history::{Entry, Known};
