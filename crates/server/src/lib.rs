#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod asker;
mod blocked;
mod bodies;
mod client;
mod command;
mod config;
mod convert;
mod delivery;
mod http;
mod listen;
mod listing;
mod log;
mod page;
mod record;
mod service;
mod settings;
mod share;
mod similar;
mod stream;
mod telemetry;
mod walk;
mod work;

pub use command::main;
pub use http::{openapi, router};
pub use listen::{Limits, Listeners, Server, Tls, TlsError};
pub use service::{OpenError, Principal, Service};
pub use settings::{RedisSettings, Settings, TelemetrySettings};
