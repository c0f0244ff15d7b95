//! Forks, while threads of the parent use engines and end. So their locks are sometimes held at a fork.

use super::in_child;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, DrivenShards, Engine, Fired, LoopShard, Timer};

const HOUR: Duration = Duration::from_secs(3_600);
const CHURNING: usize = 3;

/// An engine of each kind, and timers of a thread that stays. Short-lived threads share anchors (references to the
/// engine) and lanes (queues) with these timers.
struct Engines {
    threads: Engine<u32>,
    driven: Engine<u32>,
    _driver: DrivenShards,
    looped: Engine<u32>,
    _seat: LoopShard,
    own: Timer<u32>,
}

impl Engines {
    fn start() -> Self {
        let handler = |_: Fired<'_, u32>| {};
        let threads = Builder::new().shards(1).workers(1).start(handler).expect("an engine");
        let driver = Builder::new().shards(1).driven_shards().expect("shards");
        let driven = driver.shards().engine().start(handler).expect("an engine");
        let (loops, mut seats) = Builder::new().loops(1).expect("shards");
        let looped = loops.engine().start(handler).expect("an engine");
        let seat = seats.remove(0);
        let own = threads.handle().timer(1).expect("room");
        Self { threads, driven, _driver: driver, looped, _seat: seat, own }
    }

    fn all(&self) -> [&Engine<u32>; 3] {
        [&self.threads, &self.driven, &self.looped]
    }
}

/// Does all the work of a short-lived thread. The thread's first call on each engine takes a lane. The engine also
/// lists the thread's owned timer. The end of the thread gives back the lane and the list entry.
fn use_once(engines: [&Engine<u32>; 3]) {
    for engine in engines {
        if let Ok(id) = engine.handle().schedule(HOUR, 0) {
            drop(engine.handle().cancel(id));
        }
        drop(engine.handle().timer(1));
    }
}

pub(crate) fn no_child_hangs_while_threads_of_the_parent_come_and_go() {
    let forks: u32 =
        std::env::var("TOURBILLON_FORKS").map_or(1_000, |forks| forks.parse().expect("a number"));
    let engines = Engines::start();
    let (all, ends) = (engines.all(), AtomicBool::new(false));
    let failed = thread::scope(|scope| {
        let _end = SetAtEnd(&ends);
        for _ in 0..CHURNING {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    // The thread is joined, since a scope does not wait for the end of thread-locals.
                    thread::scope(|short| short.spawn(|| use_once(all)).join()).expect("it ends");
                }
            });
        }
        let mut ended = (0..forks).map(|fork| (fork, fork_once(&engines, fork)));
        ended.find(|(_, status)| *status != 0)
    });
    assert_eq!(failed, None, "a child of {forks} hung (then its status is 14), or failed");
}

/// Sets a flag when it is dropped, so also after a panic. Otherwise the threads that wait for the flag would never end,
/// and the scope that joins them would hang instead of failing.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Forks on a thread that has used the engines, as most threads of a server have. Returns the exit status of the child.
fn fork_once(engines: &Engines, fork: u32) -> i32 {
    use_once(engines.all());
    // SAFETY: only the child drops the copy, and the child has its own copy of all memory.
    let copy = ManuallyDrop::new(unsafe { ptr::read(engines) });
    in_child(move || match fork % 6 {
        0 => exit(),
        1 => {
            on_a_thread(&|| ());
            exit();
        }
        2 => {
            on_a_thread(&|| use_once(copy.all()));
            exit();
        }
        3 => copy.all().iter().for_each(|engine| drop(engine.handle().shutdown())),
        4 => {
            drop(ManuallyDrop::into_inner(copy));
            exit();
        }
        _ => {
            copy.own.disarm_and_wait();
            let own = Builder::new().shards(1).driven(|_: Fired<'_, u32>| {}).expect("its own");
            on_a_thread(&|| drop(own.handle().schedule(HOUR, 0)));
            drop(own);
            exit();
        }
    })
}

/// Runs `f` on a thread that the standard library did not start. A thread of `std` begins with a lock of `std`. Another
/// thread of the parent may hold that lock at the fork.
fn on_a_thread(f: &dyn Fn()) {
    extern "C" fn run(f: *mut c_void) -> *mut c_void {
        // SAFETY: `on_a_thread` waits for the end of this call.
        (unsafe { *f.cast::<&dyn Fn()>() })();
        ptr::null_mut()
    }
    let mut thread = MaybeUninit::uninit();
    let argument = ptr::from_ref(&f).cast_mut().cast();
    // SAFETY: `run` has the right type, and `argument` outlives the thread.
    let refused = unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, argument) };
    assert_eq!(refused, 0, "the child may start a thread");
    // SAFETY: `pthread_create` has written `thread`.
    let thread = unsafe { thread.assume_init() };
    // SAFETY: the thread was not joined yet.
    assert_eq!(unsafe { libc::pthread_join(thread, ptr::null_mut()) }, 0);
}

/// Runs the destructors of the calling thread's thread-locals, and then ends the process.
fn exit() {
    // SAFETY: the child has no other thread.
    unsafe { libc::exit(0) };
}
