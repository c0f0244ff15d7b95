//! What the service remembers of its work, for people and for machines that look after it. All of it is bounded, and no
//! answer is made by counting timers.
//!
//! ```text
//!   deliveries ── started, answered ──┐
//!   durable's loop ── events ─────────┼─► flights ─► pasts        the attempts of single timers
//!   changes ── cancelled, replaced ───┘      ├─────► tally        numbers and histograms for machines
//!                                            └─────► seconds      lateness by the second of the minute
//!   callbacks ── answers ────────────────────► endpoints          the hosts of callbacks
//!   changes ── errors ───────────────────────► refusals           what the store refuses for reasons of its own
//!   a task, every ten seconds ───────────────► history ─► file    72 hours, over restarts
//! ```

mod by_word;
mod endpoints;
mod flights;
mod histogram;
mod history;
mod pasts;
mod refusals;
mod seconds;
mod tally;
mod tenants;
mod timed;

pub(crate) use endpoints::{Endpoints, MOST_HOSTS, Met, Sent};
pub(crate) use flights::{Answered, Flights, GONE};
pub(crate) use history::{History, INTERVAL, Sample, Totals};
pub(crate) use pasts::{Entry, Known};
pub(crate) use refusals::Refusals;
pub(crate) use tally::{BOUNDS, Histogram, Tally};
pub(crate) use tenants::Tenants;
pub(crate) use timed::{Timed, Times, Timing};

/// A text's first bytes, as one line.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
