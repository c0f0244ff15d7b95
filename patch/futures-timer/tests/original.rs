//! Runs the cases against the original, so that they state its behaviour and not only that of this crate.

mod cases;

use original as subject;
