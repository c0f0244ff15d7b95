//! Judges by the facts about a server whether a store can work on it.

use super::report::{Grade, Report};
use crate::link::SyncPolicy;
use core::time::Duration;
use std::collections::BTreeMap;

/// The oldest version of Redis on which a store works.
const OLDEST: (u32, u32) = (7, 0);

/// The first version of Redis that has the command `WAITAOF`.
const WITH_WAITAOF: (u32, u32) = (7, 2);

/// A server is refused if its clock differs from this machine's clock by this time or more.
const CLOCK: Duration = Duration::from_secs(1);

/// The facts that the checks have read from one server.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The fields of the server's answer to `INFO`.
    pub(crate) info: BTreeMap<String, String>,
    /// The server's settings that the connection's user may read.
    pub(crate) settings: BTreeMap<String, String>,
    /// The microseconds by which the server's clock is ahead of this machine's clock, and the uncertainty of this
    /// difference. `None` if the clock could not be read.
    pub(crate) clock: Option<(i64, Duration)>,
}

impl Facts {
    /// Adds the fields of `info` to these facts. `info` is the server's answer to the command `INFO`.
    pub(crate) fn read(&mut self, info: &str) {
        let fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        self.info.extend(fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    fn info(&self, field: &str) -> &str {
        self.info.get(field).map_or("", String::as_str)
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.info("redis_version").split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    }

    /// Checks the facts about the server with the address `server`, and adds a line to the report for each check.
    pub(crate) fn judge(&self, server: &str, sync: SyncPolicy, is_cluster: bool, report: &mut Report) {
        let mut add = |grade, text: String| report.add(server, grade, text);
        self.judge_version(sync, &mut add);
        self.judge_role(sync, is_cluster, &mut add);
        self.judge_memory(&mut add);
        self.judge_persistence(&mut add);
        self.judge_clock(&mut add);
    }

    /// Returns the reasons why timers on this server are unsafe, such as an old version or eviction. A wrong clock is a
    /// reason only if the deployment uses the server's clock.
    pub(crate) fn dangers(&self, sync: SyncPolicy, is_on_its_clock: bool) -> Vec<String> {
        let mut dangers = Vec::new();
        let mut add = |grade, text| {
            if grade == Grade::Refusal {
                dangers.push(text);
            }
        };
        // An opening refuses only servers on which timers could be lost or early without an error. With a wrong role or
        // too few replicas, calls fail with an error.
        self.judge_version(sync, &mut add);
        self.judge_memory(&mut add);
        if is_on_its_clock {
            self.judge_clock(&mut add);
        }
        dangers
    }

    fn judge_version(&self, sync: SyncPolicy, add: &mut impl FnMut(Grade, String)) {
        let text = self.info("redis_version");
        match self.version() {
            Some(version) if version < OLDEST => {
                let (major, minor) = OLDEST;
                add(Grade::Refusal, format!("version {text}: at least {major}.{minor} is needed"));
            }
            Some(version) if version < WITH_WAITAOF && matches!(sync, SyncPolicy::WaitAof { .. }) => {
                add(Grade::Refusal, format!("version {text}: SyncPolicy::WaitAof needs at least 7.2"));
            }
            Some(_) => add(Grade::Ok, format!("version {text}")),
            None => add(Grade::Refusal, format!("version {text:?}: not a version of Redis")),
        }
    }

    fn judge_role(&self, sync: SyncPolicy, is_cluster: bool, add: &mut impl FnMut(Grade, String)) {
        if (self.info("cluster_enabled") == "1") != is_cluster {
            let text = if is_cluster {
                "belongs to no cluster: connect to it as a single server"
            } else {
                "belongs to a cluster: connect to it as a cluster"
            };
            add(Grade::Refusal, text.to_owned());
        }
        if self.info("role") == "slave" {
            add(Grade::Refusal, "is a replica: connect to the primary".to_owned());
        }
        let replicas = self.info("connected_slaves").parse().unwrap_or(0_u32);
        if let SyncPolicy::Wait { replicas: needed, .. } | SyncPolicy::WaitAof { replicas: needed, .. } = sync
            && replicas < needed
        {
            let text = format!(
                "replicas: {replicas} are connected, and the policy waits for {needed}: each change would fail"
            );
            add(Grade::Refusal, text);
        } else if replicas > 0 && self.setting("min-replicas-to-write") == Some("0") {
            let text = "min-replicas-to-write 0: a primary that is cut off goes on, and the changes that it accepts are lost when a replica takes over";
            add(Grade::Warning, text.to_owned());
        }
    }

    fn judge_memory(&self, add: &mut impl FnMut(Grade, String)) {
        match self.info("maxmemory_policy") {
            "noeviction" => add(Grade::Ok, "maxmemory-policy noeviction".to_owned()),
            policy => {
                let text =
                    format!("maxmemory-policy {policy}: timers would be evicted; set it to noeviction");
                add(Grade::Refusal, text);
            }
        }
    }

    fn judge_persistence(&self, add: &mut impl FnMut(Grade, String)) {
        let snapshots = match self.setting("save") {
            Some("") => "no snapshots",
            Some(_) => "snapshots",
            None => "snapshots not known",
        };
        match (self.info("aof_enabled"), self.setting("appendfsync")) {
            ("1", Some("always")) => {
                add(Grade::Ok, "append-only file, synchronised with each change".to_owned())
            }
            ("1", Some("everysec")) => {
                add(
                    Grade::Ok,
                    "append-only file, synchronised each second: a power cut may lose the last second"
                        .to_owned(),
                );
            }
            ("1", Some(rhythm)) => {
                let text = format!(
                    "append-only file, appendfsync {rhythm}: a power cut may lose the changes that the system had not written to the disk"
                );
                add(Grade::Warning, text);
            }
            ("1", None) => {
                add(Grade::Ok, "append-only file; the user may not read how it is synchronised".to_owned())
            }
            _ => {
                let text = format!(
                    "no append-only file, {snapshots}: a crash loses the changes after the last snapshot"
                );
                add(Grade::Warning, text);
            }
        }
        for (field, name) in
            [("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")]
        {
            if self.info(field) == "err" {
                add(
                    Grade::Warning,
                    format!("the last write of the {name} failed: the server may refuse changes"),
                );
            }
        }
    }

    fn judge_clock(&self, add: &mut impl FnMut(Grade, String)) {
        let Some((offset, uncertainty)) = self.clock else {
            add(Grade::Warning, "clock: not known".to_owned());
            return;
        };
        let sign = if offset < 0 { "behind" } else { "ahead of" };
        let size = Duration::from_micros(offset.unsigned_abs());
        let text = format!("clock {size:.1?} {sign} this machine's, give or take {uncertainty:.1?}");
        // A slow answer can explain a difference up to the uncertainty, so only the rest counts.
        if size.saturating_sub(uncertainty) < CLOCK {
            add(Grade::Ok, text);
        } else {
            add(Grade::Refusal, format!("{text}: less than {CLOCK:?} is needed"));
        }
    }
}

/// Adds a line to the report on how evenly the shards lie on a cluster's primaries. `spread` has the number of shards
/// of each primary.
pub(crate) fn judge_spread(spread: &BTreeMap<String, usize>, report: &mut Report) {
    let total: usize = spread.values().sum();
    let (Some(most), Some(least)) = (spread.values().max(), spread.values().min()) else { return };
    let share = total as f64 / spread.len() as f64;
    let text = format!("shards: {least} to {most} on each of {} primaries", spread.len());
    // If each primary has few shards, a single shard more can exceed the factor. So one shard more is permitted.
    if *most as f64 <= 1.5 * share + 1.0 {
        report.add("", Grade::Ok, text);
    } else {
        report.add("", Grade::Warning, format!("{text}: a server has far more than its share; move slots"));
    }
}

/// Adds a line to the report on the version of the stored layout. `found` is the stored version, or `None` without a
/// deployment. `own` is the version that this crate writes.
pub(crate) fn judge_layout(found: Option<u64>, own: u64, report: &mut Report) {
    match found {
        None => report.note_absence(format!("layout: nothing is stored yet; version {own} will be")),
        Some(found) if found == own => report.add("", Grade::Ok, format!("layout version {found}")),
        Some(found) => {
            let text = format!("layout version {found}: this program reads and writes only version {own}");
            report.add("", Grade::Refusal, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grades(facts: &Facts, sync: SyncPolicy) -> Vec<(Grade, String)> {
        let mut report = Report::default();
        facts.judge("", sync, false, &mut report);
        report.lines().iter().map(|line| (line.grade(), line.text().to_owned())).collect()
    }

    fn good() -> Facts {
        let mut facts = Facts { clock: Some((-3_000, Duration::from_millis(1))), ..Facts::default() };
        facts.read("redis_version:7.0.15\r\nrole:master\r\ncluster_enabled:0\r\nconnected_slaves:0\r\n");
        facts.read("maxmemory_policy:noeviction\r\naof_enabled:1\r\n");
        facts.settings.insert("appendfsync".into(), "always".into());
        facts
    }

    #[test]
    fn a_good_server_has_only_ok_lines() {
        let grades = grades(&good(), SyncPolicy::None);
        assert_eq!(grades.len(), 4, "{grades:?}");
        assert!(grades.iter().all(|(grade, _)| *grade == Grade::Ok), "{grades:?}");
    }

    #[test]
    fn each_fault_has_its_line() {
        let none = SyncPolicy::None;
        let waits = SyncPolicy::Wait { replicas: 1, timeout: Duration::from_secs(1) };
        let files = SyncPolicy::WaitAof { replicas: 0, timeout: Duration::from_secs(1) };
        let cases = [
            ("redis_version", "6.2.14", none, Grade::Refusal, "at least 7.0"),
            ("redis_version", "", none, Grade::Refusal, "not a version"),
            ("redis_version", "7.0.15", files, Grade::Refusal, "at least 7.2"),
            ("role", "slave", none, Grade::Refusal, "is a replica"),
            ("cluster_enabled", "1", none, Grade::Refusal, "as a cluster"),
            ("connected_slaves", "0", waits, Grade::Refusal, "waits for 1"),
            ("maxmemory_policy", "allkeys-lru", none, Grade::Refusal, "evicted"),
            ("aof_enabled", "0", none, Grade::Warning, "no append-only file"),
            ("aof_last_write_status", "err", none, Grade::Warning, "append-only file failed"),
        ];
        for (field, value, sync, grade, part) in cases {
            let mut facts = good();
            facts.info.insert(field.to_owned(), value.to_owned());
            let grades = grades(&facts, sync);
            assert!(
                grades.iter().any(|(g, text)| *g == grade && text.contains(part)),
                "{field} {value}: {grades:?}"
            );
        }
    }

    #[test]
    fn a_clock_is_refused_only_when_it_is_surely_off() {
        for (offset, uncertainty, grade) in [
            (900_000, 1, Grade::Ok),
            (-900_000, 1, Grade::Ok),
            (1_100_000, 1, Grade::Refusal),
            (-1_100_000, 1, Grade::Refusal),
            (1_100_000, 200, Grade::Ok),
        ] {
            let facts = Facts { clock: Some((offset, Duration::from_millis(uncertainty))), ..good() };
            let grades = grades(&facts, SyncPolicy::None);
            let (found, text) = grades.last().expect("the clock's line is the last");
            assert_eq!((*found, text.starts_with("clock")), (grade, true), "{offset}: {text}");
        }
    }

    #[test]
    fn a_primary_with_too_many_shards_is_seen() {
        for (counts, grade) in
            [([22, 21, 21], Grade::Ok), ([44, 10, 10], Grade::Warning), ([64, 0, 0], Grade::Warning)]
        {
            let spread =
                counts.iter().enumerate().map(|(index, count)| (index.to_string(), *count)).collect();
            let mut report = Report::default();
            judge_spread(&spread, &mut report);
            assert_eq!(report.lines()[0].grade(), grade, "{report}");
        }
    }

    #[test]
    fn another_layout_is_refused() {
        for (found, grade) in
            [(None, Grade::Ok), (Some(2), Grade::Ok), (Some(1), Grade::Refusal), (Some(3), Grade::Refusal)]
        {
            let mut report = Report::default();
            judge_layout(found, 2, &mut report);
            assert_eq!(report.lines()[0].grade(), grade, "{report}");
            assert_eq!(report.is_refused(), grade == Grade::Refusal);
        }
    }
}
