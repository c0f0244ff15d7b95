//! Administers namespaces: sets their limits, makes their signing secrets, and removes them.

#[cfg(test)]
mod tests;

use crate::audit::{Audit, Deed};
use crate::clock::{moment_in, now};
use crate::convert::{is_name, unavailable};
use crate::delivery::Deliveries;
use crate::record::InFlight;
use crate::state::{
    DEFAULT, Map, Namespace, Namespaces, SigningSecret, Stop, VIEW, being_removed, canonical, mark, present,
    remove_marked, unmark,
};
use crate::task::{self, Tasks};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use core::time::Duration;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;
use tourbillon_api::{
    AuditAction, LimitsPatch, NamespaceLimits, NamespaceView, NewSecret, Problem, ProblemKind, SecretView,
};
use tourbillon_durable::Timers;
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::timer::TimerId;
use tracing::error;

/// The time for which the earlier secrets of a namespace still sign callbacks after a new secret was made.
const ROTATION: Duration = Duration::from_secs(86_400);
/// The greatest number of secrets with which a namespace signs its callbacks. Beyond this number, the oldest secret
/// stops signing.
const MOST_SECRETS: usize = 10;
/// The length of a secret that signs callbacks, in bytes.
const SECRET: usize = 32;
/// The longest time for which the removal of a namespace waits for running creations in the namespace.
const SETTLING: Duration = Duration::from_secs(5);
/// The time between two attempts to end a removal.
const REPEATED: Duration = Duration::from_secs(1);

fn failed(error: &io::Error) -> Problem {
    // The change may be stored all the same: a file is replaced before its folder is synced, and the answer of a shared
    // store may be lost.
    Problem::new(ProblemKind::StoreUnavailable, format!("the namespaces are not stored: {error}"))
        .with_unknown_outcome()
        .with_retry_after_ms(1_000)
}

fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT], Problem> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(ProblemKind::Internal, format!("no random number: {error}")))?;
    Ok(bytes)
}

fn random() -> Result<u64, Problem> {
    random_bytes().map(u64::from_ne_bytes)
}

/// A removal of a namespace that is under way. Keeps a second removal away until it is dropped, also by a panic.
struct Removing {
    removals: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Removing {
    /// Begins a removal. Returns `None` if a removal of the namespace is under way.
    fn begin(removals: &Arc<Mutex<BTreeSet<String>>>, name: &str) -> Option<Self> {
        let is_first = removals.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        is_first.then(|| Self { removals: Arc::clone(removals), name: name.to_owned() })
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        self.removals.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// A mark of a removal that must be removed from its namespace.
#[derive(Clone)]
struct LeftMark {
    /// The number of the removal.
    removal: u64,
    /// The namespace as it was before the mark. `None` if nobody knows whether the mark was stored.
    before: Option<Arc<Namespace>>,
}

/// Serves the requests that create, change, show and remove namespaces. Clones share the state.
#[derive(Clone)]
pub(crate) struct NamespaceAdmin {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) audit: Audit,
    pub(super) stop: Stop,
    pub(super) tasks: Tasks,
    /// The names of the namespaces that are being removed.
    pub(super) removals: Arc<Mutex<BTreeSet<String>>>,
}

impl NamespaceAdmin {
    /// Changes the map of namespaces with `change`, on a thread that may block. Then wakes the unparker, because the
    /// change may permit deliveries. The unparker is the task that makes parked timers due again. A parked timer stays
    /// in the store without a delivery, for example during a pause of its namespace.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut Map) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let namespaces = Arc::clone(&self.namespaces);
        let changed = task::blocking(move || namespaces.try_change(change)).await;
        let changed = changed.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
        let answer = changed.map_err(|error| failed(&error))?;
        // Timers may be parked because of a limit that was raised, or because of a pause that has ended.
        self.deliveries.look_everywhere();
        answer
    }

    /// Sets the limits of a namespace, and creates the namespace if it is missing. Returns whether it was created.
    pub(crate) async fn set(
        &self,
        name: &str,
        limits: NamespaceLimits,
    ) -> Result<(bool, NamespaceView), Problem> {
        let words = serde_json::to_string(&limits).unwrap_or_default();
        let deed = Deed::new(AuditAction::SetNamespace).namespace(name).detail(words);
        let set = async {
            let limits = canonical(limits)?;
            let (is_new, _) = self.change_limits(name, move |_| Ok(limits.clone())).await?;
            // The limits are stored, even if the timers cannot be counted for the answer.
            Ok((is_new, self.view(name).await.map_err(Problem::with_unknown_outcome)?))
        };
        self.audit.note(deed, set).await
    }

    /// Changes those limits of a namespace that the patch sets, and creates the namespace if it is missing. Returns
    /// whether it was created. The other limits stay as they are stored, so changes of different limits by different
    /// callers lose none of each other.
    pub(crate) async fn patch(
        &self,
        name: &str,
        patch: LimitsPatch,
    ) -> Result<(bool, NamespaceView), Problem> {
        let words = serde_json::to_string(&patch).unwrap_or_default();
        let change = async {
            // Only the limits of the patch are checked. An earlier version may have stored others.
            let given = canonical(patch.clone().apply(NamespaceLimits::default()))?;
            let allowed_hosts = patch.allowed_hosts.as_ref().map(|_| given.allowed_hosts);
            let patch = LimitsPatch { allowed_hosts, ..patch };
            self.change_limits(name, move |former| {
                Ok(patch.clone().apply(former.cloned().unwrap_or_default()))
            })
            .await
        };
        let (is_new, _) = self.change_noted(name, &words, change).await?;
        // The limits are stored, even if the timers cannot be counted for the answer.
        Ok((is_new, self.view(name).await.map_err(Problem::with_unknown_outcome)?))
    }

    /// Creates a namespace without limits of its own. Fails if there is a namespace of this name.
    pub(crate) async fn make(&self, name: &str) -> Result<(), Problem> {
        let make = |former: Option<&NamespaceLimits>| match former {
            None => Ok(NamespaceLimits::default()),
            Some(_) => Err(Problem::new(ProblemKind::KeyExists, "There is a namespace of this name.")),
        };
        let deed = Deed::new(AuditAction::SetNamespace).namespace(name).detail("{}");
        self.audit.note(deed, self.change_limits(name, make)).await.map(drop)
    }

    /// Pauses a namespace, or ends its pause. Its other limits stay as they are. Fails if the namespace does not exist.
    pub(crate) async fn pause(&self, name: &str, paused: bool) -> Result<(), Problem> {
        let there_is_none = format!("there is no namespace {name:?}");
        let pause = move |former: Option<&NamespaceLimits>| match former {
            Some(limits) => Ok(NamespaceLimits { paused, ..limits.clone() }),
            None => Err(Problem::new(ProblemKind::NotFound, there_is_none.clone())),
        };
        let words = if paused { "paused" } else { "not paused" };
        self.change_noted(name, words, self.change_limits(name, pause)).await.map(drop)
    }

    /// Awaits a change that calls [`change_limits`](Self::change_limits), and notes the change in the audit trail. The
    /// entry has `words`, and then the limits that the change has left. A long entry is cut at its end, so the limits
    /// do not hide the change.
    async fn change_noted(
        &self,
        name: &str,
        words: &str,
        change: impl Future<Output = Result<(bool, NamespaceLimits), Problem>>,
    ) -> Result<(bool, NamespaceLimits), Problem> {
        let entry = self.audit.begin(Deed::new(AuditAction::SetNamespace).namespace(name).detail(words));
        let answer = change.await;
        let limits = answer.as_ref().ok().and_then(|(_, limits)| serde_json::to_string(limits).ok());
        let words = limits.map_or_else(|| words.to_owned(), |limits| format!("{words}; now {limits}"));
        entry.add(|deed| deed.detail(words)).end(&answer).await;
        answer
    }

    /// Sets the limits of a namespace to the result of `new`, and creates the namespace if it is missing. `new` gets
    /// the stored limits, or `None` if the namespace is missing. Returns whether the namespace was created, and its new
    /// limits. Fails if the namespace is being removed.
    async fn change_limits(
        &self,
        name: &str,
        new: impl Fn(Option<&NamespaceLimits>) -> Result<NamespaceLimits, Problem> + Send + 'static,
    ) -> Result<(bool, NamespaceLimits), Problem> {
        if !is_name(name) {
            let detail = "a name has 1 to 64 letters, digits, `-`, `_` or `.`";
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let key: Box<str> = name.into();
        let (is_new, limits) = self
            .change(move |map| {
                // The limits and the secrets come from the map of this attempt. An earlier read could miss limits or a
                // secret that another request or node has just stored.
                let former = present(map, &key)?.cloned();
                let (is_new, limits) =
                    (former.is_none(), new(former.as_deref().map(|former| &former.limits))?);
                let former = former.unwrap_or_default();
                let namespace = former.changed(limits.clone(), former.secrets.clone());
                map.insert(key.clone(), Arc::new(namespace));
                Ok((is_new, limits))
            })
            .await?;
        if is_new {
            // An earlier namespace may have had the same name. The new namespace must not see its histories.
            self.in_flight.forget(name);
        }
        Ok((is_new, limits))
    }

    /// Removes a namespace. Fails if the namespace has stored timers or schedules. If the future is dropped, the
    /// removal still goes on to its end.
    ///
    /// 1. The namespace gets the mark of the removal ([`mark`]), so no further creation is admitted. If the answer of
    ///    this change is lost, the store may have the mark, so the removal continues with the fourth step.
    /// 2. The removal waits until the creations that were already admitted have ended.
    /// 3. It counts the timers and schedules. If there are none, it removes the namespace, and is complete.
    /// 4. Otherwise, or if the service stops during the wait, it removes the mark. If this change is not stored, the
    ///    client gets an answer with an unknown outcome, and the removal tries again and again. Once the service stops,
    ///    it makes a last attempt. If the mark is still stored when the process ends, the next start or another node
    ///    removes it.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Problem> {
        let deed = Deed::new(AuditAction::RemoveNamespace).namespace(name);
        let (this, name) = (self.clone(), name.to_owned());
        let removal = async move {
            // The fourth step may last as long as the store does not answer. Without this check, each further request
            // would add a task.
            let Some(removing) = Removing::begin(&this.removals, &name) else {
                return Err(being_removed());
            };
            // A service that stops waits for the fourth step.
            let task = this.tasks.begin();
            let (send, answer) = oneshot::channel();
            task::start(async move {
                // In the case of a panic, the answer follows the end of the removal.
                let (send, removing) = (send, removing);
                let mut left = None;
                let removed = this.remove_empty(&name, &mut left).await;
                match left {
                    Some(left) if !this.unmark(&name, &left).await => {
                        let detail =
                            format!("the end of the removal of the namespace {name:?} is not stored");
                        error!(target: "namespaces", namespace = &*name, "{detail}");
                        let unknown = Problem::new(ProblemKind::StoreUnavailable, detail);
                        let _has_gone =
                            send.send(Err(unknown.with_unknown_outcome().with_retry_after_ms(1_000)));
                        this.unmark_later(&name, &left).await;
                        drop(removing);
                    }
                    _ => {
                        drop(removing);
                        let _has_gone = send.send(removed);
                    }
                }
                // Once no task is counted, no task holds the store.
                drop(this);
                drop(task);
            });
            let panicked = |_| Err(Problem::new(ProblemKind::Internal, "the removal has panicked"));
            answer.await.unwrap_or_else(panicked)
        };
        self.audit.note(deed, removal).await
    }

    /// Makes the first three steps of a removal. Sets `left` if the fourth step must follow.
    async fn remove_empty(&self, name: &str, left: &mut Option<LeftMark>) -> Result<(), Problem> {
        let has_timers =
            || Problem::new(ProblemKind::NamespaceNotEmpty, "timers or schedules are stored in it");
        if name == DEFAULT {
            return Err(Problem::new(ProblemKind::NamespaceNotEmpty, "the namespace `default` stays"));
        }
        // A namespace with timers is refused before the removal, because a namespace with a mark refuses creations.
        if self.has_timers(name).await? {
            return Err(has_timers());
        }
        let removal = random()?;
        let key: Box<str> = name.into();
        let there_is_none = || Problem::new(ProblemKind::NotFound, "there is no such namespace");
        let before = self.change(move |map| mark(map, &key, removal)?.ok_or_else(there_is_none)).await;
        let before = match before {
            Err(problem) if problem.kind == ProblemKind::StoreUnavailable => {
                *left = Some(LeftMark { removal, before: None });
                return Err(problem);
            }
            before => before?,
        };
        tokio::select! {
            () = self.await_creations(&before) => {}
            // A service that stops has no time for the wait.
            () = self.stop.begun() => {}
        }
        let found = if Namespace::is_held(&before) { Ok(true) } else { self.has_stored(name).await };
        if let (Ok(false), false) = (&found, self.stop.has_begun()) {
            // After the removal, a namespace of the same name may already have renewals.
            self.deliveries.forget(name).await;
            let key: Box<str> = name.into();
            let removed = self.change(move |map| match remove_marked(map, &key, removal) {
                true => Ok(()),
                false => {
                    Err(Problem::new(ProblemKind::NamespaceNotEmpty, "another node has ended the removal"))
                }
            });
            let removed = removed.await;
            if removed.as_ref().is_err_and(|problem| problem.kind == ProblemKind::StoreUnavailable) {
                *left = Some(LeftMark { removal, before: Some(before) });
            }
            return removed;
        }
        // A timer was stored during the wait, a creation may still store its timer, the store does not answer, or the
        // service stops.
        *left = Some(LeftMark { removal, before: Some(before) });
        if !found? && self.stop.has_begun() {
            return Err(Problem::new(ProblemKind::Stopping, "the namespace was not removed"));
        }
        Err(has_timers())
    }

    /// Waits until the creations have ended that were admitted before the removal of their namespace.
    async fn await_creations(&self, before: &Arc<Namespace>) {
        if self.namespaces.is_shared() {
            // Other nodes use copies of the map of namespaces. During this time they may still create timers in the
            // removed namespace.
            tokio::time::sleep(VIEW).await;
        }
        // From here on, only creations that were already admitted can store timers in the namespace.
        let begin = Instant::now();
        // A creation holds the namespace until its timer is stored.
        while Namespace::is_held(before) && begin.elapsed() < SETTLING {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Removes the mark of a removal from a namespace, as [`unmark`] does. Returns whether the stored namespaces are
    /// without the mark.
    async fn unmark(&self, name: &str, left: &LeftMark) -> bool {
        let (key, LeftMark { removal, before }) = (Box::from(name), left.clone());
        let unmarked = self.change(move |map| match unmark(map, &key, removal, before.as_ref()) {
            true => Ok(()),
            // Without the mark, nothing needs to be stored, which may be impossible now.
            false => Err(Problem::new(ProblemKind::NotFound, "")),
        });
        match unmarked.await {
            Ok(()) => true,
            Err(problem) => problem.kind == ProblemKind::NotFound,
        }
    }

    /// Removes the mark of a removal from a namespace after a first attempt has failed. Tries again until the stored
    /// namespaces are without the mark. Once the service stops, makes a last attempt.
    async fn unmark_later(&self, name: &str, left: &LeftMark) {
        while !self.stop.has_begun() {
            tokio::select! {
                () = tokio::time::sleep(REPEATED) => {}
                () = self.stop.begun() => {}
            }
            if self.unmark(name, left).await {
                return;
            }
        }
    }

    /// Returns whether a namespace with the mark of a removal has stored timers or schedules.
    async fn has_stored(&self, name: &str) -> Result<bool, Problem> {
        // A creation whose client has gone no longer holds the namespace, and may still be on its way to the store. A
        // store that only this process uses makes changes in their order, so this change comes later. It finds no
        // timer.
        self.timers.cancel(TimerId::from_u128(0)).await.map_err(|error| unavailable(&error))?;
        self.has_timers(name).await
    }

    /// Returns whether a namespace has stored timers or schedules.
    async fn has_timers(&self, name: &str) -> Result<bool, Problem> {
        let schedules_name = Schedules::namespace_of(name);
        let is_here = |namespace: &str| *namespace == *name || *namespace == *schedules_name;
        let counts = self.timers.counts().await.map_err(|error| unavailable(&error))?;
        Ok(counts.by_namespace.iter().any(|((namespace, _), count)| is_here(namespace) && *count > 0))
    }

    /// Returns a namespace with the numbers of its stored timers. Fails if the namespace does not exist.
    pub(crate) async fn view(&self, name: &str) -> Result<NamespaceView, Problem> {
        self.namespaces.require(name)?;
        let mut views = self.views(|other| other == name).await?;
        views.pop().ok_or_else(|| Problem::new(ProblemKind::NotFound, "there is no such namespace"))
    }

    /// Returns the namespaces that `is_wanted` selects, each with the numbers of its stored timers.
    pub(crate) async fn views(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<NamespaceView>, Problem> {
        use tourbillon_durable::state::Phase::{Dead, Leased, Parked, Pending};
        let counts = self.timers.counts().await.map_err(|error| unavailable(&error))?;
        let all = self.namespaces.all();
        let wanted = all.iter().filter(|(name, _)| is_wanted(name));
        Ok(wanted
            .map(|(name, namespace)| {
                let count_in =
                    |stored: &str, phase| counts.by_namespace.get(&(stored.into(), phase)).copied();
                let count = |phase| count_in(name, phase).unwrap_or(0);
                let schedules_name = Schedules::namespace_of(name);
                let schedules = [Pending, Leased, Parked].map(|phase| count_in(&schedules_name, phase));
                NamespaceView {
                    name: name.to_string(),
                    limits: namespace.limits.clone(),
                    secrets: namespace
                        .active_secrets()
                        .map(|secret| SecretView { made: secret.made, until: secret.until })
                        .collect(),
                    pending: count(Pending),
                    leased: count(Leased),
                    parked: count(Parked),
                    dead: count(Dead),
                    schedules: schedules.into_iter().flatten().sum(),
                }
            })
            .collect())
    }

    /// Makes a new secret to sign the callbacks of a namespace. At most nine earlier secrets still sign callbacks, for
    /// a day.
    pub(crate) async fn make_secret(&self, name: &str) -> Result<NewSecret, Problem> {
        let deed = Deed::new(AuditAction::MakeSecret).namespace(name);
        self.audit.note(deed, self.rotate_secret(name)).await
    }

    async fn rotate_secret(&self, name: &str) -> Result<NewSecret, Problem> {
        self.namespaces.require(name)?;
        let secret = format!("whsec_{}", BASE64_STANDARD.encode(random_bytes::<SECRET>()?));
        let (name, new): (Box<str>, Box<str>) = (name.into(), secret.as_str().into());
        let former_until = self
            .change(move |map| {
                let gone = || Problem::new(ProblemKind::NotFound, "there is no such namespace");
                let namespace = present(map, &name)?.ok_or_else(gone)?;
                let until = moment_in(ROTATION);
                let former = namespace.active_secrets().cloned();
                // A secret that already has an end keeps this end, because a further new secret must not prolong the
                // use of an old secret.
                let former =
                    former.map(|old| SigningSecret { until: Some(old.until.unwrap_or(until)), ..old });
                let mut secrets = vec![SigningSecret { secret: new.clone(), made: now(), until: None }];
                secrets.extend(former);
                // The oldest secrets are dropped, so a namespace can always get a new secret after a loss or a leak.
                secrets.truncate(MOST_SECRETS);
                let former_until = secrets.get(1).and_then(|secret| secret.until);
                let changed = namespace.changed(namespace.limits.clone(), secrets);
                map.insert(name.clone(), Arc::new(changed));
                Ok(former_until)
            })
            .await?;
        Ok(NewSecret { secret, former_until })
    }
}
