//! Provides a receiver of callbacks that records them.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

/// A callback that the receiver has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) attempt: String,
    /// When the callback arrived at the receiver.
    pub(crate) at: SystemTime,
    /// Whether the receiver has answered the callback. No answer goes out if the sender closes the connection during
    /// the receiver's pause.
    pub(crate) answered: bool,
}

/// A receiver of callbacks. The receiver pauses before each answer.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<Received>>>,
    pause: Arc<Mutex<Duration>>,
    status: Arc<Mutex<StatusCode>>,
}

impl Receiver {
    pub(crate) async fn start(pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Self {
            address,
            log: Arc::default(),
            pause: Arc::new(Mutex::new(pause)),
            status: Arc::new(Mutex::new(StatusCode::NO_CONTENT)),
        };
        let app = axum::Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        receiver
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn log(&self) -> Vec<Received> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// Sets the status with which the receiver answers from now on.
    pub(crate) fn answer(&self, status: StatusCode) {
        *self.status.lock().unwrap() = status;
    }

    pub(crate) fn set_pause(&self, pause: Duration) {
        *self.pause.lock().unwrap() = pause;
    }
}

async fn receive(State(receiver): State<Receiver>, request: Request) -> StatusCode {
    let at = {
        let header = |name| request.headers()[name].to_str().unwrap().to_owned();
        let received = Received {
            id: header("webhook-id"),
            path: request.uri().path().to_owned(),
            attempt: header("tourbillon-attempt"),
            at: SystemTime::now(),
            answered: false,
        };
        let mut log = receiver.log.lock().unwrap();
        log.push(received);
        log.len() - 1
    };
    drop(request);
    let pause = *receiver.pause.lock().unwrap();
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    receiver.log.lock().unwrap()[at].answered = true;
    *receiver.status.lock().unwrap()
}
