//! The transitions of the model of PostgreSQL, but for the looks of an owner.

use super::faults::{Event, Fault};
use super::state::{Action, Caller, Mark, Node, Owner, STRAY, State, Timer, Work};
use super::{NO_LEASE, OLD_TOKEN, ONCE, Postgres, REVIVED};
use crate::parts::{Answer, Held, Sync};
use crate::timer::{Lease, Step, Stored, step};

impl Postgres {
    fn insert(&self, state: &mut State, timer: Timer) -> Option<()> {
        if *state.creators.get(timer)? != Caller::Idle {
            return None;
        }
        let row = state.server.rows.get(timer)?;
        let is_free = row.timer == Stored::Absent && !row.is_remembered;
        let caller = if is_free {
            Caller::Open(state.number(), Answer::Created)
        } else {
            self.note(Event::Repeated);
            state.ran(Answer::Created)
        };
        *state.creators.get_mut(timer)? = caller;
        Some(())
    }

    fn commit(&self, state: &mut State, timer: Timer, is_lost: bool) -> Option<()> {
        let Caller::Open(number, answer) = *state.creators.get(timer)? else { return None };
        let row = state.server.rows.get_mut(timer)?;
        (row.timer, row.number) = (Stored::Pending, number);
        self.note(Event::Created);
        if self.is_passed(state, timer) {
            self.note(Event::CommittedLate);
        }
        let ran = state.ran(answer);
        *state.creators.get_mut(timer)? = if is_lost { Caller::Idle } else { ran };
        Some(())
    }

    fn cancel(&self, state: &mut State) -> Option<()> {
        let Caller::Snapshot(has_lease) = state.canceller else { return None };
        let row = state.server.rows.get_mut(state.target)?;
        if row.is_locked {
            // The transaction waits.
            return None;
        }
        let had_lease =
            if self.has(Fault::CancelBySnapshot) { has_lease } else { row.timer.lease().is_some() };
        let answer = match row.timer {
            Stored::Absent => {
                state.canceller = state.ran(Answer::NotFound);
                return Some(());
            }
            _ if had_lease => Answer::InFlight,
            _ => Answer::Cancelled,
        };
        row.is_locked = true;
        state.canceller = Caller::Open(state.number(), answer);
        Some(())
    }

    fn commit_cancel(&self, state: &mut State, is_lost: bool) -> Option<()> {
        let Caller::Open(number, answer) = state.canceller else { return None };
        let row = state.server.rows.get_mut(state.target)?;
        row.is_locked = false;
        row.is_cancelled = true;
        if answer == Answer::Cancelled {
            self.note(Event::Cancelled);
            row.set(Stored::Absent, number, !self.has(Fault::ForgetIds));
        } else {
            self.note(Event::Marked);
            // Without a row lock of the reap, the lease may be gone by now. The mark is then on a row without a lease.
            let marked = step(row.timer, Step::Cancel).filter(|marked| *marked != Stored::Absent);
            row.timer = marked.unwrap_or(STRAY);
        }
        let ran = state.ran(answer);
        state.canceller = if is_lost { Caller::Idle } else { ran };
        Some(())
    }

    /// A caller gets its answer, once the standby has its commit.
    fn answer(&self, caller: &mut Caller, now: u8) -> Option<()> {
        let Caller::Ran { answer, term, is_safe } = *caller else { return None };
        let waits = self.sync == Sync::Wait && !self.has(Fault::AnswerWithoutWait);
        *caller = if !waits || is_safe {
            Caller::Answered(answer)
        } else if term < now {
            self.note(Event::NotConfirmed);
            Caller::Idle
        } else {
            return None;
        };
        Some(())
    }

    fn begin(&self, state: &mut State, timer: Timer, held: Held) -> Option<Work> {
        if state.has_passed(held.token, held.renewals) && !self.has(Fault::BeginWithoutLease) {
            let row = state.server.rows.get(timer)?;
            if row.is_locked {
                // The statement waits.
                return None;
            }
            match step(row.timer, Step::Release(held.token)) {
                Some(after) => {
                    self.note(Event::Released);
                    self.write(state, timer, after);
                }
                None => self.note(Event::ReleaseRefused),
            }
            return Some(Work::Idle);
        }
        self.note(Event::Begun);
        let is_lost = state.lost_leases & 1 << held.token != 0;
        let stands = state.server.rows.get(timer)?.timer.is_held_by(held.token);
        if !is_lost && !stands {
            self.breaks(state, NO_LEASE);
        }
        if timer == state.target
            && let Caller::Answered(answer @ (Answer::Cancelled | Answer::InFlight)) = state.canceller
        {
            state.late += u8::from(!is_lost);
            if state.late > u8::from(answer == Answer::InFlight) {
                self.breaks(state, REVIVED);
            }
        }
        Some(Work::Delivering(timer, held))
    }

    /// Writes the row of a timer whose lease has ended. A pending timer gets a new number, so that a second look finds
    /// it.
    fn write(&self, state: &mut State, timer: Timer, after: Stored) {
        let number = state.number();
        let keeps = self.has(Fault::ReturnKeepsNumber);
        if let Some(row) = state.server.rows.get_mut(timer) {
            row.set(after, if keeps { row.number } else { number }, true);
        }
    }

    fn done(&self, state: &mut State, timer: Timer, held: Held) -> Option<Work> {
        let locks = !self.has(Fault::EndWithoutLock);
        let row = state.server.rows.get_mut(timer)?;
        if row.is_locked && locks {
            // The statement waits.
            return None;
        }
        let may_end = match row.timer {
            Stored::Absent => false,
            _ if self.has(Fault::EndWithoutToken) => true,
            timer => step(timer, Step::End(held.token)).is_some(),
        };
        if !may_end {
            self.note(Event::EndRefused);
            return Some(Work::Idle);
        }
        row.is_locked |= locks;
        Some(Work::Ending(timer, held, state.number()))
    }

    fn commit_done(&self, state: &mut State, work: (Timer, Held, u8), is_lost: bool) -> Option<Work> {
        let (timer, held, number) = work;
        let row = state.server.rows.get_mut(timer)?;
        let is_holder = row.timer.is_held_by(held.token);
        self.note(Event::Ended);
        row.is_locked &= self.has(Fault::EndWithoutLock);
        row.set(Stored::Absent, number, !self.has(Fault::ForgetIds));
        row.effects = (row.effects + 1).min(2);
        if row.effects > 1 {
            self.breaks(state, ONCE);
        } else if !is_holder {
            self.breaks(state, OLD_TOKEN);
        }
        // After a lost answer, the node sends the end again.
        Some(if is_lost { Work::Delivering(timer, held) } else { Work::Idle })
    }

    fn renew(&self, state: &mut State, timer: Timer, held: Held, is_lost: bool) -> Option<Held> {
        let renewals = 1;
        let row = state.server.rows.get_mut(timer)?;
        match step(row.timer, Step::Renew(held.token, renewals)) {
            Some(renewed) => {
                self.note(Event::Renewed);
                row.timer = renewed;
                Some(if is_lost { held } else { Held { renewals, ..held } })
            }
            None if is_lost => Some(held),
            None => {
                self.note(Event::RenewRefused);
                None
            }
        }
    }

    fn reap(&self, state: &mut State, timer: Timer) -> Option<()> {
        let row = state.server.rows.get(timer)?;
        let lease = row.timer.lease()?;
        if !state.has_passed(lease.token, lease.renewals)
            || row.is_locked && !self.has(Fault::ReapWithoutLock)
            || row.timer == STRAY
            || self.has(Fault::NoReap)
        {
            return None;
        }
        let after = step(row.timer, Step::Expire)?;
        self.note(if after == Stored::Pending { Event::Returned } else { Event::Withdrawn });
        self.write(state, timer, after);
        Some(())
    }

    fn fail_over(&self, state: &mut State) {
        let (lost, kept) = (state.server, state.standby);
        if lost.committed() != kept {
            self.note(Event::Lost);
        }
        for token in kept.claims..lost.claims {
            state.lost_leases |= 1 << token;
        }
        for (lost, kept) in lost.rows.iter().zip(kept.rows) {
            if let (Some(lost), Some(kept)) = (lost.timer.lease(), kept.timer.lease())
                && lost.token == kept.token
                && lost.renewals > kept.renewals
            {
                state.lost_leases |= 1 << lost.token;
            }
        }
        (state.server, state.standby) = (kept, kept);
        state.term += 1;
        for caller in state.creators.iter_mut().chain([&mut state.canceller]) {
            match *caller {
                Caller::Open(..) => {
                    self.note(Event::Aborted);
                    *caller = Caller::Idle;
                }
                Caller::Snapshot(_) => *caller = Caller::Idle,
                _ => {}
            }
        }
        for node in &mut state.nodes {
            if !self.has(Fault::MarkAfterFailover) {
                node.mark = Mark::NEW;
            }
            node.work = match node.work {
                Work::Looking(_) => Work::Idle,
                Work::Ending(timer, held, _) => Work::Delivering(timer, held),
                work => work,
            };
        }
        // The numbers of transactions that have left no commit are given again.
        state.next = kept.rows.iter().map(|row| row.number).max().unwrap_or(0) + 1;
    }

    /// Makes the transition. `None` if the action is not possible, or changes nothing.
    pub(crate) fn act(&self, state: &mut State, action: Action) -> Option<()> {
        let work = |state: &State, node: u8| state.nodes.get(usize::from(node)).map(|node| node.work);
        match action {
            Action::Insert(timer) => self.insert(state, timer)?,
            Action::Commit(timer, is_lost) => {
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                self.commit(state, timer, is_lost)?;
            }
            Action::Rollback(timer) => {
                state.left.rollbacks = state.left.rollbacks.checked_sub(1)?;
                self.note(Event::RolledBack);
                *state.creators.get_mut(timer)? = Caller::Answered(Answer::GivenUp);
            }
            Action::BeginCancel => {
                let has_lease = state.server.rows.get(state.target)?.timer.lease().is_some();
                state.canceller = Caller::Snapshot(has_lease);
            }
            Action::Cancel => self.cancel(state)?,
            Action::CommitCancel(is_lost) => {
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                self.commit_cancel(state, is_lost)?;
            }
            Action::RollbackCancel => {
                state.left.rollbacks = state.left.rollbacks.checked_sub(1)?;
                self.note(Event::CancelRolledBack);
                state.server.rows.get_mut(state.target)?.is_locked = false;
                state.canceller = Caller::Answered(Answer::GivenUp);
            }
            Action::AnswerCreator(timer) => self.answer(state.creators.get_mut(timer)?, state.term)?,
            Action::AnswerCanceller => self.answer(&mut state.canceller, state.term)?,
            Action::Own(node) => self.own(state, node)?,
            Action::Look(node, closed) => {
                state.left.passes = state.left.passes.checked_sub(closed.is_some().into())?;
                self.look(state, node, closed)?;
            }
            Action::Take(node, is_lost) => {
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                self.take(state, node, is_lost)?;
            }
            Action::Recover(node) => {
                let Work::Doubting(timer, token) = work(state, node)? else { return None };
                let lease = state.server.rows.get(timer)?.timer.lease().filter(|lease| lease.token == token);
                self.note(if lease.is_some() { Event::Recovered } else { Event::NotRecovered });
                let held = |lease: Lease| Work::Holding(timer, Held { token, renewals: lease.renewals });
                state.work(node, lease.map_or(Work::Idle, held));
            }
            Action::Begin(node) => {
                let Work::Holding(timer, held) = work(state, node)? else { return None };
                let next = self.begin(state, timer, held)?;
                state.work(node, next);
            }
            Action::Done(node) => {
                let Work::Delivering(timer, held) = work(state, node)? else { return None };
                let next = self.done(state, timer, held)?;
                state.work(node, next);
            }
            Action::CommitDone(node, is_lost) => {
                let Work::Ending(timer, held, number) = work(state, node)? else { return None };
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = self.commit_done(state, (timer, held, number), is_lost)?;
                state.work(node, next);
            }
            Action::RollbackDone(node) => {
                let Work::Ending(timer, held, _) = work(state, node)? else { return None };
                state.left.rollbacks = state.left.rollbacks.checked_sub(1)?;
                self.note(Event::EndRolledBack);
                state.server.rows.get_mut(timer)?.is_locked &= self.has(Fault::EndWithoutLock);
                state.work(node, Work::Delivering(timer, held));
            }
            Action::Renew(node, is_lost) => {
                let (timer, held, is_begun) = match work(state, node)? {
                    Work::Holding(timer, held) => (timer, held, false),
                    Work::Delivering(timer, held) => (timer, held, true),
                    _ => return None,
                };
                if held.renewals > 0 {
                    return None;
                }
                state.left.renewals = state.left.renewals.checked_sub(1)?;
                state.left.losses = state.left.losses.checked_sub(is_lost.into())?;
                let next = match self.renew(state, timer, held, is_lost) {
                    Some(held) if is_begun => Work::Delivering(timer, held),
                    Some(held) => Work::Holding(timer, held),
                    None => Work::Idle,
                };
                state.work(node, next);
            }
            Action::Reap(_, timer) => self.reap(state, timer)?,
            Action::PassEnd(token) => {
                if state.held().any(|(_, held)| held.token == token) {
                    state.left.sleeps = state.left.sleeps.checked_sub(1)?;
                }
                *state.passed.get_mut(usize::from(token))? += 1;
            }
            Action::PassOwner => {
                let owner = state.server.owner.filter(|owner| !owner.is_over)?;
                if state.nodes.get(usize::from(owner.node)).is_some_and(|node| node.is_alive) {
                    state.left.lapses = state.left.lapses.checked_sub(1)?;
                }
                let over = Some(Owner { is_over: true, ..owner });
                state.server.owner = over;
                if state.standby.owner == Some(owner) {
                    state.standby.owner = over;
                }
            }
            Action::Replicate => {
                state.standby = state.server.committed();
                let term = state.term;
                state.callers().for_each(|caller| caller.is_safe_in(term));
            }
            Action::FailOver => {
                state.left.failovers = state.left.failovers.checked_sub(1)?;
                self.fail_over(state);
            }
            Action::Crash(node) => {
                state.left.crashes = state.left.crashes.checked_sub(1)?;
                if let Work::Ending(timer, ..) = work(state, node)? {
                    // The server rolls the transaction back when its connection ends.
                    state.server.rows.get_mut(timer)?.is_locked &= self.has(Fault::EndWithoutLock);
                }
                let node = state.nodes.get_mut(usize::from(node))?;
                *node = Node { is_alive: false, mark: Mark::NEW, work: Work::Idle };
            }
        }
        Some(())
    }
}
