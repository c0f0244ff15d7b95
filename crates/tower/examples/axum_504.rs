//! An axum server that answers 504, with a body, where a handler takes too long.
//!
//! `cargo run -p tourbillon-tower --example axum_504`, and then `curl -i http://127.0.0.1:8080/slow`.

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::http::StatusCode;
use axum::routing::get;
use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::time::Duration;
use tokio::net::TcpListener;
use tourbillon::future::Wakeup;
use tourbillon::{Builder, Handle};
use tourbillon_tower::{TimeoutError, TimeoutLayer};

/// Makes the routes `/fast` and `/slow` with a time limit. `/slow` never answers by itself.
pub(crate) fn app(engine: &Handle<Wakeup>, limit: Duration) -> Router {
    // The first layer is the outer layer. It turns the limit's error into a response, since axum cannot send an error.
    let limited = (HandleErrorLayer::new(answer_for), TimeoutLayer::new(limit).on(engine));
    Router::new().route("/fast", get(async || "fast\n")).route("/slow", get(slow)).layer(limited)
}

async fn slow() -> &'static str {
    pending().await
}

/// Makes the response that the client gets if the handler takes too long.
async fn answer_for(error: TimeoutError<Infallible>) -> (StatusCode, String) {
    let status = match error {
        TimeoutError::Elapsed(elapsed) if elapsed.is_shut_down() => StatusCode::SERVICE_UNAVAILABLE,
        TimeoutError::Elapsed(_) => StatusCode::GATEWAY_TIMEOUT,
        TimeoutError::Inner(never) => match never {},
    };
    (status, format!("{error}\n"))
}

#[allow(dead_code, reason = "the test has a main of its own")]
fn main() -> Result<(), Box<dyn Error>> {
    let engine = Builder::new().start_futures()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 8080)).await?;
        eprintln!("try: curl -i http://{}/slow", listener.local_addr()?);
        axum::serve(listener, app(engine.handle(), Duration::from_secs(2))).await?;
        Ok(())
    })
}
