//! Makes parked timers due again (*unparks* them) once the reason for which they were parked no longer holds.
//!
//! The unparker sleeps until the index of parked timers marks a reason. Then it asks the admission or the pull queues
//! how many timers of the reason may become due, and unparks that number in batches. At most one unpark runs for each
//! reason. Every ten seconds the unparker checks all reasons, so a lost wake-up only delays a timer.
//!
//! At its start the unparker makes a *pass*: it counts the parked timers in the store by reason, because a reason may
//! have ended while no process ran. It repeats the pass soon after a change that may have taken a parked timer away,
//! and at regular intervals: only the store knows the changes of other processes, and the timers that a dead node has
//! parked.
//!
//! If other nodes share the store, the unparker unparks only timers of this node's shards. Such timers arrive at this
//! node, which has just found that they may be delivered. A timer of another shard would arrive at another node. That
//! node might park the timer again for its own reason, and this node would unpark it again without end.

use super::admission::Admission;
use super::parked_index::ParkedIndex;
use super::parked_timers::ParkedTimers;
use super::permits::Wanted;
use super::pull_queues::PullQueues;
use super::reason::Reason;
use crate::task;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tourbillon_durable::Timers;
use tourbillon_durable::store::{ReasonCount, StoreError, TimerStore};

/// The time between two checks of all reasons for which timers are parked. A reason is also checked after each event
/// that may permit its timers to be delivered. If the unparker misses such an event, the timers wait for the next check
/// of all reasons.
const ROUND: Duration = Duration::from_secs(10);
/// The regular time between two passes. A pass reads the reasons of all parked timers from the store, one page at a
/// time. Without other nodes, a regular pass takes place only if this process knows parked timers.
const PASS: Duration = Duration::from_secs(30);
/// The pause before a pass that starts earlier than [`PASS`] demands, if other nodes share the store. A pass starts
/// early if a change may have ended the parking of a timer, if another node's report of a parked timer may be lost, or
/// if the set of nodes has changed. In the last case, this node gets its new shards during the pause.
const SETTLED: Duration = Duration::from_secs(2);
/// The pause before a pass that starts earlier than [`PASS`] demands, if no other node shares the store.
const SOON: Duration = Duration::from_millis(250);
/// The least pause before a pass that starts early, as a multiple of the time that the last pass has taken. In some
/// stores this time depends on the number of parked timers.
const REST_OF_PASS: u32 = 20;
/// The least pause before a regular pass without other nodes, as a multiple of the time that the last pass has taken.
const REGULAR_REST: u32 = 100;
/// The pause after a failed request to the store.
const PAUSE: Duration = Duration::from_secs(1);
/// The greatest number of parked timers that one request to the store makes due again.
const BATCH: usize = 500;
/// The greatest number of reasons in a page that the store returns, for a pass without pauses between its pages, such
/// as the first pass. A pass reads the reasons of all parked timers.
const PAGE: u32 = 1_000;
/// The greatest number of reasons in a page that the store returns, for the passes that follow the first pass (see
/// [`PASS`]). A Redis server runs two commands for each reason. With the pause [`REST`] after each page, a pass makes
/// the server run about a hundred commands a second.
const SMALL_PAGE: u32 = 50;
/// The pause after each page of reasons that the store returns, in the passes that follow the first pass (see
/// [`PASS`]).
const REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Unparker {
    parked: Arc<ParkedIndex>,
    admission: Arc<Admission>,
    queues: Arc<PullQueues>,
    /// Locked during a pass, so that passes do not overlap. A pass reads the reasons of all parked timers from the
    /// store.
    pass: tokio::sync::Mutex<()>,
}

impl Unparker {
    pub(crate) fn new(parked: Arc<ParkedIndex>, admission: Arc<Admission>, queues: Arc<PullQueues>) -> Self {
        Self { parked, admission, queues, pass: tokio::sync::Mutex::default() }
    }

    /// Makes parked timers due again once the reasons for which they were parked no longer hold. Ends once the service
    /// stops and closes the index of parked timers ([`ParkedIndex::close`]).
    pub(crate) async fn run(self: Arc<Self>, timers: Timers, has_others: bool) {
        let store = timers.timer_store();
        task::start(Arc::clone(&self).find_all_parked(Arc::clone(&store), has_others));
        let mut alarms = Alarms::default();
        let mut round = present() + ROUND;
        while !self.parked.is_closed() {
            self.admission.renew_limits();
            let now = present();
            if now >= round {
                round = now + ROUND;
                self.admission.sweep();
                self.parked.look_everywhere();
                if has_others {
                    // Another node's report of a parked timer may have been lost.
                    self.queues.awaited().iter().for_each(|reason| self.parked.want(reason));
                }
            }
            alarms.take(now).iter().for_each(|reason| self.look_at(reason));
            for reason in self.parked.take_marked() {
                match self.wanted(&reason, now) {
                    Wanted::Now(wanted) => {
                        let wanted = wanted.min(BATCH);
                        // The request is noted before its task runs. Otherwise this loop could start a second request
                        // for the same reason.
                        self.parked.begin(&reason);
                        let this = Arc::clone(&self);
                        if has_others && matches!(reason, Reason::Queue(..)) {
                            task::start(this.fetch(timers.clone(), reason, wanted));
                        } else {
                            task::start(this.unpark(Arc::clone(&store), reason, wanted));
                        }
                    }
                    Wanted::At(moment) => alarms.set(reason, moment),
                    Wanted::Nothing => {}
                }
            }
            let until = alarms.next().map_or(round, |moment| moment.min(round));
            tokio::select! {
                () = self.parked.changed() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }

    /// Marks a reason at the moment of its alarm, so that the unparker checks how many of its timers may become due.
    fn look_at(&self, reason: &Reason) {
        match reason {
            // A pass may have removed the entry of the queue from the index, although receivers still wait.
            Reason::Queue(..) => self.queues.look_at(reason),
            _ => self.parked.look_at(reason),
        }
    }

    fn wanted(&self, reason: &Reason, now: Instant) -> Wanted {
        match reason {
            Reason::Queue(..) => self.queues.wanted(reason, now),
            _ => self.admission.wanted(reason, now),
        }
    }

    async fn unpark(self: Arc<Self>, store: Arc<dyn TimerStore>, reason: Reason, timers: usize) {
        // The timers are counted first, because they may arrive before the store's answer.
        self.queues.expect(&reason, timers);
        self.admission.expect(&reason, timers);
        let found = unpark(&*store, &reason, timers).await;
        // The counts are corrected before the call of `end`, because `end` makes the unparker compute again how many
        // timers are wanted.
        let missing = timers - found.as_ref().map_or(0, |found| *found as usize).min(timers);
        self.queues.expect_no_more(&reason, missing);
        self.admission.expect_no_more(&reason, missing);
        if let Err(error) = &found {
            self.parked.failed(&reason, error);
        }
        self.parked.end(&reason, found.as_ref().ok().copied());
        if found.is_err() && !self.parked.is_closed() {
            tokio::time::sleep(PAUSE).await;
            self.parked.look_at(&reason);
        }
    }

    /// Takes parked timers of a queue from the store, and delivers them on this node, where receivers wait for them.
    /// Any node may have parked these timers. If no timer of the queue is parked, tells the waiting receivers so.
    async fn fetch(self: Arc<Self>, timers: Timers, reason: Reason, wanted: usize) {
        let most = self.queues.begin_fetch(&reason, wanted);
        let limit = |timers: usize| u32::try_from(timers).unwrap_or(u32::MAX);
        let found = timers.fetch(&reason.to_string(), limit(wanted), limit(most)).await;
        // The queue must stop expecting the missing timers first: `nothing_is_parked` does nothing while the queue
        // expects timers.
        self.queues.end_fetch(&reason, most, found.as_ref().map_or(0, |found| *found as usize));
        if let Err(error) = &found {
            self.parked.failed(&reason, error);
        }
        if self.parked.end_fetch(&reason, found.as_ref().ok().copied()) {
            self.queues.nothing_is_parked(&reason);
        }
        if found.is_err() && !self.parked.is_closed() {
            tokio::time::sleep(PAUSE).await;
            // `look_at` would do nothing here if only other nodes have parked timers for the queue.
            self.queues.heard(Some(&reason));
        }
    }

    /// Makes the first pass, which reads the reasons of all parked timers. Then makes further passes until the service
    /// stops and closes the index of parked timers ([`ParkedIndex::close`]).
    async fn find_all_parked(self: Arc<Self>, store: Arc<dyn TimerStore>, has_others: bool) {
        self.find_parked(&*store).await;
        // A task that rests must not keep a closed store open.
        let resting = Arc::downgrade(&store);
        drop(store);
        let (limit, rest, settled) =
            if has_others { (SMALL_PAGE, REST, SETTLED) } else { (PAGE, Duration::ZERO, SOON) };
        let mut took = Duration::ZERO;
        while !self.parked.is_closed() {
            let is_regular = tokio::select! {
                () = tokio::time::sleep(if has_others { PASS } else { PASS.max(took * REGULAR_REST) }) => true,
                () = self.parked.pass_wanted() => {
                    tokio::time::sleep((took * REST_OF_PASS).max(settled)).await;
                    false
                }
            };
            // Only the store knows of paused timers. So a requested pass takes place even if the index is empty.
            if is_regular && !has_others && self.parked.is_empty() {
                continue;
            }
            let Some(store) = resting.upgrade().filter(|_| !self.parked.is_closed()) else { return };
            let begun = tokio::time::Instant::now();
            // If this pass fails, the next pass reads the reasons again.
            let is_exact = self.pass(&*store, limit, rest).await.unwrap_or(true);
            // Beside other nodes the next regular pass is soon enough.
            if !is_exact && !has_others {
                self.parked.want_pass();
            }
            took = begun.elapsed().min(PASS);
        }
    }

    /// Makes a pass, which reads the reasons of all parked timers from the store. Repeats the pass until it succeeds,
    /// or until the service stops and closes the index of parked timers ([`ParkedIndex::close`]).
    pub(crate) async fn find_parked(&self, store: &dyn TimerStore) {
        while !self.parked.is_closed() && self.pass(store, PAGE, Duration::ZERO).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads the reasons of all parked timers from the store once, page by page, each with the number and the age of
    /// its timers. A page has at most `limit` reasons.
    /// After each page, this function pauses for the time `rest`. Returns whether the numbers of parked timers are now
    /// exact, as [`ParkedIndex::end_pass`] says.
    async fn pass(&self, store: &dyn TimerStore, limit: u32, rest: Duration) -> Result<bool, StoreError> {
        let _one_at_a_time = self.pass.lock().await;
        self.parked.begin_pass();
        let (mut found, mut after, mut is_exact) = (HashMap::<_, ParkedTimers>::new(), None, false);
        let mut unknown = ParkedTimers::default();
        while !self.parked.is_closed() {
            let page = store.reasons(after, limit).await?;
            let now = store.now();
            for ReasonCount { reason, timers: count, first_due } in page.counts {
                let of_reason = match Reason::parse(&reason) {
                    Some(reason) => found.entry(reason).or_default(),
                    // The runtime also parks timers for which it has no handler. Their reasons are not of this service,
                    // so the unparker leaves these timers alone.
                    None => &mut unknown,
                };
                // Several pages may count timers of the same reason.
                of_reason.add(ParkedTimers { count, age: now - first_due });
            }
            after = page.next;
            if after.is_none() {
                // An incomplete pass must not get here, because each reason that the pass did not read would seem to
                // have no timers.
                self.parked.note_unknown(unknown);
                is_exact = self.parked.end_pass(found);
                break;
            }
            tokio::time::sleep(rest).await;
        }
        Ok(is_exact)
    }
}

/// Returns the present moment by tokio's clock. The unparker sleeps by this clock. A test may pause the clock.
fn present() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Makes at most `timers` of the timers that are parked for `reason` due again. Returns the number of these timers. A
/// crash during the call loses nothing, because the next start finds all parked timers.
async fn unpark(store: &dyn TimerStore, reason: &Reason, timers: usize) -> Result<u32, StoreError> {
    store.put_back(reason.to_string().into(), u32::try_from(timers).unwrap_or(u32::MAX)).await
}

/// The moments at which the unparker must check again how many timers that are parked for a [`Reason`] may be
/// delivered. Each reason has at most one moment.
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

    /// Returns the reasons whose moments have come, and removes these reasons with their moments. The unparker must now
    /// check again how many timers that are parked for the returned reasons may be delivered.
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
