//! Annotations that tell ThreadSanitizer of hand-overs.
//!
//! In a program that is built with `-fsanitize=thread`, the sanitizer watches the memory accesses of the program, and
//! not the atomics of this library. So the sanitizer sees one thread write to the memory behind `user` and another
//! thread read it, and no synchronisation between the two. With `TB_TSAN` the header hands two functions of the
//! sanitizer to the library. From then on the library calls the sanitizer's release before each call that schedules,
//! and its acquire before each callback and after each poll.
//!
//! The header itself adds the releases to the six calls that have to be fast, so that programs without a sanitizer pay
//! nothing for them. The other calls check each time whether there are functions to call.

use std::ffi::c_void;
use std::sync::OnceLock;

/// A function of ThreadSanitizer.
pub type tb_annotation = Option<unsafe extern "C" fn(address: *mut c_void)>;

type Annotation = unsafe extern "C" fn(address: *mut c_void);

struct Annotations {
    acquire: Annotation,
    release: Annotation,
}

static ANNOTATIONS: OnceLock<Annotations> = OnceLock::new();

const PLACES: usize = 4_096;

/// Stand-ins for each `user`: addresses that the sanitizer may access, since a `user` may be a number.
static USERS: [u8; PLACES] = [0; PLACES];
/// The stand-in for all one-shots that were moved: a move names no `user`.
static MOVED: u8 = 0;
/// The stand-in for all callbacks that have returned: a wait for a callback names no `user`.
static RETURNED: u8 = 0;

fn place_of(user: *mut c_void) -> *const u8 {
    let hash = (user.addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52;
    &raw const USERS[usize::try_from(hash).unwrap_or_default() % PLACES]
}

fn acquire(place: *const u8) {
    if let Some(annotations) = ANNOTATIONS.get() {
        // SAFETY: the contract of `tb_annotate_with`; the sanitizer does not write to the address.
        unsafe { (annotations.acquire)(place.cast_mut().cast()) };
    }
}

fn release(place: *const u8) {
    if let Some(annotations) = ANNOTATIONS.get() {
        // SAFETY: as in `acquire`.
        unsafe { (annotations.release)(place.cast_mut().cast()) };
    }
}

/// Annotates that the next call hands `user` over to the thread that fires.
pub(crate) fn handed_over(user: *mut c_void) {
    release(place_of(user));
}

/// Annotates that `user` was handed over and has arrived at this thread.
pub(crate) fn arrived(user: *mut c_void) {
    acquire(place_of(user));
    acquire(&raw const MOVED);
}

/// Annotates that the next call moves a one-shot.
pub(crate) fn moved() {
    release(&raw const MOVED);
}

/// Annotates that a callback has returned.
pub(crate) fn callback_returned() {
    release(&raw const RETURNED);
}

/// Annotates that this thread has waited for callbacks.
pub(crate) fn waited_for_callbacks() {
    acquire(&raw const RETURNED);
}

/// Gives the library the functions by which it annotates hand-overs. This header calls it under ThreadSanitizer, with
/// `TB_TSAN`. The first call of a process counts.
///
/// # Safety
///
/// The [contract](crate#contract): the functions may be called with any address, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_annotate_with(acquire: tb_annotation, release: tb_annotation) {
    if let (Some(acquire), Some(release)) = (acquire, release) {
        ANNOTATIONS.get_or_init(|| Annotations { acquire, release });
    }
}

/// Annotates that the call that follows hands `user` over. This header calls it under ThreadSanitizer, with `TB_TSAN`.
#[unsafe(no_mangle)]
pub extern "C" fn tb_hand_over(user: *mut c_void) {
    handed_over(user);
}
