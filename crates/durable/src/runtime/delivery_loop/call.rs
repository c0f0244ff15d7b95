//! Wraps a call at the store. The loop polls the call between its steps, and does not wait for it.

use crate::panics::survive;
use crate::store::{StoreError, StoreErrorKind, StoreFuture};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

/// The future that returns the store's answer to a call. If the store panics during a poll, the future returns an
/// error. If the store panics while the future is dropped, the panic is caught.
pub(super) struct Call<T>(Option<StoreFuture<'static, T>>);

impl<T> Call<T> {
    pub(super) fn new(call: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(Some(Box::pin(call)))
    }
}

/// Returns the error of a call during which the store panicked.
pub(super) fn store_panicked() -> StoreError {
    StoreError::new(StoreErrorKind::Unknown, "the store panicked")
}

impl<T> Future for Call<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The call is missing only during the drop, when nothing polls this future any longer.
        let Some(call) = &mut self.0 else { return Poll::Pending };
        survive(|| call.as_mut().poll(context)).unwrap_or_else(|| Poll::Ready(Err(store_panicked())))
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        let call = self.0.take();
        survive(|| drop(call));
    }
}
