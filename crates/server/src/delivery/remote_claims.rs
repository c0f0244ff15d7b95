//! Ends and prolongs claims (receivers' holds on fetched timers) for receivers that call a node other than the node
//! that handed the timer over.
//!
//! The name of such a claim contains the timer's id and the token of its lease, so any node can end the delivery in the
//! store. The node with the lease notices the end when it next renews the lease. A renewal of the claim is stored in a
//! document that all nodes share. The node with the lease reads that document before it lets the claim expire.
//!
//! Each namespace has a document of its own, with a limited number of renewals. A renewal stays in the document until
//! the moment to which it prolongs the claim, even if the claim ends earlier. So the clients of a namespace can use up
//! only the renewals of their own namespace. The document is removed with its namespace.
//!
//! A process makes the renewals of a namespace one after the other, because only one of several simultaneous writes of
//! a document succeeds. So a write fails only if another node writes at the same time. A renewal does not wait for
//! long: while the store does not answer, the first renewal waits for the store, and the others fail.

use super::pull_queues::ClaimVerdict;
use super::retry_pause::RetryPause;
use crate::convert::unavailable;
use crate::state::ClusterStore;
use crate::work::{LONGEST_CLAIM, PULL, StoredPull, read};
use core::fmt;
use core::hash::{Hash as _, Hasher as _};
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::io;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use tourbillon_api::{Moment, Problem, ProblemKind};
use tourbillon_durable::state::{Failure, Phase, State, Token};
use tourbillon_durable::store::{Durability, Op, Outcome, StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Delivery, UtcMillis, Verdict};

/// The greatest number of renewals in the document of a namespace. Each renewal reads and writes the whole document,
/// so the number bounds the work that a namespace can cause with a renewal.
const MOST_RENEWALS: usize = 2_000;
/// The greatest number of attempts to write a renewed claim into the document of its namespace. An attempt fails if
/// another node changes the document at the same time.
const TURNS: usize = 64;
/// The number of locks that keep renewals of one namespace apart. The hash of the namespace chooses its lock.
const LOCKS: usize = 64;
/// The longest time for which a renewal waits for earlier renewals in its process.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The longest time for which a request to end a claim waits for an open transaction of another program on the timer.
const HELD: Duration = Duration::from_secs(8);
/// The pause between two attempts to end a claim while another program's transaction holds the timer.
const HELD_PAUSE: Duration = Duration::from_millis(50);
/// The greatest length of an error that the store keeps with a timer, in bytes.
const LONGEST_ERROR: usize = 500;

/// Ends and prolongs claims that are open on any node.
#[derive(Clone)]
pub(crate) struct RemoteClaims {
    store: Arc<dyn ClusterStore>,
    retry_pause: RetryPause,
    /// Locked while this process renews a claim. The hash of the claim's namespace chooses the lock, so a namespace
    /// with many renewals delays few other namespaces.
    turns: Arc<[Mutex<()>; LOCKS]>,
}

impl fmt::Debug for RemoteClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteClaims").finish_non_exhaustive()
    }
}

/// The parts of a claim's name that a node needs in order to end the claim. Any node can read them from the name.
struct ClaimName {
    id: TimerId,
    token: Token,
    /// The moment at which the receiver got the timer.
    begun: UtcMillis,
}

/// The lengths of the parts of a claim's name, in hexadecimal digits: a random number, the timer's id, the two numbers
/// of the lease's token, and the moment at which the receiver got the timer.
const PARTS: [usize; 5] = [32, 32, 16, 16, 16];

impl ClaimName {
    /// Writes the name of a claim. `random` is a random number, which makes the name impossible to guess.
    fn write(&self, random: u128) -> String {
        let (lease, begun) = (self.lease(), self.begun.as_millis());
        format!("{random:032x}{lease}{begun:016x}")
    }

    fn read(claim: &str) -> Option<Self> {
        // `split_at` would panic inside of a character, and `from_str_radix` would accept a sign. So only hexadecimal
        // digits may pass.
        if claim.len() != PARTS.iter().sum::<usize>() || !claim.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let (_random, rest) = claim.split_at(PARTS[0]);
        let (id, rest) = rest.split_at(PARTS[1]);
        let (incarnation, rest) = rest.split_at(PARTS[2]);
        let (number, begun) = rest.split_at(PARTS[3]);
        let short = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self {
            id: TimerId::from_u128(u128::from_str_radix(id, 16).ok()?),
            token: Token { incarnation: short(incarnation)?, claim: short(number)? },
            begun: UtcMillis::from_millis(short(begun)?),
        })
    }

    /// Returns the key of the claim's entry in the document of its namespace: the timer's id and the token of its
    /// lease. The rest of the name is left out, because clients can make it up. So a lease has one entry, however many
    /// names a client renews.
    fn lease(&self) -> String {
        let (id, Token { incarnation, claim }) = (self.id.as_u128(), self.token);
        format!("{id:032x}{incarnation:016x}{claim:016x}")
    }

    fn ended() -> Problem {
        Problem::new(ProblemKind::ClaimEnded, "it was acknowledged or refused, or its time is over")
    }
}

/// Returns the name of the shared document that maps the leases of a namespace's renewed claims ([`ClaimName::lease`])
/// to the moments at which the claims expire.
fn document_of(namespace: &str) -> String {
    format!("renewals/{namespace}")
}

/// Cuts the error of a delivery to [`LONGEST_ERROR`] bytes.
fn shortened(error: &str) -> Box<str> {
    let end = (0..=error.len().min(LONGEST_ERROR)).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    error[..end].into()
}

fn op_of(name: &ClaimName, verdict: &Verdict) -> Option<Op> {
    // The runtime cuts the errors of its handlers. This error does not pass through the runtime, so it is cut here.
    let failure = |error: &str, retry_after, is_final| {
        let failure = Failure { error: shortened(error), retry_after, is_final };
        Op::Fail(name.id, name.token, failure)
    };
    match verdict {
        Verdict::Done => Some(Op::Ack(name.id, name.token)),
        Verdict::Retry { error, after } => Some(failure(error, *after, false)),
        Verdict::Dead(error) => Some(failure(error, None, true)),
        Verdict::Snooze(moment) => Some(Op::Snooze(name.id, name.token, *moment)),
        _ => None,
    }
}

impl RemoteClaims {
    pub(crate) fn new(store: Arc<dyn ClusterStore>, retry_pause: RetryPause) -> Self {
        Self { store, retry_pause, turns: Arc::new(core::array::from_fn(|_| Mutex::new(()))) }
    }

    /// Makes the name of a claim from a random number, the timer's id and the timer's lease. Returns `None` if the
    /// timer is delivered at most once: the store has such a timer no longer, so other nodes cannot end its delivery.
    pub(super) fn name(&self, random: u128, delivery: &Delivery) -> Option<String> {
        let name = ClaimName { id: delivery.id, token: delivery.token, begun: self.store.now() };
        (!delivery.is_once()).then(|| name.write(random))
    }

    /// Returns the verdict on the delivery of a claim, for the end that the receiver asks for.
    pub(super) fn verdict(&self, asked: ClaimVerdict) -> Verdict {
        asked.verdict(self.store.now(), self.retry_pause)
    }

    /// Reads the timer of a claim that may be open on any node. Fails if the claim is not open.
    async fn open(&self, namespace: &str, name: &ClaimName) -> Result<Timer, Problem> {
        let timer = self.store.get(name.id.into()).await.map_err(|error| unavailable(&error))?;
        // A client can make up a name, so the name alone does not show that the claim is open in this namespace.
        let is_open = |timer: &Timer| {
            *timer.namespace == *namespace
                && *timer.kind == *PULL
                && matches!(timer.state, State::Leased(lease) if lease.token == name.token)
        };
        timer.filter(is_open).ok_or_else(ClaimName::ended)
    }

    /// Ends the delivery of a claimed timer, even if another node handed the timer to the receiver. The call writes the
    /// end into the shared store. Returns the timer as it was before the end, and its phase after the end.
    pub(crate) async fn end(
        &self,
        namespace: &str,
        claim: &str,
        verdict: &Verdict,
    ) -> Result<(Timer, Phase), Problem> {
        let name = ClaimName::read(claim).ok_or_else(ClaimName::ended)?;
        let timer = self.open(namespace, &name).await?;
        let verdict = self.retry_pause.with(verdict.clone(), timer.next_pause());
        let op = op_of(&name, &verdict).ok_or_else(ClaimName::ended)?;
        let begun = Instant::now();
        loop {
            let outcomes = self.store.apply(vec![op.clone()], Durability::PowerLoss).await;
            match outcomes.map_err(|error| unavailable(&error))?.first() {
                Some(Outcome::Ended { phase, .. }) => return Ok((timer, *phase)),
                // The transaction may also have withdrawn the timer. Its end decides that.
                Some(Outcome::Held) if begun.elapsed() < HELD => tokio::time::sleep(HELD_PAUSE).await,
                Some(Outcome::Held) => {
                    let message = "the claim is open, and its end was not stored";
                    return Err(unavailable(&StoreError::new(StoreErrorKind::Held, message)));
                }
                _ => return Err(ClaimName::ended()),
            }
        }
    }

    /// Checks that a claim of this node was not ended at another node. A claim of a timer that is delivered at most
    /// once passes, because no other node can end it. Fails if the claim has ended, or if the store does not answer.
    pub(crate) async fn check(&self, namespace: &str, claim: &str) -> Result<(), Problem> {
        match ClaimName::read(claim) {
            Some(name) => self.open(namespace, &name).await.map(|_timer| ()),
            None => Ok(()),
        }
    }

    /// Prolongs a claim that may be open on any node. Returns the moment at which the claim expires.
    pub(crate) async fn renew(&self, namespace: &str, claim: &str) -> Result<Moment, Problem> {
        let name = ClaimName::read(claim).ok_or_else(ClaimName::ended)?;
        // The claim may expire during the wait. So its timer is read afterwards.
        let _made_alone = self.turn(namespace).await?;
        let timer = self.open(namespace, &name).await?;
        let pull: StoredPull =
            read(&timer.payload.0).map_err(|reason| Problem::new(ProblemKind::Internal, reason))?;
        let timeout = Duration::from_millis(pull.timeout_ms.into());
        let until = (self.store.now() + timeout).min(name.begun + LONGEST_CLAIM);
        if until <= self.store.now() {
            return Err(ClaimName::ended());
        }
        let until = self.note(namespace, name.lease(), until).await?;
        // If the store took longer than the claim lasts, the node with the lease has not found the renewal in time.
        if until <= self.store.now() {
            return Err(ClaimName::ended());
        }
        Ok(until.into())
    }

    /// Locks the document of the namespace's renewals against other renewals in this process. Fails after
    /// [`LONGEST_WAIT`], because the store may not answer the renewal that has the lock.
    async fn turn(&self, namespace: &str) -> Result<MutexGuard<'_, ()>, Problem> {
        let mut hasher = DefaultHasher::new();
        namespace.hash(&mut hasher);
        let lock = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        tokio::time::timeout(LONGEST_WAIT, self.turns[lock].lock()).await.map_err(|_| {
            let detail = "earlier renewals have not got an answer of the store";
            Problem::new(ProblemKind::StoreUnavailable, detail).with_retry_after_ms(1_000)
        })
    }

    /// Writes into the shared document of the namespace that the claim with this lease expires at `until`, or at a
    /// later moment that the document already has. Removes expired claims from the document. Returns the moment at
    /// which the claim expires. The caller must have the lock that [`turn`](Self::turn) returns.
    async fn note(&self, namespace: &str, lease: String, until: UtcMillis) -> Result<UtcMillis, Problem> {
        let document = document_of(namespace);
        let failed = |error: StoreError| unavailable(&error);
        for _ in 0..TURNS {
            let (version, mut renewals) = self.renewals(&document).await.map_err(failed)?;
            let now = self.store.now().as_millis();
            // No other code removes renewals. Without this line, the document would grow for ever.
            renewals.retain(|_, until| *until > now);
            if renewals.len() >= MOST_RENEWALS && !renewals.contains_key(&lease) {
                let detail =
                    "too many claims of the namespace were renewed at a node that has not handed them out";
                return Err(Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(1_000));
            }
            // A client can make up a moment at which the claim began, and two renewals may overlap. So an earlier
            // moment never takes the place of a later moment.
            let expiry = renewals.get(&lease).copied().unwrap_or(0).max(until.as_millis());
            renewals.insert(lease.clone(), expiry);
            let value =
                serde_json::to_vec(&renewals).map_err(|error| failed(io::Error::from(error).into()))?;
            let replaced = self.store.replace_document(&document, version, Some(&value)).await;
            if replaced.map_err(failed)?.is_some() {
                return Ok(UtcMillis::from_millis(expiry));
            }
        }
        Err(failed(io::Error::other(format!("other nodes noted renewals during {TURNS} attempts")).into()))
    }

    /// Returns the version of the document with the renewals of a namespace, or `None` if it cannot be read or is not
    /// there.
    pub(super) async fn version(&self, namespace: &str) -> Option<u64> {
        Some(self.store.document(&document_of(namespace)).await.ok()??.version)
    }

    /// Removes the document with the renewals of a namespace that was removed, if it still has the version `version`.
    /// If the store does not answer, the document stays until a claim is renewed in a namespace of the same name.
    pub(super) async fn forget(&self, namespace: &str, version: u64) {
        // If another node has noted a renewal in the meantime, the document stays.
        let _is_removed = self.store.replace_document(&document_of(namespace), version, None).await;
    }

    async fn renewals(&self, document: &str) -> Result<(u64, BTreeMap<String, u64>), StoreError> {
        match self.store.document(document).await? {
            Some(note) => {
                let damaged = |error| StoreError::caused_by(StoreErrorKind::Corrupt, error);
                Ok((note.version, serde_json::from_slice(&note.value).map_err(damaged)?))
            }
            None => Ok((0, BTreeMap::new())),
        }
    }

    /// Returns the remaining time of a claim of this node that the receiver has renewed at another node. Returns `None`
    /// if there is no such renewal or no time is left. The claim then expires, and the timer is delivered again.
    ///
    /// # Errors
    ///
    /// Fails if the store does not answer, or if the renewals cannot be read. In both cases the store may have a
    /// renewal. So after a [transient](StoreError::is_transient) error, the claim must not expire, and the caller must
    /// ask again.
    pub(super) async fn rest(&self, namespace: &str, claim: &str) -> Result<Option<Duration>, StoreError> {
        let Some(name) = ClaimName::read(claim) else { return Ok(None) };
        let (_, renewals) = self.renewals(&document_of(namespace)).await?;
        let until = renewals.get(&name.lease()).copied().map(UtcMillis::from_millis);
        Ok(until.map(|until| until - self.store.now()).filter(|rest| !rest.is_zero()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::double::{self, Documents, Looks, Node};
    use crate::work::{self, Head};
    use core::sync::atomic::Ordering;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tourbillon_durable::store::{Claimant, Hooked, IfPresent, Leased, Limit, TimerStore as _};
    use tourbillon_durable::timer::Payload;

    /// Stores a timer and leases it. Returns the timer's node, the node's claims, and the name of a claim on the timer.
    async fn claimed(timeout_ms: u32) -> (Arc<Hooked<Node>>, RemoteClaims, String) {
        let node = double::node(&Documents::default(), 1);
        let pull = StoredPull { queue: "q".into(), body: Vec::new(), timeout_ms };
        let payload = Payload(work::write(&pull, Head::default()).into());
        let timer =
            Timer { namespace: "n".into(), payload, ..Timer::new(TimerId::fresh(), PULL, node.now()) };
        let place = vec![Op::Place(Box::new(timer), IfPresent::Reject)];
        node.apply(place, Durability::Volatile).await.unwrap();
        let by = Claimant { incarnation: 1, lease: LONGEST_CLAIM };
        let claimed = node.claim(by, 1, Limit { timers: 1, bytes: 1 << 20 }, None).await.unwrap();
        let Leased { timer, token } = &claimed.leased[0];
        let name = ClaimName { id: timer.id, token: *token, begun: node.now() }.write(1);
        let claims = RemoteClaims::new(Arc::clone(&node) as _, RetryPause { least: Duration::ZERO });
        (node, claims, name)
    }

    /// Begins to renew a claim. The read of the renewals waits for the returned signal.
    async fn waiting(
        node: &Hooked<Node>,
        claims: &RemoteClaims,
        name: &str,
    ) -> (oneshot::Sender<()>, JoinHandle<Result<Moment, Problem>>) {
        let (signal, read) = oneshot::channel();
        node.hook().waits.lock().unwrap().push_back((Looks::Before, read));
        let (claims, name) = (claims.clone(), name.to_owned());
        let renewal = tokio::spawn(async move { claims.renew("n", &name).await });
        while !node.hook().waits.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        (signal, renewal)
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_does_not_wait_for_ever_for_a_renewal_without_an_answer() {
        let (node, claims, name) = claimed(60_000).await;
        let (signal, first) = waiting(&node, &claims, &name).await;
        let second = tokio::time::timeout(Duration::from_secs(60), claims.renew("n", &name)).await;
        assert_eq!(second.expect("an answer").unwrap_err().kind, ProblemKind::StoreUnavailable);
        signal.send(()).unwrap();
        assert!(first.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_renewal_gives_no_moment_that_has_passed() {
        let (node, claims, name) = claimed(200).await;
        let (signal, first) = waiting(&node, &claims, &name).await;
        let second = tokio::spawn({
            let (claims, name) = (claims.clone(), name.clone());
            async move { claims.renew("n", &name).await }
        });
        tokio::time::sleep(Duration::from_millis(400)).await;
        signal.send(()).unwrap();
        let ended = first.await.unwrap().unwrap_err();
        assert_eq!(ended.kind, ProblemKind::ClaimEnded, "its time was over before it was stored");
        let until = second.await.unwrap().unwrap();
        assert!(until.as_millis() > node.now().as_millis(), "it had to wait for the first renewal");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_waits_for_a_timer_that_is_held_and_does_not_take_the_claim_for_ended() {
        let (node, claims, name) = claimed(60_000).await;
        node.hook().held_ends.store(u32::MAX, Ordering::Relaxed);
        let problem = claims.end("n", &name, &Verdict::Done).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::StoreUnavailable, "{problem:?}");
        node.hook().held_ends.store(3, Ordering::Relaxed);
        let (_, phase) = claims.end("n", &name, &Verdict::Done).await.unwrap();
        assert_eq!((phase, node.hook().held_ends.load(Ordering::Relaxed)), (Phase::Done, 0));
        let problem = claims.end("n", &name, &Verdict::Done).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::ClaimEnded);
    }

    #[test]
    fn names_of_claims_that_are_none_are_refused() {
        let (id, token, begun) = (7_u128, (3_u64, 5_u64), 9_u64);
        let name = format!("{:032x}{id:032x}{:016x}{:016x}{begun:016x}", 1, token.0, token.1);
        let read = ClaimName::read(&name).unwrap();
        assert_eq!((read.id, read.begun.as_millis()), (TimerId::from_u128(7), 9));
        assert_eq!(read.token, Token { incarnation: 3, claim: 5 });
        let signed = name.replacen('0', "+", 33).replacen('+', "0", 32);
        for wrong in
            ["", "0", &name[1..], &format!("{name}0"), &name.replace('7', "g"), &signed, &"é".repeat(56)]
        {
            assert!(ClaimName::read(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn errors_are_cut_at_a_character() {
        assert_eq!(&*shortened("short"), "short");
        let long = shortened(&"é".repeat(400));
        assert_eq!(long.len(), LONGEST_ERROR);
    }
}
