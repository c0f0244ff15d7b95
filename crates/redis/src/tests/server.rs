//! A server of a test's own, in a temporary folder on a free port.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time within which a server starts, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Server {
    folder: TempDir,
    port: u16,
    arguments: Vec<&'static str>,
    child: Child,
}

/// A server with these arguments. `None` if there is none on this machine; then the test says that it was skipped.
pub(super) fn start(arguments: &[&'static str]) -> Option<Server> {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no redis-server on this machine");
        return None;
    }
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(&folder, port, arguments);
        let mut server = Server { folder, port, arguments: arguments.to_vec(), child };
        // Somebody else may have taken the port meanwhile: then the server ends at once.
        if server.is_up() {
            return Some(server);
        }
    }
    panic!("no server starts");
}

fn spawn(folder: &TempDir, port: u16, arguments: &[&'static str]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .arg("--dir")
        .arg(folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Server {
    fn is_up(&mut self) -> bool {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not start");
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server by SIGKILL, and starts it again in its folder.
    pub(super) fn kill_and_start_again(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let begin = Instant::now();
        loop {
            self.child = spawn(&self.folder, self.port, &self.arguments);
            if self.is_up() {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "the port is somebody else's");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
