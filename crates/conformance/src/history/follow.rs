//! Makes the steps of a random life (a run of random operations), and compares the store's answers with the checker's
//! model.

use super::names::{name_of, name_of_outcome};
use super::{Player, REASONS, Seen};
use crate::bench::{HOUR, LEASE, all};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use tourbillon_durable::policy::Guarantee;
use tourbillon_durable::state::{Lease, Phase, Refusal, State, Token};
use tourbillon_durable::store::{
    Claimant, Claimed, Durability, IfPresent, Leased, Limit, Op, Outcome, Reaped, Renewal, StoreErrorKind,
    TimerStore,
};
use tourbillon_durable::timer::{Address, Timer, TimerId};

impl Seen {
    /// Forgets how an earlier timer with this id has ended, because a new timer with the id is stored.
    fn forget(&mut self, id: TimerId) {
        self.withdrawn.remove(&id);
        self.done.remove(&id);
    }
}

impl Player {
    #[track_caller]
    pub(super) fn apply(&mut self, ops: Vec<Op>) {
        let answer = match (&self.faulty, &ops[..]) {
            (Some(faulty), [Op::Place(timer, IfPresent::Reject)]) if self.step.is_multiple_of(2) => {
                match pollster::block_on(faulty.apply(ops.clone(), Durability::PowerLoss)) {
                    Ok(outcomes) => Some((outcomes, false)),
                    Err(error) if error.kind() == StoreErrorKind::Unknown => {
                        self.unsure.extend(ops.iter().cloned());
                        Some((vec![Outcome::Repeated(timer.id)], true))
                    }
                    Err(_) => None,
                }
            }
            _ => None,
        };
        let (outcomes, was_lost) =
            answer.unwrap_or_else(|| self.ask(|store| store.apply(ops.clone(), Durability::PowerLoss)));
        assert_eq!(outcomes.len(), ops.len());
        let mut expected: BTreeSet<TimerId> = self.seen.stored.keys().copied().collect();
        // The namespace, the label and the number of removed timers of each cancel by label. Its outcome has no ids.
        let mut unnamed = Vec::new();
        for (op, outcome) in ops.iter().zip(&outcomes) {
            *self.tally.entry((name_of(op), name_of_outcome(outcome))).or_default() += 1;
            self.follow(op, outcome, &mut expected, &mut unnamed);
        }
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        let ids: BTreeSet<TimerId> = stored.keys().copied().collect();
        if was_lost {
            self.follow_lost(&ops[0], &outcomes[0], &ids);
        } else {
            let appeared: Vec<_> = ids.difference(&expected).collect();
            assert!(appeared.is_empty(), "{ops:?}: {outcomes:?}: {appeared:?} appeared");
            let missing: Vec<TimerId> = expected.difference(&ids).copied().collect();
            let removed: u32 = unnamed.iter().map(|(_, _, removed)| *removed).sum();
            let is_meant = |id: &TimerId| {
                let labelled = |timer: &Timer| {
                    unnamed
                        .iter()
                        .any(|(space, label, _)| *space == timer.namespace && timer.labels.contains(label))
                };
                self.seen.stored.get(id).is_some_and(labelled)
            };
            assert!(
                missing.len() == removed as usize && missing.iter().all(is_meant),
                "{ops:?}: {outcomes:?}: {missing:?} are lost"
            );
            self.seen.withdrawn.extend(missing);
        }
        for timer in stored.values() {
            if matches!(timer.state, State::Leased(lease) if lease.withdrawn.is_some()) {
                self.seen.withdrawn.insert(timer.id);
            }
        }
        self.seen.stored = stored;
    }

    #[track_caller]
    fn follow(
        &mut self,
        op: &Op,
        outcome: &Outcome,
        expected: &mut BTreeSet<TimerId>,
        unnamed: &mut Vec<(Box<str>, Box<str>, u32)>,
    ) {
        let seen = &mut self.seen;
        let mut remove = |id: &TimerId| {
            // A cancel by label in the same batch may already have removed the timer.
            let _was_there = expected.remove(id);
        };
        match outcome {
            Outcome::Replaced { old, was, .. } => {
                seen.withdrawn.insert(*old);
                if *was != Phase::Leased {
                    remove(old);
                }
            }
            Outcome::Cancelled(timer) => {
                seen.withdrawn.insert(timer.id);
                remove(&timer.id);
            }
            Outcome::InFlight(id) => drop(seen.withdrawn.insert(*id)),
            Outcome::Ended { id, phase, .. } => {
                let is_withdrawn = seen.withdrawn.contains(id);
                if *phase == Phase::Withdrawn {
                    assert!(is_withdrawn, "{id} is withdrawn, but nobody withdrew it");
                }
                if *phase == Phase::Done {
                    seen.done.insert(*id);
                }
                if matches!(phase, Phase::Done | Phase::Withdrawn) {
                    remove(id);
                } else {
                    assert!(!is_withdrawn, "{id} was withdrawn, and is {phase:?}");
                }
            }
            Outcome::NotFound => match op {
                Op::Cancel(Address::Id(id), None) | Op::Move(Address::Id(id), _) | Op::Replay(id) => {
                    let is_removed = unnamed.iter().any(|(_, _, removed)| *removed > 0);
                    assert!(is_removed || !expected.contains(id) || self.faulty.is_some(), "{id} is lost");
                }
                _ => {}
            },
            Outcome::CancelledMany { cancelled, in_flight, .. } => {
                if let Op::CancelLabelled { namespace, label, limit } = op {
                    // A limit of 0 counts as 1.
                    assert!(*cancelled <= (*limit).max(1) && in_flight <= cancelled);
                    unnamed.push((namespace.clone(), label.clone(), cancelled - in_flight));
                }
            }
            _ => {}
        }
        let new = match outcome {
            Outcome::Created(id) | Outcome::Replaced { new: id, .. } => {
                assert!(!expected.contains(id), "{id} is created a second time");
                // The id may belong to a timer that has ended and whose id is no longer remembered.
                let was_there = seen.withdrawn.remove(id) | seen.done.remove(id);
                assert!(!was_there || self.faulty.is_none(), "{id} is doubled by a repeated creation");
                Some(*id)
            }
            Outcome::Ended { next, .. } => {
                if let Some(next) = next.filter(|_| self.was_set_back) {
                    seen.forget(next);
                }
                *next
            }
            _ => None,
        };
        if let Some(new) = new {
            assert!(expected.insert(new), "{new} is stored a second time");
        }
    }

    /// Checks an operation that the caller repeated because its answer was lost. The store must show the effect of a
    /// single operation.
    #[track_caller]
    fn follow_lost(&mut self, op: &Op, outcome: &Outcome, ids: &BTreeSet<TimerId>) {
        let seen = &mut self.seen;
        let gone: Vec<&Timer> = seen.stored.values().filter(|timer| !ids.contains(&timer.id)).collect();
        let come: Vec<&TimerId> = ids.iter().filter(|id| !seen.stored.contains_key(id)).collect();
        let mut withdrawn = Vec::new();
        match op {
            Op::Place(timer, mode) => {
                if matches!(outcome, Outcome::Created(_) | Outcome::Replaced { .. } | Outcome::Repeated(_)) {
                    let ended = seen.withdrawn.contains(&timer.id) || seen.done.contains(&timer.id);
                    let is_stored = ids.contains(&timer.id);
                    // The lost answer may have been that another timer has the key.
                    let is_open = timer.key.is_some() && self.unsure.contains(op);
                    assert!(is_stored || ended || is_open, "{} is lost", timer.id);
                    if is_stored && !seen.stored.contains_key(&timer.id) {
                        seen.withdrawn.remove(&timer.id);
                        seen.done.remove(&timer.id);
                    }
                }
                assert!(come.iter().all(|id| **id == timer.id), "{come:?} appeared");
                let replaces = !matches!(mode, IfPresent::Reject | IfPresent::Keep);
                for old in &gone {
                    assert!(replaces && old.key == timer.key && old.namespace == timer.namespace);
                    withdrawn.push(old.id);
                }
            }
            Op::Cancel(Address::Id(id), _) => {
                assert!(come.is_empty() && gone.iter().all(|timer| timer.id == *id));
                withdrawn.extend(gone.iter().map(|timer| timer.id));
            }
            Op::CancelLabelled { label, namespace, .. } => {
                assert!(come.is_empty());
                for old in &gone {
                    assert!(old.labels.contains(label) && old.namespace == *namespace, "{} is lost", old.id);
                    withdrawn.push(old.id);
                }
            }
            Op::Ack(id, _) | Op::Skip(id, _) => {
                assert!(come.len() <= 1 && gone.iter().all(|timer| timer.id == *id));
                assert!(
                    matches!(outcome, Outcome::Ended { .. } | Outcome::Refused(Refusal::Stale)),
                    "{outcome:?}"
                );
                seen.done.extend(gone.iter().map(|timer| timer.id));
            }
            Op::Fail(id, ..) | Op::Snooze(id, ..) | Op::Release(id, ..) | Op::Park(id, ..) => {
                assert!(come.len() <= 1);
                for old in &gone {
                    assert!(old.id == *id && seen.withdrawn.contains(id), "{id} is lost");
                }
            }
            _ => assert!(come.is_empty() && gone.is_empty(), "{op:?}: {come:?} appeared, {gone:?} are lost"),
        }
        seen.withdrawn.extend(withdrawn);
    }

    /// Returns the timers that a claim must return now, ordered by due moment and id.
    fn due(&self, limit: Limit) -> Vec<TimerId> {
        let now = self.now();
        let mut due: Vec<&Timer> = self
            .seen
            .stored
            .values()
            .filter(|timer| timer.state == State::Pending && timer.due <= now)
            .collect();
        due.sort_by_key(|timer| (timer.due, timer.id));
        let mut bytes = 0;
        let mut ids = Vec::new();
        for timer in due {
            if ids.len() == limit.timers as usize || bytes > 0 && bytes >= limit.bytes {
                break;
            }
            bytes += timer.payload.0.len() as u64;
            ids.push(timer.id);
        }
        ids
    }

    #[track_caller]
    pub(super) fn claim(&mut self, limit: Limit) {
        let lease = self.rng.choice([0, LEASE, LEASE, LEASE, 48 * HOUR]).unwrap_or(LEASE);
        let by = Claimant { incarnation: self.rng.u64(1..3), lease: Duration::from_millis(lease) };
        let wanted = self.due(limit);
        self.claims += 1;
        let number = self.claims;
        let (leased, was_lost) = match &self.faulty {
            None => {
                let (Claimed { leased, next_due, now, .. }, _) =
                    self.ask(|store| store.claim(by, number, limit, None));
                assert_eq!(now, self.now());
                let pending = |timer: &&Timer| timer.state == State::Pending;
                let next = all(&*self.raw).iter().filter(pending).map(|timer| timer.due).min();
                assert_eq!(next_due, next);
                (leased, false)
            }
            Some(faulty) => match pollster::block_on(faulty.claim(by, number, limit, None)) {
                Ok(claimed) => (claimed.leased, false),
                Err(error) if error.kind() == StoreErrorKind::Io => return,
                Err(_) => (self.ask(|store| store.recover(by, number)).0, true),
            },
        };
        let mut ids: Vec<TimerId> = leased.iter().map(|leased| leased.timer.id).collect();
        let mut wanted = wanted;
        if was_lost {
            // The recovery returns the timers in any order.
            wanted.sort_unstable();
            ids.sort_unstable();
        }
        assert_eq!(ids, wanted, "a claim returns the due timers, the longest due first");
        let token = Token { incarnation: by.incarnation, claim: number };
        for Leased { timer, token: claimed } in &leased {
            let (id, seen) = (timer.id, &self.seen);
            assert_eq!(*claimed, token);
            assert!(timer.due <= self.now(), "{id} is early");
            assert!(!seen.withdrawn.contains(&id), "{id} was withdrawn before it was claimed");
            assert!(!seen.done.contains(&id), "{id} was acknowledged before it was claimed");
            self.held.push((id, token));
        }
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        assert!(stored.keys().eq(self.seen.stored.keys()), "a claim only leases timers");
        self.seen.stored = stored;
        let recovered = self.ask(|store| {
            Box::pin(async move {
                let mut leased = store.recover(by, number).await?;
                leased.sort_by_key(|leased| leased.timer.id);
                Ok(leased)
            })
        });
        let at_least: Vec<&Leased> = {
            let mut all: Vec<&Leased> = leased.iter().collect();
            all.sort_by_key(|leased| leased.timer.id);
            all
        };
        assert!(recovered.0.iter().eq(at_least), "a recovery returns the timers that the claim returned");
    }

    /// Returns the series of the stored timers that satisfy `is_meant`.
    fn occurrences_of(&self, is_meant: impl Fn(&Timer) -> bool) -> BTreeSet<TimerId> {
        let meant = self.seen.stored.values().filter(|timer| is_meant(timer));
        meant.filter_map(|timer| timer.series.as_ref()).map(|series| series.id).collect()
    }

    /// Checks that each new timer in `stored` is an occurrence of a series in `series`.
    #[track_caller]
    fn appeared(&mut self, stored: &BTreeMap<TimerId, Timer>, series: &BTreeSet<TimerId>) {
        let seen = &mut self.seen;
        for timer in stored.values() {
            if seen.stored.contains_key(&timer.id) {
                continue;
            }
            let origin = timer.series.as_ref().map(|series| series.id);
            assert!(origin.is_some_and(|origin| series.contains(&origin)), "{} appeared", timer.id);
            if self.was_set_back {
                seen.forget(timer.id);
            }
        }
    }

    #[track_caller]
    pub(super) fn renew(&mut self) {
        let lease = self.rng.choice([0, LEASE / 2, LEASE / 2, 48 * HOUR]).unwrap_or(LEASE);
        let by = Claimant { incarnation: 1, lease: Duration::from_millis(lease) };
        let held = self.held.clone();
        let (Renewal { lost, silent }, _) = self.ask(|store| store.renew(by, held.clone()));
        assert_eq!(silent, []);
        for (id, token) in &held {
            let timer = self.seen.stored.get(id);
            let has = timer
                .is_some_and(|timer| matches!(timer.state, State::Leased(lease) if lease.token == *token));
            assert_eq!(lost.contains(&(*id, *token)), !has);
        }
        self.held.retain(|lease| !lost.contains(lease) || self.rng.u32(0..4) == 0);
        self.seen.stored = all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
    }

    #[track_caller]
    pub(super) fn reap(&mut self, limit: u32) {
        let (reaped, was_lost) = self.ask(|store| {
            Box::pin(async move {
                let mut reaped = store.reap(limit).await?;
                reaped.returned.sort_unstable();
                reaped.dead.sort_unstable();
                reaped.not_begun.sort_unstable();
                Ok(reaped)
            })
        });
        let Reaped { returned, not_begun, dead, withdrawn, .. } = reaped;
        let now = self.now();
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        let is_over = |timer: &Timer| matches!(timer.state, State::Leased(lease) if lease.until <= now);
        let over: Vec<&Timer> = self.seen.stored.values().filter(|timer| is_over(timer)).collect();
        let count = returned.len() + dead.len() + withdrawn as usize;
        if !was_lost {
            assert_eq!(count, over.len().min(limit as usize), "a reap ends the leases that are over");
        }
        for id in returned.iter().chain(&dead) {
            assert!(self.seen.stored.get(id).is_some_and(is_over), "{id} was reaped early");
        }
        let is_once = |id: &&TimerId| self.seen.stored[*id].policy.guarantee == Guarantee::AtMostOnce;
        assert!(returned.iter().filter(is_once).eq(&not_begun), "{returned:?}, {not_begun:?}");
        for id in self.seen.stored.keys().filter(|id| !stored.contains_key(id)) {
            assert!(self.seen.withdrawn.contains(id), "{id} is lost");
        }
        let series = self.occurrences_of(is_over);
        self.appeared(&stored, &series);
        self.seen.stored = stored;
    }

    /// Imports a backup. The store must store its timers that are not withdrawn, or fail and change nothing.
    #[track_caller]
    pub(super) fn import(&mut self) {
        let timers = self.backup();
        let (is_stored, _) = self.ask(|store| {
            let timers = timers.clone();
            Box::pin(async move {
                match store.import(timers).await {
                    Err(error) if error.kind() == StoreErrorKind::Limit => Ok(false),
                    result => result.map(|()| true),
                }
            })
        });
        let mut expected: BTreeSet<TimerId> = self.seen.stored.keys().copied().collect();
        if is_stored {
            let is_withdrawn =
                |timer: &&Timer| matches!(timer.state, State::Leased(Lease { withdrawn: Some(_), .. }));
            for timer in timers.iter().filter(|timer| !is_withdrawn(timer)) {
                assert!(expected.insert(timer.id), "{} is stored a second time", timer.id);
                self.seen.forget(timer.id);
            }
        }
        *self.tally.entry(("import", if is_stored { "stored" } else { "refused" })).or_default() += 1;
        let stored: BTreeMap<TimerId, Timer> =
            all(&*self.raw).into_iter().map(|timer| (timer.id, timer)).collect();
        assert!(stored.keys().eq(&expected), "{timers:?}: {is_stored}: the store has {stored:#?}");
        self.seen.stored = stored;
    }

    /// Ends the store's random life (its run of random operations): delivers all timers until only dead timers remain.
    #[track_caller]
    pub(super) fn end(&mut self) {
        if let Some(faulty) = &self.faulty {
            faulty.hook().heal();
        }
        let series: Vec<TimerId> =
            self.seen.stored.values().filter(|timer| timer.series.is_some()).map(|timer| timer.id).collect();
        self.apply(series.into_iter().map(|id| Op::Cancel(id.into(), None)).collect());
        for _ in 0..200 {
            self.step += 1;
            self.clock.advance(Duration::from_secs(86_400));
            self.reap(u32::MAX);
            self.apply(REASONS.map(|reason| Op::Unpark(reason.into(), u32::MAX)).into());
            self.held.clear();
            self.claim(Limit { timers: u32::MAX, bytes: u64::MAX });
            let held = core::mem::take(&mut self.held);
            self.apply(held.into_iter().map(|(id, token)| Op::Ack(id, token)).collect());
            if self.seen.stored.values().all(|timer| timer.state.phase() == Phase::Dead) {
                break;
            }
        }
        self.compare();
        let left: Vec<&Timer> =
            self.seen.stored.values().filter(|timer| timer.state.phase() != Phase::Dead).collect();
        assert!(left.is_empty(), "timers without an end: {left:#?}");
    }
}
