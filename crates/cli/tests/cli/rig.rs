//! Provides a service on a port of its own, and runs of the program.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::Value;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tourbillon_server::{Service, Settings, router};

/// The output and the exit code of the program after a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// Returns the text that the program printed. Fails the test unless the program succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.code == 0 && self.err.is_empty(), "{self:?}");
        self.out
    }

    /// Parses the program's output as a JSON value. Fails the test unless the program succeeded.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Parses each line of the program's output as a JSON value. Fails the test unless the program succeeded.
    #[track_caller]
    pub(crate) fn lines(self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Returns a command that runs the program under test. The program sees none of the environment variables of the test.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
    command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs the program under test against the service at `url`.
pub(crate) async fn run_at(url: &str, arguments: &[&str]) -> Run {
    program(arguments).env("TOURBILLON_URL", url).output().await.unwrap().into()
}

/// A service for a test, at a port of its own. Dropping the value ends the service and removes its files.
pub(crate) struct Rig {
    pub(crate) url: String,
    service: Service,
    #[expect(dead_code, reason = "the folder is removed when the rig is dropped")]
    folder: TempDir,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(folder.path());
        settings.rules.allow_http = true;
        settings.caller.guard.allowed = vec!["127.0.0.0/8".parse().unwrap()];
        let service = Service::open(settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = router(service.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, service, folder }
    }

    /// Runs the program under test against this service.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Run {
        run_at(&self.url, arguments).await
    }

    /// Runs the program under test against this service. `input` is the program's standard input.
    pub(crate) async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = program(arguments);
        command.env("TOURBILLON_URL", &self.url).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input).await.unwrap();
        drop(stdin);
        child.wait_with_output().await.unwrap().into()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let service = self.service.clone();
        // Closing the service blocks, and a thread of the runtime must not block.
        std::thread::spawn(move || service.close(Duration::ZERO)).join().unwrap();
    }
}

/// A request that a fake service has received.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// A fake service that gives the same answer to every request. The service records the requests.
pub(crate) struct Fake {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    pub(crate) async fn start(status: u16, answer: Value) -> Self {
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let log = Arc::clone(&requests);
        let app = axum::Router::new().fallback(
            async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let body = serde_json::from_slice(&body).unwrap_or_default();
                log.lock().unwrap().push(Request { line: format!("{method} {uri}"), headers, body });
                (StatusCode::from_u16(status).unwrap(), axum::Json(answer))
            },
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, requests }
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Run {
        run_at(&self.url, arguments).await
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}
