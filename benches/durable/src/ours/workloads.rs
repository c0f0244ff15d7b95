//! The workloads of our store.

use super::deliveries::{Deliveries, Payload};
use super::figures::Numbers;
use super::load::{create, fill, waiting};
use super::subject::{Place, Subject};
use super::tools::{Chance, ask, check, connect, key, millis, now, per};
use super::{Failure, Sizes, Task};
use crate::process;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tourbillon_durable::store::{Durability, IfPresent};
use tourbillon_durable::{Cancelled, Spec, UtcMillis};

pub(crate) async fn run_create(task: &Task) -> Result<Numbers, Failure> {
    let subject = Subject::start(task, &Deliveries::new(0, 0)).await?;
    let (mut numbers, sizes, durability) = (Numbers::default(), &task.sizes, subject.durability);
    let (mut from, ram) = (0, subject.place.ram());
    let spent = Spent::begin(task, &subject)?;
    let callers = if sizes.callers == 0 { 64 } else { sizes.callers };
    let chance = Arc::new(Mutex::new(Chance(1)));
    let parts = [("one", sizes.one, 1), ("waiting", sizes.waiting, callers), ("batch", sizes.batch, 0)];
    for (name, total, count) in parts.into_iter().filter(|(_, total, _)| *total > 0) {
        let (cpu, spent_before) = (subject.place.cpu_seconds(), Spent::begin(task, &subject)?);
        let timers = subject.timers();
        let chance = Arc::clone(&chance);
        let far = move || chance.lock().unwrap_or_else(PoisonError::into_inner).far();
        let mut pace = if count > 0 {
            let call = move |index| {
                let (timers, due) = (timers.clone(), far());
                async move { create(&timers, from + index, due, durability).await }
            };
            waiting(count, total, call).await?
        } else {
            let call = move |batch| {
                let (timers, far) = (timers.clone(), far.clone());
                let first = from + batch * 1_000;
                async move { fill(&timers, (first, first + 1_000), durability, far).await }
            };
            waiting(1, total / 1_000, call).await?
        };
        if count == 0 {
            pace.rate *= 1_000.0;
        }
        numbers.pace(name, &pace);
        numbers.put(format!("{name}_cpu_us"), per((subject.place.cpu_seconds() - cpu) * 1e6, total));
        spent_before.end(task, (total, &format!("{name}_")), &mut numbers)?;
        from += total;
        let pending = subject.pending().await?;
        check(pending == from, || format!("{name}: {pending} of {from} timers are there"))?;
    }
    numbers.put("ram", per(subject.place.ram() - ram, from));
    spent.end(task, (from, ""), &mut numbers)?;
    Ok(numbers)
}

/// The bytes of log and of tables before a part of a turn. They are known of a PostgreSQL server and of SQLite.
struct Spent(Option<BTreeMap<String, f64>>);

impl Spent {
    fn begin(task: &Task, subject: &Subject) -> Result<Self, Failure> {
        Ok(Self(match subject.place {
            Place::Postgres(_) => Some(ask(&json!({ "server": true }))?),
            Place::Sqlite => Some(BTreeMap::from([("disk".to_owned(), process::disk(&task.dir))])),
            _ => None,
        }))
    }

    /// Adds the bytes for each of `count` timers since the beginning, under keys that begin with `prefix`.
    fn end(self, task: &Task, (count, prefix): (usize, &str), numbers: &mut Numbers) -> Result<(), Failure> {
        let Some(before) = self.0 else { return Ok(()) };
        let after = if before.contains_key("wal") {
            ask(&json!({ "server": true }))?
        } else {
            BTreeMap::from([("disk".to_owned(), process::disk(&task.dir))])
        };
        for key in ["wal", "disk"] {
            if let (Some(after), Some(before)) = (after.get(key), before.get(key)) {
                numbers.put(format!("{prefix}{key}"), per(after - before, count));
            }
        }
        Ok(())
    }
}

pub(crate) async fn run_late(task: &Task) -> Result<Numbers, Failure> {
    let sizes = &task.sizes;
    let count = sizes.rate * usize::try_from(sizes.seconds)?;
    let deliveries = Deliveries::new(0, count);
    let subject = Subject::start(task, &deliveries).await?;
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let (lead, seconds) = (sizes.lead as f64, sizes.seconds as f64);
    let begin = now() + lead;
    let mut chance = Chance(1);
    fill(&subject.timers(), (0, count), subject.durability, || millis(begin + seconds * chance.part()))
        .await?;
    check(now() < begin, || "the window began before all timers were created".to_owned())?;
    let (cpu, server_cpu) = (subject.place.cpu_seconds(), subject.place.server_cpu_seconds());
    deliveries.end(Duration::from_secs(sizes.lead + sizes.seconds + 60)).await?;
    let mut numbers = Numbers::default();
    numbers.put("cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, count));
    if let Some(server_cpu) = server_cpu {
        let spent = subject.place.server_cpu_seconds().unwrap_or_default() - server_cpu;
        numbers.put("server_cpu_us", per(spent * 1e6, count));
    }
    subject.shutdown();
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    numbers.late("", noted);
    Ok(numbers)
}

pub(crate) async fn run_herd(task: &Task) -> Result<Numbers, Failure> {
    let count = task.sizes.timers;
    let deliveries = Deliveries::new(0, count);
    let own = process::peak();
    let subject = Subject::start(task, &deliveries).await?;
    let is_file = matches!(subject.place, Place::File(_) | Place::Sqlite);
    let before = if is_file { own } else { subject.place.peak() };
    let spent = Spent::begin(task, &subject)?;
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + task.sizes.lead as f64;
    fill(&subject.timers(), (0, count), subject.durability, || millis(due)).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    let cpu = subject.place.cpu_seconds();
    deliveries.end(Duration::from_secs(task.sizes.lead + 120)).await?;
    let mut numbers = Numbers::default();
    numbers.put("cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, count));
    numbers.put("peak_mb", (subject.place.peak() - before) / 1e6);
    subject.shutdown();
    spent.end(task, (count, ""), &mut numbers)?;
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    numbers.herd(&noted, due);
    Ok(numbers)
}

/// The number of batches of creations a second.
const TICKS: usize = 50;
/// The seconds from the start of the runtime to the first creation.
const WARM: f64 = 3.0;

/// Creates timers and delivers them at the same time, while another transaction holds a snapshot.
pub(crate) async fn run_held(task: &Task) -> Result<Numbers, Failure> {
    let sizes = &task.sizes;
    let (each, ticks) = (sizes.rate / TICKS, TICKS * usize::try_from(sizes.seconds)?);
    let count = each * ticks;
    let deliveries = Deliveries::new(0, count);
    let subject = Subject::start(task, &deliveries).await?;
    if subject.place.is_shared() {
        let _held = ask(&json!({ "hold": true }))?;
    }
    let (cpu, server_cpu) = (subject.place.cpu_seconds(), subject.place.server_cpu_seconds());
    let begin = now() + WARM;
    let (mut chance, mut dues) = (Chance(1), Vec::with_capacity(count));
    for tick in 0..ticks {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let at = begin + tick as f64 / TICKS as f64;
        tokio::time::sleep(Duration::from_secs_f64((at - now()).max(0.0))).await;
        let due = || {
            let due = millis(at + 0.5 + chance.part());
            dues.push(due);
            due
        };
        fill(&subject.timers(), (tick * each, (tick + 1) * each), subject.durability, due).await?;
    }
    let mut numbers = Numbers::default();
    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let behind = now() - begin - sizes.seconds as f64;
    numbers.put("behind_ms", (behind * 1e3).max(0.0));
    let late_since = millis(now() - 1.0);
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    numbers.put("behind", deliveries.missing(|index| dues[index] < late_since) as f64);
    deliveries.end(Duration::from_secs(60)).await?;
    numbers.put("cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, count));
    if let Some(server_cpu) = server_cpu {
        let spent = subject.place.server_cpu_seconds().unwrap_or_default() - server_cpu;
        numbers.put("server_cpu_us", per(spent * 1e6, count));
    }
    subject.shutdown();
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    let third = count / 3;
    numbers.late_of("first_", noted.late_ms[..third].to_vec());
    numbers.late_of("last_", noted.late_ms[count - third..].to_vec());
    let growth = numbers.0.numbers["last_p99_ms"] / numbers.0.numbers["first_p99_ms"];
    numbers.put("growth", growth);
    if sizes.part > 0 {
        let parts = noted.late_ms.chunks(sizes.rate * sizes.part);
        let last = parts.len();
        (1..).zip(parts).for_each(|(part, late)| numbers.late_of(&format!("part_{part}_"), late.to_vec()));
        let p99 = |part: usize| numbers.0.numbers[&format!("part_{part}_p99_ms")];
        let growth = p99(last) / p99(1);
        numbers.put("parts_growth", growth);
        numbers.late("", noted);
        // The snapshot is still held. Sessions that have ended have reported their changes.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let client = connect(task).await?;
        let sql = "SELECT sum(n_dead_tup)::float8 FROM pg_stat_user_tables WHERE schemaname = 'tourbillon'";
        numbers.put("dead", client.query_one(sql, &[]).await?.try_get(0)?);
        numbers.put("disk_mb", ask(&json!({ "server": true }))?["disk"] / 1e6);
    }
    Ok(numbers)
}

/// Another program creates timers by the functions in the database. They are due within 45 ms.
pub(crate) async fn run_foreign(task: &Task) -> Result<Numbers, Failure> {
    let sizes = &task.sizes;
    let (each, ticks) = (sizes.rate / TICKS, TICKS * usize::try_from(sizes.seconds)?);
    let count = each * ticks;
    let deliveries = Deliveries::new(0, count);
    let subject = Subject::start(task, &deliveries).await?;
    let client = connect(task).await?;
    let sql = "SELECT count(tourbillon.schedule('t', payload => u.payload, key => u.key,
                   due => to_timestamp(0) + u.due * interval '1 millisecond'))
               FROM unnest($1::bytea[], $2::text[], $3::bigint[]) AS u (payload, key, due)";
    let statement = client.prepare(sql).await?;
    let (cpu, begin) = (subject.place.cpu_seconds(), now() + 1.0);
    let mut chance = Chance(1);
    for tick in 0..ticks {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let at = begin + tick as f64 / TICKS as f64;
        tokio::time::sleep(Duration::from_secs_f64((at - now()).max(0.0))).await;
        let (mut payloads, mut keys, mut dues) = (Vec::new(), Vec::new(), Vec::new());
        for n in tick * each..(tick + 1) * each {
            let due = millis(at + 0.005 + 0.04 * chance.part());
            payloads.push(serde_json::to_vec(&Payload::new(n, due))?);
            keys.push(key(n));
            dues.push(i64::try_from(due)?);
        }
        let _count = client.query_one(&statement, &[&payloads, &keys, &dues]).await?;
    }
    deliveries.end(Duration::from_secs(60)).await?;
    let mut numbers = Numbers::default();
    numbers.put("cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, count));
    subject.shutdown();
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    // An idle store looks four times a second, and twenty times once it has seen work.
    numbers.late_of("", noted.late_ms[sizes.rate.min(count)..].to_vec());
    Ok(numbers)
}

/// Cancels timers of the stock, creates them again, and replaces a further one many times. Those that are created are
/// due from `due` on. Afterwards there is one timer more than before.
async fn churn(subject: &Subject, sizes: &Sizes, due: u64, numbers: &mut Numbers) -> Result<(), Failure> {
    let (timers, total, durability) = (subject.timers(), sizes.timers, subject.durability);
    let chosen = move |index: usize| (index * 7_919) % total;
    let due = move |index| due + u64::try_from(index).unwrap_or(0);
    let cancel = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            async move {
                let cancelled = timers.cancel(key(chosen(index)).as_str()).await?;
                check(matches!(cancelled, Cancelled::Cancelled(_)), || format!("cancel: {cancelled:?}"))
            }
        }
    };
    let cpu = subject.place.cpu_seconds();
    let pace = waiting(64, sizes.churn, cancel).await?;
    numbers.pace("cancel", &pace);
    numbers.put("cancel_cpu_us", per((subject.place.cpu_seconds() - cpu) * 1e6, sizes.churn));
    let pending = subject.pending().await?;
    check(pending == total - sizes.churn, || "the cancelled timers are still there".to_owned())?;
    let again = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            async move { create(&timers, chosen(index), due(index), durability).await }
        }
    };
    let _pace = waiting(64, sizes.churn, again).await?;
    let replace = move |index| {
        let (timers, due) = (timers.clone(), due(index));
        async move {
            let spec = Spec::new(Payload::new(total, due)).key(key(total)).at(UtcMillis::from_millis(due));
            timers.schedule(spec.if_present(IfPresent::Replace).durability(durability)).await?;
            Ok(())
        }
    };
    let pace = waiting(64, sizes.replaces, replace).await?;
    numbers.pace("replace", &pace);
    let pending = subject.pending().await?;
    check(pending == total + 1, || "replacing one key left more than one timer".to_owned())
}

/// Runs the workload `stock` on a PostgreSQL server, which the book kills and starts again.
pub(crate) async fn run_stock_on_server(task: &Task) -> Result<Numbers, Failure> {
    let (sizes, total) = (&task.sizes, task.sizes.timers);
    let first = total + 1;
    let deliveries = Deliveries::new(first, sizes.overdue);
    let subject = Subject::start(task, &deliveries).await?;
    let timers = subject.timers();
    let mut numbers = Numbers::default();
    let mut chance = Chance(1);
    let before = ask(&json!({ "server": true }))?;
    fill(&timers, (0, total), subject.durability, || chance.far()).await?;
    let pending = subject.pending().await?;
    check(pending == total, || format!("{pending} of {total} timers are there"))?;
    tokio::time::sleep(Duration::from_secs(sizes.quiet)).await;
    let after = ask(&json!({ "server": true }))?;
    let grown = |after: &BTreeMap<String, f64>, key: &str| after.get(key).unwrap_or(&f64::NAN) - before[key];
    numbers.put("disk", per(grown(&after, "disk"), total));
    for (key, bytes) in parts_of_table(task).await? {
        numbers.put(key, per(bytes, total));
    }

    // Nothing is due.
    let pids: Vec<u32> =
        process::family(task.config.server).into_iter().chain([std::process::id()]).collect();
    for (key, figure) in ask(&json!({ "idle": pids }))? {
        numbers.put(key, figure);
    }

    churn(&subject, sizes, chance.far(), &mut numbers).await?;

    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + sizes.lead as f64;
    fill(&timers, (first, first + sizes.overdue), subject.durability, || millis(due)).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    let _killed = ask(&json!({ "kill_server": true }))?;
    tokio::time::sleep(Duration::from_secs_f64((due + 1.5 - now()).max(0.0))).await;
    let begin = now();
    let _runs = ask(&json!({ "run_server": true }))?;
    while let Err(error) = create(&timers, first + sizes.overdue, Chance(2).far(), subject.durability).await {
        check(now() < begin + 60.0, || format!("no creation is accepted: {error}"))?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    numbers.put("accepted_s", now() - begin);
    deliveries.end(Duration::from_secs(120)).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let noted = deliveries.take();
    numbers.put("fired_s", noted.first - begin);
    numbers.put("all_s", noted.last - begin);
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    numbers.put("doubled", noted.doubled as f64);
    let (pending, wanted) = (subject.pending().await?, total + 2);
    check(pending == wanted, || format!("{pending} timers are pending in place of {wanted}"))?;
    numbers.put("lost", 0.0);
    subject.shutdown();
    connect(task).await?.batch_execute("REINDEX TABLE tourbillon.timer").await?;
    let parts = parts_of_table(task).await?;
    let indexes = parts.iter().filter(|(key, _)| **key != "rows_disk").map(|(_, bytes)| bytes).sum::<f64>();
    numbers.put("packed_disk", per(indexes, pending));
    Ok(numbers)
}

/// Returns the bytes of the table of timers without its indexes, and those of the indexes of pending timers that are
/// due in more than an hour.
async fn parts_of_table(task: &Task) -> Result<BTreeMap<&'static str, f64>, Failure> {
    let client = connect(task).await?;
    let mut parts = BTreeMap::new();
    for (key, relation) in [
        ("rows_disk", "timer"),
        ("ids_disk", "timer_pkey"),
        ("keys_disk", "timer_key"),
        ("dues_disk", "timer_due"),
    ] {
        let sql = format!("SELECT pg_table_size('tourbillon.{relation}')::float8");
        parts.insert(key, client.query_one(&sql, &[]).await?.try_get(0)?);
    }
    Ok(parts)
}

/// Runs the first half of the workload `stock`. The parent kills this process at the end.
pub(crate) async fn run_stock(task: &Task) -> Result<Numbers, Failure> {
    let (sizes, total) = (&task.sizes, task.sizes.timers);
    let first = total + 1;
    let deliveries = Deliveries::new(first, sizes.overdue);
    let subject = Subject::start(task, &deliveries).await?;
    let timers = subject.timers();
    let (ram, disk) = (process::ram(), process::disk(&task.dir));
    let mut numbers = Numbers::default();
    let mut chance = Chance(1);
    fill(&timers, (0, total), Durability::Volatile, || chance.far()).await?;
    let pending = subject.pending().await?;
    check(pending == total, || format!("{pending} of {total} timers are there"))?;
    let quiet = Duration::from_secs(sizes.quiet);
    tokio::time::sleep(quiet).await;
    numbers.put("ram", per(process::ram() - ram, total));
    numbers.put("disk", per(process::disk(&task.dir) - disk, total));

    // Nothing is due. The parent process measures this process, and then sends a line.
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("{}", serde_json::json!({ "idle": [std::process::id()] }));
    let mut line = String::new();
    let _bytes = io::stdin().lock().read_line(&mut line)?;
    for (key, figure) in serde_json::from_str::<BTreeMap<String, f64>>(&line)? {
        numbers.put(key, figure);
    }

    churn(&subject, sizes, chance.far(), &mut numbers).await?;
    tokio::time::sleep(quiet).await;
    numbers.put("churned_disk", per(process::disk(&task.dir) - disk, total));
    numbers.put("churned_ram", per(process::ram() - ram, total));

    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + sizes.lead as f64;
    fill(&timers, (first, first + sizes.overdue), subject.durability, || millis(due)).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    // The reader of this line kills the process before the timers are due. If the process lived on, it would fire them.
    println!("{}", serde_json::json!({ "kill": due }));
    println!("{}", serde_json::to_string(&numbers.0)?);
    core::future::pending().await
}

/// Runs the second half of the workload `stock`, after the kill.
pub(crate) async fn run_recover(task: &Task) -> Result<Numbers, Failure> {
    let (sizes, first) = (&task.sizes, task.sizes.timers + 1);
    let deliveries = Deliveries::new(first, sizes.overdue);
    let subject = Subject::start(task, &deliveries).await?;
    let mut numbers = Numbers::default();
    let probe = first + sizes.overdue;
    create(&subject.timers(), probe, Chance(2).far(), subject.durability).await?;
    numbers.put("accepted_s", now() - task.begin);
    deliveries.end(Duration::from_secs(300)).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let noted = deliveries.take();
    numbers.put("fired_s", noted.first - task.begin);
    numbers.put("all_s", noted.last - task.begin);
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    numbers.put("doubled", noted.doubled as f64);
    let (pending, wanted) = (subject.pending().await?, first + 1);
    check(pending == wanted, || format!("{pending} timers are pending in place of {wanted}"))?;
    numbers.put("lost", 0.0);
    if let Place::File(file) = &subject.place {
        let _is_shorter = file.compact().await?;
    }
    numbers.put("compacted_disk", per(process::disk(&task.dir), sizes.timers));
    Ok(numbers)
}

/// Measures the library with the service's workload, without a network.
pub(crate) async fn run_beside_service(task: &Task) -> Result<Numbers, Failure> {
    let part = |name: &str, sizes: Sizes| -> Result<Task, Failure> {
        let dir = task.dir.join(name);
        std::fs::create_dir(&dir)?;
        Ok(Task { sizes, dir, ..task.clone() })
    };
    let sizes = &task.sizes;
    // This part is the first, since the memory is that of the whole process.
    let stock = part("stock", sizes.clone())?;
    let mut numbers = run_memory(&stock).await?;
    let create = part("create", Sizes { waiting: sizes.waiting, ..Sizes::default() })?;
    numbers.0.numbers.extend(run_create(&create).await?.0.numbers);
    let herd = part("herd", Sizes { timers: sizes.herd, ..sizes.clone() })?;
    for (key, figure) in run_herd(&herd).await?.0.numbers {
        numbers.put(if key == "cpu_us" { "herd_cpu_us".to_owned() } else { key }, figure);
    }
    for (key, figure) in run_late(&part("late", sizes.clone())?).await?.0.numbers {
        numbers.put(format!("late_{key}"), figure);
    }
    Ok(numbers)
}

async fn run_memory(task: &Task) -> Result<Numbers, Failure> {
    let subject = Subject::start(task, &Deliveries::new(0, 0)).await?;
    let total = task.sizes.timers;
    let mut chance = Chance(1);
    fill(&subject.timers(), (0, total), Durability::Volatile, || chance.far()).await?;
    let pending = subject.pending().await?;
    check(pending == total, || format!("{pending} of {total} timers are there"))?;
    tokio::time::sleep(Duration::from_secs(task.sizes.quiet)).await;
    let mut numbers = Numbers::default();
    numbers.put("stock_mb", process::resident(std::process::id()) / 1e6);
    numbers.put("stock_disk", per(process::disk(&task.dir), total));
    Ok(numbers)
}
