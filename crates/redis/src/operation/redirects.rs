//! Redirects in a cluster: the steps of an operation outside the timer's shard.
//!
//! A cluster runs no script on two shards. A timer is stored in its *home* H, which has everything that an operation
//! changes, except for two things. These are in the shard N to which the timer's id belongs: the *redirect* from N to
//! H, and the memory of an id whose timer has ended. If N is H, a commit is one script, as on one server. Otherwise it
//! has steps, and each step is one script:
//!
//! | operation | step | shard | script |
//! |---|---|---|---|
//! | creation | *reserve*: check that the id is not stored in N, has no redirect and is not remembered; then write a redirect to H | N | `reserve` |
//! | | *commit*: check that the timer is not stored in H, the redirect is not void, and the reservation is not over; then store the timer | H | `commit` |
//! | end | *announce*: remember the id; return the redirect | N | `announce` |
//! | | *commit*: check that the timer is as it was read; then remove it | H | `commit` |
//! | | *drop*: remove the redirect if it is the announced redirect | N | `drop_redirect` |
//!
//! An operation may end a timer and store another timer of the same key, as a replacement does. It reserves and
//! announces at the same time, commits once, and drops afterwards. Only the commit stores or ends a timer; the steps
//! before and after it do not.
//!
//! **The mark.** A redirect is the number of H and a *mark*, a number that is drawn at random for each reservation. So
//! a redirect belongs to one creation, and only that creation can commit a timer to which the redirect leads. `reserve`
//! accepts only its own redirect, and refuses another redirect even to the same shard.
//!
//! **Invariants.** (1) A timer that is stored in H has a redirect in N that leads to H with the mark of its creation,
//! from before its commit until after its end. (2) So an id is stored in one shard at most: a second creation has to
//! replace the redirect, and nobody replaces the redirect of a stored timer.
//!
//! **A redirect that leads nowhere** is left by a creation or an end that stopped between two steps, or belongs to a
//! creation that is still under way. No client can distinguish these cases. If a creation of the same id meets such a
//! redirect, it first makes the redirect *void* in H: one script verifies that the timer is not stored in H, and puts
//! the mark among H's remembered ids for [`VOID`]. A commit fails if its mark is void. Afterwards the redirect is
//! removed if it is still the same. A reservation ends after [`RESERVED`] by the clock of N. So the reservation is over
//! before the void mark is forgotten, as long as the clocks of two primaries differ by less than an hour.
//!
//! **On one server** a redirect has no mark, and a commit changes a timer and its redirect together. So a redirect that
//! leads nowhere comes from a cluster or from damage. The script that looks for the timer removes such a redirect.
//!
//! **Interruptions.** If an operation stops after `reserve`, the redirect leads nowhere. If a creation stops after its
//! commit, all is done. If an end stops after `announce`, the id is remembered although its timer is stored. A creation
//! of the id returns `Repeated` for a stored timer as well as for a remembered id. The id is remembered no longer than
//! if the timer had ended when the operation began. If an end stops after its commit, the redirect leads nowhere. It
//! costs some 40 bytes until its id is created again, or until the thread of a node meets it twice (`upkeep/sweep.rs`).
//!
//! **Two clients and one id.** The effects of a client between any two steps of another client:
//!
//! - *Two creations of an id, with the same key or different keys.* The first `reserve` wins. The second client finds
//!   the redirect, and the timer to which it leads: `Repeated`. If the timer is not stored yet, the second client makes
//!   the redirect void. If this happens before the commit of the first client, that commit fails. The first client
//!   reserves again, and meets the second client's redirect. If the commit comes first, the script that makes the
//!   redirect void finds the timer. A client that makes a redirect void and stops leaves a void redirect, which the
//!   next creation makes void again.
//! - *Two clients remove the same void redirect.* The second client finds no redirect, or a redirect with another mark,
//!   and leaves it.
//! - *An end and a creation of the same id.* Before the end's commit, the creation finds the timer. Between the commit
//!   and the drop, the creation finds that the id is remembered. If the id of this timer is not remembered, the
//!   creation finds the redirect, makes the redirect void, replaces it and stores the timer. The drop then finds
//!   another mark.
//! - *Two ends.* Both ends announce. The second commit finds that the timer has changed. Its client computes the effect
//!   again and finds no timer. Both ends remember the id for equally long, except for the time between the two ends.
//! - *A reader.* It reads N and then H. If the timer is not in H, it has ended in between, or was not stored when N was
//!   read. So there was a moment without the timer.
//! - *A client that is stopped for long, or a request that arrives late.* A commit after [`RESERVED`] fails. A late
//!   drop finds another mark. A late `announce` remembers the id only until a moment that was computed before the
//!   delay. A late void keeps the mark void for longer.
//! - *A failover that loses writes.* If N has lost a redirect, its timer is still stored in H. The timer is delivered
//!   and found by its key, but not by its id. The check names it, and the next creation of the id writes the redirect
//!   again if it leads to the same shard. If H has lost a void mark, two creations of one id with two keys can both
//!   succeed. [`SyncPolicy::Wait`](crate::SyncPolicy::Wait) prevents both losses.

use super::commit::{Doubt, Known, Refused, Reservations, Reserved};
use crate::deployment::{Deployment, join_or_fail, millis};
use crate::layout::{Layout, Part, Redirect, Shard, id_bytes};
use crate::script::{Values, bytes, damaged, decimal};
use core::time::Duration;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;
use tourbillon_durable::store::dry_run::Changes;
use tourbillon_durable::timer::TimerId;

/// The time for which a creation reserves the id of its timer, by a [redirect](Redirect) to the shard that will store
/// the timer. If the creation commits after this time, the commit fails.
pub(crate) const RESERVED: Duration = Duration::from_secs(60);
/// The time for which a server remembers that a [redirect](Redirect) is void. The creation that wrote a void
/// redirect can no longer store its timer. The time is an hour longer than a reservation ([`RESERVED`]), because
/// the clocks of two primaries may differ by an hour.
const VOID: Duration = Duration::from_secs(3_660);

/// The part of an operation that concerns shards other than the *home*, the shard that stores the operation's timers.
/// Each id belongs to a shard, which may not be the home. Before its commit, the operation sends requests to the other
/// shards. The requests reserve the ids of new timers, and announce the timers that the operation ends.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) created: Vec<Creation>,
    pub(super) ended: Vec<Ending>,
}

/// An id that the operation must reserve, because it creates a timer with this id or assumes that no timer has this id.
/// The id belongs to a shard other than the home (the shard of the operation's timers).
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) id: TimerId,
    /// True if the id may be reserved although its shard still remembers it as the id of an ended timer.
    may_be_remembered: bool,
}

/// A timer that the operation ends. Its id belongs to a shard other than the home (the shard of the operation's
/// timers).
#[derive(Debug)]
pub(super) struct Ending {
    id: TimerId,
    /// The moment until which the id of the ended timer is remembered, or `None` if it is not remembered.
    remembered: Option<UtcMillis>,
}

impl Outside {
    pub(super) fn new(layout: &Layout, home: Shard, known: &Known, changes: &Changes) -> Self {
        let is_outside = |id: &TimerId| layout.shard_of_id(*id) != home;
        let mut remember: BTreeMap<TimerId, UtcMillis> = changes.remember.iter().copied().collect();
        let mut outside = Self::default();
        for change in &changes.timers {
            match (&change.before, &change.after) {
                (Some(before), None) if is_outside(&before.id) => {
                    let remembered = remember.remove(&before.id);
                    outside.ended.push(Ending { id: before.id, remembered });
                }
                _ => {}
            }
        }
        // If the operation only reports that the id is remembered, the id needs no reservation.
        let is_created = |id: &TimerId| {
            changes.timers.iter().any(|change| change.after.as_ref().is_some_and(|after| after.id == *id))
        };
        let absent = changes.absent.iter().copied().filter(is_outside);
        let absent = absent.filter(|id| is_created(id) || !known.remembered.contains_key(id));
        outside
            .created
            .extend(absent.map(|id| Creation { id, may_be_remembered: !changes.forgotten.contains(&id) }));
        let others = remember.into_iter().filter(|(id, _)| is_outside(id));
        outside.ended.extend(others.map(|(id, until)| Ending { id, remembered: Some(until) }));
        outside
    }
}

/// Reserves the ids of `created` that have no reservation yet, and adds the new reservations to `reserved`. If an id
/// cannot be reserved, returns the reason.
pub(super) async fn reserve_all(
    deployment: &Deployment,
    home: Shard,
    created: &[Creation],
    reserved: &mut Reservations,
) -> Result<Option<Refused>, StoreError> {
    // An earlier attempt may have had another home, to which its redirect leads. The present home needs another
    // redirect.
    let is_new = |creation: &&Creation| {
        reserved.get(&creation.id).is_none_or(|reserved| reserved.redirect.home() != Some(home))
    };
    let answers = created.iter().filter(is_new).map(async |creation| {
        let reservation = reserve(deployment, creation.id, home, creation.may_be_remembered).await?;
        Ok::<_, StoreError>((creation.id, reservation))
    });
    let mut refused = Ok(None);
    for answer in join_all(answers).await {
        // The loop goes on after a failure, so that the other reservations are known and can be released.
        match answer {
            Ok((id, Ok(reservation))) => drop(reserved.insert(id, reservation)),
            Ok((_, Err(refusal))) => refused = refused.and(Ok(Some(refusal))),
            Err(error) => refused = Err(error),
        }
    }
    refused
}

/// Reserves an id by a redirect to the shard `home`, which will store the timer. If the id is taken, returns the
/// refusal. `may_be_remembered` permits the id of an ended timer that the id's shard still remembers.
pub(super) async fn reserve(
    deployment: &Deployment,
    id: TimerId,
    home: Shard,
    may_be_remembered: bool,
) -> Result<Result<Reserved, Refused>, StoreError> {
    let redirect = Redirect::fresh(home);
    let parts = [Part::Records, Layout::redirects_of(id), Part::Recent];
    let keys = deployment.layout.keys(deployment.layout.shard_of_id(id), parts);
    let arguments =
        [id_bytes(id).to_vec(), redirect.clone().into_bytes(), decimal(u64::from(may_be_remembered))];
    let mut answered = deployment.run(|scripts| &scripts.reserve, keys, arguments).await?;
    let now = answered.now;
    if answered.rest.number()? == 1 {
        return Ok(Ok(Reserved { redirect, until: now + RESERVED }));
    }
    let reason = answered.rest.bytes()?;
    let found = answered.rest;
    let doubt = match &reason[..] {
        b"stored" => Doubt::Timer(id),
        b"remembered" => Doubt::Remembered(id),
        b"noted" => {
            let other = Values::peek(&found).and_then(|value| bytes(value.clone()).transpose());
            Doubt::Redirected(id, Redirect::of(other.transpose()?.unwrap_or_default()))
        }
        _ => return Err(damaged("a reservation failed for a reason that there is not")),
    };
    Ok(Err(Refused { now, doubt, found }))
}

/// Announces the timers in `ended` to the shards of their ids, before the timers end. Each of these shards remembers
/// the id until the moment [`Ending::remembered`]. Returns the [redirects](Redirect) of the ids. A redirect is an entry
/// in the shard of an id, and leads to the shard that stores the timer. The caller removes the redirects after it has
/// ended the timers.
pub(super) async fn announce_all(
    deployment: &Deployment,
    ended: &[Ending],
) -> Result<Vec<(TimerId, Redirect)>, StoreError> {
    let answers = ended.iter().map(async |Ending { id, remembered }| {
        let keys = deployment
            .layout
            .keys(deployment.layout.shard_of_id(*id), [Layout::redirects_of(*id), Part::Recent]);
        let until = remembered.map(|until| decimal(until.as_millis()));
        let is_needed = until.is_some();
        let arguments = [id_bytes(*id).to_vec(), until.unwrap_or_default()];
        match deployment.run(|scripts| &scripts.announce, keys, arguments).await {
            Ok(mut answered) => {
                Ok(bytes(answered.rest.next()?)?.map(|redirect| (*id, Redirect::of(redirect))))
            }
            // If the shard of the id does not answer, the end goes on. The redirect then stays behind. An end whose id
            // must be remembered fails instead: without the memory, a repeated creation would store the timer again.
            Err(error) if !is_needed && error.is_transient() => Ok(None),
            Err(error) => Err(error),
        }
    });
    Ok(join_or_fail(answers).await?.into_iter().flatten().collect())
}

/// Removes `redirect` from the shard to which the timer id `id` belongs. A [redirect](Redirect) leads to the shard that
/// stores the timer. If another creation of the same id has stored a redirect of its own there, that redirect stays.
pub(super) async fn drop_redirect(
    deployment: &Deployment,
    id: TimerId,
    redirect: Redirect,
) -> Result<(), StoreError> {
    let keys = deployment.layout.keys(deployment.layout.shard_of_id(id), [Layout::redirects_of(id)]);
    deployment
        .run(|scripts| &scripts.drop_redirect, keys, [id_bytes(id).to_vec(), redirect.into_bytes()])
        .await
        .map(drop)
}

/// Removes the [redirects](Redirect) that have reserved the ids of new timers, because the timers were not stored in
/// the end.
pub(crate) async fn release(deployment: &Deployment, reserved: Reservations) {
    let redirects =
        reserved.into_iter().map(|(id, reservation)| drop_redirect(deployment, id, reservation.redirect));
    // A redirect that stays behind leads nowhere, and does no harm.
    let _left = join_all(redirects).await;
}

/// Removes a redirect whose timer seems not to be stored. In a cluster, a creation writes the [redirect](Redirect)
/// first, and may still be about to store the timer. So this function first makes the redirect void: the shard to which
/// the redirect leads remembers that this creation must not store its timer any more. On one server, one script looks
/// for the timer and removes the redirect. If the timer is stored after all, changes nothing and returns `true`.
pub(crate) async fn displace(
    deployment: &Deployment,
    id: TimerId,
    redirect: &Redirect,
) -> Result<bool, StoreError> {
    let home = redirect.home().filter(|home| deployment.layout.shards().contains(home));
    let home = home.ok_or_else(|| damaged(&format!("the redirect of timer {id} leads to no shard")))?;
    let mut keys = deployment.layout.keys(home, [Part::Records, Part::Recent]);
    let void = redirect.void(id);
    // The script also looks for the id among the records, so it gets the id and the mark separately.
    let mark = void.get(16..).unwrap_or_default().to_vec();
    let mut arguments = vec![id_bytes(id).to_vec(), mark, decimal(millis(VOID))];
    let own = deployment.layout.shard_of_id(id);
    let is_one_step = deployment.topology.shares_script(own, home);
    if is_one_step {
        // On one server, redirects have no marks. Between two scripts, the timer could be stored again with an equal
        // redirect, which the second script would remove.
        keys.push(deployment.layout.key(own, Layout::redirects_of(id)));
        arguments.push(redirect.clone().into_bytes());
    }
    let mut answered = deployment.run(|scripts| &scripts.void_redirect, keys, arguments).await?;
    if answered.rest.number()? == 0 {
        return Ok(true);
    }
    if !is_one_step {
        // The redirect is removed after its mark is void. In the reverse order, the creation could still store its
        // timer, which would have no redirect.
        drop_redirect(deployment, id, redirect.clone()).await?;
    }
    Ok(false)
}
