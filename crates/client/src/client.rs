//! Defines the client of a service, and its settings.

use crate::audit::Audit;
use crate::backup::Backup;
use crate::connect::Connector;
use crate::error::{BuildError, Error};
use crate::events::Events;
use crate::namespace::Namespace;
use crate::pages::List;
use crate::path::{join, query};
use crate::transport::{Call, Transport};
use core::fmt;
use core::time::Duration;
use http::{HeaderValue, Method, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::PathBuf;
use std::sync::Arc;
use tourbillon_api::{
    Endpoint, History, Horizon, LatenessBySecond, Moment, NamespaceView, Nodes, QueueView, Readiness,
    ServiceStats,
};

/// The time for which an idle connection is kept. Common servers close an idle connection after 5 s, so this time is
/// shorter. If the server closes a connection while a change is sent, the outcome of the change is unknown.
const IDLE: Duration = Duration::from_secs(4);

/// A client of the timer service `tourbillond`. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<Transport>);

/// The settings from which a [`Client`] is made.
#[derive(Clone)]
pub struct Builder {
    url: String,
    token: Option<Token>,
    authorities: Vec<Pem>,
    connect_timeout: Duration,
    timeout: Duration,
    repeats: u32,
}

#[derive(Clone)]
enum Token {
    Text(String),
    File(PathBuf),
}

#[derive(Clone)]
enum Pem {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Builder {
    /// Sets the token that the client sends with each request.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(Token::Text(token.into())), ..self }
    }

    /// Sets the path of a file that contains only the token. The file is read when the client is made.
    #[must_use]
    pub fn token_file(self, path: impl Into<PathBuf>) -> Self {
        Self { token: Some(Token::File(path.into())), ..self }
    }

    /// Trusts the certificates in a PEM file, in addition to the certificate authorities of the web. The file is read
    /// when the client is made.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities.push(Pem::File(path.into()));
        self
    }

    /// Trusts these certificates in PEM, in addition to the certificate authorities of the web.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(Pem::Bytes(pem.into()));
        self
    }

    /// Sets the time limit for making a connection: resolving the name, connecting by TCP, and the TLS handshake. The
    /// default is 5 s.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// Sets the time limit for one attempt to send a request and read its answer. The default is 10 s. For
    /// [`Queue::claim`](crate::Queue::claim), the time for which the service waits for a timer is added.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how many times the client may repeat a request. The default is 3. Only some requests are repeated: reads,
    /// creations, and requests that were not sent. The pause before the first repetition is at most 100 ms, then 200
    /// ms, and so on up to 3.2 s. If the service asks for a longer pause, the client waits for that time. If the
    /// service asks for more than 5 s, the client does not repeat the request.
    #[must_use]
    pub fn repeats(self, repeats: u32) -> Self {
        Self { repeats, ..self }
    }

    /// Makes the client. The client connects when it sends its first request.
    ///
    /// # Errors
    ///
    /// Fails if the URL or the token is not valid, if a time limit is zero, or if a file or certificate cannot be read.
    pub fn build(self) -> Result<Client, BuildError> {
        let base = base_of(&self.url)?;
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(BuildError::Timeout);
        }
        let authorisation = match self.token {
            None => None,
            Some(Token::Text(token)) => Some(authorisation(&token)?),
            Some(Token::File(path)) => Some(authorisation(&read(path)?)?),
        };
        let mut certificates = Vec::new();
        for pem in self.authorities {
            let bytes = match pem {
                Pem::Bytes(bytes) => bytes,
                Pem::File(path) => read(path)?.into_bytes(),
            };
            let before = certificates.len();
            for certificate in CertificateDer::pem_slice_iter(&bytes) {
                certificates
                    .push(certificate.map_err(|error| BuildError::Certificate(error.to_string().into()))?);
            }
            if certificates.len() == before {
                return Err(BuildError::Certificate("there is none".into()));
            }
        }
        let connector = Connector::new(&certificates, self.connect_timeout)?;
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Client(Arc::new(Transport {
            client,
            base,
            authorisation,
            timeout: self.timeout,
            repeats: self.repeats,
        })))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("url", &self.url).finish_non_exhaustive()
    }
}

fn read(path: PathBuf) -> Result<String, BuildError> {
    std::fs::read_to_string(&path).map_err(|error| BuildError::File { path, error })
}

fn authorisation(token: &str) -> Result<HeaderValue, BuildError> {
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BuildError::Token);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| BuildError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns a service's URL without a slash at the end. Fails if the URL has a user, a query or a fragment.
fn base_of(url: &str) -> Result<Box<str>, BuildError> {
    let refused = |reason: &str| BuildError::Url(reason.into());
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| refused(&error.to_string()))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if !["http", "https"].contains(&scheme) {
        return Err(refused("it begins with neither http:// nor https://"));
    }
    let authority = uri.authority().ok_or_else(|| refused("it has no host"))?.as_str();
    if authority.contains('@') {
        return Err(refused("it has a user; a token is a setting of its own"));
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(refused("it has a query or a fragment"));
    }
    Ok(format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/')).into())
}

impl Client {
    /// Returns the default settings for the service at this URL, such as `http://127.0.0.1:7670`. The URL of a service
    /// behind a proxy may have a path, such as `https://example.com/timers`. The client puts this path in front of the
    /// path of each request. Over `http` the token is sent in the clear.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            token: None,
            authorities: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            repeats: 3,
        }
    }

    /// Gives access to a namespace. The namespace `default` always exists. Sends no request.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Namespace {
        Namespace::new(Arc::clone(&self.0), name)
    }

    /// Lists all namespaces.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn namespaces(&self) -> Result<Vec<NamespaceView>, Error> {
        self.0.send(&Call::read(join(&["v1", "namespaces"]))).await
    }

    /// Returns the present numbers of timers in each phase, and the numbers of new timers, deliveries and failures
    /// since the service started.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn stats(&self) -> Result<ServiceStats, Error> {
        self.0.send(&Call::read(join(&["v1", "stats"]))).await
    }

    /// Returns how many timers were made, delivered and cancelled over time: from `since` on, or by default over the
    /// last 72 hours. The time is divided into at most `points` intervals, 360 by default, and each interval has its
    /// own numbers.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn history(&self, since: Option<Moment>, points: Option<u32>) -> Result<History, Error> {
        let (since, points) = (since.map(|since| since.to_string()), points.map(|points| points.to_string()));
        let query = query(&[("since", since.as_deref()), ("points", points.as_deref())]);
        self.0.send(&Call::read(join(&["v1", "history"]) + &query)).await
    }

    /// Returns how late the deliveries of the last hour began, grouped by the second of the minute at which they were
    /// due.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn lateness(&self) -> Result<LatenessBySecond, Error> {
        self.0.send(&Call::read(join(&["v1", "lateness"]))).await
    }

    /// Returns the number of pending timers, grouped by the time until they are due.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn horizon(&self) -> Result<Horizon, Error> {
        self.0.send(&Call::read(join(&["v1", "horizon"]))).await
    }

    /// Returns the hosts to which the service has lately sent callbacks.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        self.0.send(&Call::read(join(&["v1", "endpoints"]))).await
    }

    /// Returns the nodes of the service, and the shards into which its timers are divided. For each shard, the answer
    /// names the node that delivers the shard's timers.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn nodes(&self) -> Result<Nodes, Error> {
        self.0.send(&Call::read(join(&["v1", "nodes"]))).await
    }

    /// Returns the queues in which timers or receivers wait, in all namespaces that the token may read. The queues are
    /// sorted by namespace and name.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        self.0.send(&Call::read(join(&["v1", "queues"]))).await
    }

    /// Makes a list of the timers of all namespaces. Conditions can narrow the list. Sends no request.
    #[must_use]
    pub fn list(&self) -> List {
        List::new(Arc::clone(&self.0), join(&["v1", "timers"]))
    }

    /// Makes a list of the entries of the audit trail. Each entry records a change, and the person or program that
    /// requested it. The caller needs the rights of an administrator. Sends no request.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(Arc::clone(&self.0))
    }

    /// Begins a backup: a copy of all timers, schedules and namespaces as they are at one moment. The caller reads it
    /// piece by piece. The service keeps running. Needs the rights of an administrator, because the copy contains
    /// bodies and signing secrets.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn backup(&self) -> Result<Backup, Error> {
        let call = Call { method: Method::POST, ..Call::read(join(&["v1", "backup"])) };
        let response = self.0.begin(&call).await?;
        Ok(Backup::new(response.into_body(), self.0.timeout))
    }

    /// Makes a stream of events as they happen, in the given namespace or, with `None`, in all namespaces. The stream
    /// connects at the first call of [`Events::next`].
    #[must_use]
    pub fn events(&self, namespace: Option<&str>) -> Events {
        let path = join(&["v1", "events"]) + &query(&[("namespace", namespace)]);
        Events::new(Arc::clone(&self.0), path)
    }

    /// Succeeds if the service answers that it is alive.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn health(&self) -> Result<(), Error> {
        self.0.send_for(&Call::read(join(&["healthz"])), |_| Ok(())).await
    }

    /// Returns whether the service is ready to work.
    ///
    /// # Errors
    ///
    /// See [`Error`]. If the service answers that it is not ready, the call succeeds.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        let not_ready = Some(StatusCode::SERVICE_UNAVAILABLE);
        self.0.send(&Call { also: not_ready, ..Call::read(join(&["readyz"])) }).await
    }

    /// Returns the metrics of the service in the text format of Prometheus.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn metrics(&self) -> Result<String, Error> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string());
        self.0.send_for(&Call::read(join(&["metrics"])), text).await
    }

    /// Returns the service's OpenAPI document in JSON.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn openapi(&self) -> Result<serde_json::Value, Error> {
        self.0.send(&Call::read(join(&["openapi.json"]))).await
    }
}
