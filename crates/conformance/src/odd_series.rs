//! Tests series whose plans are not valid, and series that were made while the clock was ahead.

use crate::bench::{Bench, Case, HOUR, LEASE, Make, at};
use crate::series::{every, with};
use core::time::Duration;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::policy::{Guarantee, Policy};
use tourbillon_durable::state::{Death, DeathReason, Failure, Phase, State};
use tourbillon_durable::store::{Leased, Op, Outcome};
use tourbillon_durable::timer::Timer;

pub(crate) const CASES: &[Case] = &[
    ("a series made while the clock was ahead goes on from now", a_series_made_while_the_clock_was_ahead),
    ("clocks of creators may be ahead by a second", clocks_of_creators_may_be_ahead_by_a_second),
    ("an occurrence whose plan is not valid stays, dead", an_occurrence_whose_plan_is_not_valid),
    ("a dead occurrence of a plan that is not valid", a_dead_occurrence_of_a_plan_that_is_not_valid),
];

/// The ways in which the delivery of an occurrence can end so that its series goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ack,
    Skip,
    Dead,
    /// The lease expires, and the timer's policy permits no further delivery.
    Expiry,
}

const ENDS: [End; 4] = [End::Ack, End::Skip, End::Dead, End::Expiry];

impl End {
    fn policy(self) -> Policy {
        // The delivery of a timer that is delivered at most once begins with a skip.
        let guarantee = if self == Self::Skip { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce };
        Policy { guarantee, deliveries: 1, ..Policy::default() }
    }

    /// Claims the only due timer, and ends its delivery at the moment `now`. Returns the timer, and the outcome of the
    /// operation by which the delivery ends.
    #[track_caller]
    fn end(self, bench: &Bench, now: u64) -> (Timer, Option<Outcome>) {
        let expires = if self == Self::Expiry { LEASE } else { 0 };
        bench.set(now - expires);
        let Leased { timer, token } = bench.the_due();
        bench.set(now);
        let failure = Failure { is_final: true, ..Failure::default() };
        let op = match self {
            Self::Ack => Op::Ack(timer.id, token),
            Self::Skip => Op::Skip(timer.id, token),
            Self::Dead => Op::Fail(timer.id, token, failure),
            Self::Expiry => {
                assert_eq!(bench.reap(9).dead, [timer.id]);
                return (timer, None);
            }
        };
        (timer, Some(bench.apply(op)))
    }
}

/// An occurrence was made while the clock was ahead by hours, for an instant that has not come. Once the occurrence was
/// fired and delivered, the series goes on from the present moment, and not from that instant.
fn a_series_made_while_the_clock_was_ahead(make: Make<'_>) {
    for end in ENDS {
        for missed in [MissedInstants::Skip, MissedInstants::All] {
            let bench = Bench::new(make);
            let ahead = 10 * HOUR;
            bench.set(ahead);
            let timer = Timer { policy: end.policy(), ..every(&bench, 1_000, ahead) };
            bench.create(&with(timer, |series| series.missed = missed));
            let _first = end.end(&bench, ahead + LEASE);
            let made = bench.get("s").expect("the series goes on");
            assert!(made.scheduled > at(ahead), "{end:?}");
            bench.set(LEASE + 5_000);
            assert_eq!(bench.apply(Op::Fire("s".into())), Outcome::Changed(made.id));
            let now = 2 * LEASE + 5_000;
            assert_eq!(end.end(&bench, now).0.id, made.id);
            let next = bench.get("s").expect("the series goes on");
            assert_eq!((next.scheduled, next.created), (at(now + 1_000), at(now)), "{end:?}, {missed:?}");
        }
    }
}

fn clocks_of_creators_may_be_ahead_by_a_second(make: Make<'_>) {
    for end in ENDS {
        for ahead in [0, 1_000, 1_001] {
            let bench = Bench::new(make);
            // The moment of the end counts, so the clock goes back to just before the claim.
            let (now, made) = (HOUR + LEASE, HOUR + LEASE + ahead);
            bench.set(made);
            bench.create(&Timer { policy: end.policy(), ..every(&bench, HOUR, made) });
            bench.set(HOUR);
            assert!(matches!(bench.apply(Op::Fire("s".into())), Outcome::Changed(_)));
            let _ended = end.end(&bench, now);
            let from = if ahead > 1_000 { now } else { made };
            let next = bench.get("s").map(|timer| timer.scheduled);
            assert_eq!(next, Some(at(from + HOUR)), "{end:?}, ahead by {ahead} ms");
        }
    }
}

/// Plans that are not valid. A store gets such a plan in a backup from a machine that knew the plan's zone, or from a
/// program of another version.
fn invalid_plans() -> [Plan; 4] {
    let cron = |expression: &str, zone: &str| Plan::Cron {
        expression: expression.into(),
        zone: zone.into(),
        skip_gaps: false,
    };
    let monthly =
        |day, second| Plan::Monthly { day, second, zone: "UTC".into(), last_if_short: true, skip_gaps: true };
    [cron("0 99 * * *", "UTC"), cron("0 9 * * *", "No/Where"), monthly(32, 0), monthly(1, 86_400)]
}

/// If the plan is not valid, no occurrence follows. The delivered occurrence becomes dead, so that a person sees this.
fn an_occurrence_whose_plan_is_not_valid(make: Make<'_>) {
    for plan in invalid_plans() {
        for end in [End::Ack, End::Skip] {
            let bench = Bench::new(make);
            let timer = Timer { policy: end.policy(), labels: vec!["l".into()], ..every(&bench, 1, 0) };
            let timer = with(timer, |series| series.plan = plan.clone());
            bench.create(&timer);
            let (_, outcome) = end.end(&bench, 7);
            let ended = Outcome::Ended { id: timer.id, phase: Phase::Dead, next: None, skipped: 0 };
            assert_eq!(outcome, Some(ended));
            let dead = bench.get(timer.id).expect("the occurrence stays");
            let death = Death { reason: DeathReason::Plan, at: at(7) };
            assert_eq!((dead.state, dead.series), (State::Dead(death), None), "{end:?}, {plan:?}");
            assert_eq!((bench.get("s"), bench.all().len()), (None, 1));
            let leased = pollster::block_on(bench.store.recover(bench.by, bench.claims.get()));
            assert_eq!(leased.expect("a read failed"), [], "its delivery has ended");
            assert_eq!(bench.apply(Op::Replay(timer.id)), Outcome::Changed(timer.id));
            assert_eq!(end.end(&bench, 8).0.id, timer.id);
            assert_eq!(bench.all(), [], "the timer has no series any more");
        }
        // The plan matters at the end only, and not for a withdrawn timer.
        let bench = Bench::new(make);
        let timer = with(every(&bench, 1, 0), |series| series.plan = plan.clone());
        bench.create(&timer);
        let failure = Failure { retry_after: Some(Duration::ZERO), ..Failure::default() };
        let pending = bench.apply(Op::Fail(timer.id, bench.the_due().token, failure));
        assert!(matches!(pending, Outcome::Ended { phase: Phase::Pending, .. }));
        assert_eq!(bench.get("s").and_then(|stored| stored.series), timer.series);
        let token = bench.the_due().token;
        assert_eq!(bench.apply(Op::Cancel("s".into(), None)), Outcome::InFlight(timer.id));
        let done = Outcome::Ended { id: timer.id, phase: Phase::Done, next: None, skipped: 0 };
        assert_eq!(bench.apply(Op::Ack(timer.id, token)), done);
        assert_eq!(bench.all(), []);
    }
}

fn a_dead_occurrence_of_a_plan_that_is_not_valid(make: Make<'_>) {
    for (end, reason) in [(End::Dead, DeathReason::Refused), (End::Expiry, DeathReason::Deliveries)] {
        for plan in invalid_plans() {
            let bench = Bench::new(make);
            let timer = Timer { policy: end.policy(), ..every(&bench, 1, 0) };
            let timer = with(timer, |series| series.plan = plan);
            bench.create(&timer);
            let _ended = end.end(&bench, LEASE);
            let [dead] = &bench.all()[..] else { panic!("no occurrence follows") };
            assert_eq!((dead.id, &dead.series), (timer.id, &None));
            assert_eq!(dead.state, State::Dead(Death { reason, at: at(LEASE) }));
        }
    }
}
