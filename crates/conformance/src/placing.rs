//! Tests creations, keys and cancels.

use crate::bench::{Bench, Case, HOUR, Make, at};
use core::time::Duration;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::plan::{MissedInstants, Plan, Series};
use tourbillon_durable::policy::{Backoff, Guarantee, Misfire, Policy};
use tourbillon_durable::state::{Death, DeathReason, Failure, Phase, Refusal, State};
use tourbillon_durable::store::{IfPresent, Op, Outcome, PAUSED, StoreErrorKind};
use tourbillon_durable::timer::{Address, KeyOf, Payload, Timer, TimerId};

pub(crate) const CASES: &[Case] = &[
    ("a timer is stored as it was given", a_timer_is_stored_as_it_was_given),
    ("keys by mode and phase", keys_by_mode_and_phase),
    ("a timer takes the place of the named timer", a_timer_takes_the_place_of_the_named_timer),
    ("a key belongs to its namespace", a_key_belongs_to_its_namespace),
    ("a repeated creation makes one timer", a_repeated_creation_makes_one_timer),
    ("ids are forgotten after an hour", ids_are_forgotten_after_an_hour),
    ("an id is forgotten however many are over", an_id_is_forgotten_however_many_are_over),
    ("an id is remembered from its last end on", an_id_is_remembered_from_its_last_end_on),
    ("a batch is applied in order", a_batch_is_applied_in_order),
    ("arguments beyond the limits change nothing", arguments_beyond_the_limits_change_nothing),
    ("no text has a zero byte", no_text_has_a_zero_byte),
    ("cancels say what became of the timer", cancels_say_what_became_of_the_timer),
    ("moves", moves),
    ("the last moment", the_last_moment),
];

fn a_timer_is_stored_as_it_was_given(make: Make<'_>) {
    let bench = Bench::new(make);
    let policy = Policy {
        attempts: 3,
        deliveries: 4,
        max_age: Some(Duration::from_secs(5)),
        backoff: Backoff::Ladder(vec![Duration::from_millis(1), Duration::from_nanos(1)]),
        timeout: Duration::from_secs(6),
        misfire: Misfire::Within(Duration::from_secs(7)),
        jitter: Duration::from_secs(8),
        guarantee: Guarantee::AtMostOnce,
    };
    let given = Timer {
        namespace: "a namespace".into(),
        key: Some("clé".into()),
        kind: "kind".into(),
        labels: vec!["b".into(), "a".into()],
        policy,
        trace: Some("00-1-2-01".into()),
        has_chosen_id: true,
        due: at(5_007),
        ..bench.timer(5_000)
    };
    bench.set(3);
    bench.create(&given);
    let stored = Timer { created: at(3), ..given.clone() };
    assert_eq!(bench.get(given.id), Some(stored.clone()));
    let key = KeyOf { namespace: "a namespace".into(), key: "clé".into() };
    assert_eq!(bench.get(Address::Key(key)), Some(stored.clone()));
    assert_eq!(bench.get("clé"), None, "the key is another namespace's");
    assert_eq!(bench.all(), [stored]);
    let plain = Timer { payload: Payload::default(), ..bench.timer(0) };
    bench.create(&plain);
    assert_eq!(bench.get(plain.id), Some(Timer { created: at(3), ..plain }));
}

/// Stores a timer for each phase of a timer's life. Returns each timer with its phase, and whether a timer in that
/// phase still owns its key.
fn olds(bench: &Bench) -> Vec<(Timer, Phase, bool)> {
    let mut olds = Vec::new();
    for phase in ["pending", "leased", "withdrawn", "parked", "dead"] {
        let old = bench.keyed(phase, 0);
        bench.create(&old);
        let leased = || {
            let due = bench.due();
            due.into_iter().find(|leased| leased.timer.id == old.id).expect("it is due")
        };
        let owns = match phase {
            "leased" => leased().timer.state.phase() == Phase::Leased,
            "withdrawn" => {
                let _leased = leased();
                assert_eq!(bench.apply(Op::Cancel(old.id.into(), None)), Outcome::InFlight(old.id));
                false
            }
            "parked" => bench.apply(Op::Pause(old.id.into())) == Outcome::Changed(old.id),
            "dead" => {
                let failure = Failure { is_final: true, ..Failure::default() };
                let _outcome = bench.apply(Op::Fail(old.id, leased().token, failure));
                false
            }
            _ => {
                assert_eq!(bench.apply(Op::Move(old.id.into(), at(9_000))), Outcome::Changed(old.id));
                true
            }
        };
        let stored = bench.get(old.id).expect("it is stored");
        let is = stored.state.phase();
        olds.push((stored, is, owns));
    }
    olds
}

fn keys_by_mode_and_phase(make: Make<'_>) {
    for mode in [IfPresent::Reject, IfPresent::Keep, IfPresent::Replace, IfPresent::ReplaceKeepDue] {
        let bench = Bench::new(make);
        for (old, was, owns) in olds(&bench) {
            let key = old.key.clone().expect("it has a key");
            let new = bench.keyed(&key, 70_000);
            let outcome = bench.place(&new, mode);
            let created = Timer { created: at(0), ..new.clone() };
            if !owns {
                assert_eq!(outcome, Outcome::Created(new.id), "{mode:?} of a {was:?} timer without its key");
                assert_eq!(bench.get(&*key), Some(created));
                assert_eq!(bench.get(old.id), Some(old));
                continue;
            }
            match mode {
                IfPresent::Reject => {
                    let refused = Outcome::KeyExists { holder: old.id, refused: Box::new(created) };
                    assert_eq!(outcome, refused);
                }
                IfPresent::Keep => assert_eq!(outcome, Outcome::Kept { id: old.id, was }),
                IfPresent::Replace | IfPresent::ReplaceKeepDue | IfPresent::ReplaceOnly(_) => {
                    assert_eq!(outcome, Outcome::Replaced { new: new.id, old: old.id, was });
                    let (due, scheduled) = match mode {
                        IfPresent::ReplaceKeepDue => (old.due, old.scheduled),
                        _ => (new.due, new.scheduled),
                    };
                    assert_eq!(bench.get(&*key), Some(Timer { due, scheduled, ..created }));
                    match was {
                        Phase::Leased => assert_eq!(bench.phase(old.id), Some(Phase::Leased)),
                        _ => assert_eq!(bench.get(old.id), None),
                    }
                    continue;
                }
            }
            assert_eq!(bench.get(&*key), Some(old), "the old timer stays as it was");
            assert_eq!(bench.get(new.id), None);
        }
        // The clock moves on, so that each delivery ends. No withdrawn timer comes back.
        bench.set(super::bench::LEASE);
        let reaped = bench.reap(100);
        let replaces = matches!(mode, IfPresent::Replace | IfPresent::ReplaceKeepDue);
        assert_eq!((reaped.withdrawn, reaped.returned.len()), if replaces { (2, 0) } else { (1, 1) });
    }
}

fn a_key_belongs_to_its_namespace(make: Make<'_>) {
    let bench = Bench::new(make);
    let names = [("", "ab"), ("a", "b"), ("ab", ""), ("a", ""), ("", "")];
    for (namespace, key) in names {
        let timer = Timer { namespace: namespace.into(), ..bench.keyed(key, 0) };
        bench.create(&timer);
        let at = Address::Key(KeyOf { namespace: namespace.into(), key: key.into() });
        assert_eq!(bench.get(at).map(|timer| timer.id), Some(timer.id));
    }
    for (namespace, key) in names {
        let timer = Timer { namespace: namespace.into(), ..bench.keyed(key, 0) };
        assert!(matches!(bench.place(&timer, IfPresent::Reject), Outcome::KeyExists { .. }));
    }
}

fn chosen(bench: &Bench, due: u64) -> Timer {
    Timer { has_chosen_id: true, ..bench.timer(due) }
}

fn a_repeated_creation_makes_one_timer(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = Timer { key: Some("k".into()), ..chosen(&bench, 100) };
    let repeated = Outcome::Repeated(timer.id);
    bench.create(&timer);
    let stored = bench.get(timer.id);
    for mode in [IfPresent::Reject, IfPresent::Keep, IfPresent::Replace, IfPresent::ReplaceKeepDue] {
        let other = Timer { due: at(7), payload: Payload::default(), ..timer.clone() };
        assert_eq!(bench.place(&other, mode), repeated);
        assert_eq!(bench.get(timer.id), stored, "a repeated creation changes nothing");
    }
    bench.set(100);
    let leased = bench.the_due();
    assert_eq!(bench.place(&timer, IfPresent::Replace), repeated, "while it is delivered");
    let ended = Outcome::Ended { id: timer.id, phase: Phase::Done, next: None, skipped: 0 };
    assert_eq!(bench.apply(Op::Ack(timer.id, leased.token)), ended);
    assert_eq!(bench.place(&timer, IfPresent::Reject), repeated, "after its end");
    let in_one = bench.apply_all(vec![
        Op::Place(Box::new(timer.clone()), IfPresent::Reject),
        Op::Place(Box::new(bench.keyed("k", 1)), IfPresent::Reject),
    ]);
    assert!(matches!(in_one[..], [Outcome::Repeated(_), Outcome::Created(_)]), "the key is free: {in_one:?}");
    // The ids of timers are remembered after every other end, too.
    let [cancelled, replaced, once] = [0, 1, 2].map(|n| Timer {
        key: Some(format!("end {n}").into()),
        policy: Policy {
            guarantee: if n == 2 { Guarantee::AtMostOnce } else { Guarantee::AtLeastOnce },
            ..Policy::default()
        },
        ..chosen(&bench, 0)
    });
    for timer in [&cancelled, &replaced] {
        bench.create(timer);
    }
    assert!(matches!(bench.apply(Op::Cancel("end 0".into(), None)), Outcome::Cancelled(_)));
    let replacement = bench.keyed("end 1", 0);
    assert!(matches!(bench.place(&replacement, IfPresent::Replace), Outcome::Replaced { .. }));
    let _due = bench.due();
    bench.create(&once);
    let begun = bench.apply(Op::Skip(once.id, bench.the_due().token));
    assert!(matches!(begun, Outcome::Ended { phase: Phase::Done, .. }), "{begun:?}");
    for timer in [cancelled, replaced, once] {
        assert_eq!(bench.place(&timer, IfPresent::Replace), Outcome::Repeated(timer.id));
    }
}

fn ids_are_forgotten_after_an_hour(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = chosen(&bench, 0);
    bench.create(&timer);
    assert!(matches!(bench.apply(Op::Cancel(timer.id.into(), None)), Outcome::Cancelled(_)));
    bench.set(HOUR - 1);
    assert_eq!(bench.place(&timer, IfPresent::Reject), Outcome::Repeated(timer.id));
    bench.set(HOUR);
    assert_eq!(bench.place(&timer, IfPresent::Reject), Outcome::Created(timer.id));
    // An id that the caller has not chosen is not remembered.
    let other = bench.timer(0);
    bench.create(&other);
    assert!(matches!(bench.apply(Op::Cancel(other.id.into(), None)), Outcome::Cancelled(_)));
    bench.create(&other);
}

fn an_id_is_forgotten_however_many_are_over(make: Make<'_>) {
    let bench = Bench::new(make);
    let timers: Vec<Timer> = (0..350).map(|_| chosen(&bench, 0)).collect();
    let place = |timer: &Timer| Op::Place(Box::new(timer.clone()), IfPresent::Reject);
    let cancel = |timer: &Timer| Op::Cancel(timer.id.into(), None);
    let _created = bench.apply_all(timers.iter().map(place).collect());
    let _cancelled = bench.apply_all(timers.iter().map(cancel).collect());
    bench.set(HOUR);
    let last = timers.last().expect("there are some");
    assert_eq!(bench.place(last, IfPresent::Reject), Outcome::Created(last.id));
    // The second end of the timer is remembered for a whole hour. The first end is forgotten in between.
    assert!(matches!(bench.apply(cancel(last)), Outcome::Cancelled(_)));
    for _ in 0..10 {
        bench.create(&bench.timer(10 * HOUR));
    }
    assert_eq!(bench.place(last, IfPresent::Reject), Outcome::Repeated(last.id));
    bench.set(2 * HOUR);
    assert_eq!(bench.place(last, IfPresent::Reject), Outcome::Created(last.id));
}

fn an_id_is_remembered_from_its_last_end_on(make: Make<'_>) {
    let bench = Bench::new(make);
    let timer = chosen(&bench, 0);
    bench.create(&timer);
    let end = || drop(bench.apply(Op::Ack(timer.id, bench.the_due().token)));
    end();
    // The timer has ended, is stored again by a backup, and ends again.
    let later = Timer { due: at(HOUR / 2), ..timer.clone() };
    pollster::block_on(bench.store.import(vec![later])).expect("an import failed");
    bench.set(HOUR / 2);
    end();
    bench.set(HOUR);
    // The next creation drops the ids whose hour is over.
    bench.create(&bench.timer(10 * HOUR));
    assert_eq!(bench.place(&timer, IfPresent::Reject), Outcome::Repeated(timer.id));
    bench.set(HOUR + HOUR / 2);
    assert_eq!(bench.place(&timer, IfPresent::Reject), Outcome::Created(timer.id));
}

fn a_batch_is_applied_in_order(make: Make<'_>) {
    let bench = Bench::new(make);
    let (first, second) = (bench.keyed("k", 5), bench.keyed("k", 6));
    let outcomes = bench.apply_all(vec![
        Op::Place(Box::new(first.clone()), IfPresent::Reject),
        Op::Place(Box::new(second.clone()), IfPresent::Replace),
        Op::Cancel("k".into(), None),
        Op::Place(Box::new(first.clone()), IfPresent::Keep),
        Op::Move(first.id.into(), at(70)),
        Op::Cancel(second.id.into(), None),
    ]);
    assert_eq!(outcomes[0], Outcome::Created(first.id));
    assert_eq!(outcomes[1], Outcome::Replaced { new: second.id, old: first.id, was: Phase::Pending });
    assert_eq!(outcomes[2], Outcome::Cancelled(Box::new(Timer { created: at(0), ..second })));
    assert_eq!(outcomes[3], Outcome::Created(first.id));
    assert_eq!(outcomes[4], Outcome::Changed(first.id));
    assert_eq!(outcomes[5], Outcome::NotFound);
    assert_eq!(bench.get("k").map(|timer| timer.due), Some(at(70)));
    assert_eq!(bench.apply_all(Vec::new()), []);
}

fn arguments_beyond_the_limits_change_nothing(make: Make<'_>) {
    let bench = Bench::new(make);
    let long = "n".repeat(255);
    let fits = Timer {
        namespace: long.as_str().into(),
        labels: vec![long.as_str().into(), "a".into(), "a".into()],
        ..bench.keyed("k", 0)
    };
    bench.create(&fits);
    let leased = bench.the_due();
    let parked = bench.apply(Op::Park(fits.id, leased.token, long.as_str().into()));
    assert!(matches!(parked, Outcome::Ended { phase: Phase::Parked, .. }));
    assert_eq!(bench.apply(Op::Unpark(long.as_str().into(), 5)), Outcome::Unparked(1));
    assert!(matches!(bench.apply(Op::Cancel(fits.id.into(), None)), Outcome::Cancelled(_)));

    let too_long: Box<str> = "n".repeat(256).into();
    let good = Op::Place(Box::new(bench.timer(0)), IfPresent::Reject);
    let token = leased.token;
    let lease = tourbillon_durable::state::Lease { token, until: at(5), withdrawn: None };
    let death = Death { reason: DeathReason::Refused, at: at(0) };
    for bad in [
        Op::Place(Box::new(Timer { namespace: too_long.clone(), ..bench.timer(0) }), IfPresent::Reject),
        Op::Place(Box::new(Timer { labels: vec![too_long.clone()], ..bench.timer(0) }), IfPresent::Reject),
        Op::Place(Box::new(Timer { kind: too_long.clone(), ..bench.timer(0) }), IfPresent::Reject),
        Op::Place(Box::new(Timer { key: Some(too_long.clone()), ..bench.timer(0) }), IfPresent::Reject),
        Op::Place(Box::new(Timer { trace: Some(too_long.clone()), ..bench.timer(0) }), IfPresent::Reject),
        Op::Place(Box::new(Timer { state: State::Leased(lease), ..bench.timer(0) }), IfPresent::Reject),
        Op::Place(Box::new(Timer { state: State::Dead(death), ..bench.timer(0) }), IfPresent::Reject),
        Op::Park(fits.id, token, too_long.clone()),
    ] {
        let text = format!("{bad:?}");
        assert_eq!(bench.refuses(vec![good.clone(), bad]), StoreErrorKind::Limit, "{text}");
    }
}

/// Each store refuses texts with zero bytes, since a backup with such a text could not be restored into PostgreSQL.
fn no_text_has_a_zero_byte(make: Make<'_>) {
    let bench = Bench::new(make);
    bench.create(&bench.keyed("k", 0));
    let leased = bench.the_due();
    let (id, token) = (leased.timer.id, leased.token);
    let zero = || Box::<str>::from("a\0b");
    let key = || Address::Key(KeyOf { namespace: "".into(), key: zero() });
    let namespace = || Address::Key(KeyOf { namespace: zero(), key: "k".into() });
    let later = at(5);
    let mut refused: Vec<Op> = timers_with_zero_bytes(&bench)
        .into_iter()
        .map(|timer| Op::Place(Box::new(timer), IfPresent::Replace))
        .collect();
    let addresses: [&dyn Fn() -> Address; 2] = [&key, &namespace];
    for at in addresses {
        refused.extend([
            Op::Cancel(at(), None),
            Op::Move(at(), later),
            Op::Pause(at()),
            Op::Resume(at()),
            Op::Fire(at()),
        ]);
        assert_eq!(bench.get(at()), None);
    }
    refused.extend([
        Op::CancelLabelled { namespace: "".into(), label: zero(), limit: 5 },
        Op::CancelLabelled { namespace: zero(), label: "l".into(), limit: 5 },
        Op::Park(id, token, zero()),
        Op::Unpark(zero(), 5),
    ]);
    for op in refused {
        let text = format!("{op:?}");
        let good = Op::Place(Box::new(bench.timer(0)), IfPresent::Reject);
        assert_eq!(bench.refuses(vec![good, op]), StoreErrorKind::Limit, "{text}");
    }
    let payload = Payload((*b"a\0b").into());
    let given = Timer { payload, ..bench.timer(0) };
    bench.create(&given);
    assert_eq!(bench.get(given.id).map(|timer| timer.payload), Some(given.payload));
}

/// Makes timers that each have a zero byte in another text.
pub(crate) fn timers_with_zero_bytes(bench: &Bench) -> Vec<Timer> {
    let zero = || Box::<str>::from("a\0b");
    let series =
        |plan| Series { id: bench.fresh(), plan, missed: MissedInstants::Skip, end: None, paused: false };
    let cron = |expression: Box<str>, zone| Plan::Cron { expression, zone, skip_gaps: false };
    let monthly = Plan::Monthly { day: 1, second: 0, zone: zero(), last_if_short: true, skip_gaps: false };
    let timer = || bench.timer(0);
    let mut all = vec![
        Timer { namespace: zero(), ..timer() },
        Timer { key: Some(zero()), ..timer() },
        Timer { kind: zero(), ..timer() },
        Timer { labels: vec!["a".into(), zero()], ..timer() },
        Timer { trace: Some(zero()), ..timer() },
        Timer { last_error: Some(zero()), ..timer() },
        Timer { state: State::Parked(zero()), ..timer() },
    ];
    let plans = [cron(zero(), "UTC".into()), cron("0 9 * * *".into(), zero()), monthly];
    all.extend(plans.map(|plan| Timer { series: Some(series(plan)), ..timer() }));
    all
}

fn cancels_say_what_became_of_the_timer(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(Op::Cancel("k".into(), None)), Outcome::NotFound);
    let pending = bench.keyed("k", 0);
    bench.create(&pending);
    let other = TimerId::from_u128(5);
    assert_eq!(bench.apply(Op::Cancel("k".into(), Some(other))), Outcome::NotFound);
    let stored = bench.get("k").expect("it is stored");
    assert_eq!(bench.apply(Op::Cancel("k".into(), Some(pending.id))), Outcome::Cancelled(Box::new(stored)));
    assert_eq!(bench.due_ids(), [], "a cancelled timer is not claimed");
    // A timer that is cancelled during its delivery is not delivered again, no matter how this delivery ends.
    for end in 0..5 {
        let timer = bench.keyed("k", 0);
        bench.create(&timer);
        let token = bench.the_due().token;
        for _ in 0..2 {
            assert_eq!(bench.apply(Op::Cancel(timer.id.into(), None)), Outcome::InFlight(timer.id));
        }
        assert_eq!(bench.get("k"), None, "the key is free");
        let ended = bench.apply(match end {
            0 => Op::Fail(timer.id, token, Failure::default()),
            1 => Op::Snooze(timer.id, token, at(0)),
            2 => Op::Release(timer.id, token),
            3 => Op::Park(timer.id, token, "limit".into()),
            _ => Op::Skip(timer.id, token),
        });
        let withdrawn = Outcome::Ended { id: timer.id, phase: Phase::Withdrawn, next: None, skipped: 0 };
        assert_eq!(ended, withdrawn);
        assert_eq!(bench.get(timer.id), None);
        assert_eq!(bench.due_ids(), []);
    }
    let timer = bench.keyed("k", 0);
    bench.create(&timer);
    let token = bench.the_due().token;
    assert_eq!(bench.apply(Op::Cancel("k".into(), None)), Outcome::InFlight(timer.id));
    let done = Outcome::Ended { id: timer.id, phase: Phase::Done, next: None, skipped: 0 };
    assert_eq!(bench.apply(Op::Ack(timer.id, token)), done, "a delivery that succeeded succeeded");
    assert_eq!(bench.all(), []);
}

fn moves(make: Make<'_>) {
    let bench = Bench::new(make);
    assert_eq!(bench.apply(Op::Move("k".into(), at(5))), Outcome::NotFound);
    let timer = bench.keyed("k", 10);
    bench.create(&timer);
    assert_eq!(bench.apply(Op::Move("k".into(), at(500))), Outcome::Changed(timer.id));
    let moved = bench.get("k").expect("it is stored");
    assert_eq!((moved.due, moved.scheduled), (at(500), at(500)));
    bench.set(499);
    assert_eq!(bench.due_ids(), []);
    assert_eq!(bench.apply(Op::Move("k".into(), at(20))), Outcome::Changed(timer.id));
    let token = bench.the_due().token;
    let refused = |phase| Outcome::Refused(Refusal::State(phase));
    assert_eq!(bench.apply(Op::Move("k".into(), at(900))), refused(Phase::Leased));
    let _parked = bench.apply(Op::Park(timer.id, token, "limit".into()));
    // A move to a past moment leaves the timer parked. A move into the future makes it pending.
    assert_eq!(bench.apply(Op::Move("k".into(), at(30))), Outcome::Changed(timer.id));
    assert_eq!(bench.phase("k"), Some(Phase::Parked));
    assert_eq!(bench.apply(Op::Move("k".into(), at(900))), Outcome::Changed(timer.id));
    assert_eq!(bench.phase("k"), Some(Phase::Pending));
    assert_eq!(bench.apply(Op::Unpark("limit".into(), 1)), Outcome::Unparked(0));
    bench.set(899);
    assert_eq!(bench.due_ids(), []);
    bench.set(900);
    assert_eq!(bench.due_ids(), [timer.id]);
    // A move does not end a pause.
    let paused = bench.keyed("paused", 1_000);
    bench.create(&paused);
    assert_eq!(bench.apply(Op::Pause("paused".into())), Outcome::Changed(paused.id));
    assert_eq!(bench.apply(Op::Move("paused".into(), at(2_000))), Outcome::Changed(paused.id));
    assert_eq!(bench.get("paused").map(|timer| timer.state), Some(State::Parked(PAUSED.into())));
}

fn the_last_moment(make: Make<'_>) {
    let bench = Bench::new(make);
    let last = Timer { due: UtcMillis::MAX, scheduled: UtcMillis::MAX, ..bench.timer(0) };
    let first = Timer { due: UtcMillis::ZERO, scheduled: UtcMillis::ZERO, ..bench.timer(0) };
    bench.create(&last);
    bench.create(&first);
    let claimed = bench.claim(9, 9_999);
    assert_eq!(claimed.leased.iter().map(|leased| leased.timer.id).collect::<Vec<_>>(), [first.id]);
    assert_eq!(claimed.next_due, Some(UtcMillis::MAX));
}

fn a_timer_takes_the_place_of_the_named_timer(make: Make<'_>) {
    let bench = Bench::new(make);
    let keyed = |due| Timer { key: Some("k".into()), ..bench.timer(due) };
    let (first, second, third) = (keyed(1_000), keyed(2_000), keyed(3_000));
    let over = |timer: &Timer, old: &Timer| bench.place(timer, IfPresent::ReplaceOnly(old.id));
    assert_eq!(over(&second, &first), Outcome::NotFound, "no timer has the key");
    bench.create(&first);
    assert_eq!(
        over(&second, &first),
        Outcome::Replaced { new: second.id, old: first.id, was: Phase::Pending }
    );
    let refused = over(&third, &first);
    assert!(matches!(refused, Outcome::KeyExists { holder, .. } if holder == second.id), "{refused:?}");
    assert_eq!(bench.get("k").map(|timer| timer.id), Some(second.id));
    assert_eq!(bench.get(third.id), None);
    let keyless = bench.timer(0);
    assert_eq!(over(&keyless, &second), Outcome::NotFound, "a timer without a key takes no place");
}
