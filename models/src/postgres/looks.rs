//! The looks of an owner for due timers: the low-water mark, and the second look.

use super::faults::{Event, Fault};
use super::state::{Lane, Mark, Node, Owner, Snapshot, State, Timer, Work};
use super::{BOUND, CLAIMS, LANES, NOT_OWNER, Postgres};
use crate::parts::Held;
use crate::timer::{Step, Stored, step};

/// A timer that a look has found. It is late if the mark has passed it.
#[derive(Clone, Copy)]
struct Chosen {
    timer: Timer,
    is_late: bool,
}

impl Postgres {
    pub(crate) fn own(&self, state: &mut State, number: u8) -> Option<()> {
        let server = &mut state.server;
        match server.owner {
            Some(owner) if owner.node == number => {}
            Some(owner) if !owner.is_over || self.has(Fault::OwnerForEver) => {
                self.note(Event::NotOwner);
                return None;
            }
            Some(owner) => {
                let node = state.nodes.get(usize::from(owner.node))?;
                if let Work::Looking(_) = node.work
                    && !self.has(Fault::ClaimWithoutNodeLock)
                {
                    // The claim of the owner holds the row of its node.
                    self.note(Event::WaitsForClaim);
                    return None;
                }
                self.note(Event::TakenOver);
                server.epoch += 1;
            }
            None => server.epoch += 1,
        }
        server.owner = Some(Owner { node: number, is_over: false });
        Some(())
    }

    /// Begins a look, which may pass over a lane. A look that would find nothing and move nothing at once is left out:
    /// it may be repeated for ever.
    pub(crate) fn look(&self, state: &mut State, number: u8, closed: Option<Lane>) -> Option<()> {
        let before = state.nodes.get(usize::from(number))?.mark;
        let snapshot = self.snapshot(state, number, closed)?;
        state.work(number, Work::Looking(snapshot));
        let mut at_once = *state;
        self.take(&mut at_once, number, false)?;
        at_once.normalize();
        let node = at_once.nodes.get(usize::from(number))?;
        (node.work != Work::Idle || node.mark != before).then_some(())
    }

    /// Returns the snapshot of a look, with the rows that were locked at the last look and are still locked. `None` if
    /// the node owns no shard, and the model leaves the looks of such nodes out.
    fn snapshot(&self, state: &State, number: u8, closed: Option<Lane>) -> Option<Snapshot> {
        let mut snapshot = state.snapshot(number);
        if snapshot.epoch.is_none() && (closed.is_some() || !self.has_idle_looks) {
            return None;
        }
        snapshot.closed = closed;
        let Mark { held, epoch, .. } = state.nodes.get(usize::from(number))?.mark;
        if epoch != snapshot.epoch {
            // The marks start again, so nothing is asked for again.
            return Some(snapshot);
        }
        for (timer, is_stuck) in snapshot.stuck.iter_mut().enumerate() {
            let row = state.server.rows.get(timer)?;
            *is_stuck = *held.get(timer)?
                && row.is_locked
                && row.timer == Stored::Pending
                && Some(self.lane(timer)) != closed;
        }
        Some(snapshot)
    }

    fn lane(&self, timer: Timer) -> Lane {
        self.lanes.get(timer).copied().unwrap_or_default()
    }

    /// Ends a look. A claim takes one timer at most.
    pub(crate) fn take(&self, state: &mut State, node: u8, is_lost: bool) -> Option<()> {
        let Node { work: Work::Looking(snapshot), mark: known, .. } = *state.nodes.get(usize::from(node))?
        else {
            return None;
        };
        let mut mark = known;
        if known.epoch != snapshot.epoch && !self.has(Fault::MarkWithoutEpoch) {
            if known.unseen.is_some() {
                self.note(Event::MarkReset);
            }
            mark = Mark::NEW;
        }
        mark.epoch = snapshot.epoch;
        let chosen = self.chosen(&snapshot, &mark);
        let found = chosen.iter().copied().find(|chosen| Some(self.lane(chosen.timer)) != snapshot.closed);
        let mut taken = None;
        if let Some(Chosen { timer, is_late }) = found {
            taken = self.lease(state, timer)?;
            if let Some(token) = taken {
                self.note(match is_late {
                    _ if mark.held.get(timer).is_some_and(|is_held| *is_held) => Event::ClaimedAgain,
                    true => Event::ClaimedBySecondLook,
                    false => Event::ClaimedByScan,
                });
                if state.server.owner.is_none_or(|owner| owner.node != node) {
                    self.breaks(state, NOT_OWNER);
                }
                state.work(
                    node,
                    match is_lost {
                        true => Work::Doubting(timer, token),
                        false => Work::Holding(timer, Held { token, renewals: 0 }),
                    },
                );
            }
        }
        if taken.is_none() {
            state.work(node, Work::Idle);
        }
        if is_lost {
            // The node has learned nothing.
            return taken.map(drop);
        }
        self.move_marks(&mut mark, &snapshot, &chosen, found);
        let passed_over = found.filter(|_| taken.is_none()).map(|found| found.timer);
        for (timer, (is_held, row)) in mark.held.iter_mut().zip(&state.server.rows).enumerate() {
            let is_stuck = snapshot.stuck.get(timer).is_some_and(|is_stuck| *is_stuck);
            if is_stuck {
                self.note(Event::StillLocked);
            }
            let is_locked = passed_over == Some(timer) && row.timer == Stored::Pending;
            let is_again = is_stuck && !self.has(Fault::ForgetStuck);
            *is_held = (is_again || is_locked) && !self.has(Fault::ForgetLocked);
        }
        mark.unseen = Some(snapshot.unseen);
        if let Some(node) = state.nodes.get_mut(usize::from(node)) {
            node.mark = mark;
        }
        Some(())
    }

    /// Moves the mark of each lane. It goes back before the first late timer that is left, it passes the timer that was
    /// found, and it passes all due timers if none of them is left.
    fn move_marks(&self, mark: &mut Mark, snapshot: &Snapshot, chosen: &[Chosen], found: Option<Chosen>) {
        let all = u8::try_from(self.timers).unwrap_or(u8::MAX);
        let after = |timer: Timer| u8::try_from(timer + 1).unwrap_or(u8::MAX);
        let held = mark.held;
        for (lane, passed) in mark.passed.iter_mut().enumerate() {
            let is_closed = snapshot.closed == Some(lane);
            let in_lane = || chosen.iter().filter(|chosen| self.lane(chosen.timer) == lane);
            let mut left = in_lane().filter(|chosen| Some(chosen.timer) != found.map(|found| found.timer));
            if is_closed && in_lane().next().is_some() {
                self.note(Event::LanePassedOver);
            }
            let is_left_to_others = |late: &Chosen| {
                let is_locked = held.get(late.timer).is_some_and(|is_held| *is_held);
                self.has(Fault::LeavesLate) || is_locked && is_closed && self.has(Fault::LeavesLocked)
            };
            if let Some(late) = left.clone().find(|left| left.is_late && !is_left_to_others(left)) {
                let is_locked = held.get(late.timer).is_some_and(|is_held| *is_held);
                self.note(if is_locked { Event::LockedLeft } else { Event::LateLeft });
                *passed = match self.has(Fault::GoesBackTooLittle) {
                    true => after(late.timer),
                    false => u8::try_from(late.timer).unwrap_or(u8::MAX),
                };
                continue;
            }
            let in_order = found.filter(|found| !found.is_late && self.lane(found.timer) == lane);
            let target = if is_closed && !self.has(Fault::PassesOverAll) {
                *passed
            } else if left.all(|left| left.is_late) || self.has(Fault::MarkTooEarly) || is_closed {
                all
            } else {
                in_order.map_or(*passed, |found| after(found.timer))
            };
            if target > *passed {
                self.note(if snapshot.epoch.is_none() { Event::LookedInVain } else { Event::MarkMoved });
            }
            *passed = target.max(*passed);
        }
        if self.has(Fault::OneMark) {
            mark.passed = [mark.passed.into_iter().max().unwrap_or_default(); LANES];
        }
    }

    /// Returns the due timers that a look finds, in the order of their due moments.
    fn chosen(&self, snapshot: &Snapshot, mark: &Mark) -> Vec<Chosen> {
        let is_unseen = |number: u8| {
            mark.unseen.is_some_and(|unseen| {
                let was_open = unseen.open.contains(&number) && !self.has(Fault::ForgetOpen);
                (was_open || number >= unseen.next) && !self.has(Fault::NoSecondLook)
            })
        };
        let seen = snapshot.seen.into_iter().zip(mark.held).zip(snapshot.stuck).enumerate();
        let seen = seen.filter(|(_, (_, is_stuck))| snapshot.epoch.is_some() && !is_stuck);
        seen.filter_map(|(timer, ((number, is_held), _))| {
            let passed = mark.passed.get(self.lane(timer)).copied().unwrap_or_default();
            let (number, is_late) = (number?, timer < usize::from(passed));
            (!is_late || is_held || is_unseen(number)).then_some(Chosen { timer, is_late })
        })
        .collect()
    }

    /// Leases a timer, if its row is there and not locked, and it has no lease. Returns the token.
    fn lease(&self, state: &mut State, timer: Timer) -> Option<Option<u8>> {
        let token = state.claims;
        let row = state.server.rows.get_mut(timer)?;
        if row.is_locked {
            self.note(Event::PassedOver);
            return Some(None);
        }
        let stored = match row.timer {
            Stored::Leased(_) if self.has(Fault::ClaimBySnapshot) => Stored::Pending,
            stored => stored,
        };
        let Some(leased) = step(stored, Step::Claim(token)) else {
            self.note(Event::GoneMeanwhile);
            return Some(None);
        };
        if usize::from(token) >= CLAIMS {
            self.breaks(state, BOUND);
            return None;
        }
        row.timer = leased;
        state.claims += 1;
        state.server.claims = state.claims;
        Some(Some(token))
    }
}
