//! Administers namespaces: sets their limits, makes their signing secrets, and removes them.

#[cfg(test)]
mod tests;

use crate::audit::{Audit, Deed};
use crate::convert::{is_name, not_stored, unavailable};
use crate::delivery::Deliveries;
use crate::state::{
    ALL, DEFAULT, Namespace, Namespaces, ROTATION, SigningSecret, Stop, StoredNamespaces, VIEW, canonical,
    in_rotation, limits_in, mark, present, remove_marked, unmark,
};
use crate::task::{self, Tasks};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use tokio::time::Instant;
use tourbillon_api::{
    AuditAction, LimitsPatch, Moment, NamespaceLimits, NamespaceView, NewSecret, Problem, ProblemKind,
    SecretView,
};
use tourbillon_durable::Timers;
use tourbillon_durable::schedule::Schedules;
use tourbillon_durable::timer::TimerId;
use tracing::error;

/// The length of a secret that signs callbacks, in bytes.
const SECRET: usize = 32;
/// The longest time for which the removal of a namespace waits for the creations and deliveries that are running in it.
const SETTLING: Duration = Duration::from_secs(5);
/// The time that a removal leaves to the creations that other nodes have just admitted, from their admission to the
/// store. Nobody here sees these creations. The client of the removal, which waits for 10 s by default, still gets its
/// answer.
const ARRIVAL: Duration = Duration::from_secs(3);

fn has_timers() -> Problem {
    Problem::new(ProblemKind::NamespaceNotEmpty, "timers or schedules are stored in it")
}

fn panicked() -> Problem {
    Problem::new(ProblemKind::Internal, "the removal has panicked")
}

fn failed(error: &io::Error) -> Problem {
    not_stored("the namespaces are not stored", error)
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

/// Serves the requests that create, change, show and remove namespaces. Clones share the state.
#[derive(Clone)]
pub(crate) struct NamespaceAdmin {
    pub(super) timers: Timers,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) audit: Audit,
    pub(super) stop: Stop,
    pub(super) tasks: Tasks,
}

impl NamespaceAdmin {
    /// Changes the namespaces with `change`, on a thread that may block. If the future is dropped, the change is still
    /// made.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnMut(&mut StoredNamespaces) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let namespaces = Arc::clone(&self.namespaces);
        let changed = task::blocking(move || namespaces.try_change(change)).await;
        let changed = changed.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
        changed.map_err(|error| failed(&error))?
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
            let (is_new, _) = self.change_limits(name, vec![ALL], move |_| Ok(limits.clone())).await?;
            // The limits are stored, even if the timers cannot be counted for the answer.
            Ok((is_new, self.view(name).await.map_err(Problem::with_unknown_outcome)?))
        };
        self.audit.note(deed, set).await
    }

    /// Replaces only the limits that the patch contains, and creates the namespace if it is missing. Returns whether it
    /// was created. Concurrent patches of different limits do not undo each other.
    pub(crate) async fn patch(
        &self,
        name: &str,
        patch: LimitsPatch,
    ) -> Result<(bool, NamespaceView), Problem> {
        let words = serde_json::to_string(&patch).unwrap_or_default();
        let change = async {
            // Only the limits of the patch are checked, because the stored limits were checked when they were stored.
            let given = canonical(patch.clone().apply(NamespaceLimits::default()))?;
            let allowed_hosts = patch.allowed_hosts.as_ref().map(|_| given.allowed_hosts);
            let patch = LimitsPatch { allowed_hosts, ..patch };
            self.change_limits(name, limits_in(&patch), move |former| {
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
        self.audit.note(deed, self.change_limits(name, Vec::new(), make)).await.map(drop)
    }

    /// Pauses a namespace, or ends its pause. Its other limits stay as they are. Fails if the namespace does not exist.
    pub(crate) async fn pause(&self, name: &str, paused: bool) -> Result<(), Problem> {
        let there_is_none = format!("there is no namespace {name:?}");
        let pause = move |former: Option<&NamespaceLimits>| match former {
            Some(limits) => Ok(NamespaceLimits { paused, ..limits.clone() }),
            None => Err(Problem::new(ProblemKind::NotFound, there_is_none.clone())),
        };
        let words = if paused { "paused" } else { "not paused" };
        self.change_noted(name, words, self.change_limits(name, vec!["paused"], pause)).await.map(drop)
    }

    /// Awaits `change`, a call of [`change_limits`](Self::change_limits), and records it in the audit trail. The text
    /// of the entry is `words`, followed by the new limits. A long text is cut at its end, so `words` always remain.
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
    /// the stored limits, or `None` if the namespace is missing. `named` are the limits that the client has named. They
    /// may keep their values. Returns whether the namespace was created, and its new limits. Fails if the namespace is
    /// being removed.
    async fn change_limits(
        &self,
        name: &str,
        named: Vec<&'static str>,
        new: impl Fn(Option<&NamespaceLimits>) -> Result<NamespaceLimits, Problem> + Send + 'static,
    ) -> Result<(bool, NamespaceLimits), Problem> {
        if !is_name(name) {
            let detail = "a name has 1 to 64 letters, digits, `-`, `_` or `.`";
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let (key, number): (Box<str>, u64) = (name.into(), random()?);
        self.change(move |stored| {
            // The limits and the secrets come from the namespaces of this attempt. An earlier read could miss limits or
            // a secret that another request or node has just stored.
            let former = present(stored, &key)?.cloned();
            let is_new = former.is_none();
            let limits = new(former.as_ref().map(|former| &former.limits))?;
            let former = former.unwrap_or_else(|| Namespace { number, ..Namespace::default() });
            stored.namespaces.insert(key.clone(), Namespace { limits: limits.clone(), ..former });
            stored.set_limits(&key, &named);
            Ok((is_new, limits))
        })
        .await
    }

    /// Removes a namespace. Fails if the namespace has stored timers or schedules. If the future is dropped, the
    /// removal continues. The documentation of [`mark`]'s module has the steps and the states.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Problem> {
        let deed = Deed::new(AuditAction::RemoveNamespace).namespace(name);
        let (this, name) = (self.clone(), name.to_owned());
        let removal = async move {
            // A service that stops waits for the end of the removal.
            let task = this.tasks.begin();
            let removed = task::answered(async move {
                let removed = this.remove_empty(&name).await;
                // The task must not use the store once it is no longer counted.
                drop(this);
                drop(task);
                removed
            });
            removed.await.unwrap_or_else(|_| Err(panicked()))
        };
        self.audit.note(deed, removal).await
    }

    async fn remove_empty(&self, name: &str) -> Result<(), Problem> {
        if name == DEFAULT {
            return Err(Problem::new(ProblemKind::NamespaceNotEmpty, "the namespace `default` stays"));
        }
        // A namespace with timers is refused here already, because a removal that has begun refuses all creations.
        if self.has_timers(name).await? {
            return Err(has_timers());
        }
        let (key, removal): (Box<str>, u64) = (name.into(), random()?);
        let removed = match self.change(move |stored| mark(stored, &key, removal)).await {
            Ok(()) => {
                let (this, name) = (self.clone(), name.to_owned());
                // A panic ends only this task, so the mark is removed after a panic as well.
                let removed = task::answered(async move { this.end_removal(&name, removal).await });
                removed.await.unwrap_or_else(|_| Err(panicked()))
            }
            // The namespace does not exist, or another request is removing it.
            Err(problem) if matches!(problem.kind, ProblemKind::NotFound | ProblemKind::LimitReached) => {
                return Err(problem);
            }
            // The mark may be stored although the answer is an error.
            Err(problem) => Err(problem),
        };
        if removed.is_err() && !self.unmark(name, removal).await {
            let detail = format!("the end of the removal of the namespace {name:?} may not be stored");
            error!(target: "namespaces", namespace = name, "{detail}");
            let unknown = Problem::new(ProblemKind::StoreUnavailable, detail);
            return Err(unknown.with_unknown_outcome().with_retry_after_ms(1_000));
        }
        removed
    }

    /// Removes a namespace that has the mark of this removal, unless the namespace has timers or schedules.
    async fn end_removal(&self, name: &str, removal: u64) -> Result<(), Problem> {
        let is_settled = tokio::select! {
            is_settled = self.await_holders(name) => is_settled,
            () = self.stop.begun() => false,
        };
        // A service that stops has no time for the removal.
        if self.stop.has_begun() {
            return Err(Problem::new(ProblemKind::Stopping, "the namespace was not removed"));
        }
        let under_way = || {
            let detail = "a creation or a delivery in this namespace is under way";
            Problem::new(ProblemKind::LimitReached, detail).with_retry_after_ms(1_000)
        };
        if !is_settled {
            return Err(under_way());
        }
        if self.has_stored(name).await? {
            return Err(has_timers());
        }
        // Since the last call of `is_held`, an operation on timers may have obtained the namespace.
        if self.namespaces.is_held(name) {
            return Err(under_way());
        }
        // The renewals of this version are those of this namespace, if it still has the mark below. After the removal,
        // a namespace of the same name may have renewals.
        let renewals = self.deliveries.renewals(name).await;
        let key: Box<str> = name.into();
        let ended = || {
            let problem = Problem::new(
                ProblemKind::LimitReached,
                "another node has ended the removal, which took long",
            );
            problem.with_retry_after_ms(1_000)
        };
        let removed = self
            .change(move |stored| remove_marked(stored, &key, removal).then_some(()).ok_or_else(ended))
            .await;
        // The namespace may be gone although the answer was lost.
        let is_gone = async || self.namespaces.renew().await.is_ok() && self.namespaces.find(name).is_none();
        if let Some(version) = renewals
            && (removed.is_ok() || is_gone().await)
        {
            self.deliveries.forget(name, version).await;
        }
        removed
    }

    /// Waits for the end of the creations and deliveries that began before the removal of their namespace. Returns
    /// false if one of this node's does not end in time.
    async fn await_holders(&self, name: &str) -> bool {
        let is_shared = self.namespaces.is_shared();
        if is_shared {
            // Other nodes use copies of the namespaces, and may admit creations in the removed namespace until they
            // read the namespaces again.
            tokio::time::sleep(VIEW).await;
        }
        // From here on, only creations that were already admitted can store timers in the namespace.
        let begin = Instant::now();
        // A creation holds the namespace until its timer is stored, and a delivery until it ends. The count of timers
        // would miss a delivery whose timer is delivered at most once.
        while self.namespaces.is_held(name) {
            if begin.elapsed() >= SETTLING {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if is_shared {
            tokio::time::sleep_until(begin + ARRIVAL).await;
        }
        true
    }

    /// Removes the mark of this removal from a namespace. Returns whether the stored namespaces are without this mark
    /// afterwards.
    async fn unmark(&self, name: &str, removal: u64) -> bool {
        let key: Box<str> = name.into();
        let no_mark = || Problem::new(ProblemKind::NotFound, "the namespace has no mark");
        // If the mark is missing, the change fails without a write, because a write may be impossible now.
        let unmarked =
            self.change(move |stored| unmark(stored, &key, removal).then_some(()).ok_or_else(no_mark));
        unmarked.await.map_or_else(|problem| problem.kind == ProblemKind::NotFound, |()| true)
    }

    /// Returns whether a namespace that is being removed has stored timers or schedules.
    async fn has_stored(&self, name: &str) -> Result<bool, Problem> {
        // A creation whose client has gone no longer holds the namespace, but the store may still receive it. A store
        // that only this process uses makes changes in order. So this cancellation, which finds no timer, ends after
        // that creation.
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
        let (all, now) = (self.namespaces.all(), self.timers.timer_store().now().into());
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
                        .active_secrets(now)
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
        // The moments are stored for all nodes. The clock of one node may be wrong, and a clock that is a day ahead
        // would end secrets that must still sign.
        let timers = self.timers.clone();
        let former_until = self
            .change(move |stored| {
                let now = timers.timer_store().now();
                let gone = || Problem::new(ProblemKind::NotFound, "there is no such namespace");
                let namespace = present(stored, &name)?.ok_or_else(gone)?;
                // A clock that was set back must not make the new secret the older one.
                let newest = namespace.secrets.iter().map(|secret| secret.made.as_millis() + 1).max();
                let made = Moment::from_millis(now.as_millis().max(newest.unwrap_or(0)));
                let new = SigningSecret { secret: new.clone(), made, until: None };
                let until = Moment::from(now + Duration::from_millis(ROTATION));
                let former = namespace.active_secrets(now.into()).cloned();
                // A secret that already has an end keeps this end, because a further new secret must not prolong the
                // use of an old secret.
                let former =
                    former.map(|old| SigningSecret { until: Some(old.until.unwrap_or(until)), ..old });
                let secrets = in_rotation([new].into_iter().chain(former).collect());
                let former_until = secrets.get(1).and_then(|secret| secret.until);
                let changed = Namespace { secrets, ..namespace.clone() };
                stored.namespaces.insert(name.clone(), changed);
                Ok(former_until)
            })
            .await?;
        Ok(NewSecret { secret, former_until })
    }
}
