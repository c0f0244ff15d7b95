#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod breaker;
mod callback;
mod client;
mod dial;
pub mod guard;
mod hosts;
mod limits;
mod names;
mod shortage;
mod sign;
mod wire;

pub use callback::{Callback, Refusal, Rules};
pub use client::{
    Admitted, Attempt, CallbackResponse, Caller, CallerSettings, CertificateError, Failure, Outcome,
};
pub use hosts::{HostReport, Part};
pub use limits::HostLimits;
pub use names::{Resolver, Resolving};
pub use sign::{Secret, SecretError};
