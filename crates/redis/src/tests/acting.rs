//! Disturbs calls of a store.

use crate::layout::slot_of;
use crate::link::{Answer, Call, Link, LinkError, Pause, Reply};
use crate::script::Words;
use core::future::{pending, poll_fn, ready};
use core::task::Poll;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A disturbance of a call by a test's link.
pub(super) enum Act {
    /// The call fails, and the server gets nothing.
    Fail,
    /// The server runs the call, but the reply is lost.
    Lose,
    /// The server gets the call only after the caller has polled the answer twice.
    Late,
    /// The call is never answered, and the server gets nothing. From then on, the time limits of other calls pass
    /// at once.
    Hang,
    /// The client ends before it sends the call.
    Stop,
    /// The client ends after it has sent the call, so the server still gets the call.
    StopAfter,
    /// Before the call, the link calls this function, which usually acts as another process.
    First(Box<dyn FnOnce() + Send>),
}

/// A link that disturbs calls of the scripts with given names. The number of a call counts from 1, after the test has
/// set the disturbance. The name `lease` means the script of a claim that leases, and an empty name means any script.
pub(super) struct Acting {
    link: Arc<dyn Link>,
    next: Mutex<Vec<(&'static str, u32, Act)>>,
    /// The slot whose server does not answer.
    away: Mutex<Option<u32>>,
    /// True if all keys of a script must be in one slot, as in a cluster.
    has_slots: AtomicBool,
    /// True once a call hangs.
    hangs: AtomicBool,
    /// True once the client has ended.
    has_stopped: AtomicBool,
}

impl Acting {
    pub(super) fn new(link: Arc<dyn Link>) -> Arc<Self> {
        Arc::new(Self {
            link,
            next: Mutex::default(),
            away: Mutex::default(),
            has_slots: AtomicBool::default(),
            hangs: AtomicBool::default(),
            has_stopped: AtomicBool::default(),
        })
    }

    /// Sets a disturbance, and removes all others.
    pub(super) fn at(&self, script: &'static str, nth: u32, act: Act) {
        *self.next.lock().unwrap() = vec![(script, nth, act)];
    }

    /// Adds a disturbance.
    pub(super) fn also_at(&self, script: &'static str, nth: u32, act: Act) {
        self.next.lock().unwrap().push((script, nth, act));
    }

    /// Returns whether the link has not yet made a call that it must disturb.
    pub(super) fn is_waiting(&self) -> bool {
        !self.next.lock().unwrap().is_empty()
    }

    /// Makes the server of a slot answer no call. `None` brings the server back.
    pub(super) fn take_away(&self, slot: Option<u32>) {
        *self.away.lock().unwrap() = slot;
    }

    /// Refuses keys of different slots in one script from now on, as a cluster does.
    pub(super) fn demand_slots(&self) {
        self.has_slots.store(true, Ordering::Relaxed);
    }

    fn act_of(&self, script: &str, arguments: &Words) -> Option<Act> {
        let mut next = self.next.lock().unwrap();
        let leases = || script.starts_with("claim") && arguments.iter().nth(3) != Some(b"0");
        let is_meant = |name: &str| script.starts_with(name) || name == "lease" && leases();
        next.iter_mut().filter(|(name, ..)| is_meant(name)).for_each(|(_, nth, _)| *nth -= 1);
        let place = next.iter().position(|(_, nth, _)| *nth == 0)?;
        Some(next.remove(place).2)
    }
}

impl Link for Acting {
    fn run(&self, call: Call) -> Answer<'_, Reply> {
        let lost = || LinkError::unknown("a test loses the reply");
        let name = call.script.name();
        let slots: BTreeSet<u32> = call.keys.iter().map(|key| slot_of(key)).collect();
        if self.has_slots.load(Ordering::Relaxed) {
            assert!(slots.len() <= 1, "a cluster refuses the keys of the script {name}");
        }
        let act = self.act_of(name, &call.arguments);
        let is_away = self.away.lock().unwrap().is_some_and(|slot| slots.contains(&slot));
        if is_away || self.has_stopped.load(Ordering::Relaxed) {
            return Box::pin(ready(Err(lost())));
        }
        match act {
            Some(Act::Fail) => {
                return Box::pin(ready(Err(LinkError::gave_up(name, Duration::from_secs(60), "a test"))));
            }
            Some(Act::Stop) => {
                self.has_stopped.store(true, Ordering::Relaxed);
                return Box::pin(ready(Err(lost())));
            }
            Some(act @ (Act::Lose | Act::StopAfter)) => {
                self.has_stopped.store(matches!(act, Act::StopAfter), Ordering::Relaxed);
                let answer = self.link.run(call);
                return Box::pin(async move {
                    let _lost = answer.await?;
                    Err(lost())
                });
            }
            Some(Act::Late) => {
                let mut has_waited = false;
                let wait = poll_fn(move |context| {
                    context.waker().wake_by_ref();
                    if core::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
                });
                return Box::pin(async move {
                    wait.await;
                    self.link.run(call).await
                });
            }
            Some(Act::Hang) => {
                self.hangs.store(true, Ordering::Relaxed);
                return Box::pin(pending());
            }
            Some(Act::First(act)) => act(),
            None => {}
        }
        self.link.run(call)
    }

    fn attempt(&self) -> u64 {
        self.link.attempt()
    }

    fn is_cluster(&self) -> bool {
        self.link.is_cluster()
    }

    fn wait(&self, _: Duration) -> Pause {
        if self.hangs.load(Ordering::Relaxed) { Box::pin(ready(())) } else { Box::pin(pending()) }
    }
}
