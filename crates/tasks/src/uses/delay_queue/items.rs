//! The state of a delay queue behind one lock: its items, its waiting receivers (the *line*), and whether the queue has
//! ended.
//!
//! Items wait in a timing wheel. A *look* advances the wheel to the present, and moves items whose tick has come to a
//! list of due items. Receivers look when that list is empty. So a receiver that does not wait needs nothing from the
//! engine.
//!
//! Receivers that wait stand in line. One *watch* looks for all of them when the first item is due. A waiting thread
//! can keep the watch: it sleeps until that moment, and no other thread needs to wake it. If no thread keeps the watch,
//! the *alarm* does. The alarm is a timer of the engine, one for the whole queue.
//!
//! No user code runs under the lock. Wakers are cloned before the lock is taken, and are woken and dropped after its
//! release. The alarm is also set after the release, because the engine may make the call wait.
//!
//! # States
//! ```text
//! an item:   waiting ── a look at or after its tick ──► due ── taken ──► received
//!               └── removed, or returned by the end
//!
//! the watch: nobody ── an item waits, and a task stands in line ──► the alarm, at a tick ── rung ──► nobody
//!              │ └── a thread stands in line ──► that thread ── it leaves the line ──► nobody
//!              └── an earlier item ──► the alarm, at the earlier tick
//! ```
//!
//! Q1. While a receiver stands in line, each due item has its own woken receiver that has not looked yet.
//! Q2. While a receiver stands in line and items wait, a watch is planned for the first item's tick or an earlier tick.
//!     Either a thread in line sleeps until the watch's tick, or the alarm is set to this tick, or a thread is about to
//!     set the alarm to it.
//! Q3. A queue that was ended has no waiting item. Once no due item is left either, each receiver gets the end of the
//!     queue. The step that ends the queue also moves the waiting items to the *rest*. So a thread that sees the end
//!     finds the whole rest, unless another call has taken it.
//! Q4. Exactly one of these happens to a pushed item: a receiver gets it, or a removal, the end of the queue or the
//!     push's error returns it.
//!
//! Q1 holds for three reasons. A receiver joins the line only if no item is due. A look wakes a receiver in line for
//! each item that the looking receiver does not take itself. A woken receiver that leaves without a look wakes the next
//! receiver.
//!
//! There are two special cases. A receiver in line may look without being woken. Then it leaves the line before its
//! look wakes others, because otherwise it could wake itself. And a receiver may be woken between the two steps of its
//! look. Then it takes the item for which it was woken, and its look wakes a receiver for each item that it finds.
//!
//! Q2 holds since everything that could break it happens under the lock: a push of an earlier item, a receiver that
//! joins the line, a ring of the alarm, a thread that leaves the line. Each of these stores the new watch under the
//! lock, and sets the alarm afterwards. Two threads may store their watches in one order, and set the alarm in the
//! reverse order. So after setting the alarm, a thread reads the stored watch again. If the watch has changed, the
//! thread sets the alarm again. The thread that sets the alarm last finds its own tick in the stored watch.
//!
//! # Races and their legal endings
//! - push x poll: (a) the poll finds the item, if it is due; (b) the receiver stands in line first, and the push sets
//!   the alarm; (c) the push comes first, and the receiver sets the alarm.
//! - push x push, with a receiver in line: the alarm is set to the earlier item's tick in the end.
//! - ring x push: (a) the ring finds the item due, or sets the alarm to its tick; (b) the push finds the alarm unset,
//!   and sets it.
//! - ring x poll: (a) the poll takes the item, and the ring finds none; (b) the ring wakes the receiver.
//! - ring x look, by a receiver in line: (a) the look finds the items, takes the first, and wakes another receiver in
//!   line for each further item; (b) the ring finds the items and wakes a receiver for each, perhaps also the receiver
//!   that looks.
//! - ring x leave: (a) the receiver that leaves is not woken, and the ring wakes the next receiver; (b) the receiver
//!   was woken, and wakes the next.
//! - push x end: (a) the item belongs to the rest, or to the receivers if it is due; (b) the push is refused.
//! - close x shutdown, close x close: the first of them ends the queue. The first close gets the whole rest. This also
//!   holds for a close by a task that the end has woken, and for a close that comes before the shutdown has reached
//!   this queue.
//! - leave x push, leave x ring, if the thread that leaves keeps the watch: the alarm is set for the others in line.
//! - The alarm may ring too early, or for nothing: when the first item was removed or moved, or another receiver has
//!   taken it.
//!
//! # Synchronisation
//! | pair | one side | other side | handed over         | model |
//! |------|----------|------------|---------------------|-------|
//! | Q1 to Q4 | the lock | the lock | items, the line, the alarm's tick, the end | `delay_queue::*` |

use super::item::{Delayed, DueItem};
use super::line::{Line, Number, Place};
use crate::sync::{Losable, ModelledMutex, ModelledMutexGuard, Patience, ignore_poison};
use core::any::Any;
use core::task::Waker;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tourbillon::wheel::{Tick, TickLength, Wheel};
use tourbillon::{Refusal, Timestamp};

/// The queue's timer. It calls [`Items::ring`] at the moment to which it is set, or later. Setting the timer again
/// replaces this moment.
pub(crate) trait Alarm {
    fn set(&self, moment: Timestamp) -> Result<(), Refusal>;
}

pub(crate) struct Items<T, A> {
    pub(crate) alarm: A,
    ticks: TickLength,
    state: Losable<ModelledMutex<State<T>>>,
}

struct State<T> {
    waiting: Wheel<Waiting<T>>,
    due: VecDeque<DueItem<T>>,
    line: Line,
    watch: Option<Watch>,
    is_ended: bool,
    /// The items that were not due when the queue ended. The first [`Items::close`] takes them out.
    rest: Vec<T>,
}

/// The plan for the next search for due items, which serves all waiting receivers. The plan says at which tick the
/// search takes place, and who searches: the queue's timer (its [`Alarm`]), or a thread that waits for an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// At this tick, the queue's timer calls [`Items::ring`], which searches for due items.
    Alarm(Tick),
    /// The waiting thread with this place in line wakes up at this tick, and searches for due items.
    Receiver(Tick, Number),
}

impl Watch {
    fn tick(self) -> Tick {
        match self {
            Self::Alarm(tick) | Self::Receiver(tick, _) => tick,
        }
    }
}

/// The present moment, and the tick in which it lies. A search for due items uses both.
#[derive(Clone, Copy)]
struct Present {
    now: Timestamp,
    tick: Tick,
}

struct Waiting<T> {
    item: T,
    deadline: Timestamp,
}

/// The reason why an item was not pushed.
pub(crate) enum NotPushed {
    Ended,
    Refused(Refusal),
}

/// The next due item, or `None` if the queue has ended.
type Received<T> = Option<DueItem<T>>;

/// The number of found items after which a search for due items stops. The search holds the queue's lock, so it must be
/// short.
const LOOK: usize = 256;
/// The number of waiting items at which the queue refuses further items.
const TOO_MANY: usize = u32::MAX as usize;

impl<T, A: Alarm> Items<T, A> {
    pub(crate) fn new(ticks: TickLength, now: Timestamp, alarm: A) -> Self {
        let state = State {
            waiting: Wheel::new(ticks.current_tick(now.as_nanos())),
            due: VecDeque::new(),
            line: Line::default(),
            watch: None,
            is_ended: false,
            rest: Vec::new(),
        };
        Self { alarm, ticks, state: Losable::new(ModelledMutex::new(state)) }
    }

    pub(crate) fn push(&self, deadline: Timestamp, item: T) -> Result<Delayed, (NotPushed, T)> {
        let tick = self.ticks.due_tick(deadline.as_nanos());
        let (id, ring_at) = {
            let mut state = self.lock();
            if state.is_ended {
                return Err((NotPushed::Ended, item));
            }
            if state.waiting.len() >= TOO_MANY {
                return Err((NotPushed::Refused(Refusal::EngineFull), item));
            }
            let id = state.waiting.insert(tick, Waiting { item, deadline });
            (Delayed(id), state.watch_at(tick))
        };
        if let Err(refusal) = self.set_alarm(ring_at)
            && let Some(item) = self.remove(id)
        {
            return Err((NotPushed::Refused(refusal), item));
        }
        Ok(id)
    }

    pub(crate) fn remove(&self, Delayed(id): Delayed) -> Option<T> {
        Some(self.lock().waiting.cancel(id)?.item)
    }

    /// Removes and returns all items, the due items first.
    pub(crate) fn clear(&self) -> Vec<T> {
        let mut state = self.lock();
        let State { waiting, due, .. } = &mut *state;
        let ids: Vec<_> = waiting.iter().map(|(id, _)| id).collect();
        let waited = ids.into_iter().filter_map(|id| Some(waiting.cancel(id)?.item));
        due.drain(..).map(|due| due.item).chain(waited).collect()
    }

    /// Moves a waiting item to another deadline. Returns false if no waiting item has this id.
    pub(crate) fn reset(&self, Delayed(id): Delayed, deadline: Timestamp) -> bool {
        let tick = self.ticks.due_tick(deadline.as_nanos());
        let ring_at = {
            let mut state = self.lock();
            if !state.waiting.reschedule(id, tick) {
                return false;
            }
            if let Some(waiting) = state.waiting.get_mut(id) {
                waiting.deadline = deadline;
            }
            state.watch_at(tick)
        };
        self.set_alarm_if_open(ring_at);
        true
    }

    pub(crate) fn deadline(&self, Delayed(id): Delayed) -> Option<Timestamp> {
        Some(self.lock().waiting.get(id)?.deadline)
    }

    /// Returns the waiting item with the earliest deadline. Returns `None` if no item waits.
    pub(crate) fn first(&self) -> Option<(Delayed, Timestamp)> {
        let state = self.lock();
        let items = state.waiting.iter().map(|(id, waiting)| (Delayed(id), waiting.deadline));
        items.min_by_key(|(_, deadline)| *deadline)
    }

    /// Searches for items that are due at `now`, and wakes a waiting receiver for each of them. If receivers still
    /// wait, sets the alarm for the next item. The alarm (the queue's timer) calls this method when it fires.
    pub(crate) fn ring(&self, now: Timestamp) {
        let (woken, ring_at) = {
            let mut state = self.lock();
            state.watch = state.watch.filter(|watch| matches!(watch, Watch::Receiver(..)));
            let found = state.look(self.present(now));
            (state.line.call(found), state.keep_watch())
        };
        self.set_alarm_if_open(ring_at);
        if let Err(panic) = wake(woken) {
            resume_unwind(panic);
        }
    }

    /// Takes the next due item, or reports that the queue has ended. Returns `None` if the queue has no due item and
    /// has not ended. Calls `now` only if the list of due items is empty.
    pub(crate) fn take(&self, now: impl FnOnce() -> Timestamp) -> Option<Received<T>> {
        let at_once = self.lock().take(&mut None, 0);
        let taken = at_once.or_else(|| {
            let present = self.present(now());
            self.lock().look_and_take(present, &mut None)
        });
        taken.map(|taken| self.hand_over(taken))
    }

    /// Works as [`take`](Self::take), but lets the task wait in line if there is nothing to take. `place` is the task's
    /// place in line. If the call returns an item or the end of the queue, the task gives up its place. Otherwise the
    /// task keeps its place, or gets a new place at the end of the line. It gets a new place on its first call, and
    /// after it was woken.
    pub(crate) fn poll(
        &self,
        place: &mut Option<Place>,
        waker: &Waker,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Received<T>> {
        self.take_or_stand(place, waker, now, false).ok()
    }

    /// Works as [`poll`](Self::poll), for a thread that can sleep until a moment. Fails if there is nothing to take. If
    /// the error contains a moment, the thread must call this method again at that moment. The repeated call searches
    /// for due items on behalf of all receivers in line.
    pub(crate) fn wait(
        &self,
        place: &mut Option<Place>,
        waker: &Waker,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Received<T>, Option<Timestamp>> {
        let stood = self.take_or_stand(place, waker, now, true);
        stood.map_err(|watch| watch.map(|tick| Timestamp::from_nanos(self.ticks.start_of(tick))))
    }

    fn take_or_stand(
        &self,
        place: &mut Option<Place>,
        waker: &Waker,
        now: impl FnOnce() -> Timestamp,
        may_watch: bool,
    ) -> Result<Received<T>, Option<Tick>> {
        let at_once = self.lock().take(place, 0);
        if let Some(taken) = at_once {
            return Ok(self.hand_over(taken));
        }
        let (waker, present) = (waker.clone(), self.present(now()));
        let mut state = self.lock();
        if let Some(taken) = state.look_and_take(present, place) {
            drop(state);
            return Ok(self.hand_over(taken));
        }
        let (number, _stood) = state.line.stand(place, waker);
        let watch = if may_watch { state.watch_by(number) } else { None };
        let ring_at = state.keep_watch();
        drop(state);
        self.set_alarm_if_open(ring_at);
        Err(watch)
    }

    /// Gives up a receiver's place in line. If that receiver was woken but has not taken an item, wakes the next
    /// receiver instead. If the queue stays locked for ever in the child of a fork, the receiver stays in line.
    pub(crate) fn leave(&self, place: Place, patience: Patience) {
        let (_waker, next, ring_at) = {
            let Some(mut state) = self.lock_unless_lost(patience) else { return };
            let (waker, next) = match state.line.leave(place) {
                None if !state.due.is_empty() => (None, state.call(1, patience)),
                waker => (waker, Vec::new()),
            };
            (waker, next, state.keep_watch())
        };
        self.set_alarm_if_open(ring_at);
        // The receiver may be leaving because of a panic, so another panic is swallowed.
        drop(wake(next));
    }

    /// Ends the queue and wakes all receivers in line. The items that are not due at `now` become the rest. If the
    /// queue stays locked for ever in the child of a fork, leaves the queue as it is.
    pub(crate) fn end(&self, now: Timestamp, patience: Patience) {
        _ = self.end_and(now, patience, |_| ());
    }

    /// Works as [`end`](Self::end), and returns the items that were not due when the queue ended, if no other call has
    /// taken them.
    pub(crate) fn close(&self, now: Timestamp, patience: Patience) -> Vec<T> {
        self.end_and(now, patience, core::mem::take).unwrap_or_default()
    }

    fn end_and<R>(
        &self,
        now: Timestamp,
        patience: Patience,
        of_rest: impl FnOnce(&mut Vec<T>) -> R,
    ) -> Option<R> {
        let (result, woken) = {
            let mut state = self.lock_unless_lost(patience)?;
            state.end(self.present(now));
            (of_rest(&mut state.rest), state.call(usize::MAX, patience))
        };
        // If a receiver's waker panics, the items must not be lost.
        drop(wake(woken));
        Some(result)
    }

    /// Takes the next due item of a queue that has ended. Also returns `None` if the queue stays locked for ever in the
    /// child of a fork.
    pub(crate) fn take_after_end(&self, patience: Patience) -> Received<T> {
        self.lock_unless_lost(patience)?.due.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.due.len()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.lock().is_ended
    }

    fn hand_over(&self, taken: Taken<T>) -> Received<T> {
        let Taken { received, woken, own_waker, ring_at } = taken;
        drop(own_waker);
        self.set_alarm_if_open(ring_at);
        // If another receiver's waker panics, this receiver's item must not be lost.
        drop(wake(woken));
        received
    }

    /// Works as [`set_alarm`](Self::set_alarm), for a call that has nothing to give back. If the engine refuses, no
    /// alarm is needed: the engine was shut down and ends the queue, or the process is the child of a fork, in which
    /// every call finds that the queue has ended.
    fn set_alarm_if_open(&self, tick: Option<Tick>) {
        _ = self.set_alarm(tick);
    }

    /// Sets the alarm (the queue's timer) to the start of `tick`. Does nothing if `tick` is `None`. During this call,
    /// another thread may plan another tick for the alarm in [`State::watch`]. Then this method sets the alarm again,
    /// to that tick.
    fn set_alarm(&self, tick: Option<Tick>) -> Result<(), Refusal> {
        let mut wanted = tick;
        while let Some(tick) = wanted {
            self.alarm.set(Timestamp::from_nanos(self.ticks.start_of(tick)))?;
            wanted = match self.lock().watch {
                Some(Watch::Alarm(noted)) if noted != tick => Some(noted),
                _ => None,
            };
        }
        Ok(())
    }

    fn present(&self, now: Timestamp) -> Present {
        Present { now, tick: self.ticks.current_tick(now.as_nanos()) }
    }

    fn lock(&self) -> ModelledMutexGuard<'_, State<T>> {
        ignore_poison(self.state.lock())
    }

    fn lock_unless_lost(&self, patience: Patience) -> Option<ModelledMutexGuard<'_, State<T>>> {
        self.state.unless_lost(patience, ModelledMutex::lock, ModelledMutex::try_lock)
    }
}

impl<T> State<T> {
    /// Takes the next due item, or reports that the queue has ended. In both cases the caller loses its place in line.
    /// Returns `None` if there is no due item and the queue has not ended. `found` is the number of waiting items that
    /// the caller has just moved to the due items.
    fn take(&mut self, place: &mut Option<Place>, found: usize) -> Option<Taken<T>> {
        let received = match self.due.pop_front() {
            None if !self.is_ended => {
                // A caller that was woken has lost its place, and another receiver has taken the item for which the
                // caller was woken.
                place.take_if(|place| !self.line.holds(place));
                return None;
            }
            received => received,
        };
        // The caller takes an item and will not look again. So it leaves the line before other receivers are woken, and
        // before the next watch is planned.
        let was_woken = place.as_ref().is_some_and(|place| !self.line.holds(place));
        let own_waker = place.take().and_then(|place| self.line.leave(place));
        // A caller that was woken takes the item for which it was woken, so each found item needs another receiver. A
        // caller that was not woken takes one of the found items itself.
        let woken = self.line.call(if was_woken { found } else { found.saturating_sub(1) });
        Some(Taken { received, woken, own_waker, ring_at: self.keep_watch() })
    }

    /// Ends the queue. Moves the waiting items to the due items, or to `rest` if they are not due. Does nothing if the
    /// queue has ended.
    fn end(&mut self, present: Present) {
        if self.is_ended {
            return;
        }
        (self.is_ended, self.watch) = (true, None);
        while self.look(present) > 0 {}
        let Self { waiting, rest, .. } = self;
        rest.reserve_exact(waiting.len());
        _ = waiting.advance(Tick::MAX, usize::MAX, |_, expired| rest.push(expired.payload.item));
    }

    /// Removes up to `count` receivers from the front of the line for a drop or the end of the queue, and returns their
    /// wakers. Returns no waker in a child in which the engine's threads are missing. There the receivers were threads
    /// or tasks of the parent, and their wakers may need locks that stay locked.
    fn call(&mut self, count: usize, patience: Patience) -> Vec<Waker> {
        if patience == Patience::Short { Vec::new() } else { self.line.call(count) }
    }

    /// Moves waiting items that have become due to the due items. Then works as [`take`](Self::take).
    fn look_and_take(&mut self, present: Present, place: &mut Option<Place>) -> Option<Taken<T>> {
        let found = self.look(present);
        self.take(place, found)
    }

    /// Moves waiting items whose tick has come to the due items, tick by tick. Returns the number of moved items. The
    /// number is 0 only if no waiting item is due.
    fn look(&mut self, Present { now, tick }: Present) -> usize {
        let before = self.due.len();
        let Self { waiting, due, .. } = self;
        while due.len() - before < LOOK
            && let Some(next) = waiting.next_expiry().filter(|next| *next <= tick)
        {
            _ = waiting.advance(next, LOOK, |_, expired| {
                let Waiting { item, deadline } = expired.payload;
                due.push_back(DueItem { item, id: Delayed(expired.id), deadline, lateness: now - deadline });
            });
        }
        self.due.len() - before
    }

    /// Plans a search for due items by the alarm (the queue's timer) at `tick`, and returns `tick`. The caller must
    /// then set the alarm to `tick`. Returns `None` if no receiver stands in line, or if a search is already planned at
    /// `tick` or earlier.
    fn watch_at(&mut self, tick: Tick) -> Option<Tick> {
        if self.line.is_empty() || self.watch.is_some_and(|watch| watch.tick() <= tick) {
            return None;
        }
        self.watch = Some(Watch::Alarm(tick));
        Some(tick)
    }

    /// Assigns the next search for due items to the thread with this place in line. The thread must search at the tick
    /// of the first waiting item. Returns this tick. Returns `None` if no item waits, or if the alarm (the queue's
    /// timer) or another thread will search at this tick or earlier.
    fn watch_by(&mut self, number: Number) -> Option<Tick> {
        let first = self.waiting.next_expiry()?;
        let is_kept = |watch: Watch| {
            watch.tick() <= first && !matches!(watch, Watch::Receiver(_, receiver) if receiver == number)
        };
        if self.watch.is_some_and(is_kept) {
            return None;
        }
        self.watch = Some(Watch::Receiver(first, number));
        Some(first)
    }

    /// Plans a search by the alarm (the queue's timer) at the tick of the first waiting item, if a receiver stands in
    /// line and no search is planned at this tick or earlier. If the planned search belongs to a thread that has left
    /// the line, first drops this plan. Returns the tick to which the caller must set the alarm. Returns `None` if the
    /// alarm stays as it is.
    fn keep_watch(&mut self) -> Option<Tick> {
        let line = &self.line;
        self.watch.take_if(|watch| matches!(watch, Watch::Receiver(_, receiver) if !line.has(*receiver)));
        if line.is_empty() {
            return None;
        }
        let first = self.waiting.next_expiry()?;
        self.watch_at(first)
    }
}

/// The result of a receiver's attempt to take an item, and the work that must follow after the release of the queue's
/// lock. [`Items::hand_over`] does this work.
struct Taken<T> {
    received: Received<T>,
    /// The wakers of other receivers, which must be woken, because further items are due.
    woken: Vec<Waker>,
    /// The waker that the receiver stored when it stood in line. The waker must be dropped without being woken, because
    /// the receiver has its result.
    own_waker: Option<Waker>,
    /// The tick to which the alarm (the queue's timer) must be set; `None` if the alarm stays as it is.
    ring_at: Option<Tick>,
}

/// Wakes all `wakers`, even if some of them panic. Returns the first panic.
fn wake(wakers: Vec<Waker>) -> Result<(), Box<dyn Any + Send>> {
    let wake = |waker: Waker| catch_unwind(AssertUnwindSafe(|| waker.wake()));
    wakers.into_iter().map(wake).fold(Ok(()), Result::and)
}
