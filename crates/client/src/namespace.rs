//! A namespace: its timers, its limits and its secrets.

use crate::error::Error;
use crate::pages::List;
use crate::path::{join, push};
use crate::place::Place;
use crate::queue::Queue;
use crate::schedule::{ScheduleAt, SchedulePages};
use crate::timer::TimerAt;
use crate::transport::{Call, Effect, Transport};
use core::time::Duration;
use http::Method;
use std::sync::Arc;
use tourbillon_api::{
    Batch, BatchAnswer, CancelMany, Changed, Nack, NamespaceLimits, NamespaceView, NewSchedule, NewSecret,
    NewTimer, Operation, OperationState, Page, Preview, QueueView, Renewed, ReplayMany,
};

/// The timers of one namespace. It can be cloned cheaply.
#[derive(Clone, Debug)]
pub struct Namespace {
    transport: Arc<Transport>,
    /// The path `/v1/namespaces/{name}`.
    path: Arc<str>,
}

impl Namespace {
    pub(crate) fn new(transport: Arc<Transport>, name: &str) -> Self {
        Self { transport, path: join(&["v1", "namespaces", name]).into() }
    }

    /// A path below the namespace's.
    fn below(&self, segments: &[&str]) -> String {
        let mut path = String::from(&*self.path);
        segments.iter().for_each(|segment| push(&mut path, segment));
        path
    }

    /// Makes a timer, once the returned value is awaited. Such a request carries an idempotency key, a fresh one by
    /// default, so that it is repeated if its outcome is unknown, and yet makes one timer.
    #[must_use = "the timer is made when this is awaited"]
    pub fn place<'a>(&'a self, timer: &'a NewTimer) -> Place<'a> {
        Place::new(&self.transport, &self.path, timer)
    }

    /// The timer with this key. The call asks the service nothing.
    #[must_use]
    pub fn key(&self, key: &str) -> TimerAt<'_> {
        TimerAt::new(&self.transport, &self.path, "timers", key)
    }

    /// The timer with this id. The call asks the service nothing.
    #[must_use]
    pub fn id(&self, id: &str) -> TimerAt<'_> {
        TimerAt::new(&self.transport, &self.path, "ids", id)
    }

    /// Delivers the dead timer with this id again, as if it were new. A dead timer has left its key to others, so that
    /// it has its id only.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found`, with `wrong-phase` if the timer is not dead, or with
    /// `key-exists` if another timer has its key by now.
    pub async fn replay(&self, id: &str) -> Result<Changed, Error> {
        self.id(id).verb("replay").await
    }

    /// A list of timers, all of the namespace unless it is narrowed.
    #[must_use]
    pub fn list(&self) -> List {
        List::new(Arc::clone(&self.transport), self.below(&["timers"]))
    }

    /// The schedule with this key. The call asks the service nothing.
    #[must_use]
    pub fn schedule(&self, key: &str) -> ScheduleAt<'_> {
        ScheduleAt::new(&self.transport, &self.path, key)
    }

    /// The namespace's schedules, a page at a time. The call asks the service nothing.
    #[must_use]
    pub fn schedules(&self) -> SchedulePages {
        SchedulePages::new(Arc::clone(&self.transport), self.below(&["schedules"]))
    }

    /// The next ten instants of a schedule that is not made.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn preview(&self, schedule: &NewSchedule) -> Result<Preview, Error> {
        let call = Call::change(Method::POST, self.below(&["previews"])).json(schedule)?;
        self.transport.send(&Call { effect: Effect::Read, ..call }).await
    }

    /// Makes many changes, in order, in one transaction. It is not repeated.
    ///
    /// # Errors
    ///
    /// See [`Error`]. A change that was refused is a part of the answer.
    pub async fn batch(&self, batch: &Batch) -> Result<BatchAnswer, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["batch"])).json(batch)?).await
    }

    /// Begins to cancel many timers.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn cancel_many(&self, which: &CancelMany) -> Result<Operation, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["cancellations"])).json(which)?).await
    }

    /// Begins to replay dead timers.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn replay_many(&self, which: &ReplayMany) -> Result<Operation, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["replays"])).json(which)?).await
    }

    /// The queues in which timers or receivers wait, by name.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        self.transport.send(&Call::read(self.below(&["queues"]))).await
    }

    /// The operations that run, or have ended within the last hour, the newest first.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn operations(&self) -> Result<Vec<Operation>, Error> {
        let page: Page<Operation> = self.transport.send(&Call::read(self.below(&["operations"]))).await?;
        Ok(page.items)
    }

    /// An operation.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn operation(&self, id: &str) -> Result<Operation, Error> {
        self.transport.send(&Call::read(self.below(&["operations", id]))).await
    }

    /// Waits until an operation has ended, and asks for its state after 50 ms, then ever more seldom, in the end each
    /// second. `progress` is called with each state.
    ///
    /// # Errors
    ///
    /// See [`Error`]. An operation that failed is not an error.
    pub async fn wait_for(
        &self,
        operation: Operation,
        mut progress: impl FnMut(&Operation) + Send,
    ) -> Result<Operation, Error> {
        let mut operation = operation;
        let mut pause = Duration::from_millis(50);
        progress(&operation);
        while operation.state == OperationState::Running {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
            operation = self.operation(&operation.id).await?;
            progress(&operation);
        }
        Ok(operation)
    }

    /// A queue from which timers are fetched. The call asks the service nothing.
    #[must_use]
    pub fn queue(&self, name: &str) -> Queue {
        Queue::new(Arc::clone(&self.transport), self.below(&["queues", name, "claims"]))
    }

    /// Ends the delivery of a timer that was fetched: the timer is done. Returns once the service has stored that: a
    /// service that is killed does not hand the timer over again. In a file, a loss of power within some 20 ms can
    /// still take the end, and the timer is delivered again under the same id.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `claim-ended` if the time of the claim was over: then the timer is, or
    /// was, delivered again. After an error whose outcome is unknown the call may be repeated; `claim-ended` can mean
    /// then that the first call has had its effect.
    pub async fn ack(&self, claim: &str) -> Result<(), Error> {
        self.settle(&Call::change(Method::POST, self.below(&["claims", claim, "ack"]))).await
    }

    /// Says that the delivery of a timer that was fetched has failed.
    ///
    /// # Errors
    ///
    /// As [`Namespace::ack`].
    pub async fn nack(&self, claim: &str, nack: &Nack) -> Result<(), Error> {
        self.settle(&Call::change(Method::POST, self.below(&["claims", claim, "nack"])).json(nack)?).await
    }

    /// Prolongs the delivery of a timer that was fetched, by the time that the timer's policy gives one attempt.
    ///
    /// # Errors
    ///
    /// As [`Namespace::ack`].
    pub async fn renew(&self, claim: &str) -> Result<Renewed, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["claims", claim, "renew"]))).await
    }

    async fn settle(&self, call: &Call) -> Result<(), Error> {
        self.transport.send_for(call, |_| Ok(())).await
    }

    /// The namespace as the service shows it.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn view(&self) -> Result<NamespaceView, Error> {
        self.transport.send(&Call::read(self.path.to_string())).await
    }

    /// Makes the namespace, or sets all its limits.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn set(&self, limits: &NamespaceLimits) -> Result<NamespaceView, Error> {
        self.transport.send(&Call::change(Method::PUT, self.path.to_string()).json(limits)?).await
    }

    /// Removes the namespace.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn delete(&self) -> Result<(), Error> {
        self.settle(&Call::change(Method::DELETE, self.path.to_string())).await
    }

    /// Makes a new signing secret. Those before it sign too for a while.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn rotate_secret(&self) -> Result<NewSecret, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["secrets"]))).await
    }
}
