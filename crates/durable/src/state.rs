//! Defines the states of a durable timer and all transitions between them. This module uses no store, no clock and no
//! threads.
//!
//! A store reads a timer, calls [`step`], and writes the result, in one transaction. [`TRANSITIONS`] lists the
//! transitions as data. The tests check that [`step`] permits exactly the listed transitions.
//!
//! ```text
//!               claim                          ack, skip
//!   pending ─────────────► leased ──────────────────────────────► done
//!    ▲ │ ▲                 │ │ │ │
//!    │ │ └─ fail, snooze, ─┘ │ │ └─ fail, snooze, expire, if the timer is given up ──► dead ── replay ──► pending
//!    │ │    release, expire  │ │
//!    │ └── park ──► parked ◄─┘ └─ all of these events except ack, if the timer was withdrawn ──► withdrawn
//!    └─ unpark, move ──┘  park
//!
//!   pending, parked, dead ── cancel, replace ──► withdrawn
//!   leased ── cancel, replace ──► leased, marked as withdrawn
//! ```
//!
//! # Invariants
//! D1. A timer is claimed only when it is due.
//! D2. Only the holder of the present lease can renew the lease or report the end of the delivery. The holder proves
//!     its right by the token of its claim. Holders of earlier leases are refused.
//! D3. A timer that was cancelled or replaced is not claimed afterwards.
//! D4. A failure is counted when it is reported. A delivery is counted by the claim. If the delivery ends with a
//!     snooze, a park or a release, the count is taken back. The expiry of a lease does not take the count back, even
//!     if the timer is delivered at most once and its delivery has not begun: the handler may have ended the process
//!     before that.
//! D5. A timer ends in exactly one way: done, dead, or withdrawn.

use crate::phase::PAUSED;
pub use crate::phase::{Death, DeathReason, Lease, Phase, State, Token, Withdrawal};
use crate::texts::without_zero_bytes;
use crate::timer::Timer;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use tourbillon_words::UtcMillis;

/// The longest possible lease. If a lease has more than this time left, it was made while the clock was ahead.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

/// An event that may change a timer's state.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A claimant wants to deliver the timer.
    Claim {
        /// The token of the claim, by which the holder is recognised later.
        token: Token,
        /// The moment at which the new lease ends.
        until: UtcMillis,
    },
    /// The holder of the lease renews the lease, because the delivery goes on.
    Renew {
        /// The token of the claim by which the holder got the lease.
        token: Token,
        /// The new end of the lease. A renewal does not shorten a lease: if the present end is later, the present end
        /// stays. The exception is a present end that is more than a day later than the new end. Such an end was set
        /// while the clock was ahead, so the new end replaces it.
        until: UtcMillis,
    },
    /// The delivery under the lease with this token succeeded.
    Ack(Token),
    /// The lease with this token ends without an answer of the handler, and no later delivery follows. Either the
    /// delivery is later than the timer's policy permits, or the timer is delivered at most once, and its only delivery
    /// begins.
    Skip(Token),
    /// The delivery under the lease with this token failed.
    Fail(Token, Failure),
    /// The handler that runs under the lease with this token puts the timer off until this moment. The delivery does
    /// not count as a failure.
    Snooze(Token, UtcMillis),
    /// The holder ends its lease early, because the handler has not begun or will not finish. The timer becomes pending
    /// again.
    Release(Token),
    /// The lease has expired, or its holder is gone.
    Expire,
    /// The user cancels or replaces the timer.
    Withdraw(Withdrawal),
    /// The timer is parked for this reason. A leased timer is parked by its holder, with the token of the lease. A
    /// pending timer is parked without a token.
    Park(Box<str>, Option<Token>),
    /// The timer is no longer parked, and becomes pending.
    Unpark,
    /// The user moves the timer's due moment to this moment. [`Timer::scheduled`] moves with it, unless the timer is an
    /// occurrence of a series or of a schedule.
    Move(UtcMillis),
    /// A dead timer is delivered again, as if it were new.
    Replay,
}

/// A failed delivery, as reported by its handler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The text of the error that the handler reported. [`step`] replaces the zero bytes of the text.
    pub error: Box<str>,
    /// The pause until the next delivery. `None` means the pause of the policy.
    pub retry_after: Option<Duration>,
    /// True if the handler reports that no later delivery can succeed. The timer is then dead.
    pub is_final: bool,
}

/// The result of an event: the timer stays stored, or it is removed.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it lives as long as one call")]
pub enum Next {
    /// The timer stays stored, with its new state.
    Stays(Timer),
    /// The timer has ended in this way, and is removed.
    Ends(End),
}

/// The way in which a removed timer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A delivery succeeded.
    Done,
    /// The timer ended without an answer of its handler: the delivery was too late, or the timer is delivered at most
    /// once, and its only delivery begins.
    Skipped,
    /// The timer was withdrawn for this reason.
    Withdrawn(Withdrawal),
}

/// The reason why an event cannot change a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The timer is in this phase, which does not permit the event.
    State(Phase),
    /// The claim came before the timer's due moment (invariant D1).
    NotDue,
    /// The timer has no lease with the event's token. The lease with this token was lost or has ended (invariant D2).
    Stale,
}

/// Returns the timer's lease. Fails if the timer has no lease with this token.
fn holder(timer: &Timer, token: Token) -> Result<Lease, Refusal> {
    match timer.state {
        State::Leased(lease) if lease.token == token => Ok(lease),
        _ => Err(Refusal::Stale),
    }
}

/// Returns a copy of the timer with this state instead of its own.
fn with(timer: &Timer, state: State) -> Timer {
    Timer { state, ..timer.clone() }
}

fn dead(timer: &Timer, reason: DeathReason, at: UtcMillis) -> Timer {
    // The store takes a dead occurrence out of its series, and the occurrence still keeps its instant.
    let age_from = timer.age_from.or(timer.series.as_ref().map(|_| timer.scheduled));
    Timer { age_from, ..with(timer, State::Dead(Death { reason, at })) }
}

/// Returns whether a delivery at the moment `due` would come after the greatest age that the timer's policy permits.
/// The age counts from the moment for which the timer is scheduled, or from [`Timer::age_from`].
fn is_too_old(timer: &Timer, due: UtcMillis) -> bool {
    let from = timer.age_from.unwrap_or(timer.scheduled);
    timer.policy.max_age.is_some_and(|age| due > from + age)
}

/// Computes the effect of an event on a timer at the moment `now`.
///
/// # Errors
///
/// Fails if the timer's state does not permit the event. The timer then stays unchanged.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::UtcMillis;
/// use tourbillon_durable::state::{End, Event, Next, Phase, Refusal, Token, step};
/// use tourbillon_durable::timer::{Timer, TimerId};
///
/// let due = UtcMillis::from_millis(1_000);
/// let timer = Timer::new(TimerId::fresh(), "mail", due);
/// let token = Token { incarnation: 1, claim: 1 };
/// let claim = Event::Claim { token, until: due + Duration::from_secs(30) };
/// assert!(matches!(step(&timer, claim.clone(), UtcMillis::ZERO), Err(Refusal::NotDue)), "it is not due");
/// let Ok(Next::Stays(leased)) = step(&timer, claim, due) else { panic!() };
/// assert_eq!(leased.state.phase(), Phase::Leased);
/// assert!(matches!(step(&leased, Event::Ack(token), due), Ok(Next::Ends(End::Done))));
/// ```
pub fn step(timer: &Timer, event: Event, now: UtcMillis) -> Result<Next, Refusal> {
    let wrong_state = Err(Refusal::State(timer.state.phase()));
    Ok(Next::Stays(match event {
        Event::Claim { token, until } => {
            if timer.state != State::Pending {
                return wrong_state;
            }
            if timer.due > now {
                return Err(Refusal::NotDue);
            }
            let lease = Lease { token, until, withdrawn: None };
            Timer { deliveries: timer.deliveries.saturating_add(1), ..with(timer, State::Leased(lease)) }
        }
        Event::Renew { token, until } => {
            let lease = holder(timer, token)?;
            let is_ahead = lease.until - until > LONGEST_LEASE;
            let until = if is_ahead { until } else { until.max(lease.until) };
            with(timer, State::Leased(Lease { until, ..lease }))
        }
        Event::Ack(token) => {
            // A withdrawn timer ends as done, too, because its delivery has succeeded.
            holder(timer, token)?;
            return Ok(Next::Ends(End::Done));
        }
        Event::Skip(token) => {
            // The delivery has not begun, so a withdrawal remains the reason for the end.
            return Ok(Next::Ends(withdrawn(holder(timer, token)?).unwrap_or(End::Skipped)));
        }
        Event::Fail(token, failure) => {
            if let Some(end) = withdrawn(holder(timer, token)?) {
                return Ok(Next::Ends(end));
            }
            fail(timer, failure, now)
        }
        Event::Snooze(token, due) => {
            if let Some(end) = withdrawn(holder(timer, token)?) {
                return Ok(Next::Ends(end));
            }
            if is_too_old(timer, due) {
                dead(timer, DeathReason::Age, now)
            } else {
                Timer { due, deliveries: timer.deliveries.saturating_sub(1), ..with(timer, State::Pending) }
            }
        }
        Event::Release(token) => {
            if let Some(end) = withdrawn(holder(timer, token)?) {
                return Ok(Next::Ends(end));
            }
            Timer { deliveries: timer.deliveries.saturating_sub(1), ..with(timer, State::Pending) }
        }
        Event::Expire => {
            let State::Leased(lease) = timer.state else { return wrong_state };
            if let Some(end) = withdrawn(lease) {
                return Ok(Next::Ends(end));
            }
            // An expired lease does not count as a failure. Without this limit, a timer whose handler kills the process
            // could be delivered forever. A handler may also kill the process before the only delivery of a timer
            // begins.
            if timer.deliveries >= timer.policy.deliveries.max(1) {
                dead(timer, DeathReason::Deliveries, now)
            } else if is_too_old(timer, now) {
                // The timer is due already, so its next delivery would begin now.
                dead(timer, DeathReason::Age, now)
            } else {
                with(timer, State::Pending)
            }
        }
        Event::Withdraw(withdrawal) => match timer.state {
            State::Leased(lease) => {
                // The holder keeps its lease, because the delivery may have begun and may still succeed.
                with(timer, State::Leased(Lease { withdrawn: Some(withdrawal), ..lease }))
            }
            _ => return Ok(Next::Ends(End::Withdrawn(withdrawal))),
        },
        Event::Park(reason, token) => match (&timer.state, token) {
            (State::Pending | State::Parked(_), None) => with(timer, State::Parked(reason)),
            (State::Leased(_), Some(token)) => {
                if let Some(end) = withdrawn(holder(timer, token)?) {
                    return Ok(Next::Ends(end));
                }
                Timer { deliveries: timer.deliveries.saturating_sub(1), ..with(timer, State::Parked(reason)) }
            }
            (_, Some(_)) => return Err(Refusal::Stale),
            _ => return wrong_state,
        },
        Event::Unpark => match timer.state {
            State::Parked(_) => with(timer, State::Pending),
            _ => return wrong_state,
        },
        Event::Move(due) => match &timer.state {
            state @ (State::Pending | State::Parked(_)) => {
                // An occurrence keeps its scheduled instant. The later instants of a series and their ids follow from
                // it, and the handler of a schedule's occurrence knows by it what the occurrence is for.
                let is_occurrence = timer.series.is_some() || timer.age_from.is_some();
                let scheduled = if is_occurrence { timer.scheduled } else { due };
                let age_from = timer.age_from.map(|_| due);
                // The reason of a parked timer holds up a delivery that is due. A timer that is not due waits for its
                // moment instead. Only a pause lasts.
                let is_paused = timer.series.as_ref().is_some_and(|series| series.paused)
                    || matches!(state, State::Parked(reason) if **reason == *PAUSED);
                let state = if due > now && !is_paused { State::Pending } else { state.clone() };
                Timer { due, scheduled, age_from, ..with(timer, state) }
            }
            _ => return wrong_state,
        },
        Event::Replay => match timer.state {
            State::Dead(_) => {
                // The greatest age of the policy counts from `scheduled` or from `age_from`, so this moment changes as
                // well.
                let age_from = timer.age_from.map(|_| now);
                let scheduled = if age_from.is_some() { timer.scheduled } else { now };
                let replayed =
                    Timer { due: now, scheduled, age_from, deliveries: 0, failures: 0, ..timer.clone() };
                with(&replayed, State::Pending)
            }
            _ => return wrong_state,
        },
    }))
}

/// Returns [`End::Withdrawn`] if the user has cancelled or replaced the timer during this lease. Otherwise returns
/// `None`.
fn withdrawn(lease: Lease) -> Option<End> {
    lease.withdrawn.map(End::Withdrawn)
}

fn fail(timer: &Timer, failure: Failure, now: UtcMillis) -> Timer {
    let Failure { error, retry_after, is_final } = failure;
    let failures = timer.failures.saturating_add(1);
    let last_error = Some(without_zero_bytes(error));
    let failed = Timer { failures, last_error, ..timer.clone() };
    // `next_pause` adds this failure itself, so it must get the timer from before the failure.
    let pause = retry_after.unwrap_or_else(|| timer.next_pause());
    let due = now + pause;
    // The policy's limit for deliveries does not apply here. It ends only timers whose deliveries got no answer.
    if is_final {
        dead(&failed, DeathReason::Refused, now)
    } else if failures >= timer.policy.attempts.max(1) {
        dead(&failed, DeathReason::Attempts, now)
    } else if is_too_old(timer, due) {
        dead(&failed, DeathReason::Age, now)
    } else {
        Timer { due, ..with(&failed, State::Pending) }
    }
}

/// The kind of an [`Event`], without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A claimant leases the timer ([`Event::Claim`]).
    Claim,
    /// The holder renews its lease ([`Event::Renew`]).
    Renew,
    /// The delivery succeeded ([`Event::Ack`]).
    Ack,
    /// The lease ends without an answer of the handler, and no later delivery follows ([`Event::Skip`]).
    Skip,
    /// The delivery failed ([`Event::Fail`]).
    Fail,
    /// The handler puts the timer off ([`Event::Snooze`]).
    Snooze,
    /// The holder ends its lease early ([`Event::Release`]).
    Release,
    /// The lease has expired, or its holder is gone ([`Event::Expire`]).
    Expire,
    /// The user cancels or replaces the timer ([`Event::Withdraw`]).
    Withdraw,
    /// The timer is parked for a reason ([`Event::Park`]).
    Park,
    /// The timer is no longer parked ([`Event::Unpark`]).
    Unpark,
    /// The user changes the due moment ([`Event::Move`]).
    Move,
    /// A dead timer is delivered again ([`Event::Replay`]).
    Replay,
}

impl Event {
    /// Returns the kind of the event.
    ///
    /// ```
    /// use tourbillon_durable::state::{Event, EventKind, TRANSITIONS};
    ///
    /// let kind = Event::Expire.kind();
    /// assert_eq!(kind, EventKind::Expire);
    /// assert!(TRANSITIONS.iter().any(|(_, event, _)| *event == kind));
    /// ```
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Claim { .. } => EventKind::Claim,
            Self::Renew { .. } => EventKind::Renew,
            Self::Ack(_) => EventKind::Ack,
            Self::Skip(_) => EventKind::Skip,
            Self::Fail(..) => EventKind::Fail,
            Self::Snooze(..) => EventKind::Snooze,
            Self::Release(_) => EventKind::Release,
            Self::Expire => EventKind::Expire,
            Self::Withdraw(_) => EventKind::Withdraw,
            Self::Park(..) => EventKind::Park,
            Self::Unpark => EventKind::Unpark,
            Self::Move(_) => EventKind::Move,
            Self::Replay => EventKind::Replay,
        }
    }
}

/// Lists all transitions of a timer: the phase before an event, the kind of the event, and the possible phases after
/// it. An event that is not listed for a phase is refused.
pub const TRANSITIONS: &[(Phase, EventKind, &[Phase])] = {
    use EventKind::{
        Ack, Claim, Expire, Fail, Move, Park, Release, Renew, Replay, Skip, Snooze, Unpark, Withdraw,
    };
    use Phase::{Dead, Done, Leased, Parked, Pending, Withdrawn};
    &[
        (Pending, Claim, &[Leased]),
        (Pending, Withdraw, &[Withdrawn]),
        (Pending, Park, &[Parked]),
        (Pending, Move, &[Pending]),
        (Leased, Renew, &[Leased]),
        (Leased, Ack, &[Done]),
        (Leased, Skip, &[Done, Withdrawn]),
        (Leased, Fail, &[Pending, Dead, Withdrawn]),
        (Leased, Snooze, &[Pending, Dead, Withdrawn]),
        (Leased, Release, &[Pending, Withdrawn]),
        (Leased, Expire, &[Pending, Dead, Withdrawn]),
        (Leased, Withdraw, &[Leased]),
        (Leased, Park, &[Parked, Withdrawn]),
        (Parked, Withdraw, &[Withdrawn]),
        (Parked, Park, &[Parked]),
        (Parked, Unpark, &[Pending]),
        (Parked, Move, &[Parked, Pending]),
        (Dead, Withdraw, &[Withdrawn]),
        (Dead, Replay, &[Pending]),
    ]
};

#[cfg(test)]
#[path = "state_tests.rs"]
pub(crate) mod tests;
