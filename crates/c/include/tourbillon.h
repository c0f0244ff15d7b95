/* tourbillon: a timer engine for servers that arm a timeout for nearly everything and see nearly none of them fire.
 *
 * Generated from crates/c by its tests. Do not edit.
 *
 * OVERVIEW
 *
 * An engine has a timing wheel and a thread for each core. A one-shot (tb_schedule) calls back once; it is named by an
 * id, or by a key of the caller's (tb_schedule_keyed). A timer (tb_timer_create) has a handle, and is armed and
 * disarmed any number of times for a few nanoseconds: for example one for each connection. A periodic task (tb_every)
 * is due again and again. Nothing is due before its deadline.
 *
 * DELIVERY: options.delivery
 *
 *   TB_POOL     The callback is called on one of the engine's threads.
 *   TB_INLINE   The callback is called on the thread of a shard, where it must not be slow.
 *   TB_POLLED   No callback is called. Each due timer becomes an event, which tb_poll takes, and a descriptor
 *               (tb_event_fd) is readable while events wait. With an epoll loop, no code of the program runs on another
 *               thread.
 *
 * LOOPS OF THE PROGRAM: options.loops
 *
 * A server with an event loop on each core gives each loop a shard of the engine (tb_loop_create) in place of a thread.
 * Callbacks are called on the loop's thread, inside tb_loop_turn. With one loop this is a timing wheel without threads.
 *
 *   tb_loop_timeout(loop, now, &timeout);      when must I be awake? -1: until something happens
 *   epoll_wait(epoll, ready, 64, timeout);     tb_loop_fd is in the set: another thread has armed an earlier timer
 *   tb_now(engine, &now);
 *   ... handle the events: tb_timer_arm_at(timer, now + 5000000000), tb_timer_disarm ...
 *   tb_loop_turn(loop, now, 1024, NULL);       calls back the timers that are due at `now`
 *
 * A loop belongs to the thread that created it: other threads do not turn it (TB_WRONG_THREAD). Timers that this thread
 * schedules or arms go to its loop. Other threads schedule, arm, move and cancel as ever, and tb_schedule_on,
 * tb_reschedule_on and tb_timer_arm_on choose the loop. With the time that the loop has read, no call reads a clock.
 *
 * OUTCOMES OF A CANCEL
 *
 *                         TB_CANCELLED                          TB_RUNNING                    TB_GONE
 *   callbacks             it has not begun and does not         it has begun and may not      it was not pending
 *                                                               have returned; .._and_wait
 *                                                               waits for that
 *   events                an event that waits is not polled     never returned                it was not pending, or
 *                         any more                                                            its event was polled
 *
 * On the thread of its loop, outside of the callback itself, a cancel or a disarm never returns TB_RUNNING: a timer
 * that is due in the present turn, and whose callback has not begun, is cancelled as any other.
 *
 * So a one-shot ends in exactly one way: TB_CANCELLED, its callback or its event, or its return by tb_engine_shutdown;
 * then its `user` is the caller's again. After tb_timer_arm, tb_timer_disarm, tb_timer_free, tb_task_stop or
 * tb_task_free has returned, no later poll has an event of an earlier arming. If no other thread polls, the memory
 * behind `user` may be freed; a poll of another thread that has not returned yet may have taken the event (TB_GONE).
 * Events that tb_poll has put into an array before belong to the caller: a program that frees memory while it goes
 * through the array must make sure that no later event of the same array refers to that memory.
 *
 * THREADS
 *
 * - Any function may be called from any thread, and from a callback, with two exceptions. A handle is freed once, and
 *   while no other call uses it. Callbacks of tb_engine_advance neither advance the engine nor free it (TB_BUSY).
 * - Calls for one timer from several threads take effect in some order. Callbacks of one timer, and runs of one task,
 *   never overlap; those of different timers and tasks may run at the same time on several threads.
 * - A callback must not wait for another callback of its engine. In a callback that runs inline, a call that would wait
 *   is refused (TB_BUSY).
 * - A callback must return: it must not leave by a C++ exception or longjmp, nor end its thread.
 * - The memory behind `user` is the caller's: it must live as long as the callback may be called, and be safe to use on
 *   the thread of the callback.
 * - A callback sees everything that happened before the call that scheduled or armed its timer, and so does a thread
 *   that polls its event.
 * - The engine's threads have the signal mask of the thread that creates it: block the signals that they must not
 *   handle.
 * - Calls of one loop, which take a tb_loop, come from the thread that created the loop, and not from a callback of its
 *   turn (TB_BUSY). tb_loop_free may come from any thread. A loop may be freed before or after its engine.
 * - The threads of an engine that was freed in a callback end by themselves, soon after. So the shared library stays
 *   loaded: dlclose does not unmap it (Linux).
 *
 * FORK AND DAEMONS
 *
 * A child process has the memory of its parent and none of its threads. In the child, every call with a handle that was
 * made before the fork fails with TB_FORKED; only the calls that free return TB_OK, and leave the memory alone. The
 * child may create engines of its own. So a daemon forks first and creates its engine afterwards:
 *
 *   if (daemon(0, 0) != 0) { return 1; }         forks, and ends the parent
 *   status = tb_engine_create(NULL, &engine);    in the process that stays
 *
 * OWNERSHIP
 *
 * tb_engine_free, tb_timer_free, tb_task_free and tb_loop_free free the handles from tb_engine_create, tb_timer_create,
 * tb_every and tb_loop_create. Timers, tasks and loops may be freed after their engine. Strings and descriptors belong
 * to the library. Keys are copied.
 * The key in a polled event belongs to the library, and lives until the thread polls again. The caller owns nothing
 * else.
 *
 * ERRORS
 *
 * Each function returns a tb_status: TB_OK, which is 0, or a negative number. After a failure tb_last_error has the
 * reason, for this thread. Results come through pointers, which are written only with TB_OK. Pointers are checked for
 * NULL. A library that was built with debug assertions recognises a handle that was freed before, or never was one, for
 * as long as the process lives (TB_STALE); otherwise, as ever in C, the use of such a handle is undefined. No panic
 * leaves the library (TB_PANIC).
 *
 * The library allocates memory. No function reports that there is none left: the process is aborted then.
 *
 * TIME
 *
 * All times are in nanoseconds: delays from now, and deadlines on the engine's clock (tb_now), which counts from one
 * origin for all engines of the process. Deadlines are rounded up to a tick. UINT64_MAX is never.
 *
 * "Never early" is measured by the engine's clock, options.clock: CLOCK_MONOTONIC unless another clock was chosen. When
 * a callback begins or an event is polled, clock_gettime of that clock has advanced by the delay or more since the call
 * that scheduled. CLOCK_MONOTONIC stands still while the machine is suspended; with TB_CLOCK_BOOT the time of a suspend
 * counts.
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
 * TB_VERSION is the version of this header, tb_version that of the library. tb_options and tb_stats have a size, and
 * grow; tb_event, which lies in arrays, has reserved words, and does not grow. The numbers of enums stay, and new
 * numbers may come.
 *
 * THREADSANITIZER
 *
 * ThreadSanitizer does not see the atomics of a library that was not built with it, and reports the memory behind
 * `user` as a data race. Define TB_TSAN before including this header, in every file that includes it, and the
 * hand-overs of `user` are annotated. TB_TSAN works with the shared library only: the sanitizer cannot distinguish
 * memory of the static library from the program's own.
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

// The function that is called when a timer is due, with the timer's `user` and an event that lives as long as the call.
typedef void (*tb_callback)(void *user, const struct tb_event *event);

// The function that wakes a loop out of its poll: see tb_loop_wake_by.
typedef void (*tb_wake)(void *user);

// A tb_options with all defaults.
#define TB_OPTIONS_INIT { sizeof(tb_options), 0, 0, 0, 0, 0, TB_POOL, TB_PINNED, TB_CLOCK_MONOTONIC, 0, 0 }

// The result of a call. The numbers are stable; later versions may add more.
typedef enum tb_status {
    // The call succeeded.
    TB_OK = 0,
    // A pointer is null that must not be null.
    TB_NULL = -1,
    // An argument is out of its bounds; the message says which.
    TB_INVALID = -2,
    // A key is not UTF-8.
    TB_NOT_UTF8 = -3,
    // The engine has no slot for another timer that this thread could use: see `capacity` in `tb_options`.
    TB_FULL = -4,
    // The call cannot proceed now, for one of four reasons:
    //
    // - The calling thread's lane, which is its queue to a shard, is full, and the call must not wait for room. A call
    //   must not wait in a callback that runs inline (`TB_INLINE`) or in `tb_loop_turn`, nor on an engine from
    //   `tb_engine_create_driven`.
    // - A call of `tb_engine_advance` is under way, and this call would also advance the engine, or would free it.
    // - A call of `tb_loop_turn` is under way, and one of its callbacks uses the same loop.
    // - `tb_loop_create` got the index of a loop that was created before and not freed.
    TB_BUSY = -5,
    // The engine was shut down.
    TB_SHUT_DOWN = -6,
    // The one-shot is not pending: it has fired, its callback runs, or it was cancelled.
    TB_NOT_PENDING = -7,
    // The handle was freed before, or the pointer was never a handle. Only a library that was built with debug
    // assertions detects this. In any other library, the behaviour of such a call is undefined.
    TB_STALE = -8,
    // The engine was not created in the way that the call needs: with `TB_POLLED`, by `tb_engine_create_driven`, or
    // with `options.loops`.
    TB_WRONG_MODE = -9,
    // This system lacks a facility that the call needs, such as `eventfd` or `CLOCK_BOOTTIME`.
    TB_UNSUPPORTED = -10,
    // The system refused to start a thread or to create a descriptor.
    TB_SYSTEM = -11,
    // A panic was caught, which is a bug of the library. The program must not use the engine any more, except to free
    // it.
    TB_PANIC = -12,
    // The engine was made before a fork, and this process is the child: the engine's threads are in the parent
    // process.
    TB_FORKED = -13,
    // The loop belongs to another thread: the thread that called `tb_loop_create`.
    TB_WRONG_THREAD = -14,
} tb_status;

// The outcome of a cancel, a disarm or a stop.
typedef enum tb_outcome {
    // The one-shot, timer or task was pending: its callback has not begun and will not begin, and no event of it is
    // polled.
    TB_CANCELLED = 1,
    // The callback of the one-shot, timer or task has begun, and may not have returned. An engine whose events are
    // polled never returns this outcome.
    TB_RUNNING = 2,
    // Nothing was pending. A one-shot has fired, or was cancelled before. A timer was not armed, or a task had ended,
    // and no callback of the timer or task runs. On an engine whose events are polled, this outcome may also mean that
    // the event was polled, perhaps by another thread at this moment.
    TB_GONE = 3,
} tb_outcome;

// The clock by which deadlines are measured.
typedef enum tb_clock {
    // The system's monotonic clock (`CLOCK_MONOTONIC`), read in the cheapest way that the machine has.
    TB_CLOCK_MONOTONIC = 0,
    // The system's monotonic clock, read by a call to the system each time.
    TB_CLOCK_SYSTEM = 1,
    // `CLOCK_BOOTTIME`, which counts the time of a suspend. A timer that became due during a suspend fires within a
    // second of the resume. Linux only: elsewhere `TB_UNSUPPORTED`.
    TB_CLOCK_BOOT = 2,
} tb_clock;

// How due timers reach the program: by callbacks or as events.
typedef enum tb_delivery {
    // Callbacks run on the engine's worker threads.
    TB_POOL = 0,
    // Callbacks run on the threads of the shards. They should only wake a thread or enqueue an item, because a slow
    // callback delays its whole shard.
    TB_INLINE = 1,
    // No callbacks run. Each due timer becomes an event, and stays pending until `tb_poll` has taken its event.
    TB_POLLED = 2,
} tb_delivery;

// Whether the shards' threads are pinned to cores.
typedef enum tb_pinning {
    // Each thread is pinned to a core that the process may use.
    TB_PINNED = 0,
    // The system's scheduler places the threads.
    TB_UNPINNED = 1,
} tb_pinning;

// An engine: its wheels, its threads, and everything scheduled on them.
typedef struct tb_engine tb_engine;

// An event loop of the program. The loop runs one shard of its engine, by calls of `tb_loop_turn`.
typedef struct tb_loop tb_loop;

// A periodic task.
typedef struct tb_task tb_task;

// A timer that its handle owns, and that can be armed and disarmed any number of times. For example, a connection has
// one timer, and arms it again with each message.
typedef struct tb_timer tb_timer;

// The options of an engine. 0 means the default in every field but `size`; start with `TB_OPTIONS_INIT`.
typedef struct tb_options {
    // `sizeof(tb_options)`: later versions may add fields.
    size_t size;
    // The length of a tick in nanoseconds, which is the resolution of deadlines: 1 us to 1 h; by default 1 ms.
    uint64_t tick_ns;
    // The capacity of a lane, which is a thread's queue to a shard: the number of timers that the thread may schedule
    // or arm before the shard takes them from the lane. If the lane is full, the thread's calls wait or are refused.
    // From 64 to 2^32; by default 65,536. On an engine with two groups of timers (see `capacity`), each group has
    // lanes of its own.
    uint64_t lane_capacity;
    // The number of shards, each of them a wheel with a thread of its own: 1 to 1,024; by default one for each core.
    uint32_t shards;
    // The number of workers for `TB_POOL`: 1 to 1,024; by default as many as shards.
    uint32_t workers;
    // The number of slots for timers; by default 16,777,216. A one-shot has a slot while it is pending or
    // its callback runs. A timer or a periodic task has a slot from its creation on, armed or not. A one-shot that is
    // moved or replaced keeps its slot, unless its callback has begun. Each thread that uses the engine keeps vacant
    // slots in reserve for its next timers: up to 512, and at most 1/32 of the capacity. Other threads cannot use
    // these slots. So a call may fail with `TB_FULL` although fewer timers than the capacity exist.
    //
    // An engine with `TB_POLLED`, with `loops`, or from `tb_engine_create_driven` has two groups of timers: one-shots
    // by key together with periodic tasks, and everything else. `capacity` is then the limit of each group.
    uint32_t capacity;
    // How due timers reach the program: a value of `tb_delivery`.
    uint32_t delivery;
    // Whether the shards' threads are pinned to cores: a value of `tb_pinning`.
    uint32_t pinning;
    // The clock by which deadlines are measured: a value of `tb_clock`. An engine from `tb_engine_create_driven`
    // ignores this option, because it has a clock of its own.
    uint32_t clock;
    // The number of the program's own event loops that drive the engine by `tb_loop_turn`: 1 to 1,024. With loops, the
    // engine starts no threads, and has as many shards as loops; `shards` and `workers` must be 0, and `delivery` must
    // not be `TB_POLLED`. By default (0) there are no loops.
    uint32_t loops;
    // Must be 0.
    uint32_t reserved;
} tb_options;

// A timer that is due. Events lie in the caller's arrays, so this struct keeps its size: fields of later versions take
// the place of reserved words.
typedef struct tb_event {
    // The callback that was given with the timer. The library does not call it for polled events; the polling thread
    // may.
    tb_callback callback;
    // The `user` that was given with the timer.
    void *user;
    // For a one-shot, the id from `tb_schedule`. 0 for a timer or task with a handle, and for a one-shot with a key.
    uint64_t id;
    // The deadline, on the engine's clock.
    uint64_t deadline_ns;
    // The time from the deadline to the start of the callback, or to the poll.
    uint64_t lateness_ns;
    // For a periodic task, how many instants of the task this event counts. The first of these instants is
    // `deadline_ns`. The count is more than 1 if instants were missed, or were not polled in time. For everything
    // else, the count is 1.
    uint64_t count;
    // The key of a one-shot that was scheduled by key; otherwise NULL. The key that a callback gets is valid until the
    // callback returns. The key of a polled event is valid until the same thread calls `tb_poll` again, for any
    // engine.
    const char *key;
    // All 0. Later versions may give the words a meaning; 0 will then mean "not given".
    uint64_t reserved[5];
} tb_event;

// A snapshot of an engine's counters. The counters are read one after the other while the engine runs. So a one-shot
// that fires between two reads may be in two of the counters, or in none. While the engine is at rest, the counters
// are exact: scheduled = cancelled + fired + returned + pending.
//
// An engine with `TB_POLLED`, with `options.loops`, or from `tb_engine_create_driven` has two groups of timers:
// one-shots by key together with periodic tasks, and everything else. On such an engine, each percentile of the
// lateness is measured for each group by itself, and the snapshot has the larger of the two values. The same holds for
// the largest lateness.
typedef struct tb_stats {
    // `sizeof(tb_stats)`, set by the caller: later versions may add fields.
    size_t size;
    // One-shots scheduled, by id or by key. A rescheduled one-shot counts again.
    uint64_t scheduled;
    // One-shots that were cancelled, rescheduled or replaced.
    uint64_t cancelled;
    // One-shots that fired.
    uint64_t fired;
    // One-shots that had not fired, and that `tb_engine_shutdown` has returned to the program.
    uint64_t returned;
    // One-shots that have not fired: they wait for their deadline, for a worker or for a poll.
    uint64_t pending;
    // Timers and periodic tasks that exist.
    uint64_t timers_alive;
    // Firings of timers and periodic tasks.
    uint64_t timers_fired;
    // Armings that sent a message to a shard. Such a message is a ticket: it asks the shard to check the timer.
    uint64_t timers_posted;
    // Tickets in the timing wheels of the shards. Each ticket asks its shard to check a one-shot, a timer or a task at
    // some moment. Tickets of ended timers are included.
    uint64_t tickets;
    // How often a shard slept and woke.
    uint64_t wakes;
    // Chunks of due timers (up to 32 timers each) that wait because no worker and no poll has begun to fire them. The
    // number grows when the workers or polls fall behind.
    uint64_t queued_chunks;
    // The median lateness. A lateness is the time from the deadline to the start of the callback, or to the poll.
    uint64_t lateness_p50_ns;
    // The 99th percentile of the lateness.
    uint64_t lateness_p99_ns;
    // The 99.9th percentile of the lateness.
    uint64_t lateness_p999_ns;
    // The largest lateness.
    uint64_t lateness_max_ns;
} tb_stats;

// A function of ThreadSanitizer that annotates an address: `__tsan_acquire` or `__tsan_release`.
typedef void (*tb_annotation)(void *address);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library that the program runs with, such as "0.1.0". The string is a constant.
// `TB_VERSION` is the version of the header.
const char *tb_version(void);

// Returns the message of the last call of this thread that failed: UTF-8, valid until the next call of this thread.
// The message is empty if no call has failed.
const char *tb_last_error(void);

// Returns the name of a status, such as `TB_FULL`. The string is a constant.
const char *tb_status_name(int32_t status);

// Creates an engine and starts its threads, which get the calling thread's signal mask. If `options` is NULL, every
// option has its default.
enum tb_status tb_engine_create(const struct tb_options *options,
                                struct tb_engine **engine);

// Creates an engine without threads, for tests (a driven engine). Its clock starts at 0, and moves only while the
// program calls `tb_engine_advance`. Callbacks run inside `tb_engine_advance`, on the calling thread.
enum tb_status tb_engine_create_driven(const struct tb_options *options,
                                       struct tb_engine **engine);

// Advances the clock of an engine from `tb_engine_create_driven` by `by_ns`. The clock stops at each tick at which a
// timer is due, and the timer fires at that tick.
enum tb_status tb_engine_advance(const struct tb_engine *engine,
                                 uint64_t by_ns);

// Reads the engine's clock. The clock of an engine from `tb_engine_create_driven` starts at 0. The clocks of all other
// engines of the process count from the same origin.
enum tb_status tb_now(const struct tb_engine *engine,
                      uint64_t *now_ns);

// Shuts an engine down: refuses new timers, waits for running callbacks, and returns each one-shot that has not fired,
// with or without a key. A one-shot whose event has not been polled is also returned.
//
// For each returned one-shot, the shutdown calls `unfired` on this thread, with the one-shot's `user` and an event
// that has its callback. `unfired` may be NULL. `count` gets the number of returned one-shots, and may be NULL.
//
// Afterwards no event waits, and timers and tasks no longer fire. Their handles must still be freed. A second shutdown
// waits for the first and returns nothing. This does not hold if a callback makes one of the two shutdowns: they may
// run at the same time, and each of them may return some of the one-shots.
enum tb_status tb_engine_shutdown(const struct tb_engine *engine,
                                  tb_callback unfired,
                                  uint64_t *count);

// Shuts an engine down, if it was not shut down before, and frees it. One-shots that had not fired are dropped. The
// descriptor of `tb_event_fd` is closed once the engine's timers and tasks are freed too. Must not be called while
// another thread uses the engine, nor in a callback of `tb_engine_advance`. Timers and tasks of the engine may be
// freed afterwards. In the child of a fork, nothing is freed.
enum tb_status tb_engine_free(struct tb_engine *engine);

// Schedules a one-shot: `callback` is called once with `user`, no earlier than `delay_ns` from now. With a delay of 0,
// the one-shot is due at the end of the engine's present tick, whose length is `options.tick_ns`. With a delay of
// `UINT64_MAX`, it is never due. `id` gets the one-shot's id, which is never 0; `id` may be NULL. If this function
// fails, the callback is not called.
enum tb_status tb_schedule(const struct tb_engine *engine,
                           uint64_t delay_ns,
                           tb_callback callback,
                           void *user,
                           uint64_t *id);

// As `tb_schedule`, but `deadline_ns` is a time on the engine's clock instead of a delay. The function does not read
// the clock. So it is the cheaper choice for an event loop that has read the time with `tb_now`.
enum tb_status tb_schedule_at(const struct tb_engine *engine,
                              uint64_t deadline_ns,
                              tb_callback callback,
                              void *user,
                              uint64_t *id);

// Cancels a one-shot. `outcome` may be NULL. After `TB_CANCELLED`, the caller owns `user` again.
enum tb_status tb_cancel(const struct tb_engine *engine, uint64_t id, enum tb_outcome *outcome);

// As `tb_cancel`, but waits until a callback that has begun has returned. In a callback of this engine, in a turn of a
// loop and in the child of a fork it does not wait, and may return `TB_RUNNING`. Elsewhere it never returns
// `TB_RUNNING`.
enum tb_status tb_cancel_and_wait(const struct tb_engine *engine,
                                  uint64_t id,
                                  enum tb_outcome *outcome);

// Moves a pending one-shot to `delay_ns` from now. The one-shot gets a new id, which is put into `new_id`; the old id
// is stale. If the call fails with `TB_SHUT_DOWN`, the one-shot was cancelled; after any other failure it is as it
// was.
enum tb_status tb_reschedule(const struct tb_engine *engine,
                             uint64_t id,
                             uint64_t delay_ns,
                             uint64_t *new_id);

// Schedules a one-shot under a key. The key is UTF-8, ends with a NUL, and is copied. If a one-shot is pending under
// the key, the new one-shot replaces it in its slot, so that this also works on a full engine, and `replaced` gets the
// `user` of the old one-shot. Otherwise `replaced` gets NULL: no one-shot was pending, or its callback has begun and
// the key has two one-shots until that returns. The pointer `replaced` may itself be NULL.
enum tb_status tb_schedule_keyed(const struct tb_engine *engine,
                                 const char *key,
                                 uint64_t delay_ns,
                                 tb_callback callback,
                                 void *user,
                                 void **replaced);

// Moves the pending one-shot of a key to `delay_ns` from now, in its slot. Fails with `TB_NOT_PENDING` if the key has
// no pending one-shot, or if its callback has begun. After any other failure the one-shot is as it was.
enum tb_status tb_reschedule_keyed(const struct tb_engine *engine,
                                   const char *key,
                                   uint64_t delay_ns);

// Cancels the one-shot of a key. If the one-shot was pending, the outcome is `TB_CANCELLED`, and the pointer `user`
// gets the one-shot's `user`. With any other outcome, `user` gets NULL. `TB_RUNNING` means that a callback of the key
// runs. `TB_GONE` means that the key has no one-shot, or that the event of its one-shot was polled. A key may be
// scheduled again while its callback runs. Then the new one-shot is pending, and this call cancels it. `outcome` and
// `user` may be NULL.
enum tb_status tb_cancel_keyed(const struct tb_engine *engine,
                               const char *key,
                               enum tb_outcome *outcome,
                               void **user);

// As `tb_cancel_keyed`, but waits until all running callbacks of the key have returned, even if the outcome is
// `TB_CANCELLED`. In a callback of this engine, in a turn of a loop and in the child of a fork the call does not wait,
// and the outcome may be `TB_RUNNING`. Elsewhere it is never `TB_RUNNING`.
enum tb_status tb_cancel_keyed_and_wait(const struct tb_engine *engine,
                                        const char *key,
                                        enum tb_outcome *outcome,
                                        void **user);

// Creates a timer, which is not armed. `tb_timer_free` frees it, before or after the engine.
enum tb_status tb_timer_create(const struct tb_engine *engine,
                               tb_callback callback,
                               void *user,
                               struct tb_timer **timer);

// Gets the `user` that was given to `tb_timer_create`.
enum tb_status tb_timer_user(const struct tb_timer *timer, void **user);

// Arms a timer, which is then due no earlier than `delay_ns` from now. If the timer was armed already, the new
// deadline replaces the old deadline, even if the old deadline has passed and its event was not polled. If a callback
// for an earlier deadline has begun, the timer fires again for the new deadline, but not before that callback has
// returned. Fails after a shutdown.
enum tb_status tb_timer_arm(const struct tb_timer *timer,
                            uint64_t delay_ns);

// As `tb_timer_arm`, but `deadline_ns` is a time on the engine's clock instead of a delay. The function does not read
// the clock. So it is the cheaper choice for an event loop that has read the time with `tb_now`.
enum tb_status tb_timer_arm_at(const struct tb_timer *timer,
                               uint64_t deadline_ns);

// Disarms a timer. The timer may be armed again. `outcome` may be NULL.
enum tb_status tb_timer_disarm(const struct tb_timer *timer, enum tb_outcome *outcome);

// As `tb_timer_disarm`, but waits until a callback that has begun has returned. In a callback of this engine, in a
// turn of a loop and in the child of a fork it does not wait, and may return `TB_RUNNING`. Elsewhere it never returns
// `TB_RUNNING`.
enum tb_status tb_timer_disarm_and_wait(const struct tb_timer *timer,
                                        enum tb_outcome *outcome);

// Disarms a timer and frees it. The timer's own callback may call this function. The function does not wait for a
// callback that runs on another thread. So call `tb_timer_disarm_and_wait` before you free the memory behind `user`.
// The event of a freed timer is not polled any more.
enum tb_status tb_timer_free(struct tb_timer *timer);

// Starts a task that is due every `period_ns`, at a fixed rate. The moments at which the task is due are its instants,
// and the first of them is one period from now. An instant is missed if it comes before the callback for an earlier
// instant has returned, or before the event of an earlier instant was polled. A missed instant has no run of its own.
// The event of the next run counts it: the field `count` of an event is the number of instants that the event counts,
// and `deadline_ns` is the first of these instants. If `task` is NULL, the task goes on until the shutdown.
enum tb_status tb_every(const struct tb_engine *engine,
                        uint64_t period_ns,
                        tb_callback callback,
                        void *user,
                        struct tb_task **task);

// Stops a task: no run of it begins any more, and no event of it is polled. `outcome` may be NULL.
enum tb_status tb_task_stop(const struct tb_task *task, enum tb_outcome *outcome);

// As `tb_task_stop`, but waits until a run that has begun has returned. In a callback of this engine, in a turn of a
// loop and in the child of a fork it does not wait, and may return `TB_RUNNING`. Elsewhere it never returns
// `TB_RUNNING`.
enum tb_status tb_task_stop_and_wait(const struct tb_task *task,
                                     enum tb_outcome *outcome);

// Stops a task as `tb_task_stop` does, and frees its handle. A task may be freed before or after its engine.
enum tb_status tb_task_free(struct tb_task *task);

// Takes up to `n` events into `events`, and puts their number into `count`. If the number is less than `n`, no more
// events were waiting at that moment. There may be no event although the descriptor from `tb_event_fd` was readable.
// The call does not wait for events. Several threads may call it: each event goes to one of them. A timer is pending
// until its event is polled: the timer can be cancelled, moved or armed again.
//
// A shard hands over its due timers in batches. A batch has the timers that the shard has found due at once, 1,024 at
// most. While 128 batches of a shard wait for a poll, the shard holds further due timers back. When a poll has made
// room, the shard hands these timers over, too, and the descriptor becomes readable again.
enum tb_status tb_poll(const struct tb_engine *engine,
                       struct tb_event *events,
                       size_t n,
                       size_t *count);

// Gets a descriptor that is readable while events wait, for `poll`, `epoll` and the like. The descriptor belongs to
// the engine: do not read, write or close it. It is level-triggered. A program that watches it with `EPOLLET` must
// repeat `tb_poll` until a call takes fewer events than the array has room for. Linux only: elsewhere
// `TB_UNSUPPORTED`.
enum tb_status tb_event_fd(const struct tb_engine *engine,
                           int *fd);

// Creates one of the loops of an engine. `options.loops` of the engine is the number of its loops, and `index` is the
// number of this loop, counted from 0. The loop belongs to the calling thread: only this thread may call
// `tb_loop_turn` for it, and timers that this thread schedules or arms go to the loop's shard. If a thread has several
// loops of one engine, its timers go to the loop with the lowest index; when that loop is freed, they go to the next.
// If another thread frees it, this begins with the next turn of a loop on the owner's thread. Fails with `TB_BUSY` if
// a loop with this index was created and not freed. Timers may be pending at the shard already: they were scheduled
// before the shard's first loop, or for a loop that was freed. These timers fire when this loop turns.
enum tb_status tb_loop_create(const struct tb_engine *engine,
                              uint32_t index,
                              struct tb_loop **event_loop);

// Gets a descriptor that becomes readable when another thread arms a timer for an earlier moment than
// `tb_loop_next_deadline` gave. The loop must then call `tb_loop_turn`. The descriptor belongs to the loop: do not
// read, write or close it. `tb_loop_turn` makes it unreadable. Linux only: elsewhere `TB_UNSUPPORTED`; see
// `tb_loop_wake_by`.
enum tb_status tb_loop_fd(const struct tb_loop *event_loop,
                          int *fd);

// Sets a function that wakes the loop in place of the descriptor of `tb_loop_fd`. It is for event libraries that have
// a wake-up call of their own, such as `uv_async_send`. If a thread arms a timer for an earlier moment than
// `tb_loop_next_deadline` gave, this thread calls the function, once for each such moment. The function must make the
// present or the next poll of the loop return at once, must not block, and must not use this loop. If the poll does
// not return, the timer is not lost: it fires in the first turn of the loop after its deadline. Threads may call the
// function until `tb_loop_free` has returned. There is one exception: a thread that is arming a timer while the loop
// is freed may call the function shortly after `tb_loop_free` has returned.
enum tb_status tb_loop_wake_by(const struct tb_loop *event_loop,
                               tb_wake wake,
                               void *user);

// Gets the latest moment, on the engine's clock, at which the program must call `tb_loop_turn`. The moment is in the
// past if the loop must turn at once, and `UINT64_MAX` if nothing is pending. It may be the deadline of a timer that
// was cancelled or disarmed: a program that ends when nothing is pending counts its timers itself. Call
// `tb_loop_next_deadline` or `tb_loop_timeout` before each poll, after the last call that arms a timer.
enum tb_status tb_loop_next_deadline(const struct tb_loop *event_loop,
                                     uint64_t *deadline_ns);

// As `tb_loop_next_deadline`, but gives a timeout for `poll` or `epoll_wait` that counts from `now_ns`: in
// milliseconds, rounded up, and -1 if nothing is pending. `epoll_pwait2` takes finer timeouts. If slow callbacks have
// run since `now_ns` was read, read the clock again. Otherwise the poll ends too late, because the timeout then
// includes the time that the callbacks took.
enum tb_status tb_loop_timeout(const struct tb_loop *event_loop,
                               uint64_t now_ns,
                               int *timeout_ms);

// Fires the timers that are due at `now_ns`: calls their callbacks on this thread. One such call is a turn of the
// loop. A turn fires or moves at most `budget` timers, or a few dozen more; a budget of 0 counts as 1. One-shots by
// key and periodic tasks are counted separately, with a budget of the same size. `more` gets 1 if work is left, and 0
// otherwise. `more` may be NULL, since `tb_loop_next_deadline` gives a moment in the past while work is left. A turn
// at which nothing is due takes no lock.
//
// A one-shot is due by `now_ns` alone. A timer is due only if the engine's clock has also reached its deadline.
// `now_ns` may be less than in an earlier turn. Then no timer becomes due in this turn, nor in the next turns, until
// `now_ns` has reached its value from the earlier turn again. A callback may use the engine, but must not use this
// loop (`TB_BUSY`).
enum tb_status tb_loop_turn(const struct tb_loop *event_loop,
                            uint64_t now_ns,
                            size_t budget,
                            int *more);

// Frees a loop. Any thread may free it while no other thread uses the loop. A callback that runs in a turn of this
// loop cannot free it: `tb_loop_free` then fails with `TB_BUSY`. The timers of the loop's shard stay pending until
// they are cancelled, or the shutdown returns them, or a new loop with the same index fires them. To move a loop to
// another thread, free it, and call `tb_loop_create` on the other thread. A loop may also be freed after
// `tb_engine_free`.
enum tb_status tb_loop_free(struct tb_loop *event_loop);

// As `tb_schedule_at`, but on the shard of loop `index`, whose thread calls the callback. Any thread may schedule in
// this way for another thread's loop.
enum tb_status tb_schedule_on(const struct tb_engine *engine,
                              uint32_t index,
                              uint64_t deadline_ns,
                              tb_callback callback,
                              void *user,
                              uint64_t *id);

// Moves a pending one-shot to the shard of loop `index` and to another deadline: see `tb_reschedule`.
enum tb_status tb_reschedule_on(const struct tb_engine *engine,
                                uint32_t index,
                                uint64_t id,
                                uint64_t deadline_ns,
                                uint64_t *new_id);

// As `tb_timer_arm_at`, but also moves the timer to the shard of loop `index`, whose thread calls the callback from
// then on. Use it when a connection moves to another loop. In two cases the timer is armed, but stays at its present
// shard: the timer's callback is running, or the shard's thread is checking at this moment whether the timer is due.
enum tb_status tb_timer_arm_on(const struct tb_timer *timer,
                               uint32_t index,
                               uint64_t deadline_ns);

// Fills `stats`, whose `size` the caller has set. Bytes beyond the fields that this version knows are left as they
// were.
enum tb_status tb_engine_stats(const struct tb_engine *engine,
                               struct tb_stats *stats);

// Sets the functions of ThreadSanitizer with which the library annotates hand-overs of `user` pointers between
// threads. The header `tourbillon.h` calls this function if `TB_TSAN` is defined. Only the first call of a process has
// an effect.
void tb_annotate_with(tb_annotation acquire,
                      tb_annotation release);

// Annotates for ThreadSanitizer that the caller's next call of a function of this library hands `user` over to another
// thread. The header `tourbillon.h` calls this function if `TB_TSAN` is defined.
void tb_hand_over(void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef TB_TSAN

// See THREADSANITIZER above. The library annotates the other calls. These calls are functions here, not macros with
// arguments: their arguments are evaluated once, and their addresses may be taken.

#ifdef __cplusplus
extern "C" {
#endif

void __tsan_acquire(void *address);
void __tsan_release(void *address);
const char *__tsan_default_suppressions(void);

// Nothing that the shared library allocates and frees itself is reported. A program may have a function of its own
// instead.
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

static inline tb_status tb_tsan_schedule_on(const tb_engine *engine, uint32_t index, uint64_t deadline_ns,
                                            tb_callback callback, void *user, uint64_t *id) {
    tb_hand_over(user);
    return tb_schedule_on(engine, index, deadline_ns, callback, user, id);
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

static inline tb_status tb_tsan_timer_arm_on(const tb_timer *timer, uint32_t index, uint64_t deadline_ns) {
    tb_tsan_hand_over(timer);
    return tb_timer_arm_on(timer, index, deadline_ns);
}

#ifdef __cplusplus
}
#endif

#define tb_engine_create tb_tsan_engine_create
#define tb_engine_create_driven tb_tsan_engine_create_driven
#define tb_schedule tb_tsan_schedule
#define tb_schedule_at tb_tsan_schedule_at
#define tb_schedule_on tb_tsan_schedule_on
#define tb_timer_arm tb_tsan_timer_arm
#define tb_timer_arm_at tb_tsan_timer_arm_at
#define tb_timer_arm_on tb_tsan_timer_arm_on

#endif /* TB_TSAN */

#endif  /* TOURBILLON_H */
