//! Runs scripts on the servers, within the time limits of the settings.

use super::dial::Dial;
use super::error::{LinkError, Meaning, no_reply};
use super::listen::listen;
use super::reconnector::Task;
use super::route::Route;
use super::routes::{Place, Routes};
use super::settings::{Connect, ConnectError, SyncPolicy};
use super::slots::{Address, Slots};
use super::{Answer, Call, Ear, Link, Pause, Reply};
use core::any::Any;
use core::fmt;
use core::time::Duration;
use futures_util::future::join_all;
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The shortest pause between two attempts of a call whose script has surely not run. Each attempt doubles the pause,
/// up to `LONGEST`.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(200);

/// The time that a call waits if its patience ends at a moment that the clock cannot represent: a hundred years.
const FOREVER: Duration = Duration::from_secs(3_155_760_000);

/// Runs calls to the servers of a [`Connect`] on a runtime of its own, so callers need no runtime.
pub(crate) struct Session {
    caller: Arc<Caller>,
    dial: Arc<Dial>,
    /// The runtime of the session, or `None` while the session is dropped.
    runtime: Option<Runtime>,
}

struct Caller {
    routes: Routes,
    servers: String,
    patience: Duration,
    /// The longest time for a reply of a server.
    limit: Duration,
    is_cluster: bool,
    /// True if each connection has a [`Witness`](super::Witness), because changes may have to wait for copies.
    has_witnesses: bool,
    /// True until a server refuses a script because of the flags in the script's first line. After that, scripts are
    /// sent without flags.
    knows_flags: AtomicBool,
}

/// The way in which a command names a script: by the hash of its text, or by the whole text.
#[derive(Clone, Copy)]
enum By {
    Name,
    Text,
}

impl Session {
    /// Starts to connect to the servers, without waiting for a connection.
    ///
    /// # Errors
    ///
    /// Fails if the settings cannot work, or no thread can be started.
    pub(crate) fn open(connect: &Connect) -> Result<Self, ConnectError> {
        let dial = Arc::new(Dial::new(connect.clone())?);
        // This kind of runtime has a thread of its own. A `current_thread` runtime would run its tasks only while a
        // caller blocks on it.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tourbillon-redis")
            .enable_all()
            .build()
            .map_err(|error| ConnectError::new(format!("no thread for connections: {error}")))?;
        let servers = dial.servers().to_string();
        let routes = {
            let _inside = runtime.enter();
            Routes::start(Arc::clone(&dial))
        };
        let caller = Caller {
            routes,
            servers,
            patience: connect.patience,
            limit: connect.response_timeout,
            is_cluster: connect.is_cluster(),
            has_witnesses: !matches!(connect.sync, SyncPolicy::None),
            knows_flags: AtomicBool::new(true),
        };
        Ok(Self { caller: Arc::new(caller), dial, runtime: Some(runtime) })
    }

    /// Runs a future on the session's runtime. Any executor may poll the returned future.
    fn spawn<T, F>(&self, work: impl FnOnce(Arc<Caller>) -> F) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, LinkError>> + Send + 'static,
    {
        let Some(runtime) = &self.runtime else {
            return Box::pin(async { Err(LinkError::unknown("the connection is closed")) });
        };
        let task = runtime.spawn(work(Arc::clone(&self.caller)));
        // A task ends early only with its runtime or by a panic. The caller may block on this future inside a task of
        // another tokio runtime. That task then awaits the answers of many shards without yielding, and would use up
        // the budget that tokio gives a task. `unconstrained` makes the future ignore this budget.
        Box::pin(unconstrained(async {
            task.await.unwrap_or_else(|error| Err(LinkError::unknown(format!("a call ended: {error}"))))
        }))
    }

    /// Sends commands to any primary, and returns the replies. The reply to a command that the server refuses is a
    /// [`Value::ServerError`].
    #[cfg(test)]
    pub(crate) fn ask(&self, commands: Pipeline) -> Answer<'static, Vec<Value>> {
        self.spawn(async move |caller: Arc<Caller>| {
            let end = caller.end();
            Ok(caller.ask(&commands, &Place::Key(None), end).await?.1)
        })
    }

    /// Sends a command to the only server, or to each primary of a cluster, except for the servers with the addresses
    /// `skipped`. Returns the reply or the error of each server with the address of the server.
    pub(crate) fn ask_each(
        &self,
        command: Cmd,
        skipped: BTreeSet<String>,
    ) -> Answer<'static, Vec<(String, Result<Value, LinkError>)>> {
        self.spawn(async move |caller: Arc<Caller>| Ok(caller.ask_each(command, &skipped).await))
    }

    /// Returns the reason why no server fits the settings, as [`Dial::misfit`] describes.
    pub(crate) fn misfit(&self) -> Answer<'static, Option<String>> {
        let dial = Arc::clone(&self.dial);
        self.spawn(async move |_| Ok(dial.misfit().await))
    }

    /// Returns the map of a cluster's slots, which is empty without a cluster or if no server has answered in time.
    pub(crate) fn slots(&self) -> Answer<'static, Arc<Slots>> {
        self.spawn(async |caller: Arc<Caller>| {
            let slots = timeout(caller.patience, caller.routes.slots()).await;
            Ok(slots.ok().flatten().unwrap_or_default())
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The runtime ends in the background, so that a session may be dropped anywhere: waiting is forbidden
            // within a runtime.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("servers", &self.caller.servers).finish_non_exhaustive()
    }
}

impl Link for Session {
    fn run(&self, mut call: Call) -> Answer<'_, Reply> {
        // In a cluster, each primary has attempts of its own, so the number of an attempt does not identify a
        // connection.
        call.attempt = call.attempt.filter(|_| !self.caller.is_cluster);
        self.spawn(|caller| async move { caller.run(&call).await })
    }

    fn attempt(&self) -> u64 {
        self.caller.routes.attempt()
    }

    fn has_witnesses(&self) -> bool {
        self.caller.has_witnesses
    }

    fn wait(&self, time: Duration) -> Pause {
        match &self.runtime {
            Some(runtime) => {
                // A sleep must be created within the runtime.
                let task = runtime.spawn(async move { sleep(time).await });
                Box::pin(unconstrained(async { drop(task.await) }))
            }
            None => Box::pin(async {}),
        }
    }

    fn listen(&self, beside: &[u8], channels: &[Vec<u8>], ear: Ear) -> Option<Box<dyn Any + Send>> {
        let (dial, caller) = (Arc::clone(&self.dial), Arc::clone(&self.caller));
        let (beside, channels) = (beside.to_vec(), channels.to_vec());
        let listening = async move { listen(&dial, &caller.routes, &beside, &channels, ear.into()).await };
        Some(Box::new(Task::of(&self.runtime.as_ref()?.spawn(listening))))
    }

    fn runtime(&self) -> Option<Handle> {
        self.runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    fn patience(&self) -> Duration {
        self.caller.patience
    }

    fn is_cluster(&self) -> bool {
        self.caller.is_cluster
    }
}

impl Caller {
    /// Returns the moment until which a call that begins now may wait for a server that can run it.
    fn end(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.patience).unwrap_or_else(|| now + FOREVER)
    }

    /// Runs a script. After an attempt in which the script has surely not run, sends it again until the settings'
    /// `patience` is over. If the script may have run, returns the error.
    async fn run(&self, call: &Call) -> Result<Reply, LinkError> {
        let end = self.end();
        // In a cluster, all keys of a script are in one slot, so the first key determines the server.
        let key = call.keys.first().map(Vec::as_slice);
        let (mut by, mut place, mut pause) = (By::Name, Place::Key(key), SHORTEST);
        loop {
            let is_redirected = matches!(place, Place::Address(_));
            let found = self.route(call.script.name(), &place, end).await;
            // A redirection is for one attempt only.
            place = Place::Key(key);
            let mut route = match found {
                Ok(route) => route,
                // The server that a redirection has named may be gone, so the next attempt goes to the primary of the
                // key.
                Err(_) if is_redirected && Instant::now() < end => continue,
                Err(error) => return Err(error),
            };
            // This checks the very connection that sends the script, so a replacement after the check does no harm.
            if call.attempt.is_some_and(|attempt| attempt != route.attempt) {
                return Err(LinkError::renewed(call.script.name()));
            }
            let has_flags = call.script.has_flags() && self.knows_flags.load(Ordering::Relaxed);
            let command = call.command(by, has_flags);
            let sent = timeout(self.limit, send(command, is_redirected, &mut route)).await;
            let error = match sent {
                Err(_) => {
                    // The server may have disappeared without closing the connection. In a cluster, another server may
                    // have taken its place, so the map of the slots is read again.
                    route.doubt().await;
                    self.routes.learn(None, &route);
                    return Err(LinkError::late(call.script.name(), self.limit).with_effect_of(call.script));
                }
                Ok(Ok(value)) => return Ok((value, route.connection.witness)),
                Ok(Err(error)) => error,
            };
            if has_flags && is_about_flags(&error) {
                // The server is old. It runs the same script without flags. That text has another hash, which the
                // server may know already, so the next attempt sends the hash.
                self.knows_flags.store(false, Ordering::Relaxed);
                by = By::Name;
                continue;
            }
            match Meaning::of(&error) {
                Meaning::NotLoaded if matches!(by, By::Name) => {
                    by = By::Text;
                    // The text must go to the server that does not have it.
                    if is_redirected {
                        place = route.address.map_or(place, Place::Address);
                    }
                    continue;
                }
                Meaning::Ask => {
                    // The other server has the keys now, so no pause is needed.
                    if let Some(address) = route.redirection(&error)
                        && Instant::now() < end
                    {
                        place = Place::Address(address);
                        continue;
                    }
                }
                // `MOVED` is one of these errors. It names the server that has the keys now.
                Meaning::Later => self.routes.learn(Some(&error), &route),
                Meaning::Elsewhere => {
                    route.doubt().await;
                    self.routes.learn(Some(&error), &route);
                }
                Meaning::Lost => {
                    route.doubt().await;
                    self.routes.learn(Some(&error), &route);
                    return Err(LinkError::of(call.script.name(), &error).with_effect_of(call.script));
                }
                Meaning::NotLoaded | Meaning::Refused | Meaning::Broken => {
                    return Err(LinkError::of(call.script.name(), &error).with_effect_of(call.script));
                }
            }
            if Instant::now() + pause >= end {
                return Err(LinkError::gave_up(call.script.name(), self.patience, &error.to_string()));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Sends commands to the server that `place` describes. Returns the replies, and in a cluster the server's address.
    async fn ask(
        &self,
        commands: &Pipeline,
        place: &Place<'_>,
        end: Instant,
    ) -> Result<(Option<Address>, Vec<Value>), LinkError> {
        let name = "(a question)";
        let mut route = self.route(name, place, end).await?;
        match timeout(self.limit, route.send(commands, 0)).await {
            Ok(Ok(replies)) => Ok((route.address, replies)),
            Ok(Err(error)) => Err(LinkError::of(name, &error)),
            Err(_) => {
                route.doubt().await;
                Err(LinkError::late(name, self.limit))
            }
        }
    }

    async fn ask_each(
        &self,
        command: Cmd,
        skipped: &BTreeSet<String>,
    ) -> Vec<(String, Result<Value, LinkError>)> {
        let end = self.end();
        let mut commands = redis::pipe();
        commands.add_command(command);
        let places = self.each(end).await;
        let asked = places.iter().map(|place| (self.name(place), place));
        let asked = asked.filter(|(name, _)| !skipped.contains(name)).map(async |(name, place)| {
            let reply = self.ask(&commands, place, end).await.and_then(|(_, mut replies)| {
                let reply = replies.pop().unwrap_or(Value::Nil).extract_error();
                reply.map_err(|error| LinkError::of("(a question)", &error))
            });
            (name, reply)
        });
        join_all(asked).await
    }

    /// Returns the only server, or each primary of a cluster. Waits until `end` for the map of the cluster's slots.
    /// Without the map, returns any primary: the caller's connection to it then fails with the reason.
    async fn each(&self, end: Instant) -> Vec<Place<'static>> {
        let slots = timeout_at(end, self.routes.slots()).await.ok().flatten();
        let primaries = slots.iter().flat_map(|slots| slots.primaries());
        let places: Vec<_> = primaries.cloned().map(Place::Address).collect();
        if places.is_empty() { vec![Place::Key(None)] } else { places }
    }

    /// Returns the name of a server in messages: its address, or all servers of the settings.
    fn name(&self, place: &Place<'_>) -> String {
        match place {
            Place::Address(address) => address.to_string(),
            Place::Key(_) => self.servers.clone(),
        }
    }

    /// Waits until `end` for a connection to the server that `place` describes. The error has the reason why there is
    /// no connection.
    async fn route(&self, script: &str, place: &Place<'_>, end: Instant) -> Result<Route, LinkError> {
        if let Ok(Some(found)) = timeout_at(end, self.routes.to(place)).await {
            return Ok(found);
        }
        let trouble = self.routes.trouble(place);
        let why = trouble.map_or_else(|| "still connecting".to_owned(), |error| error.to_string());
        Err(LinkError::gave_up(script, self.patience, &format!("no connection to {}: {why}", self.servers)))
    }
}

/// Sends the command of a script, and returns the answer. `is_redirected` is true if another server of the cluster has
/// named this server by the error `ASK`, because the slot of the keys is moving to this server. In this case the
/// command `ASKING` goes before the script.
async fn send(command: Cmd, is_redirected: bool, route: &mut Route) -> RedisResult<Value> {
    let mut commands = redis::pipe();
    // `ASKING` applies to the next command of the connection. Other calls share the connection, so one pipeline has
    // both commands.
    if is_redirected {
        commands.cmd("ASKING");
    }
    let skipped = commands.len();
    commands.add_command(command);
    let replies = route.send(&commands, skipped).await?;
    replies.into_iter().next().ok_or_else(no_reply)?.extract_error()
}

impl Call {
    fn command(&self, by: By, has_flags: bool) -> Cmd {
        let (name, text) = match by {
            By::Name => ("EVALSHA", self.script.sha1(has_flags)),
            By::Text => ("EVAL", self.script.text(has_flags)),
        };
        let mut command = redis::cmd(name);
        command.arg(text).arg(self.keys.len());
        for word in self.keys.iter().map(Vec::as_slice).chain(self.arguments.iter()) {
            command.arg(word);
        }
        command
    }
}

/// Returns whether a server has refused the flags in the first line of a script. The script has then not run.
fn is_about_flags(error: &RedisError) -> bool {
    let is_meant = |detail: &str| {
        // Servers before Redis 7.0 cannot compile the first line. Later servers name the shebang or the flag that they
        // do not know.
        ["compiling script", "shebang", "script flag"].iter().any(|words| detail.contains(words))
    };
    error.code() == Some("ERR") && error.detail().is_some_and(is_meant)
}
