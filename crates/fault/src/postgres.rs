//! Starts a PostgreSQL server and controls its process.

#[cfg(feature = "tls")]
use crate::authority::Issued;
use crate::ports::free_port;
use crate::skip::tell_skipped;
use crate::wait::eventually;
use rustix::process::{Pid, Signal, getuid, kill_process};
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Once, OnceLock};
use tempfile::TempDir;

/// A PostgreSQL server for a test, with a database in a temporary folder. Dropping the value ends the server.
///
/// PostgreSQL refuses to run as root. If this process runs as root, the server runs as the user `postgres`.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    /// The folder of the write-ahead log, if it is not in the folder of the data.
    log: Option<TempDir>,
    programs: PathBuf,
    port: u16,
    arguments: Vec<String>,
    user: Option<(u32, u32)>,
    child: Option<Child>,
}

/// Returns the folder of the server's programs. The variable `TOURBILLON_POSTGRES` names the folder. Without the
/// variable, prefers the newest version in the folders of Debian.
fn programs() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("TOURBILLON_POSTGRES") {
        return Some(folder.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs.join("initdb").exists().then_some((version, programs))
        })
        .collect();
    found.sort();
    let in_path = || {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).find(|folder| folder.join("initdb").exists())
    };
    found.pop().map(|(_, programs)| programs).or_else(in_path)
}

/// Returns the ids of the user `postgres` and of its group, if this process runs as root.
pub(crate) fn other_user() -> Option<(u32, u32)> {
    if !getuid().is_root() {
        return None;
    }
    static FOUND: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    let number = |flag: &str| {
        let answer = Command::new("id").args([flag, "postgres"]).output().ok()?;
        String::from_utf8(answer.stdout).ok()?.trim().parse().ok()
    };
    *FOUND.get_or_init(|| Some((number("-u")?, number("-g")?)))
}

/// Returns the folder of the server's programs; `None` if tests may not start servers. In that case, the first call
/// writes a line to standard error that says which tests are skipped. The line bypasses the tests' captured output.
fn installed() -> Option<PathBuf> {
    static TOLD: Once = Once::new();
    let reason = if std::env::var_os("TOURBILLON_NO_POSTGRES").is_some() {
        "TOURBILLON_NO_POSTGRES is set"
    } else if let Some(programs) = programs() {
        if !getuid().is_root() || other_user().is_some() {
            return Some(programs);
        }
        "there is no user postgres"
    } else {
        "there is no PostgreSQL (apt-get install postgresql)"
    };
    tell_skipped(&TOLD, "a PostgreSQL server", reason);
    None
}

impl Postgres {
    /// Returns whether tests may start servers. If they may not, the first call says so on standard error.
    #[must_use]
    pub fn is_installed() -> bool {
        installed().is_some()
    }

    /// Starts a server with the given settings, such as `["fsync=on"]`. By default, the server does not sync its files.
    /// Returns `None` if PostgreSQL is not installed.
    #[must_use]
    pub fn start(settings: &[&str]) -> Option<Self> {
        let programs = installed()?;
        Some(Self::launch(programs, tempfile::tempdir().expect("a temporary folder"), None, settings))
    }

    /// Works as [`start`](Self::start), with the server's tables on the disk of the folder `disk`, so that a test can
    /// fill this disk. The write-ahead log is on another disk, since the server would end if the disk of the log were
    /// full.
    #[must_use]
    pub fn start_on(disk: &Path, settings: &[&str]) -> Option<Self> {
        let programs = installed()?;
        let folder = tempfile::tempdir_in(disk).expect("a temporary folder");
        Some(Self::launch(programs, folder, tempfile::tempdir().ok(), settings))
    }

    fn launch(programs: PathBuf, folder: TempDir, log: Option<TempDir>, settings: &[&str]) -> Self {
        let user = other_user();
        if let Some((user, group)) = user {
            for path in log.iter().map(TempDir::path).chain([folder.path()]) {
                chown(path, Some(user), Some(group)).expect("the folder is this process's");
            }
        }
        let arguments = ["fsync=off", "max_connections=200"].into_iter().chain(settings.iter().copied());
        let arguments = arguments.map(str::to_owned).collect();
        let mut server = Self { folder, log, programs, port: free_port(), arguments, user, child: None };
        // A log on another disk is not part of the copied files.
        let template = if server.log.is_none() { server.template() } else { None };
        match template {
            Some(template) => server.copy(&template),
            None => server.make(&server.data()),
        }
        server.run();
        server
    }

    /// Makes the files of a new server in a folder.
    fn make(&self, data: &Path) {
        let mut make = self.program("initdb");
        make.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"]);
        make.arg("--pgdata").arg(data);
        if let Some(log) = &self.log {
            make.arg("--waldir").arg(log.path().join("wal"));
        }
        let made = make.output().expect("initdb starts");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Removes the databases from which a server makes further databases. No test makes a database, and these two
    /// have two thirds of a new server's files. Many file systems take half a millisecond to create a file.
    fn strip(&self, data: &Path) {
        let mut server = self.program("postgres");
        server.args(["--single", "-D"]).arg(data).arg("postgres");
        let mut server = server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = server.as_mut().expect("postgres starts");
        let statements = "UPDATE pg_database SET datistemplate = false;\nDROP DATABASE template0;\nDROP DATABASE \
            template1;\n";
        server.stdin.take().expect("a pipe").write_all(statements.as_bytes()).expect("postgres reads");
        let ended = server.wait().expect("a child");
        assert!(ended.success() && !data.join("base/1").exists(), "the databases are removed");
    }

    /// Returns the folder with the files of a new server. Each start of a server copies these files, because a copy
    /// takes hardly any processor time, and initdb takes a second. The first call makes the files. Returns `None` if a
    /// file of another user has the folder's name.
    fn template(&self) -> Option<PathBuf> {
        let owner = self.user.map_or_else(|| getuid().as_raw(), |(user, _)| user);
        // The time at which the program was last changed stands for the version of PostgreSQL.
        let version = fs::metadata(self.programs.join("initdb")).ok()?.mtime();
        let template = std::env::temp_dir().join(format!("tourbillon-postgres-{version}-{owner}"));
        if !template.exists() {
            let made = self.folder.path().join("template");
            self.make(&made);
            self.strip(&made);
            // Fails if another test has made the folder first. Then this test uses that folder.
            let _renamed = fs::rename(&made, &template);
        }
        fs::metadata(&template).is_ok_and(|found| found.is_dir() && found.uid() == owner).then_some(template)
    }

    /// Copies the files of a new server from `template`.
    fn copy(&self, template: &Path) {
        let mut copy = Command::new("cp");
        if let Some((user, group)) = self.user {
            copy.uid(user).gid(group);
        }
        let copied = copy.arg("-a").arg(template).arg(self.data()).output().expect("cp starts");
        assert!(copied.status.success(), "cp: {}", String::from_utf8_lossy(&copied.stderr));
    }

    /// Makes the server accept TLS with the certificate `own`, and starts the server again. `authority` is the
    /// certificate of the authority that issues the certificates of users. The first line of `pg_hba.conf` lets the
    /// user `postgres` connect without TLS, so that tests can run their own statements. `rules` are the further lines.
    #[cfg(feature = "tls")]
    pub fn secure(&mut self, own: &Issued, authority: &str, rules: &str) {
        self.put("pg_hba.conf", &format!("host all postgres 127.0.0.1/32 trust\n{rules}"));
        self.put("users.crt", authority);
        for setting in ["ssl = on", "ssl_ca_file = 'users.crt'"] {
            let _set = self.sql(&format!("ALTER SYSTEM SET {setting}"));
        }
        self.present(own);
    }

    /// Replaces the certificate that the server presents to TLS clients by `own`, and starts the server again.
    #[cfg(feature = "tls")]
    pub fn present(&mut self, own: &Issued) {
        self.put("server.crt", &own.certificate);
        self.put("server.key", &own.key);
        self.shut_down();
        self.run();
    }

    /// Writes a file into the folder of the data. Only the server's user may read the file.
    pub fn put(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        let owner = fs::metadata(self.data()).expect("a folder");
        fs::write(&path, text).expect("a new file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file of this process");
        chown(&path, Some(owner.uid()), Some(owner.gid())).expect("a file of this process");
    }

    /// Starts a replica of this server. The replica accepts no writes before it is [promoted](Self::promote).
    ///
    /// # Panics
    ///
    /// If the copy of the data fails.
    #[must_use]
    pub fn replica(&self) -> Self {
        self.replica_at(free_port())
    }

    /// Works as [`replica`](Self::replica), with a replica that listens at `port`.
    #[must_use]
    pub fn replica_at(&self, port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        if let Some((user, group)) = self.user {
            chown(folder.path(), Some(user), Some(group)).expect("the folder is this process's");
        }
        let (programs, arguments) = (self.programs.clone(), self.arguments.clone());
        let mut replica = Self { folder, log: None, programs, port, arguments, user: self.user, child: None };
        let copied = replica
            .program("pg_basebackup")
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname"])
            .arg(self.url())
            .arg("--pgdata")
            .arg(replica.data())
            .output()
            .expect("pg_basebackup starts");
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        replica.run();
        replica
    }

    /// Promotes a replica, so that it accepts writes.
    ///
    /// # Panics
    ///
    /// If the server is not a replica.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t", "the replica is promoted");
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Starts the server's process, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If the server does not answer within three minutes.
    pub fn run(&mut self) {
        eventually("PostgreSQL answers", || {
            let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|ended| ended.is_some());
            if self.child.as_mut().is_none_or(has_ended) {
                self.child = Some(self.spawn());
            }
            self.is_ready()
        });
    }

    /// Returns whether the server accepts connections, according to its file `postmaster.pid`. A test connection
    /// would cost a process here and another process in the server.
    fn is_ready(&self) -> bool {
        let text = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        // A server that was killed leaves the file.
        let of_this = self.pid().is_some_and(|pid| lines.first() == Some(&&*pid.to_string()));
        of_this && lines.last() == Some(&"ready")
    }

    fn spawn(&self) -> Child {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log"));
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        self.arguments.iter().for_each(|setting| _ = command.args(["-c", setting]));
        command.stdout(Stdio::null()).stderr(log.expect("the log can be written"));
        command.spawn().expect("postgres starts")
    }

    /// Returns the port at which the server listens on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the id of the server's first process. `None` while the server does not run.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the folder with the server's data, its socket and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of the database `postgres` for the superuser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the URL for another user.
    #[must_use]
    pub fn url_of(&self, user: &str) -> String {
        format!("postgresql://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs statements as the user `postgres`. Returns the values of the rows, with `|` between the columns.
    ///
    /// # Panics
    ///
    /// If a statement fails.
    #[must_use]
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql("postgres", statements).expect("the statements succeed")
    }

    /// Runs statements as `user`. Returns the values of the rows, with `|` between the columns.
    ///
    /// # Errors
    ///
    /// Fails with the message of the server.
    ///
    /// # Panics
    ///
    /// If the program `psql` cannot be started.
    pub fn try_sql(&self, user: &str, statements: &str) -> Result<String, String> {
        let answer = self.psql(user).args(["-c", statements]).output().expect("psql starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if answer.status.success() { Ok(text(&answer.stdout)) } else { Err(text(&answer.stderr)) }
    }

    /// Returns a command that runs `psql` on the server as `user`. The command reads statements from its standard
    /// input, unless its arguments contain them.
    #[must_use]
    pub fn psql(&self, user: &str) -> Command {
        let mut command = self.program("psql");
        command.args(["-XqtA", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-d"]);
        command.arg(self.url_of(user));
        command
    }

    /// Kills the server and all its sessions. The effect is that of a power loss, except that everything written to
    /// files is kept.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Ends the server at once, without writing its files. The next start recovers the files from the write-ahead log.
    pub fn stop(&mut self) {
        self.signal(Signal::QUIT);
        self.wait();
    }

    /// Ends the server as `pg_ctl stop --mode=fast` does: open transactions are rolled back, and all files are written.
    pub fn shut_down(&mut self) {
        self.signal(Signal::INT);
        self.wait();
    }

    /// Sends a signal to the server's first process.
    pub fn signal(&self, signal: Signal) {
        self.pid().inspect(|process| send(*process, signal));
    }

    /// Sends a signal to the server's first process, and then to its sessions and its other processes.
    pub fn signal_all(&self, signal: Signal) {
        let Some(first) = self.pid() else { return };
        // A stopped first process starts no others, so the list is complete.
        self.signal(signal);
        let others = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
        others
            .split_whitespace()
            .filter_map(|other| other.parse().ok())
            .for_each(|other| send(other, signal));
    }

    fn wait(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.wait();
        }
    }
}

fn send(process: u32, signal: Signal) {
    // The process may have ended by itself.
    let _sent = Pid::from_raw(process.cast_signed()).map(|process| kill_process(process, signal));
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}
