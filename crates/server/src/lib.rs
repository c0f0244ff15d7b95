#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod convert;
mod delivery;
mod http;
mod service;
mod settings;
mod work;

pub use http::{openapi, router};
pub use service::{OpenError, Principal, Service};
pub use settings::Settings;
