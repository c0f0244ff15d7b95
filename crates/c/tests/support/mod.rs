//! Shared parts of the tests: engines that are freed, callbacks that log, and the tools for C programs.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests keep the contract, as C has to")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "as above")]

use std::ffi::{CStr, OsStr, c_void};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tourbillon_c::*;

/// The time after which a test fails if an expected event has not happened.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn message() -> String {
    unsafe { CStr::from_ptr(tb_last_error()) }.to_str().unwrap().to_owned()
}

pub(crate) fn options(delivery: tb_delivery) -> tb_options {
    tb_options {
        size: size_of::<tb_options>(),
        tick_ns: 0,
        lane_capacity: 0,
        shards: 1,
        workers: 1,
        capacity: 0,
        delivery: delivery as u32,
        pinning: tb_pinning::TB_UNPINNED as u32,
        clock: tb_clock::TB_CLOCK_MONOTONIC as u32,
        loops: 0,
        reserved: 0,
    }
}

/// Returns the options of an engine whose shards are run by `loops` loops of the program.
pub(crate) fn with_loops(loops: u32) -> tb_options {
    tb_options { shards: 0, workers: 0, loops, ..options(tb_delivery::TB_POOL) }
}

pub(crate) fn no_event() -> tb_event {
    // SAFETY: the struct has only numbers and pointers, which may be null.
    unsafe { std::mem::zeroed() }
}

pub(crate) fn no_stats() -> tb_stats {
    // SAFETY: the struct has only numbers.
    let mut stats: tb_stats = unsafe { std::mem::zeroed() };
    stats.size = size_of::<tb_stats>();
    stats
}

pub(crate) unsafe extern "C" fn count_call(_: *mut c_void, _: *const tb_event) {}

/// Collects the events of all callbacks whose `user` points to this value.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<tb_event>>);

impl Log {
    pub(crate) fn user(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    pub(crate) fn take(&self) -> Vec<tb_event> {
        take(&mut self.0.lock().unwrap())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

pub(crate) unsafe extern "C" fn log_call(user: *mut c_void, event: *const tb_event) {
    // SAFETY: `user` points to a log, and the event is live.
    unsafe { (*user.cast::<Log>()).0.lock().unwrap().push(*event) };
}

/// Three engines for the tests: with threads and callbacks, with threads and polled events, and with one loop.
pub(crate) struct World {
    pub(crate) engine: *mut tb_engine,
    pub(crate) polled: *mut tb_engine,
    pub(crate) looping: *mut tb_engine,
    pub(crate) event_loop: *mut tb_loop,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world =
            Self { engine: null_mut(), polled: null_mut(), looping: null_mut(), event_loop: null_mut() };
        unsafe {
            assert_eq!(tb_engine_create(&options(tb_delivery::TB_POOL), &mut world.engine), tb_status::TB_OK);
            assert_eq!(
                tb_engine_create(&options(tb_delivery::TB_POLLED), &mut world.polled),
                tb_status::TB_OK
            );
            assert_eq!(tb_engine_create(&with_loops(1), &mut world.looping), tb_status::TB_OK);
            assert_eq!(tb_loop_create(world.looping, 0, &mut world.event_loop), tb_status::TB_OK);
        }
        world
    }
}

impl Drop for World {
    fn drop(&mut self) {
        unsafe {
            tb_loop_free(self.event_loop);
            tb_engine_free(self.looping);
            tb_engine_free(self.polled);
            tb_engine_free(self.engine);
        }
    }
}

/// An engine without threads, with a clock that the test advances.
pub(crate) struct Driven {
    pub(crate) engine: *mut tb_engine,
}

impl Driven {
    pub(crate) fn new(delivery: tb_delivery) -> Self {
        Self::with(&options(delivery))
    }

    pub(crate) fn with(options: &tb_options) -> Self {
        let mut engine = null_mut();
        assert_eq!(unsafe { tb_engine_create_driven(options, &mut engine) }, tb_status::TB_OK);
        Self { engine }
    }

    pub(crate) fn advance(&self, by_ns: u64) {
        assert_eq!(unsafe { tb_engine_advance(self.engine, by_ns) }, tb_status::TB_OK);
    }

    pub(crate) fn now(&self) -> u64 {
        let mut now = 0;
        assert_eq!(unsafe { tb_now(self.engine, &mut now) }, tb_status::TB_OK);
        now
    }

    pub(crate) fn stats(&self) -> tb_stats {
        let mut stats = no_stats();
        assert_eq!(unsafe { tb_engine_stats(self.engine, &mut stats) }, tb_status::TB_OK);
        stats
    }

    pub(crate) fn poll(&self, most: usize) -> Vec<tb_event> {
        poll(self.engine, most)
    }

    /// Returns whether the engine's descriptor is readable.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_signalled(&self) -> bool {
        is_readable(event_fd(self.engine), Duration::ZERO)
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        assert_eq!(unsafe { tb_engine_free(self.engine) }, tb_status::TB_OK);
    }
}

/// Polls the engine once, and returns at most `most` events.
pub(crate) fn poll(engine: *const tb_engine, most: usize) -> Vec<tb_event> {
    let (mut events, mut count) = (vec![no_event(); most], 0);
    assert_eq!(unsafe { tb_poll(engine, events.as_mut_ptr(), most, &mut count) }, tb_status::TB_OK);
    events.truncate(count);
    events
}

#[cfg(target_os = "linux")]
pub(crate) fn event_fd(engine: *const tb_engine) -> i32 {
    let mut fd = -1;
    assert_eq!(unsafe { tb_event_fd(engine, &mut fd) }, tb_status::TB_OK);
    fd
}

/// Waits until a descriptor is readable. Returns false if it is not readable within `patience`.
#[cfg(target_os = "linux")]
pub(crate) fn is_readable(fd: i32, patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // SAFETY: the engine that owns the descriptor is live.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let patience =
        Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap() > 0
}

// --- Tools ---

/// Returns whether a program with this name is installed. Prints a line if the program is missing.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        eprintln!("{tool} is not installed: some tests are skipped");
    }
    has
}

/// Says how a test program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Static,
    Shared,
}

/// Returns the folder in which cargo has built the libraries. This test program is in the same folder.
pub(crate) fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().expect("in target/<profile>/deps").to_owned();
    assert!(folder.join("libtourbillon_c.a").exists(), "cargo builds the libraries before the tests");
    folder
}

/// Returns the compiler's flags for a library, as pkg-config reports them. Prints a line if the library is not
/// installed.
pub(crate) fn flags_of(library: &str) -> Option<Vec<String>> {
    let output =
        Command::new("pkg-config").args(["--cflags", "--libs", library]).stderr(Stdio::null()).output();
    let found = output.ok().filter(|output| output.status.success());
    if found.is_none() {
        eprintln!("pkg-config finds no {library}: some tests are skipped");
    }
    found
        .map(|output| String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// Returns a folder that has the shared library under the file names of an installation.
fn shared_library() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared");
        std::fs::create_dir_all(&folder).unwrap();
        for name in
            ["libtourbillon.so".to_owned(), format!("libtourbillon.so.{}", env!("CARGO_PKG_VERSION_MAJOR"))]
        {
            // Another test may have made the link.
            drop(std::os::unix::fs::symlink(libraries().join("libtourbillon_c.so"), folder.join(name)));
        }
        folder
    };
    FOLDER.get_or_init(make).clone()
}

/// The command of a compiler, and the arguments that select the language.
pub(crate) struct Compiler(pub(crate) &'static str, pub(crate) &'static [&'static str]);

pub(crate) const C11: Compiler = Compiler("cc", &["-std=c11", "-D_GNU_SOURCE"]);
pub(crate) const C99: Compiler = Compiler("cc", &["-std=c99"]);
pub(crate) const CPP11: Compiler = Compiler("c++", &["-std=c++11", "-xc++"]);
pub(crate) const WITH_TSAN: Compiler = Compiler("cc", &["-std=c11", "-D_GNU_SOURCE", "-fsanitize=thread"]);
pub(crate) const ANNOTATED_FOR_TSAN: Compiler =
    Compiler("cc", &["-std=c11", "-D_GNU_SOURCE", "-fsanitize=thread", "-DTB_TSAN"]);

/// Compiles a C11 program, with each warning as an error. Returns the path of the compiled program.
pub(crate) fn compile(source: &Path, name: &str, link: Link) -> PathBuf {
    compile_by(&C11, source, name, link)
}

pub(crate) fn compile_by(compiler: &Compiler, source: &Path, name: &str, link: Link) -> PathBuf {
    compile_with(compiler, source, name, link, &[])
}

/// Compiles a program as `compile_by` does, with the flags of other libraries.
pub(crate) fn compile_with(
    Compiler(compiler, language): &Compiler,
    source: &Path,
    name: &str,
    link: Link,
    flags: &[String],
) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{link:?}"));
    let mut command = Command::new(compiler);
    if cfg!(debug_assertions) {
        command.arg("-DDETECTS_STALE");
    }
    command.args(*language).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"]);
    command.arg("-I").arg(root().join("include")).arg("-o").arg(&program).arg(source);
    // The compiler must treat the files that follow as libraries, not as sources.
    command.arg("-xnone");
    match link {
        Link::Static => {
            command.arg(libraries().join("libtourbillon_c.a")).args(["-lpthread", "-ldl", "-lm"]);
        }
        Link::Shared => {
            let folder = shared_library();
            command.arg("-L").arg(&folder).args(["-ltourbillon", "-lpthread", "-ldl"]);
            command.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
    }
    run(command.args(flags));
    program
}

/// Returns a command that runs a program under valgrind. The command exits with 99 after an error or a leak.
pub(crate) fn under_valgrind(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
    command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]).arg(program);
    command
}

/// Runs a program, and runs it again under valgrind if valgrind is installed. Returns the output of each run.
pub(crate) fn run_twice(program: &Path, arguments: &[&OsStr]) -> Vec<String> {
    let mut commands = vec![Command::new(program)];
    if has("valgrind") {
        commands.push(under_valgrind(program));
    }
    let output = |command: &mut Command| String::from_utf8(run(command.args(arguments)).stdout).unwrap();
    commands.iter_mut().map(output).collect()
}

/// Returns the source text of the program that the header shows.
pub(crate) fn program_in_the_header() -> String {
    let header = std::fs::read_to_string(root().join("include/tourbillon.h")).unwrap();
    let text = header.split(" * A PROGRAM\n").nth(1).unwrap().split(" */").next().unwrap();
    text.lines().map(|line| line.strip_prefix(" *   ").unwrap_or_default().to_owned() + "\n").collect()
}

/// Runs a program that closes this shared library again and again. Before each close, a callback frees an engine whose
/// threads are still in the library.
pub(crate) fn assert_stays_loaded(library: &Path) {
    let program = compile(&root().join("tests/c/unloaded.c"), "unloaded", Link::Static);
    let output = run(Command::new(program).arg(library)).stdout;
    assert_eq!(String::from_utf8_lossy(&output), "unloaded: ok\n");
}
