//! Annotations that show hand-overs between threads to ThreadSanitizer.
//!
//! In a program that is built with `-fsanitize=thread`, the sanitizer watches the memory accesses of the program, but
//! not the atomics of this library. So the sanitizer sees a thread write to the memory behind `user` and another thread
//! read that memory, without any synchronisation. It would report a data race. With `TB_TSAN`, the header passes two
//! functions of the sanitizer to the library. From then on, the library calls the sanitizer's release before each call
//! that schedules, and its acquire before each callback and after each poll.
//!
//! Six calls must be fast. For these, the header itself adds the releases, so that programs without a sanitizer pay
//! nothing. The other calls check each time whether the header has passed the functions.

use std::ffi::c_void;
use std::sync::OnceLock;

/// A function of ThreadSanitizer that annotates an address: `__tsan_acquire` or `__tsan_release`.
pub type tb_annotation = Option<unsafe extern "C" fn(address: *mut c_void)>;

type Annotation = unsafe extern "C" fn(address: *mut c_void);

struct Annotations {
    acquire: Annotation,
    release: Annotation,
}

static ANNOTATIONS: OnceLock<Annotations> = OnceLock::new();

const PLACES: usize = 4_096;

/// The addresses that the library passes to the sanitizer in place of `user` pointers, which the program gives to its
/// callbacks. The sanitizer may access the memory at an address that it gets, but a `user` may be just a number that is
/// not an address.
static USERS: [u8; PLACES] = [0; PLACES];
/// The address that the library passes to the sanitizer when a call moves a one-shot to another deadline. All one-shots
/// share this address. The call gets only the id or the key of the one-shot, so the library does not know the `user`
/// pointer that would select an address in [`USERS`].
static MOVED: u8 = 0;
/// The address that the library passes to the sanitizer when a callback has returned, and when a call has waited for
/// callbacks to return. All callbacks share this address. A call that waits may not know the `user` pointers of the
/// callbacks, and only these would select addresses in [`USERS`].
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

/// Annotates for ThreadSanitizer that this thread is about to hand `user` over to the thread that fires the timer.
pub(crate) fn handed_over(user: *mut c_void) {
    release(place_of(user));
}

/// Annotates for ThreadSanitizer that this thread has received a `user` pointer that another thread handed over.
pub(crate) fn arrived(user: *mut c_void) {
    acquire(place_of(user));
    acquire(&raw const MOVED);
}

/// Annotates for ThreadSanitizer that this thread is about to move a one-shot to another deadline.
pub(crate) fn moved() {
    release(&raw const MOVED);
}

/// Annotates for ThreadSanitizer that a callback has returned.
pub(crate) fn callback_returned() {
    release(&raw const RETURNED);
}

/// Annotates for ThreadSanitizer that this thread has waited for callbacks to return.
pub(crate) fn waited_for_callbacks() {
    acquire(&raw const RETURNED);
}

/// Sets the functions of ThreadSanitizer with which the library annotates hand-overs of `user` pointers between
/// threads. The header `tourbillon.h` calls this function if `TB_TSAN` is defined. Only the first call of a process has
/// an effect.
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

/// Annotates for ThreadSanitizer that the caller's next call of a function of this library hands `user` over to another
/// thread. The header `tourbillon.h` calls this function if `TB_TSAN` is defined.
#[unsafe(no_mangle)]
pub extern "C" fn tb_hand_over(user: *mut c_void) {
    handed_over(user);
}
