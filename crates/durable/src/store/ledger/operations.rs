//! Each operation leads to the part that makes it.

use super::limits::admit;
use super::timers::Ledger;
use crate::state::Event;
use crate::store::error::StoreError;
use crate::store::tables::Tables;
use crate::store::{Op, Outcome};

impl<T: Tables> Ledger<T> {
    pub(crate) fn apply(&mut self, op: Op) -> Result<Outcome, StoreError> {
        admit(&op)?;
        match op {
            Op::Place(timer, if_present) => self.place(*timer, if_present),
            Op::Cancel(at, only) => self.cancel(&at, only),
            Op::CancelLabelled { namespace, label, limit } => self.cancel_labelled(&namespace, &label, limit),
            Op::Move(at, due) => self.change_by(&at, Event::Move(due)),
            Op::Pause(at) => self.pause(&at),
            Op::Resume(at) => self.resume(&at),
            Op::Ack(id, token) => self.end_delivery(id, Event::Ack(token)),
            Op::Skip(id, token) => self.end_delivery(id, Event::Skip(token)),
            Op::Fail(id, token, failure) => self.end_delivery(id, Event::Fail(token, failure)),
            Op::Snooze(id, token, due) => self.end_delivery(id, Event::Snooze(token, due)),
            Op::Release(id, token) => self.end_delivery(id, Event::Release(token)),
            Op::Return(timer, _) => self.put_back(*timer),
            Op::Park(id, token, reason) => self.end_delivery(id, Event::Park(reason, Some(token))),
            Op::Unpark(reason, limit) => self.unpark(&reason, limit),
            Op::Replay(id) => self.replay(id),
            Op::Fire(at) => self.fire(&at),
        }
    }
}
