//! A receiver of callbacks for the guide.
//!
//! `guide-receiver ADDRESS FILE` verifies each callback by the secret in the file, and prints it. While the current
//! folder has a file named `broken`, the receiver answers 503.
#![expect(clippy::print_stdout, reason = "a receiver shows what it gets")]

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use standardwebhooks::Webhook;
use std::error::Error;
use std::path::Path;

fn answer(secret: &str, headers: &HeaderMap, body: &Bytes) -> Result<StatusCode, Box<dyn Error>> {
    // Also checks that the callback is at most five minutes old.
    if Webhook::new(secret)?.verify(body, headers).is_err() {
        return Ok(StatusCode::UNAUTHORIZED);
    }
    if Path::new("broken").exists() {
        return Ok(StatusCode::SERVICE_UNAVAILABLE);
    }
    // A receiver that must not act twice stores this id, and does nothing if it knows the id already.
    let id = headers["webhook-id"].to_str()?;
    println!("{id}: {}", str::from_utf8(body)?);
    Ok(StatusCode::NO_CONTENT)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, file] = &arguments[..] else { return Err("guide-receiver ADDRESS FILE".into()) };
    let secret = std::fs::read_to_string(file)?.lines().next().unwrap_or_default().to_owned();
    let app = Router::new().fallback(async move |headers: HeaderMap, body: Bytes| {
        answer(&secret, &headers, &body).unwrap_or(StatusCode::BAD_REQUEST)
    });
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
