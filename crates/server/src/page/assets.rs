//! The style sheet, the script and the icon that all pages load.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, kind)], text).into_response()
}

pub(super) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("style.css"))
}

pub(super) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("app.js"))
}

pub(super) async fn icon() -> Response {
    file("image/svg+xml", include_str!("icon.svg"))
}
