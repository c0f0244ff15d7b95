//! Transactions. A transaction reads the timers of an operation, computes the effect in this process, and commits the
//! effect if the timers have not changed since.

use super::commit::{Commit, Doubt, Known, Refused, Reservations, Scope, Sent};
use super::held::Held;
use super::redirects::{Outside, announce_all, displace, drop_redirect, release, reserve_all};
use crate::deployment::{Deployment, Topology};
use crate::layout::{Found, is_leased};
use crate::node::Node;
use crate::read::{find, find_id, find_key, look};
use crate::script::{Scripts, Values, damaged};
use futures_util::future::{join, join_all};
use std::sync::Arc;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::dry_run::{Changes, DryRun};
use tourbillon_durable::store::{StoreError, StoreErrorKind};
use tourbillon_durable::timer::{Address, TimerId};

/// The greatest number of attempts of an operation. An attempt fails if another client has changed the operation's
/// timers.
const TURNS: usize = 64;

/// The source of the timers that an operation changes.
pub(crate) enum Start {
    /// The operation creates a timer and reads none.
    New,
    /// The operation reads a stored timer first.
    At(Address),
    /// The operation changes a timer that this process has claimed. It reads the timer only if no copy from the claim
    /// is kept.
    Held(TimerId),
    /// The caller has read the timer already.
    Read(Box<Found>),
    /// The caller has read several timers already. In a cluster, the timers are in one shard.
    Several(Vec<Found>),
    /// The caller has read the timer already, and the timer's lease must be over by the server's time.
    Expired(Box<Found>),
}

/// Runs operations as transactions.
pub(crate) struct Transactions {
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) node: Arc<Node>,
    /// Copies of the timers that this process has claimed.
    pub(crate) held: Arc<Held>,
}

impl Transactions {
    /// Commits the changes that `run` computes, and returns the result of `run`. If the stored data have changed since
    /// they were read, reads them again and repeats `run`, at most [`TURNS`] times.
    pub(crate) async fn transact<R>(
        &self,
        start: Start,
        run: impl Fn(DryRun) -> Result<(R, Changes), StoreError>,
    ) -> Result<R, StoreError> {
        let mut reserved = Reservations::new();
        let result = self.attempt(start, run, &mut reserved).await;
        release(&self.deployment, reserved).await;
        result
    }

    async fn attempt<R>(
        &self,
        start: Start,
        run: impl Fn(DryRun) -> Result<(R, Changes), StoreError>,
        reserved: &mut Reservations,
    ) -> Result<R, StoreError> {
        let mut known = Known::default();
        let (mut cached, mut is_new) = (None, false);
        match start {
            Start::New => is_new = true,
            Start::At(at) => known.add(find(&self.deployment, &at).await?),
            Start::Held(id) => match self.held.get(id) {
                Some(found) => {
                    cached = Some(id);
                    known.add(Some(found));
                }
                None => known.add(find_id(&self.deployment, id).await?),
            },
            Start::Read(found) => known.add(Some(*found)),
            Start::Several(found) => found.into_iter().for_each(|found| known.add(Some(found))),
            Start::Expired(found) => {
                known.expired = Some(found.id());
                known.add(Some(*found));
            }
        }
        // The first attempt uses the estimate of the server's time, which may be ahead. Each later attempt uses the
        // time of the last refusal. Otherwise, a lease or a memory could be over by the estimate and not by the
        // script's check, and each attempt could fail at that check.
        let mut now = self.deployment.time.now();
        for turn in 0..TURNS {
            let mut draft = DryRun::new(now);
            for found in known.timers.values() {
                draft.know(&found.timer);
            }
            for (id, until) in &known.remembered {
                draft.know_remembered(*id, *until);
            }
            let (result, changes) = run(draft)?;
            if changes.timers.is_empty() {
                if let Some(id) = cached.take() {
                    // The kept copy may be old, and no commit compares it with the stored timer. So the stored timer is
                    // read.
                    self.held.let_go(id);
                    known = Known::default();
                    known.add(find_id(&self.deployment, id).await?);
                    continue;
                }
                let has_guesses =
                    !(changes.absent.is_empty() && changes.free.is_empty() && changes.forgotten.is_empty());
                // The dry run guesses that all data that it was not given are absent. The first read shows at a single
                // moment whether this is true. A guess and a later read may be from different moments, so a commit
                // checks both at once.
                if !has_guesses || !(is_new || turn > 0) {
                    return Ok(result);
                }
            }
            let (doubt, mut found) = match self.commit(&known, &changes, reserved).await? {
                Sent::Done => {
                    self.after(&known, &changes);
                    return Ok(result);
                }
                Sent::Refused(refused) => {
                    now = refused.now;
                    (refused.doubt, refused.found)
                }
            };
            if let Some(id) = cached.take() {
                // The kept copy differs from the stored timer, and the delivery may end without a commit.
                self.held.let_go(id);
            }
            self.resolve(&mut known, doubt, &mut found, reserved).await?;
            if turn > 8 {
                // Other clients keep changing the same timers first. They may be threads of this process, so this
                // thread lets them finish.
                std::thread::yield_now();
            }
        }
        // No attempt has stored or ended a timer, so the kind of the error permits the caller to repeat the operation.
        let message = format!("others changed the same timers during {TURNS} attempts");
        Err(StoreError::new(StoreErrorKind::Io, message))
    }

    /// Updates this process's knowledge of timers after a successful commit.
    fn after(&self, known: &Known, changes: &Changes) {
        // After any change of a leased timer, the kept copy is old. Even a withdrawal changes the stored token.
        let before = changes.timers.iter().filter_map(|change| change.before.as_ref());
        before.filter(|timer| is_leased(timer)).for_each(|timer| self.held.let_go(timer.id));
        self.made_pending(known, changes).for_each(|(shard, due)| self.node.note(shard, due));
    }

    /// Reads again the data that failed a check, so that the next attempt of the operation uses the new data.
    async fn resolve(
        &self,
        known: &mut Known,
        doubt: Doubt,
        rest: &mut Values,
        reserved: &mut Reservations,
    ) -> Result<(), StoreError> {
        match doubt {
            Doubt::Timer(id) => {
                let was_read = known.timers.remove(&id).is_some();
                // A redirect that leads to a timer stays.
                reserved.remove(&id);
                let (found, redirect) = look(&self.deployment, id).await?;
                // A timer that was read before has ended since. The operation that ended it removes the redirect.
                if let (None, Some(redirect), false) = (&found, redirect, was_read) {
                    displace(&self.deployment, id, &redirect).await?;
                }
                known.add(found);
            }
            Doubt::Redirected(id, redirect) => {
                if displace(&self.deployment, id, &redirect).await? {
                    known.add(find_id(&self.deployment, id).await?);
                }
            }
            // The next attempt reserves again, and replaces the redirect like any redirect that leads nowhere.
            Doubt::Reserved(id) => drop(reserved.remove(&id)),
            Doubt::Key(key) => known.add(find_key(&self.deployment, &key).await?),
            Doubt::Lost(shard) => return Err(self.deployment.lost_shard(shard, rest)),
            Doubt::Remembered(id) => {
                let until = rest.maybe_number()?.unwrap_or_default();
                known.remembered.insert(id, UtcMillis::from_millis(until));
            }
        }
        Ok(())
    }

    /// Commits the changes of an operation if the data in `known` are unchanged on the server.
    async fn commit(
        &self,
        known: &Known,
        changes: &Changes,
        reserved: &mut Reservations,
    ) -> Result<Sent, StoreError> {
        match self.deployment.topology {
            Topology::OneServer => self.commit_in(Scope::All, known, changes).await,
            Topology::Cluster => self.commit_in_steps(known, changes, reserved).await,
        }
    }

    /// Commits the changes by one script. The script uses only the Redis keys that `scope` permits.
    async fn commit_in(
        &self,
        scope: Scope<'_>,
        known: &Known,
        changes: &Changes,
    ) -> Result<Sent, StoreError> {
        let mut commit = Commit::new(&self.deployment.layout, known, changes, scope);
        commit.expect_marks(known, changes, &self.deployment.id());
        self.add_messages(&mut commit, known, changes);
        self.send(commit).await
    }

    /// Commits the changes in a cluster, where a script can use only the keys of one shard.
    /// [`redirects`](super::redirects) describes the steps.
    async fn commit_in_steps(
        &self,
        known: &Known,
        changes: &Changes,
        reserved: &mut Reservations,
    ) -> Result<Sent, StoreError> {
        let deployment = &*self.deployment;
        // A commit without a home shard compares nothing and changes nothing.
        let Some(home) = Commit::home(&deployment.layout, known, changes) else { return Ok(Sent::Done) };
        let Outside { created, ended } = Outside::new(&deployment.layout, home, known, changes);
        let (refused, redirects) =
            join(reserve_all(deployment, home, &created, reserved), announce_all(deployment, &ended)).await;
        if let Some(refused) = refused? {
            return Ok(Sent::Refused(refused));
        }
        let redirects = redirects?;
        let sent =
            self.commit_in(Scope::Shard(home, reserved), known, changes).await.inspect_err(|error| {
                // A commit with an unknown outcome may have stored the timers to which these redirects lead. So may a
                // commit whose answer cannot be read (`Corrupt`). The caller must not release them.
                if matches!(error.kind(), StoreErrorKind::Unknown | StoreErrorKind::Corrupt) {
                    reserved.clear();
                }
            })?;
        if let Sent::Done = sent {
            // The other reservations are of timers that were not stored, as when a key was taken. The caller releases
            // these reservations.
            let stored = changes.timers.iter().filter_map(|change| change.after.as_ref());
            stored.for_each(|timer| drop(reserved.remove(&timer.id)));
            // The ended timers were stored in the home, so a redirect to another shard is not theirs.
            let redirects = redirects.into_iter().filter(|(_, redirect)| redirect.home() == Some(home));
            // The operation has taken effect, so a redirect that is left leads nowhere.
            let _left =
                join_all(redirects.map(|(id, redirect)| drop_redirect(deployment, id, redirect))).await;
        }
        Ok(sent)
    }

    /// Runs the script of a commit. The script makes the changes only if all checks hold.
    pub(crate) async fn send(&self, commit: Commit<'_>) -> Result<Sent, StoreError> {
        let is_growing = commit.is_growing;
        let (keys, arguments, doubts) = commit.into_parts();
        // A server with a full memory refuses the first script and runs the second, so that ends can free memory.
        let script = |scripts: &'static Scripts| match is_growing {
            true => &scripts.commit,
            false => &scripts.commit_kept,
        };
        let mut answered = self.deployment.run(script, keys, arguments).await?;
        if answered.rest.number()? == 1 {
            return Ok(Sent::Done);
        }
        let doubt = answered.rest.index()?.and_then(|place| doubts.into_iter().nth(place));
        let doubt = doubt.ok_or_else(|| damaged("a commit failed at a check that it does not have"))?;
        Ok(Sent::Refused(Refused { now: answered.now, doubt, found: answered.rest }))
    }
}
