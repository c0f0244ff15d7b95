//! The queues from which receivers fetch timers by long polls.
//!
//! A timer with a queue goes to the receiver that has waited longest, and is parked if no receiver waits. When a
//! receiver comes, parked timers are unparked, as many as the receiver asks for. After the hand-over, the future of the
//! handler keeps the timer's lease until the receiver acknowledges or refuses the timer, or its time is over.
//!
//! ```text
//!   timer is due ── a receiver waits ──► open claim ── ack ──► done
//!       │    ▲                            │   │  └──── nack, time over ──► failed: again after the pause
//!       │    └───── unpark ◄──────┐       │   └─── renew: more time, up to an hour in all
//!       └── none waits ──► parked ┴───────┘ the receiver has gone before it got the claim; the service stops
//! ```
//!
//! # Beside other nodes
//! The timers of a queue are parked in shards of all nodes. So a new receiver has them *fetched*: the queue claims them
//! at any node ([`Timers::fetch`](tourbillon_durable::Timers::fetch)), and a park at any node makes the nodes with
//! receivers fetch again. A fetch takes more than the receivers ask for if many timers are parked, since a larger fetch
//! costs the server less for each timer. A fetched timer without a receiver waits in the queue's *buffer* for the next
//! receiver, the longest due first, and is parked again after a second. A receiver that does not want to wait is sent
//! away as soon as a fetch has found nothing.
//!
//! ```text
//!   fetched ── a receiver waits ──► open claim
//!      │                             ▲   │ another timer was quicker, or the receiver has gone
//!      │                             │   ▼
//!      └─────── none waits ────────► buffer ── a second is over, the service stops ──► parked: all nodes learn
//! ```
//!
//! Under one lock, a timer looks for a receiver and otherwise enters the buffer. So a timer waits in the buffer beside
//! a receiver only if enough other timers are about to be handed over to it. If such another timer goes away instead,
//! it wakes the first timer in the buffer.
//!
//! # The end of a claim
//! An `ack` and a `nack` are answered once the store has the end of the delivery. The claim is *ending* until then:
//!
//! ```text
//!   open ── ack, nack ──► ending ── the store has this end ──► answered: done
//!                           │  ├─── the lease was lost, or another end came first ──► answered: the claim had ended
//!                           │  ├─── the store did not answer ──► answered: the outcome is not known
//!                           │  └─── the handler was dropped ──► this process has no such claim
//!                           └── the same end again ──► waits for the same answer; another end: the claim has ended
//! ```
//!
//! A caller that has waited for 8 s gets the answer that the outcome is not known. The end goes on.
//!
//! # Shares
//! A namespace has a share ([`free_for`](crate::share::free_for)) of the open claims and of the receivers that wait.
//!
//! No wake-up is lost between a timer that is about to be parked and a new receiver: see
//! [`ParkedIndex`](super::parked_index).
//!
//! # Parts
//! | part | its state |
//! |---|---|
//! | `Receivers` | the receivers that wait at each queue, the timers on their way to them, the receivers of each namespace |
//! | `Buffers` | the fetched timers that wait for a receiver, and the number of those that have not come |
//! | `OpenClaims` | the open claims, their number by namespace, the queues that could not get more |
//! | `Endings` | the claims whose ends are on their way to the store |
//!
//! [`PullQueues`] has the first three under one lock. A timer is in one place at a time: counted as coming or arriving,
//! in the buffer, or under an open claim. `Endings` has a lock of its own, which is taken last.

mod arrival;
mod buffers;
mod claim;
mod coming;
mod endings;
mod open_claims;
mod poll;
mod queues;
mod receivers;
mod tally;
#[cfg(test)]
mod tests;

pub(crate) use claim::OpenClaim;
pub(crate) use endings::EndTicket;
pub(super) use endings::ended;
pub(crate) use open_claims::ClaimRequest;
pub(crate) use queues::PullQueues;
