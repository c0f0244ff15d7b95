//! Checks the promises of the store by the logs of the processes alone. It knows nothing of the store.

use crate::child::FIRST_ID;
use crate::log::{Answer, Line};
use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

/// The log lines of all processes that a test has killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    lines: Vec<Line>,
}

/// The facts about a job, a numbered timer, that the log lines give.
#[derive(Debug, Default)]
struct Job {
    due: Option<u64>,
    is_created: bool,
    /// Whether the log has the beginning of a cancel. Such a cancel may have had its effect.
    is_cancelled_perhaps: bool,
    /// The moment of the answer to a successful cancel, in microseconds since 1970. No delivery may begin later. `None`
    /// without such an answer.
    cancelled_at: Option<u64>,
    deliveries: Vec<Delivery>,
    is_left: bool,
    /// Whether each successful delivery writes an effect in the transaction of its end.
    has_effect: bool,
    effects: u64,
}

#[derive(Clone, Copy, Debug)]
struct Delivery {
    id: u128,
    attempt: u32,
    begin: u64,
    is_done: bool,
}

/// The numbers of findings of the checker, by their kinds. All numbers except `explained` must be zero.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdicts {
    /// The number of repeated deliveries with a kill between the two deliveries.
    pub(crate) explained: u64,
    /// The number of lost jobs. A lost job was acknowledged and not cancelled, but is neither delivered nor stored.
    pub(crate) lost: u64,
    /// The number of deliveries that began before the due moment, by the clock of the process.
    pub(crate) early: u64,
    /// The number of repeated deliveries with neither a kill nor a failure between the two deliveries.
    pub(crate) unexplained: u64,
    /// The number of deliveries under a wrong id. Each job's timer has a fixed id.
    pub(crate) other_id: u64,
    /// The number of deliveries that began after a cancel was acknowledged.
    pub(crate) after_cancel: u64,
    /// The number of jobs without a log line that announces their creation.
    pub(crate) unknown: u64,
    /// The number of cancelled timers that are still stored at the end.
    pub(crate) undead: u64,
    /// The number of jobs that have ended without their effect.
    pub(crate) without_effect: u64,
    /// The number of jobs with more than one effect, or with an effect and a timer that is still stored.
    pub(crate) effects_too_many: u64,
    /// The number of faults in the store's structure at the end.
    pub(crate) faulty: u64,
}

impl Verdicts {
    /// Returns a message for each kind of broken promise.
    pub(crate) fn faults(&self) -> Vec<String> {
        let counts = [
            (self.lost, "lost"),
            (self.early, "early"),
            (self.unexplained, "duplicates without a kill"),
            (self.other_id, "duplicates under another id"),
            (self.after_cancel, "deliveries after a cancel"),
            (self.unknown, "deliveries of unknown jobs"),
            (self.undead, "cancelled timers that are stored"),
            (self.without_effect, "jobs without their effect"),
            (self.effects_too_many, "jobs with too many effects"),
            (self.faulty, "faults of the structure"),
        ];
        counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, fault)| format!("{count} {fault}"))
            .collect()
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { explained, lost, early, unexplained, after_cancel, .. } = self;
        write!(
            f,
            "lost {lost}, early {early}, duplicates without a kill {unexplained}, after a cancel {after_cancel}; \
             delivered again after a kill, under the same id: {explained}"
        )
    }
}

impl History {
    pub(crate) fn new(lines: Vec<Line>) -> Self {
        Self { lines }
    }

    fn jobs(&self) -> BTreeMap<u64, Job> {
        let mut jobs: BTreeMap<u64, Job> = BTreeMap::new();
        let mut note = |job: u64, change: &dyn Fn(&mut Job)| change(jobs.entry(job).or_default());
        for line in &self.lines {
            match *line {
                Line::Intent { job, due, has_effect } => note(job, &|job| {
                    job.due = Some(due);
                    job.has_effect = has_effect;
                }),
                Line::Created { job } => note(job, &|job| job.is_created = true),
                Line::CancelIntent { job } => note(job, &|job| job.is_cancelled_perhaps = true),
                Line::Cancelled { job, answer: Answer::Cancelled, at } => {
                    note(job, &|job| job.cancelled_at = Some(at));
                }
                Line::Delivered { job, id, attempt, begin, is_done } => {
                    note(job, &|job| job.deliveries.push(Delivery { id, attempt, begin, is_done }));
                }
                Line::Left { id } => {
                    let job = u64::try_from(id.wrapping_sub(FIRST_ID)).unwrap_or(u64::MAX);
                    note(job, &|job| job.is_left = true);
                }
                Line::Effect { job } => note(job, &|job| job.effects += 1),
                Line::Cancelled { .. } | Line::Kill { .. } | Line::Reached { .. } | Line::Fault { .. } => {}
            }
        }
        for job in jobs.values_mut() {
            job.deliveries.sort_by_key(|delivery| delivery.begin);
        }
        jobs
    }

    pub(crate) fn check(&self) -> Verdicts {
        let kills: Vec<(u64, u64)> = self.lines.iter().filter_map(kill).collect();
        let faulty = self.lines.iter().filter(|line| matches!(line, Line::Fault { .. })).count() as u64;
        let mut verdicts = Verdicts { faulty, ..Verdicts::default() };
        for (number, job) in self.jobs() {
            let Some(due) = job.due else {
                verdicts.unknown += 1;
                continue;
            };
            let id = FIRST_ID + u128::from(number);
            let is_delivered = job.deliveries.iter().any(|delivery| delivery.is_done);
            let may_be_gone = job.is_cancelled_perhaps || !job.is_created;
            verdicts.lost += u64::from(!may_be_gone && !is_delivered && !job.is_left);
            verdicts.undead += u64::from(job.cancelled_at.is_some() && job.is_left);
            let has_ended_with_effect = job.has_effect && is_delivered && !job.is_left;
            verdicts.without_effect +=
                u64::from(has_ended_with_effect && !job.is_cancelled_perhaps && job.effects == 0);
            verdicts.effects_too_many += u64::from(job.effects > u64::from(has_ended_with_effect));
            for delivery in &job.deliveries {
                verdicts.early += u64::from(delivery.begin < due * 1_000);
                verdicts.other_id += u64::from(delivery.id != id);
                verdicts.after_cancel += u64::from(job.cancelled_at.is_some_and(|at| delivery.begin > at));
            }
            for pair in job.deliveries.windows(2) {
                let (first, second) = (pair[0], pair[1]);
                let has_failed = !first.is_done && second.attempt > first.attempt;
                let is_between = |(begin, end): &(u64, u64)| first.begin <= *end && *begin <= second.begin;
                if kills.iter().any(is_between) {
                    verdicts.explained += u64::from(!has_failed);
                } else {
                    verdicts.unexplained += u64::from(!has_failed);
                }
            }
        }
        verdicts
    }

    fn count(&self, is: impl Fn(&Line) -> bool) -> usize {
        self.lines.iter().filter(|line| is(line)).count()
    }

    /// Returns whether enough timers were created, delivered and cancelled to test the store with `kills` kills.
    pub(crate) fn is_worth_checking(&self, kills: u32) -> bool {
        let kills = kills as usize;
        self.count(|line| kill(line).is_some()) == kills
            && self.count(|line| matches!(line, Line::Created { .. })) > 5 * kills
            && self.count(|line| matches!(line, Line::Delivered { .. })) > 2 * kills
            && self.count(|line| matches!(line, Line::Cancelled { answer: Answer::Cancelled, .. })) > kills
            && self.count(|line| matches!(line, Line::Left { .. })) > 0
    }

    pub(crate) fn effects(&self) -> usize {
        self.count(|line| matches!(line, Line::Effect { .. }))
    }

    /// Returns whether at least eleven timers were created, and at least eleven deliveries made.
    #[cfg(feature = "failpoints")]
    pub(crate) fn is_alive(&self) -> bool {
        self.count(|line| matches!(line, Line::Created { .. })) > 10
            && self.count(|line| matches!(line, Line::Delivered { .. })) > 10
    }

    /// Returns copies of this history, each with a different planted fault and its name. The test of the checker uses
    /// the copies.
    pub(crate) fn planted(&self) -> Vec<(&'static str, Self)> {
        let jobs = self.jobs();
        let ended = |job: &&Job| job.is_created && !job.is_cancelled_perhaps && job.deliveries.len() == 1;
        let of_job =
            |number: u64| move |line: &Line| matches!(line, Line::Delivered { job, .. } if *job == number);
        let delivered = *jobs.iter().find(|(_, job)| ended(job) && job.deliveries[0].is_done).unwrap().0;
        let due = jobs[&delivered].due.unwrap();
        let begin = jobs[&delivered].deliveries[0].begin;
        let cancelled = jobs.iter().find_map(|(number, job)| Some((*number, job.cancelled_at?))).unwrap();
        let left = self.lines.iter().position(|line| {
            matches!(line, Line::Left { id } if {
                let job = u64::try_from(id.wrapping_sub(FIRST_ID)).unwrap();
                jobs[&job].is_created && !jobs[&job].is_cancelled_perhaps && jobs[&job].deliveries.is_empty()
            })
        });
        let left = left.unwrap();
        let id = |job: u64| FIRST_ID + u128::from(job);
        let delivery = |job, id, begin| Line::Delivered { job, id, attempt: 1, begin, is_done: true };
        let with = |more: Line| Self { lines: [&self.lines[..], &[more]].concat() };
        let without = |is: &dyn Fn(&Line) -> bool| Self {
            lines: self.lines.iter().filter(|line| !is(line)).cloned().collect(),
        };
        let mut early = without(&of_job(delivered));
        early.lines.push(delivery(delivered, id(delivered), due * 1_000 - 1));
        let mut renamed = without(&of_job(delivered));
        renamed.lines.push(delivery(delivered, 17, begin));
        let mut unlisted = self.clone();
        unlisted.lines.remove(left);
        let mut planted = vec![
            ("a delivery's line is removed", without(&of_job(delivered))),
            ("a stored timer's line is removed", unlisted),
            ("a delivery is moved before its due moment", early),
            ("a delivery has another id", renamed),
            ("a delivery is there twice", with(delivery(delivered, id(delivered), begin))),
            (
                "a delivery begins after the cancel",
                with(delivery(cancelled.0, id(cancelled.0), cancelled.1 + 1)),
            ),
            ("a cancelled timer is stored", with(Line::Left { id: id(cancelled.0) })),
            ("a delivery of a job that was never created", with(delivery(u64::MAX / 2, 1, begin))),
            ("a fault of the structure", with(Line::Fault { fault: String::new() })),
        ];
        if self.effects() > 0 {
            let (job, _) = jobs.iter().find(|(_, job)| ended(job) && job.effects == 1).unwrap();
            let of_effect = |line: &Line| matches!(line, Line::Effect { job: other } if other == job);
            planted.extend([
                ("an effect is removed", without(&of_effect)),
                ("an effect is there twice", with(Line::Effect { job: *job })),
                ("the timer of an effect is stored", with(Line::Left { id: id(*job) })),
            ]);
        }
        planted
    }
}

fn kill(line: &Line) -> Option<(u64, u64)> {
    match line {
        Line::Kill { begin, end } => Some((*begin, *end)),
        _ => None,
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs: BTreeSet<u64> =
            self.jobs().into_iter().filter(|(_, job)| job.is_created).map(|(n, _)| n).collect();
        let answers =
            |wanted| self.count(|line| matches!(line, Line::Cancelled { answer, .. } if *answer == wanted));
        write!(
            f,
            "{} kills, {} timers acknowledged, {} deliveries, {} cancelled, {} cancelled in flight, {} stored at the \
             end, {} effects",
            self.count(|line| kill(line).is_some()),
            jobs.len(),
            self.count(|line| matches!(line, Line::Delivered { .. })),
            answers(Answer::Cancelled),
            answers(Answer::InFlight),
            self.count(|line| matches!(line, Line::Left { .. })),
            self.effects(),
        )
    }
}
