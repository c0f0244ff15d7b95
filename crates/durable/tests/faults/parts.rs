//! Tests a store of several parts. A part that is *away* does not answer to ends of deliveries.

use crate::stores::{Failing, Failures};
use crate::{Note, PATIENCE, eventually, phases, secs};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tourbillon_durable::state::{Phase, State};
use tourbillon_durable::store::{Durability, Op, TimerStore};
use tourbillon_durable::timer::{Timer, TimerId};
use tourbillon_durable::{Delivery, Durable, Event, Spec, Verdict};

/// The number of parts of the store. A timer belongs to the part with the number `id % PARTS`.
const PARTS: u32 = 4;
/// The number of the part of the store that does not answer to ends of deliveries.
const AWAY: u32 = 1;
/// The length of a lease: the shortest that a runtime permits. So a timer whose lease is not renewed is soon delivered
/// again.
const LEASE: Duration = Duration::from_secs(1);

/// A runtime on a store of several parts, and the number of deliveries of each timer.
struct Parts {
    failing: Arc<Failing>,
    durable: Option<Durable>,
    seen: Arc<Mutex<BTreeMap<TimerId, u32>>>,
    events: Arc<Mutex<Vec<String>>>,
}

fn id(number: u64) -> TimerId {
    TimerId::from_u128(u128::from(number))
}

/// Returns the id of a timer in the part `part`. Each `number` gives a different timer.
fn number(part: u32, number: u64) -> u64 {
    u64::from(PARTS) * (1 + number) + u64::from(part)
}

impl Parts {
    fn start() -> Self {
        Self::answering(|_| Verdict::Done)
    }

    fn answering(answer: impl Fn(&Delivery) -> Verdict + Send + Sync + 'static) -> Self {
        let failing = Arc::new(Failures::with_parts(PARTS));
        let store: Arc<dyn TimerStore> = Arc::<Failing>::clone(&failing);
        let (seen, events) = (Arc::<Mutex<BTreeMap<_, _>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (noted, observed) = (Arc::clone(&seen), Arc::clone(&events));
        let durable = Durable::builder_on(store)
            .lease(LEASE)
            .catch_up_rate(None)
            .observe(move |event| {
                let line = match event {
                    Event::Began { attempt, .. } => format!("began {}", attempt.delivery),
                    Event::Ended { attempt, .. } => format!("ended {}", attempt.delivery),
                    Event::LeaseLost { .. } => "lost".to_owned(),
                    Event::EndLost { .. } => "end lost".to_owned(),
                    _ => return,
                };
                observed.lock().unwrap().push(line);
            })
            .handler(move |_: Note, delivery: Delivery| {
                *noted.lock().unwrap().entry(delivery.id).or_default() += 1;
                let verdict = answer(&delivery);
                async move { verdict }
            })
            .start()
            .unwrap();
        Self { failing, durable: Some(durable), seen, events }
    }

    fn durable(&self) -> &Durable {
        self.durable.as_ref().unwrap()
    }

    fn schedule(&self, number: u64) {
        self.durable().handle().schedule_blocking(Spec::new(Note(number)).id(id(number))).unwrap();
    }

    fn schedule_once(&self, number: u64) {
        let spec = Spec::new(Note(number)).id(id(number)).at_most_once();
        self.durable().handle().schedule_blocking(spec).unwrap();
    }

    fn deliveries(&self, number: u64) -> u32 {
        self.seen.lock().unwrap().get(&id(number)).copied().unwrap_or(0)
    }

    fn done(&self) -> u64 {
        self.durable().handle().stats().done
    }

    fn left(&self) -> BTreeMap<Phase, u64> {
        phases(&**self.failing.inner())
    }

    /// Asserts that all timers were done, each by a single delivery.
    fn assert_once(mut self, timers: u64) {
        eventually(|| self.left().is_empty());
        assert_eq!(self.durable.take().unwrap().shutdown(PATIENCE).ends_lost, 0);
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.len() as u64, timers);
        assert!(seen.values().all(|count| *count == 1), "delivered again: {seen:?}");
        assert_eq!(pollster::block_on(self.failing.inner().check()).unwrap(), []);
    }
}

/// Tests a store with a part that does not answer. The claims, renewals and ends of deliveries of other parts go on.
/// The timer whose end has no answer keeps its lease.
#[test]
fn an_end_without_an_answer_delays_no_other_part_and_is_not_lost() {
    let parts = Parts::start();
    parts.failing.hook().leave(AWAY, false);
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    eventually(|| parts.deliveries(stuck) == 1);
    let (begin, mut longest, mut others) = (Instant::now(), Duration::ZERO, 0);
    while begin.elapsed() < 3 * LEASE {
        let number = number(if others % 2 == 0 { 2 } else { 3 }, others);
        let placed = Instant::now();
        parts.schedule(number);
        eventually(|| parts.done() > others);
        longest = longest.max(placed.elapsed());
        others += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("{others} timers beside an end without an answer, the slowest in {longest:?}");
    assert!(longest < secs(1), "{longest:?}");
    assert_eq!(parts.left(), BTreeMap::from([(Phase::Leased, 1)]), "its end has no answer yet");
    parts.failing.hook().come_back(false);
    parts.assert_once(others + 1);
}

/// Tests timers at most once of a part that does not answer, more of them than the runtime has places. The timers of
/// other parts go on, with both guarantees. Afterwards each is delivered once.
#[test]
fn removals_without_an_answer_delay_no_other_part_and_lose_no_timer() {
    const ONCE: u64 = 40;
    let parts = Parts::start();
    parts.failing.hook().leave(AWAY, false);
    (0..ONCE).for_each(|timer| parts.schedule_once(number(AWAY, timer)));
    let (begin, mut longest, mut others) = (Instant::now(), Duration::ZERO, 0);
    while begin.elapsed() < 4 * LEASE {
        let number = number(if others % 2 == 0 { 2 } else { 3 }, others);
        let placed = Instant::now();
        match others % 3 {
            0 => parts.schedule(number),
            _ => parts.schedule_once(number),
        }
        eventually(|| parts.done() > others);
        longest = longest.max(placed.elapsed());
        others += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("{others} timers beside removals without an answer, the slowest in {longest:?}");
    // The first removals leave their places after a second.
    assert!(longest < secs(2), "{longest:?}");
    assert_eq!(parts.left(), BTreeMap::from([(Phase::Leased, ONCE)]));
    let stats = parts.durable().handle().stats();
    assert_eq!((stats.leases_lost, stats.lost), (0, 0));
    parts.failing.hook().come_back(false);
    parts.assert_once(others + ONCE);
}

/// Tests ends of deliveries that wait for a part without answers. The ends are sent in order once the part answers.
#[test]
fn ends_wait_for_their_part_and_claims_for_a_number_of_ends() {
    const TIMERS: u64 = 6_000;
    let parts = Parts::start();
    parts.failing.hook().leave(AWAY, false);
    (0..TIMERS).for_each(|timer| parts.schedule(number(AWAY, timer)));
    let delivered = || parts.durable().handle().stats().delivered;
    eventually(|| delivered() >= 4_096);
    std::thread::sleep(Duration::from_millis(200));
    // The last claim may have come just before the number of waiting ends was reached.
    assert!(delivered() < 4_096 + 512, "nothing bounds the ends: {}", delivered());
    parts.failing.hook().come_back(false);
    parts.assert_once(TIMERS);
}

/// Tests an end of a delivery that has its effect while its answer is lost. The timer is not delivered again.
#[test]
fn an_end_whose_answer_is_lost_is_repeated_and_refused() {
    let parts = Parts::start();
    parts.failing.hook().leave(AWAY, true);
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    eventually(|| parts.left().is_empty());
    parts.failing.hook().come_back(true);
    eventually(|| parts.durable().handle().stats().leases_lost == 1);
    assert_eq!(parts.failing.hook().failed.load(Ordering::SeqCst), 1);
    assert_eq!((parts.deliveries(stuck), parts.done()), (1, 0));
    assert_eq!(*parts.events.lock().unwrap(), ["began 1", "lost"]);
    parts.assert_once(1);
}

/// Tests an end of a delivery that makes its timer due again, with a late answer. The next delivery of the timer begins
/// only after the answer.
#[test]
fn deliveries_of_a_timer_stay_in_their_order() {
    let again = |delivery: &Delivery| match delivery.delivery {
        1 => Verdict::Retry { error: "once more".into(), after: Some(Duration::ZERO) },
        _ => Verdict::Done,
    };
    let parts = Parts::answering(again);
    parts.failing.hook().leave(AWAY, true);
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    // The timer is claimed again, although the end of its first delivery has no answer.
    eventually(|| parts.deliveries(stuck) == 1 && parts.durable().handle().stats().claims > 1);
    parts.durable().handle().look();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(parts.left(), BTreeMap::from([(Phase::Leased, 1)]), "it is claimed");
    assert_eq!(parts.deliveries(stuck), 1);
    parts.failing.hook().come_back(false);
    eventually(|| parts.left().is_empty());
    eventually(|| parts.events.lock().unwrap().len() == 4);
    assert_eq!(*parts.events.lock().unwrap(), ["began 1", "ended 1", "began 2", "ended 2"]);
    assert_eq!(parts.deliveries(stuck), 2);
}

/// Tests a timer that is claimed again while the end of its last delivery has no answer. Its new lease is renewed until
/// the answer comes, and the new delivery begins although it has waited for longer than a lease.
#[test]
fn the_lease_of_a_timer_that_waits_for_an_end_is_renewed() {
    let again = |delivery: &Delivery| match delivery.delivery {
        1 => Verdict::Retry { error: "once more".into(), after: Some(Duration::ZERO) },
        _ => Verdict::Done,
    };
    let parts = Parts::answering(again);
    parts.failing.hook().leave(AWAY, true);
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    let store = Arc::clone(parts.failing.inner());
    let find = || pollster::block_on(store.get(id(stuck).into())).unwrap().unwrap();
    let second = || match find() {
        Timer { deliveries: 2, state: State::Leased(lease), .. } => Some(lease),
        _ => None,
    };
    eventually(|| second().is_some());
    let claimed = second().unwrap();
    eventually(|| store.now() > claimed.until + LEASE);
    let found = find();
    assert_eq!(found.deliveries, 2, "it was claimed a third time");
    assert!(matches!(found.state, State::Leased(lease) if lease.token == claimed.token), "{found:?}");
    parts.failing.hook().come_back(false);
    eventually(|| parts.left().is_empty());
    eventually(|| parts.events.lock().unwrap().len() == 4);
    assert_eq!(*parts.events.lock().unwrap(), ["began 1", "ended 1", "began 2", "ended 2"]);
    let stats = parts.durable().handle().stats();
    assert_eq!((stats.delivered, stats.leases_lost, stats.released), (2, 0, 0));
}

/// Tests a timer that is claimed again while the end of its last delivery has no answer, and whose new lease is lost.
/// The new delivery does not begin.
#[test]
fn a_timer_that_waits_for_an_end_is_not_delivered_after_its_lease_is_lost() {
    let again = |_: &Delivery| Verdict::Retry { error: "once more".into(), after: Some(Duration::ZERO) };
    let parts = Parts::answering(again);
    parts.failing.hook().leave(AWAY, true);
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    let store = Arc::clone(parts.failing.inner());
    let second = || match pollster::block_on(store.get(id(stuck).into())).unwrap() {
        Some(Timer { deliveries: 2, state: State::Leased(lease), .. }) => Some(lease.token),
        _ => None,
    };
    eventually(|| second().is_some());
    let ack = vec![Op::Ack(id(stuck), second().unwrap())];
    let _ended = pollster::block_on(store.apply(ack, Durability::Volatile)).unwrap();
    eventually(|| parts.durable().handle().stats().leases_lost == 1);
    parts.failing.hook().come_back(false);
    eventually(|| parts.events.lock().unwrap().len() == 2);
    assert_eq!(*parts.events.lock().unwrap(), ["began 1", "ended 1"]);
    assert_eq!((parts.deliveries(stuck), parts.durable().handle().stats().delivered), (1, 1));
}

/// Tests an end without an answer whose lease is lost, while a later delivery of the same timer is under way. The later
/// delivery goes on, because its own lease is not lost.
#[test]
fn a_lost_lease_of_an_end_does_not_end_a_later_delivery() {
    let (begun, permitted) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, gate) = (Arc::clone(&begun), Arc::clone(&permitted));
    let parts = Parts::answering(move |_| {
        let nth = count.fetch_add(1, Ordering::SeqCst) + 1;
        eventually(|| gate.load(Ordering::SeqCst) >= nth);
        Verdict::Done
    });
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    eventually(|| begun.load(Ordering::SeqCst) == 1);
    let store = Arc::clone(parts.failing.inner());
    let lease = || match pollster::block_on(store.get(id(stuck).into())).unwrap().unwrap().state {
        State::Leased(lease) => lease,
        other => panic!("{other:?}"),
    };
    let release = vec![Op::Release(id(stuck), lease().token)];
    let _released = pollster::block_on(store.apply(release, Durability::Volatile)).unwrap();
    parts.durable().handle().look();
    eventually(|| begun.load(Ordering::SeqCst) == 2);
    // The end of the first delivery waits for an answer from now on.
    parts.failing.hook().leave(AWAY, false);
    permitted.store(1, Ordering::SeqCst);
    let claimed = lease();
    eventually(|| store.now() > claimed.until + LEASE);
    assert_eq!(lease().token, claimed.token, "the timer was delivered again");
    permitted.store(9, Ordering::SeqCst);
    parts.failing.hook().come_back(false);
    eventually(|| parts.left().is_empty());
    eventually(|| parts.done() == 1);
    assert_eq!((parts.deliveries(stuck), parts.durable().handle().stats().leases_lost), (2, 1));
}

/// Tests that a stop of the runtime waits for the answers to ends of deliveries.
#[test]
fn a_stop_waits_for_ends_without_an_answer() {
    let mut parts = Parts::start();
    parts.failing.hook().leave(AWAY, false);
    parts.schedule(number(AWAY, 0));
    eventually(|| parts.deliveries(number(AWAY, 0)) == 1);
    let failing = Arc::clone(&parts.failing);
    let back = std::thread::spawn(move || {
        std::thread::sleep(LEASE / 2);
        failing.hook().come_back(false);
    });
    let stats = parts.durable.take().unwrap().shutdown(Duration::ZERO);
    back.join().unwrap();
    assert_eq!((stats.done, stats.ends_lost), (1, 0));
    assert!(parts.left().is_empty());
}

/// Tests that a stop of the runtime waits for an end of a delivery only until the lease is over. The timer is delivered
/// again later.
#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut parts = Parts::start();
    parts.failing.hook().leave(AWAY, false);
    let stuck = number(AWAY, 0);
    parts.schedule(stuck);
    eventually(|| parts.deliveries(stuck) == 1);
    let begin = Instant::now();
    let stats = parts.durable.take().unwrap().shutdown(Duration::from_millis(100));
    assert!((LEASE..secs(20)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert_eq!((stats.done, stats.ends_lost), (0, 1));
    assert_eq!(parts.events.lock().unwrap().last().map(String::as_str), Some("end lost"));
    assert_eq!(parts.left(), BTreeMap::from([(Phase::Leased, 1)]));
    let next = Durable::builder_on(Arc::clone(parts.failing.inner())).handler(async |_: Note, _| {}).start();
    let next = next.unwrap();
    eventually(|| next.handle().stats().done == 1);
}
