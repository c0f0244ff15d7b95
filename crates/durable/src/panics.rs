//! Catches panics of foreign code: handlers, executors, observers, wakers and stores.
//!
//! The payload of a panic is a value of the program, so its drop may panic, too. Every payload is dropped here, where a
//! second panic ends nothing.

use core::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f` and returns its result. Returns `None` if `f` panics.
pub(crate) fn survive<R>(f: impl FnOnce() -> R) -> Option<R> {
    survive_or(f, |_| ()).ok()
}

/// Runs `f` and returns its result. If `f` panics, `describe` makes the error from the panic's payload.
pub(crate) fn survive_or<R, E>(
    f: impl FnOnce() -> R,
    describe: impl FnOnce(&(dyn Any + Send)) -> E,
) -> Result<R, E> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let error = describe(&*panic);
        drop_quietly(panic);
        error
    })
}

/// Returns the message of a panic, or `None` if its payload is not a text.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> Option<&str> {
    let message = panic.downcast_ref::<&str>().copied();
    message.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

fn drop_quietly(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // The drop of the payload has panicked with another payload, whose drop may panic, too. The leak of that
        // payload ends the chain.
        Box::leak(another);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::resume_unwind;

    /// A payload whose drop panics with another such payload.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            resume_unwind(Box::new(Self));
        }
    }

    #[test]
    fn a_payload_that_panics_in_its_drop_harms_nobody() {
        assert_eq!(survive(|| 7), Some(7));
        let survived: Option<()> = survive(|| resume_unwind(Box::new(Bomb)));
        assert!(survived.is_none());
        let no = || resume_unwind(Box::new("no"));
        let described: Result<(), bool> = survive_or(no, |panic| message_of(panic) == Some("no"));
        assert_eq!(described, Err(true));
    }
}
