//! Checks servers before a store is opened on them.

mod judge;
mod report;

use crate::layout::slot_of;
use crate::link::{Connect, ConnectError, LinkError, Session};
use core::pin::pin;
use core::time::Duration;
use futures_util::future::{Either, select};
use judge::{Facts, judge_layout, judge_spread};
use redis::{Value, from_redis_value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub use report::{Grade, Line, Report};

/// The number of times that the clock of each server is read. The reading that took the least time counts.
const READINGS: usize = 5;

/// The facts about the deployment that a report contains in addition to the facts about the servers. The default value
/// has no facts, for a check that reads no deployment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The stored version of the layout, and the version that this crate writes. The stored version is `None` if the
    /// deployment does not exist. Without this pair, the report has no line on the layout.
    pub(crate) layout: Option<(Option<u64>, u64)>,
    /// The hash tags of the shards, without braces.
    pub(crate) tags: Vec<Vec<u8>>,
    /// The text of a [`Line`] of the report for each loss of the deployment's data.
    pub(crate) losses: Vec<String>,
    /// The text of a [`Line`] of the report for each reason why the deployment cannot be opened.
    pub(crate) refusals: Vec<String>,
}

/// Checks the server, or each primary of a cluster: version, kind, behaviour when memory is full, persistence, and
/// clock. Reads no deployment; [`RedisBuilder::check`](crate::RedisBuilder::check) also checks the deployment.
///
/// If a server cannot be reached, the report contains a refusal. The future can be polled without a runtime.
///
/// ```no_run
/// use tourbillon_redis::{Connect, check};
///
/// # async fn run() -> Result<(), tourbillon_redis::ConnectError> {
/// let report = check(&Connect::single("redis://127.0.0.1:6379")?).await?;
/// print!("{report}");
/// assert!(!report.is_refused());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails if no connection can work with the settings.
pub async fn check(connect: &Connect) -> Result<Report, ConnectError> {
    let session = Session::open(connect)?;
    let report = unless_misfit(&session, examine(&session, connect, &Plan::default())).await;
    Ok(report.unwrap_or_else(Report::of_misfit))
}

/// Runs `work`, which calls the servers of the session. If no server fits the connection's settings, drops `work`
/// and returns the reason: such servers would never answer `work`.
pub(crate) async fn unless_misfit<T>(session: &Session, work: impl Future<Output = T>) -> Result<T, String> {
    match select(session.misfit(), pin!(work)).await {
        Either::Left((Ok(Some(reason)), _)) => Err(format!("the servers do not fit the settings: {reason}")),
        Either::Left((_, work)) => Ok(work.await),
        Either::Right((done, _)) => Ok(done),
    }
}

/// Checks the servers of a session. The report also contains the findings about the deployment in `plan`: the version
/// of the layout, the lost data, and the reasons why the deployment cannot be opened.
pub(crate) async fn examine(session: &Session, connect: &Connect, plan: &Plan) -> Report {
    let mut report = Report::default();
    if let Err(error) = look(session, connect, plan, &mut report).await {
        report.note_silence("", format!("the servers do not answer: {error}"));
    }
    if let Some((found, own)) = plan.layout {
        judge_layout(found, own, &mut report);
    }
    plan.losses.iter().for_each(|loss| report.add("", Grade::Warning, loss.as_str()));
    plan.refusals.iter().for_each(|refusal| report.add("", Grade::Refusal, refusal.as_str()));
    report
}

async fn look(
    session: &Session,
    connect: &Connect,
    plan: &Plan,
    report: &mut Report,
) -> Result<(), LinkError> {
    let Seen { mut servers, mut silent } = seen(session).await?;
    if servers.is_empty()
        && let Some((_, error)) = silent.pop_first()
    {
        return Err(error);
    }
    for (server, error) in &silent {
        report.note_silence(server, format!("does not answer: {error}"));
    }
    let mut settings = redis::cmd("CONFIG");
    settings.arg("GET").arg(&["appendfsync", "save", "min-replicas-to-write"]);
    for (server, answer) in session.ask_each(settings, silent.into_keys().collect()).await? {
        // If the user may not read the settings, the report leaves them out.
        if let Ok(answer) = answer {
            let found: BTreeMap<String, String> = from_redis_value(answer).unwrap_or_default();
            if let Some(facts) = servers.get_mut(&server) {
                facts.settings.extend(found);
            }
        }
    }
    for (server, facts) in &servers {
        facts.judge(server, connect.sync, connect.is_cluster(), report);
    }
    if connect.is_cluster() && !plan.tags.is_empty() {
        judge_spread(&spread(session, plan).await?, report);
    }
    Ok(())
}

/// Returns a line for each reason why timers on the session's servers are unsafe. A server that does not answer is left
/// out.
pub(crate) async fn dangers(
    session: &Session,
    connect: &Connect,
    is_on_their_clock: bool,
) -> Result<Vec<String>, LinkError> {
    let Seen { servers, silent } = seen(session).await?;
    // An error of the server itself is an answer, for example that the user may not ask.
    if let Some(error) = silent.into_values().find(|error| error.code().is_some()) {
        return Err(error);
    }
    let dangers = servers.iter().flat_map(|(server, facts)| {
        let dangers = facts.dangers(connect.sync, is_on_their_clock);
        dangers.into_iter().map(move |danger| format!("{server}: {danger}"))
    });
    Ok(dangers.collect())
}

/// The servers of a session, by their addresses.
#[derive(Default)]
struct Seen {
    /// The servers that have answered.
    servers: BTreeMap<String, Facts>,
    /// The servers that have not answered every question, each with the error of its first unanswered question.
    silent: BTreeMap<String, LinkError>,
}

impl Seen {
    /// Sends a command to each server that has answered all questions so far, except for the servers `skipped`. Returns
    /// the replies, by the servers' addresses.
    async fn ask(
        &mut self,
        session: &Session,
        command: &str,
        mut skipped: BTreeSet<String>,
    ) -> Result<Vec<(String, Value)>, LinkError> {
        let mut replies = Vec::new();
        skipped.extend(self.silent.keys().cloned());
        for (server, answer) in session.ask_each(redis::cmd(command), skipped).await? {
            match answer {
                Ok(reply) => replies.push((server, reply)),
                Err(error) => drop(self.silent.insert(server, error)),
            }
        }
        Ok(replies)
    }

    /// Adds an answer to `TIME` to the facts about a server. `middle` is the time since 1970, by this machine's
    /// clock, in the middle of the call. `uncertainty` is half of the call's duration.
    fn read_clock(&mut self, server: &str, answer: Value, middle: Duration, uncertainty: Duration) {
        // The server may have become a primary after the last question for the other facts.
        let Some(facts) = self.servers.get_mut(server) else { return };
        let Ok((seconds, micros)) = from_redis_value::<(u64, u64)>(answer) else { return };
        let clock = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let offset = micros(clock).saturating_sub(micros(middle));
        if facts.clock.is_none_or(|(_, other)| uncertainty < other) {
            facts.clock = Some((offset, uncertainty));
        }
    }
}

/// Reads the answer to `INFO` and the clock of each server.
async fn seen(session: &Session) -> Result<Seen, LinkError> {
    let mut seen = Seen::default();
    for _ in 0..READINGS {
        // A replica may have become a primary since the last round. All servers that are known already are skipped.
        let known = seen.servers.keys().cloned().collect();
        for (server, info) in seen.ask(session, "INFO", known).await? {
            seen.servers.entry(server).or_default().read(&text(info));
        }
        if seen.servers.is_empty() {
            break;
        }
        let (before, start) = (SystemTime::now(), Instant::now());
        let answers = seen.ask(session, "TIME", BTreeSet::new()).await?;
        // The server read its clock at some moment of the call. The middle of the call differs from that moment by half
        // of the call's time at most.
        let uncertainty = start.elapsed() / 2;
        let Ok(middle) = (before + uncertainty).duration_since(UNIX_EPOCH) else { continue };
        answers
            .into_iter()
            .for_each(|(server, answer)| seen.read_clock(&server, answer, middle, uncertainty));
    }
    Ok(seen)
}

/// Counts the deployment's shards on each primary of a cluster.
async fn spread(session: &Session, plan: &Plan) -> Result<BTreeMap<String, usize>, LinkError> {
    let slots = session.slots().await?;
    // A primary without shards must count, too, because its 0 shows that the shards are uneven.
    let none = slots.primaries().iter().map(|primary| (primary.to_string(), 0));
    let mut spread: BTreeMap<String, usize> = none.collect();
    for tag in &plan.tags {
        let owner = slots.owner(slot_of(tag)).map(ToString::to_string);
        if let Some(count) = owner.and_then(|owner| spread.get_mut(&owner)) {
            *count += 1;
        }
    }
    Ok(spread)
}

fn text(value: Value) -> String {
    from_redis_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_became_a_primary_between_two_questions_is_not_judged() {
        let mut seen = Seen::default();
        seen.servers.entry("a".to_owned()).or_default().read("redis_version:7.0.15\r\n");
        let time = Value::Array(vec![Value::BulkString(b"5".to_vec()), Value::BulkString(b"0".to_vec())]);
        for server in ["a", "b"] {
            seen.read_clock(server, time.clone(), Duration::from_secs(5), Duration::ZERO);
        }
        assert!(seen.servers.keys().eq(["a"]), "nothing but the clock is known of the other server");
        assert_eq!(seen.servers["a"].clock, Some((0, Duration::ZERO)));
    }
}
