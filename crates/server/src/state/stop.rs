//! Signals to all parts of the service that the service stops.

use tokio::sync::watch;

/// A flag that is set once the service begins to stop. Clones share the flag.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Sender<bool>);

impl Stop {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the service begins to stop.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as this value, so the wait cannot fail.
        let _never_closed = receiver.wait_for(|stops| *stops).await;
    }
}
