//! Counts the parked timers of each reason, as far as this process knows them, and marks the reasons that the
//! *unparker* must check. The unparker is the task that *unparks* timers: it makes parked timers due again.
//!
//! # No timer is forgotten
//! The store parks a timer some time after the timer's handler has decided to park it. The reason may end in between.
//! So two events make the unparker check a reason: each stored park calls [`ParkedIndex::add`], and each event that may
//! permit deliveries again calls [`ParkedIndex::look_at`]. The check after the later event finds the parked timer, and
//! finds that the timer may be delivered.
//!
//! The count of a reason may be too high for a while, for example after a cancel. The count never stays too low: it
//! becomes zero only after an unpark or a pass has found nothing. Timers that are parked during that search still
//! count.
//!
//! # Passes
//! A *pass* counts the parked timers in the store by reason. The first pass runs at the start. A further pass runs soon
//! after each event that may have made a count too high: a change of this process that may have taken a parked timer
//! away, such as a cancel; an unpark that leaves a count of zero; and a pass during which timers were parked or
//! unparked. Passes are also repeated at regular intervals, because other processes change timers, too: only the store
//! knows the timers that a dead node has parked, and shards change their owners.
//!
//! A timer that is parked during a pass may be counted twice until the next pass. A pass does not change the count of a
//! reason whose timers are being unparked. A pass also keeps each marked reason, even if no timer is parked for it: a
//! receiver may wait for the check, and other nodes may have parked timers since the pass read the store.

use super::parked_timers::ParkedTimers;
use super::reason::Reason;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;
use tourbillon_durable::store::StoreError;

/// Counts the parked timers by the [`Reason`] for which they are parked, and marks the reasons that the unparker (the
/// task that makes parked timers due again) must check.
#[derive(Debug, Default)]
pub(crate) struct ParkedIndex {
    state: Mutex<State>,
    changed: Notify,
    /// Notified when the next pass must start before its regular time, for example after a change that may have ended
    /// the parking of timers ([`Timing`](crate::record::Timing)). A pass reads the number of parked timers of each
    /// reason from the store.
    pass_wanted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    parked: HashMap<Reason, Parked>,
    /// The reasons that the unparker (the task that makes parked timers due again) must check.
    marked: HashSet<Reason>,
    /// The queues for which a fetch has found no parked timer at any node, each with the moment of that fetch.
    emptied: HashMap<Reason, Instant>,
    /// The reasons whose last request the store has not answered, or has answered with an error.
    unanswered: HashMap<Reason, Unanswered>,
    /// The moment at which the store last answered a request about any queue. `None` before the first answer.
    answered: Option<Instant>,
    /// Whether timers were parked, unparked or fetched after the last pass (a count of the parked timers in the store)
    /// began. The numbers of this pass may then be too high.
    is_pass_disturbed: bool,
    /// The timers that the last pass has found parked for reasons of other programs.
    unknown: ParkedTimers,
    is_closed: bool,
}

/// Counts the timers that are parked (kept in the store without a delivery) for one [`Reason`], such as the pause of
/// their namespace. For a [`Reason::Queue`], these timers wait in a queue for a receiver.
#[derive(Debug, Default)]
struct Parked {
    count: u64,
    /// The age of the oldest timer at the last pass ([`ParkedTimers::age`]).
    age: Duration,
    /// Whether a running request to the store takes timers that are parked for this reason. The request is an *unpark*,
    /// which makes the timers due again, or a *fetch*, which takes timers of a queue for waiting receivers.
    is_busy: bool,
    /// The number of timers that were parked for this reason after the last request that takes such timers began.
    since: u64,
    /// The number of timers that were parked for this reason after the last pass began. A pass counts the parked timers
    /// in the store.
    during_pass: u64,
    /// Whether timers of this queue were requested ([`want`](ParkedIndex::want)) after the last fetch from it began.
    is_wanted: bool,
    /// Whether a node has reported, after the last fetch from this queue began, that it has parked a timer for the
    /// queue.
    was_heard: bool,
}

/// The requests about one [`Reason`] since its last successful request. The first of them began at `since`.
#[derive(Debug)]
struct Unanswered {
    since: Instant,
    /// The moment of the last event: the start of a request, or its error.
    last: Instant,
    /// Whether the last request has neither an answer nor an error.
    is_under_way: bool,
    error: Option<Box<str>>,
}

impl Unanswered {
    /// Returns whether a request is under way, or the last event was less than [`REMEMBERED`] before `now`.
    fn counts(&self, now: Instant) -> bool {
        self.is_under_way || now.saturating_duration_since(self.last) < REMEMBERED
    }
}

/// The time after which a request to the store counts as unanswered. A receiver that has got no timer then cannot know
/// whether its queue is empty.
const SLOW: Duration = Duration::from_millis(250);
/// The time for which [`fault`](ParkedIndex::fault) reports an error of the store if no further request follows.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The time for which a queue counts as empty after a fetch has found no parked timer. This time ends early if a node
/// reports that it has parked a timer for the queue.
const EMPTY: Duration = Duration::from_secs(1);

impl ParkedIndex {
    /// Makes an empty index. It notifies `pass_wanted` when the parked timers in the store must be counted again.
    pub(crate) fn new(pass_wanted: Arc<Notify>) -> Self {
        Self { pass_wanted, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a timer that was parked for this reason, and makes the unparker (the task that makes parked timers due
    /// again) check the reason.
    pub(crate) fn add(&self, reason: Reason) {
        let mut state = self.lock();
        let parked = state.parked.entry(reason.clone()).or_default();
        (parked.count, parked.since) = (parked.count + 1, parked.since + 1);
        parked.during_pass += 1;
        state.is_pass_disturbed = true;
        state.emptied.remove(&reason);
        state.marked.insert(reason);
        drop(state);
        self.changed.notify_one();
    }

    /// Makes the unparker (the task that makes parked timers due again) fetch timers of a queue for waiting receivers,
    /// even if this node has parked no timer for the queue. Other nodes may have parked some.
    pub(crate) fn want(&self, reason: &Reason) {
        let mut state = self.lock();
        state.parked.entry(reason.clone()).or_default().is_wanted = true;
        state.marked.insert(reason.clone());
        drop(state);
        self.changed.notify_one();
    }

    /// Does the same as [`want`](Self::want), unless a fetch from the queue is under way or has just found no timer.
    /// Called after events that do not report new timers, such as the end of a claim.
    pub(crate) fn want_if_free(&self, reason: &Reason) {
        let is_busy = self.lock().parked.get(reason).is_some_and(|parked| parked.is_busy);
        // The end of a fetch that has found timers marks the queue again. If ends of claims repeated a fetch that finds
        // none, an empty queue would be fetched without a pause.
        if !is_busy && self.may_have(reason) {
            self.want(reason);
        }
    }

    /// Notes that a node has parked a timer for a queue, so the queue no longer counts as empty.
    pub(crate) fn heard(&self, reason: &Reason) {
        let mut state = self.lock();
        state.emptied.remove(reason);
        // A fetch under way may have read the store before the timer was parked.
        if let Some(parked) = state.parked.get_mut(reason) {
            parked.was_heard = true;
        }
    }

    /// Forgets which queues were found empty, and makes the next pass start soon. A pass reads the number of parked
    /// timers of each reason from the store. Called if this node may have missed the report of another node that has
    /// parked a timer, or if the set of live nodes has changed.
    pub(crate) fn heard_all(&self) {
        self.lock().emptied.clear();
        self.pass_wanted.notify_one();
    }

    /// Waits until the next pass must start before its regular time, or until the index is closed. A pass reads the
    /// number of parked timers of each [`Reason`] from the store.
    pub(crate) async fn pass_wanted(&self) {
        self.pass_wanted.notified().await;
    }

    /// Returns whether any node may have parked timers for this queue. Returns false for a second after a fetch has
    /// found no timer, unless a node has reported a parked timer since then.
    pub(crate) fn may_have(&self, reason: &Reason) -> bool {
        self.lock().emptied.get(reason).is_none_or(|emptied| emptied.elapsed() >= EMPTY)
    }

    /// Notes the end of a fetch from a queue. `found` is the number of fetched timers, or `None` after an error. If
    /// more timers may be parked, marks the queue for another fetch. Returns whether the fetch has shown the queue to
    /// be empty.
    pub(crate) fn end_fetch(&self, reason: &Reason, found: Option<u32>) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        // Expired entries are removed here, because a queue with such an entry may never be used again.
        state.emptied.retain(|_, emptied| now.saturating_duration_since(*emptied) < EMPTY);
        state.is_pass_disturbed |= found != Some(0);
        if found.is_some() {
            state.answered = Some(Instant::now());
            state.unanswered.remove(reason);
        }
        let Some(parked) = state.parked.get_mut(reason) else { return false };
        parked.is_busy = false;
        parked.count = match found {
            Some(0) => parked.since,
            found => parked.count.saturating_sub(found.unwrap_or(0).into()),
        };
        if found == Some(0) {
            // The timers of the last pass have gone.
            parked.age = Duration::ZERO;
        }
        let is_again = found.is_some_and(|found| found > 0) || parked.since > 0 || parked.is_wanted;
        let is_empty = found == Some(0) && !is_again && !parked.was_heard;
        if is_empty {
            state.emptied.insert(reason.clone(), now);
        }
        if is_again {
            state.marked.insert(reason.clone());
            drop(state);
            self.changed.notify_one();
        } else if state.parked.get(reason).is_some_and(|parked| parked.count == 0) {
            state.parked.remove(reason);
        }
        is_empty
    }

    /// Begins a pass, which reads the number of parked timers of each reason from the store.
    /// [`end_pass`](Self::end_pass) adds the timers that are parked during the pass to the numbers that the pass has
    /// read.
    pub(crate) fn begin_pass(&self) {
        let mut state = self.lock();
        state.parked.values_mut().for_each(|parked| parked.during_pass = 0);
        state.is_pass_disturbed = false;
    }

    /// Ends a pass. `found` has the parked timers that the pass has read from the store for each reason. Their numbers
    /// replace the earlier ones, except for a reason whose timers are just being made due again or fetched for
    /// receivers. Returns whether all numbers are exact. If timers were parked, made due again or fetched
    /// during the pass, some numbers may be too high.
    pub(crate) fn end_pass(&self, mut found: HashMap<Reason, ParkedTimers>) -> bool {
        let mut state = self.lock();
        let State { parked, marked, is_pass_disturbed, .. } = &mut *state;
        let mut is_exact = !*is_pass_disturbed;
        parked.retain(|reason, parked| {
            let ParkedTimers { count, age } = found.remove(reason).unwrap_or_default();
            is_exact &= !parked.is_busy;
            parked.age = age;
            if !parked.is_busy {
                parked.count = count + parked.during_pass;
            }
            // The unparker has not seen a marked reason yet, and a receiver may wait for this check.
            parked.is_busy || parked.count > 0 || marked.contains(reason)
        });
        for (reason, ParkedTimers { count, age }) in found {
            parked.insert(reason.clone(), Parked { count, age, ..Parked::default() });
            marked.insert(reason);
        }
        drop(state);
        self.changed.notify_one();
        is_exact
    }

    /// Notes the timers that a pass has found parked for reasons of other programs, such as a library with this store.
    pub(crate) fn note_unknown(&self, timers: ParkedTimers) {
        self.lock().unknown = timers;
    }

    /// Returns the timers that the last pass has found parked for reasons of other programs.
    pub(crate) fn unknown(&self) -> ParkedTimers {
        self.lock().unknown
    }

    /// Makes the next pass start soon. A pass reads the number of parked timers of each reason from the store.
    pub(crate) fn want_pass(&self) {
        self.pass_wanted.notify_one();
    }

    /// Returns whether this index counts no parked timer.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.unknown.count == 0 && state.parked.values().all(|parked| parked.count == 0)
    }

    /// Makes the unparker (the task that makes parked timers due again) check whether the timers that are parked for
    /// this reason may be delivered now. Does nothing if no timer is parked for the reason.
    pub(crate) fn look_at(&self, reason: &Reason) {
        let mut state = self.lock();
        if state.parked.contains_key(reason) {
            state.marked.insert(reason.clone());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Makes the unparker (the task that makes parked timers due again) check for each reason whether the timers that
    /// are parked for it may be delivered now.
    pub(crate) fn look_everywhere(&self) {
        let mut state = self.lock();
        let all: Vec<Reason> = state.parked.keys().cloned().collect();
        state.marked.extend(all);
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the number of timers that are parked for this reason. While a request to the store makes such timers due
    /// again, the number may be too low.
    pub(crate) fn count(&self, reason: &Reason) -> u64 {
        self.lock().parked.get(reason).map_or(0, |parked| parked.count)
    }

    /// Returns the timers that are parked (kept in the store without a delivery) for each [`Reason`]. Counts only the
    /// parked timers that this process knows.
    pub(crate) fn counts(&self) -> BTreeMap<Reason, ParkedTimers> {
        let state = self.lock();
        // `want` also makes entries, for queues of which no parked timer is known.
        let known = state.parked.iter().filter(|(_, parked)| parked.count > 0);
        let timers = |parked: &Parked| ParkedTimers { count: parked.count, age: parked.age };
        known.map(|(reason, parked)| (reason.clone(), timers(parked))).collect()
    }

    /// Returns the number of parked timers for all reasons together.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.lock().parked.values().map(|parked| parked.count).sum()
    }

    /// Waits until a [`Reason`] is marked for a check, or until the index is closed. The check finds out how many
    /// timers that are parked for this reason may be delivered now.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Closes the index. The tasks that wait for the index then end.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        // `notify_one` keeps the wake-up for a task that does not wait yet. `notify_waiters` would lose it.
        self.changed.notify_one();
        self.pass_wanted.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Takes the [`Reason`]s that were marked for a check. The caller must check how many of the timers that are parked
    /// for each of these reasons may be delivered now. Leaves out a reason for which no timers are parked or wanted,
    /// and a reason whose timers are already being made due again or fetched.
    pub(crate) fn take_marked(&self) -> Vec<Reason> {
        let mut state = self.lock();
        // The mark of a busy reason can be dropped. The request's end marks the reason again if timers may be left.
        let marked: Vec<Reason> = state.marked.drain().collect();
        let is_free = |reason: &Reason| state.parked.get(reason).is_some_and(|parked| !parked.is_busy);
        marked.into_iter().filter(is_free).collect()
    }

    /// Notes the start of a request to the store. The request makes timers that are parked for this reason due again.
    /// If the reason is a queue ([`Reason::Queue`]), the request may fetch the timers for receivers instead.
    pub(crate) fn begin(&self, reason: &Reason) {
        let mut state = self.lock();
        let now = Instant::now();
        // Old entries are removed here, because a queue with such an entry may never be used again.
        state.unanswered.retain(|_, request| request.counts(now));
        let first = || Unanswered { since: now, last: now, is_under_way: true, error: None };
        let request = state.unanswered.entry(reason.clone()).or_insert_with(first);
        (request.last, request.is_under_way) = (now, true);
        // A pass may have removed the entry since the check that led to this request.
        let parked = state.parked.entry(reason.clone()).or_default();
        (parked.is_busy, parked.since, parked.is_wanted, parked.was_heard) = (true, 0, false, false);
    }

    /// Records the error of a request to the store about this reason. The caller must then end the request with
    /// [`end`](Self::end) or [`end_fetch`](Self::end_fetch).
    pub(crate) fn failed(&self, reason: &Reason, error: &StoreError) {
        if let Some(request) = self.lock().unanswered.get_mut(reason) {
            (request.last, request.is_under_way) = (Instant::now(), false);
            request.error = Some(error.to_string().into());
        }
    }

    /// Returns the store's last error for this reason, or a message that the store has not answered for some time. In
    /// both cases it is unknown whether timers are parked for the reason. Returns `None` otherwise.
    pub(crate) fn fault(&self, reason: &Reason) -> Option<Box<str>> {
        let state = self.lock();
        let request = state.unanswered.get(reason).filter(|request| request.counts(Instant::now()))?;
        let waited = request.since.elapsed();
        // Requests about queues are sent one after another. So a store that answers those about other queues is not
        // silent: this request may not have been sent yet.
        let is_silent = waited >= SLOW && state.answered.is_none_or(|at| at.elapsed() >= SLOW);
        let silent = || format!("the store has given no answer for {} ms", waited.as_millis()).into();
        request.error.clone().or_else(|| is_silent.then(silent))
    }

    /// Notes the end of a request whose start [`begin`](Self::begin) has noted. `found` is the number of timers that
    /// the request has made due again, or `None` after an error. After a success, makes the unparker (the task that
    /// sends such requests) check the reason again if timers may still be parked for it. After an error, the caller
    /// must request this check.
    pub(crate) fn end(&self, reason: &Reason, found: Option<u32>) {
        let mut state = self.lock();
        state.is_pass_disturbed |= found != Some(0);
        if found.is_some() {
            if matches!(reason, Reason::Queue(..)) {
                state.answered = Some(Instant::now());
            }
            state.unanswered.remove(reason);
        }
        let Some(parked) = state.parked.get_mut(reason) else { return };
        parked.is_busy = false;
        parked.count = match found {
            None => parked.count,
            Some(0) => parked.since,
            Some(found) => parked.count.saturating_sub(u64::from(found)),
        };
        if found == Some(0) {
            // The timers of the last pass have gone.
            parked.age = Duration::ZERO;
        }
        if parked.count == 0 && found.is_some_and(|found| found > 0) {
            // The event of a park may be lost, so this zero may be too low, and the reason stays in the index. The next
            // pass counts its timers.
            parked.count = 1;
            self.want_pass();
        }
        if parked.count == 0 {
            state.parked.remove(reason);
        } else if found.is_some() {
            state.marked.insert(reason.clone());
            drop(state);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tourbillon_durable::store::StoreErrorKind;

    /// Returns what a pass reads of one reason. The age of the oldest timer is in seconds.
    fn read(count: u64, age: u64) -> ParkedTimers {
        ParkedTimers { count, age: Duration::from_secs(age) }
    }

    #[test]
    fn a_queue_is_fetched_again_until_nothing_is_found_and_nothing_was_heard() {
        let index = ParkedIndex::default();
        let reason = Reason::Queue("a".into(), "q".into());
        assert!(index.may_have(&reason), "nothing is known of it");
        index.want(&reason);
        assert_eq!(index.take_marked(), vec![reason.clone()]);
        index.begin(&reason);
        assert!(!index.end_fetch(&reason, Some(3)));
        assert_eq!((index.take_marked(), index.total()), (vec![reason.clone()], 0));
        index.begin(&reason);
        index.want(&reason);
        assert!(!index.end_fetch(&reason, Some(0)), "a park was noted during the fetch");
        assert_eq!(index.take_marked(), vec![reason.clone()]);
        index.begin(&reason);
        assert!(index.end_fetch(&reason, Some(0)) && !index.may_have(&reason));
        assert_eq!((index.take_marked(), index.counts().len()), (vec![], 0));
        index.heard(&reason);
        assert!(index.may_have(&reason));
        index.want(&reason);
        index.begin(&reason);
        assert!(!index.end_fetch(&reason, None), "an error says nothing");
    }

    #[test]
    fn a_request_that_fails_or_gets_no_answer_says_nothing_of_a_queue() {
        let (index, reason) = (ParkedIndex::default(), Reason::Queue("a".into(), "q".into()));
        index.want(&reason);
        assert_eq!(index.fault(&reason), None, "no request has begun");
        index.begin(&reason);
        assert_eq!(index.fault(&reason), None, "the store may answer soon");
        std::thread::sleep(SLOW);
        assert!(index.fault(&reason).unwrap().starts_with("the store has given no answer for "));
        index.failed(&reason, &StoreError::new(StoreErrorKind::Io, "no server"));
        assert!(!index.end_fetch(&reason, None));
        index.begin(&reason);
        assert!(index.fault(&reason).unwrap().contains("no server"), "the repetition has no answer yet");
        assert!(index.end_fetch(&reason, Some(0)));
        assert_eq!(index.fault(&reason), None);
        index.begin(&reason);
        index.failed(&reason, &StoreError::new(StoreErrorKind::Io, "no server"));
        index.end(&reason, None);
        assert!(index.fault(&reason).is_some());
        index.begin(&reason);
        index.end(&reason, Some(3));
        assert_eq!(index.fault(&reason), None);
    }

    /// The unparker notes several requests at once, and the store answers some of them.
    #[test]
    fn a_store_that_answers_other_requests_and_then_falls_silent_is_silent() {
        let index = ParkedIndex::default();
        let [asked, other] = ["q", "r"].map(|queue| Reason::Queue("a".into(), queue.into()));
        index.begin(&asked);
        index.begin(&other);
        std::thread::sleep(SLOW);
        index.end_fetch(&other, Some(1));
        assert_eq!(index.fault(&asked), None, "the request may not have been sent yet");
        std::thread::sleep(SLOW);
        let unparked = Reason::Rate("a".into());
        index.begin(&unparked);
        index.end(&unparked, Some(1));
        assert!(index.fault(&asked).is_some(), "an answer to an unpark says nothing of a queue");
        // A request counts as long as it is under way.
        let long_ago = Instant::now().checked_sub(2 * REMEMBERED).unwrap();
        let begun = |moment: Instant| {
            let mut state = index.lock();
            let request = state.unanswered.get_mut(&asked).unwrap();
            (request.since, request.last) = (moment, moment);
        };
        begun(long_ago);
        index.begin(&other);
        assert!(index.fault(&asked).is_some());
        index.failed(&asked, &StoreError::new(StoreErrorKind::Io, "no server"));
        assert!(!index.end_fetch(&asked, None));
        assert!(index.fault(&asked).is_some());
        begun(long_ago);
        assert_eq!(index.fault(&asked), None, "an old error says nothing");
    }

    #[test]
    fn a_pass_that_finds_no_timer_loses_no_fetch_that_a_receiver_waits_for() {
        let index = ParkedIndex::default();
        let reason = Reason::Queue("a".into(), "q".into());
        let pass = || {
            index.begin_pass();
            index.end_pass(HashMap::new());
        };
        index.want(&reason);
        pass();
        assert_eq!(index.take_marked(), vec![reason.clone()]);
        pass();
        index.begin(&reason);
        assert!(!index.end_fetch(&reason, Some(3)));
        pass();
        assert_eq!(index.take_marked(), vec![reason.clone()], "further timers may be parked");
        index.begin(&reason);
        assert!(index.end_fetch(&reason, Some(0)) && !index.may_have(&reason));
        assert!(index.lock().parked.is_empty());
        // The end of a claim says nothing of new timers, and repeats no fetch that found the queue empty or goes on.
        index.want_if_free(&reason);
        assert_eq!(index.take_marked(), []);
        index.heard(&reason);
        index.want_if_free(&reason);
        assert_eq!(index.take_marked(), vec![reason.clone()]);
        index.begin(&reason);
        index.want_if_free(&reason);
        // A timer that was parked after the fetch had read the store is not forgotten.
        index.heard(&reason);
        assert!(!index.end_fetch(&reason, Some(0)) && index.may_have(&reason));
        assert_eq!(index.take_marked(), []);
        // A reason that no receiver wants any longer is forgotten.
        index.want(&reason);
        index.take_marked();
        pass();
        assert!(index.lock().parked.is_empty());
    }

    #[test]
    fn a_reason_is_looked_at_until_an_unpark_finds_nothing() {
        let index = ParkedIndex::default();
        let reason = Reason::Rate("a".into());
        index.look_at(&reason);
        assert_eq!(index.take_marked(), []);
        index.add(reason.clone());
        index.add(reason.clone());
        assert_eq!(index.take_marked(), vec![reason.clone()]);
        assert_eq!(index.take_marked(), []);
        index.begin(&reason);
        index.look_at(&reason);
        assert_eq!(index.take_marked(), [], "one unpark at a time");
        index.end(&reason, Some(2));
        assert_eq!((index.take_marked(), index.count(&reason)), (vec![reason.clone()], 1));
        index.begin(&reason);
        index.end(&reason, Some(0));
        assert_eq!((index.take_marked(), index.count(&reason), index.total()), (vec![], 0, 0));
    }

    #[tokio::test]
    async fn a_pass_is_exact_only_if_nothing_was_parked_or_unparked_during_it() {
        let index = ParkedIndex::default();
        let reason = Reason::Rate("a".into());
        let found = || HashMap::from([(reason.clone(), read(2, 60))]);
        index.begin_pass();
        assert!(index.end_pass(found()), "nothing has happened");
        assert_eq!(index.total(), 2);
        // The pass may have read the timer that was parked, and the timers that were unparked.
        index.begin_pass();
        index.add(reason.clone());
        assert!(!index.end_pass(found()));
        index.begin_pass();
        index.begin(&reason);
        assert!(!index.end_pass(found()), "an unpark is under way");
        index.begin_pass();
        index.end(&reason, Some(1));
        assert!(!index.end_pass(found()), "an unpark has ended");
        let is_wanted = async |index: &ParkedIndex| {
            tokio::time::timeout(Duration::from_millis(10), index.pass_wanted()).await.is_ok()
        };
        assert!(!is_wanted(&index).await);
        // An unpark that leaves a count of zero shows that the count was too low, or that no timer is left.
        index.begin(&reason);
        index.end(&reason, Some(2));
        assert_eq!(index.total(), 1);
        assert!(is_wanted(&index).await);
        index.take_marked();
        index.begin_pass();
        assert!(index.end_pass(HashMap::new()) && index.is_empty());
    }

    #[test]
    fn an_age_is_that_of_the_last_pass_until_the_timers_of_that_pass_have_gone() {
        let index = ParkedIndex::default();
        for reason in [Reason::Rate("a".into()), Reason::Queue("a".into(), "q".into())] {
            let age = || index.counts().get(&reason).map(|timers| timers.age.as_secs());
            let pass = |found: ParkedTimers| {
                index.begin_pass();
                index.end_pass(HashMap::from([(reason.clone(), found)]));
            };
            let end = |found: u32| match reason {
                Reason::Queue(..) => {
                    index.end_fetch(&reason, Some(found));
                }
                _ => index.end(&reason, Some(found)),
            };
            index.add(reason.clone());
            assert_eq!(age(), Some(0), "no pass has read its due moment");
            pass(read(4, 60));
            assert_eq!(age(), Some(60));
            index.begin(&reason);
            end(1);
            assert_eq!(age(), Some(60), "the store is not read after each timer");
            pass(read(3, 2));
            assert_eq!(age(), Some(2));
            index.begin(&reason);
            index.add(reason.clone());
            end(0);
            assert_eq!(age(), Some(0), "only a new timer is left");
            index.begin(&reason);
            end(0);
            assert_eq!(age(), None);
        }
    }

    #[test]
    fn a_park_during_an_unpark_that_finds_nothing_counts() {
        let index = ParkedIndex::default();
        let reason = Reason::Rate("a".into());
        index.add(reason.clone());
        index.take_marked();
        index.begin(&reason);
        index.add(reason.clone());
        index.end(&reason, Some(0));
        assert_eq!((index.take_marked(), index.count(&reason)), (vec![reason.clone()], 1));
    }

    #[test]
    fn a_pass_corrects_the_numbers_and_adds_the_parks_of_its_time() {
        let index = ParkedIndex::default();
        let [known, gone, found, busy] = ["a", "b", "c", "d"].map(|name| Reason::Rate(name.into()));
        for reason in [&known, &known, &gone, &busy] {
            index.add(reason.clone());
        }
        assert_eq!(index.take_marked().len(), 3);
        index.begin_pass();
        index.begin(&busy);
        index.add(known.clone());
        index.end_pass(HashMap::from([(known.clone(), read(7, 60)), (found.clone(), read(5, 9))]));
        let counts = index.counts();
        let expected =
            [(known.clone(), read(8, 60)), (found.clone(), read(5, 9)), (busy.clone(), read(1, 0))];
        assert_eq!(counts, BTreeMap::from(expected));
        let marked: HashSet<_> = index.take_marked().into_iter().collect();
        assert_eq!(marked, HashSet::from([known, found]), "what is new is looked at");
    }
}
