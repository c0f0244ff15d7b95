//! The station of an engine at a shard: a wheel, an inbox, and the tickets that are due. `turn` gets the time as an
//! argument.
//!
//! A station reads only its lanes, its wheel and the time. In a turn it drains the lanes and advances the wheel. It
//! hands over the due tickets, the longest due first, or holds tickets back while too many batches are in flight. Then
//! it spreads coarse slots of the wheel, or puts that off to the turn after the leader's handlers. It also sends
//! another job for each batch that takes long, and sweeps a part of the wheel if a sweep is wanted.
//!
//! # Synchronisation
//! | pair | one side                  | other side                | ruled out         | model |
//! |------|---------------------------|---------------------------|-------------------|-------|
//! | F1 of `parker` | `want_sweep`: flag, wake | `announce`, `may_sleep` | both miss | `shard::a_wanted_sweep_races_with_sleep` |
//! | F3 of `state::owned` | `keep_due`: begin, check | an arming | both miss | `owned::arm_races_with_fire` |

use super::backlog::{Backlog, Waiting};
use super::check::keep_due;
use super::order::Order;
use super::output::{Batching, Output};
use super::presence::{EngineRef, Presence};
use super::recheck::Recheck;
use super::sleep::{IdleSleep, Next, Wake};
use super::station_shared::StationShared;
use crate::base::limits::CHUNK_TICKETS;
use crate::base::sync::StdArc;
use crate::base::tick::{Tick, TickLength, Timestamp};
use crate::base::ticket::{Insertion, Ticket};
use crate::dispatch::{Fire, InFlight};
use crate::lockfree::inbox::InboxReader;
use crate::lockfree::slab::Slots;
use crate::wheel::{Progress, TicketWheel};
use core::fmt;
use core::time::Duration;

/// The greatest number of tickets (requests to check timers) that a turn checks when it sweeps stale tickets out of the
/// wheel.
const SWEEP_TICKETS: usize = 256 * CHUNK_TICKETS;
/// The time between two checks of the batches (groups of due timers) that workers are running. If a check finds a batch
/// unfinished, another worker helps.
const PATIENCE: Duration = Duration::from_millis(1);
/// The number of successive turns in which a station (an engine's part of a shard) must find nothing to do before it
/// rests. A rest costs two allocations, a part of a heavy fence, and a call at its end. That is some µs, as much as 8
/// turns. In models a station rests whenever it may.
const RESTS_AFTER: u32 = if cfg!(tourbillon_loom) { 0 } else { 8 };

/// An engine's part of a shard: it keeps the engine's timing wheel at the shard, and reads the engine's inbox there.
/// Only the thread that leads the shard uses a station.
pub(crate) struct Station {
    shard: usize,
    engine: EngineRef,
    pub(super) shared: StdArc<StationShared>,
    reader: InboxReader,
    slots: StdArc<Slots>,
    wheel: TicketWheel<Ticket>,
    tick: TickLength,
    /// Insertions that are on their way from a lane (a thread's queue to a shard) to the wheel.
    drained: Vec<Insertion>,
    /// Due tickets of owned timers that have left the wheel. The tickets wait until the shard checks the timers'
    /// deadlines.
    to_check: Vec<Ticket>,
    recheck: Recheck,
    order: Order,
    /// Whether the last turn put off the spreading of coarse slots, the move of their tickets to finer slots. A turn
    /// does so to let due timers fire first.
    put_spreading_off: bool,
    idle_sleep: IdleSleep,
    in_flight: InFlight,
    backlog: Backlog,
    checked_at: Timestamp,
    /// Whether the shard's next sleep ends for a check of batches. The check concerns the batches that workers are
    /// running.
    check_is_planned: bool,
    sweeping: bool,
    /// The number of successive turns in which the station found nothing to do.
    idle_turns: u32,
}

impl Station {
    /// Makes the station of `engine` at `shard`. An engine may have only one station at a shard, because an inbox may
    /// have only one reader.
    pub(crate) fn new(
        shard: usize,
        engine: (StdArc<dyn Fire>, &StdArc<Presence>),
        shared: StdArc<StationShared>,
        slots: StdArc<Slots>,
        (tick, now): (TickLength, Timestamp),
    ) -> Self {
        Self {
            shard,
            engine: EngineRef::new(engine.0, engine.1),
            reader: shared.inbox.reader(),
            shared,
            slots,
            wheel: TicketWheel::new(tick.current_tick(now)),
            tick,
            drained: Vec::with_capacity(CHUNK_TICKETS),
            to_check: Vec::new(),
            recheck: Recheck::default(),
            order: Order::default(),
            put_spreading_off: false,
            idle_sleep: IdleSleep::default(),
            in_flight: InFlight::default(),
            backlog: Backlog::default(),
            checked_at: now,
            check_is_planned: false,
            sweeping: false,
            idle_turns: 0,
        }
    }

    /// Returns the number by which the station calls the shard's leader, the thread that runs the shard; `None` if the
    /// station never rests.
    pub(super) fn call_number(&self) -> Option<usize> {
        self.shared.parker.call_number()
    }

    /// Returns whether the station may rest, so that turns leave it out. A station may rest if it had nothing to do for
    /// some turns, and if only its lanes and its wheel can give it work.
    pub(super) fn may_rest(&mut self) -> bool {
        if self.idle_turns < RESTS_AFTER || self.call_number().is_none() || !self.backlog.is_empty() {
            return false;
        }
        self.in_flight.forget_taken();
        self.in_flight.is_empty()
            && !self.sweeping
            && !self.put_spreading_off
            && !self.shared.is_check_wanted()
    }

    /// Announces that the station rests until `wake`: the shard's turns leave it out. Returns false if the engine was
    /// shut down.
    pub(super) fn announce_rest(&self, wake: Option<Wake>) -> bool {
        self.shared.parker.rest(wake.map(|wake| wake.not_before))
    }

    /// Ends the rest of the station: turns of the shard visit it again. Withdraws the announcement that
    /// [`announce_rest`](Self::announce_rest) made.
    pub(super) fn end_rest(&mut self) {
        self.shared.parker.withdraw();
        self.idle_turns = 0;
    }

    #[cfg(all(test, not(tourbillon_loom)))]
    pub(super) fn tickets(&self) -> usize {
        self.wheel.len()
    }

    /// Returns whether the engine was shut down: the shard must drop the station, the engine's part of the shard.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.parker.is_closed()
    }

    /// Does the work of this station in a turn of the shard: drains the lanes, and processes the tickets.
    pub(super) fn turn(&mut self, now: Timestamp, out: &mut Output) -> Next {
        self.idle_sleep.begin_turn(now);
        let is_idle = self.drain() == 0;
        let tickets = self.wheel.len();
        let next = self.work(now, out);
        let is_idle = is_idle && self.wheel.len() == tickets;
        self.idle_turns = if is_idle { self.idle_turns.saturating_add(1) } else { 0 };
        next
    }

    /// Processes the tickets in the wheel at `now`. Handlers that run inline are called here.
    pub(super) fn work(&mut self, now: Timestamp, out: &mut Output) -> Next {
        self.hand_over_backlog(now, out);
        let tick = self.tick.current_tick(now);
        // If the clock has stepped back, the shard waits until the clock has caught up: for the wheel, the moments in
        // between have passed.
        let progress = if tick < self.wheel.position() { Progress::Settled } else { self.advance(now, out) };
        if !self.to_check.is_empty() {
            self.check_owned(now, out);
        }
        self.spread(tick, out);
        if now - self.checked_at >= PATIENCE {
            self.checked_at = now;
            self.shared.take_check_wanted();
            self.in_flight.check(self.engine.get());
        }
        self.sweep_backlog();
        let swept = self.sweep();
        let counters = &self.shared.counters;
        counters.turns.add(1);
        counters.reached.set(self.tick.start_of(self.wheel.position()).as_nanos());
        counters.tickets.set(self.wheel.len() as u64);
        counters.held_back.set(self.backlog.len() as u64);
        let may_go_on = !self.backlog.is_empty() && self.in_flight.has_room();
        if progress == Progress::BudgetSpent || !swept || may_go_on {
            return Next::Turn;
        }
        Next::Sleep(self.wake(now))
    }

    /// Returns the end of a sleep of the shard that begins at `now`; `None` if the shard may sleep until it is woken.
    pub(super) fn wake(&mut self, now: Timestamp) -> Option<Wake> {
        self.drop_stale_first();
        let due = self.due_wake();
        self.check_is_planned =
            !self.backlog.is_empty() || self.shared.is_check_wanted() || self.in_flight.wants_check();
        if !self.check_is_planned {
            return due;
        }
        let check = now + PATIENCE;
        Some(match due {
            Some(due) if due.at <= check => due,
            _ => Wake { at: check, not_before: check },
        })
    }

    /// Drops the stale tickets before the first live ticket, so that the shard does not wake for stale tickets.
    fn drop_stale_first(&mut self) {
        let Self { slots, wheel, tick, idle_sleep, shared, .. } = self;
        let before = wheel.len();
        let first = wheel.drop_stale_first(|ticket| slots.control(ticket.index()).is_live(ticket.stamp()));
        if let Some(first) = first {
            idle_sleep.note(tick.start_of(first));
            shared.counters.stale.add((before - wheel.len()) as u64);
            shared.counters.tickets.set(wheel.len() as u64);
        }
    }

    /// Returns the tick until which the shard sleeps unless it is woken.
    fn wake_tick(&self) -> Option<Tick> {
        let idle = self.idle_sleep.until().map(|deadline| self.tick.due_tick(deadline));
        self.wheel.wake_tick().into_iter().chain(idle).min()
    }

    /// Drains the lanes once more (K1), after the shard has announced its sleep until `wake`. Returns the next step of
    /// the shard that this station asks for. The shard may sleep as announced under three conditions. No ticket that
    /// came after the turn is due earlier. No held-back ticket can be handed over now. Neither a sweep of stale tickets
    /// nor a check of batches is wanted.
    pub(super) fn look_again(&mut self, wake: Option<Wake>) -> Next {
        self.drain();
        let check_is_missing = self.shared.is_check_wanted() && !self.check_is_planned;
        if check_is_missing || self.may_hand_over_backlog() || self.shared.is_sweep_wanted() {
            return Next::Turn;
        }
        Next::Sleep(wake).sooner(Next::Sleep(self.due_wake()))
    }

    /// Returns the end of the shard's sleep by the tickets in the wheel alone. Returns `None` if no ticket ends the
    /// sleep.
    fn due_wake(&self) -> Option<Wake> {
        let tick = self.wake_tick()?;
        Some(Wake { at: self.tick.start_of(tick), not_before: self.tick.first_deadline_of(tick) })
    }

    /// Returns the start of the first tick whose timers the station has not handed out.
    pub(super) fn due(&self) -> Timestamp {
        self.tick.start_of(self.wheel.position().saturating_add(1))
    }

    /// Returns the moment at which the wheel must advance next; `None` if the wheel holds no ticket.
    pub(super) fn next_due(&mut self) -> Option<Timestamp> {
        self.drain();
        self.drop_stale_first();
        self.wheel.wake_tick().map(|tick| self.tick.start_of(tick))
    }

    /// Moves tickets from the lanes into the wheel, and drops tickets of ended timers. Returns the number of tickets
    /// that were in the lanes.
    pub(super) fn drain(&mut self) -> u64 {
        let before = self.wheel.len();
        let Self { shared, reader, slots, wheel, tick, drained, idle_sleep, .. } = self;
        let mut stale = 0;
        reader.walk(|lane| {
            lane.drain(|insertion| {
                drained.push(insertion);
                if drained.len() == CHUNK_TICKETS {
                    stale += insert_live(wheel, slots, *tick, drained, idle_sleep);
                }
            });
        });
        stale += insert_live(wheel, slots, *tick, drained, idle_sleep);
        shared.counters.stale.add(stale);
        shared.counters.tickets.set(wheel.len() as u64);
        stale + (wheel.len() - before) as u64
    }

    fn advance(&mut self, now: Timestamp, out: &mut Output) -> Progress {
        let Self { shard, engine, shared, slots, wheel, tick, in_flight, to_check, backlog, order, .. } =
            self;
        let budget = out.budget();
        let mut out = Batching::new(*shard, shared, engine.get(), out, in_flight);
        let before = wheel.len();
        let mut found = 0;
        let is_live = |ticket: &Ticket| slots.control(ticket.index()).is_live(ticket.stamp());
        let progress = wheel.hand_out_until(tick.current_tick(now), budget, is_live, |chunk| {
            found += chunk.len();
            let waiting = Waiting { tickets: chunk, found: now };
            if backlog.is_empty() && out.has_room() {
                out.add_scheduled(waiting, to_check);
            } else {
                backlog.push(waiting);
            }
        });
        out.flush_in_order(now, |chunks| order.sort(chunks, slots, *tick, now));
        shared.counters.stale.add((before - wheel.len() - found) as u64);
        progress
    }

    /// Spreads coarse slots of the wheel: moves their tickets to finer slots. If the leader (the thread that runs the
    /// shard) has a batch to run, puts this off to the next turn, but only once.
    fn spread(&mut self, tick: Tick, out: &Output) {
        if self.wheel.position() < tick {
            return;
        }
        self.put_spreading_off = out.has_own() && !self.put_spreading_off;
        if self.put_spreading_off {
            return;
        }
        let Self { slots, wheel, shared, .. } = self;
        let before = wheel.len();
        wheel.spread(|ticket| slots.control(ticket.index()).is_live(ticket.stamp()));
        shared.counters.stale.add((before - wheel.len()) as u64);
    }

    /// Returns whether the station holds due tickets back and may hand them over to the workers now.
    fn may_hand_over_backlog(&mut self) -> bool {
        if self.backlog.is_empty() {
            return false;
        }
        self.in_flight.forget_taken();
        self.in_flight.has_room()
    }

    /// Hands held-back tickets over to the workers, until the workers have enough work.
    fn hand_over_backlog(&mut self, now: Timestamp, out: &mut Output) {
        if !self.may_hand_over_backlog() {
            return;
        }
        let Self { shard, engine, shared, in_flight, to_check, backlog, .. } = self;
        let mut budget = out.budget();
        let mut out = Batching::new(*shard, shared, engine.get(), out, in_flight);
        while budget > 0 && out.has_room() {
            let Some(waiting) = backlog.pop() else { break };
            shared.counters.held_back.set(backlog.len() as u64);
            budget = budget.saturating_sub(waiting.tickets.len());
            out.add_scheduled(waiting, to_check);
        }
        out.flush(now);
    }

    /// Drops tickets that became stale while they were held back.
    fn sweep_backlog(&mut self) {
        let Self { shared, slots, backlog, .. } = self;
        let stale = backlog.sweep(|ticket| slots.control(ticket.index()).is_live(ticket.stamp()));
        shared.counters.stale.add(stale as u64);
    }

    /// Checks the owned timers whose tickets are due, and hands over the timers that are due. Most of the checked
    /// timers were postponed or disarmed.
    fn check_owned(&mut self, now: Timestamp, out: &mut Output) {
        let Self { shard, engine, shared, slots, wheel, tick, in_flight, to_check, recheck, order, .. } =
            self;
        let tickets = to_check.len();
        let mut postponed = 0;
        let next_check = |deadline| recheck.next(now, deadline);
        keep_due(slots, to_check, now, next_check, |insertion| {
            let (due, ticket) = insertion.into_ticket(*tick);
            wheel.insert_at(due, ticket);
            postponed += 1;
        });
        recheck.note(now, postponed);
        shared.counters.postponed.add(postponed);
        shared.counters.stale.add((tickets - to_check.len()) as u64 - postponed);
        let mut out = Batching::new(*shard, shared, engine.get(), out, in_flight);
        to_check.chunks(CHUNK_TICKETS).for_each(|due| out.add(Waiting { tickets: due.to_vec(), found: now }));
        to_check.clear();
        out.flush_in_order(now, |chunks| order.sort(chunks, slots, *tick, now));
    }

    /// Checks a part of the wheel for stale tickets, if such a sweep is wanted. Returns false while a part of the sweep
    /// remains.
    fn sweep(&mut self) -> bool {
        if !self.sweeping {
            if !self.shared.is_sweep_wanted() {
                return true;
            }
            self.shared.take_sweep_wanted();
            self.sweeping = true;
        }
        let before = self.wheel.len();
        let slots = &self.slots;
        let done =
            self.wheel.sweep(SWEEP_TICKETS, |ticket| slots.control(ticket.index()).is_live(ticket.stamp()));
        self.shared.counters.stale.add((before - self.wheel.len()) as u64);
        self.sweeping = !done;
        done
    }
}

/// Moves the live entries of `insertions` into the wheel as tickets. Returns the number of stale entries.
///
/// Most timers are cancelled before their shard first sees them, so most entries are stale. The function reads all
/// states before it places the first ticket, so that the loads overlap. A thread that schedules and cancels keeps using
/// one slot. So the function reads a slot's word only once for a row of insertions with that slot. Each read takes the
/// cache line away from the thread. The word decides which insertion of a row is live; the order of the insertions does
/// not. A thread may take over a lane and push an insertion that is older than the last insertion of the lane's former
/// owner.
fn insert_live(
    wheel: &mut TicketWheel<Ticket>,
    slots: &Slots,
    tick: TickLength,
    insertions: &mut Vec<Insertion>,
    idle_sleep: &mut IdleSleep,
) -> u64 {
    let before = insertions.len();
    let (mut row, mut live) = (None, None);
    insertions.retain(|&Insertion { index, stamp, deadline }| {
        if row != Some(index) {
            (row, live) = (Some(index), slots.control(index).live_stamp());
        }
        let is_live = live == Some(stamp);
        if !is_live {
            idle_sleep.note(deadline);
        }
        is_live
    });
    let kept = insertions.len();
    for insertion in insertions.drain(..) {
        let (due, ticket) = insertion.into_ticket(tick);
        wheel.insert_at(due, ticket);
    }
    (before - kept) as u64
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("shard", &self.shard).finish_non_exhaustive()
    }
}
