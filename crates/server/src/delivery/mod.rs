//! Deliveries: what happens when a timer is due.
//!
//! ```text
//!   durable's loop ──► callback ─┐        ┌─► places, rate       what a delivery may not do now is parked under a reason
//!                  ──► pull ─────┴► gates ┘                       │
//!        ▲               │ desk ◄── receivers                     ▼
//!        └── unpark ── usher ◄── board ◄── watch (parks that are stored), places and desk (room), namespaces (changes)
//!                                └── doubts ◄── watch (ends that the store has not answered)
//! ```

mod board;
mod callback;
mod desk;
mod died;
mod doubt;
mod elsewhere;
mod ends;
mod gates;
mod pause;
mod places;
mod pull;
mod rate;
mod reason;
#[cfg(test)]
mod tests;
mod usher;
mod watch;

pub(crate) use desk::Desk;
pub(crate) use places::MOST_WAITING;
pub(crate) use reason::Reason;

use crate::record::{Endpoints, Flights};
use crate::service::{Counters, Events, Namespaces, event};
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::work::{CALLBACK, PULL};
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use tourbillon_api::{self as api, EventKind, Moment, Problem, ProblemKind};
use tourbillon_callback::Caller;
use tourbillon_durable::store::Durability;
use tourbillon_durable::{Builder, Timers, Verdict};
use tourbillon_redis::RedisStore;

/// The deliveries of a service.
pub(crate) struct Deliveries {
    callbacks: Arc<callback::Callbacks>,
    pulls: Arc<pull::Pulls>,
    watch: Arc<watch::Watch>,
    doubts: Arc<doubt::Doubts>,
    events: Events,
    board: Arc<board::Board>,
    desk: Arc<Desk>,
    elsewhere: Option<elsewhere::Elsewhere>,
    usher: Arc<usher::Usher>,
    gates: Arc<gates::Gates>,
}

impl Deliveries {
    pub(crate) fn new(
        settings: &Settings,
        caller: &Caller,
        namespaces: &Arc<Namespaces>,
        events: &Events,
        counters: &Arc<Counters>,
        (flights, endpoints, telemetry): (&Arc<Flights>, &Arc<Endpoints>, &Telemetry),
    ) -> Self {
        let board = Arc::new(board::Board::default());
        let patience = pause::Patience { least: settings.least_pause };
        let most = (settings.concurrency, settings.host_concurrency, settings.caller.hosts.concurrency);
        let gates = Arc::new(gates::Gates::new(Arc::clone(namespaces), Arc::clone(&board), most));
        let desk = Arc::new(Desk::new(Arc::clone(&board), settings.open_claims, namespaces.is_shared()));
        let doubts = Arc::new(doubt::Doubts::default());
        let watch = Arc::new(watch::Watch {
            events: events.clone(),
            board: Arc::clone(&board),
            doubts: Arc::clone(&doubts),
            counters: Arc::clone(counters),
            flights: Arc::clone(flights),
            ends: ends::Ends::default(),
        });
        let callbacks = callback::Callbacks::new(
            caller.clone(),
            Arc::clone(&gates),
            (Arc::clone(&watch), Arc::clone(flights), Arc::clone(endpoints)),
            (settings.rules, patience, telemetry.clone()),
        );
        let elsewhere = namespaces.shared().map(|store| elsewhere::Elsewhere::new(store, patience));
        let seen = (Arc::clone(&watch), patience, telemetry.clone());
        let pulls = pull::Pulls::new(Arc::clone(&gates), Arc::clone(&desk), seen, elsewhere.clone());
        let usher = Arc::new(usher::Usher::new(Arc::clone(&board), Arc::clone(&gates), Arc::clone(&desk)));
        let (callbacks, pulls, events) = (Arc::new(callbacks), Arc::new(pulls), events.clone());
        Self { callbacks, pulls, watch, doubts, events, board, desk, elsewhere, usher, gates }
    }

    /// Adds the handlers of all kinds, and the observer.
    pub(crate) fn add_to(&self, builder: Builder) -> Builder {
        let (callbacks, pulls) = (Arc::clone(&self.callbacks), Arc::clone(&self.pulls));
        let watch = Arc::clone(&self.watch);
        builder
            // A receiver is answered once the store has the end of its claim.
            .end_durability(Durability::ProcessCrash)
            .bytes_handler(CALLBACK, move |work, delivery| {
                let callbacks = Arc::clone(&callbacks);
                async move { callbacks.deliver(&work, &delivery).await }
            })
            .bytes_handler(PULL, move |work, delivery| {
                let pulls = Arc::clone(&pulls);
                async move { pulls.deliver(&work, &delivery).await }
            })
            .observe(move |event| watch.observe(event))
    }

    /// Begins to put parked timers back. Must be called on a tokio runtime.
    pub(crate) fn begin(&self, timers: &Timers, shared: Option<&RedisStore>) {
        let store = timers.timer_store();
        if let Some(shared) = shared {
            let desk = Arc::downgrade(&self.desk);
            shared.on_parked(move |reason| {
                let reason = reason.map(Reason::parse);
                if let Some(desk) = desk.upgrade()
                    // A reason that is none of the service's, or that is no queue's, concerns no receiver.
                    && matches!(reason, None | Some(Some(Reason::Queue(..))))
                {
                    desk.heard(reason.flatten().as_ref());
                }
            });
        }
        let (doubts, board, usher) = (&self.doubts, Arc::clone(&self.board), Arc::clone(&self.usher));
        let (doubts, events) = (Arc::clone(doubts), self.events.clone());
        drop(tokio::spawn(doubts.run(store, board, usher, events)));
        drop(tokio::spawn(Arc::clone(&self.usher).run(timers.clone(), self.elsewhere.is_some())));
    }

    /// Looks at all parked timers again, after a change of a namespace.
    pub(crate) fn look_everywhere(&self) {
        self.board.look_everywhere();
    }

    /// Shuts a host no longer, and puts the timers back that are parked for it: a few first, and more once it answers.
    pub(crate) fn reopen(&self, host: &str) {
        self.gates.reopen(host);
    }

    /// The number of parked timers by the reason, as far as is known.
    pub(crate) fn parked(&self) -> BTreeMap<Reason, u64> {
        self.board.counts()
    }

    /// The desk at which receivers fetch timers.
    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Ends the delivery of a claim, on whatever node it is open. Returns once the store has the end.
    pub(crate) async fn end_claim(
        &self,
        namespace: &str,
        claim: &str,
        verdict: Verdict,
    ) -> Result<(), Problem> {
        if let Some(ended) = self.desk.end(namespace, claim, verdict.clone()).await {
            return ended;
        }
        let Some(elsewhere) = &self.elsewhere else { return Err(desk::ended()) };
        let timer = elsewhere.end(namespace, claim, &verdict).await?;
        let (kind, detail) = match &verdict {
            Verdict::Retry { error, .. } | Verdict::Dead(error) => {
                (EventKind::Failed, Some(error.to_string()))
            }
            _ => (EventKind::Delivered, None),
        };
        self.events.show(|| api::Event {
            id: Some(timer.id.to_string()),
            key: timer.key.as_deref().map(str::to_owned),
            attempt: Some(timer.failures.saturating_add(1)),
            detail,
            ..event(kind, namespace)
        });
        Ok(())
    }

    /// Prolongs a claim, on whatever node it is open. Returns the moment at which its time is over.
    pub(crate) async fn renew_claim(&self, namespace: &str, claim: &str) -> Result<Moment, Problem> {
        match (self.desk.renew(namespace, claim).await, &self.elsewhere) {
            (Err(problem), Some(elsewhere)) if problem.kind == ProblemKind::ClaimEnded => {
                elsewhere.renew(namespace, claim).await
            }
            (renewed, _) => renewed,
        }
    }

    /// Sends receivers away, gives back what they had, and puts no more timers back.
    pub(crate) fn close(&self) {
        self.board.close();
        self.doubts.close();
        self.desk.close();
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries").field("desk", &self.desk.open()).finish_non_exhaustive()
    }
}
