//! Connects to the primaries of a cluster, and keeps the map of the slots.
//!
//! Each primary has a [`Reconnector`] of its own, so a primary that does not answer delays only the calls to that
//! primary. A task reads the map of the slots: it asks several servers, each [`NEXT`] after the previous server, and
//! takes the first answer. It reads the map at the start, after a call without a reply, and after a reply that an old
//! map may explain. While a call waits for a connection, the task reads the map again and again, since the silent
//! primary may have been replaced.

use super::dial::Dial;
use super::error::no_reply;
use super::reconnector::Reconnector;
use super::route::Route;
use super::slots::{Address, Slots};
use crate::layout::slot_of;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{ErrorKind, RedisError, RedisResult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// The time after which a read of the map of the slots also asks the next server, if no server has answered.
const NEXT: Duration = Duration::from_millis(150);
/// The time within which a server must answer with the map of the slots.
const REPLY: Duration = Duration::from_secs(2);
/// The shortest pause between two reads of the map of the slots. A read that finds no change doubles the pause, up to
/// `LONGEST`.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// The interval at which a call that waits for a connection requests another read of the map of the slots.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest time that a call waits for a connection to the server that a redirection names.
const ASIDE: Duration = Duration::from_secs(1);

/// Finds and keeps connections to the servers of a cluster.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    /// The number of calls that have requested a connection so far. This number selects the primary for a call without
    /// a key, by rotation.
    turn: AtomicUsize,
}

struct Shared {
    dial: Arc<Dial>,
    slots: watch::Sender<Arc<Slots>>,
    /// Wakes the task that reads the map of the slots, when the present map may be old.
    doubt: Notify,
    reconnectors: Mutex<BTreeMap<Address, Reconnector>>,
    /// The error of the last read of the map of the slots, or `None` if that read succeeded.
    trouble: Mutex<Option<RedisError>>,
}

impl Cluster {
    /// Starts the task that reads the map of the slots, on the caller's runtime.
    pub(crate) fn start(dial: Arc<Dial>) -> Self {
        let (slots, _) = watch::channel(Arc::default());
        let shared = Shared {
            dial,
            slots,
            doubt: Notify::new(),
            reconnectors: Mutex::default(),
            trouble: Mutex::default(),
        };
        let shared = Arc::new(shared);
        // The task ends with the runtime, which ends when the session is dropped.
        drop(tokio::spawn(look(Arc::clone(&shared))));
        Self { shared, turn: AtomicUsize::new(0) }
    }

    /// Waits for a connection to the primary that has the key. If `key` is `None`, waits for a connection to any
    /// primary. Returns `None` if the runtime ends.
    pub(crate) async fn to(&self, key: Option<&[u8]>) -> Option<Route> {
        let mut slots = self.shared.slots.subscribe();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        loop {
            let address = {
                let now = slots.borrow_and_update();
                match key {
                    Some(key) => now.owner(slot_of(key)).cloned(),
                    None => self.shared.any(now.primaries(), turn),
                }
            };
            let route = async {
                match address {
                    Some(address) => self.shared.to(&address).await,
                    // Only a new map helps a call whose primary is unknown.
                    None => core::future::pending().await,
                }
            };
            let changed = slots.changed();
            match timeout(AGAIN, select(pin!(route), pin!(changed))).await {
                Ok(Either::Left((route, _))) => return route,
                Ok(Either::Right((is_new, _))) => is_new.ok()?,
                Err(_) => self.look_again(),
            }
        }
    }

    /// Waits for a connection to the server at this address, or returns `None` after [`ASIDE`].
    pub(crate) async fn to_address(&self, address: &Address) -> Option<Route> {
        timeout(ASIDE, self.shared.to(address)).await.ok().flatten()
    }

    /// Returns the address of the primary that has the key, or `None` without a connection to that primary.
    pub(crate) fn connected_owner(&self, key: &[u8]) -> Option<Address> {
        let owner = self.shared.slots.borrow().owner(slot_of(key)).cloned()?;
        let is_connected = self.shared.reconnectors().get(&owner)?.state().connection.is_some();
        is_connected.then_some(owner)
    }

    /// Waits until the map of the slots is known, and returns it. Returns `None` if the runtime ends.
    pub(crate) async fn slots(&self) -> Option<Arc<Slots>> {
        let mut slots = self.shared.slots.subscribe();
        let known = slots.wait_for(|slots| !slots.primaries().is_empty()).await;
        known.ok().map(|slots| Arc::clone(&slots))
    }

    /// Requests another read of the map of the slots, because the known map may be old.
    pub(crate) fn look_again(&self) {
        // If the task is reading the map or pausing, `notify_one` keeps the request for the next read. `notify_waiters`
        // would lose the request.
        self.shared.doubt.notify_one();
    }

    /// Records the primary of a slot that a server's redirection names, and requests another read of the whole map.
    pub(crate) fn moved(&self, slot: u32, owner: &Address) {
        // The call is sent again before the whole map is read, so the map must have the new primary at once.
        self.shared.slots.send_if_modified(|slots| {
            let changed = slots.with(slot, owner);
            changed.map(|changed| *slots = Arc::new(changed)).is_some()
        });
        self.look_again();
    }

    /// Returns the reason why there is no connection to the primary that has the key: the error of the last attempt to
    /// connect to that primary, or else the error of the last read of the map of the slots. If `key` is `None`, returns
    /// the error of the last read of the map.
    pub(crate) fn trouble(&self, key: Option<&[u8]>) -> Option<RedisError> {
        let owner = key.and_then(|key| self.shared.slots.borrow().owner(slot_of(key)).cloned());
        let of_owner = owner.and_then(|owner| self.shared.reconnectors().get(&owner)?.state().trouble);
        of_owner.or_else(|| lock(&self.shared.trouble).clone())
    }
}

impl Shared {
    fn reconnectors(&self) -> MutexGuard<'_, BTreeMap<Address, Reconnector>> {
        lock(&self.reconnectors)
    }

    /// Waits for a connection to the server at this address. Returns `None` if the runtime ends.
    async fn to(&self, address: &Address) -> Option<Route> {
        let mut reconnector = {
            let mut reconnectors = self.reconnectors();
            let make = || Reconnector::start(Arc::new(self.dial.to_node(address)));
            reconnectors.entry(address.clone()).or_insert_with(make).clone()
        };
        let (attempt, connection) = reconnector.connection().await?;
        Some(Route { reconnector, attempt, connection, address: Some(address.clone()) })
    }

    /// Chooses a primary by rotation, among the primaries that have a connection. If no primary has a connection,
    /// chooses among all primaries. Returns `None` if `primaries` is empty.
    fn any(&self, primaries: &[Address], turn: usize) -> Option<Address> {
        let reconnectors = self.reconnectors();
        let is_connected = |address: &&Address| {
            reconnectors.get(*address).is_some_and(|reconnector| reconnector.state().connection.is_some())
        };
        let connected: Vec<_> = primaries.iter().filter(is_connected).collect();
        let from = if connected.is_empty() { primaries.iter().collect() } else { connected };
        from.get(turn.checked_rem(from.len())?).map(|address| (*address).clone())
    }

    /// Asks the server at this address for its map of the slots.
    async fn ask(&self, address: &Address) -> RedisResult<Slots> {
        let mut question = redis::pipe();
        question.cmd("CLUSTER").arg("SLOTS");
        let Ok(Some(mut route)) = timeout(REPLY, self.to(address)).await else {
            let trouble =
                self.reconnectors().get(address).and_then(|reconnector| reconnector.state().trouble);
            return Err(trouble.unwrap_or_else(no_reply));
        };
        let Ok(Ok(mut replies)) = timeout(REPLY, route.send(&question, 0)).await else {
            route.doubt().await;
            return Err(no_reply());
        };
        let answer = replies.pop().ok_or_else(no_reply)?.extract_error()?;
        let nothing = || (ErrorKind::UnexpectedReturnType, "the cluster has no slots").into();
        Slots::read(answer, address).ok_or_else(nothing)
    }

    /// Asks `servers` for the map of the slots, each [`NEXT`] after the previous server. Returns the first answer, or
    /// an error if all servers fail.
    async fn first_answer(&self, servers: Vec<Address>) -> RedisResult<Slots> {
        let asked = servers.into_iter().zip(0..).map(|(address, place)| async move {
            sleep(NEXT * place).await;
            self.ask(&address).await
        });
        let mut answers: FuturesUnordered<_> = asked.collect();
        let mut found = Err(no_reply());
        while let Some(answer) = answers.next().await {
            found = answer;
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// Replaces the map of the slots, and closes the connections to servers that the new map does not name. Returns
    /// whether the map has changed.
    fn take(&self, slots: Slots) -> bool {
        let slots = Arc::new(slots);
        let is_new = self.slots.send_if_modified(|known| {
            let is_new = *known != slots;
            *known = Arc::clone(&slots);
            is_new
        });
        // The map is replaced first. Otherwise a call could make a reconnector for a server of the old map.
        self.reconnectors().retain(|address, _| slots.primaries().binary_search(address).is_ok());
        is_new
    }
}

/// Reads the map of the slots whenever a read is requested. After a failure, tries again until a server answers.
async fn look(shared: Arc<Shared>) {
    let seeds = shared.dial.addresses();
    let mut pause = SHORTEST;
    for turn in 0.. {
        let servers = in_turn(turn, shared.slots.borrow().primaries(), &seeds);
        let found = shared.first_answer(servers).await;
        let is_found = found.is_ok();
        *lock(&shared.trouble) = found.as_ref().err().cloned();
        let is_new = found.is_ok_and(|slots| shared.take(slots));
        // All requests that arrive during this pause lead to a single read.
        sleep(pause).await;
        pause = if is_new { SHORTEST } else { (pause * 2).min(LONGEST) };
        if is_found {
            let start = Instant::now();
            shared.doubt.notified().await;
            // No read was requested for a long time, so the pauses start with the shortest again.
            if start.elapsed() >= LONGEST {
                pause = SHORTEST;
            }
        }
    }
}

/// Returns all servers, in the order in which a read asks them for the map of the slots. `turn` is the number of the
/// read. Each read begins with a different server, so that a server with an old map is not always the first to answer.
/// Every second read begins with a server from the settings, because all primaries of an old map may be gone.
fn in_turn(turn: usize, primaries: &[Address], seeds: &[Address]) -> Vec<Address> {
    let begin = |servers: &[Address]| {
        let first = (turn / 2).checked_rem(servers.len()).unwrap_or(0);
        let (end, start) = servers.split_at(first);
        [start, end].concat()
    };
    let (mut servers, others) = match turn % 2 {
        0 => (begin(primaries), begin(seeds)),
        _ => (begin(seeds), begin(primaries)),
    };
    servers.extend(others);
    let mut seen = BTreeSet::new();
    servers.retain(|server| seen.insert(server.clone()));
    servers
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_the_first_one_asked_in_some_look() {
        let named = |host: &str| Address { host: host.into(), port: 1 };
        let (primaries, seeds) = (["a", "b", "c"].map(named), ["s", "b"].map(named));
        let firsts: Vec<_> =
            (0..6).map(|turn| in_turn(turn, &primaries, &seeds)[0].host.to_string()).collect();
        assert_eq!(firsts, ["a", "s", "b", "b", "c", "s"]);
        for turn in 0..6 {
            let mut all = in_turn(turn, &primaries, &seeds);
            all.sort();
            assert_eq!(all, ["a", "b", "c", "s"].map(named), "each once");
        }
        assert_eq!(in_turn(0, &[], &seeds), seeds);
        assert_eq!(in_turn(1, &[], &[]), []);
    }
}
