//! Contestants in other languages: programs in Java, Go and C that use the same protocol. They take part if the machine
//! has the tools to build them.

use crate::contestants::{Clock, Reads};
use crate::results::LEFT_OUT;
use crate::scale::Scale;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// A benchmark program in another language that takes part as a contestant.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The text by which the program itself names the contestant.
    pub(crate) contestant: &'static str,
    pub(crate) reads: Reads,
    pub(crate) is_ours: bool,
    built: &'static LazyLock<Built>,
}

/// The command that starts a foreign program, or the reason why the program cannot be built here.
type Built = Result<Start, String>;

#[derive(Debug)]
struct Start {
    program: PathBuf,
    flags: Vec<OsString>,
    /// The flags for a quick run, whose figures mean little.
    quick_flags: Vec<OsString>,
    /// The flags for a smoke run, whose figures mean nothing.
    hasty_flags: Vec<OsString>,
    arguments: Vec<OsString>,
    /// The versions of the program's language and of the contestant.
    versions: BTreeMap<String, String>,
}

impl Start {
    /// Makes a program without flags.
    fn of(program: PathBuf, versions: BTreeMap<String, String>) -> Self {
        let none = Vec::new;
        Self { program, flags: none(), quick_flags: none(), hasty_flags: none(), arguments: none(), versions }
    }
}

/// All foreign programs except the event loops in C.
pub(crate) static PROGRAMS: [Program; 3] = [
    Program::peer("Netty, HashedWheelTimer", "netty", Reads::EachArm(Clock::Java), &JAVA),
    Program::peer("JDK, ScheduledThreadPoolExecutor", "jdk", Reads::EachArm(Clock::Java), &JAVA),
    Program::peer("Go, runtime timers", "go", Reads::EachArm(Clock::Go), &GO),
];

/// The event loops in C, which take part only in the workload `loops`.
pub(crate) static LOOPS: [Program; 4] = [
    Program {
        is_ours: true,
        ..Program::peer("engine, tb_loop", "loop", Reads::EachIteration(Clock::Tsc), &C)
    },
    Program::peer("libuv", "libuv", Reads::EachIteration(Clock::Loop), &C),
    Program::peer("libevent", "libevent", Reads::EachIteration(Clock::Loop), &C),
    Program::peer("libevent, common timeout", "common", Reads::EachIteration(Clock::Loop), &C),
];

// A program is built when it is first needed. That is before a turn, not during it.
static JAVA: LazyLock<Built> = LazyLock::new(build_java);
static GO: LazyLock<Built> = LazyLock::new(build_go);
static C: LazyLock<Built> = LazyLock::new(build_c);

/// Returns the versions of all programs that can be built here. A program that cannot be built has a line with the
/// reason.
pub(crate) fn versions() -> BTreeMap<String, String> {
    let versions = |(language, built): (&str, &LazyLock<Built>)| match &**built {
        Ok(start) => start.versions.clone(),
        Err(why) => BTreeMap::from([(language.to_owned(), format!("{LEFT_OUT}: {why}"))]),
    };
    [("Java", &JAVA), ("Go", &GO), ("libuv and libevent", &C)].into_iter().flat_map(versions).collect()
}

impl Program {
    const fn peer(
        name: &'static str,
        contestant: &'static str,
        reads: Reads,
        built: &'static LazyLock<Built>,
    ) -> Self {
        Self { name, contestant, reads, is_ours: false, built }
    }

    /// Returns the command that starts the program. If the program cannot start here, returns the reason.
    pub(crate) fn command(&self, scale: Scale) -> Result<Command, String> {
        let start = self.built.as_ref().map_err(Clone::clone)?;
        let mut command = Command::new(&start.program);
        command.args(scale.pick(&start.flags, &start.quick_flags, &start.hasty_flags)).args(&start.arguments);
        Ok(command)
    }
}

/// The folder in which Debian keeps the jars of Netty.
const JARS: &str = "/usr/share/java";
/// The environment variable with a class path of Netty's jars. It overrides Debian's folder.
const NETTY_CLASS_PATH: &str = "NETTY_CLASS_PATH";

fn build_java() -> Built {
    let source = source("java");
    let netty = netty()?;
    let classes = made("java")?;
    let files = fs::read_dir(&source).map_err(|error| error.to_string())?;
    let files = files.flatten().map(|file| file.path());
    let mut compiler = Command::new("javac");
    compiler.arg("-cp").arg(&netty).arg("-d").arg(&classes);
    compiler.args(files.filter(|file| file.extension().is_some_and(|extension| extension == "java")));
    output(&mut compiler)?;
    let flags = fs::read_to_string(source.join("flags")).map_err(|error| error.to_string())?;
    let mut class_path = classes.into_os_string();
    class_path.push(":");
    class_path.push(&netty);
    let words = |flags: &str| flags.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let arguments = vec!["-cp".into(), class_path, "Turn".into()];
    let netty = netty.to_string_lossy().split(':').map(version_of_jar).collect::<Vec<_>>().join(", ");
    let versions = BTreeMap::from([("Java".to_owned(), java_version()?), ("Netty".to_owned(), netty)]);
    Ok(Start {
        program: "java".into(),
        flags: words(&flags),
        quick_flags: words("-DwarmUpMillis=200 -Xms1g -XX:+UseParallelGC"),
        hasty_flags: words("-DwarmUpMillis=0 -XX:TieredStopAtLevel=1"),
        arguments,
        versions,
    })
}

/// Returns the version of the Java virtual machine that runs the measurements. The compiler may have another version.
fn java_version() -> Result<String, String> {
    let version = output(Command::new("java").arg("--version"))?;
    Ok(version.lines().next().unwrap_or_default().to_owned())
}

fn netty() -> Result<OsString, String> {
    if let Some(class_path) = std::env::var_os(NETTY_CLASS_PATH) {
        return Ok(class_path);
    }
    let files = fs::read_dir(JARS).map_err(|_| "no Netty here".to_owned())?;
    let is_versioned = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("netty-common-")
            .is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
    };
    let jar = files.flatten().map(|file| file.path()).filter(is_versioned).max();
    jar.map(PathBuf::into_os_string).ok_or_else(|| "no Netty here".to_owned())
}

/// Returns the file name of the jar `path`. The name contains the version.
fn version_of_jar(path: &str) -> String {
    Path::new(path).file_stem().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

fn build_go() -> Built {
    let program = made("go")?.join("timers");
    output(Command::new("go").arg("build").arg("-o").arg(&program).current_dir(source("go")))?;
    let version = output(Command::new("go").arg("version"))?;
    Ok(Start::of(program, BTreeMap::from([("Go".to_owned(), version)])))
}

/// The libraries of event loops, as pkg-config calls them.
const LOOP_LIBRARIES: [&str; 2] = ["libuv", "libevent"];
/// The source of the event loops in C, and the libraries that the static library of our C interface needs.
const LOOP_SOURCE: &str = "crates/c/benches/peers.c";
const SYSTEM_LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// Builds the program in the C interface's package that measures event loops. The main workspace contains the package.
fn build_c() -> Built {
    let version = |library: &&str| {
        let version = output(Command::new("pkg-config").args(["--modversion", library]))?;
        Ok::<_, String>(((*library).to_owned(), version))
    };
    let versions = LOOP_LIBRARIES.iter().map(version).collect::<Result<_, _>>()?;
    let flags = output(Command::new("pkg-config").args(["--cflags", "--libs"]).args(LOOP_LIBRARIES))?;
    output(Command::new("cc").arg("--version"))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "-p", "tourbillon-c", "--target-dir"]).arg(&target);
    output(cargo.current_dir(&root))?;
    let folder = made("c")?;
    let program = folder.join("loops");
    // Another process may run or build the program at the same time. So the new program replaces the old program in one
    // step.
    let draft = folder.join(format!("loops-{}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-o").arg(&draft).arg(root.join(LOOP_SOURCE));
    compiler.arg("-I").arg(root.join("crates/c/include")).arg(target.join("release/libtourbillon_c.a"));
    output(compiler.args(flags.split_whitespace()).args(SYSTEM_LIBRARIES))?;
    fs::rename(&draft, &program).map_err(|error| error.to_string())?;
    Ok(Start::of(program, versions))
}

fn source(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign").join(language)
}

/// Returns a folder for the files built from `language`, beside this program. Makes the folder if needed.
fn made(language: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.with_file_name(format!("foreign-{language}"));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}

/// Runs a command, and returns its output if it succeeds.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|_| format!("no {program} here"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
