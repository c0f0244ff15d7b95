//! Signals do not reach the engine's threads. A program may block a signal after it has built an engine, and then wait
//! for that signal.
//!
//! The test harness is not used, since its own threads take signals. The process starts itself again as a child, since
//! a failure would end the process.

#[cfg(unix)]
fn main() {
    use std::process::Command;

    if std::env::var_os("TOURBILLON_SIGNALLED").is_some() {
        return signalled();
    }
    let program = std::env::current_exe().expect("a test knows its program");
    let status = Command::new(program).env("TOURBILLON_SIGNALLED", "1").status().expect("it starts");
    assert!(
        status.success(),
        "a signal that the main thread waits for was taken by another thread: {status}"
    );
}

#[cfg(unix)]
fn signalled() {
    use std::sync::mpsc;
    use std::time::Duration;

    let (fired, log) = mpsc::channel();
    let engine = tourbillon::Builder::new()
        .shards(2)
        .workers(2)
        .start(move |timer| fired.send(timer.payload).expect("the main thread listens"))
        .expect("an engine");
    engine.handle().schedule(Duration::from_millis(1), 7).expect("room");
    assert_eq!(log.recv(), Ok(7));

    // SAFETY: all zeros are a valid value. The next call initialises the set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a local variable.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: the set is a local variable, and is initialised.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGTERM) };
    // SAFETY: the set is initialised, and a null pointer asks for no earlier set.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    assert_eq!(blocked, 0);
    let this = i32::try_from(std::process::id()).expect("a process id");
    // SAFETY: the call sends a signal to this process.
    assert_eq!(unsafe { libc::kill(this, libc::SIGTERM) }, 0);
    let mut signal = 0;
    // SAFETY: the set is initialised, and `signal` is valid for writes.
    assert_eq!(unsafe { libc::sigwait(&raw const set, &raw mut signal) }, 0);
    assert_eq!(signal, libc::SIGTERM);
    engine.handle().schedule(Duration::from_millis(1), 8).expect("room");
    assert_eq!(log.recv(), Ok(8));
}

#[cfg(not(unix))]
fn main() {}
