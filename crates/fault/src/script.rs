//! Programs in Python and Node.js, whose libraries come from the registries of these languages.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A program in Python or Node.js, in a temporary folder with its libraries.
///
/// If the language or the network is missing, or `TOURBILLON_NO_REGISTRIES` is set, a constructor writes a line to
/// standard error and returns `None`.
#[derive(Debug)]
pub struct Script {
    interpreter: PathBuf,
    program: PathBuf,
    _folder: TempDir,
}

impl Script {
    /// Makes a program in Python from the script at the path `program`, and fetches its library. `library` is a
    /// requirement of pip.
    #[must_use]
    pub fn python(program: &Path, library: &str) -> Option<Self> {
        let folder = folder("Python")?;
        let interpreter = folder.path().join("bin/python");
        let make = Command::new("python3").args(["-m", "venv"]).arg(folder.path()).output();
        if !make.is_ok_and(|made| made.status.success()) {
            return skipped("Python", "there is no python3 with venv and pip");
        }
        let mut install = Command::new(&interpreter);
        install.args(["-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20"]);
        install.args(["--only-binary", ":all:", library]);
        if !fetches(&mut install) {
            return skipped("Python", "its library cannot be fetched");
        }
        Some(Self { interpreter, program: program.to_owned(), _folder: folder })
    }

    /// Makes a program in Node.js from the script at the path `program`, and fetches its library. `library` is a
    /// package of npm.
    #[must_use]
    pub fn node(program: &Path, library: &str) -> Option<Self> {
        let folder = folder("Node.js")?;
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
        install.args(["--fetch-retries", "1", "--prefix"]).arg(folder.path()).arg(library);
        if !fetches(&mut install) {
            return skipped("Node.js", "there is no npm, or its library cannot be fetched");
        }
        // Node.js looks for libraries beside the program.
        let copy = folder.path().join(program.file_name().expect("a program has a name"));
        std::fs::copy(program, &copy).expect("the program is copied");
        Some(Self { interpreter: "node".into(), program: copy, _folder: folder })
    }

    /// Runs the program, and returns its standard output without the end of the last line. Panics if the program fails.
    #[track_caller]
    pub fn output<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let mut command = Command::new(&self.interpreter);
        let ran = command.arg(&self.program).args(arguments).stdin(Stdio::null()).output();
        let ran = ran.expect("the interpreter runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("the output is text").trim_end().to_owned()
    }
}

/// Returns a temporary folder for a script and its libraries. If `TOURBILLON_NO_REGISTRIES` forbids fetching libraries
/// from registries, writes a line to standard error and returns `None`.
fn folder(language: &str) -> Option<TempDir> {
    if std::env::var_os("TOURBILLON_NO_REGISTRIES").is_some() {
        return skipped(language, "TOURBILLON_NO_REGISTRIES is set");
    }
    Some(tempfile::tempdir().expect("a temporary folder"))
}

/// Writes to standard error that an example is skipped, and returns `None`. The line is visible even if the test
/// harness captures the output of tests.
fn skipped<T>(language: &str, reason: &str) -> Option<T> {
    drop(writeln!(std::io::stderr(), "skipped the example in {language}: {reason}"));
    None
}

/// Runs a command that fetches libraries. Returns whether it has succeeded.
fn fetches(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
