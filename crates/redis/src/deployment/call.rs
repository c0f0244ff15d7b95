//! Runs one script on the servers, and reads the server's time from its answer.

use super::promise;
use super::time::{Time, moment};
use crate::layout::Layout;
use crate::link::Link;
use crate::script::{Arguments, BY_CALLER, BY_SERVER, Script, Scripts, Values, Words};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::StoreError;

/// The answer of a script: the time by which the script decided, and the values after it.
pub(crate) struct Answered {
    pub(crate) now: UtcMillis,
    pub(crate) rest: Values,
}

/// A call that runs a script on these keys.
pub(crate) struct Call<W> {
    pub(crate) script: W,
    pub(crate) keys: Vec<Vec<u8>>,
    /// The number of an attempt to connect. The script is sent only on the connection that this attempt has made.
    /// `None` permits any connection.
    pub(crate) attempt: Option<u64>,
}

/// Runs a script on any connection. Returns the script's answer, and whether the answer shows that the server's clock
/// was set.
pub(crate) async fn run(
    link: &dyn Link,
    time: &Time,
    script: impl Fn(&'static Scripts) -> &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: impl Arguments,
) -> Result<(Answered, bool), StoreError> {
    send(link, time, Call { script, keys, attempt: None }, arguments).await
}

/// Runs a script. If the call names an attempt to connect, sends the script only on the connection of that attempt.
/// Returns the script's answer, and whether the answer shows that the server's clock was set.
pub(super) async fn send(
    link: &dyn Link,
    time: &Time,
    call: Call<impl Fn(&'static Scripts) -> &'static Script>,
    arguments: impl Arguments,
) -> Result<(Answered, bool), StoreError> {
    let Call { script, mut keys, attempt } = call;
    // With the absent key, the script is refused as a whole while the slot of the keys moves to another server.
    keys.extend(keys.first().map(|key| Layout::absent(key)));
    let script = match time {
        Time::Server(_) => script(&BY_SERVER),
        Time::Test(_) => script(&BY_CALLER),
    };
    let mut words = Words::default();
    words.push(&time.argument());
    arguments.add_to(&mut words);
    let sent = moment();
    let reply = match attempt {
        Some(attempt) => link.run_on(attempt, script, keys, words),
        None => link.run_before_witness(script, keys, words),
    };
    let (answer, witness) = reply.await?;
    promise::note(witness);
    let mut rest = Values::of(answer)?;
    let now = UtcMillis::from_millis(rest.number()?);
    let is_step = time.learn(sent, now);
    Ok((Answered { now, rest }, is_step))
}
