//! Limits the log lines of each kind. If many events of a kind come together, the first events get lines. The other
//! events are only counted.
//!
//! A kind has at most 20 lines in ten seconds. Then one line says how many more events there were. Events of the level
//! `debug` are not limited, because they are logged only on request.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::{Level, Metadata, error, info, warn};

/// The greatest number of log lines for events of one kind within the time [`SPAN`]. The kind of an event is its
/// `tracing` target.
const LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);
/// The kind of the log lines that this module makes. Each says how many events of another kind were not logged.
const MORE: &str = "more";

/// The kinds (`tracing` targets) of the latest events. Each kind has its own window of ten seconds, in which its log
/// lines are counted.
static KINDS: Mutex<Kinds> = Mutex::new(Kinds(BTreeMap::new()));

struct Kinds(BTreeMap<&'static str, Window>);

/// The window of one kind of events. `lines` counts the kind's log lines in the present ten seconds, at most [`LINES`].
/// `more` counts the kind's events that were not logged because of this limit, until a log line reports their number.
struct Window {
    begun: Instant,
    lines: u32,
    more: u64,
    /// The level of the latest event that `more` counts.
    level: Level,
}

/// The number of events of one kind (`tracing` target) that were not logged, because the kind already had [`LINES`] log
/// lines. `level` is the level of the latest of these events.
#[derive(Debug, PartialEq, Eq)]
struct Surplus {
    kind: &'static str,
    level: Level,
    count: u64,
}

impl Kinds {
    fn admits(&mut self, kind: &'static str, level: Level, now: Instant) -> bool {
        // For `tracing`, `DEBUG` is greater than `INFO`. The lines that report the surplus must not become a surplus
        // themselves.
        if level > Level::INFO || kind == MORE {
            return true;
        }
        let window = self.0.entry(kind).or_insert(Window { begun: now, lines: 0, more: 0, level });
        if now.saturating_duration_since(window.begun) >= SPAN {
            // `more` is kept: no line has reported this number yet.
            (window.begun, window.lines) = (now, 0);
        }
        if window.lines < LINES {
            window.lines += 1;
            return true;
        }
        window.more += 1;
        window.level = level;
        false
    }

    /// Removes each kind of events whose window of ten seconds is over, as `is_over` decides. Returns, for each removed
    /// kind, the number of its events that were not logged. Kinds without such events are left out of the result.
    fn settle(&mut self, is_over: impl Fn(&Window) -> bool) -> Vec<Surplus> {
        let mut all = Vec::new();
        self.0.retain(|kind, window| {
            let is_over = is_over(window);
            if is_over && window.more > 0 {
                all.push(Surplus { kind, level: window.level, count: window.more });
            }
            !is_over
        });
        all
    }
}

/// Returns whether to log an event, and counts the event. It is not logged if its kind (its `tracing` target) already
/// has [`LINES`] log lines in the present window of ten seconds. Events of the level `debug` are always logged.
pub(super) fn admits(event: &'static Metadata<'static>, now: Instant) -> bool {
    KINDS.lock().unwrap_or_else(PoisonError::into_inner).admits(event.target(), *event.level(), now)
}

fn tell(is_over: impl Fn(&Window) -> bool) {
    // The lock is released before the lines are logged, because each line takes it again in `admits`.
    let all = KINDS.lock().unwrap_or_else(PoisonError::into_inner).settle(is_over);
    for Surplus { kind, level, count } in all {
        // The macros need a level that is known at compile time.
        match level {
            Level::ERROR => error!(target: MORE, kind, count, "and {count} more of this kind"),
            Level::WARN => warn!(target: MORE, kind, count, "and {count} more of this kind"),
            _ => info!(target: MORE, kind, count, "and {count} more of this kind"),
        }
    }
}

/// Logs how many events were not logged, for each kind of events whose window of ten seconds is over. The service calls
/// this about once a second.
pub(crate) fn settle() {
    let now = Instant::now();
    tell(|window| now.saturating_duration_since(window.begun) >= SPAN);
}

/// Logs how many events were not logged, for each kind of events, even if the kind's window of ten seconds is not over.
/// Called at the end of the process.
pub(crate) fn finish() {
    tell(|_| true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_one_kind_has_few_lines_and_its_count() {
        let (mut kinds, begin) = (Kinds(BTreeMap::new()), Instant::now());
        let admitted = |kinds: &mut Kinds, kind, level, now| {
            (0..1_000).filter(|_| kinds.admits(kind, level, now)).count()
        };
        assert_eq!(admitted(&mut kinds, "died", Level::WARN, begin), 20);
        assert_eq!(admitted(&mut kinds, "asked", Level::DEBUG, begin), 1_000, "who asks for them gets them");
        assert!(kinds.admits("other", Level::INFO, begin), "each kind has its own bound");
        assert_eq!(kinds.settle(|_| false), []);

        let later = begin + SPAN;
        assert_eq!(admitted(&mut kinds, "died", Level::ERROR, later), 20, "a new span");
        let surplus = Surplus { kind: "died", level: Level::ERROR, count: 2 * 980 };
        assert_eq!(kinds.settle(|_| true), [surplus], "nothing is lost at the change of spans");
        assert_eq!(kinds.settle(|_| true), []);
    }
}
