//! Writes the metrics of parked timers: how many wait for what, and how long the oldest of them has waited.
//!
//! The loop that delivers timers does not see parked timers, so `overdue_seconds` leaves them out. The ages here are
//! those of the last pass, in which the unparker counts the parked timers of this node's shards in the store. Between
//! two passes an age stays as it is. If it grew instead, a timer that has left its queue meanwhile would seem to wait
//! on, and an alarm could fire for a queue that moves.

use super::page::Page;
use crate::delivery::{ParkedTimers, Reason};
use crate::record::Tenants;
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;

/// The values of the label `why`: the kinds of [`Reason`] for which a timer is parked (stays in the store without a
/// delivery, even if due).
const PARKED_FOR: [&str; 8] = ["paused", "share", "slow", "concurrency", "rate", "host", "path", "queue"];
/// The value of the label `why` for the timers that a program has parked for a reason of its own, and for those without
/// a handler.
const OTHER: &str = "other";
/// The greatest number of queues that have their own metrics. Callers choose the names of queues, and must not make the
/// page grow without bound.
const MOST_QUEUES: usize = 50;

/// The parked timers, in the groups that the metrics show.
#[derive(Debug)]
pub(super) struct ParkedPage {
    /// The number of timers for each kind of reason.
    counts: BTreeMap<&'static str, u64>,
    /// The age of the oldest timer for each kind of reason.
    ages: BTreeMap<&'static str, Duration>,
    /// The age of the oldest timer for each paused namespace.
    by_namespace: BTreeMap<Box<str>, Duration>,
    /// The queues with the most timers, by namespace and name.
    queues: BTreeMap<(Box<str>, Box<str>), ParkedTimers>,
    /// The other queues together: the sum of their timers, and the greatest age.
    other_queues: ParkedTimers,
}

impl ParkedPage {
    /// Groups the parked timers. `unknown` are the timers that are parked for reasons of other programs. `is_paused`
    /// returns whether a namespace is paused.
    pub(super) fn new(
        parked: BTreeMap<Reason, ParkedTimers>,
        unknown: ParkedTimers,
        is_paused: impl Fn(&str) -> bool,
    ) -> Self {
        let mut counts: BTreeMap<_, _> = PARKED_FOR.into_iter().map(|why| (why, 0)).collect();
        let mut ages: BTreeMap<_, _> = PARKED_FOR.into_iter().map(|why| (why, Duration::ZERO)).collect();
        let mut by_namespace = BTreeMap::<Box<str>, Duration>::new();
        let mut queues = Vec::new();
        for (reason, mut timers) in parked {
            *counts.entry(reason.word()).or_default() += timers.count;
            let (mut waits_for, age) = (reason.word(), timers.age);
            match reason {
                Reason::Paused(namespace) => greatest(by_namespace.entry(namespace).or_default(), age),
                Reason::Queue(namespace, queue) => {
                    // While its namespace is paused, no receiver gets a timer of the queue. So the pause is what the
                    // timer waits for.
                    if is_paused(&namespace) {
                        waits_for = "paused";
                        greatest(by_namespace.entry(namespace.clone()).or_default(), age);
                        timers.age = Duration::ZERO;
                    }
                    queues.push(((namespace, queue), timers));
                }
                _ => {}
            }
            greatest(ages.entry(waits_for).or_default(), age);
        }
        counts.insert(OTHER, unknown.count);
        ages.insert(OTHER, unknown.age);
        // The sort is stable, so among queues with the same number of timers the order of the names decides.
        queues.sort_by_key(|(_, timers)| Reverse(timers.count));
        let mut other_queues = ParkedTimers::default();
        queues.drain(MOST_QUEUES.min(queues.len())..).for_each(|(_, timers)| other_queues.add(timers));
        Self { counts, ages, by_namespace, queues: queues.into_iter().collect(), other_queues }
    }

    /// Sets the number of timers that are parked for reasons of other programs: the part of `all` parked timers that is
    /// parked for no reason of the service.
    pub(super) fn with_others_of(mut self, all: u64) -> Self {
        let known: u64 = PARKED_FOR.iter().filter_map(|why| self.counts.get(why)).sum();
        // `known` may exceed `all`, because the two numbers were read at different moments.
        self.counts.insert(OTHER, all.saturating_sub(known));
        self
    }

    /// Writes the numbers of parked timers by the reason.
    pub(super) fn write_counts(&self, page: &mut Page) {
        let help = "Parked timers by the reason, at most some seconds ago.";
        page.by_label("parked", "gauge", help, "why", &self.counts);
    }

    /// Writes the metrics of the queues, and the ages by reason and by paused namespace. `tenants` are the namespaces
    /// that have metrics of their own, with [`Tenants::OTHERS`] as the last.
    pub(super) fn write_ages(&self, page: &mut Page, tenants: &[&str]) {
        let help = "Time since the due moment of the oldest parked timer by the reason, at the last count.";
        let ages = self.ages.iter().map(|(why, age)| (why, age.as_secs_f64()));
        page.by_label("parked_oldest_seconds", "gauge", help, "why", ages);
        let others = ((Tenants::OTHERS.into(), Tenants::OTHERS.into()), self.other_queues);
        let queues: Vec<_> =
            self.queues.iter().map(|(name, timers)| (name.clone(), *timers)).chain([others]).collect();
        page.family("queue_timers", "gauge", "Timers that wait for receivers, by the queue.");
        for ((namespace, queue), timers) in &queues {
            let labels = [("namespace", &**namespace), ("queue", &**queue)];
            page.value("queue_timers", &labels, &timers.count);
        }
        let help = "Time since the due moment of the oldest timer of the queue, at the last count.";
        page.family("queue_oldest_seconds", "gauge", help);
        for ((namespace, queue), timers) in &queues {
            let labels = [("namespace", &**namespace), ("queue", &**queue)];
            page.value("queue_oldest_seconds", &labels, &timers.age.as_secs_f64());
        }
        let mut left = self.by_namespace.clone();
        let ages: Vec<(&str, f64)> = tenants
            .iter()
            .map(|&name| match name {
                // All namespaces with metrics of their own have been taken out.
                Tenants::OTHERS => (name, left.values().max().copied().unwrap_or_default().as_secs_f64()),
                _ => (name, left.remove(name).unwrap_or_default().as_secs_f64()),
            })
            .collect();
        let help = "Time since the due moment of the oldest timer that a namespace's pause holds back.";
        page.by_label("namespace_paused_oldest_seconds", "gauge", help, "namespace", ages);
    }
}

/// Sets `age` to `other` if `other` is greater.
fn greatest(age: &mut Duration, other: Duration) {
    *age = other.max(*age);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64, age: u64) -> ParkedTimers {
        ParkedTimers { count, age: Duration::from_secs(age) }
    }

    fn queue(namespace: &str, queue: &str) -> Reason {
        Reason::Queue(namespace.into(), queue.into())
    }

    /// Returns the samples of the page for these parked timers. The namespaces `a` and `stopped` have metrics of their
    /// own, and `stopped` and `gone` are paused.
    fn samples(parked: impl IntoIterator<Item = (Reason, ParkedTimers)>) -> Vec<String> {
        let is_paused = |name: &str| ["stopped", "gone"].contains(&name);
        let parked = ParkedPage::new(parked.into_iter().collect(), seconds(2, 9), is_paused);
        let mut page = Page::new("");
        parked.write_counts(&mut page);
        parked.write_ages(&mut page, &["a", "stopped", Tenants::OTHERS]);
        page.into_text().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(samples: &[String], wanted: &[&str]) {
        for line in wanted {
            assert!(samples.iter().any(|other| other == line), "{line} is missing in {samples:#?}");
        }
    }

    #[test]
    fn each_kind_of_reason_has_its_number_and_its_greatest_age() {
        let samples = samples([
            (Reason::Rate("a".into()), seconds(3, 20)),
            (Reason::Rate("b".into()), seconds(4, 10)),
            (Reason::TimerPaused, seconds(1, 70)),
        ]);
        check(
            &samples,
            &[
                r#"parked{why="rate"} 7"#,
                r#"parked_oldest_seconds{why="rate"} 20"#,
                r#"parked{why="paused"} 1"#,
                r#"parked_oldest_seconds{why="paused"} 70"#,
                r#"parked{why="other"} 2"#,
                r#"parked_oldest_seconds{why="other"} 9"#,
                // A timer that was paused by itself is not held back by its namespace.
                r#"namespace_paused_oldest_seconds{namespace="a"} 0"#,
                r#"namespace_paused_oldest_seconds{namespace="(other)"} 0"#,
                r#"queue_oldest_seconds{namespace="(other)",queue="(other)"} 0"#,
            ],
        );
        let count = |name: &str| samples.iter().filter(|line| line.starts_with(name)).count();
        assert_eq!(
            (count("parked{"), count("parked_oldest_seconds{")),
            (9, 9),
            "each is there from the start"
        );
    }

    #[test]
    fn a_queue_of_a_paused_namespace_waits_for_the_end_of_the_pause() {
        let samples = samples([
            (queue("a", "q"), seconds(5, 30)),
            (queue("stopped", "q"), seconds(6, 600)),
            (Reason::Paused("stopped".into()), seconds(1, 300)),
            (Reason::Paused("gone".into()), seconds(1, 500)),
        ]);
        check(
            &samples,
            &[
                r#"queue_timers{namespace="a",queue="q"} 5"#,
                r#"queue_oldest_seconds{namespace="a",queue="q"} 30"#,
                r#"queue_timers{namespace="stopped",queue="q"} 6"#,
                r#"queue_oldest_seconds{namespace="stopped",queue="q"} 0"#,
                r#"namespace_paused_oldest_seconds{namespace="a"} 0"#,
                r#"namespace_paused_oldest_seconds{namespace="stopped"} 600"#,
                r#"namespace_paused_oldest_seconds{namespace="(other)"} 500"#,
                r#"parked{why="queue"} 11"#,
                r#"parked_oldest_seconds{why="queue"} 30"#,
                r#"parked_oldest_seconds{why="paused"} 600"#,
            ],
        );
    }

    #[test]
    fn the_queues_beyond_the_largest_share_their_metrics_and_none_hides_an_old_timer() {
        let name = |n: u64| format!("q{n:03}");
        let many = (1..=MOST_QUEUES as u64 + 3).map(|n| (queue("a", &name(n)), seconds(10 * n, 1)));
        // The smallest of all has the oldest timer.
        let samples = samples(many.chain([(queue("b", "old"), seconds(1, 1_000))]));
        let queues = samples.iter().filter(|line| line.starts_with("queue_timers{")).count();
        assert_eq!(queues, MOST_QUEUES + 1);
        check(
            &samples,
            &[
                r#"queue_timers{namespace="a",queue="q053"} 530"#,
                r#"queue_timers{namespace="a",queue="q004"} 40"#,
                r#"queue_timers{namespace="(other)",queue="(other)"} 61"#,
                r#"queue_oldest_seconds{namespace="(other)",queue="(other)"} 1000"#,
            ],
        );
    }

    #[test]
    fn the_timers_of_no_known_reason_are_the_rest_of_all() {
        let page = ParkedPage::new([(queue("a", "q"), seconds(5, 30))].into(), seconds(2, 9), |_| false);
        assert_eq!(page.with_others_of(9).counts.get(OTHER), Some(&4));
        let page = ParkedPage::new([(queue("a", "q"), seconds(5, 30))].into(), seconds(2, 9), |_| false);
        assert_eq!(page.with_others_of(3).counts.get(OTHER), Some(&0), "the numbers are of two moments");
    }
}
