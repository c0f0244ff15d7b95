// Callbacks on an engine's workers: every one-shot is called, cancelled or returned, and timers and tasks end when they
// are stopped.

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tourbillon.h>

#define MS 1000000ull
#define COUNT 2000

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static atomic_int called;
static int returned;

// The `user` of a one-shot is memory of its own: a leak checker finds each `user` that was lost.
static void one_shot(void *user, const tb_event *event) {
    CHECK(event->user == user && event->id != 0 && event->count == 1);
    free(user);
    atomic_fetch_add(&called, 1);
}

static void unfired(void *user, const tb_event *event) {
    CHECK(event->callback == one_shot && event->deadline_ns > 0);
    free(user);
    returned++;
}

static void count(void *user, const tb_event *event) {
    (void)event;
    atomic_fetch_add((atomic_int *)user, 1);
}

struct rearmed {
    tb_timer *timer;
    atomic_int left;
};

static void rearm(void *user, const tb_event *event) {
    struct rearmed *rearmed = user;
    (void)event;
    if (atomic_fetch_sub(&rearmed->left, 1) > 1) {
        CHECK(tb_timer_arm(rearmed->timer, MS) == TB_OK);
    }
}

static void nap(void) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&time, NULL);
}

int main(void) {
    tb_options options = TB_OPTIONS_INIT;
    options.shards = 2;
    options.workers = 2;
    options.pinning = TB_UNPINNED;
    tb_engine *engine;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);

    int cancelled = 0, far = 0;
    for (int i = 0; i < COUNT; i++) {
        uint64_t id;
        tb_outcome outcome;
        int is_far = i % 4 == 0;
        void *user = malloc(16);
        far += is_far;
        CHECK(tb_schedule(engine, is_far ? 3600000 * MS : i % 7 * MS, one_shot, user, &id) == TB_OK);
        if (i % 4 == 1) {
            CHECK(tb_cancel_and_wait(engine, id, &outcome) == TB_OK);
            CHECK(outcome != TB_RUNNING);
            if (outcome == TB_CANCELLED) {
                free(user);
                cancelled++;
            }
        }
    }

    void *old;
    CHECK(tb_schedule_keyed(engine, "order 17", 3600000 * MS, one_shot, malloc(16), NULL) == TB_OK);
    CHECK(tb_schedule_keyed(engine, "order 17", 3600000 * MS, one_shot, malloc(16), &old) == TB_OK);
    free(old);
    CHECK(tb_schedule_keyed(engine, "order 18", 3600000 * MS, one_shot, malloc(16), NULL) == TB_OK);
    CHECK(tb_cancel_keyed(engine, "order 18", NULL, &old) == TB_OK);
    free(old);
    CHECK(tb_cancel_keyed(engine, "caf\xe9", NULL, NULL) == TB_NOT_UTF8);
    CHECK(strcmp(tb_status_name(TB_NOT_UTF8), "TB_NOT_UTF8") == 0);

    struct rearmed rearmed = {.timer = NULL, .left = 5};
    CHECK(tb_timer_create(engine, rearm, &rearmed, &rearmed.timer) == TB_OK);
    CHECK(tb_timer_arm(rearmed.timer, MS) == TB_OK);

    atomic_int runs = 0;
    tb_task *task;
    CHECK(tb_every(engine, 2 * MS, count, &runs, &task) == TB_OK);

    while (atomic_load(&called) + cancelled + far < COUNT || atomic_load(&rearmed.left) > 0 || atomic_load(&runs) < 3) {
        nap();
    }
    CHECK(tb_task_stop_and_wait(task, NULL) == TB_OK);
    int stopped_at = atomic_load(&runs);
    CHECK(tb_timer_disarm_and_wait(rearmed.timer, NULL) == TB_OK);
    CHECK(tb_timer_free(rearmed.timer) == TB_OK);
    for (int i = 0; i < 5; i++) {
        nap();
    }
    CHECK(atomic_load(&runs) == stopped_at);

    uint64_t left;
    CHECK(tb_engine_shutdown(engine, unfired, &left) == TB_OK);
    CHECK(left == (uint64_t)returned && returned == far + 1);
    CHECK(tb_schedule(engine, 0, one_shot, &left, NULL) == TB_SHUT_DOWN);
    tb_stats stats = {.size = sizeof stats};
    CHECK(tb_engine_stats(engine, &stats) == TB_OK);
    CHECK(stats.scheduled == stats.fired + stats.cancelled + stats.returned && stats.pending == 0);
    CHECK(tb_task_free(task) == TB_OK);
    CHECK(tb_engine_free(engine) == TB_OK);
    printf("callbacks: ok\n");
    return 0;
}
