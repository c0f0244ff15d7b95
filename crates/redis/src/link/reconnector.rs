//! A task that keeps a connection open: when the connection ends, the task tries to connect until it succeeds.

use super::dial::{Dial, Wire, former};
use super::roles::Roles;
use super::witness::OnEnd;
use core::time::Duration;
use redis::RedisError;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep};

/// The shortest pause between two attempts to connect. Each pause is twice as long as the pause before it, up to
/// `LONGEST`.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// If a connection was open for at least this time before it ended, the pauses between attempts to connect start with
/// `SHORTEST` again.
const LASTING: Duration = Duration::from_secs(5);

/// The state of a connection that a task keeps open.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// The number of the attempt to connect that made the present connection. Without a connection, the number of the
    /// attempt that is under way. The first attempt has the number 1.
    pub(crate) attempt: u64,
    pub(crate) connection: Option<Wire>,
    /// The error of the last attempt to connect, or `None` if that attempt succeeded.
    pub(crate) trouble: Option<RedisError>,
}

/// A handle to a connection that a task keeps open. The task ends when its last handle is dropped.
#[derive(Clone)]
pub(crate) struct Reconnector {
    states: watch::Receiver<State>,
    doubts: mpsc::UnboundedSender<u64>,
    _task: Arc<Task>,
}

/// Aborts a task when this value is dropped.
pub(crate) struct Task(AbortHandle);

impl Task {
    pub(crate) fn of<T>(task: &JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reconnector {
    /// Starts the task that keeps a connection open, on the caller's runtime.
    pub(crate) fn start(dial: Arc<Dial>) -> Self {
        let (state, states) = watch::channel(State::default());
        let (doubts, doubted) = mpsc::unbounded_channel();
        let task = tokio::spawn(keep(dial, state, doubted, doubts.clone()));
        Self { states, doubts, _task: Arc::new(Task::of(&task)) }
    }

    pub(crate) fn state(&self) -> State {
        self.states.borrow().clone()
    }

    /// Waits for a connection. Returns the connection, and the number of the attempt that made the connection. Returns
    /// `None` if the runtime ends.
    pub(crate) async fn connection(&mut self) -> Option<(u64, Wire)> {
        let state = self.states.wait_for(|state| state.connection.is_some()).await.ok()?;
        Some((state.attempt, state.connection.clone()?))
    }

    /// Replaces the kept connection if the Sentinels name another server as the primary.
    pub(crate) async fn leave_others(&self, roles: &Roles) {
        let state = self.state();
        if state.connection.is_some_and(|wire| !roles.permit(wire.primary.as_ref(), Instant::now())) {
            self.doubt(state.attempt).await;
        }
    }

    /// Ends the use of the connection that was made by the attempt with the number `attempt`. So the next call waits
    /// for a new connection. Does nothing if that connection has been replaced already.
    pub(crate) async fn doubt(&self, attempt: u64) {
        // While there is a handle, the task ends only with its runtime.
        if self.doubts.send(attempt).is_ok() {
            // The task receives the doubt later. Without this wait, the caller's next attempt could take the same
            // connection again.
            let is_over = |state: &State| state.attempt != attempt || state.connection.is_none();
            drop(self.states.clone().wait_for(is_over).await);
        }
    }
}

/// Stores a new connection, and returns true. If its server is a former primary, stores an error instead and returns
/// false. The attempt to connect began at the moment `begun`.
fn store(states: &watch::Sender<State>, roles: &Roles, connection: &Wire, begun: Instant) -> bool {
    let mut is_permitted = false;
    states.send_modify(|state| {
        // The check is made under the lock of the state. So either an event of a Sentinel comes before this check, or
        // `leave_others` finds the connection after the event.
        is_permitted = roles.take(connection.primary.as_ref(), begun);
        if is_permitted {
            (state.connection, state.trouble) = (Some(connection.clone()), None);
        } else {
            state.trouble = Some(former());
        }
    });
    is_permitted
}

async fn keep(
    dial: Arc<Dial>,
    states: watch::Sender<State>,
    mut doubted: mpsc::UnboundedReceiver<u64>,
    doubts: mpsc::UnboundedSender<u64>,
) {
    let mut pause = SHORTEST;
    for attempt in 1.. {
        states.send_modify(|state| state.attempt = attempt);
        let on_end: OnEnd = {
            let doubts = doubts.clone();
            Arc::new(move || _ = doubts.send(attempt))
        };
        let begun = Instant::now();
        let made = {
            let dial = Arc::clone(&dial);
            // A separate task makes the connection, so that a panic of the driver only fails the attempt.
            tokio::spawn(async move { dial.connect(on_end).await }).await
        };
        match made {
            Ok(Ok(connection)) if store(&states, dial.roles(), &connection, begun) => {
                let start = Instant::now();
                loop {
                    match doubted.recv().await {
                        // The channel never closes, because this function has a sender, too. The last handle aborts the
                        // task.
                        None => return,
                        Some(number) if number == attempt => break,
                        // This connection has already been replaced.
                        Some(_) => {}
                    }
                }
                // Calls under way have clones of the connection, and end by themselves.
                states.send_modify(|state| state.connection = None);
                if start.elapsed() >= LASTING {
                    pause = SHORTEST;
                }
            }
            Ok(Err(error)) => states.send_modify(|state| state.trouble = Some(error)),
            Ok(Ok(_)) | Err(_) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::super::primary::Primary;
    use super::super::roles::FRESH;
    use super::*;
    use crate::Connect;
    use tourbillon_fault::Server;

    /// Tests an attempt to connect that takes longer than `FRESH`, the time for which an event of a Sentinel
    /// counts. The event comes during the attempt, after a Sentinel has named the former primary.
    #[test]
    fn a_connection_to_a_former_primary_is_not_stored_after_a_long_attempt() {
        let Some(server) = Server::start(&[]) else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dial = Dial::new(Connect::single(&server.url()).unwrap()).unwrap();
            let made = dial.connect(Arc::new(|| {})).await.unwrap();
            let primary = Primary { address: ("a".into(), 1), epoch: 1, is_of_most: true };
            let former = Wire { primary: Some(primary), ..made };
            let [begun, event, later] =
                [3, 2, 1].map(|times| Instant::now().checked_sub(FRESH * times).unwrap());
            dial.roles().name_at(("b".into(), 1), event);
            let states = watch::channel(State::default()).0;
            assert!(!store(&states, dial.roles(), &former, begun));
            assert!(states.borrow().connection.is_none() && states.borrow().trouble.is_some());
            assert!(store(&states, dial.roles(), &former, later), "an old event before the attempt");
            assert!(states.borrow().connection.is_some());
        });
    }
}
