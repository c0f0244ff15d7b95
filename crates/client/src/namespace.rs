//! Offers the calls about a namespace of a service: its timers, its limits and its secrets.

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
    AckAnswer, AckResult, Acks, Batch, BatchAnswer, CancelMany, Changed, LimitsPatch, Nack, NamespaceLimits,
    NamespaceView, NewSchedule, NewSecret, NewTimer, Operation, OperationState, Page, Preview, QueueView,
    Renewed, ReplayMany,
};

/// Gives access to a namespace. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Namespace {
    transport: Arc<Transport>,
    /// The path of the namespace on the service, `/v1/namespaces/{name}`.
    path: Arc<str>,
}

impl Namespace {
    pub(crate) fn new(transport: Arc<Transport>, name: &str) -> Self {
        Self { transport, path: join(&["v1", "namespaces", name]).into() }
    }

    /// Returns the path of an object in the namespace. `segments` are the segments below the namespace's path.
    fn below(&self, segments: &[&str]) -> String {
        let mut path = String::from(&*self.path);
        segments.iter().for_each(|segment| push(&mut path, segment));
        path
    }

    /// Prepares the creation of a timer. Awaiting the result sends the request. The request has an idempotency key,
    /// which is fresh by default. So the client can repeat the request after an unknown outcome, and the service still
    /// makes a single timer.
    #[must_use = "the timer is made when this is awaited"]
    pub fn place<'a>(&'a self, timer: &'a NewTimer) -> Place<'a> {
        Place::new(&self.transport, &self.path, timer)
    }

    /// Gives access to the timer with this key. Sends no request.
    #[must_use]
    pub fn key(&self, key: &str) -> TimerAt<'_> {
        TimerAt::new(&self.transport, &self.path, "timers", key)
    }

    /// Gives access to the timer with this id. Sends no request.
    #[must_use]
    pub fn id(&self, id: &str) -> TimerAt<'_> {
        TimerAt::new(&self.transport, &self.path, "ids", id)
    }

    /// Delivers a dead timer again, as if it were new. A timer is dead if the service has given up its delivery, for
    /// example after too many failures. The timer is found by its id, because its key may now belong to another timer.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `not-found`, with `wrong-phase` if the timer is not dead, or with
    /// `key-exists` if another timer has its key by now.
    pub async fn replay(&self, id: &str) -> Result<Changed, Error> {
        self.id(id).verb("replay").await
    }

    /// Makes a list of all timers of the namespace. Conditions can narrow the list. Sends no request.
    #[must_use]
    pub fn list(&self) -> List {
        List::new(Arc::clone(&self.transport), self.below(&["timers"]))
    }

    /// Gives access to the schedule with this key. Sends no request.
    #[must_use]
    pub fn schedule(&self, key: &str) -> ScheduleAt<'_> {
        ScheduleAt::new(&self.transport, &self.path, key)
    }

    /// Makes a list of the namespace's schedules, which is read page by page. Sends no request.
    #[must_use]
    pub fn schedules(&self) -> SchedulePages {
        SchedulePages::new(Arc::clone(&self.transport), self.below(&["schedules"]))
    }

    /// Returns the next ten instants at which a schedule would make timers. Does not make the schedule.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn preview(&self, schedule: &NewSchedule) -> Result<Preview, Error> {
        let call = Call::change(Method::POST, self.below(&["previews"])).json(schedule)?;
        self.transport.send(&Call { effect: Effect::Read, ..call }).await
    }

    /// Makes many changes in one transaction, in the order of the batch. The request is never repeated.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If a single change is refused, its answer says so, and the call succeeds.
    pub async fn batch(&self, batch: &Batch) -> Result<BatchAnswer, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["batch"])).json(batch)?).await
    }

    /// Starts an operation (a change of many timers in the background) that cancels timers.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn cancel_many(&self, which: &CancelMany) -> Result<Operation, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["cancellations"])).json(which)?).await
    }

    /// Starts an operation (a change of many timers in the background) that delivers dead timers again, as
    /// [`replay`](Self::replay) does for a single timer.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn replay_many(&self, which: &ReplayMany) -> Result<Operation, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["replays"])).json(which)?).await
    }

    /// Returns the queues in which timers or receivers wait, sorted by name.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        self.transport.send(&Call::read(self.below(&["queues"]))).await
    }

    /// Returns the operations (changes of many timers in the background) that are running or ended within the last
    /// hour. The newest operation comes first.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn operations(&self) -> Result<Vec<Operation>, Error> {
        let page: Page<Operation> = self.transport.send(&Call::read(self.below(&["operations"]))).await?;
        Ok(page.items)
    }

    /// Returns the state of an operation (a change of many timers in the background).
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn operation(&self, id: &str) -> Result<Operation, Error> {
        self.transport.send(&Call::read(self.below(&["operations", id]))).await
    }

    /// Waits until an operation has ended. Checks its state after 50 ms, and then less and less often, but at least
    /// once a second. Calls `progress` with each state.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If the operation has failed, the call still succeeds.
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

    /// Gives access to the queue with this name, from which the program fetches timers. Sends no request.
    #[must_use]
    pub fn queue(&self, name: &str) -> Queue {
        Queue::new(Arc::clone(&self.transport), self.below(&["queues", name, "claims"]))
    }

    /// Acknowledges a fetched timer: its delivery succeeded. Returns once the service has stored the acknowledgement.
    /// From then on, the service does not hand out the timer again, even if the service is killed. With a store in a
    /// file, a power failure within about 20 ms can still lose the acknowledgement. The timer is then delivered again,
    /// with the same id.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Fails with the problem `claim-ended` if the claim (the lease on the timer) had expired. The timer
    /// is then delivered again, or already was. After an unknown outcome, the call may be repeated. If a repeated call
    /// fails with `claim-ended`, the first call may have taken effect.
    pub async fn ack(&self, claim: &str) -> Result<(), Error> {
        self.settle(&Call::change(Method::POST, self.below(&["claims", claim, "ack"]))).await
    }

    /// Acknowledges several fetched timers, at most 100, in one request. Each has a result as from
    /// [`ack`](Self::ack), in the order of `claims`: a problem, or `None` if the timer is acknowledged.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If a single claim had expired, its result says so, and the call succeeds. After an unknown
    /// outcome, some of the timers may be acknowledged.
    pub async fn ack_many(&self, claims: &[String]) -> Result<Vec<AckResult>, Error> {
        if claims.iter().any(String::is_empty) {
            return Err(Error::Invalid("the name of a claim is empty".into()));
        }
        let acks = Acks { claims: claims.to_vec() };
        let call = Call::change(Method::POST, self.below(&["claims", "ack"])).json(&acks)?;
        let AckAnswer { results } = self.transport.send(&call).await?;
        Ok(results)
    }

    /// Reports that the delivery of a fetched timer has failed, or that the receiver puts the timer off
    /// ([`Nack::snooze_ms`]).
    ///
    /// # Errors
    ///
    /// Fails as [`Namespace::ack`] does.
    pub async fn nack(&self, claim: &str, nack: &Nack) -> Result<(), Error> {
        self.settle(&Call::change(Method::POST, self.below(&["claims", claim, "nack"])).json(nack)?).await
    }

    /// Renews the claim of a fetched timer. The time limit of the delivery attempt, which the timer's policy sets,
    /// begins again now.
    ///
    /// # Errors
    ///
    /// Fails as [`Namespace::ack`] does.
    pub async fn renew(&self, claim: &str) -> Result<Renewed, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["claims", claim, "renew"]))).await
    }

    async fn settle(&self, call: &Call) -> Result<(), Error> {
        self.transport.send_for(call, |_| Ok(())).await
    }

    /// Returns the limits of the namespace, and the present numbers of its timers and schedules.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn view(&self) -> Result<NamespaceView, Error> {
        self.transport.send(&Call::read(self.path.to_string())).await
    }

    /// Makes the namespace with these limits, or replaces all limits of an existing namespace.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn set(&self, limits: &NamespaceLimits) -> Result<NamespaceView, Error> {
        self.transport.send(&Call::change(Method::PUT, self.path.to_string()).json(limits)?).await
    }

    /// Changes the limits that the patch sets. The other limits of the namespace stay. Makes the namespace if it does
    /// not exist.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn patch(&self, patch: &LimitsPatch) -> Result<NamespaceView, Error> {
        self.transport.send(&Call::change(Method::PATCH, self.path.to_string()).json(patch)?).await
    }

    /// Removes the namespace.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn delete(&self) -> Result<(), Error> {
        self.settle(&Call::change(Method::DELETE, self.path.to_string())).await
    }

    /// Makes a new secret, with which the service signs the callbacks of the namespace. For a while, the service signs
    /// each callback also with the older secrets.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn rotate_secret(&self) -> Result<NewSecret, Error> {
        self.transport.send(&Call::change(Method::POST, self.below(&["secrets"]))).await
    }
}
