//! Tests the engine's futures, and a limited service, under tokio, smol and pollster. No runtime runs a timer of its
//! own.
//!
//! The module `cases` has the traits that a runtime must implement, and the cases, which are the same for each runtime.

mod cases;
mod on_pollster;
mod on_smol;
mod on_tokio;
