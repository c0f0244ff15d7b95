//! The looks of an owner for due timers: the low-water mark, and the second look.

use super::faults::{Event, Fault};
use super::state::{Mark, Node, Owner, Snapshot, State, Timer, Work};
use super::{BOUND, CLAIMS, NOT_OWNER, Postgres};
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

    /// Begins a look. A look that would find nothing and move nothing at once is left out: it may be repeated for ever.
    pub(crate) fn look(&self, state: &mut State, number: u8) -> Option<()> {
        let before = state.nodes.get(usize::from(number))?.mark;
        let snapshot = state.snapshot(number);
        if snapshot.epoch.is_none() && !self.has_idle_looks {
            return None;
        }
        state.work(number, Work::Looking(snapshot));
        let mut at_once = *state;
        self.take(&mut at_once, number, false)?;
        at_once.normalize();
        let node = at_once.nodes.get(usize::from(number))?;
        (node.work != Work::Idle || node.mark != before).then_some(())
    }

    /// Ends a look. A claim takes one timer at most.
    pub(crate) fn take(&self, state: &mut State, node: u8, is_lost: bool) -> Option<()> {
        let Node { work: Work::Looking(snapshot), mark: known, .. } = *state.nodes.get(usize::from(node))?
        else {
            return None;
        };
        let mut mark = known;
        if known.epoch != snapshot.epoch && !self.has(Fault::OwnerWithoutEpoch) {
            if known.unseen.is_some() {
                self.note(Event::MarkReset);
            }
            mark = Mark::NEW;
        }
        mark.epoch = snapshot.epoch;
        let chosen = self.chosen(&snapshot, &mark);
        let (found, late_left) =
            (chosen.first().copied(), chosen.iter().skip(1).any(|chosen| chosen.is_late));
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
        for (timer, (is_held, row)) in mark.held.iter_mut().zip(&state.server.rows).enumerate() {
            *is_held |= found.is_some_and(|found| found.timer == timer);
            *is_held &= row.timer == Stored::Pending && !self.has(Fault::ForgetLocked);
        }
        let all = u8::try_from(self.timers).unwrap_or(u8::MAX);
        if late_left && !self.has(Fault::AdvanceTooEarly) {
            self.note(Event::LateLeft);
        } else {
            let left = chosen.len() > 1;
            let after = match found {
                Some(found) if left && !self.has(Fault::MarkTooEarly) => {
                    u8::try_from(found.timer + 1).unwrap_or(u8::MAX)
                }
                _ => all,
            };
            if after > mark.passed {
                self.note(if snapshot.epoch.is_none() { Event::LookedInVain } else { Event::MarkMoved });
            }
            mark.passed = mark.passed.max(after);
            mark.unseen = Some(snapshot.unseen);
        }
        if let Some(node) = state.nodes.get_mut(usize::from(node)) {
            node.mark = mark;
        }
        Some(())
    }

    /// Returns the due timers that a look finds, in the order of their due moments.
    fn chosen(&self, snapshot: &Snapshot, mark: &Mark) -> Vec<Chosen> {
        let is_unseen = |number: u8| {
            mark.unseen.is_some_and(|unseen| {
                let was_open = unseen.open.contains(&number) && !self.has(Fault::ForgetOpen);
                (was_open || number >= unseen.next) && !self.has(Fault::NoSecondLook)
            })
        };
        let seen = snapshot.seen.into_iter().zip(mark.held).enumerate();
        let seen = seen.filter(|_| snapshot.epoch.is_some());
        seen.filter_map(|(timer, (number, is_held))| {
            let (number, is_late) = (number?, timer < usize::from(mark.passed));
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
