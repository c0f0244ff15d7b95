//! The programs that the load calls: the service, and an HTTP server that stores nothing.

use crate::ours::Failure;
use bytes::Bytes;
use core::convert::Infallible;
use core::net::SocketAddr;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, thread};
use tokio::net::TcpListener;

/// The program name that makes this program run as the service, with the service's flags.
pub(crate) const NAME: &str = "tourbillond";

/// The largest number of callbacks to one host at a time, a setting of the service.
pub(super) const AT_ONCE: usize = 200;

/// A running program that listens on a port. Dropping the value ends the program.
pub(super) struct Program {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Program {
    /// Starts the service with its files in the folder `data`, or with its timers in a schema of the PostgreSQL
    /// database at `url`, which has the folder's name after `part_`. The settings allow callbacks to this machine, many
    /// callbacks at a time to one host, and more creations a second than the load can make. All other settings have
    /// their defaults.
    pub(super) fn service(data: &Path, url: Option<&str>) -> Result<Self, Failure> {
        let mut command = Command::new(env::current_exe()?);
        command.arg0(NAME).arg("--data").arg(data).args(["--listen", "127.0.0.1:0"]);
        command.args(["--callbacks-allow-http", "--callbacks-allow-private"]);
        command.args(["--limits-creations", "1000000"]);
        let at_once = AT_ONCE.to_string();
        command.args(["--deliveries-host-concurrency", &at_once]);
        command.args(["--deliveries-prompt-host-concurrency", &at_once]);
        if let Some(url) = url {
            let name = data.file_name().ok_or("the folder of the data has no name")?;
            let schema = format!("part_{}", name.to_string_lossy());
            command.args(["--postgres-server", url, "--postgres-schema", &schema]);
        }
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOURBILLON_"))
        {
            command.env_remove(name);
        }
        // The service runs in another folder, since a settings file in the present folder is not for this service.
        let folder = data.parent().ok_or("the folder of the data has no parent")?;
        Self::start(command.current_dir(folder))
    }

    /// Starts a server that stores nothing. The server reads each request and answers as the service answers a
    /// creation.
    pub(super) fn floor() -> Result<Self, Failure> {
        Self::start(Command::new(env::current_exe()?).arg("floor"))
    }

    fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut log = BufReader::new(child.stderr.take().ok_or("no log")?).lines();
        let mut last = String::new();
        let address = log.by_ref().map_while(Result::ok).find_map(|line| {
            let address =
                line.split_once("listening on http://").and_then(|(_, address)| address.parse().ok());
            last = line;
            address
        });
        // The rest of the log is read, so that a full pipe does not block the program.
        drop(thread::spawn(move || log.for_each(drop)));
        let Some(address) = address else {
            let _has_ended = child.kill();
            return Err(format!("{}: {last}", child.wait()?).into());
        };
        Ok(Self { child, address })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    const PLACED: &[u8] =
        br#"{"id":"01935560-1c40-7a5e-8b6c-2f9a3d1e4b70","key":"t000000000000001","outcome":"created"}"#;
    let _body = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(PLACED)));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// Runs an HTTP server that stores nothing, until the process is killed.
pub(crate) fn floor() -> Result<(), Failure> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        eprintln!("floor: listening on http://{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            drop(tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer)),
            ));
        }
    })
}
