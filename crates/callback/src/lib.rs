#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod callback;
mod client;
mod dial;
pub mod guard;
mod hosts;
mod sign;
mod wire;

pub use callback::{Callback, Refusal, Rules};
pub use client::{Answer, Attempt, Caller, CallerSettings, CertificateError, Failure, Outcome};
pub use dial::{Resolver, Resolving};
pub use hosts::{HostLimits, HostReport};
pub use sign::{Secret, SecretError};
