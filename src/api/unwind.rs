//! Marks the types that a closure may take into `catch_unwind`.
//!
//! A panic that unwinds through a call leaves no engine half-changed. Only code of users can panic: handlers, wakers,
//! clocks and drops of payloads. The engine calls such code while no word and no list is half-written, and locks ignore
//! their poison. So every handle may be used after a panic, for any type of payload.

use super::driven::{DrivenEngine, DrivenShards};
use super::handle::{Engine, Handle};
use super::loops::{LoopShard, On};
use super::shards::Shards;
use super::timer::{Timer, TimerRef};
use core::panic::{RefUnwindSafe, UnwindSafe};

impl UnwindSafe for Shards {}
impl RefUnwindSafe for Shards {}
impl UnwindSafe for DrivenShards {}
impl RefUnwindSafe for DrivenShards {}
impl UnwindSafe for LoopShard {}
impl RefUnwindSafe for LoopShard {}
impl<T: Send + 'static> UnwindSafe for Engine<T> {}
impl<T: Send + 'static> RefUnwindSafe for Engine<T> {}
impl<T: Send + 'static> UnwindSafe for DrivenEngine<T> {}
impl<T: Send + 'static> RefUnwindSafe for DrivenEngine<T> {}
impl<T: Send + 'static> UnwindSafe for Handle<T> {}
impl<T: Send + 'static> RefUnwindSafe for Handle<T> {}
impl<T: Send + 'static> UnwindSafe for Timer<T> {}
impl<T: Send + 'static> RefUnwindSafe for Timer<T> {}
impl<T: Send + 'static> UnwindSafe for TimerRef<'_, T> {}
impl<T: Send + 'static> RefUnwindSafe for TimerRef<'_, T> {}
impl<T: Send + 'static> UnwindSafe for On<'_, T> {}
impl<T: Send + 'static> RefUnwindSafe for On<'_, T> {}
