//! Provides a service with its pages on a port of its own, and a receiver of callbacks.

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tourbillon_durable::store::TimerStore;
use tourbillon_server::{Limits, Listeners, Server, Service, Settings};

/// The longest time for which a test waits for an event that should come at once. The time is long, because the machine
/// may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The service's answer to a request for a page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Page {
    /// Returns the address to which the answer redirects. Returns an empty text if the answer does not redirect.
    pub(crate) fn to(&self) -> &str {
        self.headers.get(header::LOCATION).map_or("", |to| to.to_str().unwrap())
    }

    /// Returns the CSRF token in the page's forms. The field with this token is named `mark`.
    pub(crate) fn mark(&self) -> String {
        let (_, rest) = self.text.split_once(r#"name="mark" value=""#).expect("a form");
        rest.split('"').next().unwrap().to_owned()
    }

    /// Returns the cookie that the answer sets, as the pair of its name and its value.
    pub(crate) fn cookie(&self) -> String {
        let cookie = self.headers[header::SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

/// A running service with its pages, at a port of its own. Dropping the value ends the service.
pub(crate) struct Rig {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
    server: Server,
    client: Client<HttpConnector, Full<Bytes>>,
    settings: Settings,
    folder: Option<TempDir>,
    /// The address of a receiver of callbacks. The receiver answers each callback with the status that the callback's
    /// path names.
    pub(crate) receiver: SocketAddr,
}

/// Starts a receiver of callbacks. The receiver answers each callback with the status that the callback's path names.
/// Returns the receiver's address.
async fn receiver() -> SocketAddr {
    let answer =
        async |uri: http::Uri| uri.path().trim_start_matches('/').parse().unwrap_or(StatusCode::NO_CONTENT);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

async fn listen(address: SocketAddr) -> Listeners {
    let begun = Instant::now();
    loop {
        match Listeners::bind(&[address]).await {
            Ok(listeners) => return listeners,
            Err((_, error)) => assert!(begun.elapsed() < SOON, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts a service with tokens. Each item of `commands` has the arguments of `tourbillond token` that make a
    /// token. Returns the service and the tokens.
    pub(crate) async fn with_tokens(commands: &[&[&str]]) -> (Self, Vec<String>) {
        let mut tokens = Vec::new();
        let rig = Self::start_with(|settings| {
            tokens = commands.iter().map(|arguments| token(settings, arguments)).collect();
        })
        .await;
        (rig, tokens)
    }

    /// Starts a service. `change` first changes the usual settings of tests.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::begin(change, None).await
    }

    /// Starts a service that keeps its timers in `store`.
    pub(crate) async fn on(store: Arc<dyn TimerStore>) -> Self {
        Self::begin(|_| {}, Some(store)).await
    }

    /// Starts a service that keeps its timers in `store`, which may have timers already. The service makes their
    /// namespaces.
    pub(crate) async fn on_filled(store: Arc<dyn TimerStore>) -> Self {
        Self::begin(
            |settings| std::fs::write(settings.data.join("namespaces.json"), "{}").unwrap(),
            Some(store),
        )
        .await
    }

    async fn begin(change: impl FnOnce(&mut Settings), store: Option<Arc<dyn TimerStore>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(folder.path());
        settings.rules.allow_http = true;
        settings.least_pause = Duration::ZERO;
        settings.caller.guard.allowed = vec!["127.0.0.0/8".parse().unwrap()];
        change(&mut settings);
        Self::open(settings, folder, ([127, 0, 0, 1], 0).into(), store).await
    }

    async fn open(
        mut settings: Settings,
        folder: TempDir,
        address: SocketAddr,
        store: Option<Arc<dyn TimerStore>>,
    ) -> Self {
        let listeners = listen(address).await;
        let address = listeners.addresses().unwrap()[0];
        settings.caller.guard.own = vec![address];
        let begun = Instant::now();
        let service = loop {
            let opened = match &store {
                Some(store) => Service::open_on(settings.clone(), Arc::clone(store)),
                None => Service::open(settings.clone()),
            };
            match opened {
                Ok(service) => break service,
                // The connections of the former service keep the store until they are closed.
                Err(error) => assert!(begun.elapsed() < SOON, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let server = Server::start(listeners, &service, None, Limits::default()).unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        let receiver = receiver().await;
        Self { service, address, server, client, settings, folder: Some(folder), receiver }
    }

    /// Ends the service, calls `while_stopped`, and starts the service again at the same address.
    pub(crate) async fn restart<T>(mut self, while_stopped: impl AsyncFnOnce() -> T) -> (Self, T) {
        let (settings, folder, address) = (self.settings.clone(), self.folder.take().unwrap(), self.address);
        self.server.abort();
        let service = self.service.clone();
        tokio::task::spawn_blocking(move || service.close(Duration::ZERO)).await.unwrap();
        drop(self);
        let answer = while_stopped().await;
        (Self::open(settings, folder, address, None).await, answer)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn raw(&self, request: Request<Full<Bytes>>) -> Page {
        let answer = self.client.request(request).await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        Page { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.get_as(path, "").await
    }

    pub(crate) async fn get_as(&self, path: &str, cookie: &str) -> Page {
        self.raw(Request::get(self.url(path)).header("cookie", cookie).body(Full::default()).unwrap()).await
    }

    /// Sends a form to a page, with a cookie and further headers.
    pub(crate) async fn post(
        &self,
        path: &str,
        cookie: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> Page {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = Request::post(self.url(path))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("cookie", cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.raw(request.body(Full::new(body.into())).unwrap()).await
    }

    /// Signs in with a token. Returns the cookie of the new session, and the CSRF token of the session's forms.
    pub(crate) async fn sign_in(&self, token: &str) -> (String, String) {
        let page = self.post("/ui/sign-in", "", &[], &[("token", token)]).await;
        assert_eq!((page.status, page.to()), (StatusCode::SEE_OTHER, "/ui/"), "{}", page.text);
        let cookie = page.cookie();
        let mark = self.get_as("/ui/timers", &cookie).await.mark();
        (cookie, mark)
    }

    /// Sends a request to the service's HTTP interface. Returns the answer's body. Fails unless the status of the
    /// answer is a success.
    pub(crate) async fn api(&self, method: &str, path: &str, token: &str, body: Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request =
            Request::builder().method(method).uri(self.url(path)).header("content-type", "application/json");
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let page = self.raw(request.body(Full::new(body)).unwrap()).await;
        assert!(page.status.is_success(), "{method} {path}: {}", page.text);
        serde_json::from_str(&page.text).unwrap_or(Value::Null)
    }

    /// Stores a timer with the key `key` in the namespace `default`. The receiver answers the timer's callback with
    /// `status`. `more` are further fields of the timer. Returns the timer's id.
    pub(crate) async fn put(&self, key: &str, status: u16, more: Value) -> String {
        let mut timer = json!({ "callback": { "url": format!("http://{}/{status}", self.receiver) } });
        for (name, value) in more.as_object().into_iter().flatten() {
            timer[name] = value.clone();
        }
        let key = percent(key);
        let placed = self.api("PUT", &format!("/v1/namespaces/default/timers/{key}"), "", timer).await;
        placed["id"].as_str().unwrap().to_owned()
    }

    /// Stores a schedule with the key `key` in the namespace `default`. The receiver accepts the callbacks of the
    /// schedule's timers.
    pub(crate) async fn schedule(&self, key: &str, mut schedule: Value) {
        schedule["callback"] = json!({ "url": format!("http://{}/204", self.receiver) });
        self.api("PUT", &format!("/v1/namespaces/default/schedules/{}", percent(key)), "", schedule).await;
    }

    /// Requests a page again and again until it contains `text`. Returns the page.
    pub(crate) async fn until(&self, path: &str, text: &str) -> Page {
        let begun = Instant::now();
        loop {
            let page = self.get(path).await;
            if page.text.contains(text) {
                return page;
            }
            assert!(begun.elapsed() < SOON, "{path} has no {text:?}: {}", page.text);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A proxy in front of a service. The proxy can stop forwarding bytes without closing its connections.
pub(crate) struct Between {
    pub(crate) address: SocketAddr,
    /// Whether the proxy forwards new connections. A connection that is open when the value becomes false is never
    /// forwarded again.
    pub(crate) is_open: watch::Sender<bool>,
}

impl Between {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_open, state) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut state = state.clone();
                tokio::spawn(async move {
                    let is_open = *state.borrow_and_update();
                    if is_open && let Ok(mut to) = TcpStream::connect(to).await {
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut from, &mut to) => return,
                            _ = state.wait_for(|is_open| !is_open) => {}
                        }
                    }
                    // The connection stays open, but nothing is forwarded.
                    core::future::pending::<()>().await;
                    drop(from);
                });
            }
        });
        Self { address, is_open }
    }
}

/// Escapes a text so that it can be a part of a path.
pub(crate) fn percent(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Makes a token for the service by `tourbillond token new`. Returns the token.
pub(crate) fn token(settings: &Settings, arguments: &[&str]) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_tourbillond"))
        .args(["token", "new", "--data"])
        .arg(&settings.data)
        .args(arguments)
        .current_dir(&settings.data)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
        let service = self.service.clone();
        // Closing the service blocks, and a thread of the runtime must not block.
        std::thread::spawn(move || service.close(Duration::ZERO)).join().unwrap();
    }
}
