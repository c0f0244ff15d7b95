// The cost of timers in an event loop: a loop of tourbillon (options.loops) and an engine that is polled (TB_POLLED),
// beside libuv and libevent, in one process, each with the time that its loop has cached.
//
//   cargo build --release -p tourbillon-c
//   cd crates/c
//   peers="$(pkg-config --cflags --libs libuv libevent)"
//   cc -O2 benches/peers.c -I include ../../target/release/libtourbillon_c.a $peers -lpthread -ldl -lm -o peers
//   cc -O2 benches/peers.c $(pkg-config --cflags --libs tourbillon) $peers -o peers     the installed, shared library
//   ./peers [rounds [row]]     9 rounds of all rows; ./peers quick has tiny sizes, and shows only that it works
//   ./peers turn loops libuv '{"timers":1000000,"operations":4000000}'
//                              one round of one contestant (loop, polled, libuv, libevent, common), for the benchmark
//                              book: the figures of the rows arm, arm100k, among and refresh as JSON
//
// All contestants take turns in each round, and each round begins with another contestant. A figure is the median of
// the rounds, with the least and the largest. Each contestant checks what its calls did; the program ends with 1 if a
// check fails. The operations of the first rows come in groups of 64, as the events of one poll do. Between groups each
// loop reads its clock anew; tourbillon's loop also turns and asks for its next deadline there, which its program must
// do. libuv and libevent get no counterpart of that: their loops would make a call to the system, which has nothing to
// do with timers. libevent's operations run in a callback, because it caches the time only there, and it locks nothing.
// A libuv handle and a libevent event are initialised once and used again, also where tourbillon schedules one-shots.
//
//   row        operation
//   arm        One timer: arm it for 5 s, and disarm it.
//   arm100k    The same while 100,000 other timers are pending, due in 100 to 200 s.
//   shot       A one-shot in 5 s, before the million others that are pending, due in 100 to 200 s: schedule and
//              cancel.
//   among      A one-shot in 100 to 200 s among a million others like it: schedule and cancel.
//   refresh    One timer of a million, at random, each armed for 100 s: arm it for 101 s.
//   turn       Of tourbillon alone: a turn at which nothing is due, and the next deadline, as after a poll for a
//              packet.
//   expiry     A million timers that are due within 2 s, in random order: the CPU time of the process from the first
//              deadline to the last callback, and the lateness by CLOCK_MONOTONIC. Each callback writes one random
//              word.
//
// "libevent, common" uses event_base_init_common_timeout, a queue for all timers of one length. It cannot take part
// where the lengths differ.

#include <event2/event.h>
#include <event2/event_struct.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tourbillon.h>
#include <uv.h>

#define SECOND UINT64_C(1000000000)
#define MS UINT64_C(1000000)
#define GROUP 64
#define MOST_ROUNDS 99

static size_t many = 1000000, some = 100000;
static uint64_t operations = 4000000, spread = 2 * SECOND;

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static uint64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t random_of(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// A number below `count`. A division in its place would keep the processor from beginning the next operation's loads.
static size_t below(uint64_t *state, size_t count) {
    __extension__ typedef unsigned __int128 wide;
    return (size_t)(((wide)random_of(state) * count) >> 64);
}

// 100 to 200 s.
static uint64_t far_ns(uint64_t *state) {
    return 100 * SECOND + random_of(state) % (100 * SECOND);
}

// The work of a row, for the first rows: `before` the timing, and 64 operations at a time.
struct row {
    const char *name, *unit;
    size_t pending;      // Timers that are pending.
    int is_shot;         // One-shots rather than one timer.
    int is_uniform;      // The length of the operation's timer is like that of the pending timers.
    int is_refresh;
    uint64_t length_ns;  // Otherwise this length.
    int is_turn;         // Turns, and no timers.
};

static const struct row rows[] = {
    {"arm", "ns", 0, 0, 0, 0, 5 * SECOND, 0},      {"arm100k", "ns", 1, 0, 0, 0, 5 * SECOND, 0},
    {"shot", "ns", 2, 1, 0, 0, 5 * SECOND, 0},     {"among", "ns", 2, 1, 1, 0, 0, 0},
    {"refresh", "ns", 2, 0, 0, 1, 101 * SECOND, 0}, {"turn", "ns", 1, 0, 0, 0, 0, 1},
};

static size_t pending_of(const struct row *row) {
    return row->pending == 0 ? 0 : row->pending == 1 ? some : many;
}

struct contestant {
    const char *key, *name;
    int is_common; // Only for timers of one length.
    void *(*set_up)(const struct row *row);
    void (*run)(void *state, const struct row *row); // All operations.
    void (*tear_down)(void *state, const struct row *row);
    void (*expire)(void); // The row `expiry`.
};

// --- The timers of the row `expiry` ---

static uint64_t *deadlines, *words;
static uint32_t *lateness_ns;
static size_t fired, early;
static uint64_t origin_ns, cpu_ns, random_word;

static void fire(size_t n) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC), deadline = origin_ns + deadlines[n];
    if (now < deadline) {
        early++;
    }
    uint64_t late = now < deadline ? 0 : now - deadline;
    lateness_ns[fired++] = late > UINT32_MAX ? UINT32_MAX : (uint32_t)late;
    words[below(&random_word, many)] = now;
    if (fired == many) {
        cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    }
}

// Called once all timers are armed, before the first is due.
static void await_origin(void) {
    CHECK(clock_ns(CLOCK_MONOTONIC) < origin_ns);
    cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

// --- tourbillon: a loop, and an engine that is polled ---

struct ours {
    tb_engine *engine;
    tb_loop *loop;
    tb_timer *timer, **timers;
    uint64_t now, random, posted;
};

static void nothing(void *user, const tb_event *event) {
    (void)user;
    (void)event;
    CHECK(0); // No timer of these rows is due.
}

static void look(struct ours *ours) {
    CHECK(tb_now(ours->engine, &ours->now) == TB_OK);
    if (ours->loop != NULL) {
        uint64_t next;
        CHECK(tb_loop_turn(ours->loop, ours->now, 1024, NULL) == TB_OK);
        CHECK(tb_loop_next_deadline(ours->loop, &next) == TB_OK);
    }
}

static struct ours *ours_new(int is_looped) {
    struct ours *ours = calloc(1, sizeof *ours);
    tb_options options = TB_OPTIONS_INIT;
    options.loops = is_looped ? 1 : 0;
    options.shards = is_looped ? 0 : 1;
    options.delivery = is_looped ? TB_POOL : TB_POLLED;
    CHECK(ours != NULL && tb_engine_create(&options, &ours->engine) == TB_OK);
    if (is_looped) {
        CHECK(tb_loop_create(ours->engine, 0, &ours->loop) == TB_OK);
    }
    look(ours);
    return ours;
}

static void ours_free(struct ours *ours) {
    if (ours->loop != NULL) {
        CHECK(tb_loop_free(ours->loop) == TB_OK);
    }
    CHECK(tb_engine_free(ours->engine) == TB_OK);
    free(ours);
}

static void *ours_set_up(const struct row *row, int is_looped) {
    struct ours *ours = ours_new(is_looped);
    size_t pending = pending_of(row);
    ours->random = 1;
    if (row->is_refresh) {
        ours->timers = calloc(pending, sizeof *ours->timers);
        for (size_t i = 0; i < pending; i++) {
            CHECK(tb_timer_create(ours->engine, nothing, NULL, &ours->timers[i]) == TB_OK);
            CHECK(tb_timer_arm_at(ours->timers[i], ours->now + 100 * SECOND) == TB_OK);
        }
    } else {
        for (size_t i = 0; i < pending; i++) {
            uint64_t deadline = ours->now + far_ns(&ours->random);
            CHECK(tb_schedule_at(ours->engine, deadline, nothing, NULL, NULL) == TB_OK);
        }
        CHECK(tb_timer_create(ours->engine, nothing, NULL, &ours->timer) == TB_OK);
    }
    look(ours);
    return ours;
}

static void *loop_set_up(const struct row *row) {
    return ours_set_up(row, 1);
}

static void *polled_set_up(const struct row *row) {
    return ours_set_up(row, 0);
}

static void ours_run(void *state, const struct row *row) {
    struct ours *ours = state;
    size_t pending = pending_of(row);
    for (uint64_t n = 0; n < operations; n += GROUP) {
        look(ours);
        for (int i = 0; i < GROUP; i++) {
            uint64_t length = row->is_uniform ? far_ns(&ours->random) : row->length_ns, deadline = ours->now + length;
            tb_outcome outcome = TB_CANCELLED;
            if (row->is_turn) {
                uint64_t next;
                CHECK(tb_loop_turn(ours->loop, ours->now, 1024, NULL) == TB_OK);
                CHECK(tb_loop_next_deadline(ours->loop, &next) == TB_OK && next > ours->now);
            } else if (row->is_refresh) {
                CHECK(tb_timer_arm_at(ours->timers[below(&ours->random, pending)], deadline) == TB_OK);
            } else if (row->is_shot) {
                uint64_t id;
                CHECK(tb_schedule_at(ours->engine, deadline, nothing, NULL, &id) == TB_OK);
                CHECK(tb_cancel(ours->engine, id, &outcome) == TB_OK);
            } else {
                CHECK(tb_timer_arm_at(ours->timer, deadline) == TB_OK);
                CHECK(tb_timer_disarm(ours->timer, &outcome) == TB_OK);
            }
            CHECK(outcome == TB_CANCELLED);
        }
    }
}

static void ours_tear_down(void *state, const struct row *row) {
    struct ours *ours = state;
    size_t pending = pending_of(row);
    tb_stats stats = {.size = sizeof stats};
    CHECK(tb_engine_stats(ours->engine, &stats) == TB_OK);
    CHECK(stats.fired == 0 && stats.timers_fired == 0 && stats.pending == (row->is_refresh ? 0 : pending));
    for (size_t i = 0; row->is_refresh && i < pending; i++) {
        tb_outcome outcome;
        CHECK(tb_timer_disarm(ours->timers[i], &outcome) == TB_OK && outcome == TB_CANCELLED);
        CHECK(tb_timer_free(ours->timers[i]) == TB_OK);
    }
    free(ours->timers);
    if (ours->timer != NULL) {
        CHECK(tb_timer_free(ours->timer) == TB_OK);
    }
    ours_free(ours);
}

static void ours_fire(void *user, const tb_event *event) {
    (void)event;
    fire((size_t)(uintptr_t)user);
}

// The engine's clock is CLOCK_MONOTONIC, counted from another origin.
static uint64_t ours_origin(struct ours *ours) {
    look(ours);
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    return ours->now + (origin_ns - now);
}

static void loop_expire(void) {
    struct ours *ours = ours_new(1);
    uint64_t origin = ours_origin(ours), next;
    int fd;
    CHECK(tb_loop_fd(ours->loop, &fd) == TB_OK);
    for (size_t i = 0; i < many; i++) {
        CHECK(tb_schedule_at(ours->engine, origin + deadlines[i], ours_fire, (void *)(uintptr_t)i, NULL) == TB_OK);
    }
    look(ours);
    await_origin();
    while (fired < many) {
        // The time after the callbacks, as libuv and libevent read it before they poll.
        CHECK(tb_now(ours->engine, &ours->now) == TB_OK);
        CHECK(tb_loop_next_deadline(ours->loop, &next) == TB_OK);
        uint64_t rest = next > ours->now ? next - ours->now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(rest / SECOND), .tv_nsec = (long)(rest % SECOND)};
        struct pollfd interest = {.fd = fd, .events = POLLIN};
        ppoll(&interest, 1, &timeout, NULL);
        CHECK(tb_now(ours->engine, &ours->now) == TB_OK);
        CHECK(tb_loop_turn(ours->loop, ours->now, 1024, NULL) == TB_OK);
    }
    ours_free(ours);
}

static void polled_expire(void) {
    struct ours *ours = ours_new(0);
    uint64_t origin = ours_origin(ours);
    tb_event events[64];
    size_t count;
    int fd;
    CHECK(tb_event_fd(ours->engine, &fd) == TB_OK);
    for (size_t i = 0; i < many; i++) {
        CHECK(tb_schedule_at(ours->engine, origin + deadlines[i], ours_fire, (void *)(uintptr_t)i, NULL) == TB_OK);
    }
    await_origin();
    while (fired < many) {
        struct pollfd interest = {.fd = fd, .events = POLLIN};
        poll(&interest, 1, -1);
        do {
            CHECK(tb_poll(ours->engine, events, 64, &count) == TB_OK);
            for (size_t i = 0; i < count; i++) {
                ours_fire(events[i].user, &events[i]);
            }
        } while (count == 64);
    }
    ours_free(ours);
}

// --- libuv ---

struct uv {
    uv_loop_t loop;
    uv_timer_t timer, *timers;
    uint64_t random;
};

static void uv_nothing(uv_timer_t *timer) {
    (void)timer;
    CHECK(0);
}

// libuv counts milliseconds; a rest is rounded up.
static uint64_t ms_of(uint64_t ns) {
    return (ns + MS - 1) / MS;
}

static void *uv_set_up(const struct row *row) {
    struct uv *uv = calloc(1, sizeof *uv);
    size_t pending = pending_of(row);
    CHECK(uv != NULL && uv_loop_init(&uv->loop) == 0 && uv_timer_init(&uv->loop, &uv->timer) == 0);
    uv->random = 1;
    uv->timers = calloc(pending + 1, sizeof *uv->timers);
    for (size_t i = 0; i < pending; i++) {
        uint64_t length = row->is_refresh ? 100 * SECOND : far_ns(&uv->random);
        CHECK(uv_timer_init(&uv->loop, &uv->timers[i]) == 0);
        CHECK(uv_timer_start(&uv->timers[i], uv_nothing, ms_of(length), 0) == 0);
    }
    return uv;
}

static void uv_run_row(void *state, const struct row *row) {
    struct uv *uv = state;
    size_t pending = pending_of(row);
    for (uint64_t n = 0; n < operations; n += GROUP) {
        uv_update_time(&uv->loop);
        for (int i = 0; i < GROUP; i++) {
            uint64_t length = row->is_uniform ? far_ns(&uv->random) : row->length_ns;
            uv_timer_t *timer = row->is_refresh ? &uv->timers[below(&uv->random, pending)] : &uv->timer;
            CHECK(uv_timer_start(timer, uv_nothing, ms_of(length), 0) == 0);
            if (!row->is_refresh) {
                CHECK(uv_is_active((uv_handle_t *)timer));
                CHECK(uv_timer_stop(timer) == 0);
            }
        }
    }
}

static void uv_close_all(struct uv *uv, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uv_close((uv_handle_t *)&uv->timers[i], NULL);
    }
    uv_close((uv_handle_t *)&uv->timer, NULL);
    CHECK(uv_run(&uv->loop, UV_RUN_DEFAULT) == 0 && uv_loop_close(&uv->loop) == 0);
    free(uv->timers);
    free(uv);
}

static void uv_tear_down(void *state, const struct row *row) {
    struct uv *uv = state;
    CHECK(!uv_is_active((uv_handle_t *)&uv->timer));
    for (size_t i = 0; i < pending_of(row); i++) {
        CHECK(uv_is_active((uv_handle_t *)&uv->timers[i]));
    }
    uv_close_all(uv, pending_of(row));
}

static void uv_fire(uv_timer_t *timer) {
    fire((size_t)(uintptr_t)timer->data);
}

static void uv_expire(void) {
    struct uv *uv = calloc(1, sizeof *uv);
    CHECK(uv != NULL && uv_loop_init(&uv->loop) == 0 && uv_timer_init(&uv->loop, &uv->timer) == 0);
    uv->timers = calloc(many, sizeof *uv->timers);
    for (size_t i = 0; i < many; i++) {
        CHECK(uv_timer_init(&uv->loop, &uv->timers[i]) == 0);
        uv->timers[i].data = (void *)(uintptr_t)i;
        // To the moment, and not to a delay from a time that was cached before: uv_now is milliseconds of hrtime.
        uint64_t due_ms = ms_of(origin_ns + deadlines[i]);
        CHECK(uv_timer_start(&uv->timers[i], uv_fire, due_ms - uv_now(&uv->loop), 0) == 0);
    }
    await_origin();
    CHECK(uv_run(&uv->loop, UV_RUN_DEFAULT) == 0);
    uv_close_all(uv, many);
}

// --- libevent ---

struct ev {
    struct event_base *base;
    struct event start, timer, *timers;
    const struct row *row;
    const struct timeval *common;
    uint64_t random;
};

static void ev_nothing(evutil_socket_t fd, short what, void *user) {
    (void)fd;
    (void)what;
    (void)user;
    CHECK(0);
}

static struct timeval timeval_of(uint64_t ns) {
    uint64_t us = (ns + 999) / 1000;
    return (struct timeval){.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
}

static const struct timeval *common_of(struct ev *ev, uint64_t ns) {
    struct timeval length = timeval_of(ns);
    return event_base_init_common_timeout(ev->base, &length);
}

static void ev_run_in_callback(evutil_socket_t fd, short what, void *user) {
    struct ev *ev = user;
    const struct row *row = ev->row;
    size_t pending = pending_of(row);
    (void)fd;
    (void)what;
    for (uint64_t n = 0; n < operations; n += GROUP) {
        CHECK(event_base_update_cache_time(ev->base) == 0);
        for (int i = 0; i < GROUP; i++) {
            struct timeval length = timeval_of(row->is_uniform ? far_ns(&ev->random) : row->length_ns);
            struct event *timer = row->is_refresh ? &ev->timers[below(&ev->random, pending)] : &ev->timer;
            CHECK(evtimer_add(timer, ev->common != NULL ? ev->common : &length) == 0);
            if (!row->is_refresh) {
                CHECK(evtimer_del(timer) == 0);
            }
        }
    }
}

static void *ev_set_up_by(const struct row *row, int is_common) {
    struct ev *ev = calloc(1, sizeof *ev);
    size_t pending = pending_of(row);
    CHECK(ev != NULL && (ev->base = event_base_new()) != NULL);
    ev->random = 1;
    ev->common = is_common ? common_of(ev, row->length_ns) : NULL;
    ev->timers = calloc(pending + 1, sizeof *ev->timers);
    const struct timeval *first = is_common ? common_of(ev, 100 * SECOND) : NULL;
    for (size_t i = 0; i < pending; i++) {
        struct timeval length = timeval_of(row->is_refresh ? 100 * SECOND : far_ns(&ev->random));
        CHECK(evtimer_assign(&ev->timers[i], ev->base, ev_nothing, NULL) == 0);
        CHECK(evtimer_add(&ev->timers[i], is_common && row->is_refresh ? first : &length) == 0);
    }
    CHECK(evtimer_assign(&ev->timer, ev->base, ev_nothing, NULL) == 0);
    CHECK(event_assign(&ev->start, ev->base, -1, 0, ev_run_in_callback, ev) == 0);
    return ev;
}

static void *ev_set_up(const struct row *row) {
    return ev_set_up_by(row, 0);
}

static void *common_set_up(const struct row *row) {
    return ev_set_up_by(row, 1);
}

static void ev_run_row(void *state, const struct row *row) {
    struct ev *ev = state;
    ev->row = row;
    event_active(&ev->start, EV_TIMEOUT, 0);
    CHECK(event_base_loop(ev->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

static void ev_tear_down(void *state, const struct row *row) {
    struct ev *ev = state;
    CHECK(!evtimer_pending(&ev->timer, NULL));
    for (size_t i = 0; i < pending_of(row); i++) {
        CHECK(evtimer_pending(&ev->timers[i], NULL));
        CHECK(evtimer_del(&ev->timers[i]) == 0);
    }
    event_base_free(ev->base);
    free(ev->timers);
    free(ev);
}

static void ev_fire(evutil_socket_t fd, short what, void *user) {
    (void)fd;
    (void)what;
    fire((size_t)(uintptr_t)user);
}

static void ev_expire(void) {
    struct ev *ev = calloc(1, sizeof *ev);
    CHECK(ev != NULL && (ev->base = event_base_new()) != NULL);
    ev->timers = calloc(many, sizeof *ev->timers);
    for (size_t i = 0; i < many; i++) {
        struct timeval length = timeval_of(origin_ns + deadlines[i] - clock_ns(CLOCK_MONOTONIC));
        CHECK(evtimer_assign(&ev->timers[i], ev->base, ev_fire, (void *)(uintptr_t)i) == 0);
        CHECK(evtimer_add(&ev->timers[i], &length) == 0);
    }
    await_origin();
    CHECK(event_base_dispatch(ev->base) >= 0);
    event_base_free(ev->base);
    free(ev->timers);
    free(ev);
}

// --- The table ---

static const struct contestant contestants[] = {
    {"loop", "tourbillon, loop", 0, loop_set_up, ours_run, ours_tear_down, loop_expire},
    {"polled", "tourbillon, polled", 0, polled_set_up, ours_run, ours_tear_down, polled_expire},
    {"libuv", "libuv", 0, uv_set_up, uv_run_row, uv_tear_down, uv_expire},
    {"libevent", "libevent", 0, ev_set_up, ev_run_row, ev_tear_down, ev_expire},
    {"common", "libevent, common", 1, common_set_up, ev_run_row, ev_tear_down, NULL},
};
#define CONTESTANTS (sizeof contestants / sizeof *contestants)

struct times {
    double of[MOST_ROUNDS];
};

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void print(const char *row, const char *name, const char *what, struct times *times, int rounds) {
    qsort(times->of, (size_t)rounds, sizeof(double), by_value);
    double median = (times->of[(rounds - 1) / 2] + times->of[rounds / 2]) / 2;
    printf("%-8s %-19s %-12s %9.3f (%.3f..%.3f)\n", row, name, what, median, times->of[0], times->of[rounds - 1]);
    fflush(stdout);
}

static void measure(const struct row *row, int rounds) {
    static struct times times[CONTESTANTS];
    void *states[CONTESTANTS] = {NULL};
    for (size_t i = 0; i < CONTESTANTS; i++) {
        if (row->is_turn ? i == 0 : !contestants[i].is_common || !row->is_uniform) {
            states[i] = contestants[i].set_up(row);
        }
    }
    for (int round = -1; round < rounds; round++) { // The first is a warm-up.
        for (size_t i = 0; i < CONTESTANTS; i++) {
            size_t n = (i + (size_t)(round + 1)) % CONTESTANTS;
            if (states[n] != NULL) {
                uint64_t begin = clock_ns(CLOCK_MONOTONIC);
                contestants[n].run(states[n], row);
                if (round >= 0) {
                    times[n].of[round] = (double)(clock_ns(CLOCK_MONOTONIC) - begin) / (double)operations;
                }
            }
        }
    }
    for (size_t i = 0; i < CONTESTANTS; i++) {
        if (states[i] != NULL) {
            contestants[i].tear_down(states[i], row);
            print(row->name, contestants[i].name, row->unit, &times[i], rounds);
        }
    }
}

static void measure_expiry(int rounds) {
    static struct times cpu[CONTESTANTS], p99[CONTESTANTS], p999[CONTESTANTS], most[CONTESTANTS];
    static size_t earlies[CONTESTANTS];
    deadlines = calloc(many, sizeof *deadlines);
    words = calloc(many, sizeof *words);
    lateness_ns = calloc(many, sizeof *lateness_ns);
    CHECK(deadlines != NULL && words != NULL && lateness_ns != NULL);
    // Touched beforehand, so that page faults are not measured.
    memset(words, 1, many * sizeof *words);
    memset(lateness_ns, 1, many * sizeof *lateness_ns);
    uint64_t random = 1;
    for (size_t i = 0; i < many; i++) {
        deadlines[i] = below(&random, spread);
    }
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < CONTESTANTS; i++) {
            size_t n = (i + (size_t)round) % CONTESTANTS;
            if (contestants[n].expire == NULL) {
                continue;
            }
            fired = early = 0;
            origin_ns = clock_ns(CLOCK_MONOTONIC) + 2 * SECOND;
            contestants[n].expire();
            CHECK(fired == many);
            qsort(lateness_ns, many, sizeof *lateness_ns, by_size);
            cpu[n].of[round] = (double)cpu_ns / 1e9;
            p99[n].of[round] = lateness_ns[many * 99 / 100] / 1e6;
            p999[n].of[round] = lateness_ns[many * 999 / 1000] / 1e6;
            most[n].of[round] = lateness_ns[many - 1] / 1e6;
            earlies[n] += early;
        }
    }
    for (size_t i = 0; i < CONTESTANTS; i++) {
        if (contestants[i].expire != NULL) {
            print("expiry", contestants[i].name, "CPU s", &cpu[i], rounds);
            print("expiry", contestants[i].name, "p99 ms", &p99[i], rounds);
            print("expiry", contestants[i].name, "p99.9 ms", &p999[i], rounds);
            print("expiry", contestants[i].name, "max ms", &most[i], rounds);
            printf("%-8s %-19s %-12s %9zu\n", "expiry", contestants[i].name, "early, of all", earlies[i]);
            CHECK(i > 1 || earlies[i] == 0); // tourbillon is never early.
        }
    }
    free(deadlines);
    free(words);
    free(lateness_ns);
}

// --- One turn, for the benchmark book ---

enum { DONE = 0, MISUSED = 2, CANNOT = 3 };

// A number of a flat JSON object; 0 without such a field.
static uint64_t number_of(const char *json, const char *field) {
    const char *at = strstr(json, field);
    at = at == NULL ? NULL : strchr(at, ':');
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

// One round of the rows that have a place in the book, after a round that is not measured.
static int take_turn(const char *workload, const char *key, const char *json) {
    static const char *const in_book[] = {"arm", "arm100k", "among", "refresh"};
    const struct contestant *contestant = NULL;
    for (size_t i = 0; i < CONTESTANTS; i++) {
        contestant = strcmp(contestants[i].key, key) == 0 ? &contestants[i] : contestant;
    }
    if (strcmp(workload, "loops") != 0 || contestant == NULL) {
        fprintf(stderr, "no such workload or contestant here: %s, %s\n", workload, key);
        return CANNOT;
    }
    many = (size_t)number_of(json, "\"timers\"");
    some = many / 10;
    operations = number_of(json, "\"operations\"") / GROUP * GROUP;
    if (some == 0 || operations == 0) {
        fprintf(stderr, "a turn has some timers and %d operations at least\n", GROUP);
        return MISUSED;
    }
    const char *comma = "";
    printf("{\"numbers\": {");
    for (size_t i = 0; i < sizeof in_book / sizeof *in_book; i++) {
        const struct row *row = rows;
        while (strcmp(row->name, in_book[i]) != 0) {
            row++;
        }
        if (contestant->is_common && row->is_uniform) {
            continue;
        }
        void *state = contestant->set_up(row);
        contestant->run(state, row);
        uint64_t begin = clock_ns(CLOCK_MONOTONIC);
        contestant->run(state, row);
        uint64_t time = clock_ns(CLOCK_MONOTONIC) - begin;
        contestant->tear_down(state, row);
        printf("%s\"%s\": %.4f", comma, row->name, (double)time / (double)operations);
        comma = ", ";
    }
    printf("}}\n");
    return DONE;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "turn") == 0) {
        if (argc != 5) {
            fprintf(stderr, "usage: turn WORKLOAD CONTESTANT CASE\n");
            return MISUSED;
        }
        return take_turn(argv[2], argv[3], argv[4]);
    }
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    const char *only = argc > 2 ? argv[2] : NULL;
    if (argc > 1 && strcmp(argv[1], "quick") == 0) {
        many = 2000;
        some = 500;
        operations = 6400;
        spread = 100 * MS;
        rounds = 2;
    }
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "1 to %d rounds\n", MOST_ROUNDS);
        return 1;
    }
    printf("libuv %s, libevent %s, tourbillon %s; median (least..most) of %d rounds\n", uv_version_string(),
           event_get_version(), tb_version(), rounds);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (only == NULL || strcmp(only, rows[i].name) == 0) {
            measure(&rows[i], rounds);
        }
    }
    if (only == NULL || strcmp(only, "expiry") == 0) {
        measure_expiry(rounds);
    }
    return 0;
}
