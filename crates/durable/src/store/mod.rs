//! Defines the interface of a store, independently of the database behind it.
//!
//! A store keeps timers and decides by its own clock which of them are due. It is *claim-based*: a claim leases a due
//! timer to a process for a limited time. A timer that is delivered at least once stays stored until that process
//! reports the end of the delivery. Callers change timers by [`Op`]s. Every store applies the transitions of
//! [`step`](crate::state::step), so an operation has the same effect in each store. The tests of the crate
//! `tourbillon-conformance` check this.

mod alarm;
mod document;
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
mod place;
mod redb;
mod room;
mod server_time;
mod shares;
mod tables;

pub use self::redb::{Part, RedbBuilder, RedbStore, StoreStats};
pub use crate::phase::PAUSED;
pub use alarm::{Alarm, Claiming};
pub use document::SharedDocument;
pub use error::{StoreError, StoreErrorKind};
pub use fault::Fault;
pub use filter::{Cursor, Filter, Page};
pub use hooked::{Call, Hook, Hooked};
pub use horizon::{Horizon, Span};
pub use memory::MemoryStore;
pub use nodes::{Node, Nodes, Shard};
pub use place::path_of_file;
pub use room::Room;
pub use server_time::ServerTime;
pub use shares::{Late, SHARE, Shares, free_for};

use crate::policy::Guarantee;
use crate::state::{Failure, Phase, Refusal, State, Token};
use crate::timer::{Address, Timer, TimerId};
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tourbillon_words::UtcMillis;

/// The future that a call to a store returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The worst failure that an acknowledged change must survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The change need not survive a failure. When the store confirms the change to the caller, the change is only in
    /// memory. The store writes the change to its file about 20 ms later. If the process dies before this write, the
    /// change is lost.
    Volatile,
    /// The change must survive the death of the process, for example by SIGKILL. When the store confirms the change to
    /// the caller, the operating system has the change. The change is on the disk about 20 ms later. If the machine
    /// loses power before that, the change is lost.
    ProcessCrash,
    /// The change must survive a loss of power. When the store confirms the change to the caller, the change is on the
    /// disk. Callers that wait at the same time share one write to the disk.
    #[default]
    PowerLoss,
}

/// Decides what happens to a new timer whose key another timer already has.
///
/// ```
/// use tourbillon_durable::Spec;
/// use tourbillon_durable::store::IfPresent;
///
/// // The user has used the session again, so the session ends later. The new timer replaces the timer of the old end.
/// let end = Spec::new(Vec::<u8>::new()).key("session 17").if_present(IfPresent::Replace);
/// # let _ = end;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfPresent {
    /// The store refuses the new timer.
    #[default]
    Reject,
    /// The old timer stays, even if it is being delivered, and the store drops the new timer. The outcome contains the
    /// old timer's phase.
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
    /// Stores a new timer. If the store already has a timer with this id, nothing changes, and the outcome is
    /// [`Outcome::Repeated`]. An id that the caller chose ([`has_chosen_id`](Timer::has_chosen_id)) counts as stored
    /// until an hour after the timer's end, so a caller can safely repeat the operation after a lost answer. With any
    /// other id, a repeated operation may store the timer again after its end. No other timer may ever get an id that
    /// was not chosen: a store may look for an old timer only where a timer with a chosen id would be.
    Place(Box<Timer>, IfPresent),
    /// Withdraws the timer at the address. If an id is given, and the timer at the address has another id, nothing
    /// changes, and the outcome is [`Outcome::NotFound`]. A dead timer is removed.
    Cancel(Address, Option<TimerId>),
    /// Withdraws timers of a namespace that have a label, up to a limit. Dead timers are withdrawn, too.
    CancelLabelled {
        /// The namespace of the timers to withdraw.
        namespace: Box<str>,
        /// The label that each withdrawn timer has.
        label: Box<str>,
        /// The greatest number of timers that the operation withdraws. A limit of 0 counts as 1. Otherwise a caller
        /// that repeats the operation until no timer is left would never finish.
        limit: u32,
    },
    /// Moves the due moment of a pending or parked timer. An occurrence of a series keeps its scheduled instant, so the
    /// later occurrences of the series do not move. A parked timer that is moved into the future becomes pending,
    /// unless it is paused.
    Move(Address, UtcMillis),
    /// Stops the deliveries of a timer or of a series until [`Op::Resume`]. A timer that is parked for another reason
    /// becomes paused, and loses that reason. A paused timer stays paused.
    Pause(Address),
    /// Makes a paused timer, or the timer of a paused series, pending again.
    Resume(Address),
    /// Ends a delivery that succeeded. If the timer belongs to a series, the same transaction stores the next
    /// occurrence. If the plan of the series is invalid, no occurrence can follow, and the delivered occurrence stays
    /// stored as a dead timer ([`DeathReason::Plan`](crate::state::DeathReason::Plan)). If the creation time of the
    /// occurrence is more than a second in the future, the clock was ahead then, and the series continues from the
    /// present time.
    Ack(TimerId, Token),
    /// Ends a lease without an answer of the handler. The timer is done, and a next occurrence is stored as for
    /// [`Ack`](Self::Ack). If the timer was withdrawn during the lease, it ends as withdrawn instead. A runtime uses
    /// this operation for a delivery that is too late, and to remove a timer that is delivered at most once when its
    /// delivery begins. A store that cannot make this operation durable for now, as [`Durability::PowerLoss`] demands,
    /// refuses it with [`Phase::Leased`]. The timer stays leased, and the caller may repeat the operation.
    Skip(TimerId, Token),
    /// Ends a delivery that failed, with the given failure.
    Fail(TimerId, Token, Failure),
    /// Ends a delivery, and makes the timer due again at the given moment.
    Snooze(TimerId, Token, UtcMillis),
    /// Ends a lease early, because the delivery has not begun or will not finish. The timer is pending again.
    Release(TimerId, Token),
    /// Ends a lease and parks the timer for a reason, for example a limit that the user has set. The timer is not
    /// delivered until it is unparked.
    Park(TimerId, Token, Box<str>),
    /// Unparks timers: the timers that are parked for the given reason become pending again, up to the given number of
    /// timers. An occurrence of a paused series becomes paused instead, and does not count towards the number. If the
    /// reason is [`PAUSED`], the operation resumes paused timers and their series, as [`Op::Resume`] does.
    Unpark(Box<str>, u32),
    /// Makes a dead timer pending and due now, with its counts of deliveries and failures reset.
    Replay(TimerId),
    /// Makes a timer due now. A dead timer is replayed ([`Replay`](Self::Replay)), and a parked timer becomes pending.
    Fire(Address),
}

impl Op {
    /// Returns the timer whose delivery the operation ends, and the token of the delivery's lease. `None` if the
    /// operation does not end a delivery.
    #[must_use]
    pub fn ended_delivery(&self) -> Option<(TimerId, Token)> {
        match self {
            Self::Ack(id, token)
            | Self::Skip(id, token)
            | Self::Fail(id, token, _)
            | Self::Snooze(id, token, _)
            | Self::Release(id, token)
            | Self::Park(id, token, _) => Some((*id, *token)),
            _ => None,
        }
    }
}

/// The effect of an [`Op`].
#[derive(Clone, Debug, PartialEq, Serialize)]
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
        /// begun. So the handler may have read the application's data before the caller last changed this data.
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
    /// Another timer has the key, so the store has refused the new timer.
    KeyExists {
        /// The id of the timer that has the key.
        holder: TimerId,
        /// The refused timer.
        refused: Box<Timer>,
    },
    /// The timer was withdrawn, and no further delivery of the timer begins. The outcome returns the timer.
    Cancelled(Box<Timer>),
    /// The timer was withdrawn after its delivery had begun. No further delivery follows.
    InFlight(TimerId),
    /// Timers with the label were withdrawn. Deliveries of some of them may already have begun.
    CancelledMany {
        /// The number of withdrawn timers, including those whose deliveries had begun.
        cancelled: u32,
        /// The number of withdrawn timers whose deliveries had begun.
        in_flight: u32,
        /// Whether further timers with the label are left, which another call can withdraw.
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
        /// The number of instants of the series that were skipped because they had already passed.
        skipped: u64,
    },
    /// The number of timers that an [`Op::Unpark`] has made pending again. If the number is below the limit of this
    /// operation, no timer is parked for the operation's reason any longer.
    Unparked(u32),
    /// No stored timer has the id or key. A timer that is delivered at most once is no longer stored once its delivery
    /// has begun.
    NotFound,
    /// The timer is in a state that does not permit the change.
    Refused(Refusal),
    /// An open transaction of another program has locked the timer or its key. The operation has had no effect, and the
    /// caller should repeat it. Only the end of a delivery whose lease has not expired has this outcome.
    Held,
}

/// A holder of leases. Each start of a process is a separate holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// A random number that identifies this start of the process.
    pub incarnation: u64,
    /// The length of a lease, from the claim or the last renewal to the end of the lease.
    pub lease: Duration,
}

/// The limits for the timers that one claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The greatest number of timers that the claim takes.
    pub timers: u32,
    /// The number of payload bytes after which the claim takes no further timer.
    pub bytes: u64,
}

/// A timer that a claim has leased, with the token that gives the right to deliver the timer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leased {
    /// The timer, as the store keeps it with the lease.
    pub timer: Timer,
    /// The token that the holder passes to end the delivery.
    pub token: Token,
}

/// The answer to a [`claim`](TimerStore::claim), which leases due timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Claimed {
    /// The store's time at the claim. The leased timers were due at this time.
    pub now: UtcMillis,
    /// The leased timers, in the order of their due moments.
    pub leased: Vec<Leased>,
    /// The due moment of the first timer that is still pending. `None` if no timer is pending. The moment has passed if
    /// the claim has left due timers, for example because it has reached its limit.
    pub next_due: Option<UtcMillis>,
    /// The earliest moment at which another claim with [`Shares`] (limits for each namespace) would take a timer.
    /// `None` if no such moment is known, or if this claim had no shares. The moment is later than `next_due` if the
    /// claim left due timers whose namespaces have used up their shares.
    pub next_claim: Option<UtcMillis>,
    /// The number of records that the claim could not read. The store sets such records aside, with their bytes.
    pub quarantined: u32,
    /// The moment at which the caller should call [`reap`](TimerStore::reap). Usually `None`. A store that several
    /// processes share sets the moment, for example after this process has taken over shards (parts of the timers) from
    /// a process that may be gone. The first lease in the shards of this process then ends at this moment.
    pub next_reap: Option<UtcMillis>,
}

/// The instants of a series that were skipped when an occurrence ended, because they had already passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The id of the occurrence that ended.
    pub id: TimerId,
    /// The key of the series. `None` for a series without a key.
    pub key: Option<Box<str>>,
    /// The number of skipped instants.
    pub count: u64,
}

impl LeftOut {
    /// Returns the instants that were skipped when the occurrence `timer` ended with the outcome `outcome`. `None` if
    /// no instants were skipped.
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

/// The answer to a [`reap`](TimerStore::reap), which ends expired leases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reaped {
    /// The ids of the timers that the call has made pending again. An occurrence of a paused series has become paused
    /// instead.
    pub returned: Vec<TimerId>,
    /// Those timers of `returned` that are delivered at most once. The store removes such a timer when its delivery
    /// begins, so no delivery of these timers had begun.
    #[serde(skip)]
    pub not_begun: Vec<TimerId>,
    /// The ids of the timers that the call has made dead, because their policies permit no further delivery.
    pub dead: Vec<TimerId>,
    /// The number of timers that the call has removed because they were withdrawn while they were leased. The store had
    /// not removed them at the withdrawal, because their deliveries might have been under way.
    pub withdrawn: u32,
    /// The moment at which the first remaining lease ends. `None` if no lease remains.
    pub next: Option<UtcMillis>,
    /// For each occurrence of a series that the call has made dead: the later instants of the series that were skipped
    /// because they had already passed. Occurrences without skipped instants are left out.
    pub left_out: Vec<LeftOut>,
}

impl Reaped {
    /// Adds a timer that is pending again.
    pub fn add_returned(&mut self, timer: &Timer) {
        self.returned.push(timer.id);
        if timer.policy.guarantee == Guarantee::AtMostOnce {
            self.not_begun.push(timer.id);
        }
    }

    /// Adds the timers of another answer. Leaves `next` as it is.
    pub fn add(&mut self, other: Self) {
        self.returned.extend(other.returned);
        self.not_begun.extend(other.not_begun);
        self.dead.extend(other.dead);
        self.withdrawn += other.withdrawn;
        self.left_out.extend(other.left_out);
    }
}

/// The answer to a [`renew`](TimerStore::renew), which renews leases. Leases of the call that are in neither list are
/// renewed. If the call has several leases of the same timer, from several claims, at most the last of them is renewed,
/// and the others are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Renewal {
    /// The lost leases. A lease is lost if another claim has leased the timer, or if the timer has ended.
    pub lost: Vec<(TimerId, Token)>,
    /// The leases whose state is unknown, because their servers have not answered, or because other transactions have
    /// locked them. Each of them may be renewed, may end at its old time, or may be lost.
    pub silent: Vec<(TimerId, Token)>,
}

impl Renewal {
    /// Makes the answer of a store that knows the result for every lease: the leases in `lost` are lost, and all others
    /// are renewed.
    #[must_use]
    pub fn without(lost: Vec<(TimerId, Token)>) -> Self {
        Self { lost, silent: Vec::new() }
    }
}

/// The numbers of stored timers. A store updates the numbers in each transaction that changes a timer, so a call of
/// [`counts`](TimerStore::counts) does not scan the timers.
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

/// A page of the reasons for which timers are parked. A parked timer is not delivered until it is unparked, for example
/// by [`Op::Unpark`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// The reasons on this page, each with a number of timers that are parked for this reason. A later page may contain
    /// the same reason again, with the number of further timers.
    pub counts: Vec<ReasonCount>,
    /// The place at which the next page begins; `None` after the last page.
    pub next: Option<Cursor>,
}

/// A number of timers that are parked for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCount {
    /// The reason for which the timers are parked.
    pub reason: Box<str>,
    /// The number of timers.
    pub timers: u64,
    /// The earliest due moment of these timers.
    pub first_due: UtcMillis,
}

impl ReasonCount {
    /// Makes the count of a single timer, which is due at `due` and parked for `reason`.
    pub(crate) fn single(reason: Box<str>, due: UtcMillis) -> Self {
        Self { reason, timers: 1, first_due: due }
    }

    /// Counts another timer, which is due at `due`.
    pub(crate) fn add(&mut self, due: UtcMillis) {
        (self.timers, self.first_due) = (self.timers + 1, self.first_due.min(due));
    }
}

/// Counts the work of the scrub since the store was opened. The scrub is a background task that searches all records
/// and indexes for damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrub {
    /// The number of records and index entries that the scrub has checked.
    pub entries: u64,
    /// The number of times that the scrub has checked the whole store.
    pub walks: u64,
    /// The number of damaged entries: unreadable records, index entries without a timer, and timers without an index
    /// entry.
    pub damaged: u64,
}

/// A store of durable timers.
///
/// All methods may be called from any thread at any time. A caller may repeat an operation whose answer was lost.
///
/// A read sees every change that was answered before the read. A read may also see a change that is not durable yet,
/// whose caller still waits for the answer. Such a change can be lost. After a call of [`apply`](Self::apply) without
/// operations, all changes that earlier reads have seen are durable, with the exception that `apply` names.
pub trait TimerStore: Send + Sync + 'static {
    /// Returns the store's time, by which the store decides whether timers are due and leases have ended. A store on a
    /// server returns an estimate, which may be ahead of the server's time.
    fn now(&self) -> UtcMillis;

    /// Returns a lower bound of the store's time. A lease lasts at least until this bound plus the length of the lease,
    /// if the caller reads the bound before it asks for the lease. By default, the bound is [`now`](Self::now).
    fn least_now(&self) -> UtcMillis {
        self.now()
    }

    /// Returns an id for a new timer with the given namespace and key. Each call returns a different id. By default,
    /// the method calls [`TimerId::fresh`]. A store with several parts may choose an id that determines the timer's
    /// part.
    fn fresh_id(&self, namespace: &str, key: Option<&str>) -> TimerId {
        let _any_place = (namespace, key);
        TimerId::fresh()
    }

    /// Applies the operations in one transaction, in order, with one outcome for each operation.
    ///
    /// The call is answered once the changes have the given durability. At this time, all changes that were answered
    /// before the call have this durability, too. So a call without operations makes earlier changes durable. The
    /// exception is a store whose servers fail over. After a failover, the call says nothing about changes that the
    /// former primary answered with a lower durability.
    fn apply(&self, ops: Vec<Op>, durability: Durability) -> StoreFuture<'_, Vec<Outcome>>;

    /// Leases timers that are due, the earliest due moments first. `by` and `claim` make up the token of the leases, so
    /// a claimant gives each of its claims a new number.
    ///
    /// With `shares`, the claim divides the handlers between namespaces. A runtime delivers a limited number of timers
    /// at the same time, and each namespace has a share of this number ([`Shares`]). Once a namespace has its share,
    /// the claim skips the other timers of this namespace, and takes later timers of other namespaces. A store that
    /// cannot skip timers ignores the shares, and sets [`next_claim`](Claimed::next_claim) to
    /// [`next_due`](Claimed::next_due).
    ///
    /// The answer comes before the leases are durable. Several claims may wait for their answers at the same time, and
    /// may be answered in any order.
    fn claim(
        &self,
        by: Claimant,
        claim: u64,
        limit: Limit,
        shares: Option<Shares>,
    ) -> StoreFuture<'_, Claimed>;

    /// Leases timers that are due and parked for a reason, the earliest due moments first. A store that several
    /// processes share searches all its shards, not only the shards of this process. Within `limit`, the claim takes at
    /// least `wanted` timers if enough timers are due. It may take more, up to half of the due timers, and leaves the
    /// other half to other processes.
    ///
    /// `claim` is the number of the claim, as for [`claim`](Self::claim) and [`recover`](Self::recover). If the store
    /// cannot claim parked timers, the answer is `None`, and the caller uses [`put_back`](Self::put_back) instead.
    fn claim_parked(
        &self,
        by: Claimant,
        claim: u64,
        reason: Box<str>,
        wanted: u32,
        limit: Limit,
    ) -> StoreFuture<'_, Option<Claimed>> {
        let _unused = (by, claim, reason, wanted, limit);
        Box::pin(async { Ok(None) })
    }

    /// Returns the leased timers whose leases come from the claim with the number `claim` of the claimant `by`. The
    /// method is for a claimant that did not get the claim's answer.
    fn recover(&self, by: Claimant, claim: u64) -> StoreFuture<'_, Vec<Leased>>;

    /// Sets the end of each lease to now plus [`Claimant::lease`]. Returns the leases that were not renewed.
    fn renew(&self, by: Claimant, leases: Vec<(TimerId, Token)>) -> StoreFuture<'_, Renewal>;

    /// Ends at most `limit` expired leases.
    fn reap(&self, limit: u32) -> StoreFuture<'_, Reaped>;

    /// Returns the leases that the store ended when it was opened, because their holders were gone. Only the first call
    /// returns them. The runtime calls the method once, before its first claim, and reports these leases like expired
    /// leases. A store that ends no leases at its opening returns an empty value.
    fn ended_at_opening(&self) -> Reaped {
        Reaped::default()
    }

    /// Returns the due moments and ids of at most `limit` pending timers, in the order of the due moments. The timers
    /// are due at `from` or later, and before `until`.
    fn upcoming(
        &self,
        from: UtcMillis,
        until: UtcMillis,
        limit: u32,
    ) -> StoreFuture<'_, Vec<(UtcMillis, TimerId)>>;

    /// Returns the stored timer at an address. `None` if no timer has the address's id or key.
    fn get(&self, at: Address) -> StoreFuture<'_, Option<Timer>>;

    /// Returns a page of at most `limit` timers that match the filter. A limit of 0 counts as 1. The order of the
    /// timers depends on the filter ([`Filter`]). The page begins at `cursor`, or with the first timer in this order if
    /// `cursor` is `None`. The store finds the page by an index, without reading earlier pages.
    fn list(&self, filter: Filter, cursor: Option<Cursor>, limit: u32) -> StoreFuture<'_, Page>;

    /// Returns the numbers of stored timers by namespace and phase.
    fn counts(&self) -> StoreFuture<'_, Counts>;

    /// Returns the numbers of pending timers by the time until they are due.
    ///
    /// A store bounds the work of a call to a few milliseconds, however many timers are stored. If the store reaches
    /// this bound before it has counted all timers of a span, the span's [`is_exact`](Span::is_exact) is false and its
    /// count is a lower bound.
    fn horizon(&self) -> StoreFuture<'_, Horizon>;

    /// Returns the faults of the store's structure. Reads the whole store.
    ///
    /// When a store sets a damaged record aside, the index entries of the record's timer stay in the indexes. Each of
    /// these entries is a fault with the timer's id. A claim, or an operation by the timer's key or label, removes such
    /// an entry when it reads the entry.
    fn check(&self) -> StoreFuture<'_, Vec<Fault>>;

    /// Calls `each` for all stored timers as they were at one moment. Stops once `each` returns false.
    fn export<'a>(&'a self, each: Box<dyn FnMut(&Timer) -> bool + Send + 'a>) -> StoreFuture<'a, ()>;

    /// Stores timers of a backup as they are, under their own ids. Leased timers become pending, or paused if their
    /// series is paused. A timer that was withdrawn while it was leased is not imported. If a stored timer has the id
    /// or the key of an imported timer, or if a text of an imported timer is too long, the import fails and changes
    /// nothing.
    fn import(&self, timers: Vec<Timer>) -> StoreFuture<'_, ()>;

    /// Registers `wake`. The store calls `wake` when a timer may be due earlier than the answer to the last claim said,
    /// and when the store's clock is set to another time. The calls may come from any thread. `wake` must not block.
    fn subscribe(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Returns the error with which the store now refuses operations that store new timers, for example because the
    /// disk is nearly full. `None` if the store accepts new timers.
    fn refuses_new(&self) -> Option<StoreError> {
        None
    }

    /// Returns the error of the store's last background work, for example of the summing of its counts. `None` if the
    /// work succeeded, or if the store has no background work. No other method returns this error.
    fn upkeep_fault(&self) -> Option<StoreError> {
        None
    }

    /// Releases the shards (parts of the timers) that this process owns in a shared store, so other processes can take
    /// them over at once. Without a call of `leave`, the other processes must wait until the ownership expires. Leases
    /// stay as they are. A runtime calls `leave` when it stops. After the next claim of this process, the process may
    /// own shards again.
    fn leave(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns whether the operations of one [`apply`](Self::apply) are one transaction: other processes see all of
    /// their effects, or none. An operation that is refused does not undo the others. If the store is not
    /// transactional, each operation is a separate transaction, and any of them may have taken effect when the call
    /// fails.
    fn is_transactional(&self) -> bool {
        true
    }

    /// Returns whether several processes may use the store at the same time. If so, a change of a schedule first waits
    /// for processes that are about to store occurrences by the old rule of the schedule. A store that cannot know
    /// returns true: the wait is short unless such a process has died.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns whether the list of all parked timers is in the order of their due moments. If not, the order is that of
    /// the reasons for which the timers are parked.
    fn lists_parked_by_due(&self) -> bool {
        false
    }

    /// Returns the number of parts of the store that confirm the results of deliveries independently of each other. For
    /// example, a store on several servers has several parts, and one part may fail while the other parts answer. The
    /// number never changes.
    ///
    /// A runtime reports the results of deliveries by operations such as [`Op::Ack`] and [`Op::Fail`]. It sends each
    /// part one batch of results at a time. While the runtime waits for the answer of a part, it continues to claim
    /// timers, and to send results to the other parts. If the number is 0, as in most stores, the runtime does not
    /// claim timers until the store has confirmed all results.
    fn parts(&self) -> u32 {
        0
    }

    /// Returns the number, counted from 0, of the part of the store ([`parts`](Self::parts)) to which the runtime
    /// reports the result of a timer's delivery. The caller asks only about timers that this process has claimed. The
    /// method must not block.
    fn part_of(&self, _: TimerId) -> u32 {
        0
    }

    /// Returns a page of the reasons for which timers are parked, each with the number of its timers and their earliest
    /// due moment. In a store that several processes share, the page counts only the timers of the shards that this
    /// process owns.
    ///
    /// `limit` bounds the work for a page. A limit of 0 counts as 1. Several pages may contain the same reason. Each of
    /// these pages counts different timers. Where possible, the cost of all pages depends on the number of reasons, not
    /// on the number of timers.
    fn reasons(&self, after: Option<Cursor>, limit: u32) -> StoreFuture<'_, Reasons> {
        Box::pin(async move {
            let filter = Filter { phase: Some(Phase::Parked), ..Filter::default() };
            let page = self.list(filter, after, limit).await?;
            let mut by_reason = BTreeMap::<Box<str>, ReasonCount>::new();
            for timer in page.timers {
                let State::Parked(reason) = timer.state else { continue };
                match by_reason.get_mut(&reason) {
                    Some(count) => count.add(timer.due),
                    None => drop(by_reason.insert(reason.clone(), ReasonCount::single(reason, timer.due))),
                }
            }
            Ok(Reasons { counts: by_reason.into_values().collect(), next: page.next })
        })
    }

    /// Unparks timers: at most `limit` of the timers that are parked for the given reason become pending again. Returns
    /// the number of these timers. In a store that several processes share, the method unparks only timers of the
    /// shards that this process owns, unlike [`Op::Unpark`].
    fn put_back(&self, reason: Box<str>, limit: u32) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            let outcomes = self.apply(vec![Op::Unpark(reason, limit)], Durability::Volatile).await?;
            let found = |outcome: &Outcome| if let Outcome::Unparked(found) = outcome { *found } else { 0 };
            Ok(outcomes.iter().map(found).sum())
        })
    }

    /// Returns the counts of the scrub, the store's background search for damage. `None` if the store has no scrub.
    fn scrub(&self) -> Option<Scrub> {
        None
    }

    /// Returns the processes that share the store. `None` if a single process uses the store.
    fn nodes(&self) -> StoreFuture<'_, Option<Nodes>> {
        Box::pin(async { Ok(None) })
    }
}
