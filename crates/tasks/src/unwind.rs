//! Declares which types a closure may take into `catch_unwind`.
//!
//! A panic that unwinds through a call leaves no map, queue or task half-changed. User code that may panic never runs
//! between two changes that belong together, and locks ignore their poison. So every handle can be used after a panic.

use crate::keyed::Keyed;
use crate::task::{DrivenTasks, Key, NamedTasks, Task, TaskEngine, TaskTimer, Tasks};
use crate::uses::{Connection, DelayQueue, ExpiryMap, IdleBatch, IdleTimeouts, RateLimiter, Receiver};
use core::panic::{RefUnwindSafe, UnwindSafe};

impl UnwindSafe for TaskEngine {}
impl RefUnwindSafe for TaskEngine {}
impl UnwindSafe for DrivenTasks {}
impl RefUnwindSafe for DrivenTasks {}
impl UnwindSafe for Tasks {}
impl RefUnwindSafe for Tasks {}
impl UnwindSafe for Task {}
impl RefUnwindSafe for Task {}
impl UnwindSafe for TaskTimer {}
impl RefUnwindSafe for TaskTimer {}
impl<K: Key> UnwindSafe for NamedTasks<K> {}
impl<K: Key> RefUnwindSafe for NamedTasks<K> {}
impl<K: Key, V: Send + 'static> UnwindSafe for Keyed<K, V> {}
impl<K: Key, V: Send + 'static> RefUnwindSafe for Keyed<K, V> {}
impl<K: Key, V: Send + Sync + 'static> UnwindSafe for ExpiryMap<K, V> {}
impl<K: Key, V: Send + Sync + 'static> RefUnwindSafe for ExpiryMap<K, V> {}
impl<I: Key> UnwindSafe for IdleTimeouts<I> {}
impl<I: Key> RefUnwindSafe for IdleTimeouts<I> {}
impl<I: Key> UnwindSafe for Connection<I> {}
impl<I: Key> RefUnwindSafe for Connection<I> {}
impl<I> UnwindSafe for IdleBatch<I> {}
impl<I> RefUnwindSafe for IdleBatch<I> {}
impl<T: Send + 'static> UnwindSafe for DelayQueue<T> {}
impl<T: Send + 'static> RefUnwindSafe for DelayQueue<T> {}
impl<T: Send + 'static> UnwindSafe for Receiver<T> {}
impl<T: Send + 'static> RefUnwindSafe for Receiver<T> {}
impl UnwindSafe for RateLimiter {}
impl RefUnwindSafe for RateLimiter {}
