//! Asks the Sentinels for the primary.
//!
//! A Sentinel that is cut off from the others names a former primary, and that server may still say that it is a
//! primary. Each failover has a higher *configuration epoch* than the failover before it. So all Sentinels are asked at
//! the same time, and the answer with the highest epoch counts.

use core::time::Duration;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};
use std::collections::HashMap;
use tokio::time::{Instant, timeout, timeout_at};

/// The time for the answers of further Sentinels once more than half of the Sentinels have answered. A Sentinel whose
/// machine is gone would otherwise delay each connection by the whole time limit.
const GRACE: Duration = Duration::from_millis(500);

/// The host and port under which the Sentinels know a server.
pub(crate) type Named = (Box<str>, u16);

/// The primary that the Sentinels name in answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Primary {
    pub(crate) address: Named,
    /// The configuration epoch of the failover by which this server has become the primary.
    pub(crate) epoch: u64,
    /// True if more than half of the Sentinels in the settings have answered.
    pub(crate) is_of_most: bool,
}

/// The answer of one Sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    address: Named,
    epoch: u64,
    /// True if the Sentinel cannot reach the server that it names.
    is_down: bool,
}

/// Asks the Sentinels for the primary of the name `service`. `limit` is the longest time for each Sentinel.
pub(super) async fn ask(sentinels: &[Client], service: &str, limit: Duration) -> RedisResult<Primary> {
    let mut asked: FuturesUnordered<_> =
        sentinels.iter().map(|sentinel| ask_in_time(sentinel, service, limit)).collect();
    let (mut answers, mut trouble, mut end) = (Vec::new(), None, None);
    loop {
        let next = match end {
            Some(end) => timeout_at(end, asked.next()).await.unwrap_or(None),
            None => asked.next().await,
        };
        match next {
            Some(Ok(answer)) => answers.push(answer),
            Some(Err(error)) => trouble = Some(error),
            None => break,
        }
        if end.is_none() && is_most(answers.len(), sentinels.len()) {
            end = Some(Instant::now() + GRACE);
        }
    }
    let is_of_most = is_most(answers.len(), sentinels.len());
    match choose(answers) {
        Some(Answer { is_down: true, .. }) => {
            Err((ErrorKind::Io, "the Sentinels cannot reach the primary").into())
        }
        Some(Answer { address, epoch, .. }) => Ok(Primary { address, epoch, is_of_most }),
        None => Err(trouble.unwrap_or_else(|| (ErrorKind::Io, "there are no Sentinels").into())),
    }
}

/// Asks each Sentinel whether it knows a primary of the name `service`. `limit` is the longest time for each Sentinel.
pub(super) async fn knows(sentinels: &[Client], service: &str, limit: Duration) -> Vec<RedisResult<()>> {
    let asked = sentinels.iter().map(async |sentinel| ask_in_time(sentinel, service, limit).await.map(drop));
    join_all(asked).await
}

async fn ask_in_time(sentinel: &Client, service: &str, limit: Duration) -> RedisResult<Answer> {
    let late = |_| Err((ErrorKind::Io, "a Sentinel does not answer in time").into());
    timeout(limit, ask_one(sentinel, service)).await.unwrap_or_else(late)
}

fn is_most(part: usize, all: usize) -> bool {
    part > all / 2
}

/// Chooses the answer with the highest epoch. Among equal epochs, prefers a Sentinel that can reach the server.
fn choose(answers: Vec<Answer>) -> Option<Answer> {
    answers.into_iter().max_by_key(|answer| (answer.epoch, !answer.is_down))
}

async fn ask_one(sentinel: &Client, service: &str) -> RedisResult<Answer> {
    // The caller limits the time of the whole question.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection = sentinel.get_multiplexed_async_connection_with_config(&config).await?;
    let mut questions = redis::pipe();
    // During a failover, the record has the new epoch, and still has the address of the old primary. So the address
    // comes from a question of its own. It is the second question: a change between the two must not put the old
    // address beside the new epoch.
    questions.cmd("SENTINEL").arg("MASTER").arg(service);
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let (record, (host, port)): (HashMap<String, String>, (String, u16)) =
        questions.query_async(&mut connection).await?;
    read(&record, (host.into(), port))
}

/// Reads the answer of a Sentinel: its record of the primary, and the present address.
fn read(record: &HashMap<String, String>, address: Named) -> RedisResult<Answer> {
    let field = |name: &str| record.get(name).map_or("", String::as_str);
    let epoch = field("config-epoch").parse().map_err(|_| {
        RedisError::from((ErrorKind::UnexpectedReturnType, "a Sentinel names no configuration epoch"))
    })?;
    // The flags belong to the server in the record.
    let is_in_record = (field("ip"), field("port")) == (&*address.0, address.1.to_string().as_str());
    let is_flagged = field("flags").split(',').any(|flag| ["s_down", "o_down"].contains(&flag));
    Ok(Answer { address, epoch, is_down: is_in_record && is_flagged })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(port: u16, epoch: u64, is_down: bool) -> Answer {
        Answer { address: ("a".into(), port), epoch, is_down }
    }

    #[test]
    fn the_answer_of_the_last_failover_counts() {
        let [old, new, dead] = [answer(1, 3, false), answer(2, 4, false), answer(2, 4, true)];
        assert_eq!(choose(vec![old.clone(), dead.clone(), new.clone()]), Some(new.clone()));
        assert_eq!(choose(vec![new.clone(), old.clone(), dead.clone()]), Some(new));
        // The old primary is not taken in place of a new one that is away.
        assert_eq!(choose(vec![old, dead.clone()]), Some(dead));
        assert_eq!(choose(Vec::new()), None);
        assert!(is_most(2, 3) && is_most(1, 1) && !is_most(1, 2) && !is_most(0, 0));
    }

    #[test]
    fn the_flags_of_the_old_primary_say_nothing_of_the_new_one() {
        let record = |flags: &str| {
            let fields = [("ip", "a"), ("port", "1"), ("flags", flags), ("config-epoch", "4")];
            fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect()
        };
        let [up, down] = [record("master"), record("s_down,master,failover_in_progress")];
        assert_eq!(read(&up, ("a".into(), 1)).unwrap(), answer(1, 4, false));
        assert_eq!(read(&down, ("a".into(), 1)).unwrap(), answer(1, 4, true));
        assert_eq!(read(&down, ("a".into(), 2)).unwrap(), answer(2, 4, false));
        assert!(read(&HashMap::new(), ("a".into(), 1)).is_err());
    }
}
