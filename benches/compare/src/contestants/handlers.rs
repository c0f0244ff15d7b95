//! Handlers for contestants that do not say how many timers they have: each timer's closure has a reference to the
//! handler, as it would have without being counted, and loses it when it is dropped.

use super::OnFire;
use crate::common::Payload;
use std::sync::Arc;

/// The handler for what fires. Clones are for callers, and are not counted.
#[derive(Clone)]
pub(super) struct Handlers(Arc<Counted>);

struct Counted {
    on_fire: Handler,
}

/// A timer's.
pub(super) type Handler = Arc<dyn Fn(Payload) + Send + Sync>;

impl Handlers {
    pub(super) fn new(on_fire: impl OnFire) -> Self {
        Self(Arc::new(Counted { on_fire: Arc::new(on_fire) }))
    }

    #[inline]
    pub(super) fn of_timer(&self) -> Handler {
        Arc::clone(&self.0.on_fire)
    }

    /// Timers that have not been dropped: what fires has its handler until that has returned.
    pub(super) fn timers(&self) -> usize {
        Arc::strong_count(&self.0.on_fire) - 1
    }
}
