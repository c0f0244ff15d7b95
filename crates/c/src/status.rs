//! The result of a call: its status, and the message of a failure. Also the guard that keeps panics inside of the
//! library.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tourbillon::{ArmError, BuildError, Refusal, RescheduleError};
use tourbillon_tasks::RepeatErrorKind;

/// The result of a call. The numbers are stable; later versions may add more.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tb_status {
    /// The call succeeded.
    TB_OK = 0,
    /// A pointer is null that must not be null.
    TB_NULL = -1,
    /// An argument is out of its bounds; the message says which.
    TB_INVALID = -2,
    /// A key is not UTF-8.
    TB_NOT_UTF8 = -3,
    /// The engine has no slot for another timer that this thread could use: see `capacity` in `tb_options`.
    TB_FULL = -4,
    /// The call cannot proceed now, for one of four reasons:
    ///
    /// - The calling thread's lane, which is its queue to a shard, is full, and the call must not wait for room. A call
    ///   must not wait in a callback that runs inline (`TB_INLINE`) or in `tb_loop_turn`, nor on an engine from
    ///   `tb_engine_create_driven`.
    /// - A call of `tb_engine_advance` is under way, and this call would also advance the engine, or would free it.
    /// - A call of `tb_loop_turn` is under way, and one of its callbacks uses the same loop.
    /// - `tb_loop_create` got the index of a loop that was created before and not freed.
    TB_BUSY = -5,
    /// The engine was shut down.
    TB_SHUT_DOWN = -6,
    /// The one-shot is not pending: it has fired, its callback runs, or it was cancelled.
    TB_NOT_PENDING = -7,
    /// The handle was freed before, or the pointer was never a handle. Only a library that was built with debug
    /// assertions detects this. In any other library, the behaviour of such a call is undefined.
    TB_STALE = -8,
    /// The engine was not created in the way that the call needs: with `TB_POLLED`, by `tb_engine_create_driven`, or
    /// with `options.loops`.
    TB_WRONG_MODE = -9,
    /// This system lacks a facility that the call needs, such as `eventfd` or `CLOCK_BOOTTIME`.
    TB_UNSUPPORTED = -10,
    /// The system refused to start a thread or to create a descriptor.
    TB_SYSTEM = -11,
    /// A panic was caught, which is a bug of the library. The program must not use the engine any more, except to free
    /// it.
    TB_PANIC = -12,
    /// The engine was made before a fork, and this process is the child: the engine's threads are in the parent
    /// process.
    TB_FORKED = -13,
    /// The loop belongs to another thread: the thread that called `tb_loop_create`.
    TB_WRONG_THREAD = -14,
}

/// The status and the message of a call that has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: tb_status,
    message: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(status: tb_status, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into() }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn null(name: &str) -> Self {
        Self::new(tb_status::TB_NULL, format!("{name} is null"))
    }
}

impl From<Refusal> for Failure {
    fn from(kind: Refusal) -> Self {
        let status = match kind {
            Refusal::EngineFull => tb_status::TB_FULL,
            Refusal::LaneFull => tb_status::TB_BUSY,
            Refusal::ShutDown => tb_status::TB_SHUT_DOWN,
            Refusal::Forked => tb_status::TB_FORKED,
            _ => tb_status::TB_INVALID,
        };
        Self::new(status, kind.to_string())
    }
}

impl From<ArmError> for Failure {
    fn from(error: ArmError) -> Self {
        let status = match error {
            ArmError::Forked => tb_status::TB_FORKED,
            _ => tb_status::TB_SHUT_DOWN,
        };
        Self::new(status, error.to_string())
    }
}

impl<T> From<RescheduleError<T>> for Failure {
    fn from(error: RescheduleError<T>) -> Self {
        let status = match error {
            RescheduleError::LaneFull => tb_status::TB_BUSY,
            RescheduleError::ShutDown(_) => tb_status::TB_SHUT_DOWN,
            RescheduleError::Forked(_) => tb_status::TB_FORKED,
            _ => tb_status::TB_NOT_PENDING,
        };
        Self::new(status, error.to_string())
    }
}

impl From<RepeatErrorKind> for Failure {
    fn from(kind: RepeatErrorKind) -> Self {
        match kind {
            RepeatErrorKind::Refused(kind) => kind.into(),
            _ => Self::new(tb_status::TB_INVALID, kind.to_string()),
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let status = match error {
            BuildError::OutOfBounds { .. } => tb_status::TB_INVALID,
            _ => tb_status::TB_SYSTEM,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    /// The message of the last failed call of this thread. Empty if no call has failed.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function that C calls. Stores the message of a failure, and catches a panic. The code for
/// failures is in separate functions, so that a call that succeeds has a small stack frame.
#[inline(always)]
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> tb_status {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => tb_status::TB_OK,
        Ok(Err(failure)) => fail(failure),
        Err(panic) => fail_by(panic),
    }
}

#[cold]
#[inline(never)]
fn fail_by(panic: Box<dyn Any + Send>) -> tb_status {
    fail(Failure::new(tb_status::TB_PANIC, format!("a panic: {}", what_it_says(&*panic))))
}

/// Stores the message of a failure, and returns its status.
#[cold]
#[inline(never)]
fn fail(failure: Failure) -> tb_status {
    let mut bytes = failure.message.into_owned().into_bytes();
    bytes.retain(|&byte| byte != 0);
    let message = CString::new(bytes).unwrap_or_default();
    // A thread that is ending has no thread-local storage, and so no message.
    drop(MESSAGE.try_with(|last| last.replace(message)));
    failure.status
}

fn what_it_says(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of something else than a text")
}

/// Returns the message of the last call of this thread that failed: UTF-8, valid until the next call of this thread.
/// The message is empty if no call has failed.
#[unsafe(no_mangle)]
pub extern "C" fn tb_last_error() -> *const c_char {
    MESSAGE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the name of a status, such as `TB_FULL`. The string is a constant.
#[unsafe(no_mangle)]
pub extern "C" fn tb_status_name(status: i32) -> *const c_char {
    name_of(status).as_ptr()
}

fn name_of(status: i32) -> &'static CStr {
    match status {
        0 => c"TB_OK",
        -1 => c"TB_NULL",
        -2 => c"TB_INVALID",
        -3 => c"TB_NOT_UTF8",
        -4 => c"TB_FULL",
        -5 => c"TB_BUSY",
        -6 => c"TB_SHUT_DOWN",
        -7 => c"TB_NOT_PENDING",
        -8 => c"TB_STALE",
        -9 => c"TB_WRONG_MODE",
        -10 => c"TB_UNSUPPORTED",
        -11 => c"TB_SYSTEM",
        -12 => c"TB_PANIC",
        -13 => c"TB_FORKED",
        -14 => c"TB_WRONG_THREAD",
        _ => c"an unknown status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tb_status::*;

    fn last_error() -> String {
        MESSAGE.with(|last| last.borrow().to_str().unwrap().to_owned())
    }

    #[test]
    fn no_panic_crosses_the_border() {
        assert_eq!(guard(|| panic!("seventeen")), TB_PANIC);
        assert_eq!(last_error(), "a panic: seventeen");
        assert_eq!(guard(|| panic!("{}", 18)), TB_PANIC);
        assert_eq!(last_error(), "a panic: 18");
        assert_eq!(guard(|| std::panic::panic_any(19)), TB_PANIC);
        assert_eq!(last_error(), "a panic: of something else than a text");
    }

    #[test]
    fn a_message_stays_until_the_next_failure_and_has_no_nul() {
        assert_eq!(guard(|| Err(Failure::new(TB_INVALID, "one\0two"))), TB_INVALID);
        assert_eq!(guard(|| Ok(())), TB_OK);
        assert_eq!(last_error(), "onetwo");
        assert_eq!(std::thread::spawn(last_error).join().unwrap(), "");
    }

    #[test]
    fn each_status_has_the_name_of_its_variant() {
        let all = [
            TB_OK,
            TB_NULL,
            TB_INVALID,
            TB_NOT_UTF8,
            TB_FULL,
            TB_BUSY,
            TB_SHUT_DOWN,
            TB_NOT_PENDING,
            TB_STALE,
            TB_WRONG_MODE,
            TB_UNSUPPORTED,
            TB_SYSTEM,
            TB_PANIC,
            TB_FORKED,
            TB_WRONG_THREAD,
        ];
        for (number, status) in (0..).zip(all) {
            assert_eq!(status as i32, -number);
            assert_eq!(name_of(-number).to_str().unwrap(), format!("{status:?}"));
        }
        assert_eq!(name_of(-15), c"an unknown status");
        assert_eq!(name_of(1), c"an unknown status");
    }
}
