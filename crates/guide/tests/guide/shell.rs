//! Runs the blocks of a page in a shell, one after another, and programs in the background.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that a command may take. Even a busy machine needs less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a folder inside `folder` with the programs that the pages of the guide call. Returns the path of the new
/// folder.
pub(crate) fn programs(folder: &Path) -> PathBuf {
    let programs = folder.join("programs");
    std::fs::create_dir(&programs).unwrap();
    for name in ["tourbillond", "tourbillon"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tourbillon-guide"), programs.join(name)).unwrap();
    }
    let receiver = env!("CARGO_BIN_EXE_guide-receiver");
    std::os::unix::fs::symlink(receiver, programs.join("guide-receiver")).unwrap();
    programs
}

/// Returns whether a program's output has the parts of the text `shown`, in their order. The parts are separated by
/// `...` or a line's end.
pub(crate) fn shows(output: &str, shown: &str) -> bool {
    let mut rest = output;
    for part in shown.split("...").flat_map(str::lines).map(str::trim).filter(|part| !part.is_empty()) {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// Waits until `condition` returns true. Returns false if the condition stays false for a minute.
pub(crate) fn wait(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Returns a command that starts a shell in `folder`. The shell finds the programs of the guide's pages, and does not
/// have the service's environment variables of the machine.
fn bash(folder: &Path, programs: &Path) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.to_string_lossy().starts_with("TOURBILLON_")) {
        command.env_remove(name);
    }
    command
        .env_remove("NOTIFY_SOCKET")
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", folder)
        .env("PATH", format!("{}:{path}", programs.display()))
        // Port 0 lets the system choose a port, since the service's usual port may be taken.
        .env("TOURBILLON_LISTEN", "127.0.0.1:0")
        .current_dir(folder);
    command
}

/// A running shell for the commands of a page. Dropping the value kills the shell.
pub(crate) struct Shell {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    output: PathBuf,
}

/// A shell function in the place of `curl`. If the server answers with an error, the function prints the answer's body
/// and fails.
const CURL: &str =
    "curl() { command curl --silent --show-error --fail-with-body --max-time 60 \"$@\"; echo; }\n";

impl Shell {
    pub(crate) fn start(folder: &Path, programs: &Path) -> Self {
        let mut child =
            bash(folder, programs).arg("-s").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, answers) = channel();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut commands = child.stdin.take().unwrap();
        commands.write_all(format!("set -o pipefail\n{CURL}").as_bytes()).unwrap();
        Self { child, commands, answers, output: folder.join("programs/output") }
    }

    /// Runs commands in the shell. Returns their standard output and error output together. Fails if any command fails.
    pub(crate) fn run(&mut self, commands: &str) -> Result<String, String> {
        let script = format!(
            "set -e\n{{\n:\n{commands}\n}} < /dev/null > {} 2>&1\nset +e\necho done\n",
            self.output.display()
        );
        let sent = self.commands.write_all(script.as_bytes());
        let ended = self.answers.recv_timeout(PATIENCE);
        let output = std::fs::read_to_string(&self.output).unwrap_or_default();
        match (sent, ended.as_deref()) {
            (Ok(()), Ok("done")) => Ok(output),
            other => Err(format!("{other:?}: {output}")),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A program that runs in the background. Dropping the value kills the program.
pub(crate) struct Background {
    child: Child,
    output: PathBuf,
    /// The address at which the program listens.
    pub(crate) address: String,
}

impl Background {
    /// Starts a program by a command. Waits until the program's output says at which address it listens.
    pub(crate) fn start(folder: &Path, programs: &Path, command: &str) -> Self {
        let output = programs.join(format!("{}.output", name_of(command)));
        let file = File::create(&output).unwrap();
        let child = bash(folder, programs)
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut started = Self { child, output, address: String::new() };
        let is_up = wait(|| {
            let output = started.output();
            let line = output.lines().find_map(|line| line.split_once("listening on ")).map(|(_, rest)| rest);
            let address = line.and_then(|rest| rest.rsplit('/').next()).map(str::trim);
            started.address = address.unwrap_or_default().to_owned();
            address.is_some() || started.child.try_wait().unwrap().is_some()
        });
        assert!(is_up && !started.address.is_empty(), "{command} does not listen: {}", started.output());
        started
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Returns the name of the program that a command runs: the command's first word.
pub(crate) fn name_of(command: &str) -> &str {
    command.split_whitespace().next().unwrap_or_default()
}

#[test]
fn an_output_that_a_page_shows_otherwise_is_found() {
    assert!(shows("a 1 b\n c 2", "a ... b\nc"));
    assert!(!shows("c 2\na 1 b", "a ... b\nc"));
    assert!(!shows("a 1", "a 2"));
}

#[test]
fn a_command_that_fails_is_found() {
    if !crate::is_installed("bash") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let programs = programs(folder.path());
    let mut shell = Shell::start(folder.path(), &programs);
    assert_eq!(shell.run("kept=1"), Ok(String::new()));
    assert_eq!(shell.run("echo $kept"), Ok("1\n".to_owned()));
    shell.run("echo seen; false; echo not seen").unwrap_err();
}
