//! The workloads of our store.

use super::deliveries::{Deliveries, Payload};
use super::figures::Numbers;
use super::load::{create, fill, waiting};
use super::subject::{Place, Subject};
use super::tools::{Chance, check, key, millis, now, per};
use super::{Failure, Sizes, Task};
use crate::process;
use std::io::{self, BufRead};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tourbillon_durable::store::{Durability, IfPresent};
use tourbillon_durable::{Cancelled, Spec, UtcMillis};

pub(super) async fn run_create(task: &Task) -> Result<Numbers, Failure> {
    let subject = Subject::start(task, &Deliveries::new(0, 0)).await?;
    let (mut numbers, sizes, durability) = (Numbers::default(), &task.sizes, subject.durability);
    let (mut from, ram) = (0, subject.place.ram());
    let callers = if sizes.callers == 0 { 64 } else { sizes.callers };
    let chance = Arc::new(Mutex::new(Chance(1)));
    let parts = [("one", sizes.one, 1), ("waiting", sizes.waiting, callers), ("batch", sizes.batch, 0)];
    for (name, total, count) in parts.into_iter().filter(|(_, total, _)| *total > 0) {
        let cpu = subject.place.cpu_seconds();
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
        from += total;
        let pending = subject.pending().await?;
        check(pending == from, || format!("{name}: {pending} of {from} timers are there"))?;
    }
    numbers.put("ram", per(subject.place.ram() - ram, from));
    Ok(numbers)
}

pub(super) async fn run_late(task: &Task) -> Result<Numbers, Failure> {
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

pub(super) async fn run_herd(task: &Task) -> Result<Numbers, Failure> {
    let count = task.sizes.timers;
    let deliveries = Deliveries::new(0, count);
    let own = process::peak();
    let subject = Subject::start(task, &deliveries).await?;
    let before = if matches!(subject.place, Place::File(_)) { own } else { subject.place.peak() };
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
    let noted = deliveries.take();
    check(noted.doubled == 0, || format!("{} doubled deliveries", noted.doubled))?;
    numbers.herd(&noted, due);
    Ok(numbers)
}

/// Runs the first half of the workload `stock`. The parent kills this process at the end.
pub(super) async fn run_stock(task: &Task) -> Result<Numbers, Failure> {
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
    for (key, figure) in serde_json::from_str::<std::collections::BTreeMap<String, f64>>(&line)? {
        numbers.put(key, figure);
    }

    let chosen = move |index: usize| (index * 7_919) % total;
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
    let cpu = process::cpu_seconds(std::process::id());
    let pace = waiting(64, sizes.churn, cancel).await?;
    numbers.pace("cancel", &pace);
    numbers.put("cancel_cpu_us", per((process::cpu_seconds(std::process::id()) - cpu) * 1e6, sizes.churn));
    let pending = subject.pending().await?;
    check(pending == total - sizes.churn, || "the cancelled timers are still there".to_owned())?;
    let due = chance.far();
    let durability = subject.durability;
    let again = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            let due = due + u64::try_from(index).unwrap_or(0);
            async move { create(&timers, chosen(index), due, durability).await }
        }
    };
    let _pace = waiting(64, sizes.churn, again).await?;
    let replace = {
        let timers = timers.clone();
        move |index| {
            let timers = timers.clone();
            let due = due + u64::try_from(index).unwrap_or(0);
            async move {
                let spec =
                    Spec::new(Payload::new(total, due)).key(key(total)).at(UtcMillis::from_millis(due));
                let spec = spec.if_present(IfPresent::Replace).durability(durability);
                timers.schedule(spec).await?;
                Ok(())
            }
        }
    };
    let pace = waiting(64, sizes.replaces, replace).await?;
    numbers.pace("replace", &pace);
    let pending = subject.pending().await?;
    check(pending == total + 1, || "replacing one key left more than one timer".to_owned())?;
    tokio::time::sleep(quiet).await;
    numbers.put("churned_disk", per(process::disk(&task.dir) - disk, total));
    numbers.put("churned_ram", per(process::ram() - ram, total));

    #[expect(clippy::cast_precision_loss, reason = "some seconds")]
    let due = now() + sizes.lead as f64;
    fill(&timers, (first, first + sizes.overdue), durability, || millis(due)).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    // The reader of this line kills the process before the timers are due. If the process lived on, it would fire them.
    println!("{}", serde_json::json!({ "kill": due }));
    println!("{}", serde_json::to_string(&numbers.0)?);
    core::future::pending().await
}

/// Runs the second half of the workload `stock`, after the kill.
pub(super) async fn run_recover(task: &Task) -> Result<Numbers, Failure> {
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
pub(super) async fn run_beside_service(task: &Task) -> Result<Numbers, Failure> {
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
