//! Keeps the queues from which receivers fetch timers by long polls.
//!
//! A due timer goes to the receiver of its queue that has waited longest. If no receiver waits, the timer is *parked*:
//! it stays in the store without a delivery. A new receiver *unparks* timers, up to the number that it asks for: it
//! makes them due again. The receiver's hold on a timer is a *claim*. While a claim is open, the timer's handler keeps
//! the timer's lease. The claim ends when the receiver acknowledges or refuses the timer, or when it expires.
//!
//! ```text
//!   timer is due ── a receiver waits ──► open claim ── ack ──► done
//!       │    ▲                            │   │  └──── nack, time over ──► failed: again after the pause
//!       │    └───── unpark ◄──────┐       │   ├─── nack with `snooze_ms` ──► due again later, not as a failure
//!       │                         │       │   └─── renew: more time, up to an hour in all
//!       └── none waits ──► parked ┴───────┘ the receiver has gone before it got the claim; the service stops
//! ```
//!
//! A stop of the service ends all open claims. A timer that its receiver has got is parked, too, and so another
//! receiver may get it. If the timer is delivered at most once, it has failed instead.
//!
//! # Beside other nodes
//! The timers of a queue are parked in the shards of all nodes. So a new receiver makes its node *fetch* timers: the
//! node claims them at any node ([`Timers::fetch`](tourbillon_durable::Timers::fetch)). A park at any node makes the
//! nodes with receivers fetch again.
//!
//! If many timers are parked, a fetch takes more timers than the receivers ask for, because a larger fetch costs the
//! server less for each timer. The timers of a fetch arrive in any order, so each enters the queue's *buffer* first.
//! Once all have arrived, the timers with the earliest due moments are woken for the receivers, and the others wait for
//! the next receivers. If one of them does not arrive within 100 ms, the others do not wait for it any longer. After a
//! second, a timer in the buffer is parked again, with those that are due later. A receiver that does not want to wait
//! gets an empty answer as soon as a fetch has found nothing.
//!
//! ```text
//!   fetched ──► buffer ── all have arrived, and a receiver waits ──► open claim
//!                │  ▲                                                   │
//!                │  └── another timer was quicker, or the receiver has gone
//!                └───── after a second, or the service stops ──► parked, reported to all nodes
//! ```
//!
//! A timer enters the buffer and wakes the first timers in it under one lock. So while a receiver waits, timers stay in
//! the buffer only if further timers of their fetch are on their way, or if enough other timers are about to be handed
//! over. If one of those timers cannot be handed over, it wakes the first timer in the buffer.
//!
//! # The end of a claim
//! The requests `ack` and `nack` are answered once the store has the end of the delivery. Until then the claim is
//! *ending*:
//!
//! ```text
//!   open ── ack, nack ──► ending ── the store has this end ──► answered: done
//!                           │  ├─── the lease was lost, or another end came first ──► answered: the claim had ended
//!                           │  ├─── the store did not answer ──► answered: the outcome is not known
//!                           │  └─── the handler was dropped ──► this process has no such claim
//!                           └── the same end again ──► waits for the same answer; another end: the claim has ended
//! ```
//!
//! After 8 s the request is answered with an unknown outcome. The claim stays in the state *ending*.
//!
//! # Timers at most once
//! A timer that is delivered at most once leaves the store when a receiver is about to get it. The receiver's poll asks
//! the timer's handler to have the timer removed, and answers the receiver after the removal (`ClaimRequest::Remove`).
//!
//! | before the receiver has the timer | the timer |
//! |---|---|
//! | the receiver goes away before the removal, or the service stops before it | is parked |
//! | the service stops during the removal | goes to the receiver after the removal, and its claim has ended |
//! | the receiver goes away during the removal, or the removal takes longer than 5 s | is lost, or is parked if the store has not removed it |
//! | the store does not remove the timer | becomes due again after a pause |
//! | the timer was cancelled or replaced, or its lease was lost | the receiver does not get it |
//!
//! The receiver gets all its timers after the last removal. So a removal that waits, for example for a server that does
//! not answer, holds up the others by up to 5 s. A receiver that goes away in this time loses those that were removed.
//! If it has got no timer after the removals, it waits on.
//!
//! # Shares
//! Each namespace may have only a part ([`Shares`](crate::share::Shares)) of the open claims and of the waiting
//! receivers.
//!
//! If a new receiver comes while a timer is about to be parked, no wake-up is lost: see
//! [`ParkedIndex`](super::parked_index).
//!
//! # Parts
//! | part | its state |
//! |---|---|
//! | `Receivers` | the receivers that wait at each queue, the timers on their way, the receivers of each namespace |
//! | `Buffers` | the fetched timers that wait for a receiver, and the number of fetched timers that have not arrived |
//! | `OpenClaims` | the open claims, their number by namespace, the queues whose namespace could not open more claims |
//! | `Endings` | the claims whose ends are on their way to the store |
//!
//! [`PullQueues`] keeps the first three parts under one lock. At any time a timer is in only one part: it counts as
//! coming or arriving, waits in the buffer, or has an open claim. `Endings` has its own lock, which is taken last.

mod arrival;
mod buffers;
mod claim;
mod coming;
mod endings;
mod open_claims;
mod poll;
mod queues;
mod receivers;
#[cfg(test)]
mod tests;

pub(crate) use claim::OpenClaim;
pub(super) use endings::ended;
pub(crate) use endings::{ClaimVerdict, EndTicket};
pub(crate) use open_claims::ClaimRequest;
pub(crate) use poll::unanswered;
pub(crate) use queues::PullQueues;
