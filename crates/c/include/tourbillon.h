/* tourbillon: a timer engine for servers that arm a timeout for nearly everything and see nearly none of them fire.
 *
 * Generated from crates/c by its tests; not to be edited.
 *
 * WHAT IT IS
 *
 * An engine has a timing wheel and a thread of its own for each core. One-shots (tb_schedule) call back once; they are
 * named by ids, or by keys of the caller's (tb_schedule_keyed). A timer (tb_timer_create) has a handle, and is armed and
 * disarmed any number of times for a few nanoseconds: one for each connection. A periodic task (tb_every) is due again and
 * again. Nothing is due before its deadline.
 *
 * HOW WHAT IS DUE ARRIVES: options.delivery
 *
 *   TB_POOL     the callback is called on one of the engine's threads;
 *   TB_INLINE   on the thread of a shard, where it must not be slow;
 *   TB_POLLED   nowhere: it is an event, taken by tb_poll, and a descriptor (tb_event_fd) is readable while there are some.
 *               An epoll loop that does so never has a callback on another thread.
 *
 * WHAT A CANCEL MEANS
 *
 *                         TB_CANCELLED                          TB_RUNNING                    TB_GONE
 *   callbacks             it has not begun and does not         it has begun and may not      it was not pending
 *                                                               have returned; .._and_wait
 *                                                               waits for that
 *   events of one-shots,  none is polled                        never said                    its event was polled, or will
 *   also of keys                                                                              be; or it was cancelled before
 *   events of timers      none is polled, not even one that     never said                    it was not armed, and no event
 *   and tasks             waits in the queue                                                  of it waits
 *
 * So a one-shot ends in exactly one way: TB_CANCELLED, its callback or its event, or given back by tb_engine_shutdown; then
 * its `user` is the caller's again. After tb_timer_arm, tb_timer_disarm, tb_timer_free, tb_task_stop and tb_task_free have
 * returned, no event of an earlier arming is polled: what `user` points to may be freed. Events that tb_poll has put into an
 * array before are the caller's: a loop over them that frees something makes sure that no later event of the array has it.
 *
 * THREADS
 *
 * - Any function may be called from any thread, and from a callback, but: a handle is freed once, and while no other call has
 *   it; and callbacks of tb_engine_advance neither advance the engine nor free it (TB_BUSY).
 * - Calls for one timer from several threads take effect in some order. Callbacks of one timer, and runs of one task, never
 *   overlap; those of different ones do, on several threads.
 * - A callback must not wait for another callback of its engine. Where it runs inline, what would wait is refused (TB_BUSY).
 * - A callback returns: it must not leave by a C++ exception or longjmp, nor end its thread.
 * - What `user` points to is the caller's: it must live as long as the callback may be called, and be safe to use where it is.
 * - What happened before a call that schedules or arms is seen by its callback, and by the thread that polls its event.
 * - The engine's threads have the signal mask of the thread that makes it: block what they are not to handle.
 * - The threads of an engine that was freed in a callback end by themselves, soon. So the shared library stays loaded: dlclose
 *   leaves it where it is (Linux).
 *
 * FORK AND DAEMONS
 *
 * A child process has the memory of its parent and none of its threads. There every call with a handle that was made before
 * the fork fails with TB_FORKED; only the calls that free return TB_OK, and leave the memory alone. The child may create
 * engines of its own. So a daemon forks first and creates its engine afterwards:
 *
 *   if (daemon(0, 0) != 0) { return 1; }         forks, and ends the parent
 *   status = tb_engine_create(NULL, &engine);    in the process that stays
 *
 * WHO FREES WHAT
 *
 * tb_engine_free, tb_timer_free and tb_task_free free what tb_engine_create, tb_timer_create and tb_every gave. Timers and
 * tasks may be freed after their engine. Strings and the descriptor are the library's. Keys are copied. The
 * key in a polled event is the library's, until the thread polls again. Nothing else is owned.
 *
 * ERRORS
 *
 * Each function returns a tb_status: TB_OK, which is 0, or a negative number; tb_last_error then says what was wrong, for this
 * thread. Results come through pointers, which are written only with TB_OK. Pointers are checked for NULL. A library that was
 * built with debug assertions tells a handle that was freed before, or never was one, for as long as the process lives
 * (TB_STALE); otherwise, as ever in C, that is undefined. No panic leaves the library (TB_PANIC).
 *
 * The library allocates memory, and no function reports that there is none left: the process is aborted then.
 *
 * TIME
 *
 * Nanoseconds: delays from now, deadlines on the engine's clock (tb_now), which counts from one origin for all engines of
 * the process. Deadlines are rounded up to a tick. UINT64_MAX is never.
 *
 * Never early is meant by the engine's clock, options.clock: CLOCK_MONOTONIC unless another one was chosen. When a callback
 * begins or an event is polled, clock_gettime of that clock has moved on by the delay or more since the call that scheduled.
 * CLOCK_MONOTONIC stands still while the machine is suspended; with TB_CLOCK_BOOT the time of a suspend counts.
 *
 * TO BUILD
 *
 *   crates/c/install.sh --prefix /usr/local
 *   cc prog.c $(pkg-config --cflags --libs tourbillon)
 *
 * The crate's README has CMake, the static library and cargo-c.
 *
 * LATER VERSIONS
 *
 * TB_VERSION is the version of this header, tb_version that of the library. tb_options and tb_stats have a size, and grow;
 * tb_event, which lies in arrays, has reserved words, and does not. Numbers of enums stay, and new ones may come.
 *
 * THREADSANITIZER
 *
 * It does not see the atomics of a library that was not built with it, and reports the memory behind `user` as a data race.
 * Define TB_TSAN before including this header, in every file that includes it, and the hand-overs of `user` are annotated.
 * It is for the shared library: the sanitizer cannot tell memory of the static one from the program's own.
 *
 *   cc -fsanitize=thread -DTB_TSAN -g prog.c $(pkg-config --cflags --libs tourbillon)
 *
 * A PROGRAM
 *
 *   #include <stdio.h>
 *   #include <tourbillon.h>
 *
 *   static void timed_out(void *user, const tb_event *event) {
 *       printf("%s timed out, %llu ns late\n", (const char *)user, (unsigned long long)event->lateness_ns);
 *   }
 *
 *   int main(void) {
 *       tb_engine *engine;
 *       if (tb_engine_create(NULL, &engine) != TB_OK) {
 *           fprintf(stderr, "%s\n", tb_last_error());
 *           return 1;
 *       }
 *       static char request[] = "request 17";
 *       uint64_t id;
 *       tb_outcome outcome;
 *       tb_schedule(engine, UINT64_C(30000000000), timed_out, request, &id);
 *       tb_cancel(engine, id, &outcome); // the answer came: TB_CANCELLED
 *       tb_engine_free(engine);
 *       return 0;
 *   }
 */

#ifndef TOURBILLON_H
#define TOURBILLON_H

#include <stddef.h>
#include <stdint.h>

// The version of this header; `tb_version` is that of the library.
#define TB_VERSION_MAJOR 0
#define TB_VERSION_MINOR 1
#define TB_VERSION_PATCH 0
#define TB_VERSION "0.1.0"

struct tb_event;

// What is called when a timer is due: with the `user` that it was given, and an event that lives as long as the call.
typedef void (*tb_callback)(void *user, const struct tb_event *event);

// A tb_options with all defaults.
#define TB_OPTIONS_INIT { sizeof(tb_options), 0, 0, 0, 0, 0, TB_POOL, TB_PINNED, TB_CLOCK_MONOTONIC }

// How a call ended. The numbers are stable; later versions may add some.
typedef enum tb_status {
    // It did what it is for.
    TB_OK = 0,
    // A pointer is null that must not be.
    TB_NULL = -1,
    // An argument is out of its bounds; the message says which.
    TB_INVALID = -2,
    // A key is not UTF-8.
    TB_NOT_UTF8 = -3,
    // The engine's capacity of timers is used up.
    TB_FULL = -4,
    // The call would have had to wait where it might wait for itself: in a callback that runs inline, or on a driven engine,
    // with the lane to the shard full; or in a callback of the `tb_engine_advance` that it would start again.
    TB_BUSY = -5,
    // The engine was shut down.
    TB_SHUT_DOWN = -6,
    // The one-shot is not pending: it has fired, its callback runs, or it was cancelled.
    TB_NOT_PENDING = -7,
    // A handle was freed before, or never was one. Debug builds of the library return this; in others such a call is undefined.
    TB_STALE = -8,
    // The engine delivers otherwise: there is nothing to poll, or nothing to advance.
    TB_WRONG_MODE = -9,
    // This system has no such thing.
    TB_UNSUPPORTED = -10,
    // The system refused a thread or a descriptor.
    TB_SYSTEM = -11,
    // A bug of the library: a panic was caught. The engine may be used no further than to be freed.
    TB_PANIC = -12,
    // The engine was made before a fork, and this is the child: the engine's threads are in the parent process.
    TB_FORKED = -13,
} tb_status;

// What became of what was to be cancelled.
typedef enum tb_outcome {
    // It was pending: its callback has not begun and does not, and no event of it is polled.
    TB_CANCELLED = 1,
    // Its callback has begun and may not have returned. Never where events are polled.
    TB_RUNNING = 2,
    // It was not pending. Of a one-shot: it has fired, or was cancelled before; where events are polled its event was polled,
    // or will be. Of a timer or a task: it was at rest or had ended, and no callback of it runs.
    TB_GONE = 3,
} tb_outcome;

// The clock that deadlines are read on.
typedef enum tb_clock {
    // The system's monotonic clock (`CLOCK_MONOTONIC`), read in the cheapest way that the machine has.
    TB_CLOCK_MONOTONIC = 0,
    // The system's monotonic clock, asked for each time.
    TB_CLOCK_SYSTEM = 1,
    // `CLOCK_BOOTTIME`, which goes on while the machine is suspended: what came due meanwhile fires within a second of the
    // resume. Linux only: elsewhere `TB_UNSUPPORTED`.
    TB_CLOCK_BOOT = 2,
} tb_clock;

// Where a callback runs.
typedef enum tb_delivery {
    // On one of the engine's threads.
    TB_POOL = 0,
    // On the thread of the shard: for callbacks that only wake or enqueue something. A slow one holds up its whole shard.
    TB_INLINE = 1,
    // Nowhere: what is due becomes an event for `tb_poll`.
    TB_POLLED = 2,
} tb_delivery;

// What becomes of the shards' threads.
typedef enum tb_pinning {
    // Each is pinned to a core that the process may use.
    TB_PINNED = 0,
    // They are left to the system's scheduler.
    TB_UNPINNED = 1,
} tb_pinning;

// An engine: its wheels, its threads, and what is scheduled on them.
typedef struct tb_engine tb_engine;

// A periodic task.
typedef struct tb_task tb_task;

// An owned timer, armed and disarmed any number of times: one for each connection, re-armed with each message.
typedef struct tb_timer tb_timer;

// How an engine is to be. 0 is the default of every field but `size`; begin with `TB_OPTIONS_INIT`.
typedef struct tb_options {
    // `sizeof(tb_options)`: later versions may add fields.
    size_t size;
    // The length of a tick, the resolution of deadlines: 1 us to 1 h, by default 1 ms.
    uint64_t tick_ns;
    // How many timers a thread may be ahead of its shard before it waits or is refused: 64 to 2^32, by default 65,536.
    uint64_t lane_capacity;
    // How many shards: wheels, each with a thread of its own. 1 to 1,024, by default one for each core.
    uint32_t shards;
    // How many workers `TB_POOL` has: 1 to 1,024, by default as many as shards.
    uint32_t workers;
    // How many timers may be pending: by default 16,777,216.
    uint32_t capacity;
    // A `tb_delivery`.
    uint32_t delivery;
    // A `tb_pinning`.
    uint32_t pinning;
    // A `tb_clock`. A driven engine has a clock of its own instead.
    uint32_t clock;
} tb_options;

// A timer that is due. Events lie in the caller's arrays, so this struct keeps its size: what later versions add takes the
// place of reserved words.
typedef struct tb_event {
    // What was given with it. The library does not call it for polled events; the polling thread may.
    tb_callback callback;
    // What was given with it.
    void *user;
    // Of a one-shot, the id that `tb_schedule` gave. 0 of what has a handle or a key.
    uint64_t id;
    // The moment that it was for, on the engine's clock.
    uint64_t deadline_ns;
    // How long after that the callback began, or the event was polled.
    uint64_t lateness_ns;
    // The instants of a periodic task that it stands for: more than 1 when some were missed, or not polled in time. Of
    // everything else 1.
    uint64_t count;
    // The key of a one-shot that was scheduled by one; otherwise NULL. It lives as long as the call that shows the event. In a
    // polled event it lives until the thread that polled it calls `tb_poll` again, for whichever engine.
    const char *key;
    // 0. Later versions may give a meaning to them, in which 0 says nothing.
    uint64_t reserved[5];
} tb_event;

// A snapshot of an engine's counters. Counters are read one after the other while the engine goes on, so they may disagree by
// what happened meanwhile. At rest they are exact: scheduled = cancelled + fired + returned + pending.
typedef struct tb_stats {
    // `sizeof(tb_stats)`, set by the caller: later versions may add fields.
    size_t size;
    // One-shots scheduled, rescheduled ones again; those by key among them.
    uint64_t scheduled;
    // One-shots cancelled, rescheduled and replaced ones included.
    uint64_t cancelled;
    // One-shots that fired.
    uint64_t fired;
    // One-shots returned by the shutdown.
    uint64_t returned;
    // One-shots that wait for their deadline or for a worker.
    uint64_t pending;
    // Timers and periodic tasks that there are.
    uint64_t timers_alive;
    // How often they fired.
    uint64_t timers_fired;
    // Armings that posted a ticket to a shard.
    uint64_t timers_posted;
    // Tickets in the wheels, those of ended timers included.
    uint64_t tickets;
    // Times that a shard slept and woke.
    uint64_t wakes;
    // Chunks of due timers that no worker has begun: grows when workers fall behind.
    uint64_t queued_chunks;
    // How long after their deadlines half of the callbacks began, or events were queued.
    uint64_t lateness_p50_ns;
    // 99 of 100.
    uint64_t lateness_p99_ns;
    // 999 of 1,000.
    uint64_t lateness_p999_ns;
    // All of them.
    uint64_t lateness_max_ns;
} tb_stats;

// A function of the sanitizer's.
typedef void (*tb_annotation)(void *address);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library that the program runs with, such as "0.1.0"; `TB_VERSION` is that of the header. A constant.
const char *tb_version(void);

// The message of the last call of this thread that failed: UTF-8, valid until the next call of this thread. Empty if none
// has.
const char *tb_last_error(void);

// The name of a status, as in this header: a constant.
const char *tb_status_name(int32_t status);

// Makes an engine and starts its threads, which have the calling thread's signal mask. NULL for all defaults.
enum tb_status tb_engine_create(const struct tb_options *options, struct tb_engine **engine);

// Makes an engine without threads on a clock of its own, which begins at 0 and moves with `tb_engine_advance`: for tests.
// Callbacks run in that call.
enum tb_status tb_engine_create_driven(const struct tb_options *options,
                                       struct tb_engine **engine);

// Moves the time of a driven engine on, stopping at each tick at which something is due.
enum tb_status tb_engine_advance(const struct tb_engine *engine, uint64_t by_ns);

// The present moment on the engine's clock. It counts from one origin for all engines of the process; that of a driven
// engine starts at 0.
enum tb_status tb_now(const struct tb_engine *engine,
                      uint64_t *now_ns);

// Ends an engine: refuses what is new, waits for callbacks that run, and gives back each one-shot that has not fired, keyed
// ones included, to `unfired`, which is called here with its `user` and an event with its callback. `unfired` may be NULL, and
// so may `count`, which gets their number. Timers and tasks are at rest, their handles are to be freed as ever; events that
// wait may be polled. A second shutdown waits for the first and gives nothing back. In a callback of this engine nothing is
// waited for.
enum tb_status tb_engine_shutdown(const struct tb_engine *engine,
                                  tb_callback unfired,
                                  uint64_t *count);

// Shuts an engine down, if that has not been done, and frees it; events that were not polled are dropped, and its descriptor is
// closed once its timers are freed too. Not to be called while another thread uses the engine, nor in a callback of
// `tb_engine_advance`. Its timers and tasks may be freed afterwards. In a child process nothing is freed.
enum tb_status tb_engine_free(struct tb_engine *engine);

// Has `callback` called with `user`, once, `delay_ns` from now or later; never earlier. 0 is due when the present tick ends,
// and `UINT64_MAX` never. `id` may be NULL; ids are never 0. What is refused is not called.
enum tb_status tb_schedule(const struct tb_engine *engine,
                           uint64_t delay_ns,
                           tb_callback callback,
                           void *user,
                           uint64_t *id);

// As `tb_schedule`, for a moment on the engine's clock, which is not read: for a loop that knows the time by `tb_now`.
enum tb_status tb_schedule_at(const struct tb_engine *engine,
                              uint64_t deadline_ns,
                              tb_callback callback,
                              void *user,
                              uint64_t *id);

// Takes a one-shot back. `outcome` may be NULL. After `TB_CANCELLED`, `user` is the caller's again.
enum tb_status tb_cancel(const struct tb_engine *engine, uint64_t id, enum tb_outcome *outcome);

// As `tb_cancel`, but waits until a callback that has begun has returned: it never says `TB_RUNNING`, except in a callback of
// this engine, where it does not wait for fear of waiting for itself.
enum tb_status tb_cancel_and_wait(const struct tb_engine *engine,
                                  uint64_t id,
                                  enum tb_outcome *outcome);

// Moves a pending one-shot to `delay_ns` from now, under a new id, put into `new_id`; the old one is stale. With
// `TB_SHUT_DOWN` it was cancelled, and with any other failure it is as it was.
enum tb_status tb_reschedule(const struct tb_engine *engine,
                             uint64_t id,
                             uint64_t delay_ns,
                             uint64_t *new_id);

// Schedules a one-shot under a key: UTF-8, ended by a NUL, copied. One that the key has is replaced, and its `user` is put into
// `replaced`, which may be NULL and otherwise gets NULL if there was none.
enum tb_status tb_schedule_keyed(const struct tb_engine *engine,
                                 const char *key,
                                 uint64_t delay_ns,
                                 tb_callback callback,
                                 void *user,
                                 void **replaced);

// Moves the pending one-shot of a key to `delay_ns` from now. Fails with `TB_NOT_PENDING` when the key has none. With any
// other failure the one-shot is as it was.
enum tb_status tb_reschedule_keyed(const struct tb_engine *engine,
                                   const char *key,
                                   uint64_t delay_ns);

// Cancels the one-shot of a key. `TB_CANCELLED`: it was pending, and its `user` is put into `user`. Otherwise `user` gets NULL:
// `TB_RUNNING` while a callback of the key runs, and `TB_GONE` when the key has none, or its event was or will be polled. A key
// that was scheduled again while its callback runs has one that is pending. `outcome` and `user` may be NULL.
enum tb_status tb_cancel_keyed(const struct tb_engine *engine,
                               const char *key,
                               enum tb_outcome *outcome,
                               void **user);

// As `tb_cancel_keyed`, but waits until the callbacks of the key that have begun have returned, also when it says
// `TB_CANCELLED`. It never says `TB_RUNNING`, except in a callback of this engine, where it does not wait for fear of waiting
// for itself.
enum tb_status tb_cancel_keyed_and_wait(const struct tb_engine *engine,
                                        const char *key,
                                        enum tb_outcome *outcome,
                                        void **user);

// Makes a timer, which is not armed. `tb_timer_free` frees it, before or after the engine.
enum tb_status tb_timer_create(const struct tb_engine *engine,
                               tb_callback callback,
                               void *user,
                               struct tb_timer **timer);

// What `tb_timer_create` was given as `user`.
enum tb_status tb_timer_user(const struct tb_timer *timer, void **user);

// Arms a timer: it is due `delay_ns` from now, or later; never earlier. One that is armed gets the new deadline instead of
// the old one, and of one that is due and was not polled the event is withdrawn. A callback for an earlier deadline may have
// begun; the timer is due again once it has returned. Fails after a shutdown.
enum tb_status tb_timer_arm(const struct tb_timer *timer,
                            uint64_t delay_ns);

// As `tb_timer_arm`, for a moment on the engine's clock, which is not read: for a loop that knows the time by `tb_now`.
enum tb_status tb_timer_arm_at(const struct tb_timer *timer,
                               uint64_t deadline_ns);

// Disarms a timer; it may be armed again. `outcome` may be NULL.
enum tb_status tb_timer_disarm(const struct tb_timer *timer, enum tb_outcome *outcome);

// As `tb_timer_disarm`, but waits until a callback that has begun has returned: it never says `TB_RUNNING`, except in a
// callback of this engine, where it does not wait for fear of waiting for itself.
enum tb_status tb_timer_disarm_and_wait(const struct tb_timer *timer,
                                        enum tb_outcome *outcome);

// Disarms a timer and frees it. It may be called in the timer's own callback. One that runs elsewhere is not waited for: to
// free what `user` points to, call `tb_timer_disarm_and_wait` before. No event of it is polled afterwards.
enum tb_status tb_timer_free(struct tb_timer *timer);

// Starts a task that is due every `period_ns`, first one period from now, at a fixed rate: instants that were missed have
// no run of their own, but are counted in the next one's event, and so are those that nobody polled in time. With a NULL
// `task` it goes on until the shutdown.
enum tb_status tb_every(const struct tb_engine *engine,
                        uint64_t period_ns,
                        tb_callback callback,
                        void *user,
                        struct tb_task **task);

// Ends a task: no run of it begins any more, and no event of it is polled. `outcome` may be NULL.
enum tb_status tb_task_stop(const struct tb_task *task, enum tb_outcome *outcome);

// As `tb_task_stop`, but waits until a run that has begun has returned: it never says `TB_RUNNING`, except in a callback of
// this engine.
enum tb_status tb_task_stop_and_wait(const struct tb_task *task,
                                     enum tb_outcome *outcome);

// Ends a task as `tb_task_stop` does, and frees its handle, before or after the engine.
enum tb_status tb_task_free(struct tb_task *task);

// Takes up to `n` events, and puts their number into `count`. Fewer than `n` means that no more were there; there may be none
// although the descriptor was readable. It does not wait. It may be called from several threads: each event goes to one.
enum tb_status tb_poll(const struct tb_engine *engine,
                       struct tb_event *events,
                       size_t n,
                       size_t *count);

// A descriptor that is readable while there is something to poll, for `poll`, `epoll` and the like. It is the engine's: not to
// be read, written or closed. Level-triggered; with `EPOLLET`, poll until fewer than `n` events come. Linux only: elsewhere
// `TB_UNSUPPORTED`.
enum tb_status tb_event_fd(const struct tb_engine *engine,
                           int *fd);

// Fills `stats`, whose `size` the caller has set; what this version does not know is left as it was.
enum tb_status tb_engine_stats(const struct tb_engine *engine, struct tb_stats *stats);

// Used by this header under ThreadSanitizer, with `TB_TSAN`: the functions that the library annotates hand-overs with. The
// first call of a process counts.
void tb_annotate_with(tb_annotation acquire,
                      tb_annotation release);

// Used by this header under ThreadSanitizer, with `TB_TSAN`: annotates that `user` is handed over by the call that follows.
void tb_hand_over(void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef TB_TSAN

// See THREADSANITIZER above. The library does the rest. These calls are functions here, not macros with arguments: their
// arguments are evaluated once, and their addresses may be taken.

#ifdef __cplusplus
extern "C" {
#endif

void __tsan_acquire(void *address);
void __tsan_release(void *address);
const char *__tsan_default_suppressions(void);

// What the shared library allocates and frees itself is not reported. A program may have a function of its own instead.
__attribute__((weak)) const char *__tsan_default_suppressions(void) {
    return "called_from_lib:libtourbillon.so\n";
}

static inline tb_status tb_tsan_engine_create(const tb_options *options, tb_engine **engine) {
    tb_annotate_with(__tsan_acquire, __tsan_release);
    return tb_engine_create(options, engine);
}

static inline tb_status tb_tsan_engine_create_driven(const tb_options *options, tb_engine **engine) {
    tb_annotate_with(__tsan_acquire, __tsan_release);
    return tb_engine_create_driven(options, engine);
}

static inline tb_status tb_tsan_schedule(const tb_engine *engine, uint64_t delay_ns, tb_callback callback,
                                         void *user, uint64_t *id) {
    tb_hand_over(user);
    return tb_schedule(engine, delay_ns, callback, user, id);
}

static inline tb_status tb_tsan_schedule_at(const tb_engine *engine, uint64_t deadline_ns, tb_callback callback,
                                            void *user, uint64_t *id) {
    tb_hand_over(user);
    return tb_schedule_at(engine, deadline_ns, callback, user, id);
}

static inline void tb_tsan_hand_over(const tb_timer *timer) {
    void *user = NULL;
    if (tb_timer_user(timer, &user) == TB_OK) {
        tb_hand_over(user);
    }
}

static inline tb_status tb_tsan_timer_arm(const tb_timer *timer, uint64_t delay_ns) {
    tb_tsan_hand_over(timer);
    return tb_timer_arm(timer, delay_ns);
}

static inline tb_status tb_tsan_timer_arm_at(const tb_timer *timer, uint64_t deadline_ns) {
    tb_tsan_hand_over(timer);
    return tb_timer_arm_at(timer, deadline_ns);
}

#ifdef __cplusplus
}
#endif

#define tb_engine_create tb_tsan_engine_create
#define tb_engine_create_driven tb_tsan_engine_create_driven
#define tb_schedule tb_tsan_schedule
#define tb_schedule_at tb_tsan_schedule_at
#define tb_timer_arm tb_tsan_timer_arm
#define tb_timer_arm_at tb_tsan_timer_arm_at

#endif /* TB_TSAN */

#endif  /* TOURBILLON_H */
