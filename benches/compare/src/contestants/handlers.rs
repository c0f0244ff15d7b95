//! Counts timers of contestants that do not count them: each timer's closure has a reference to the handler, which it
//! would have without the count, and gives it up when it is dropped.

use super::OnFire;
use crate::common::Payload;
use std::sync::Arc;

/// The handler of timers that fire. Clones are for callers, and are not counted.
#[derive(Clone)]
pub(super) struct Handlers(Arc<Counted>);

struct Counted {
    on_fire: Handler,
}

/// The reference of a timer to the handler.
pub(super) type Handler = Arc<dyn Fn(Payload) + Send + Sync>;

impl Handlers {
    pub(super) fn new(on_fire: impl OnFire) -> Self {
        Self(Arc::new(Counted { on_fire: Arc::new(on_fire) }))
    }

    #[inline]
    pub(super) fn of_timer(&self) -> Handler {
        Arc::clone(&self.0.on_fire)
    }

    /// The number of timers that have not been dropped: a timer that fires has its handler until the handler has
    /// returned.
    pub(super) fn timers(&self) -> usize {
        Arc::strong_count(&self.0.on_fire) - 1
    }
}
