//! The body of an answer.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of an answer: a block of bytes that repeats until `left` bytes have been sent.
#[derive(Debug)]
pub(super) struct Content {
    block: Bytes,
    left: u64,
}

impl Content {
    pub(super) fn once(block: impl Into<Bytes>) -> Self {
        let block = block.into();
        let left = block.len() as u64;
        Self { block, left }
    }

    /// Makes a body of `count` dots. The memory holds a single block, which is sent again and again.
    pub(super) fn dots(count: u64) -> Self {
        Self { block: Bytes::from_static(&[b'.'; 1 << 16]), left: count }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let block = self.block.slice(..most.min(self.block.len()));
        self.left -= block.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(block))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
