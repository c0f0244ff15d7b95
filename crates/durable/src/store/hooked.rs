//! A store that wraps another store, and passes each call through a hook.
//!
//! A hook adds measurements, limits, or faults for tests to a store without changing the store. A hook answers all
//! calls in one method, so it need not change when [`TimerStore`] gets a new method.

use super::{
    Claimant, Claimed, Counts, Cursor, Durability, Fault, Filter, Horizon, Leased, Limit, MemoryStore, Nodes,
    Op, Outcome, Page, Reaped, Reasons, Renewal, Scrub, Shares, StoreError, StoreFuture, TimerStore,
};
use crate::state::Token;
use crate::timer::{Address, Timer, TimerId};
use core::fmt;
use std::sync::Arc;
use tourbillon_words::UtcMillis;

/// A call of a [`TimerStore`] method that returns a [`StoreFuture`], as a [`Hook`] sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Call<'a> {
    /// A call of [`TimerStore::apply`], with the operations.
    Apply(&'a [Op]),
    /// A call of [`TimerStore::claim`] or [`claim_parked`](TimerStore::claim_parked).
    Claim,
    /// A call of [`TimerStore::recover`].
    Recover,
    /// A call of [`TimerStore::renew`].
    Renew,
    /// A call of [`TimerStore::reap`].
    Reap,
    /// A call of [`TimerStore::upcoming`].
    Upcoming,
    /// A call of [`TimerStore::get`].
    Get,
    /// A call of [`TimerStore::list`], with the limit for the number of timers in the page.
    List(u32),
    /// A call of [`TimerStore::counts`].
    Counts,
    /// A call of [`TimerStore::horizon`].
    Horizon,
    /// A call of [`TimerStore::check`].
    Check,
    /// A call of [`TimerStore::export`].
    Export,
    /// A call of [`TimerStore::import`].
    Import,
    /// A call of [`TimerStore::leave`].
    Leave,
    /// A call of [`TimerStore::reasons`].
    Reasons,
    /// A call of [`TimerStore::put_back`].
    PutBack,
    /// A call of [`TimerStore::nodes`].
    Nodes,
}

/// Sees and answers the calls to a [`Hooked`] store.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use tourbillon_durable::store::{Call, Hook, Hooked, MemoryStore, StoreFuture, TimerStore};
///
/// /// Counts claims.
/// #[derive(Default)]
/// struct Claims(AtomicU32);
///
/// impl Hook for Claims {
///     type Seen = bool;
///
///     fn see(&self, call: Call<'_>) -> bool {
///         call == Call::Claim
///     }
///
///     fn answer<'a, T: Send + 'a>(
///         &'a self,
///         is_claim: bool,
///         pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
///     ) -> StoreFuture<'a, T> {
///         self.0.fetch_add(is_claim.into(), Ordering::Relaxed);
///         pass_on()
///     }
/// }
///
/// let store = Hooked::new(Arc::new(MemoryStore::default()), Claims::default());
/// pollster::block_on(store.counts())?;
/// assert_eq!(store.hook().0.load(Ordering::Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Hook: Send + Sync + 'static {
    /// The data that [`see`](Self::see) copies from a call, for [`answer`](Self::answer).
    type Seen: Send;

    /// Copies the data that [`answer`](Self::answer) needs from a call. The data must be copied before the call reaches
    /// the store, because the store consumes the call's arguments.
    fn see(&self, call: Call<'_>) -> Self::Seen;

    /// Answers a call. The wrapped store gets the call only if the hook calls `pass_on`.
    fn answer<'a, T: Send + 'a>(
        &'a self,
        seen: Self::Seen,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T>;

    /// Answers a call of [`TimerStore::apply`]. By default, the call goes through [`answer`](Self::answer). A hook that
    /// applies operations itself overrides this method.
    fn apply<'a>(
        &'a self,
        store: &'a dyn TimerStore,
        ops: Vec<Op>,
        durability: Durability,
    ) -> StoreFuture<'a, Vec<Outcome>> {
        let seen = self.see(Call::Apply(&ops));
        self.answer(seen, move || store.apply(ops, durability))
    }

    /// Answers a call of [`TimerStore::now`]. By default, `store` answers the call.
    fn now(&self, store: &dyn TimerStore) -> UtcMillis {
        store.now()
    }

    /// Answers a call of [`TimerStore::parts`]. By default, `store` answers the call.
    fn parts(&self, store: &dyn TimerStore) -> u32 {
        store.parts()
    }

    /// Answers a call of [`TimerStore::part_of`]. By default, `store` answers the call.
    fn part_of(&self, store: &dyn TimerStore, id: TimerId) -> u32 {
        store.part_of(id)
    }

    /// Answers a call of [`TimerStore::is_transactional`]. By default, `store` answers the call.
    fn is_transactional(&self, store: &dyn TimerStore) -> bool {
        store.is_transactional()
    }

    /// Answers a call of [`TimerStore::nodes`]. By default, the call goes through [`answer`](Self::answer).
    fn nodes<'a>(&'a self, store: &'a dyn TimerStore) -> StoreFuture<'a, Option<Nodes>> {
        self.answer(self.see(Call::Nodes), move || store.nodes())
    }

    /// Answers a call of [`TimerStore::subscribe`]. By default, passes `wake` on to `store`.
    fn subscribe(&self, store: &dyn TimerStore, wake: Box<dyn Fn() + Send + Sync>) {
        store.subscribe(wake);
    }
}

/// A store that passes its calls through a [`Hook`] to another store.
pub struct Hooked<H> {
    store: Arc<dyn TimerStore>,
    hook: H,
}

impl<H: Hook> Hooked<H> {
    /// Wraps `store` with a hook.
    pub fn new(store: Arc<dyn TimerStore>, hook: H) -> Self {
        Self { store, hook }
    }

    /// Returns the hook.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// Returns the wrapped store.
    pub fn inner(&self) -> &Arc<dyn TimerStore> {
        &self.store
    }
}

/// Wraps a new in-memory store with the default hook, for tests.
impl<H: Hook + Default> Default for Hooked<H> {
    fn default() -> Self {
        Self::new(Arc::new(MemoryStore::default()), H::default())
    }
}

impl<H: Hook> Hooked<H> {
    fn pass<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        pass_on: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        self.hook.answer(self.hook.see(call), pass_on)
    }
}

impl<H: fmt::Debug> fmt::Debug for Hooked<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("hook", &self.hook).finish_non_exhaustive()
    }
}

impl<H: Hook> TimerStore for Hooked<H> {
    fn now(&self) -> UtcMillis {
        self.hook.now(&*self.store)
    }

    fn least_now(&self) -> UtcMillis {
        self.store.least_now()
    }

    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        self.store.fresh_id(namespace, key)
    }

    fn apply(&self, ops: Vec<Op>, durability: Durability) -> StoreFuture<'_, Vec<Outcome>> {
        self.hook.apply(&*self.store, ops, durability)
    }

    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed> {
        self.pass(Call::Claim, move || self.store.claim(by, claim, limit, shares))
    }

    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> StoreFuture<'_, Option<Claimed>> {
        self.pass(Call::Claim, move || self.store.claim_parked(by, claim, reason, wanted, limit))
    }

    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>> {
        self.pass(Call::Recover, move || self.store.recover(by, claim))
    }

    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal> {
        self.pass(Call::Renew, move || self.store.renew(by, leases))
    }

    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped> {
        self.pass(Call::Reap, move || self.store.reap(limit))
    }

    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>> {
        self.pass(Call::Upcoming, move || self.store.upcoming(from, until, limit))
    }

    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>> {
        self.pass(Call::Get, move || self.store.get(at))
    }

    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page> {
        self.pass(Call::List(limit), move || self.store.list(filter, cursor, limit))
    }

    fn counts(&self) -> StoreFuture<'_, Counts> {
        self.pass(Call::Counts, move || self.store.counts())
    }

    fn horizon(&self) -> StoreFuture<'_, Horizon> {
        self.pass(Call::Horizon, move || self.store.horizon())
    }

    fn check(&self) -> StoreFuture<'_, Vec<Fault>> {
        self.pass(Call::Check, move || self.store.check())
    }

    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()> {
        self.pass(Call::Export, move || self.store.export(each))
    }

    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()> {
        self.pass(Call::Import, move || self.store.import(timers))
    }

    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.hook.subscribe(&*self.store, wake);
    }

    fn refuses_new(&self) -> Option<StoreError> {
        self.store.refuses_new()
    }

    fn upkeep_fault(&self) -> Option<StoreError> {
        self.store.upkeep_fault()
    }

    fn leave(&self) -> StoreFuture<'_, ()> {
        self.pass(Call::Leave, move || self.store.leave())
    }

    fn is_transactional(&self) -> bool {
        self.hook.is_transactional(&*self.store)
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn lists_parked_by_due(&self) -> bool {
        self.store.lists_parked_by_due()
    }

    fn parts(&self) -> u32 {
        self.hook.parts(&*self.store)
    }

    fn part_of(&self, id: TimerId) -> u32 {
        self.hook.part_of(&*self.store, id)
    }

    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        self.pass(Call::Reasons, move || self.store.reasons(after, limit))
    }

    fn put_back(&self, reason: Box<str>, limit: u32) -> StoreFuture<'_, u32> {
        self.pass(Call::PutBack, move || self.store.put_back(reason, limit))
    }

    fn ended_at_opening(&self) -> Reaped {
        self.store.ended_at_opening()
    }

    fn scrub(&self) -> Option<Scrub> {
        self.store.scrub()
    }

    fn nodes(&self) -> StoreFuture<'_, Option<Nodes>> {
        self.hook.nodes(&*self.store)
    }
}
