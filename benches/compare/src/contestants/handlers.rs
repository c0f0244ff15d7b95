//! Counts the timers of contestants that do not count them. Each timer's closure refers to the handler, as it would
//! without the count. It drops this reference when it is dropped itself.

use super::OnFire;
use crate::common::Payload;
use std::sync::Arc;

/// The handler of timers that fire. Clones serve callers, and do not count as timers.
#[derive(Clone)]
pub(super) struct Handlers(Arc<Counted>);

struct Counted {
    on_fire: Handler,
}

/// A timer's reference to the handler.
pub(super) type Handler = Arc<dyn Fn(Payload) + Send + Sync>;

impl Handlers {
    pub(super) fn new(on_fire: impl OnFire) -> Self {
        Self(Arc::new(Counted { on_fire: Arc::new(on_fire) }))
    }

    #[inline]
    pub(super) fn of_timer(&self) -> Handler {
        Arc::clone(&self.0.on_fire)
    }

    /// Returns the number of timers that have not been dropped. A timer that fires counts until its handler has
    /// returned.
    pub(super) fn timers(&self) -> usize {
        Arc::strong_count(&self.0.on_fire) - 1
    }
}
