// The timers of libevent's loops by tourbillon_libevent.h: callbacks come on the loop's thread, never early, and the
// loop ends when nothing is pending, as with libevent's own timers.

#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tourbillon_libevent.h>
#include <unistd.h>

#define MANY 5000 // More than one turn fires.
#define MS UINT64_C(1000000)

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static uint64_t now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct timeval length(long ms) {
    struct timeval length = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    return length;
}

// A timer of the tests.
struct probe {
    tb_evtimer *timer;
    uint64_t due;
    int calls;
    int last;                 // The call in which a persistent timer is deleted.
    struct probe *freed;      // Freed in the callback.
    struct probe *moved;      // Made pending in the callback, for 2 ms.
    pthread_t thread;
};

static void fired(evutil_socket_t fd, short what, void *arg) {
    struct probe *probe = arg;
    CHECK(fd == -1 && what == EV_TIMEOUT);
    CHECK(now() >= probe->due);
    probe->calls++;
    probe->thread = pthread_self();
    if (probe->calls == probe->last) {
        CHECK(tb_evtimer_pending(probe->timer));
        CHECK(tb_evtimer_del(probe->timer) == 0);
        CHECK(!tb_evtimer_pending(probe->timer));
    }
    if (probe->moved != NULL) {
        struct timeval soon = length(2);
        probe->moved->due = now() + 2 * MS;
        CHECK(tb_evtimer_add(probe->moved->timer, &soon) == 0);
    }
    if (probe->freed != NULL) {
        tb_evtimer_free(probe->freed->timer);
        probe->freed->timer = NULL;
    }
}

static void add(struct probe *probe, long ms) {
    struct timeval delay = length(ms);
    probe->due = now() + (uint64_t)ms * MS;
    CHECK(tb_evtimer_add(probe->timer, &delay) == 0);
    CHECK(tb_evtimer_pending(probe->timer));
}

static void make(tb_evbase *evbase, struct probe *probe, short flags) {
    probe->timer = tb_evtimer_new(evbase, flags, fired, probe);
    CHECK(probe->timer != NULL && !tb_evtimer_pending(probe->timer));
}

// The loop ends when no timer is pending, and begins again.
static void the_loop_ends(struct event_base *base, tb_evbase *evbase) {
    CHECK(event_base_dispatch(base) >= 0); // The first turn, with nothing to do.
    struct probe probes[3] = {{.calls = 0}, {.calls = 0}, {.calls = 0}};
    for (int i = 0; i < 3; i++) {
        make(evbase, &probes[i], 0);
    }
    add(&probes[0], 20);
    add(&probes[1], 5);       // Earlier than the first.
    add(&probes[2], 3600000); // Deleted before the loop runs.
    CHECK(tb_evtimer_del(probes[2].timer) == 0);
    CHECK(tb_evtimer_del(probes[2].timer) == 0); // As in libevent, no mistake.
    uint64_t begin = now();
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(now() - begin < 600000 * MS);
    CHECK(probes[0].calls == 1 && probes[1].calls == 1 && probes[2].calls == 0);
    add(&probes[0], 3600000);
    add(&probes[0], 2); // Moved.
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(probes[0].calls == 2);
    add(&probes[2], 3600000); // Freed while it is pending.
    for (int i = 0; i < 3; i++) {
        CHECK(!tb_evtimer_pending(probes[i].timer) || i == 2);
        tb_evtimer_free(probes[i].timer);
    }
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(pthread_equal(probes[0].thread, pthread_self()));
}

static void callbacks_free_and_add(struct event_base *base, tb_evbase *evbase) {
    struct probe persistent = {.last = 3}, itself = {.calls = 0}, other = {.calls = 0}, later = {.calls = 0};
    make(evbase, &persistent, EV_PERSIST);
    make(evbase, &itself, 0);
    make(evbase, &other, 0);
    make(evbase, &later, 0);
    itself.freed = &itself;
    persistent.freed = NULL;
    other.moved = &later;
    add(&persistent, 5);
    add(&itself, 3);
    add(&other, 4);
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(persistent.calls == 3 && itself.calls == 1 && other.calls == 1 && later.calls == 1);
    CHECK(itself.timer == NULL);
    // A pending timer is freed in another timer's callback.
    other.moved = NULL;
    other.freed = &later;
    add(&other, 3);
    add(&later, 3600000);
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(other.calls == 2 && later.calls == 1);
    tb_evtimer_free(persistent.timer);
    tb_evtimer_free(other.timer);
}

static void lengths_that_are_common(struct event_base *base, tb_evbase *evbase) {
    struct timeval ms = length(3);
    const struct timeval *common = event_base_init_common_timeout(base, &ms);
    struct probe probe = {.calls = 0};
    CHECK(common != NULL);
    make(evbase, &probe, 0);
    probe.due = now() + 3 * MS;
    CHECK(tb_evtimer_add(probe.timer, common) == 0);
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(probe.calls == 1);
    tb_evtimer_free(probe.timer);
}

// Lengths of any kind are read as libevent reads them.
static void lengths_of_any_kind(struct event_base *base, tb_evbase *evbase) {
    static const struct {
        int64_t s, us;
        uint64_t ns;
    } lengths[] = {
        {0, 0, 0},
        {1, 999999, 1999999000},
        {0, 1048575, 1048575000},
        {0, 1048576, 1048576000}, // The first bit above those of a common timeout.
        {0, 1500000, 1500000000},
        {0, 5000000, 5000000000},
        {3, 2000000000, 2003000000000},
        {INT32_MAX, 0, INT32_MAX * UINT64_C(1000000000)},
        {-1, 0, 0},
        {0, -500, 0},
        {-1, 1500000, 500000000},
        {1, -500000, 500000000},
        {-1764500000, 0, 0},
        {18446744074, 0, UINT64_MAX},
        {9223372036854, 775807, UINT64_MAX},
        {INT64_MAX, 999999, UINT64_MAX},
        {INT64_MAX, INT64_MAX, UINT64_MAX},
        {INT64_MIN, 0, 0},
        {INT64_MIN, INT64_MIN, 0},
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct timeval length = {.tv_sec = lengths[i].s, .tv_usec = lengths[i].us};
        struct probe probe = {.calls = 0};
        CHECK(tb_evbase_ns(&length) == lengths[i].ns);
        if (lengths[i].ns > 3600000 * MS) {
            // A timer that never fires keeps the loop running.
            for (int flags = 0; flags <= EV_PERSIST; flags += EV_PERSIST) {
                make(evbase, &probe, (short)flags);
                CHECK(tb_evtimer_add(probe.timer, &length) == 0 && tb_evtimer_pending(probe.timer));
                CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 0 && event_base_loop(base, EVLOOP_NONBLOCK) == 0);
                CHECK(tb_evtimer_del(probe.timer) == 0);
                CHECK(event_base_loop(base, EVLOOP_NONBLOCK) == 1);
                tb_evtimer_free(probe.timer);
            }
        }
    }
    // A negative length is 0.
    struct timeval past = {.tv_sec = -5, .tv_usec = -500};
    struct probe probe = {.calls = 0};
    make(evbase, &probe, 0);
    CHECK(tb_evtimer_add(probe.timer, NULL) == 0 && !tb_evtimer_pending(probe.timer));
    CHECK(tb_evtimer_add(probe.timer, &past) == 0);
    CHECK(tb_evtimer_add(probe.timer, NULL) == 0 && tb_evtimer_pending(probe.timer));
    CHECK(event_base_dispatch(base) >= 0 && probe.calls == 1);
    // Not early, although the microseconds are more than a second.
    struct timeval long_us = {.tv_sec = 0, .tv_usec = 1050000};
    probe.due = now() + 1050 * MS;
    CHECK(tb_evtimer_add(probe.timer, &long_us) == 0);
    CHECK(event_base_dispatch(base) >= 0 && probe.calls == 2);
    tb_evtimer_free(probe.timer);
}

// In an engine that is full, a persistent timer fires, and a pending timer can be moved.
static void a_full_engine(void) {
    struct event_base *base = event_base_new();
    tb_options options = TB_OPTIONS_INIT;
    options.capacity = 64;
    tb_evbase *evbase = tb_evbase_new_with(base, &options);
    CHECK(base != NULL && evbase != NULL);
    struct probe persistent = {.last = 3}, others[64];
    struct timeval hour = length(3600000);
    int count = 0;
    make(evbase, &persistent, EV_PERSIST);
    add(&persistent, 5);
    for (;; count++) {
        CHECK(count < 64);
        others[count] = (struct probe){.calls = 0};
        make(evbase, &others[count], 0);
        if (tb_evtimer_add(others[count].timer, &hour) != 0) {
            break;
        }
    }
    CHECK(count > 0 && !tb_evtimer_pending(others[count].timer));
    for (int i = 0; i < count; i++) {
        add(&others[i], 20); // Earlier.
        add(&others[i], i % 2 == 0 ? 10 : 20);
    }
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(persistent.calls == 3);
    for (int i = 0; i <= count; i++) {
        CHECK(others[i].calls == (i < count));
        tb_evtimer_free(others[i].timer);
    }
    tb_evtimer_free(persistent.timer);
    tb_evbase_free(evbase);
    event_base_free(base);
}

static void many_at_once(struct event_base *base, tb_evbase *evbase) {
    static struct probe probes[MANY];
    for (int i = 0; i < MANY; i++) {
        probes[i].calls = 0;
        make(evbase, &probes[i], 0);
        add(&probes[i], i % 3);
    }
    CHECK(event_base_dispatch(base) >= 0);
    for (int i = 0; i < MANY; i++) {
        CHECK(probes[i].calls == 1);
        tb_evtimer_free(probes[i].timer);
    }
    tb_stats stats = {.size = sizeof stats};
    CHECK(tb_engine_stats(tb_evbase_engine(evbase), &stats) == TB_OK);
    CHECK(stats.timers_alive == 0);
}

// A timer at a time, which never fires: the loop takes no turn, and nothing piles up.
static void one_after_the_other(struct event_base *base, tb_evbase *evbase) {
    struct probe probe = {.calls = 0};
    for (int i = 0; i < 4 * MANY; i++) {
        make(evbase, &probe, 0);
        add(&probe, 3600000);
        tb_evtimer_free(probe.timer);
    }
    tb_stats stats = {.size = sizeof stats};
    CHECK(tb_engine_stats(tb_evbase_engine(evbase), &stats) == TB_OK);
    CHECK(stats.timers_alive == 0 && stats.tickets < MANY);
    CHECK(event_base_dispatch(base) >= 0 && probe.calls == 0);
}

// The callback of a socket: adds a timer that is earlier than the others.
static void read_one(evutil_socket_t fd, short what, void *arg) {
    char byte;
    CHECK(what == EV_READ && read(fd, &byte, 1) == 1);
    add(arg, 2);
}

static void *add_elsewhere(void *arg) {
    struct probe *probe = arg;
    struct timeval soon = length(1);
    CHECK(tb_evtimer_add(probe->timer, &soon) == -1);
    CHECK(tb_evtimer_del(probe->timer) == -1);
    return NULL;
}

static void callbacks_of_sockets_add(struct event_base *base, tb_evbase *evbase) {
    int pipes[2];
    struct probe early = {.calls = 0}, late = {.calls = 0};
    pthread_t thread;
    CHECK(pipe(pipes) == 0);
    make(evbase, &early, 0);
    make(evbase, &late, 0);
    struct event *readable = event_new(base, pipes[0], EV_READ, read_one, &early);
    CHECK(readable != NULL && event_add(readable, NULL) == 0);
    CHECK(write(pipes[1], "x", 1) == 1);
    add(&late, 3600000);
    // While the hour of the other timer runs.
    early.freed = &late;
    CHECK(event_base_dispatch(base) >= 0);
    CHECK(early.calls == 1 && late.calls == 0);
    // Not on another thread, once the loop has run.
    CHECK(pthread_create(&thread, NULL, add_elsewhere, &early) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    tb_evtimer_free(early.timer);
    event_free(readable);
    close(pipes[0]);
    close(pipes[1]);
}

static void all(struct event_base *base, tb_evbase *evbase) {
    the_loop_ends(base, evbase);
    callbacks_free_and_add(base, evbase);
    lengths_that_are_common(base, evbase);
    lengths_of_any_kind(base, evbase);
    many_at_once(base, evbase);
    one_after_the_other(base, evbase);
    callbacks_of_sockets_add(base, evbase);
}

// A loop that one thread sets up is run by another thread.
struct set_up {
    struct event_base *base;
    tb_evbase *evbase;
    struct probe probe;
};

static void *run(void *arg) {
    struct set_up *set_up = arg;
    CHECK(event_base_dispatch(set_up->base) >= 0);
    CHECK(set_up->probe.calls == 1 && pthread_equal(set_up->probe.thread, pthread_self()));
    tb_evtimer_free(set_up->probe.timer);
    return NULL;
}

static void set_up_here_run_there(void) {
    struct set_up set_up = {.base = event_base_new()};
    pthread_t thread;
    CHECK(set_up.base != NULL);
    set_up.evbase = tb_evbase_new(set_up.base);
    CHECK(set_up.evbase != NULL);
    make(set_up.evbase, &set_up.probe, 0);
    add(&set_up.probe, 3);
    CHECK(pthread_create(&thread, NULL, run, &set_up) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    tb_evbase_free(set_up.evbase);
    event_base_free(set_up.base);
}

int main(void) {
    tb_options fine = TB_OPTIONS_INIT, wrong = TB_OPTIONS_INIT;
    fine.tick_ns = 100000;
    wrong.tick_ns = 1;
    for (int i = 0; i < 2; i++) {
        struct event_base *base = event_base_new();
        CHECK(base != NULL);
        CHECK(tb_evbase_new_with(base, &wrong) == NULL);
        tb_evbase *evbase = i == 0 ? tb_evbase_new(base) : tb_evbase_new_with(base, &fine);
        CHECK(evbase != NULL);
        all(base, evbase);
        tb_evbase_free(evbase);
        event_base_free(base);
    }
    set_up_here_run_there();
    a_full_engine();
    puts("libevent: ok");
    return 0;
}
