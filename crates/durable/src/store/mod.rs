//! The interface of a store: its operations on timers, in words that name neither a table nor a script.
//!
//! A store keeps timers and decides by its own clock which of them are due. It is *claim-based*: a holder gets a timer
//! for a time, and the timer stays stored until the holder reports an end. All changes are [`Op`]s. A store applies the
//! transitions of [`step`](crate::state::step) to its timers. So an operation has the same effect in all stores, which
//! the tests of the crate `tourbillon-conformance` check.

pub mod dry_run;
mod error;
#[cfg(feature = "failpoints")]
#[cfg_attr(docsrs, doc(cfg(feature = "failpoints")))]
pub mod failpoints;
#[cfg(not(feature = "failpoints"))]
#[expect(unreachable_pub, reason = "public with the feature")]
mod failpoints;
mod fault;
mod filter;
mod hooked;
mod horizon;
mod ledger;
mod memory;
mod nodes;
mod redb;
mod shares;
mod tables;

pub use self::redb::{Part, RedbBuilder, RedbStore, StoreStats};
pub use error::{StoreError, StoreErrorKind};
pub use fault::Fault;
pub use filter::{Cursor, Filter, Page};
pub use hooked::{Call, Hook, Hooked};
pub use horizon::{Horizon, Span};
pub use ledger::PAUSED;
pub use memory::MemoryStore;
pub use nodes::{Node, Nodes, Shard};
pub use shares::{Late, SHARE, Shares, free_for};

use crate::state::{Failure, Phase, Refusal, State, Token};
use crate::timer::{Address, Timer, TimerId};
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tourbillon_words::UtcMillis;

/// The future that a call to a store returns.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The worst failure that an acknowledged change must survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The change need not survive a failure. The change is in memory when the call returns, and in the file some 20 ms
    /// later. The change is lost if the process dies in between.
    Volatile,
    /// The change must survive the death of the process, by SIGKILL for example. The operating system has the change
    /// when the call returns, and the disk has the change some 20 ms later. The change is lost if the machine loses
    /// power in between.
    ProcessCrash,
    /// The change must survive a loss of power. The change is on the disk when the call returns. Callers that wait at
    /// the same time share one write.
    #[default]
    PowerLoss,
}

/// Decides the fate of a new timer if another timer already has its key.
///
/// ```
/// use tourbillon_durable::Spec;
/// use tourbillon_durable::store::IfPresent;
///
/// // A session that is used again has its end later: the old timer goes.
/// let end = Spec::new(Vec::<u8>::new()).key("session 17").if_present(IfPresent::Replace);
/// # let _ = end;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfPresent {
    /// The store refuses the new timer.
    #[default]
    Reject,
    /// The old timer stays, even during its delivery, and the store drops the new timer. The outcome contains the old
    /// timer's phase.
    Keep,
    /// The new timer replaces the old timer.
    Replace,
    /// The new timer replaces the old timer, and takes over the old timer's due moment.
    ReplaceKeepDue,
    /// The new timer replaces the old timer if the old timer has this id. Otherwise the store refuses the new timer. If
    /// no timer has the key, the outcome is [`Outcome::NotFound`].
    ReplaceOnly(TimerId),
}

/// An operation that changes the timers of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Op {
    /// Stores a new timer. If a timer with the new timer's id is stored, nothing changes ([`Outcome::Repeated`]). An id
    /// that the caller chose ([`has_chosen_id`](Timer::has_chosen_id)) counts as stored for another hour after the
    /// timer's end. So after a lost answer, an operation with a chosen id is safe to repeat. With any other id, a
    /// repetition may store the timer again after its end.
    Place(Box<Timer>, IfPresent),
    /// Withdraws the timer at an address. If an id is given, the timer at the address must have the id. A dead timer is
    /// dropped.
    Cancel(Address, Option<TimerId>),
    /// Withdraws timers of a namespace that have a label, up to a limit. Dead timers are withdrawn, too.
    CancelLabelled {
        /// The namespace of the timers to withdraw.
        namespace: Box<str>,
        /// The label that each withdrawn timer has.
        label: Box<str>,
        /// The greatest number of timers that the operation withdraws.
        limit: u32,
    },
    /// Moves the due moment of a timer, unless the timer is being delivered. An occurrence of a series keeps its
    /// scheduled instant. So the later occurrences of the series do not move.
    Move(Address, UtcMillis),
    /// Stops the deliveries of a timer or of a series until [`Op::Resume`].
    Pause(Address),
    /// Makes a paused timer, or the timer of a paused series, pending again.
    Resume(Address),
    /// Ends a delivery that succeeded. The same transaction stores the next occurrence of a series.
    Ack(TimerId, Token),
    /// Ends a delivery that came too late. The same transaction stores the next occurrence of a series.
    Skip(TimerId, Token),
    /// Ends a delivery that failed, with the given failure.
    Fail(TimerId, Token, Failure),
    /// Ends a delivery, and makes the timer due again at the given moment.
    Snooze(TimerId, Token, UtcMillis),
    /// Ends a lease whose delivery has not begun. The timer is pending again.
    Release(TimerId, Token),
    /// Stores a timer again with a new state, after a claim has removed the timer. A claim removes a timer that is
    /// delivered at most once. A caller stores the timer again if the timer was not delivered, or if its handler has
    /// snoozed or parked the timer. If another timer has the timer's key by now, the timer is stored without the key.
    /// If a timer with the same id is stored, nothing changes.
    ///
    /// The token is the token of the claim. A store whose answers can be lost recognizes a repeated operation by the
    /// token, and stores nothing twice. Such a store answers [`Outcome::Repeated`]. If the store cannot tell any more,
    /// the answer is [`Refusal::Stale`].
    Return(Box<Timer>, Token),
    /// Ends a lease and parks the timer for a reason, a limit of the user's for example.
    Park(TimerId, Token, Box<str>),
    /// Makes timers pending again that are parked for a reason. The number is the greatest number of unparked timers.
    /// An occurrence of a paused series becomes paused instead, and does not count. Unparking the reason [`PAUSED`]
    /// resumes the timers.
    Unpark(Box<str>, u32),
    /// Makes a dead timer due, so that it is delivered again.
    Replay(TimerId),
    /// Makes a timer due now. A dead timer is replayed, and a parked timer is pending again.
    Fire(Address),
}

/// The effect of an [`Op`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The new timer is stored.
    Created(TimerId),
    /// An earlier call has stored a timer with the same id.
    Repeated(TimerId),
    /// The timer that has the key stays. The new timer is not stored.
    Kept {
        /// The id of the timer that keeps the key.
        id: TimerId,
        /// The phase of the timer that keeps the key. If the phase is [`Phase::Leased`], a delivery of that timer has
        /// begun. Its handler may have read data that were older than this call.
        was: Phase,
    },
    /// The new timer has replaced another timer.
    Replaced {
        /// The id of the new timer.
        new: TimerId,
        /// The id of the old timer.
        old: TimerId,
        /// The old timer's phase. If the phase is [`Phase::Leased`], a delivery of the old timer has begun and may
        /// still succeed.
        was: Phase,
    },
    /// Another timer has the key. The outcome hands the refused timer back.
    KeyExists {
        /// The id of the timer that has the key.
        holder: TimerId,
        /// The new timer that the store refused.
        refused: Box<Timer>,
    },
    /// The timer was withdrawn, and no delivery of the timer begins any more. The outcome hands the timer back.
    Cancelled(Box<Timer>),
    /// The timer was withdrawn after its delivery had begun. No further delivery follows.
    InFlight(TimerId),
    /// The timers with the label were withdrawn. Deliveries of some of the timers may have begun before.
    CancelledMany {
        /// The number of withdrawn timers, including those whose deliveries had begun.
        cancelled: u32,
        /// The number of withdrawn timers whose deliveries had begun.
        in_flight: u32,
        /// Whether timers with the label are left for a further call.
        more: bool,
    },
    /// The operation has changed the timer as the caller asked.
    Changed(TimerId),
    /// The delivery of the timer has ended.
    Ended {
        /// The id of the delivered timer.
        id: TimerId,
        /// The delivered timer's phase after the delivery: done, dead, pending again, parked, or withdrawn.
        phase: Phase,
        /// The id of the next occurrence of the series. `None` if no occurrence follows.
        next: Option<TimerId>,
        /// The number of instants of the series that were left out because they had already passed.
        skipped: u64,
    },
    /// The number of timers that the operation has made pending again. If the number is below the limit, no timer is
    /// parked for the reason any more.
    Unparked(u32),
    /// No timer is stored under the id or key. A claim removes a timer that is delivered at most once. So the delivery
    /// of such a timer may still begin after this outcome, until the lease of the claim is over.
    NotFound,
    /// The timer is in a state that does not permit the change.
    Refused(Refusal),
}

/// A holder of leases. Each start of a process is a separate holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The random number of this start of the process.
    pub incarnation: u64,
    /// The time from a claim to the end of its leases.
    pub lease: Duration,
}

/// The limits for the timers that one claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The greatest number of timers that the claim takes.
    pub timers: u32,
    /// The number of payload bytes after which the claim takes no further timer.
    pub bytes: u64,
}

/// A timer that a claim has leased, with the token that gives the right to deliver the timer.
#[derive(Clone, Debug, PartialEq)]
pub struct Leased {
    /// The timer, as the store keeps it with the lease. The store has removed a timer that is delivered at most once.
    pub timer: Timer,
    /// The token that the holder passes to end the delivery.
    pub token: Token,
}

/// The answer to a [`claim`](TimerStore::claim), which leases due timers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claimed {
    /// The store's time at the claim, by which the timers were due.
    pub now: UtcMillis,
    /// The leased timers, in the order of their due moments.
    pub leased: Vec<Leased>,
    /// The due moment of the first timer that is still pending. `None` if no timer is pending. After a claim that has
    /// reached its limit, the moment may have passed.
    pub next_due: Option<UtcMillis>,
    /// The moment from which the next [`claim_in_turn`](TimerStore::claim_in_turn) takes a timer. `None` if no such
    /// moment is known. The moment is later than `next_due` if the claim left due timers whose namespaces have used up
    /// their shares.
    pub next_claim: Option<UtcMillis>,
    /// The number of records that the claim could not read. The store sets such records aside, with their bytes.
    pub quarantined: u32,
    /// The instants of series that were left out because they had already passed.
    pub left_out: Vec<LeftOut>,
    /// The moment at which a reap should follow, because the first lease of another holder ends then. `None` unless the
    /// claim has taken over timers from holders that may be gone.
    pub next_reap: Option<UtcMillis>,
}

/// The instants of a series that the end of an occurrence has left out, because they had already passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The id of the occurrence that ended.
    pub id: TimerId,
    /// The key of the series. `None` for a series without a key.
    pub key: Option<Box<str>>,
    /// The number of instants of the series that were skipped when the occurrence ended.
    pub count: u64,
}

impl LeftOut {
    /// Returns the instants that the end of an occurrence has left out. `None` if no instants were left out.
    ///
    /// ```
    /// use tourbillon_durable::UtcMillis;
    /// use tourbillon_durable::state::Phase;
    /// use tourbillon_durable::store::{LeftOut, Outcome};
    /// use tourbillon_durable::timer::{Timer, TimerId};
    ///
    /// let timer = Timer::new(TimerId::fresh(), "mail", UtcMillis::ZERO);
    /// let ended = |skipped| Outcome::Ended { id: timer.id, phase: Phase::Done, next: None, skipped };
    /// assert_eq!(LeftOut::of(&timer, &ended(0)), None);
    /// assert_eq!(LeftOut::of(&timer, &ended(2)).map(|left_out| left_out.count), Some(2));
    /// ```
    #[must_use]
    pub fn of(timer: &Timer, outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Ended { skipped: count @ 1.., .. } => {
                Some(Self { id: timer.id, key: timer.key.clone(), count: *count })
            }
            _ => None,
        }
    }
}

/// The answer to a [`reap`](TimerStore::reap), which ends leases whose time is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reaped {
    /// The ids of the timers that the reap has made pending again.
    pub returned: Vec<TimerId>,
    /// The ids of the timers that the reap has made dead, because their policies permit no further delivery.
    pub dead: Vec<TimerId>,
    /// The number of timers that the reap has ended, because they had been withdrawn.
    pub withdrawn: u32,
    /// The moment at which the first remaining lease ends. `None` if no lease remains.
    pub next: Option<UtcMillis>,
    /// The instants of series that were left out because they had already passed.
    pub left_out: Vec<LeftOut>,
}

/// The numbers of stored timers. A store updates the numbers in each transaction that changes a timer, and never counts
/// by a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of stored timers by namespace and phase.
    pub by_namespace: BTreeMap<(Box<str>, Phase), u64>,
    /// The number of unreadable records that the store has set aside.
    pub quarantined: u64,
}

impl Counts {
    /// Returns the number of timers in the phase `phase`, in all namespaces together.
    ///
    /// ```
    /// use tourbillon_durable::state::Phase;
    /// use tourbillon_durable::store::Counts;
    ///
    /// let mut counts = Counts::default();
    /// counts.by_namespace.insert(("shop".into(), Phase::Pending), 2);
    /// counts.by_namespace.insert(("mail".into(), Phase::Pending), 3);
    /// assert_eq!((counts.of(Phase::Pending), counts.of(Phase::Dead)), (5, 0));
    /// ```
    #[must_use]
    pub fn of(&self, phase: Phase) -> u64 {
        let counts = self.by_namespace.iter().filter(|((_, other), _)| *other == phase);
        counts.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// A page of the reasons for which timers are parked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// The reasons, each with the number of timers that are parked for the reason and that this page counts.
    pub counts: Vec<(Box<str>, u64)>,
    /// The place at which the next page begins; `None` after the last page.
    pub next: Option<Cursor>,
}

/// Counts the work of a scrub from the opening of the store on. A scrub is a search for damage in all records and
/// indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrub {
    /// The number of entries that the scrub has checked: records, and the index entries by which timers are found.
    pub entries: u64,
    /// The number of times that the scrub has gone through the whole store.
    pub walks: u64,
    /// The number of damaged entries: unreadable records, entries without a timer, and timers without an entry.
    pub damaged: u64,
}

/// A store of durable timers.
///
/// All methods may be called from any thread at any time. A caller may repeat an operation whose answer was lost.
///
/// A read sees every change that was answered before the read. A read may also see a change whose caller still waits
/// for the durability. An unanswered change can be lost. A call of [`apply`](Self::apply) without operations makes
/// everything durable that earlier reads have seen.
pub trait TimerStore: Send + Sync + 'static {
    /// Returns the store's time, by which the store decides whether timers are due and leases have ended.
    fn now(&self) -> UtcMillis;

    /// Returns an id for a new timer with the given namespace and key. Each call returns a different id. By default,
    /// the method calls [`TimerId::fresh`]. A store of several parts may choose an id from which the timer's part
    /// follows.
    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        let _any_place = (namespace, key);
        TimerId::fresh()
    }

    /// Applies the operations in one transaction, in order, with one outcome for each operation.
    ///
    /// The answer comes once the changes have the given durability. All changes that were answered before have the
    /// durability by then, too. So a call without operations makes earlier changes durable.
    fn apply(&self, ops: Vec<Op>, durability: Durability) -> Answer<'_, Vec<Outcome>>;

    /// Leases timers that are due, the earliest due moments first. `by` and `claim` make up the token of the leases, so
    /// a claimant gives each of its claims a new number.
    ///
    /// The answer comes before the leases are durable, unless one of the timers is delivered at most once. Several
    /// claims may wait for their answers at the same time. The answers may come in another order than the claims.
    fn claim(&self, by: Claimant, claim: u64, limit: Limit) -> Answer<'_, Claimed>;

    /// Claims timers as [`claim`](Self::claim) does, but gives no namespace more than its share. The share is a part of
    /// a runtime's places for deliveries. Once a namespace has its share, the claim passes over its timers, and takes
    /// later timers of other namespaces. By default, a store ignores the shares and claims by the due moments alone.
    fn claim_in_turn(&self, by: Claimant, claim: u64, limit: Limit, shares: Shares) -> Answer<'_, Claimed> {
        let _has_no_turns = shares;
        let claimed = self.claim(by, claim, limit);
        Box::pin(async {
            let claimed = claimed.await?;
            Ok(Claimed { next_claim: claimed.next_due, ..claimed })
        })
    }

    /// Leases timers that are due and parked for a reason, the earliest due moments first. A store that several
    /// processes share looks in all its parts. The claim takes up to `wanted` timers. The claim takes more, up to
    /// `limit`, only if at least the same number of timers is left for other processes.
    ///
    /// As with [`claim`](Self::claim), the claim has a number, by which its leases can be [recovered](Self::recover).
    /// Returns `None` if the store cannot claim parked timers. Then the caller uses [`put_back`](Self::put_back)
    /// instead.
    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> Answer<'_, Option<Claimed>> {
        let _unused = (by, claim, reason, wanted, limit);
        Box::pin(async { Ok(None) })
    }

    /// Returns the timers that claim number `claim` has leased. The method is for a claimant that did not get the
    /// claim's answer.
    fn recover(&self, by: Claimant, claim: u64) -> Answer<'_, Vec<Leased>>;

    /// Extends leases: each lease lasts a whole lease time from now on. Returns the ids of the timers whose leases are
    /// lost. A lease is lost if another holder has the timer, or if the timer has ended.
    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> Answer<'_, Vec<TimerId>>;

    /// Ends at most `limit` leases whose time is over.
    fn reap(&self, limit: u32) -> Answer<'_, Reaped>;

    /// Returns the due moments and ids of pending timers, in the order of the due moments. The timers are due at `from`
    /// or later, and before `until`.
    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> Answer<'_, Vec<(UtcMillis, TimerId)>>;

    /// Returns the stored timer at an address. `None` if no timer has the address's id or key.
    fn get(&self, at: Address) -> Answer<'_, Option<Timer>>;

    /// Returns a page of the timers that match the filter. The store finds the page by an index, without reading
    /// earlier pages.
    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> Answer<'_, Page>;

    /// Returns the numbers of stored timers by namespace and phase.
    fn counts(&self) -> Answer<'_, Counts>;

    /// Returns the numbers of pending timers by the time until they are due.
    ///
    /// A store bounds the work of a call to a few milliseconds, however many timers are stored. If the work does not
    /// suffice for a span, the span's [`is_exact`](Span::is_exact) is false and its count is a lower bound.
    fn horizon(&self) -> Answer<'_, Horizon>;

    /// Returns the faults of the store's structure. Reads the whole store.
    ///
    /// A damaged record that was set aside leaves the index entries of its timer behind. Each remaining entry is a
    /// fault with the timer's id. A claim that meets the entry removes the entry. So does the next operation by the
    /// entry's key or label.
    fn check(&self) -> Answer<'_, Vec<Fault>>;

    /// Calls `each` for all stored timers as they were at one moment. Stops once `each` returns false.
    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> Answer<'a, ()>;

    /// Stores timers of a backup as they are, under their own ids. The mode for a key that exists ([`IfPresent`]) plays
    /// no part. Leased timers become pending, or paused if their series is paused. A timer that was withdrawn while it
    /// was leased is left out. If a stored timer has the id or key of a timer of the backup, the import fails and
    /// changes nothing.
    fn import(&self, timers: Vec<Timer>) -> Answer<'_, ()>;

    /// Registers `wake`. The store calls `wake` when a timer may be due earlier than the last claim's answer said. The
    /// store also calls `wake` after a step of its clock. Each call can come from any thread. `wake` must not block.
    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Returns the reason for which the store now refuses operations that store new timers. The disk may be nearly
    /// full, for example. Other operations go on. `None` if the store refuses nothing.
    fn refuses_new(&self) -> Option<StoreError> {
        None
    }

    /// Gives up this process's part of a store that several processes share. Without a call of `leave`, the other
    /// processes must wait until the ownership of the part runs out. Leases stay as they are. A runtime calls `leave`
    /// at its end. A later claim makes the process take part again.
    fn leave(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns whether the operations of one [`apply`](Self::apply) are one transaction. If not, each operation is a
    /// transaction of its own. After an error, any of the operations may then have had its effect.
    fn is_transactional(&self) -> bool {
        true
    }

    /// Returns the number of parts of the store. Each part confirms ends of deliveries by itself.
    ///
    /// A runtime has at most one batch of ends under way to each part. The runtime goes on claiming while the batch is
    /// under way. So a part that does not answer does not delay the other parts. If the number is 0, as in most stores,
    /// a runtime claims only once all ends have an answer. The number does not change.
    fn parts(&self) -> u32 {
        0
    }

    /// Returns the number of the part to which a runtime reports the end of a timer's delivery. The number is below
    /// [`parts`](Self::parts). The caller asks only about timers that this process has claimed. The method must not
    /// wait.
    fn part_of(&self, _: TimerId) -> u32 {
        0
    }

    /// Returns a page of the reasons for which timers are parked. In a store that several processes share, only the
    /// timers of this process's part count.
    ///
    /// `limit` bounds the work of a page. Several pages may contain the same reason, with other timers in each page.
    /// Where possible, the cost of all pages depends on the number of reasons, not on the number of timers.
    fn reasons(&self, after: Option<Cursor>, limit: u32) -> Answer<'_, Reasons> {
        Box::pin(async move {
            let filter = Filter { phase: Some(Phase::Parked), ..Filter::default() };
            let page = self.list(filter, after, limit).await?;
            let mut by_reason = BTreeMap::<Box<str>, u64>::new();
            for timer in page.timers {
                if let State::Parked(reason) = timer.state {
                    *by_reason.entry(reason).or_default() += 1;
                }
            }
            Ok(Reasons { counts: by_reason.into_iter().collect(), next: page.next })
        })
    }

    /// Makes timers pending again that are parked for a reason, up to `limit`. Only timers that this process would
    /// claim count, while [`Op::Unpark`] is for the timers of all processes. Returns the number of unparked timers.
    fn put_back(&self, reason: Box<str>, limit: u32) -> Answer<'_, u32> {
        Box::pin(async move {
            let outcomes = self.apply(vec![Op::Unpark(reason, limit)], Durability::Volatile).await?;
            let found = |outcome: &Outcome| if let Outcome::Unparked(found) = outcome { *found } else { 0 };
            Ok(outcomes.iter().map(found).sum())
        })
    }

    /// Returns the counts of the scrub, the background search for damage; `None` if the store has no scrub.
    fn scrub(&self) -> Option<Scrub> {
        None
    }

    /// Returns the processes that share the store; `None` if a single process uses the store.
    fn nodes(&self) -> Answer<'_, Option<Nodes>> {
        Box::pin(async { Ok(None) })
    }
}
