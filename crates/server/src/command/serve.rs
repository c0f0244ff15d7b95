//! Runs `tourbillond serve`: the service, from its start to its end.
//!
//! After SIGTERM or SIGINT the service ends in these steps:
//!
//! 1. Connections are no longer accepted, and connections without a request end. Requests under way are answered.
//!    Requests that may last for ever, such as streams of events, end.
//! 2. Once these answers are sent, or after a second, operations on many timers and removals of namespaces end. Once
//!    they have ended, or after half of the remaining time, the service claims no more timers. The callbacks under way
//!    may continue until the time `drain` is over.
//! 3. Timers whose callbacks have not ended are given back. The next start delivers them again, with the same ids.
//! 4. A second later, the answers that clients have not taken are cut off, and the process ends.
//!
//! A second signal ends the process at once. Even then no timer is lost, because leases end with the next start.

use super::condition::Condition;
use super::terminal::{Failure, Outcome, code_of};
use crate::config::{self, Config, ConfigError, Loaded};
use crate::listen::{Listeners, Server};
use crate::log;
use crate::service::Service;
use crate::state::TokenFile;
use crate::task;
use crate::tls::Tls;
use core::net::SocketAddr;
use core::time::Duration;
use sd_notify::NotifyState;
use std::process::ExitCode;
use tracing::{error, info, warn};

/// The longest time for which the stopping service waits for answers to running requests. It waits twice: before
/// deliveries stop, and afterwards.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// The time between two checks of the token file and of the service's condition.
const LOOK: Duration = Duration::from_secs(1);

/// Fails if other machines could reach the service without tokens or without TLS. Behind a proxy, the service needs
/// only tokens.
pub(super) fn check_exposure(config: &Config) -> Result<(), Failure> {
    let path = config.token_file();
    let tokens =
        TokenFile::new(&path).read_at_start().map_err(|error| format!("{}: {error}", path.display()))?;
    let has_tokens = tokens.is_some_and(|tokens| !tokens.is_empty());
    if config.behind_proxy {
        if has_tokens {
            return Ok(());
        }
        return Err("behind a proxy the service needs tokens: `tourbillond token new` makes a token".into());
    }
    // `::ffff:127.0.0.1` counts as a loopback address only in its canonical form.
    let Some(exposed) = config.listen.iter().find(|address| !address.ip().to_canonical().is_loopback())
    else {
        return Ok(());
    };
    let mut needs = Vec::new();
    if !has_tokens {
        needs.push("tokens (`tourbillond token new`)");
    }
    if config.tls_certificate.is_none() {
        needs.push("TLS (tls.certificate and tls.key)");
    }
    if needs.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{exposed} can be reached from other machines, which needs {}; with a proxy that has TLS, behind_proxy",
        needs.join(" and ")
    );
    // Without tokens alone, a later attempt of the service manager may succeed, because a token may be made by then.
    // TLS needs another setting, so a lack of TLS is an error of the configuration.
    if config.tls_certificate.is_none() {
        Err(ConfigError::Together(message).into())
    } else {
        Err(message.into())
    }
}

/// Raises the limit of open files of this process to the greatest number that the system permits.
fn raise_file_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // An error is ignored: with fewer open files the service accepts fewer connections.
        let _best_effort = setrlimit(Resource::Nofile, limit);
    }
}

/// Runs the service until a signal ends it. If the service fails, logs the failure.
pub(super) fn run(loaded: &Loaded) -> Outcome {
    let config = &loaded.config;
    log::begin(config.log_level, config.log_format);
    for warning in &loaded.warnings {
        warn!(target: "start", "{warning}");
    }
    let ended = run_until_stopped(config);
    // `finish` also resets the counts by which the log limits lines of a kind. So the failure gets its line even if the
    // start has logged many warnings of the same kind.
    log::finish();
    ended.or_else(|failure| {
        error!(target: "start", "{failure}");
        Ok(code_of(&failure))
    })
}

fn run_until_stopped(config: &Config) -> Outcome {
    check_exposure(config)?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(config));
    // Tasks of deliveries may still run here. Their timers were already returned to the store.
    runtime.shutdown_background();
    ended
}

/// Reports new states of the service to the service manager, such as systemd. Does nothing if there is no manager.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(target: "start", "the service manager cannot be reached: {error}");
    }
}

/// Receives the signals that end the service or make it read files again.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

/// A signal to which the service reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Terminate,
    Interrupt,
    HangUp,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _some = self.terminate.recv() => Signal::Terminate,
            _some = self.hang_up.recv() => Signal::HangUp,
            _some = self.interrupt.recv() => Signal::Interrupt,
        }
    }

    #[cfg(not(unix))]
    fn new() -> std::io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> Signal {
        let _some = tokio::signal::ctrl_c().await;
        Signal::Interrupt
    }
}

/// Binds the sockets, and returns them with their addresses.
async fn bind(addresses: &[SocketAddr]) -> Result<(Listeners, Vec<SocketAddr>), Failure> {
    let listeners = Listeners::bind(addresses).await;
    let listeners = listeners.map_err(|(address, error)| format!("{address}: {error}"))?;
    let addresses = listeners.addresses()?;
    Ok((listeners, addresses))
}

async fn serve(config: &Config) -> Outcome {
    // The signals are caught before the store is opened, so that a signal during the start still stops the service in
    // order.
    let mut signals = Signals::new()?;
    let tls = match (&config.tls_certificate, &config.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::open(certificate, key)?),
        _ => None,
    };
    let mut settings = config.settings()?;
    // The sockets are bound before the service is opened. If a port is zero, the system chooses the port only now, and
    // the service must block callbacks to its own addresses.
    let (listeners, addresses) = bind(&config.listen).await?;
    let (probe_listeners, probe_addresses) = bind(&config.probes).await?;
    settings.caller.guard.own.extend(addresses.iter().chain(&probe_addresses));
    settings.tls.clone_from(&tls);
    settings.behind_proxy = config.behind_proxy;
    // A proxy serves browsers over TLS, so the cookies can be limited to TLS behind a proxy, too.
    settings.over_tls = tls.is_some() || config.behind_proxy;
    if settings.telemetry.endpoint.is_some() {
        // The variables are read only if there is a collector, so that a wrong value stops no service that does not use
        // it.
        let environment: Vec<_> = std::env::vars_os().collect();
        let fault = |variable| {
            let fault = "is not a list of names and values as api-key=secret,other=value";
            ConfigError::Together(format!("{variable} {fault}"))
        };
        settings.telemetry.headers = config::headers(&environment).map_err(fault)?;
    }
    let service = match Service::open(settings) {
        Ok(service) => service,
        // With the exit code 2, systemd does not start the program again. Such an error would come back at each start.
        Err(error) if error.is_of_configuration() => {
            error!(target: "start", "{error}");
            return Ok(ExitCode::from(2));
        }
        Err(error) => return Err(error.into()),
    };
    for notice in service.notices() {
        warn!(target: "start", "{notice}");
    }
    let server = Server::start(listeners, &service, tls.as_ref(), config.connection_limits())?;
    // The server ends with this function, so that probes can see the service stop.
    let has_probes = !probe_addresses.is_empty();
    let _probes = has_probes
        .then(|| Server::start_probes(probe_listeners, &service, config.connection_limits()))
        .transpose()?;
    for address in &probe_addresses {
        info!(target: "start", "probes and metrics without a token at http://{address}");
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    for address in &addresses {
        info!(target: "start", "listening on {scheme}://{address}");
    }
    if service.is_open() {
        warn!(target: "start", "there are no tokens: every program on this machine may command the service");
    }
    notify(&[NotifyState::Ready]);
    let signal = watch(&service, tls.as_ref(), &mut signals).await;
    notify(&[NotifyState::Stopping]);
    info!(target: "stop", "stopping ({signal:?}), for at most {} s", config.drain.as_secs_f64());
    tokio::select! {
        () = stop(&service, &server, config.drain) => Ok(ExitCode::SUCCESS),
        signal = second(&mut signals) => {
            warn!(target: "stop", "ended at once by a second signal");
            Ok(ExitCode::from(if signal == Signal::Interrupt { 130 } else { 143 }))
        }
    }
}

/// Waits for another signal while the service stops, and returns it: the caller then ends the process. Ignores SIGHUP.
async fn second(signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if signal != Signal::HangUp {
            return signal;
        }
    }
}

/// Watches a running service until a signal ends the service, and returns the signal. Logs changes of the service's
/// condition, reads the token file again if it has changed, and sends heartbeats to the service manager. SIGHUP makes
/// the service read the token file and the certificate again.
async fn watch(service: &Service, tls: Option<&Tls>, signals: &mut Signals) -> Signal {
    let watchdog = sd_notify::watchdog_enabled();
    // The manager expects a heartbeat in each interval. A heartbeat after half an interval is in time even on a busy
    // machine.
    let pause = watchdog.map_or(LOOK, |interval| LOOK.min(interval / 2));
    // A very short interval of the watchdog could give a pause of zero, for which `interval` panics.
    let mut looks = tokio::time::interval(pause.max(Duration::from_millis(10)));
    let mut condition = Condition::default();
    loop {
        let signal = tokio::select! {
            signal = signals.next() => Some(signal),
            _now = looks.tick() => None,
        };
        match signal {
            None => {
                condition.look(service);
                reload_tokens(service, false);
                let alive = service.alive();
                condition.note_loop(&alive);
                log::settle();
                if watchdog.is_some() {
                    tell_manager(&alive, notify);
                }
            }
            Some(Signal::HangUp) => {
                reload_tokens(service, true);
                match tls.map(Tls::reload) {
                    None => {}
                    Some(Ok(())) => info!(target: "certificate", "the certificate was read again"),
                    Some(Err(error)) => {
                        error!(target: "certificate", "the certificate stays as it was: {error}")
                    }
                }
            }
            Some(signal) => return signal,
        }
    }
}

/// Sends a heartbeat to the service manager if `alive` is `Ok`: the loop that delivers timers is alive. Without
/// heartbeats, the manager starts a new process.
fn tell_manager(alive: &Result<(), Box<str>>, notify: impl FnOnce(&[NotifyState<'_>])) {
    if alive.is_ok() {
        notify(&[NotifyState::Watchdog]);
    }
}

fn reload_tokens(service: &Service, always: bool) {
    let was_open = service.is_open();
    match service.reload_tokens(always) {
        Ok(false) => {}
        // There is still no file of tokens, so nothing has changed.
        Ok(true) if was_open && service.is_open() => {}
        Ok(true) => info!(target: "tokens", "the tokens were read again"),
        Err(error) => error!(target: "tokens", "{error}"),
    }
}

/// Stops the service and its server within about the time `drain`. Requests under way are answered, and deliveries
/// under way may end.
async fn stop(service: &Service, server: &Server, drain: Duration) {
    let begun = std::time::Instant::now();
    service.begin_stop();
    server.stop();
    server.ended(LAST_ANSWERS.min(drain)).await;
    let left = drain.saturating_sub(begun.elapsed());
    let closing = service.clone();
    // `close` blocks, and the threads of the runtime must go on sending answers.
    let closed = task::blocking(move || closing.close(left)).await;
    server.ended(LAST_ANSWERS.min(drain.saturating_sub(begun.elapsed()))).await;
    server.abort();
    if let Ok(Some(stats)) = closed {
        let (seconds, done, returned) = (begun.elapsed().as_secs_f64(), stats.done, stats.released);
        info!(
            target: "stop",
            "stopped after {seconds:.1} s: {done} deliveries done since the start, {returned} given back"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::NewToken;
    use tourbillon_api::Role;

    #[test]
    fn the_manager_gets_no_sign_from_a_loop_that_is_dead() {
        let signs = |alive| {
            let mut signs = Vec::new();
            tell_manager(&alive, |states| signs.extend(states.iter().map(ToString::to_string)));
            signs
        };
        assert_eq!(signs(Ok(())), ["WATCHDOG=1"]);
        assert!(signs(Err("timers are due, and the loop has not polled for 31 s".into())).is_empty());
    }

    #[test]
    fn an_address_that_others_reach_needs_tokens_and_tls() {
        let folder = tempfile::tempdir().unwrap();
        let with = |listen: &[&str], tls: bool, behind_proxy: bool| {
            let config = Config {
                data: folder.path().to_owned(),
                listen: listen.iter().map(|address| address.parse().unwrap()).collect(),
                tls_certificate: tls.then(|| "c".into()),
                tls_key: tls.then(|| "k".into()),
                behind_proxy,
                ..Config::default()
            };
            check_exposure(&config).map_err(|error| error.to_string())
        };
        let (own, all, mapped) = ("127.0.0.1:0", "0.0.0.0:0", "[::ffff:127.0.0.1]:0");
        assert!(with(&[own, "[::1]:0", mapped], false, false).is_ok());
        let refusal = with(&[own, all], false, false).unwrap_err();
        assert!(refusal.contains(all) && refusal.contains("tokens") && refusal.contains("TLS"), "{refusal}");
        assert!(with(&["[::]:0"], true, false).unwrap_err().contains("tokens"));
        assert!(with(&[own], false, true).unwrap_err().contains("tokens"));
        TokenFile::new(folder.path().join("tokens.json"))
            .add(NewToken { name: "".into(), role: Role::Admin, namespace: None, expires: None })
            .unwrap();
        assert!(with(&["10.0.0.1:0"], false, false).unwrap_err().contains("TLS"));
        assert!(with(&[all], true, false).is_ok());
        assert!(with(&[all], false, true).is_ok());
        std::fs::write(folder.path().join("tokens.json"), "[]").unwrap();
        assert!(with(&[all], true, false).is_err());
    }
}
