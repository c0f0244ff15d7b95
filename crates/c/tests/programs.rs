//! Compiles programs in C with all warnings, links them statically and dynamically, and runs them, also under valgrind.

#![cfg(target_os = "linux")]

mod support;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::*;

fn build_and_run(source: &Path, name: &str, link: Link) -> Vec<String> {
    run_twice(&compile(source, name, link), &[])
}

fn program(name: &str) {
    if !has("cc") {
        return;
    }
    let source = root().join("tests/c").join(name).with_extension("c");
    for link in [Link::Static, Link::Shared] {
        for output in build_and_run(&source, name, link) {
            assert_eq!(output, format!("{name}: ok\n"));
        }
    }
}

#[test]
fn callbacks() {
    program("callbacks");
}

#[test]
fn polled() {
    program("polled");
}

#[test]
fn driven() {
    program("driven");
}

#[test]
fn loops() {
    program("loops");
}

/// The header for libevent is valid C11 and C++11. Timers made through it behave as libevent's own timers do.
#[test]
fn libevent() {
    let Some(flags) = flags_of("libevent").filter(|_| has("cc")) else { return };
    let source = root().join("tests/c/libevent.c");
    for link in [Link::Static, Link::Shared] {
        for output in run_twice(&compile_with(&C11, &source, "libevent", link, &flags), &[]) {
            assert_eq!(output, "libevent: ok\n");
        }
    }
    if has("c++") {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libevent.cpp");
        std::fs::write(&source, "#include <tourbillon_libevent.h>\nint main() { return 0; }\n").unwrap();
        compile_with(&CPP11, &source, "libevent_cpp", Link::Static, &flags);
    }
}

/// Runs a program with the README's functions for libuv.
#[test]
fn libuv() {
    let Some(flags) = flags_of("libuv").filter(|_| has("cc")) else { return };
    let program = compile_with(&C11, &root().join("tests/c/libuv.c"), "libuv", Link::Static, &flags);
    for output in run_twice(&program, &[]) {
        assert_eq!(output, "libuv: ok\n");
    }
}

fn run_once(program: &Path, arguments: &[&OsStr]) -> String {
    String::from_utf8(run(Command::new(program).args(arguments)).stdout).unwrap()
}

/// In a child process, each call with a handle of the parent is refused without a wait. Engines that the child makes
/// run.
#[test]
fn forked() {
    if has("cc") {
        let program = compile(&root().join("tests/c/forked.c"), "forked", Link::Static);
        assert_eq!(run_once(&program, &[]), "forked: ok\n");
    }
}

/// A program closes the library after a callback has freed an engine. A thread of that engine is still in the library.
#[test]
fn unloaded() {
    if has("cc") {
        assert_stays_loaded(&libraries().join("libtourbillon_c.so"));
    }
}

/// Returns whether programs under ThreadSanitizer run on this machine. Prints a line if they do not.
fn has_thread_sanitizer() -> bool {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = source.with_extension("tsan");
    let mut compiler = Command::new("cc");
    compiler.arg("-fsanitize=thread").arg(&source).arg("-o").arg(&program);
    let succeeds = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let has = succeeds(&mut compiler) && succeeds(&mut Command::new(&program));
    if !has {
        eprintln!("ThreadSanitizer does not run here: some tests are skipped");
    }
    has
}

#[test]
fn thread_sanitizer_reports_a_hand_over_unless_it_is_annotated() {
    if !has("cc") || !has_thread_sanitizer() {
        return;
    }
    let source = root().join("tests/c/handed_over.c");
    // With this suppression of `TB_TSAN`, the sanitizer reports nothing about memory that the library allocates.
    let suppressions = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tsan-suppressions");
    std::fs::write(&suppressions, "called_from_lib:libtourbillon.so\n").unwrap();
    let output = |compiler, name, options: &str| {
        let program = compile_by(compiler, &source, name, Link::Shared);
        Command::new(program).env("TSAN_OPTIONS", format!("exitcode=66 {options}")).output().unwrap()
    };
    let annotated = output(&ANNOTATED_FOR_TSAN, "annotated", "");
    let report = String::from_utf8_lossy(&annotated.stderr);
    assert!(annotated.status.success(), "{report}");
    assert_eq!(annotated.stdout, b"handed over: ok\n");
    let unannotated = output(&WITH_TSAN, "unannotated", &format!("suppressions={}", suppressions.display()));
    assert_eq!(unannotated.status.code(), Some(66), "it reports nothing: are annotations needed?");
}

#[test]
fn the_program_in_the_header_runs_in_c_and_cpp() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("in_the_header.c");
    std::fs::write(&source, program_in_the_header()).unwrap();
    for (compiler, name) in [(C99, "in_the_header_c99"), (CPP11, "in_the_header_cpp11")] {
        if !has(compiler.0) {
            continue;
        }
        for link in [Link::Static, Link::Shared] {
            let program = compile_by(&compiler, &source, name, link);
            assert!(run_twice(&program, &[]).iter().all(String::is_empty));
        }
    }
}

#[test]
fn the_header_compiles_as_c_and_cpp() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("includes.c");
    let program = "#include <tourbillon.h>\n#include <tourbillon.h>\n\
                   tb_options options = TB_OPTIONS_INIT;\n\
                   const int version = TB_VERSION_MAJOR + TB_VERSION_MINOR + TB_VERSION_PATCH;\n\
                   int main(void) { tb_engine *engine; return tb_engine_create(&options, &engine) == TB_OK ? 0 : version; }\n";
    std::fs::write(&source, program).unwrap();
    for (compiler, arguments) in [
        ("cc", ["-std=c99", "-xc", "-UTB_TSAN"]),
        ("cc", ["-std=c11", "-xc", "-DTB_TSAN"]),
        ("c++", ["-std=c++11", "-xc++", "-DTB_TSAN"]),
        ("c++", ["-std=c++17", "-xc++", "-UTB_TSAN"]),
    ] {
        if !has(compiler) {
            continue;
        }
        let mut command = Command::new(compiler);
        command.args(arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]);
        let output = command.arg("-I").arg(root().join("include")).arg(&source).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

// --- The benchmark ---

/// Returns whether pkg-config finds libuv and libevent. Prints a line if it does not.
fn has_peers() -> bool {
    let found = Command::new("pkg-config").args(["--exists", "libuv", "libevent"]).status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        eprintln!("libuv or libevent is not installed: a test is skipped");
    }
    has
}

/// Runs the benchmark with tiny sizes, so that the benchmark keeps working. For each library, the benchmark checks the
/// effects of its calls.
#[test]
fn the_benchmark_beside_libuv_and_libevent_runs() {
    if !has("cc") || !has_peers() {
        return;
    }
    let mut pkg_config = Command::new("pkg-config");
    let flags = run(pkg_config.args(["--cflags", "--libs", "libuv", "libevent"])).stdout;
    let flags = String::from_utf8(flags).unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-o"]);
    command.arg(&program).arg(root().join("benches/peers.c")).arg("-I").arg(root().join("include"));
    command.arg(libraries().join("libtourbillon_c.a")).args(flags.split_whitespace());
    run(command.args(["-lpthread", "-ldl", "-lm"]));
    let output = run_once(&program, &[OsStr::new("quick")]);
    let rows =
        [("arm ", 5), ("arm100k", 5), ("shot", 5), ("among", 4), ("refresh", 5), ("turn", 1), ("expiry", 20)];
    for (row, expected) in rows {
        let count = output.lines().filter(|line| line.starts_with(row)).count();
        assert_eq!(count, expected, "{row}: {output}");
    }
}

// --- The examples ---

/// An example server that is running. Dropping this value ends the server.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(mut command: Command, idle: Duration, last: usize) -> Self {
        command.args(["0".to_owned(), idle.as_millis().to_string(), last.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").expect("its address").parse().unwrap();
        Self { child, output, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Waits until the server stops by itself. Returns the server's output after the line with the address.
    fn finish(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {rest}");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `kill` fails if the process has ended already.
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

fn echo(mut stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    let mut echoed = vec![0; bytes.len()];
    stream.read_exact(&mut echoed)?;
    assert!(echoed == bytes);
    Ok(())
}

/// Sends messages to a server for five times its idle timeout. Returns `None` if the server has closed the connection
/// because this thread slept too long.
fn talk(server: &Server, idle: Duration) -> Option<(TcpStream, Instant)> {
    let stream = server.connect();
    let mut before = Instant::now();
    for _ in 0..25 {
        thread::sleep(idle / 5);
        let last = std::mem::replace(&mut before, Instant::now());
        if let Err(error) = echo(&stream, b"seventeen") {
            assert!(last.elapsed() >= idle, "closed after {:?}: {error}", last.elapsed());
            return None;
        }
    }
    Some((stream, before))
}

fn await_end(mut stream: &TcpStream) {
    // Unlike `read`, `read_exact` goes on after a signal.
    let end = stream.read_exact(&mut [0]).expect_err("the server sends nothing more").kind();
    assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end:?}");
}

fn serve_and_close(command: Command, idle: Duration) -> String {
    const IDLE: usize = 30;
    let server = Server::start(command, idle, IDLE + 3);
    let (was_echoed, talked) = thread::scope(|scope| {
        for _ in 0..IDLE {
            scope.spawn(|| {
                let before = Instant::now();
                await_end(&server.connect());
                assert!(before.elapsed() >= idle, "closed early");
            });
        }
        // This client sends more bytes than the server's buffer holds.
        let shout = scope.spawn(|| {
            let (stream, before) = (server.connect(), Instant::now());
            let bytes: Vec<u8> = (0..200_000_u32).map(|i| i.to_le_bytes()[0]).collect();
            let echoed = bytes.chunks(50_000).try_for_each(|piece| echo(&stream, piece));
            assert!(echoed.is_ok() || before.elapsed() >= idle, "closed early: {echoed:?}");
            echoed.is_ok()
        });
        let talked = talk(&server, idle);
        (shout.join().unwrap(), talked)
    });
    let was_kept = was_echoed && talked.is_some();
    if let Some((stream, before)) = talked {
        await_end(&stream);
        assert!(before.elapsed() >= idle, "closed early");
    }
    drop(server.connect());
    let summary = server.finish();
    assert!(summary.contains("accepted 33,") && summary.ends_with("timers alive 0\n"), "{summary}");
    if was_kept {
        assert!(summary.contains("echoed bytes 200225, closed idle 31, closed by peer 2,"), "{summary}");
    } else {
        eprintln!("this machine was too busy to show that an active connection is kept");
    }
    summary
}

fn example() -> PathBuf {
    compile(&root().join("examples/echo_server.c"), "echo_server", Link::Static)
}

/// Verifies from the server's summary that each of its two loops served a part of the connections. The first loop has
/// accepted all connections.
fn assert_shared(summary: &str) {
    assert!(summary.starts_with("loop 0 served 17\nloop 1 served 16\n"), "{summary}");
}

#[test]
fn the_server_with_loops_closes_idle_connections_and_no_other() {
    if has("cc") {
        let program = compile(&root().join("examples/loops_server.c"), "loops_server", Link::Static);
        assert_shared(&serve_and_close(Command::new(program), Duration::from_millis(500)));
    }
}

#[test]
fn the_server_with_loops_is_clean_under_valgrind() {
    if has("cc") && has("valgrind") {
        let program = compile(&root().join("examples/loops_server.c"), "loops_server_valgrind", Link::Shared);
        assert_shared(&serve_and_close(under_valgrind(&program), Duration::from_millis(1_500)));
    }
}

#[test]
fn the_echo_server_closes_idle_connections_and_no_other() {
    if has("cc") {
        serve_and_close(Command::new(example()), Duration::from_millis(500));
    }
}

#[test]
fn the_echo_server_is_clean_under_valgrind() {
    if has("cc") && has("valgrind") {
        let program = compile(&root().join("examples/echo_server.c"), "echo_server_valgrind", Link::Shared);
        serve_and_close(under_valgrind(&program), Duration::from_millis(1_500));
    }
}

/// A signal ends each server, also a server whose next poll would wait without end.
#[test]
fn the_servers_end_at_a_signal() {
    if !has("cc") {
        return;
    }
    for name in ["echo_server", "loops_server"] {
        let source = root().join("examples").join(name).with_extension("c");
        let program = compile(&source, &format!("{name}_signals"), Link::Static);
        for signal in ["-INT", "-TERM"] {
            let server = Server::start(Command::new(&program), Duration::from_secs(60), 0);
            run(Command::new("kill").arg(signal).arg(server.child.id().to_string()));
            assert!(server.finish().ends_with("timers alive 0\n"), "{name}, {signal}");
        }
    }
}

#[test]
fn the_echo_server_rejects_a_port_that_is_taken() {
    if has("cc") {
        let server = Server::start(Command::new(example()), Duration::from_secs(60), 1);
        let port = server.address.port().to_string();
        let output =
            Command::new(compile(&root().join("examples/echo_server.c"), "echo_server_2", Link::Static))
                .args([OsStr::new(&port)])
                .output()
                .unwrap();
        assert!(!output.status.success());
        drop(server.connect());
        server.finish();
    }
}
