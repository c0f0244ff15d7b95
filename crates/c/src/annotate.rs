//! What ThreadSanitizer is to know.
//!
//! A program that is built with `-fsanitize=thread` has its own memory accesses watched, and not the atomics of this library. So
//! the sanitizer sees one thread write what `user` points to and another read it, and nothing in between. With `TB_TSAN` the
//! header gives the two functions of the sanitizer to the library. From then on each hand-over is a release of the sanitizer's
//! before the call that schedules, and an acquire before the callback or after the poll.
//!
//! The header adds the releases to the four calls that have to be fast, so that programs without a sanitizer pay nothing for
//! them. The other calls look here each time.

use std::ffi::c_void;
use std::sync::OnceLock;

/// A function of the sanitizer's.
pub type tb_annotation = Option<unsafe extern "C" fn(address: *mut c_void)>;

type Annotation = unsafe extern "C" fn(address: *mut c_void);

struct Annotations {
    acquire: Annotation,
    release: Annotation,
}

static ANNOTATIONS: OnceLock<Annotations> = OnceLock::new();

const PLACES: usize = 4_096;

/// What stands for a `user`: an address that the sanitizer can look at, since a `user` may be a number.
static USERS: [u8; PLACES] = [0; PLACES];
/// What stands for all one-shots that were moved: a move names no `user`.
static MOVED: u8 = 0;
/// What stands for all callbacks that have returned: a wait for one names no `user`.
static RETURNED: u8 = 0;

fn place_of(user: *mut c_void) -> *const u8 {
    let hash = (user.addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52;
    &raw const USERS[usize::try_from(hash).unwrap_or_default() % PLACES]
}

fn acquire(place: *const u8) {
    if let Some(annotations) = ANNOTATIONS.get() {
        // SAFETY: the contract of `tb_annotate_with`; the sanitizer does not write there.
        unsafe { (annotations.acquire)(place.cast_mut().cast()) };
    }
}

fn release(place: *const u8) {
    if let Some(annotations) = ANNOTATIONS.get() {
        // SAFETY: as in `acquire`.
        unsafe { (annotations.release)(place.cast_mut().cast()) };
    }
}

/// `user` goes to whichever thread fires.
pub(crate) fn handed_over(user: *mut c_void) {
    release(place_of(user));
}

/// `user` was handed over, and has arrived at this thread.
pub(crate) fn arrived(user: *mut c_void) {
    acquire(place_of(user));
    acquire(&raw const MOVED);
}

/// A one-shot was moved.
pub(crate) fn moved() {
    release(&raw const MOVED);
}

/// A callback has returned.
pub(crate) fn callback_returned() {
    release(&raw const RETURNED);
}

/// Callbacks were waited for.
pub(crate) fn waited_for_callbacks() {
    acquire(&raw const RETURNED);
}

/// Used by this header under ThreadSanitizer, with `TB_TSAN`: the functions that the library annotates hand-overs with. The
/// first call of a process counts.
///
/// # Safety
///
/// The [contract](crate#contract): they may be called with any address, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_annotate_with(acquire: tb_annotation, release: tb_annotation) {
    if let (Some(acquire), Some(release)) = (acquire, release) {
        ANNOTATIONS.get_or_init(|| Annotations { acquire, release });
    }
}

/// Used by this header under ThreadSanitizer, with `TB_TSAN`: annotates that `user` is handed over by the call that follows.
#[unsafe(no_mangle)]
pub extern "C" fn tb_hand_over(user: *mut c_void) {
    handed_over(user);
}
