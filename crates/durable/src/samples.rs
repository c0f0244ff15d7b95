//! Provides sample timers for tests, and compares encoded bytes with those in a file.

use crate::phase::{Death, DeathReason, Lease, State, Token, Withdrawal};
use crate::plan::{MissedInstants, Plan, Series};
use crate::policy::{Backoff, Guarantee, Misfire, Policy};
use crate::timer::{Payload, Timer, TimerId};
use core::fmt::Write as _;
use core::time::Duration;
use tourbillon_words::UtcMillis;

pub(crate) const DUE: UtcMillis = UtcMillis::from_millis(1_800_000_000_000);
pub(crate) const TOKEN: Token = Token { incarnation: 0x0102_0304_0506_0708, claim: 9 };

pub(crate) fn plain() -> Timer {
    Timer {
        namespace: "n".into(),
        key: Some("k".into()),
        payload: Payload(Box::new([1, 2])),
        created: UtcMillis::from_millis(1_797_500_000_000),
        ..Timer::new(TimerId::from_u128(0x11), "mail", DUE)
    }
}

/// Returns a sample of each state of a timer. If the enum gets a new state, this function does not compile until it has
/// a sample of this state.
pub(crate) fn states() -> Vec<State> {
    let lease = |withdrawn| {
        match withdrawn {
            None | Some(Withdrawal::Cancelled | Withdrawal::Replaced) => {}
        }
        State::Leased(Lease { token: TOKEN, until: DUE, withdrawn })
    };
    let dead = |reason| {
        match reason {
            DeathReason::Attempts
            | DeathReason::Deliveries
            | DeathReason::Age
            | DeathReason::Refused
            | DeathReason::Plan => {}
        }
        State::Dead(Death { reason, at: DUE })
    };
    let states = vec![
        State::Pending,
        lease(None),
        lease(Some(Withdrawal::Cancelled)),
        lease(Some(Withdrawal::Replaced)),
        State::Parked("paused".into()),
        dead(DeathReason::Attempts),
        dead(DeathReason::Deliveries),
        dead(DeathReason::Age),
        dead(DeathReason::Refused),
        dead(DeathReason::Plan),
    ];
    for state in &states {
        match state {
            State::Pending | State::Leased(_) | State::Parked(_) | State::Dead(_) => {}
        }
    }
    states
}

fn series() -> Vec<Series> {
    let id = TimerId::from_u128(0x22);
    let plans = [
        Plan::Every(60_000),
        Plan::Cron { expression: "0 9 1 * *".into(), zone: "UTC".into(), skip_gaps: true },
        Plan::Monthly { day: 31, second: 3_600, zone: "UTC".into(), last_if_short: true, skip_gaps: false },
    ];
    let missed = [MissedInstants::Skip, MissedInstants::All, MissedInstants::Skip];
    plans
        .into_iter()
        .zip(missed)
        .map(|(plan, missed)| {
            // A new variant does not compile here, as a reminder to add a sample above.
            match (&plan, missed) {
                (
                    Plan::Every(_) | Plan::Cron { .. } | Plan::Monthly { .. },
                    MissedInstants::Skip | MissedInstants::All,
                ) => {}
            }
            // Some samples have an end and a pause, and some have neither, so each field appears in both forms.
            let end = (missed == MissedInstants::All).then_some(DUE);
            Series { id, plan, missed, end, paused: end.is_some() }
        })
        .collect()
}

fn policies() -> Vec<Policy> {
    let second = Duration::new(1, 5);
    let policies = vec![
        Policy { attempts: 3, deliveries: 4, max_age: Some(second), ..Policy::default() },
        Policy { backoff: Backoff::Fixed(second), misfire: Misfire::Within(second), ..Policy::default() },
        Policy { backoff: Backoff::Exponential { first: second, max: second * 9 }, ..Policy::default() },
        Policy { backoff: Backoff::Ladder(vec![second, second * 2]), jitter: second, ..Policy::default() },
        Policy { guarantee: Guarantee::AtMostOnce, timeout: second, ..Policy::default() },
    ];
    for policy in &policies {
        // A new variant does not compile here, as a reminder to add a sample above.
        match (&policy.backoff, policy.misfire, policy.guarantee) {
            (
                Backoff::Standard | Backoff::Fixed(_) | Backoff::Exponential { .. } | Backoff::Ladder(_),
                Misfire::Fire | Misfire::Within(_),
                Guarantee::AtLeastOnce | Guarantee::AtMostOnce,
            ) => {}
        }
    }
    policies
}

/// Returns timers for tests, each with a name. For each form that a field of a timer can have, at least one of the
/// timers has the field in this form.
pub(crate) fn timers() -> Vec<(String, Timer)> {
    let mut timers = vec![
        ("plain".to_owned(), plain()),
        ("without anything".to_owned(), Timer::new(TimerId::from_u128(1), "", UtcMillis::ZERO)),
        (
            "with labels, trace, error and id".to_owned(),
            Timer {
                labels: vec!["a".into(), "b".into()],
                deliveries: 3,
                failures: 2,
                last_error: Some("why".into()),
                trace: Some("t".into()),
                has_chosen_id: true,
                ..plain()
            },
        ),
        ("of a schedule".to_owned(), Timer { age_from: Some(DUE), ..plain() }),
    ];
    for state in states() {
        timers.push((format!("{state:?}"), Timer { state, ..plain() }));
    }
    for series in series() {
        timers.push((format!("{:?}", series.plan), Timer { series: Some(series), ..plain() }));
    }
    for (nth, policy) in policies().into_iter().enumerate() {
        timers.push((format!("policy {nth}"), Timer { policy, ..plain() }));
    }
    timers
}

/// Returns the first word of a value's debug text, which for an enum is the variant's name.
pub(crate) fn variant(value: &impl core::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Checks that the file has exactly these rows, each with a name and bytes. Panics with the text `advice` if the file
/// differs. `file` is a path relative to `src`.
#[track_caller]
pub(crate) fn assert_fixed(file: &str, rows: impl IntoIterator<Item = (String, Vec<u8>)>, advice: &str) {
    let mut lines = String::new();
    for (nth, (name, bytes)) in rows.into_iter().enumerate() {
        write!(lines, "{nth} {name}: ").unwrap();
        bytes.iter().for_each(|byte| write!(lines, "{byte:02x}").unwrap());
        lines.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/").to_owned() + file;
    let fixed = std::fs::read_to_string(&path).unwrap();
    assert!(fixed == lines, "{advice} {file} has other bytes than these:\n{lines}");
}
