//! Wraps a handler as work for an executor. A panic of the handler is caught, and its future is dropped once its
//! delivery is over.

use crate::delivery::{Delivery, Settlement};
use crate::executor::Work;
use crate::handler::{Answering, Handler, Verdict};
use core::any::Any;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The calls by which a handler's work tells the runtime of its progress.
pub(crate) trait Supervisor: Send + Sync {
    /// Returns whether a handler may be called: its lease must not have ended. If the process was stopped for long, by
    /// SIGSTOP for example, the lease has ended, and another holder may have the timer. Then the timer is given back.
    fn may_begin(&self, number: u64) -> bool;

    /// Notes the answer of a handler.
    fn answered(&self, number: u64, verdict: Verdict);

    /// Notes that a handler has returned, or that its future was dropped. If the work was dropped before an answer, the
    /// timer is given back after a pause, since such an executor is likely to drop work again. A timer that is
    /// delivered at most once is given back only if its handler was not called.
    fn returned(&self, number: u64, has_begun: bool);
}

/// The future of one delivery, as the executor runs it.
struct Supervised {
    supervisor: Arc<dyn Supervisor>,
    number: u64,
    settlement: Arc<Settlement>,
    step: Step,
}

enum Step {
    Ready(Arc<dyn Handler>, Box<[u8]>, Delivery),
    Running(Answering),
    Ended,
}

/// The parts from which the work of a delivery is made.
pub(crate) struct Assignment {
    pub(crate) supervisor: Arc<dyn Supervisor>,
    pub(crate) number: u64,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) delivery: Delivery,
    pub(crate) settlement: Arc<Settlement>,
}

/// Makes the work of a delivery, for an executor.
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
        if matches!(this.step, Step::Ready(..)) && !this.supervisor.may_begin(this.number) {
            return Poll::Ready(());
        }
        let poll = || {
            if let Step::Ready(..) = this.step
                && let Step::Ready(handler, payload, delivery) =
                    core::mem::replace(&mut this.step, Step::Ended)
            {
                this.step = Step::Running(handler.handle(payload, delivery));
            }
            match &mut this.step {
                Step::Running(answering) => answering.as_mut().poll(context),
                Step::Ready(..) | Step::Ended => Poll::Ready(Verdict::Done),
            }
        };
        let verdict = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(verdict)) => verdict,
            Err(panic) => Verdict::Retry { error: message_of(&*panic).into(), after: None },
        };
        this.supervisor.answered(this.number, verdict);
        this.finish();
        Poll::Ready(())
    }
}

impl Supervised {
    /// Drops the handler's future, whose drop may panic.
    fn finish(&mut self) {
        let step = core::mem::replace(&mut self.step, Step::Ended);
        let _panic = catch_unwind(AssertUnwindSafe(|| drop(step)));
    }
}

/// Tells the runtime that the work has ended. If an executor drops the work early, the timer is given back.
impl Drop for Supervised {
    fn drop(&mut self) {
        let has_begun = !matches!(self.step, Step::Ready(..));
        self.finish();
        self.supervisor.returned(self.number, has_begun);
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", message.unwrap_or("no message"))
}
