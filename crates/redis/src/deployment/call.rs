//! Runs one script on the servers, and reads the server's time from its answer.

use super::promise;
use crate::layout::Layout;
use crate::link::{Call, Link};
use crate::script::{Arguments, BY_CALLER, BY_SERVER, Script, Scripts, Values, Words, decimal};
use tourbillon_durable::UtcMillis;
use tourbillon_durable::store::{ServerTime, StoreError};

/// The answer of a script: the server's time by which the script decided, and the other values.
pub(crate) struct Answered {
    pub(crate) now: UtcMillis,
    pub(crate) rest: Values,
}

/// Prepares the call of a script, for any connection. If the script reaches its server at the moment `until` or
/// later, the server refuses it, and the call fails. A deployment on a test clock ignores `until`.
pub(super) fn prepare(
    time: &ServerTime,
    until: Option<UtcMillis>,
    script: impl Fn(&'static Scripts) -> &'static Script,
    mut keys: Vec<Vec<u8>>,
    values: impl Arguments,
) -> Call {
    // With the absent key, the script is refused as a whole while the slot of the keys moves to another server.
    keys.extend(keys.first().map(|key| Layout::absent(key)));
    let now = time.of_caller();
    let script = script(if now.is_some() { &BY_CALLER } else { &BY_SERVER });
    let mut arguments = Words::default();
    // On a test clock, the first argument is the present time. Otherwise it is the limit.
    arguments.push(&now.or(until).map(|moment| decimal(moment.as_millis())).unwrap_or_default());
    values.add_to(&mut arguments);
    Call { script, keys, arguments, attempt: None }
}

/// Runs a script on any connection. Returns the script's answer, and true if the answer shows that the server's clock
/// was set.
pub(crate) fn run<'a>(
    link: &'a dyn Link,
    time: &'a ServerTime,
    script: impl Fn(&'static Scripts) -> &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: impl Arguments,
) -> impl Future<Output = Result<(Answered, bool), StoreError>> {
    send(link, time, prepare(time, None, script, keys, arguments))
}

/// Sends a call. Returns the script's answer, and true if the answer shows that the server's clock was set.
pub(super) async fn send(
    link: &dyn Link,
    time: &ServerTime,
    call: Call,
) -> Result<(Answered, bool), StoreError> {
    // The moment must be before the server reads its clock. Otherwise the estimate of the server's time could be behind
    // that clock.
    let sent = ServerTime::moment();
    let (answer, witness) = link.run(call).await?;
    promise::note(witness);
    let mut rest = Values::of(answer)?;
    let now = UtcMillis::from_millis(rest.number()?);
    let is_step = time.learn(sent, now);
    Ok((Answered { now, rest }, is_step))
}
