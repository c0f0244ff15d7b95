//! The usher: puts parked timers back when what they wait for has come.
//!
//! It sleeps until the board has a reason to look at, asks the gates or the desk how many timers of the reason can go
//! on, and unparks as many: one unpark for a reason at a time, in batches. Every ten seconds it looks at all reasons,
//! so that no timer depends on a wake-up.
//!
//! At its start it reads the timers that are parked, page by page, since a reason that held when the process ended may
//! hold no more. Beside other nodes it goes on with that: what a node has parked that is gone by now, the others find.

use super::board::Board;
use super::desk::Desk;
use super::gates::Gates;
use super::places::Wanted;
use super::reason::Reason;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Durability, Filter, Op, Outcome, StoreError, TimerStore};

/// The time after which all reasons are looked at.
const ROUND: Duration = Duration::from_secs(10);
/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);
/// The greatest number of timers that one unpark puts back.
const BATCH: usize = 500;
/// The number of parked timers that are read at once at the start.
const PAGE: u32 = 100;
/// The pause between two pages later on.
const REST: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Usher {
    board: Arc<Board>,
    gates: Arc<Gates>,
    desk: Arc<Desk>,
}

impl Usher {
    pub(crate) fn new(board: Arc<Board>, gates: Arc<Gates>, desk: Arc<Desk>) -> Self {
        Self { board, gates, desk }
    }

    /// Works until the board is closed.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<dyn TimerStore>, has_others: bool) {
        drop(tokio::spawn(Arc::clone(&self).find_all_parked(Arc::clone(&store), has_others)));
        let mut alarms = Alarms::default();
        let mut round = present() + ROUND;
        while !self.board.is_closed() {
            let now = present();
            if now >= round {
                round = now + ROUND;
                self.gates.sweep();
                self.board.look_everywhere();
            }
            alarms.take(now).iter().for_each(|reason| self.board.look_at(reason));
            for reason in self.board.take_marked() {
                match self.wanted(&reason, now) {
                    Wanted::Now(timers) => {
                        let timers = timers.min(BATCH);
                        self.board.begin(&reason);
                        drop(tokio::spawn(Arc::clone(&self).unpark(Arc::clone(&store), reason, timers)));
                    }
                    Wanted::At(moment) => alarms.set(reason, moment),
                    Wanted::Nothing => {}
                }
            }
            let until = alarms.next().map_or(round, |moment| moment.min(round));
            tokio::select! {
                () = self.board.changed() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        match reason {
            Reason::Queue(..) => self.desk.wanted(reason, now),
            _ => self.gates.wanted(reason, now),
        }
    }

    async fn unpark(self: Arc<Self>, store: Arc<dyn TimerStore>, reason: Reason, timers: usize) {
        // They may arrive before the store's answer.
        self.desk.expect(&reason, timers);
        self.gates.expect(&reason, timers);
        let found = unpark(&*store, &reason, timers).await;
        let missing = timers - found.as_ref().map_or(0, |found| *found as usize).min(timers);
        self.desk.expect_no_more(&reason, missing);
        self.gates.expect_no_more(&reason, missing);
        self.board.end(&reason, found.as_ref().ok().copied());
        if found.is_err() && !self.board.is_closed() {
            tokio::time::sleep(PAUSE).await;
            self.board.look_at(&reason);
        }
    }

    /// Notes all timers that are parked, and then, beside other nodes, again and again for what they are parked.
    async fn find_all_parked(self: Arc<Self>, store: Arc<dyn TimerStore>, has_others: bool) {
        Arc::clone(&self).find_parked(Arc::clone(&store)).await;
        while has_others && !self.board.is_closed() {
            tokio::time::sleep(ROUND).await;
            let mut cursor = None;
            while !self.board.is_closed() {
                let filter = Filter { phase: Some(Phase::Parked), ..Filter::default() };
                let Ok(page) = store.list(filter, cursor, PAGE).await else { break };
                let reasons = page.timers.iter().filter_map(|timer| match &timer.state {
                    State::Parked(reason) => Reason::parse(reason),
                    _ => None,
                });
                reasons.for_each(|reason| self.board.found(reason));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
                // There may be many, and this is in no hurry.
                tokio::time::sleep(REST).await;
            }
        }
    }

    /// Notes all timers that are parked.
    pub(crate) async fn find_parked(self: Arc<Self>, store: Arc<dyn TimerStore>) {
        let filter = || Filter { phase: Some(Phase::Parked), ..Filter::default() };
        let mut cursor = None;
        while !self.board.is_closed() {
            let Ok(page) = store.list(filter(), cursor.clone(), PAGE).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            for timer in &page.timers {
                if let State::Parked(reason) = &timer.state
                    && let Some(reason) = Reason::parse(reason)
                {
                    self.board.parked(reason);
                }
            }
            if page.next.is_none() {
                return;
            }
            cursor = page.next;
        }
    }
}

/// The present moment by the clock of the runtime, by which the usher sleeps: a paused one does not go on by itself.
fn present() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Puts at most so many timers back. What is lost of it with the process is found at the next start.
async fn unpark(store: &dyn TimerStore, reason: &Reason, timers: usize) -> Result<u32, StoreError> {
    let op = Op::Unpark(reason.to_string().into(), u32::try_from(timers).unwrap_or(u32::MAX));
    let outcomes = store.apply(vec![op], Durability::Volatile).await?;
    Ok(outcomes.iter().map(|outcome| if let Outcome::Unparked(found) = outcome { *found } else { 0 }).sum())
}

/// The moments at which reasons are to be looked at, one for each.
#[derive(Debug, Default)]
struct Alarms {
    by_moment: BTreeSet<(Instant, Reason)>,
    by_reason: HashMap<Reason, Instant>,
}

impl Alarms {
    fn set(&mut self, reason: Reason, moment: Instant) {
        if let Some(former) = self.by_reason.insert(reason.clone(), moment) {
            self.by_moment.remove(&(former, reason.clone()));
        }
        self.by_moment.insert((moment, reason));
    }

    fn next(&self) -> Option<Instant> {
        self.by_moment.first().map(|(moment, _)| *moment)
    }

    /// The reasons whose moment has come.
    fn take(&mut self, now: Instant) -> Vec<Reason> {
        let mut taken = Vec::new();
        while let Some((moment, _)) = self.by_moment.first()
            && *moment <= now
            && let Some((_, reason)) = self.by_moment.pop_first()
        {
            self.by_reason.remove(&reason);
            taken.push(reason);
        }
        taken
    }
}
