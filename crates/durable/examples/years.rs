//! Runs thirty days and a hundred years on a manual clock, with a store in a file that is opened again in each year.
//!
//! ```sh
//! cargo run --release -p tourbillon-durable --example years
//! ```
#![expect(clippy::print_stdout, reason = "the table is for whoever runs this program")]

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tourbillon::ManualClock;
use tourbillon_durable::plan::{MissedInstants, Plan};
use tourbillon_durable::store::RedbStore;
use tourbillon_durable::{Delivery, Durable, Kind, Spec, UtcMillis};

const DAY: Duration = Duration::from_secs(86_400);
/// The first of January 2026, in milliseconds from 1970 on.
const START: u64 = 1_767_225_600_000;

#[derive(Debug, Serialize, Deserialize)]
enum Reminder {
    OrderTimesOut,
    MembershipEnds,
    OpenTheTimeCapsule,
}

impl Kind for Reminder {
    const NAME: &'static str = "reminder";
}

type Seen = Arc<Mutex<Vec<(String, UtcMillis)>>>;

/// Starts the runtime as a process does: opens the store in `file`, and delivers timers until the result is dropped.
fn start(file: &Path, clock: &ManualClock, seen: &Seen) -> Result<Durable, Box<dyn Error>> {
    let (noted, now) = (Arc::clone(seen), clock.clone());
    let store = RedbStore::builder().clock(clock.clone()).open(file)?;
    let remind = move |reminder: Reminder, delivery: Delivery| {
        let at = UtcMillis::from_nanos(tourbillon::Clock::now(&now).as_nanos());
        assert!(at >= delivery.due, "early");
        noted.lock().unwrap().push((format!("{reminder:?}"), delivery.scheduled));
        async {}
    };
    Ok(Durable::builder(store).clock(clock.clone()).handler(remind).start()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("timers.redb");
    let (clock, seen) = (ManualClock::new(), Seen::default());
    let begin = UtcMillis::from_millis(START);
    clock.set(tourbillon::Timestamp::from_nanos(begin.as_nanos()));
    {
        let durable = start(&file, &clock, &seen)?;
        let timers = durable.handle();
        timers.schedule_blocking(Spec::new(Reminder::OrderTimesOut).after(30 * DAY))?;
        timers.schedule_blocking(Spec::new(Reminder::OpenTheTimeCapsule).at(begin + 36_524 * DAY))?;
        // The instants are each first of March at nine in the morning, in Zurich.
        let yearly = Plan::cron("0 9 1 3 *", "Europe/Zurich")?;
        let membership = Spec::new(Reminder::MembershipEnds).key("membership 17");
        timers.schedule_blocking(membership.repeat(yearly, MissedInstants::All))?;
    }
    // Each year has a process of its own. It advances the clock from day to day.
    for _ in 0..101 {
        let durable = start(&file, &clock, &seen)?;
        for _ in 0..12 {
            clock.advance(365 * DAY / 12);
            assert!(durable.handle().await_idle(Duration::from_secs(30)), "{:?}", durable.handle());
        }
    }
    let seen = seen.lock().unwrap();
    let moments = |name: &str| {
        seen.iter().filter(|(reminder, _)| reminder == name).map(|(_, at)| *at).collect::<Vec<_>>()
    };
    let (orders, capsules) = (moments("OrderTimesOut"), moments("OpenTheTimeCapsule"));
    let memberships = moments("MembershipEnds");
    println!("the order timed out       {} ({} time)", orders[0], orders.len());
    for year in [0, 1, 49, memberships.len() - 1] {
        println!("membership, year {:>4}     {}", year + 1, memberships[year]);
    }
    println!("the capsule was opened    {} ({} time)", capsules[0], capsules.len());
    assert_eq!((orders.len(), capsules.len()), (1, 1));
    assert!((100..=101).contains(&memberships.len()), "{}", memberships.len());
    println!("102 starts of the process; {} deliveries, none early, none lost, none twice", seen.len());
    Ok(())
}
