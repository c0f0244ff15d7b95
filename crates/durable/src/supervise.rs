//! Wraps the call of a handler as work for an executor. The work catches a panic of the handler. It drops the handler's
//! future once the end of the delivery is decided.

use crate::delivery::{Delivery, Permission, Settlement};
use crate::executor::Work;
use crate::handler::{Answering, Handler};
use crate::panics::{message_of, survive, survive_or};
use crate::verdict::Verdict;
use core::any::Any;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

/// The calls that the work of a delivery makes to the runtime that runs the delivery.
pub(crate) trait Supervisor: Send + Sync {
    /// Returns whether the handler of the delivery `number` may be called. The handler must not be called in these
    /// cases:
    ///
    /// - The delivery is already settled ([`Settlement`]).
    /// - The lease of the delivery has expired, for example during a long SIGSTOP. Another process may already deliver
    ///   the timer. In this case, `may_call` also gives up the lease ([`Op::Release`](crate::store::Op::Release)).
    /// - The timer is delivered at most once, and the store has not removed it. If the handler does not begin its
    ///   deliveries itself, `may_call` asks the store to remove the timer.
    fn may_call(&self, number: u64) -> Permission;

    /// Keeps the work of a delivery whose removal takes long ([`Permission::Later`]), and records that its place is
    /// free. The work is handed to an executor again once the store has removed the timer. Returns the work if the
    /// store has answered since.
    fn keep(&self, number: u64, work: Kept) -> Option<Kept>;

    /// Records the verdict of the handler of the delivery `number`.
    fn answered(&self, number: u64, verdict: Verdict);

    /// Records that the handler of the delivery `number` has returned, or that its future was dropped. If the executor
    /// dropped the work before the handler answered, the timer is delivered again after a pause. The pause is needed
    /// because the executor is likely to drop the work again. A timer that is delivered at most once is delivered again
    /// only if its delivery has not begun.
    fn returned(&self, number: u64);
}

/// The work of a single delivery, as a future that an executor polls.
struct Supervised {
    supervisor: Arc<dyn Supervisor>,
    number: u64,
    settlement: Arc<Settlement>,
    step: Step,
}

#[expect(clippy::large_enum_variant, reason = "a box is one more allocation for each delivery")]
enum Step {
    Ready(Arc<dyn Handler>, Box<[u8]>, Delivery),
    Running(Answering),
    Ended,
    /// The runtime keeps the work, and the place of the handler is free.
    Kept,
}

/// The values from which [`supervise`] makes the work of a delivery.
pub(crate) struct Assignment {
    pub(crate) supervisor: Arc<dyn Supervisor>,
    pub(crate) number: u64,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) delivery: Delivery,
    pub(crate) settlement: Arc<Settlement>,
}

/// The work of a delivery that has left its thread, because the removal of its timer takes long.
pub(crate) struct Kept {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) delivery: Delivery,
}

impl core::fmt::Debug for Kept {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Kept").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}

/// Makes the work of a delivery, for an executor to run.
pub(crate) fn supervise(assignment: Assignment) -> Work {
    let Assignment { supervisor, number, handler, payload, delivery, settlement } = assignment;
    Box::pin(Supervised { supervisor, number, settlement, step: Step::Ready(handler, payload, delivery) })
}

impl Future for Supervised {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.settlement.poll(context.waker()) {
            this.finish();
            return Poll::Ready(());
        }
        while matches!(this.step, Step::Ready(..)) {
            match this.supervisor.may_call(this.number) {
                Permission::Granted => break,
                Permission::Awaited => return Poll::Pending,
                Permission::Refused => return Poll::Ready(()),
                Permission::Later if this.is_kept() => return Poll::Ready(()),
                Permission::Later => {}
            }
        }
        let poll = || {
            // The first pattern only looks at the step, because the second pattern would also replace a running future.
            if let Step::Ready(..) = this.step
                && let Step::Ready(handler, payload, delivery) =
                    core::mem::replace(&mut this.step, Step::Ended)
            {
                this.step = Step::Running(handler.handle(payload, delivery));
            }
            match &mut this.step {
                Step::Running(answering) => answering.as_mut().poll(context),
                // This arm does not occur. A delivery whose step is `Ended` is settled, and the poll has returned
                // above.
                Step::Ready(..) | Step::Ended | Step::Kept => Poll::Ready(Verdict::Done),
            }
        };
        let error = |panic: &(dyn Any + Send)| {
            format!("the handler panicked: {}", message_of(panic).unwrap_or("no message"))
        };
        let verdict = match survive_or(poll, error) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(verdict)) => verdict,
            Err(error) => Verdict::Retry { error: error.into(), after: None },
        };
        this.supervisor.answered(this.number, verdict);
        this.finish();
        Poll::Ready(())
    }
}

impl Supervised {
    /// Leaves the thread, because the removal of the timer takes long. Returns false if the store has answered since.
    fn is_kept(&mut self) -> bool {
        let step = core::mem::replace(&mut self.step, Step::Kept);
        let Step::Ready(handler, payload, delivery) = step else { return true };
        let back = self.supervisor.keep(self.number, Kept { handler, payload, delivery });
        let Some(Kept { handler, payload, delivery }) = back else { return true };
        self.step = Step::Ready(handler, payload, delivery);
        false
    }

    /// Drops the handler's future. If the drop panics, the panic is caught.
    fn finish(&mut self) {
        let step = core::mem::replace(&mut self.step, Step::Ended);
        survive(|| drop(step));
    }
}

/// Reports to the runtime that the work of a delivery has ended, or that an executor has dropped the work early.
impl Drop for Supervised {
    fn drop(&mut self) {
        if matches!(self.step, Step::Kept) {
            return;
        }
        // `finish` drops the handler's future, so it comes before `returned`, which frees the handler's place.
        self.finish();
        self.supervisor.returned(self.number);
    }
}
