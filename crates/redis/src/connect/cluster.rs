//! A cluster: a connection to each primary, and the map of the slots.
//!
//! Each primary has a [`Keeper`] of its own, so that one which does not answer holds up the calls to itself and no
//! others. A task looks for the slots: it asks one server after another, and takes the first answer. It looks at the
//! start, after a reply that an old map may explain, and while a call waits for a connection, since the primary that
//! does not answer may have been replaced.

use super::dial::Dial;
use super::keeper::Keeper;
use super::route::Route;
use super::slots::{Address, Slots};
use crate::layout::slot_of;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::RedisError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// The time after which a look asks another server as well.
const NEXT: Duration = Duration::from_millis(150);
/// How long a server may take to answer a look.
const REPLY: Duration = Duration::from_secs(2);
/// The pause between two looks.
const REST: Duration = Duration::from_millis(50);
/// How often a call that waits for a connection asks for a look.
const AGAIN: Duration = Duration::from_millis(100);

/// The way to the servers of a cluster.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    /// Counts the calls to any primary, which take them in turn.
    turn: AtomicUsize,
}

struct Shared {
    dial: Arc<Dial>,
    slots: watch::Sender<Arc<Slots>>,
    /// Asks for a look.
    doubt: Notify,
    keepers: Mutex<BTreeMap<Address, Keeper>>,
}

impl Cluster {
    /// Starts to look for the slots, on the runtime of the caller.
    pub(crate) fn start(dial: Arc<Dial>) -> Self {
        let (slots, _) = watch::channel(Arc::default());
        let shared = Arc::new(Shared { dial, slots, doubt: Notify::new(), keepers: Mutex::default() });
        drop(tokio::spawn(look(Arc::clone(&shared))));
        Self { shared, turn: AtomicUsize::new(0) }
    }

    /// A connection to the primary that has the key, or to any primary, once there is one; `None` if the runtime ends.
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

    /// A connection to the server at this address, once there is one; `None` if the runtime ends.
    pub(crate) async fn to_address(&self, address: &Address) -> Option<Route> {
        self.shared.to(address).await
    }

    /// The map of the slots, once there is one; `None` if the runtime ends.
    pub(crate) async fn slots(&self) -> Option<Arc<Slots>> {
        let mut slots = self.shared.slots.subscribe();
        let known = slots.wait_for(|slots| !slots.primaries().is_empty()).await;
        known.ok().map(|slots| Arc::clone(&slots))
    }

    /// The map may be old.
    pub(crate) fn look_again(&self) {
        self.shared.doubt.notify_one();
    }

    /// A server has answered that this primary has the slot.
    pub(crate) fn moved(&self, slot: u32, owner: &Address) {
        self.shared.slots.send_if_modified(|slots| {
            let changed = slots.with(slot, owner);
            changed.map(|changed| *slots = Arc::new(changed)).is_some()
        });
        self.look_again();
    }

    /// Why a server could not be connected to.
    pub(crate) fn trouble(&self) -> Option<RedisError> {
        self.shared.keepers().values().find_map(|keeper| keeper.state().trouble)
    }
}

impl Shared {
    fn keepers(&self) -> MutexGuard<'_, BTreeMap<Address, Keeper>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the server at this address, once there is one; `None` if the runtime ends.
    async fn to(&self, address: &Address) -> Option<Route> {
        let mut keeper = {
            let mut keepers = self.keepers();
            let make = || Keeper::start(Arc::new(self.dial.to_node(address)));
            keepers.entry(address.clone()).or_insert_with(make).clone()
        };
        let (attempt, connection) = keeper.connection().await?;
        Some(Route { keeper, attempt, connection, address: Some(address.clone()) })
    }

    /// One of the primaries, in turn: of those with a connection, if there are any.
    fn any(&self, primaries: &[Address], turn: usize) -> Option<Address> {
        let keepers = self.keepers();
        let is_connected = |address: &&Address| {
            keepers.get(*address).is_some_and(|keeper| keeper.state().connection.is_some())
        };
        let connected: Vec<_> = primaries.iter().filter(is_connected).collect();
        let from = if connected.is_empty() { primaries.iter().collect() } else { connected };
        from.get(turn.checked_rem(from.len())?).map(|address| (*address).clone())
    }

    /// The slots, as the server at this address has them.
    async fn ask(&self, address: &Address) -> Option<Slots> {
        let mut question = redis::pipe();
        question.cmd("CLUSTER").arg("SLOTS");
        let mut route = self.to(address).await?;
        let Ok(mut answer) = route.send(&question, 0).await else {
            route.doubt().await;
            return None;
        };
        Slots::read(answer.pop()?, address)
    }

    /// The first answer of these servers. Each is asked a moment after the one before it.
    async fn first_answer(&self, servers: Vec<Address>) -> Option<Slots> {
        let asked = servers.into_iter().zip(0..).map(|(address, place)| async move {
            sleep(NEXT * place).await;
            timeout(REPLY, self.ask(&address)).await.ok().flatten()
        });
        let mut answers: FuturesUnordered<_> = asked.collect();
        while let Some(answer) = answers.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Takes a new map, and lets the keepers of servers go that are not in it.
    fn take(&self, slots: Slots) {
        let is_new = self.slots.send_if_modified(|known| {
            let is_new = **known != slots;
            if is_new {
                *known = Arc::new(slots);
            }
            is_new
        });
        if is_new {
            let slots = Arc::clone(&self.slots.borrow());
            self.keepers().retain(|address, _| slots.primaries().binary_search(address).is_ok());
        }
    }
}

/// Looks for the slots when that is asked for, and until there is an answer.
async fn look(shared: Arc<Shared>) {
    let seeds = shared.dial.addresses();
    for turn in 0.. {
        let mut servers = shared.slots.borrow().primaries().to_vec();
        // Each look begins with another server: one whose map is old does not keep the others' answers away.
        if !servers.is_empty() {
            let first = turn % servers.len();
            servers.rotate_left(first);
        }
        let others = seeds.iter().filter(|seed| !servers.contains(seed)).cloned().collect::<Vec<_>>();
        servers.extend(others);
        let found = shared.first_answer(servers).await;
        let is_found = found.is_some();
        if let Some(slots) = found {
            shared.take(slots);
        }
        sleep(REST).await;
        if is_found {
            shared.doubt.notified().await;
        }
    }
}
