//! Tests the configurations of proxies in the guide. A real nginx or Caddy runs before a real service. The
//! configuration of Envoy is only parsed.

use crate::clients::timer;
use crate::process::{Daemon, SOON, folder, of_crate, token};
use crate::tls::{certify, connect};
use axum::body::Bytes;
use axum::http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use yaml_rust2::YamlLoader;

/// The service's address on the guide's page about proxies.
const SERVICE: &str = "127.0.0.1:7670";
/// The name by which clients call the service on the guide's page about proxies.
const NAME: &str = "timers.example";

/// Returns the code block of the guide's page about proxies that `info` names: its opening fence contains the word.
/// Fails unless there is exactly one such block.
fn block(info: &str) -> String {
    let page = std::fs::read_to_string(of_crate("../../docs/guide/proxies.md")).unwrap();
    let fence = format!("```{info}\n");
    let mut blocks = page.split(&*fence).skip(1);
    let block = blocks.next().unwrap_or_else(|| panic!("no block {info}"));
    assert!(blocks.next().is_none(), "{info} is there twice");
    block.split("```").next().unwrap().to_owned()
}

/// Returns a port that is free at the moment.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Replaces words in a text from the guide. Each pair has a word and its replacement. Fails if the text lacks a word.
fn with(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, other)| {
        assert!(text.contains(word), "the page has no {word}");
        text.replace(word, other)
    })
}

/// A running proxy in front of the service. Dropping the value kills the proxy.
struct Proxy {
    child: Child,
    address: SocketAddr,
    /// The TLS certificate of the proxy. `None` if clients call the proxy without TLS.
    certificate: Option<CertificateDer<'static>>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Proxy {
    fn start(mut command: Command, port: u16, certificate: Option<CertificateDer<'static>>) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)), certificate }
    }

    /// Starts nginx with a configuration that contains `block`.
    fn nginx(folder: &Path, block: &str, port: u16, certificate: Option<CertificateDer<'static>>) -> Self {
        // As root, nginx would change to another user, who may not write into the folder.
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {kind};"))
            .join(" ");
        let whole = format!(
            "{user} daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}\n\
             http {{ access_log off; {temporary}\n{block}\n}}\n"
        );
        std::fs::write(folder.join("nginx.conf"), whole).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-e", "stderr", "-c", "nginx.conf", "-p"]).arg(folder);
        Self::start(command, port, certificate)
    }

    /// Connects to the proxy. Tries again until the proxy listens.
    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let begun = Instant::now();
        loop {
            if let Some(sender) = self.try_connect().await {
                return sender;
            }
            assert!(begun.elapsed() < SOON, "the proxy does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn try_connect(&self) -> Option<SendRequest<Full<Bytes>>> {
        match &self.certificate {
            None => {
                let stream = TcpStream::connect(self.address).await.ok()?;
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
                tokio::spawn(connection);
                Some(sender)
            }
            Some(certificate) => {
                let stream = connect(self.address, certificate, "http/1.1").await.ok()?;
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
                tokio::spawn(connection);
                Some(sender)
            }
        }
    }

    fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Sends a request with the headers `headers` through the proxy. Returns the answer's status and body.
    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let response = self.begin(method, path, headers, body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path).header("host", self.host());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", "application/json").body(Full::new(body.into()));
        let mut sender = self.connect().await;
        let sent = sender.send_request(request.unwrap());
        tokio::time::timeout(SOON, sent).await.expect("an answer in time").unwrap()
    }

    /// Fails unless a stream of events through the proxy shows each event soon after it has happened. A proxy must not
    /// hold events back until the stream ends.
    async fn shows_events_at_once(&self, authorization: &[(&str, &str)]) {
        let mut stream = self.begin("GET", "/v1/events", authorization, &Value::Null).await.into_body();
        for key in ["first", "second"] {
            let far = json!({ "delay_ms": 600_000, "pull": { "queue": "none" } });
            assert_eq!(self.send("PUT", &timer(key), authorization, &far).await.0, 201);
            let mut seen = String::new();
            while !seen.contains(key) {
                let frame = tokio::time::timeout(Duration::from_secs(5), stream.frame()).await;
                let frame = frame.expect("the event within 5 s").expect("the stream goes on").unwrap();
                seen.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
            }
        }
    }
}

/// Sends requests through `proxy`. Fails if a promise of the guide's page about proxies is not true.
async fn keeps_the_promises_of_the_page(proxy: &Proxy, token: &str) {
    let bearer = format!("Bearer {token}");
    let token = ("authorization", &*bearer);
    let far = json!({ "delay_ms": 600_000, "pull": { "queue": "none" } });
    assert_eq!(proxy.send("GET", "/v1/stats", &[], &Value::Null).await.0, 401, "no token");
    assert_eq!(proxy.send("GET", "/healthz", &[], &Value::Null).await.0, 200);
    // The proxy passes on the host that the client names. So a page of the same origin may make changes, and a page of
    // another origin may not.
    let own = format!("https://{}", proxy.host());
    for (origin, status) in [(&*own, 201), ("https://elsewhere.example", 403)] {
        let headers = [token, ("origin", origin)];
        assert_eq!(
            proxy.send("PUT", &timer(&status.to_string()), &headers, &far).await.0,
            status,
            "{origin}"
        );
    }
    // The proxy passes a batch of several megabytes.
    let body = "x".repeat(60_000);
    let change =
        json!({ "put": { "timer": { "delay_ms": 600_000, "pull": { "queue": "none", "body": body } } } });
    let batch = json!({ "changes": vec![change; 120] });
    let (status, answer) = proxy.send("POST", "/v1/namespaces/default/batch", &[token], &batch).await;
    assert_eq!((status, answer["results"].as_array().map(Vec::len)), (200, Some(120)));
    proxy.shows_events_at_once(&[token]).await;
    // A claim waits, and gets its timer as soon as the timer is due.
    let claim = json!({ "wait_ms": 20_000 });
    let headers = [token];
    let claim = proxy.send("POST", "/v1/namespaces/default/queues/q/claims", &headers, &claim);
    let due = json!({ "delay_ms": 500, "pull": { "queue": "q" } });
    let begun = Instant::now();
    let ((status, claims), (made, _)) =
        tokio::join!(claim, async { proxy.send("PUT", &timer("due"), &[token], &due).await });
    assert_eq!((status, made, claims["claims"].as_array().map(Vec::len)), (200, 201, Some(1)), "{claims}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Starts a service with the settings on the guide's page about proxies. Returns the service and an administrator's
/// token.
fn service(folder: &Path) -> (Daemon, String) {
    let admin = token(folder, &["--role", "admin", "--data", "data"]);
    (Daemon::start(folder, &["--behind-proxy"]), admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_stands_before_the_service() {
    if !is_nginx_there() {
        return;
    }
    let folder = folder();
    let certificate = certify(folder.path());
    let (daemon, admin) = service(folder.path());
    let port = port();
    let [chain, key] = ["certificate.pem", "key.pem"].map(|name| folder.path().join(name));
    let block = with(
        &block("nginx"),
        &[
            (SERVICE, &daemon.address.to_string()),
            ("listen 443 ", &format!("listen 127.0.0.1:{port} ")),
            (NAME, "localhost"),
            ("/etc/tourbillon/fullchain.pem", chain.to_str().unwrap()),
            ("/etc/tourbillon/key.pem", key.to_str().unwrap()),
        ],
    );
    let proxy = Proxy::nginx(folder.path(), &block, port, Some(certificate));
    keeps_the_promises_of_the_page(&proxy, &admin).await;
}

/// A stream of events also works behind an nginx whose configuration has only the service's address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_live_behind_nginx_with_its_defaults() {
    if !is_nginx_there() {
        return;
    }
    let folder = folder();
    let (daemon, admin) = service(folder.path());
    let port = port();
    let block = format!(
        "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{}; }} }}",
        daemon.address
    );
    let proxy = Proxy::nginx(folder.path(), &block, port, None);
    proxy.shows_events_at_once(&[("authorization", &format!("Bearer {admin}"))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caddy_stands_before_the_service() {
    if Command::new("caddy").arg("version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: caddy is not installed");
        return;
    }
    let folder = folder();
    let certificate = certify(folder.path());
    let (daemon, admin) = service(folder.path());
    let port = port();
    let [chain, key] = ["certificate.pem", "key.pem"].map(|name| folder.path().join(name));
    let block = with(
        &block("caddyfile"),
        &[
            (SERVICE, &daemon.address.to_string()),
            (NAME, &format!("https://localhost:{port}")),
            ("/etc/tourbillon/fullchain.pem", chain.to_str().unwrap()),
            ("/etc/tourbillon/key.pem", key.to_str().unwrap()),
        ],
    );
    // Caddy opens no port for its own administration, and no port for redirections from HTTP.
    let whole = format!("{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{block}");
    std::fs::write(folder.path().join("Caddyfile"), whole).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).current_dir(folder.path());
    command
        .env("HOME", folder.path())
        .env("XDG_DATA_HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path());
    let proxy = Proxy::start(command, port, Some(certificate));
    keeps_the_promises_of_the_page(&proxy, &admin).await;
}

#[test]
fn the_configuration_of_envoy_is_yaml_and_names_the_service() {
    let parsed = YamlLoader::load_from_str(&block("yaml envoy")).unwrap().remove(0);
    let cluster = &parsed["static_resources"]["clusters"][0];
    let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    let address = &endpoint["address"]["socket_address"];
    let (host, port) = (address["address"].as_str().unwrap(), address["port_value"].as_i64().unwrap());
    assert_eq!(format!("{host}:{port}"), SERVICE);
}

/// Returns whether nginx is installed. nginx does not have the flag `--version`, by which the other programs are found.
fn is_nginx_there() -> bool {
    let is_there = Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_ok();
    if !is_there {
        eprintln!("skipped: nginx is not installed");
    }
    is_there
}
