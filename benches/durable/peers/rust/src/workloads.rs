//! The workloads, as in `peers/run.mjs`.

use crate::deliveries::Deliveries;
use crate::peer::{Payload, Peer};
use crate::task::{Failure, Task};
use crate::tools::{Chance, Numbers, ask, ask_for, check, cpu_seconds, now, pids, quantile};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) async fn run<P: Peer>(
    task: &Task,
    peer: Arc<P>,
    deliveries: Arc<Deliveries>,
) -> Result<Numbers, Failure> {
    match &*task.workload {
        "create" => create(task, &peer).await,
        "late" => late(task, &peer, &deliveries).await,
        "herd" => herd(task, &peer, &deliveries).await,
        "held" => held(task, &peer, &deliveries).await,
        "stock" => stock(task, &peer, &deliveries).await,
        other => Err(format!("no workload {other}").into()),
    }
}

/// Makes `total` calls of `call`, `count` of them at a time. Returns the rate and the times in milliseconds.
async fn waiting<F, R>(count: usize, total: usize, call: F) -> Result<(f64, Vec<f64>), Failure>
where
    F: Fn(usize) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send,
{
    let (next, begin) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let callers: Vec<_> = (0..count)
        .map(|_| {
            let (next, call) = (Arc::clone(&next), call.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= total {
                        return Ok::<_, Failure>(times);
                    }
                    let start = Instant::now();
                    call(index).await?;
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await??);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok((total as f64 / begin.elapsed().as_secs_f64(), times))
}

/// Creates the timers `from` to `to`, in batches of 1,000.
async fn fill<P: Peer>(
    peer: &P,
    (from, to): (usize, usize),
    mut due: impl FnMut() -> u64,
) -> Result<(), Failure> {
    for first in (from..to).step_by(1_000) {
        let batch = (first..to.min(first + 1_000)).map(|n| Payload::new(n, due())).collect();
        peer.create_many(batch).await?;
    }
    Ok(())
}

async fn create<P: Peer>(task: &Task, peer: &Arc<P>) -> Result<Numbers, Failure> {
    let (sizes, server) = (task.sizes.clone(), task.config.server);
    let (mut numbers, mut from) = (Numbers::new(), 0);
    let chance = Arc::new(Mutex::new(Chance(1)));
    let before = ask("server")?;
    for (name, total, count) in
        [("one", sizes.one, 1), ("waiting", sizes.waiting, 64), ("batch", sizes.batch, 0)]
    {
        if total == 0 {
            continue;
        }
        let (cpu, before) = (cpu_seconds(server), ask("server")?);
        let chance = Arc::clone(&chance);
        let far = move || chance.lock().unwrap_or_else(PoisonError::into_inner).far();
        let peer_of_calls = Arc::clone(peer);
        let (rate, times) = if count > 0 {
            let call = move |index| {
                let (peer, due) = (Arc::clone(&peer_of_calls), far());
                async move { peer.create(Payload::new(from + index, due)).await }
            };
            waiting(count, total, call).await?
        } else {
            let call = move |batch| {
                let (peer, far, first) = (Arc::clone(&peer_of_calls), far.clone(), from + batch * 1_000);
                async move { fill(&*peer, (first, first + 1_000), far).await }
            };
            let (rate, times) = waiting(1, total / 1_000, call).await?;
            (rate * 1_000.0, times)
        };
        numbers.insert(format!("{name}_rate"), rate);
        numbers.insert(format!("{name}_p50_ms"), quantile(&times, 0.5));
        numbers.insert(format!("{name}_p99_ms"), quantile(&times, 0.99));
        numbers.insert(format!("{name}_cpu_us"), (cpu_seconds(server) - cpu) / total as f64 * 1e6);
        spent(&mut numbers, &before, (total, &format!("{name}_")))?;
        from += total;
        let pending = peer.pending().await?;
        check(pending == from, || format!("{name}: {pending} of {from} timers are there"))?;
    }
    spent(&mut numbers, &before, (from, ""))?;
    Ok(numbers)
}

/// Adds the bytes of log and of tables for each of `count` timers since the answer `before`.
fn spent(numbers: &mut Numbers, before: &Numbers, (count, prefix): (usize, &str)) -> Result<(), Failure> {
    let after = ask("server")?;
    for key in ["wal", "disk"] {
        let bytes = after.get(key).zip(before.get(key)).map_or(f64::NAN, |(after, before)| after - before);
        numbers.insert(format!("{prefix}{key}"), bytes / count as f64);
    }
    Ok(())
}

async fn late<P: Peer>(task: &Task, peer: &Arc<P>, deliveries: &Deliveries) -> Result<Numbers, Failure> {
    let (sizes, server) = (&task.sizes, task.config.server);
    let count = sizes.rate * usize::try_from(sizes.seconds)?;
    deliveries.begin(0, count);
    let begin = now() + sizes.lead as f64 * 1e3;
    let mut chance = Chance(1);
    fill(&**peer, (0, count), || (begin + sizes.seconds as f64 * 1e3 * chance.part()) as u64).await?;
    check(now() < begin, || "the window began before all timers were created".to_owned())?;
    peer.consume().await?;
    let cpu = cpu_seconds(server);
    let noted = deliveries.end(Duration::from_secs(sizes.lead + sizes.seconds + 60)).await?;
    let mut numbers = Numbers::new();
    numbers.insert("cpu_us".to_owned(), (cpu_seconds(server) - cpu) / count as f64 * 1e6);
    peer.stop().await;
    quantiles(&mut numbers, "", noted.late);
    Ok(numbers)
}

fn quantiles(numbers: &mut Numbers, prefix: &str, mut late: Vec<f64>) {
    late.sort_unstable_by(f64::total_cmp);
    let parts = [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
    for (key, part) in parts {
        numbers.insert(format!("{prefix}{key}_ms"), quantile(&late, part));
    }
}

async fn herd<P: Peer>(task: &Task, peer: &Arc<P>, deliveries: &Deliveries) -> Result<Numbers, Failure> {
    let (sizes, server) = (&task.sizes, task.config.server);
    deliveries.begin(0, sizes.timers);
    let before = ask("server")?;
    let due = now() + sizes.lead as f64 * 1e3;
    fill(&**peer, (0, sizes.timers), || due as u64).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    peer.consume().await?;
    let cpu = cpu_seconds(server);
    let noted = deliveries.end(Duration::from_secs(sizes.lead + 120)).await?;
    let mut numbers = Numbers::new();
    numbers.insert("cpu_us".to_owned(), (cpu_seconds(server) - cpu) / sizes.timers as f64 * 1e6);
    peer.stop().await;
    spent(&mut numbers, &before, (sizes.timers, ""))?;
    numbers.insert("rate".to_owned(), sizes.timers as f64 / (noted.last - due) * 1e3);
    numbers.insert("last_ms".to_owned(), noted.last - due);
    numbers.insert("first_ms".to_owned(), noted.first - due);
    Ok(numbers)
}

/// The number of batches of creations a second.
const TICKS: usize = 50;
/// The time from the start of the workers to the first creation.
const WARM: Duration = Duration::from_secs(3);

/// Creates timers and delivers them at the same time, while another transaction holds a snapshot.
async fn held<P: Peer>(task: &Task, peer: &Arc<P>, deliveries: &Deliveries) -> Result<Numbers, Failure> {
    let (sizes, server) = (&task.sizes, task.config.server);
    let (each, ticks) = (sizes.rate / TICKS, TICKS * usize::try_from(sizes.seconds)?);
    let count = each * ticks;
    deliveries.begin(0, count);
    peer.consume().await?;
    let _held = ask("hold")?;
    let cpu = cpu_seconds(server);
    let begin = now() + WARM.as_secs_f64() * 1e3;
    let mut chance = Chance(1);
    for tick in 0..ticks {
        let at = begin + (tick * 1_000 / TICKS) as f64;
        tokio::time::sleep(Duration::from_secs_f64(((at - now()) / 1e3).max(0.0))).await;
        let due = |chance: &mut Chance| (at + 500.0 + 1_000.0 * chance.part()) as u64;
        fill(&**peer, (tick * each, (tick + 1) * each), || due(&mut chance)).await?;
    }
    let mut numbers = Numbers::new();
    let behind = (now() - begin - sizes.seconds as f64 * 1e3).max(0.0);
    numbers.insert("behind_ms".to_owned(), behind);
    let noted = deliveries.end(Duration::from_secs(60)).await?;
    numbers.insert("cpu_us".to_owned(), (cpu_seconds(server) - cpu) / count as f64 * 1e6);
    peer.stop().await;
    let third = count / 3;
    quantiles(&mut numbers, "first_", noted.late[..third].to_vec());
    quantiles(&mut numbers, "last_", noted.late[count - third..].to_vec());
    numbers.insert("growth".to_owned(), numbers["last_p99_ms"] / numbers["first_p99_ms"]);
    Ok(numbers)
}

/// Many timers that are far, and a server that is killed. There is no replacement by key.
async fn stock<P: Peer>(task: &Task, peer: &Arc<P>, deliveries: &Deliveries) -> Result<Numbers, Failure> {
    let (sizes, server, total) = (&task.sizes, task.config.server, task.sizes.timers);
    let mut chance = Chance(1);
    let before = ask("server")?;
    fill(&**peer, (0, total), || chance.far()).await?;
    check(peer.pending().await? == total, || "not all timers are there".to_owned())?;
    tokio::time::sleep(Duration::from_secs(sizes.quiet)).await;
    let mut numbers = Numbers::new();
    numbers.insert("disk".to_owned(), (ask("server")?["disk"] - before["disk"]) / total as f64);

    // Nothing is due, and a consumer waits.
    peer.consume().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    numbers.extend(ask_for(&serde_json::json!({ "idle": pids(server) }))?);
    peer.stop().await;

    let chosen = move |index: usize| (index * 7_919) % total;
    let cancelled = Arc::new(AtomicUsize::new(0));
    let cancel = {
        let (peer, cancelled) = (Arc::clone(peer), Arc::clone(&cancelled));
        move |index| {
            let (peer, cancelled) = (Arc::clone(&peer), Arc::clone(&cancelled));
            async move {
                let is_gone = peer.cancel(chosen(index)).await?;
                cancelled.fetch_add(usize::from(is_gone), Ordering::Relaxed);
                Ok(())
            }
        }
    };
    let cpu = cpu_seconds(server);
    let (rate, times) = waiting(64, sizes.churn, cancel).await?;
    numbers.insert("cancel_cpu_us".to_owned(), (cpu_seconds(server) - cpu) / sizes.churn as f64 * 1e6);
    numbers.insert("cancel_rate".to_owned(), rate);
    numbers.insert("cancel_p99_ms".to_owned(), quantile(&times, 0.99));
    let gone = cancelled.load(Ordering::Relaxed);
    check(gone == sizes.churn, || format!("{gone} of {} timers were cancelled", sizes.churn))?;
    let pending = peer.pending().await?;
    check(pending == total - gone, || "the cancelled timers are still there".to_owned())?;
    let chance = Arc::new(Mutex::new(Chance(2)));
    let again = {
        let peer = Arc::clone(peer);
        move |index| {
            let (peer, chance) = (Arc::clone(&peer), Arc::clone(&chance));
            let due = chance.lock().unwrap_or_else(PoisonError::into_inner).far();
            async move { peer.create(Payload::new(chosen(index), due)).await }
        }
    };
    let _pace = waiting(64, sizes.churn, again).await?;

    // Some timers become due while nobody consumes, and the server is killed.
    let due = now() + sizes.lead as f64 * 1e3;
    deliveries.begin(total, sizes.overdue);
    fill(&**peer, (total, total + sizes.overdue), || due as u64).await?;
    check(now() < due, || "the timers were due before all were created".to_owned())?;
    tokio::time::sleep(Duration::from_secs_f64((due + 1_500.0 - now()).max(0.0) / 1e3)).await;
    let _killed = ask("kill_server")?;
    let begin = now();
    let _runs = ask("run_server")?;
    peer.consume().await?;
    let probe = Payload::new(total + sizes.overdue, Chance(3).far());
    while let Err(error) = peer.create(probe.clone()).await {
        check(now() < begin + 60_000.0, || format!("no creation is accepted: {error}"))?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    numbers.insert("accepted_s".to_owned(), (now() - begin) / 1e3);
    deliveries.wait(Duration::from_secs(300)).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let noted = deliveries.take();
    numbers.insert("fired_s".to_owned(), (noted.first - begin) / 1e3);
    numbers.insert("all_s".to_owned(), (noted.last - begin) / 1e3);
    numbers.insert("doubled".to_owned(), noted.doubled as f64);
    peer.stop().await;
    let (pending, wanted) = (peer.pending().await?, total + 1);
    check(pending == wanted, || format!("{pending} timers are pending in place of {wanted}"))?;
    numbers.insert("lost".to_owned(), 0.0);
    Ok(numbers)
}
