// The calls of coturn's `delete_ioa_timer` and `set_ioa_timer` to libevent, and to the header in its place, without the
// rest of coturn: `pair [ROUNDS [PENDING]]`. An operation frees the oldest of PENDING timers, and makes and arms a new
// timer for 300 s. libevent's timers use a queue for this common length, and take a lock, as in coturn. The second kind
// of operation has lengths of 200 to 400 s, for which there is no queue. The third arms the pending timer for 300 s
// anew, in its place, which coturn does not do. The contestants take turns in each round. Prints the nanoseconds of an
// operation, a line for each kind: the median, the least and the largest, of libevent and then of the engine.

#include <event2/event.h>
#include <event2/thread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tourbillon_libevent.h>

#define MOST_ROUNDS 99
#define OPERATIONS 1000000

static int pending = 20000;
static struct event_base *base;
static tb_evbase *evbase;
static struct timeval common;
static struct event **events;
static tb_evtimer **timers;

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s fails\n", what);
        exit(1);
    }
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void never(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    (void)arg;
    must(0, "a timer of 300 s");
}

static struct timeval any_length(int i) {
    uint32_t random = (uint32_t)i * 2654435761u;
    struct timeval length = {200 + random % 200, random % 1000000};
    return length;
}

static void make_of_libevent(int i, const struct timeval *length) {
    if (events[i] != NULL) {
        event_del(events[i]);
        event_free(events[i]);
    }
    events[i] = event_new(base, -1, EV_TIMEOUT, never, NULL);
    must(events[i] != NULL && evtimer_add(events[i], length) == 0, "libevent");
}

static void make_of_engine(int i, const struct timeval *length) {
    if (timers[i] != NULL) {
        tb_evtimer_free(timers[i]);
    }
    timers[i] = tb_evtimer_new(evbase, EV_TIMEOUT, never, NULL);
    must(timers[i] != NULL && tb_evtimer_add(timers[i], length) == 0, "tourbillon");
}

static void one_of_libevent(int i) {
    make_of_libevent(i, &common);
}

static void one_of_engine(int i) {
    make_of_engine(i, &common);
}

static void any_of_libevent(int i) {
    struct timeval length = any_length(i);
    make_of_libevent(i, &length);
}

static void any_of_engine(int i) {
    struct timeval length = any_length(i);
    make_of_engine(i, &length);
}

static void again_of_libevent(int i) {
    must(evtimer_add(events[i], &common) == 0, "libevent");
}

static void again_of_engine(int i) {
    must(tb_evtimer_add(timers[i], &common) == 0, "tourbillon");
}

struct contestant {
    void (*one)(int);
    double figures[MOST_ROUNDS];
};

static struct contestant contestants[] = {
    {.one = one_of_libevent}, {.one = one_of_engine},   {.one = any_of_libevent},
    {.one = any_of_engine},   {.one = again_of_libevent}, {.one = again_of_engine}};

#define CONTESTANTS (sizeof contestants / sizeof *contestants)

struct step {
    void (*one)(int);
    double *nanoseconds;
};

// In a callback of the loop, in which libevent has the time.
static void run(evutil_socket_t fd, short what, void *arg) {
    struct step *step = arg;
    double begin = seconds();
    (void)fd;
    (void)what;
    for (int i = 0; i < OPERATIONS; i++) {
        step->one(i % pending);
    }
    *step->nanoseconds = (seconds() - begin) * 1e9 / OPERATIONS;
    event_base_loopbreak(base);
}

static void take_turn(void (*one)(int), double *nanoseconds) {
    struct step step = {one, nanoseconds};
    struct timeval now = {0, 0};
    struct event *once = event_new(base, -1, EV_TIMEOUT, run, &step);
    must(once != NULL && event_add(once, &now) == 0, "libevent");
    event_base_dispatch(base);
    event_free(once);
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void print(double *figures, int rounds, const char *end) {
    qsort(figures, (size_t)rounds, sizeof *figures, compare);
    printf("%.1f %.1f %.1f%s", figures[rounds / 2], figures[0], figures[rounds - 1], end);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    pending = argc > 2 ? atoi(argv[2]) : pending;
    must(rounds > 0 && rounds <= MOST_ROUNDS && pending > 0, "an argument");
    evthread_use_pthreads();
    base = event_base_new();
    evbase = tb_evbase_new(base);
    struct timeval length = {300, 0};
    common = *event_base_init_common_timeout(base, &length);
    events = calloc((size_t)pending, sizeof *events);
    timers = calloc((size_t)pending, sizeof *timers);
    must(evbase != NULL && events != NULL && timers != NULL, "memory");
    // The first turns make the timers pending.
    for (int i = 0; i <= rounds; i++) {
        for (size_t j = 0; j < CONTESTANTS; j++) {
            struct contestant *contestant = &contestants[i == 0 ? j : (j + (size_t)i) % CONTESTANTS];
            take_turn(contestant->one, &contestant->figures[i == 0 ? 0 : i - 1]);
        }
    }
    for (size_t j = 0; j < CONTESTANTS; j++) {
        print(contestants[j].figures, rounds, j % 2 ? "\n" : " ");
    }
    return 0;
}
