//! The engine's futures, and a limited service, under tokio, smol and pollster. None of them has a timer of its own
//! running.
//!
//! What a runtime must offer, and the cases, which are the same for each, are in `cases`.

mod cases;
mod on_pollster;
mod on_smol;
mod on_tokio;
