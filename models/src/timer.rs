//! A timer as the models keep it. The transitions are those of the program: [`step`] calls the function of the same
//! name in `tourbillon_durable::state`.

use tourbillon_durable::UtcMillis;
use tourbillon_durable::state::{self, Event, Lease as StoredLease, Next, Refusal, State, Token, Withdrawal};
use tourbillon_durable::timer::{Timer, TimerId};

/// The state of a timer in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// The timer is not stored: it was not created yet, or it has ended.
    Absent,
    /// The timer waits for a claim.
    Pending,
    /// A node has claimed the timer.
    Leased(Lease),
}

/// A lease of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The number of the claim that made the lease.
    pub token: u8,
    /// The number of renewals. A lease that was renewed ends later.
    pub renewals: u8,
    /// Whether the timer was cancelled during the lease.
    pub is_withdrawn: bool,
}

/// A step of a timer's life, as far as the models have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A node claims the timer under this token.
    Claim(u8),
    /// The holder of this token renews its lease for the given time.
    Renew(u8, u8),
    /// The holder of this token has delivered the timer.
    End(u8),
    /// The holder of this token gives its lease back.
    Release(u8),
    /// The time of the lease is over.
    Expire,
    /// A client cancels the timer.
    Cancel,
}

/// The moment at which a lease ends after this number of renewals. The models have no other moments: their clock passes
/// the ends of leases, one after another.
fn end(renewals: u8) -> UtcMillis {
    UtcMillis::from_millis(1_000 * (1 + u64::from(renewals)))
}

fn token(number: u8) -> Token {
    Token { incarnation: 1, claim: number.into() }
}

impl Stored {
    /// Returns the lease of the timer.
    #[must_use]
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Leased(lease) => Some(lease),
            _ => None,
        }
    }

    /// Returns whether the timer is leased under this token.
    #[must_use]
    pub fn is_held_by(self, token: u8) -> bool {
        self.lease().is_some_and(|lease| lease.token == token)
    }

    fn timer(self) -> Option<Timer> {
        let state = match self {
            Self::Absent => return None,
            Self::Pending => State::Pending,
            Self::Leased(lease) => State::Leased(StoredLease {
                token: token(lease.token),
                until: end(lease.renewals),
                withdrawn: lease.is_withdrawn.then_some(Withdrawal::Cancelled),
            }),
        };
        Some(Timer { state, ..Timer::new(TimerId::from_u128(1), "", UtcMillis::ZERO) })
    }

    fn of(timer: &Timer) -> Self {
        match &timer.state {
            State::Pending => Self::Pending,
            State::Leased(lease) => Self::Leased(Lease {
                token: u8::try_from(lease.token.claim).unwrap_or(u8::MAX),
                renewals: u8::from(lease.until > end(0)),
                is_withdrawn: lease.withdrawn.is_some(),
            }),
            State::Parked(_) | State::Dead(_) => {
                unreachable!("no step of the models parks a timer or gives it up")
            }
        }
    }
}

/// Makes a step of a timer's life, by the pure function that all stores call. `None` if the timer is not stored, or if
/// its state does not permit the step.
///
/// # Panics
///
/// Panics if the function makes the timer parked or dead, which no step of the models asks for.
#[must_use]
pub fn step(stored: Stored, step: Step) -> Option<Stored> {
    let event = match step {
        Step::Claim(number) => Event::Claim { token: token(number), until: end(0) },
        Step::Renew(number, renewals) => Event::Renew { token: token(number), until: end(renewals) },
        Step::End(number) => Event::Ack(token(number)),
        Step::Release(number) => Event::Release(token(number)),
        Step::Expire => Event::Expire,
        Step::Cancel => Event::Withdraw(Withdrawal::Cancelled),
    };
    let next: Result<Next, Refusal> = state::step(&stored.timer()?, event, UtcMillis::ZERO);
    match next.ok()? {
        Next::Stays(timer) => Some(Stored::of(&timer)),
        Next::Ends(_) => Some(Stored::Absent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_ended_and_renewed_by_its_token_alone() {
        let leased = step(Stored::Pending, Step::Claim(3)).unwrap();
        let lease = Lease { token: 3, renewals: 0, is_withdrawn: false };
        assert_eq!(leased, Stored::Leased(lease));
        assert_eq!(step(leased, Step::Renew(3, 1)), Some(Stored::Leased(Lease { renewals: 1, ..lease })));
        assert_eq!(step(leased, Step::End(3)), Some(Stored::Absent));
        for other in [Step::End(4), Step::Release(4), Step::Renew(4, 1), Step::Claim(4)] {
            assert_eq!(step(leased, other), None, "{other:?}");
        }
        let withdrawn = step(leased, Step::Cancel).unwrap();
        assert_eq!(withdrawn, Stored::Leased(Lease { is_withdrawn: true, ..lease }));
        assert_eq!(step(withdrawn, Step::Expire), Some(Stored::Absent));
    }
}
