//! Delivers timers, from the due moment to the end of the delivery. A *callback* timer sends an HTTP request. A *pull*
//! timer waits in a queue until a receiver fetches it; the receiver's hold on the fetched timer is a *claim*.
//!
//! A timer that may not be delivered now is *parked*: it stays in the store, without a delivery, under a *reason*. Once
//! the reason no longer holds, the *unparker* makes the timer due again.
//!
//! ```text
//!   durable's loop ──► callback ─┐            ┌─► permits, rate     a delivery that may not go on is parked
//!                  ──► pull ─────┴► admission ┘                          │
//!        ▲               │                                               ▼
//!        │               └─► pull_queues ◄── receivers             parked_index ◄── observer: parks that are stored
//!        │                                                               │      ◄── permits, pull_queues: room
//!        └───────────────── unpark ◄─────────────────────────────── unparker    ◄── changes of namespaces
//!
//!   observer: ends that the store has not answered ──► reconciler ──► parked_index
//! ```

mod admission;
mod callback;
mod died;
mod observer;
mod parked_index;
mod parked_timers;
mod parked_watch;
mod pending_ends;
mod permits;
mod pull;
mod pull_queues;
mod reason;
mod reconciler;
mod remote_claims;
mod retry_pause;
#[cfg(test)]
mod tests;
mod unparker;

pub(crate) use parked_timers::ParkedTimers;
pub(crate) use permits::MOST_WAITING;
pub(crate) use pull_queues::{ClaimVerdict, PullQueues, unanswered};
pub(crate) use reason::Reason;

use crate::record::{Endpoints, InFlight};
use crate::settings::Settings;
use crate::state::{ClusterStore, Counters, Events, Namespaces, event};
use crate::task;
use crate::telemetry::Telemetry;
use crate::work::{CALLBACK, PULL};
use admission::{Admission, DeliveryLimits};
use callback::CallbackHandler;
use core::fmt;
use observer::{Observer, shown};
use parked_index::ParkedIndex;
use parked_watch::watch_parked;
use pending_ends::PendingEnds;
use pull::PullHandler;
use reconciler::Reconciler;
use remote_claims::RemoteClaims;
use retry_pause::RetryPause;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tourbillon_api::{self as api, Moment, Problem, ProblemKind};
use tourbillon_callback::Caller;
use tourbillon_durable::store::{Durability, TimerStore};
use tourbillon_durable::{Builder, Ending, Timers};
use unparker::Unparker;

/// The parts of the service that deliver timers: handlers, limits, queues, and the tasks that make parked timers due
/// again. A parked timer stays in the store without a delivery, for example because its namespace is paused.
pub(crate) struct Deliveries {
    callbacks: Arc<CallbackHandler>,
    pulls: Arc<PullHandler>,
    observer: Arc<Observer>,
    reconciler: Arc<Reconciler>,
    events: Events,
    parked: Arc<ParkedIndex>,
    queues: Arc<PullQueues>,
    remote_claims: Option<RemoteClaims>,
    unparker: Arc<Unparker>,
    admission: Arc<Admission>,
}

/// The parts of the service that [`Deliveries::new`] needs.
pub(crate) struct Environment<'a> {
    pub(crate) settings: &'a Settings,
    /// The store of the timers. Deliveries read the time from the store's clock.
    pub(crate) store: &'a Arc<dyn TimerStore>,
    pub(crate) caller: &'a Caller,
    pub(crate) namespaces: &'a Arc<Namespaces>,
    pub(crate) events: &'a Events,
    pub(crate) counters: &'a Arc<Counters>,
    pub(crate) in_flight: &'a Arc<InFlight>,
    pub(crate) endpoints: &'a Arc<Endpoints>,
    pub(crate) telemetry: &'a Telemetry,
    /// Notified after a change that may have ended the parking of timers. The parked timers are then counted again.
    pub(crate) recount: &'a Arc<Notify>,
}

impl Deliveries {
    pub(crate) fn new(environment: Environment<'_>) -> Self {
        let Environment {
            settings,
            store,
            caller,
            namespaces,
            events,
            counters,
            in_flight,
            endpoints,
            telemetry,
            recount,
        } = environment;
        let parked = Arc::new(ParkedIndex::new(Arc::clone(recount)));
        let retry_pause = RetryPause { least: settings.least_pause };
        let limits = DeliveryLimits {
            all: settings.concurrency,
            at_host: settings.host_concurrency,
            at_prompt_host: settings.prompt_host_concurrency,
        };
        let admission = Arc::new(Admission::new(Arc::clone(namespaces), Arc::clone(&parked), limits));
        let queues =
            Arc::new(PullQueues::new(Arc::clone(&parked), settings.open_claims, namespaces.is_shared()));
        let reconciler = Arc::new(Reconciler::default());
        let observer = Arc::new(Observer {
            events: events.clone(),
            parked: Arc::clone(&parked),
            reconciler: Arc::clone(&reconciler),
            counters: Arc::clone(counters),
            in_flight: Arc::clone(in_flight),
            ends: PendingEnds::default(),
        });
        let callbacks = Arc::new(CallbackHandler {
            caller: caller.clone(),
            admission: Arc::clone(&admission),
            observer: Arc::clone(&observer),
            in_flight: Arc::clone(in_flight),
            endpoints: Arc::clone(endpoints),
            rules: settings.rules,
            permits_private: settings.caller.guard.allow_private,
            store: Arc::clone(store),
            retry_pause,
            telemetry: telemetry.clone(),
        });
        let remote_claims = namespaces.shared().map(|store| RemoteClaims::new(store, retry_pause));
        let pulls = Arc::new(PullHandler {
            admission: Arc::clone(&admission),
            queues: Arc::clone(&queues),
            observer: Arc::clone(&observer),
            telemetry: telemetry.clone(),
            retry_pause,
            store: Arc::clone(store),
            remote_claims: remote_claims.clone(),
        });
        let unparker =
            Arc::new(Unparker::new(Arc::clone(&parked), Arc::clone(&admission), Arc::clone(&queues)));
        let events = events.clone();
        Self {
            callbacks,
            pulls,
            observer,
            reconciler,
            events,
            parked,
            queues,
            remote_claims,
            unparker,
            admission,
        }
    }

    /// Adds the handlers of callback and pull timers to the runtime's builder, and the observer of the runtime's
    /// events.
    pub(crate) fn add_to(&self, builder: Builder) -> Builder {
        let (callbacks, pulls) = (Arc::clone(&self.callbacks), Arc::clone(&self.pulls));
        let [observer, of_callbacks, of_pulls] = [(); 3].map(|()| Arc::clone(&self.observer));
        builder
            // A receiver's `ack` or `nack` is answered once the end of its claim is stored, so the end must survive a
            // crash of the process.
            .end_durability(Durability::ProcessCrash)
            .bytes_handler(CALLBACK, move |work, delivery| {
                let (callbacks, observer) = (Arc::clone(&callbacks), Arc::clone(&of_callbacks));
                async move {
                    let verdict = callbacks.deliver(&work, &delivery).await;
                    observer.handled(&delivery, &work, verdict)
                }
            })
            .bytes_handler(PULL, move |work, delivery| {
                let (pulls, observer) = (Arc::clone(&pulls), Arc::clone(&of_pulls));
                async move {
                    let verdict = pulls.deliver(&work, &delivery).await;
                    observer.handled(&delivery, &work, verdict)
                }
            })
            // Limits, circuit breakers and missing receivers can still park a timer. So a timer that is delivered at
            // most once must stay stored until its request is sent or its receiver gets it.
            .begins_itself(CALLBACK)
            .begins_itself(PULL)
            .observe(move |event| observer.observe(event))
    }

    /// Starts the tasks that make parked timers due again. Must be called on a tokio runtime.
    pub(crate) fn begin(&self, timers: &Timers, shared: Option<&Arc<dyn ClusterStore>>) {
        let store = timers.timer_store();
        if let Some(shared) = shared {
            let queues = Arc::downgrade(&self.queues);
            let tells = shared.on_parked(Box::new(move |reason| {
                let reason = reason.map(Reason::parse);
                if let Some(queues) = queues.upgrade()
                    // Receivers wait only for timers of queues. `None` stands for all reasons.
                    && matches!(reason, None | Some(Some(Reason::Queue(..))))
                {
                    queues.heard(reason.flatten().as_ref());
                }
            }));
            if !tells {
                let (queues, parked) = (Arc::downgrade(&self.queues), Arc::downgrade(&self.parked));
                task::start(watch_parked(Arc::downgrade(shared), queues, parked));
            }
        }
        let (parked, unparker) = (Arc::clone(&self.parked), Arc::clone(&self.unparker));
        let reconciler = Arc::clone(&self.reconciler);
        let in_flight = Arc::clone(&self.observer.in_flight);
        task::start(reconciler.run(store, parked, unparker, in_flight, self.events.clone()));
        task::start(Arc::clone(&self.unparker).run(timers.clone(), self.remote_claims.is_some()));
    }

    /// Makes the [`Unparker`] task apply the namespaces' new limits to the deliveries that wait in memory, and check
    /// which parked timers may be delivered now. Called after a change of a namespace, because the change may permit
    /// deliveries. The caller may hold the lock of the namespaces.
    pub(crate) fn look_everywhere(&self) {
        self.admission.note_change();
        self.parked.look_everywhere();
    }

    /// Ends the pause of deliveries to a host. At first a few of the timers that wait for the host become due, and more
    /// once the host has answered.
    pub(crate) fn reopen(&self, host: &str) {
        self.admission.reopen(host);
    }

    /// Returns the timers that are parked (kept in the store without a delivery) for each [`Reason`]. Counts only the
    /// parked timers that this process knows.
    pub(crate) fn parked(&self) -> BTreeMap<Reason, ParkedTimers> {
        self.parked.counts()
    }

    /// Returns the timers that were parked for reasons of other programs when the parked timers were last counted.
    pub(crate) fn parked_for_others(&self) -> ParkedTimers {
        self.parked.unknown()
    }

    /// Returns the queues from which receivers fetch timers.
    pub(crate) fn queues(&self) -> &PullQueues {
        &self.queues
    }

    /// Ends a receiver's claim (its hold on a fetched timer) and the timer's delivery with `verdict`. The claim may be
    /// open on another node. Returns once the store has recorded the end.
    pub(crate) async fn end_claim(
        &self,
        namespace: &str,
        claim: &str,
        verdict: impl Into<ClaimVerdict>,
    ) -> Result<(), Problem> {
        let verdict = verdict.into();
        if let Some(ended) = self.queues.end(namespace, claim, verdict.clone()).await {
            return ended;
        }
        let Some(remote_claims) = &self.remote_claims else { return Err(pull_queues::ended()) };
        let verdict = remote_claims.verdict(verdict);
        let (timer, phase) = remote_claims.end(namespace, claim, &verdict).await?;
        self.observer.handled_remotely(&timer, phase);
        let Some((kind, detail)) = shown(&Ending::Answered(verdict), phase, None) else { return Ok(()) };
        self.events.show(|| api::Event {
            id: Some(timer.id.to_string()),
            key: timer.key.as_deref().map(str::to_owned),
            attempt: Some(timer.failures.saturating_add(1)),
            detail,
            ..event(kind, namespace)
        });
        Ok(())
    }

    /// Prolongs a receiver's claim (its hold on a fetched timer). The claim may be open on another node. Returns the
    /// moment at which the claim expires.
    pub(crate) async fn renew_claim(&self, namespace: &str, claim: &str) -> Result<Moment, Problem> {
        let renewed = self.queues.renew(namespace, claim).await;
        let Some(remote_claims) = &self.remote_claims else { return renewed };
        match renewed {
            Ok(until) => {
                // The receiver may have ended the claim at another node. This node notices that only when it next
                // renews the timer's lease.
                remote_claims.check(namespace, claim).await?;
                Ok(until)
            }
            Err(problem) if problem.kind == ProblemKind::ClaimEnded => {
                remote_claims.renew(namespace, claim).await
            }
            Err(problem) => Err(problem),
        }
    }

    /// Returns the version of the document with the renewed claims of a namespace, or `None` if it cannot be read or is
    /// not there.
    pub(crate) async fn renewals(&self, namespace: &str) -> Option<u64> {
        self.remote_claims.as_ref()?.version(namespace).await
    }

    /// Forgets the renewed claims of a namespace that was removed, if their document still has the version `version`.
    pub(crate) async fn forget(&self, namespace: &str, version: u64) {
        if let Some(remote_claims) = &self.remote_claims {
            remote_claims.forget(namespace, version).await;
        }
    }

    /// Stops handing timers to receivers, and ends the receivers' waits. Parks the fetched timers whose deliveries have
    /// not ended: these timers stay in the store without a delivery. A timer that is delivered at most once fails
    /// instead if its receiver has got it. Afterwards this process makes no parked timer due again.
    pub(crate) fn close(&self) {
        // The index is closed first. The reconciler checks the index when it is woken, and timers that the queues park
        // below must not be unparked again.
        self.parked.close();
        self.reconciler.close();
        self.queues.close();
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries").field("queues", &self.queues.open()).finish_non_exhaustive()
    }
}
