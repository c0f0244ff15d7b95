//! Limits the number of connections, and decides which connections are closed to make room. Each open connection has a
//! *place*.
//!
//! If all places are taken, idle connections are closed. A connection is idle if it does not work on a request that has
//! arrived in full. If idle connections exist that never sent a request, only such connections are closed. All closed
//! connections belong to one address: the address with the most idle connections loses the connections that have been
//! quiet the longest.
//!
//! A few places are reserved for clients on this machine, so that a check of the service's health always finds a place.
//! Clients on other machines share the remaining places. If they have taken all of these, only idle connections of
//! other machines are closed to make room for a further client of another machine.
//!
//! A connection is a *stranger's* if it has had requests answered, and none of its requests was authenticated.
//! Strangers may have only a part of the places, because their connections use more memory than silent connections. An
//! HTTP/2 connection whose client does not take its answers uses the most. If strangers have more than their part, some
//! of their connections are closed, even connections that are not idle.
//!
//! A connection *waits* while it has a request that waits for an event: a receiver that waits for a timer, or a stream
//! of events. Such a connection is not idle, and may wait for long at no cost to its client. So at most three quarters
//! of the places are for connections that wait, and each token has a share of these ([`share`](crate::share)). If they
//! are taken, a request that would wait is refused. The other places stay for requests that are answered at once.

use super::activity::{Activity, Idleness, Strangeness};
use super::waiting::WaitingPlaces;
use crate::client::network;
use core::net::IpAddr;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};

/// Two rules divide the greatest number of open connections by this number. First, one place in 64 is reserved for
/// clients on the server's own machine. Second, if a new connection needs room, the server closes several idle
/// connections of one address at once: at most one in 64.
const PART: usize = 64;

/// Strangers together may have at most one in eight of the permitted connections. If this is less than [`PART`]
/// connections, they may have [`PART`] connections. A connection is a stranger's if it has had requests answered, and
/// none of its requests was authenticated.
const STRANGERS: usize = 8;

/// A number with two uses:
///
/// - The server gives memory back to the system only if at least this number of connections were open at the same time.
/// - If strangers have more connections than [`STRANGERS`] permits, the server closes strangers' connections until one
///   in eight of the permitted number is free again.
const FEW: usize = 8;

/// Limits the number of a server's open connections to `all`. Each open connection takes one of `all` places.
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    state: Mutex<State>,
    waiting: Arc<WaitingPlaces>,
    /// The number of open connections. A connection that the server has asked to close has no place any more, but it
    /// counts here until it ends.
    open: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    taken: HashMap<u64, Taken>,
    /// The number of taken places whose clients are on other machines.
    remote: usize,
    next: u64,
    /// An upper bound of the number of strangers' connections. Such a connection has had requests answered, and none of
    /// its requests was authenticated. Each new stranger's connection raises the bound, and an exact count lowers it.
    strangers: usize,
    /// The greatest number of connections that were open at the same time since [`Places::have_emptied`] last returned
    /// true.
    peak: usize,
}

#[derive(Debug)]
struct Taken {
    from: IpAddr,
    activity: Arc<Activity>,
    leave: oneshot::Sender<()>,
}

/// One of the limited number of places for connections ([`Places`]). Each open connection holds this value. Dropping
/// the value frees the place.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    pub(super) peer: IpAddr,
    pub(super) activity: Arc<Activity>,
    /// Gets a message when the server tells the connection to close, because it needs the place for another connection,
    /// or because unauthenticated clients have too many connections. `None` after the message.
    left: Option<oneshot::Receiver<()>>,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        let waiting = Arc::new(WaitingPlaces::new(all - all / 4));
        Self { all, state: Mutex::default(), waiting, open: watch::Sender::new(0) }
    }

    /// Returns the places for connections whose requests wait for events.
    pub(super) fn waiting(&self) -> &Arc<WaitingPlaces> {
        &self.waiting
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection. If no place is free for this client, closes idle connections whose places
    /// the client may have. Returns `None` if no such connection is idle.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, activity: Arc<Activity>) -> Option<Place> {
        let from = network(peer);
        let is_remote = !from.is_loopback();
        let mut state = self.lock();
        let must_be_remote = is_remote && state.remote >= self.all - self.all / PART;
        let is_full = must_be_remote || state.taken.len() >= self.all;
        if is_full && !state.make_room(must_be_remote, self.all.div_ceil(PART)) {
            return None;
        }
        let number = state.next;
        state.next += 1;
        let (leave, left) = oneshot::channel();
        state.taken.insert(number, Taken { from, activity: Arc::clone(&activity), leave });
        state.remote += usize::from(is_remote);
        state.peak = state.peak.max(state.taken.len());
        drop(state);
        self.open.send_modify(|open| *open += 1);
        Some(Place { places: Arc::clone(self), number, peer, activity, left: Some(left) })
    }

    /// Counts a further connection as a stranger's, because it has had a request answered, and none of its requests was
    /// authenticated. If strangers then have too many connections, closes some of them.
    pub(super) fn note_stranger(&self) {
        let most = (self.all / STRANGERS).max(PART);
        let mut state = self.lock();
        state.strangers += 1;
        // Several places are freed at once. Otherwise each new stranger would cost an exact count.
        if state.strangers > most {
            state.limit_strangers(most - most / FEW);
        }
    }

    /// Returns whether at least half of the connections have ended since the last call that returned true. Returns
    /// false if there were always fewer than [`FEW`] connections.
    pub(super) fn have_emptied(&self) -> bool {
        let mut state = self.lock();
        let open = state.taken.len();
        let have = state.peak >= FEW && 2 * open <= state.peak;
        if have {
            state.peak = open;
        }
        have
    }

    /// Waits until all connections of the server have ended.
    pub(super) async fn ended(&self) {
        let mut open = self.open.subscribe();
        // The sender belongs to `self`, so the wait cannot fail.
        let _never_fails = open.wait_for(|open| *open == 0).await;
    }
}

impl State {
    /// Counts the strangers' connections exactly. (Requests of these connections were answered, but none was
    /// authenticated.) If strangers have more than `most` connections, closes some of them, until `most` are left.
    fn limit_strangers(&mut self, most: usize) {
        let strange = |taken: &Taken| taken.activity.strangeness();
        let mut all: Vec<(Strangeness, IpAddr, u64)> = self
            .taken
            .iter()
            .filter_map(|(number, taken)| Some((strange(taken)?, taken.from, *number)))
            .collect();
        all.sort_unstable();
        let mut counts = HashMap::<IpAddr, usize>::new();
        for (_, from, _) in &all {
            *counts.entry(*from).or_default() += 1;
        }
        self.strangers = all.len();
        while self.strangers > most
            // Equal counts are ordered by the address, because the order of a `HashMap` is random.
            && let Some((&first, count)) =
                counts.iter_mut().max_by_key(|(from, count)| (**count, Reverse(**from)))
        {
            *count -= 1;
            let place = all.iter().position(|(_, from, _)| *from == first);
            // An entry is always found: the sum of the counts is above `most`, so the greatest count is above zero.
            let Some((_, _, number)) = place.map(|place| all.remove(place)) else { return };
            self.evict(number);
            self.strangers -= 1;
        }
    }

    /// Frees the place of the connection `number`, if the connection still has it.
    fn free(&mut self, number: u64) -> Option<Taken> {
        let taken = self.taken.remove(&number)?;
        self.remote -= usize::from(!taken.from.is_loopback());
        Some(taken)
    }

    /// Frees the place of the connection `number`, and tells the connection to end.
    fn evict(&mut self, number: u64) {
        if let Some(taken) = self.free(number) {
            // If the connection has ended already, nobody gets this message.
            let _has_ended = taken.leave.send(());
        }
    }

    /// Closes up to `most` idle connections of an address, to free their places. With `must_be_remote`, the address is
    /// of another machine. Returns whether any such connection was idle.
    fn make_room(&mut self, must_be_remote: bool, most: usize) -> bool {
        let idle = |taken: &Taken| taken.activity.idleness();
        let mut all: Vec<(Idleness, IpAddr, u64)> = self
            .taken
            .iter()
            .filter(|(_, taken)| !(must_be_remote && taken.from.is_loopback()))
            .filter_map(|(number, taken)| Some((idle(taken)?, taken.from, *number)))
            .collect();
        if all.iter().any(|(idle, ..)| !idle.has_sent_a_request) {
            all.retain(|(idle, ..)| !idle.has_sent_a_request);
        }
        let mut counts = HashMap::<IpAddr, usize>::new();
        for (_, from, _) in &all {
            *counts.entry(*from).or_default() += 1;
        }
        let Some((&first, _)) = counts.iter().max_by_key(|(from, count)| (**count, Reverse(**from))) else {
            return false;
        };
        all.retain(|(_, from, _)| *from == first);
        all.sort_unstable();
        for (_, _, number) in all.into_iter().take(most) {
            self.evict(number);
        }
        true
    }
}

impl Place {
    pub(super) fn places(&self) -> Arc<Places> {
        Arc::clone(&self.places)
    }

    /// Waits until the server makes this connection close, because it needs the place for another connection, or
    /// because unauthenticated clients have too many connections. Returns only once. Later calls wait for ever.
    pub(super) async fn left(&mut self) {
        match &mut self.left {
            Some(left) => {
                let _is_sent_once = left.await;
                self.left = None;
            }
            None => core::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _is_evicted = self.places.lock().free(self.number);
        self.places.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::activity::UnderWay;
    use super::*;
    use core::time::Duration;
    use futures_util::FutureExt as _;
    use tourbillon::future::Wakeup;
    use tourbillon::{Builder, DrivenEngine, Handle};

    struct Door {
        engine: DrivenEngine<Wakeup>,
        places: Arc<Places>,
    }

    impl Door {
        fn new(all: usize) -> Self {
            let engine = Builder::new().driven_futures().unwrap();
            Self { engine, places: Arc::new(Places::new(all)) }
        }

        fn take(&mut self, peer: &str) -> Option<Place> {
            self.engine.advance(Duration::from_millis(1));
            let activity = Arc::new(Activity::new(Handle::clone(self.engine.handle())));
            self.places.take(peer.parse().unwrap(), activity)
        }
    }

    fn has_left(place: &mut Place) -> bool {
        place.left.as_mut().is_none_or(|left| left.try_recv().is_ok())
    }

    #[test]
    fn silent_connections_of_the_greatest_holder_make_room_the_oldest_first() {
        let mut door = Door::new(128);
        let mut silent: Vec<Place> = (0..120).map(|_| door.take("2001:db8::7").unwrap()).collect();
        let mut other: Vec<Place> = (0..6).map(|_| door.take("192.0.2.1").unwrap()).collect();
        let mut new = door.take("198.51.100.1").unwrap();
        assert!(silent[..2].iter_mut().all(has_left) && !silent[2..].iter_mut().any(has_left));
        assert!(!other.iter_mut().any(has_left) && !has_left(&mut new));
        // The connections of the evicted places end. Their places are not freed a second time.
        drop(silent.drain(..2));
        assert_eq!(door.places.lock().taken.len(), 125);
        assert_eq!(*door.places.open.borrow(), 125);
    }

    #[test]
    fn strangers_have_a_part_of_the_places_and_make_room_for_each_other() {
        let mut door = Door::new(1_024);
        let mut silent: Vec<Place> = (0..200).map(|_| door.take("192.0.2.9").unwrap()).collect();
        let mut known = door.take("192.0.2.1").unwrap();
        let request = UnderWay::begin(&known.activity, true);
        assert!(request.note_answer(4).makes_a_stranger);
        door.places.note_stranger();
        let request = UnderWay::begin(&known.activity, true);
        request.stage().note_known(None);
        let mut few: Vec<(Place, UnderWay)> = Vec::new();
        let mut many: Vec<(Place, UnderWay)> = Vec::new();
        for number in 0..400 {
            let (peer, kept) =
                if number < 10 { ("198.51.100.1", &mut few) } else { ("2001:db8::7", &mut many) };
            let place = door.take(peer).unwrap();
            let request = UnderWay::begin(&place.activity, true);
            assert!(request.note_answer(4).makes_a_stranger);
            door.places.note_stranger();
            kept.push((place, request));
        }
        assert!(!silent.iter_mut().chain([&mut known]).any(has_left), "they are no strangers");
        assert!(!few.iter_mut().any(|(place, _)| has_left(place)), "the others have more");
        let left: Vec<bool> = many.iter_mut().map(|(place, _)| has_left(place)).collect();
        let stay = left.iter().filter(|left| !**left).count();
        assert!((100..=118).contains(&stay), "{stay}");
        assert!(left.is_sorted_by(|before, after| before >= after), "the longest quiet ones first");
        drop(request);
    }

    #[test]
    fn connections_that_wait_leave_places_to_others() {
        let mut door = Door::new(128);
        let mut wait = |token: u8| {
            let (place, request) = works(door.take("192.0.2.1")).unwrap();
            request.stage().note_known(Some([token; 32]));
            request.stage().note_waits();
            let begins = || request.stage().begin_wait(|token| place.places.waiting().take(token));
            (begins() && begins()).then_some((place, request))
        };
        let mut waiting: Vec<_> = core::iter::from_fn(|| wait(1)).collect();
        assert_eq!(waiting.len(), 72, "three quarters of three quarters");
        for token in 2..6 {
            waiting.extend(core::iter::from_fn(|| wait(token)));
        }
        assert!(waiting.len() >= 96, "all that may wait, {}", waiting.len());
        assert!(wait(99).is_some(), "a token without a connection that waits");
        // The end of a request ends the wait, and the connection stays.
        let (place, request) = waiting.pop().unwrap();
        drop(request);
        assert!(wait(98).is_some());
        drop((place, waiting));
        assert!(door.places.waiting().are_free());
    }

    #[test]
    fn a_connection_with_a_request_keeps_its_place_and_this_machine_finds_one() {
        let mut door = Door::new(128);
        let busy: Vec<(Place, UnderWay)> = core::iter::from_fn(|| door.take("192.0.2.1"))
            .map(|place| {
                let request = UnderWay::begin(&place.activity, false);
                request.stage().note_complete();
                (place, request)
            })
            .collect();
        assert_eq!(busy.len(), 126, "two places are for this machine");
        let own: Vec<Place> = (0..2).map(|_| door.take("::1").unwrap()).collect();
        for _ in 0..10 {
            let mut next = door.take("127.0.0.1").unwrap();
            assert!(!has_left(&mut next), "the silent ones of this machine make room for each other");
        }
        drop(own);
        drop(busy);
        assert!(door.places.ended().now_or_never().is_some());
    }

    /// Begins a request that has arrived in full, so that the connection is not idle.
    fn works(place: Option<Place>) -> Option<(Place, UnderWay)> {
        let place = place?;
        let request = UnderWay::begin(&place.activity, false);
        request.stage().note_complete();
        Some((place, request))
    }

    #[test]
    fn clients_of_other_machines_never_get_the_places_of_this_machine() {
        let mut door = Door::new(128);
        let mut others: Vec<(Place, UnderWay)> =
            core::iter::from_fn(|| works(door.take("192.0.2.1"))).collect();
        assert_eq!(others.len(), 126, "two places are for this machine");
        // A check of the service's health keeps its connections, so they are idle.
        let mut own: Vec<Place> = (0..2).map(|_| door.take("127.0.0.1").unwrap()).collect();
        for _ in 0..10 {
            others.extend(works(door.take("192.0.2.1")));
        }
        assert_eq!(others.len(), 126, "the places of this machine are not for others");
        assert!(!own.iter_mut().any(has_left), "no connection is closed for a client that is refused");
        others.truncate(123);
        let next = door.take("192.0.2.1");
        assert!(next.is_some() && !own.iter_mut().any(has_left), "a place is free");
    }

    #[test]
    fn clients_of_this_machine_beyond_the_reserved_places_lock_nobody_out() {
        let mut door = Door::new(128);
        let _own: Vec<_> = (0..126).map(|_| works(door.take("127.0.0.1")).unwrap()).collect();
        let mut silent: Vec<Place> = (0..2).map(|_| door.take("192.0.2.1").unwrap()).collect();
        for _ in 0..10 {
            let mut next = door.take("198.51.100.1").unwrap();
            assert!(!has_left(&mut next), "a silent connection makes room, or a place is free");
        }
        assert_eq!(silent.iter_mut().map(has_left).collect::<Vec<_>>(), [true; 2]);
    }

    #[test]
    fn a_connection_that_waits_for_its_next_request_makes_room_after_the_silent_ones() {
        let mut door = Door::new(2);
        let mut used = door.take("192.0.2.1").unwrap();
        drop(UnderWay::begin(&used.activity, false));
        let mut silent = door.take("192.0.2.2").unwrap();
        let third = door.take("192.0.2.3").unwrap();
        assert!(has_left(&mut silent) && !has_left(&mut used));
        drop(UnderWay::begin(&third.activity, false));
        let _fourth = door.take("192.0.2.4").unwrap();
        assert!(has_left(&mut used), "the longest quiet one");
    }
}
