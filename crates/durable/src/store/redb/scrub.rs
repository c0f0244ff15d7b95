//! Runs the thread that scrubs: it repeatedly and slowly searches all records and index entries for damage.
//!
//! The thread reads as any reader does, a thousand entries at a time. The thread that commits repairs the damage. If
//! redb cannot read a page, the scrub continues with the next table.

use super::common::Common;
use super::error::damaged_pages;
use super::queue::Sender;
use super::request::{Reply, Request};
use crate::panics::survive_or;
use crate::store::Durability;
use crate::store::error::StoreError;
use crate::store::ledger::{ScrubCursor, Step};
use core::time::Duration;
use futures_channel::oneshot;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// The number of entries that the scrub reads in one step.
const STEP: u32 = 1_000;
/// The pause after the scrub has checked the whole store.
const REST: Duration = Duration::from_secs(60);

/// The number of failed attempts at one step after which the scrub continues with the next table.
const MOST_FAILURES: u32 = 10;

/// A handle to the thread that scrubs. The thread ends when the handle is dropped.
pub(super) struct Scrubber {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits for the time `pause`, or until the thread must stop. Returns whether the thread must stop.
    fn wait(&self, pause: Duration) -> bool {
        let wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(wanted, pause, |wanted| !*wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Scrubber {
    /// Starts the thread that scrubs. The thread checks `rate` entries a second.
    pub(super) fn start(common: Arc<Common>, requests: Arc<Sender>, rate: u32) -> io::Result<Self> {
        let stop = Arc::<Stop>::default();
        let stopped = Arc::clone(&stop);
        let pause = Duration::from_secs(1) * STEP / rate.max(1);
        let thread = thread::Builder::new()
            .name("tourbillon-scrub".to_owned())
            .spawn(move || run(&common, &requests, &stopped, pause))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        *self.stop.is_wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread waits only for `stop`, so the join does not take long.
            drop(thread.join());
        }
    }
}

fn run(common: &Common, requests: &Sender, stop: &Stop, pause: Duration) {
    let mut place = ScrubCursor::default();
    let mut next_pause = pause;
    let mut answers = Vec::new();
    let mut failures = 0;
    while !stop.wait(next_pause) {
        // The answers are polled, because the thread must wait for nothing except `stop`.
        answers.retain_mut(|answer: &mut oneshot::Receiver<Result<u64, StoreError>>| {
            match answer.try_recv() {
                Ok(None) => true,
                Ok(Some(Ok(damaged))) => {
                    common.count(|stats| stats.scrub.damaged += damaged);
                    false
                }
                // If the repair failed, the next walk finds the damage again.
                Ok(Some(Err(_))) | Err(_) => false,
            }
        });
        next_pause = pause;
        let reopenings = common.reopenings();
        let step = step(common, &place);
        if let Err(error) = &step
            && common.note_read_error(error, reopenings)
        {
            // The thread that commits opens the database again before it serves this request.
            let (reply, _nobody_waits) = oneshot::channel();
            requests.send(Request::Apply(Vec::new(), Durability::Volatile, reply));
        }
        let next = match step {
            Ok(step) => {
                common.count(|stats| stats.scrub.entries += step.looked);
                if !step.suspects.is_empty() {
                    let (reply, answer): (Reply<u64>, _) = oneshot::channel();
                    if requests.send(Request::Mend(step.suspects, reply)) {
                        answers.push(answer);
                    }
                }
                step.next
            }
            // The database may be open again at the next step.
            Err(error) if error.is_transient() && failures < MOST_FAILURES => {
                failures += 1;
                continue;
            }
            Err(_) => {
                common.count(|stats| stats.scrub.damaged += 1);
                place.skip()
            }
        };
        failures = 0;
        place = next.unwrap_or_else(|| {
            common.count(|stats| stats.scrub.walks += 1);
            next_pause = REST;
            ScrubCursor::default()
        });
    }
}

fn step(common: &Common, place: &ScrubCursor) -> Result<Step, StoreError> {
    let step = || common.reading()?.scrub(place, STEP as usize);
    // redb may panic on damaged pages.
    survive_or(step, damaged_pages).unwrap_or_else(Err)
}
