#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules form floors, from the lowest to the highest. A module uses only modules of its own floor and of lower
// floors.

// Floor 0: words, limits and texts, which use nothing else of this crate.
mod asker;
mod blocked;
mod client;
mod clock;
mod request_id;
mod share;
mod similar;
mod stream;
mod task;
mod text;
mod tls;
mod walk;

// Floor 1: settings and messages.
mod bodies;
mod log;
mod settings;
mod work;

// Floor 2: conversion between the types of the HTTP interface and of the store, and the state that all parts share.
mod convert;
mod state;

// Floor 3: records of changes and of deliveries.
mod audit;
mod rate;
mod record;
mod telemetry;

// Floor 4: deliveries.
mod delivery;

// Floor 5: the service.
mod service;

// Floor 6: the HTTP interface and the pages, through which requests come in.
mod http;
mod listing;
mod page;

// Floor 7: connections.
mod listen;

// Floor 8: the program.
mod command;
mod config;

pub use command::main;
pub use http::{openapi, router};
pub use listen::{Limits, Listeners, Server};
pub use service::{OpenError, Service};
pub use settings::{PostgresSettings, RedisSettings, Settings, StorePlace, TelemetrySettings};
pub use state::Principal;
pub use tls::{Tls, TlsError};
