//! The transitions of the model of Redis.

use super::faults::{Event, Fault};
use super::state::{Action, Caller, Client, Node, Owner, State, Work};
use super::{BOUND, CLAIMS, NO_LEASE, NOT_OWNER, OLD_TOKEN, REVIVED, Redis};
use crate::parts::{Answer, Held, Sync};
use crate::timer::{Lease, Step, Stored, step};

impl Redis {
    fn create(&self, state: &mut State) -> Option<()> {
        let Caller::Idle = state.creator else { return None };
        let is_free = state.server.timer == Stored::Absent && !state.server.is_remembered;
        if is_free {
            state.server.timer = Stored::Pending;
            self.note(Event::Created);
        } else {
            self.note(Event::Repeated);
        }
        state.creator = if !is_free && self.has(Fault::RepeatWithoutWait) {
            Caller::Answered(Answer::Created)
        } else {
            state.ran(Answer::Created)
        };
        Some(())
    }

    fn cancel(&self, state: &mut State) -> Option<()> {
        let Caller::Read(read) = state.canceller else { return None };
        let same = |lease: Lease| Lease { renewals: 0, ..lease };
        // A commit does not compare the ends of leases.
        let is_same = match (read, state.server.timer) {
            (Stored::Leased(read), Stored::Leased(lease)) => same(read) == same(lease),
            (read, timer) => read == timer,
        };
        if !is_same && !self.has(Fault::CancelWithoutCheck) {
            self.note(Event::CancelRefused);
            state.canceller = Caller::Idle;
            return Some(());
        }
        let from = if is_same { state.server.timer } else { read };
        let after = step(from, Step::Cancel)?;
        state.server.timer = after;
        state.history.is_cancelled = true;
        let answer = if let Stored::Leased(_) = after {
            self.note(Event::Marked);
            Answer::InFlight
        } else {
            self.note(Event::Cancelled);
            state.server.is_remembered = !self.has(Fault::ForgetIds);
            Answer::Cancelled
        };
        state.canceller = state.ran(answer);
        Some(())
    }

    fn answer(&self, state: &mut State, client: Client) -> Option<()> {
        let (term, sync) = (state.term, self.sync);
        let caller = state.client(client);
        let Caller::Ran { answer, term: ran_in, is_safe } = *caller else { return None };
        if sync == Sync::None || self.has(Fault::AnswerWithoutWait) {
            *caller = Caller::Answered(answer);
        } else if ran_in == term || self.has(Fault::OtherWitness) {
            // The replica of the server that has taken over has all that this server has.
            if !is_safe && ran_in == term {
                return None;
            }
            *caller = Caller::Answered(answer);
        } else {
            self.note(Event::NotConfirmed);
            *caller = Caller::Idle;
        }
        Some(())
    }

    fn claim(&self, state: &mut State, node: usize) -> Option<()> {
        let server = &mut state.server;
        let (own, before) = (Some(Owner { node, is_over: false }), server.owner);
        match before {
            Some(owner) if owner.node == node => server.owner = own,
            Some(owner) if !owner.is_over || self.has(Fault::OwnerForEver) => {
                self.note(Event::NotOwner);
                if !self.has(Fault::ClaimWithoutOwner) {
                    return None;
                }
            }
            _ => {
                server.owner = own;
                server.epoch += 1;
                if before.is_some() {
                    self.note(Event::TakenOver);
                }
                if let Some(owners) = state.history.owners.get_mut(usize::from(server.epoch)) {
                    *owners |= 1 << node;
                }
            }
        }
        let timer = match server.timer {
            Stored::Leased(_) if self.has(Fault::ClaimLeavesTimer) => Stored::Pending,
            timer => timer,
        };
        let token = state.claims;
        match step(timer, Step::Claim(token)) {
            Some(leased) if usize::from(token) < CLAIMS => {
                let is_owner = server.owner.is_some_and(|owner| owner.node == node);
                if !is_owner && self.unchecked != Some(NOT_OWNER) {
                    state.history.broken = Some(NOT_OWNER);
                }
                server.timer = leased;
                server.claims = token + 1;
                state.claims = token + 1;
                if let Some(node) = state.nodes.get_mut(node) {
                    node.work = Work::Claiming(token);
                }
                self.note(Event::Claimed);
            }
            Some(_) => state.history.broken = Some(BOUND),
            None => {}
        }
        Some(())
    }

    fn begin(&self, state: &mut State, held: Held) -> Work {
        if state.has_passed(held.token, held.renewals) && !self.has(Fault::BeginWithoutLease) {
            match step(state.server.timer, Step::Release(held.token)) {
                Some(after) => {
                    self.note(Event::Released);
                    state.server.set(after);
                }
                None => self.note(Event::ReleaseRefused),
            }
            return Work::Idle;
        }
        self.note(Event::Begun);
        let is_lost = state.history.lost_leases & 1 << held.token != 0;
        if !is_lost && !state.server.timer.is_held_by(held.token) {
            state.history.broken = Some(NO_LEASE);
        }
        if let Caller::Answered(answer @ (Answer::Cancelled | Answer::InFlight)) = state.canceller {
            state.history.late += u8::from(!is_lost);
            state.history.is_late_by_failover |= is_lost;
            if state.history.late > u8::from(answer == Answer::InFlight) {
                state.history.broken = Some(REVIVED);
            }
        }
        Work::Delivering(held)
    }

    fn end(&self, state: &mut State, held: Held, is_lost: bool) -> Work {
        let is_holder = state.server.timer.is_held_by(held.token);
        let after = match state.server.timer {
            Stored::Absent => None,
            _ if self.has(Fault::EndWithoutToken) => Some(Stored::Absent),
            timer => step(timer, Step::End(held.token)),
        };
        match after {
            Some(after) => {
                self.note(Event::Ended);
                state.server.set(after);
                state.server.is_remembered = !self.has(Fault::ForgetIds);
                state.server.ends = (state.server.ends + 1).min(2);
                state.history.ended = (state.history.ended + 1).min(2);
                if !is_holder {
                    state.history.broken = Some(OLD_TOKEN);
                }
            }
            None => self.note(Event::EndRefused),
        }
        // After a lost answer, the node sends the end again.
        if is_lost { Work::Delivering(held) } else { Work::Idle }
    }

    fn renew(&self, state: &mut State, held: Held, is_lost: bool) -> Option<Held> {
        let renewals = 1;
        let renewed = match state.server.timer {
            Stored::Leased(lease) if self.has(Fault::RenewWithoutToken) => {
                Some(Stored::Leased(Lease { renewals, ..lease }))
            }
            timer => step(timer, Step::Renew(held.token, renewals)),
        };
        match renewed {
            Some(renewed) => {
                self.note(Event::Renewed);
                state.server.timer = renewed;
                Some(if is_lost { held } else { Held { renewals, ..held } })
            }
            None if is_lost => Some(held),
            None => {
                self.note(Event::RenewRefused);
                None
            }
        }
    }

    fn reap(&self, state: &mut State, read: Lease) {
        let is_same = state
            .server
            .timer
            .lease()
            .is_some_and(|lease| lease.token == read.token && lease.is_withdrawn == read.is_withdrawn);
        let is_over = state.server.timer.lease().is_some_and(|lease| state.is_passed(lease));
        if !is_same || !is_over && !self.has(Fault::ReapWithoutLook) {
            return self.note(Event::ReapRefused);
        }
        if let Some(after) = step(state.server.timer, Step::Expire) {
            self.note(if after == Stored::Pending { Event::Returned } else { Event::Withdrawn });
            state.server.set(after);
        }
    }

    fn fail_over(&self, state: &mut State) {
        let (lost, kept) = (state.server, state.replica);
        if lost != kept {
            self.note(Event::Lost);
        }
        for token in kept.claims..lost.claims {
            state.history.lost_leases |= 1 << token;
        }
        if let (Some(lost), Some(kept)) = (lost.timer.lease(), kept.timer.lease())
            && lost.token == kept.token
            && lost.renewals > kept.renewals
        {
            state.history.lost_leases |= 1 << lost.token;
        }
        state.history.has_lost_end |= lost.ends > kept.ends;
        state.server = kept;
        state.term += 1;
    }

    /// Makes the transition. `None` if the action is not possible, or changes nothing.
    pub(crate) fn act(&self, state: &mut State, action: Action) -> Option<()> {
        let work = |state: &State, node: usize| state.nodes.get(node).map(|node| node.work);
        match action {
            Action::Create => self.create(state)?,
            Action::ReadForCancel => {
                let timer = state.server.timer;
                state.canceller = match (state.canceller, timer) {
                    (Caller::Idle, Stored::Absent) => state.ran(Answer::NotFound),
                    (Caller::Idle, timer) => Caller::Read(timer),
                    _ => return None,
                };
            }
            Action::Cancel => self.cancel(state)?,
            Action::Answer(client) => self.answer(state, client)?,
            Action::LoseAnswer(client) => {
                let Caller::Ran { .. } = *state.client(client) else { return None };
                *state.client(client) = Caller::Idle;
                state.left.losses = state.left.losses.checked_sub(1)?;
            }
            Action::Claim(node) => self.claim(state, node)?,
            Action::LearnClaim(node) => {
                let Work::Claiming(token) = work(state, node)? else { return None };
                state.work(node, Work::Holding(Held { token, renewals: 0 }));
            }
            Action::LoseClaim(node) => {
                let Work::Claiming(token) = work(state, node)? else { return None };
                state.left.losses = state.left.losses.checked_sub(1)?;
                state.work(node, Work::Doubting(token));
            }
            Action::Recover(node) => {
                let Work::Doubting(token) = work(state, node)? else { return None };
                let lease = state.server.timer.lease().filter(|lease| lease.token == token);
                self.note(if lease.is_some() { Event::Recovered } else { Event::NotRecovered });
                let held = |lease: Lease| Work::Holding(Held { token, renewals: lease.renewals });
                state.work(node, lease.map_or(Work::Idle, held));
            }
            Action::Begin(node) => {
                let Work::Holding(held) = work(state, node)? else { return None };
                let next = self.begin(state, held);
                state.work(node, next);
            }
            Action::End(node, is_lost) => {
                let Work::Delivering(held) = work(state, node)? else { return None };
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = self.end(state, held, is_lost);
                state.work(node, next);
            }
            Action::Renew(node, is_lost) => {
                let (held, is_begun) = match work(state, node)? {
                    Work::Holding(held) => (held, false),
                    Work::Delivering(held) => (held, true),
                    _ => return None,
                };
                if held.renewals > 0 {
                    return None;
                }
                state.left.renewals = state.left.renewals.checked_sub(1)?;
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = match self.renew(state, held, is_lost) {
                    Some(held) if is_begun => Work::Delivering(held),
                    Some(held) => Work::Holding(held),
                    None => Work::Idle,
                };
                state.work(node, next);
            }
            Action::ReadExpired(node) => {
                let lease = state.server.timer.lease()?;
                if !state.is_passed(lease) || self.has(Fault::NoReap) {
                    return None;
                }
                state.work(node, Work::Reaping(lease));
            }
            Action::Reap(node) => {
                let Work::Reaping(lease) = work(state, node)? else { return None };
                state.work(node, Work::Idle);
                self.reap(state, lease);
            }
            Action::PassEnd(token) => {
                if !state.has_holder(token) {
                    // A lease that nobody renews ends.
                } else {
                    state.left.sleeps = state.left.sleeps.checked_sub(1)?;
                }
                *state.passed.get_mut(usize::from(token))? += 1;
            }
            Action::PassOwner => {
                let owner = state.server.owner.filter(|owner| !owner.is_over)?;
                if state.nodes.get(owner.node).is_some_and(|node| node.is_alive) {
                    state.left.lapses = state.left.lapses.checked_sub(1)?;
                }
                let over = Some(Owner { is_over: true, ..owner });
                state.server.owner = over;
                if state.replica.owner == Some(owner) {
                    state.replica.owner = over;
                }
            }
            Action::Replicate => {
                state.replica = state.server;
                let term = state.term;
                for caller in [&mut state.creator, &mut state.canceller] {
                    if let Caller::Ran { term: ran_in, is_safe, .. } = caller {
                        *is_safe |= *ran_in == term;
                    }
                }
            }
            Action::FailOver => {
                state.left.failovers = state.left.failovers.checked_sub(1)?;
                self.fail_over(state);
            }
            Action::Crash(node) => {
                state.left.crashes = state.left.crashes.checked_sub(1)?;
                let node = state.nodes.get_mut(node)?;
                *node = Node { is_alive: false, work: Work::Idle };
            }
        }
        Some(())
    }
}
