//! Kills a process that has its timers in a file of redb.

use crate::child::{self, Subject};
use crate::dies_at_a_point;
use pollster::block_on;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::store::{RedbStore, TimerStore};

pub(crate) struct Redb(Arc<RedbStore>);

impl Subject for Redb {
    const CHILD: &'static str = "redb::child_process";

    fn open(folder: &Path) -> Self {
        Self(Arc::new(RedbStore::open(folder.join("timers.redb")).unwrap()))
    }

    fn store(&self) -> Arc<dyn TimerStore> {
        Arc::<RedbStore>::clone(&self.0)
    }

    fn maintain(&self) {
        while dies_at_a_point() {
            std::thread::sleep(Duration::from_millis(15));
            block_on(self.0.compact()).unwrap();
        }
    }
}

#[test]
fn child_process() {
    child::run::<Redb>();
}

#[test]
fn nothing_is_lost_early_or_doubled_without_a_reason_by_kill_9() {
    crate::check::<Redb>();
}
