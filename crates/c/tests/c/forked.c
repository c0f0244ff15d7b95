// Forks while other threads use engines: the calls of a child with its parent's handles are refused, and none of them
// hangs.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <tourbillon.h>
#include <unistd.h>

#define MS 1000000ull
#define FORKS 20

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)

static tb_engine *called, *polled, *driven, *looping;
static tb_loop *loop;
static tb_timer *timer;
static tb_task *task;
static atomic_int is_over;

static void count(void *user, const tb_event *event) {
    (void)event;
    atomic_fetch_add((atomic_int *)user, 1);
}

static void await_calls(atomic_int *calls) {
    while (atomic_load(calls) == 0) {
        struct timespec time = {.tv_sec = 0, .tv_nsec = 100000};
        nanosleep(&time, NULL);
    }
}

// Uses an engine of this process and all that is made on it, from the first callbacks to their end.
static void use_an_engine(void) {
    atomic_int shots = 0, arms = 0, runs = 0;
    tb_engine *engine;
    tb_timer *own_timer;
    tb_task *own_task;
    void *user;
    CHECK(tb_engine_create(NULL, &engine) == TB_OK);
    CHECK(tb_schedule(engine, MS, count, &shots, NULL) == TB_OK);
    CHECK(tb_timer_create(engine, count, &arms, &own_timer) == TB_OK);
    CHECK(tb_timer_user(own_timer, &user) == TB_OK && user == &arms);
    CHECK(tb_timer_arm(own_timer, MS) == TB_OK);
    CHECK(tb_every(engine, MS, count, &runs, &own_task) == TB_OK);
    await_calls(&shots);
    await_calls(&arms);
    await_calls(&runs);
    // A child of this process is refused, whether or not this process is a child itself.
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        CHECK(tb_timer_arm(own_timer, MS) == TB_FORKED && tb_task_stop(own_task, NULL) == TB_FORKED);
        CHECK(tb_timer_free(own_timer) == TB_OK && tb_task_free(own_task) == TB_OK);
        CHECK(tb_engine_free(engine) == TB_OK);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(tb_task_free(own_task) == TB_OK && tb_timer_free(own_timer) == TB_OK);
    CHECK(tb_engine_free(engine) == TB_OK);
}

static void in_the_child(void) {
    // If the child hangs, the default action of the signal ends it.
    alarm(30);
    uint64_t number;
    size_t n;
    int fd;
    tb_outcome outcome;
    tb_event event;
    void *user;
    tb_stats stats;
    stats.size = sizeof stats;
    tb_engine *const engines[] = {called, polled, driven};
    for (int i = 0; i < 3; i++) {
        tb_engine *engine = engines[i];
        CHECK(tb_schedule(engine, 0, count, NULL, &number) == TB_FORKED);
        CHECK(strstr(tb_last_error(), "fork") != NULL);
        CHECK(tb_schedule_at(engine, 0, count, NULL, &number) == TB_FORKED);
        CHECK(tb_schedule_keyed(engine, "key", 0, count, NULL, &user) == TB_FORKED);
        CHECK(tb_reschedule_keyed(engine, "key", 0) == TB_FORKED);
        CHECK(tb_cancel_keyed(engine, "key", &outcome, &user) == TB_FORKED);
        CHECK(tb_cancel_keyed_and_wait(engine, "key", &outcome, &user) == TB_FORKED);
        CHECK(tb_cancel(engine, 1, &outcome) == TB_FORKED);
        CHECK(tb_cancel_and_wait(engine, 1, &outcome) == TB_FORKED);
        CHECK(tb_reschedule(engine, 1, 0, &number) == TB_FORKED);
        CHECK(tb_timer_create(engine, count, NULL, &timer) == TB_FORKED);
        CHECK(tb_every(engine, MS, count, NULL, &task) == TB_FORKED);
        CHECK(tb_poll(engine, &event, 1, &n) == TB_FORKED);
        CHECK(tb_event_fd(engine, &fd) == TB_FORKED);
        CHECK(tb_now(engine, &number) == TB_FORKED);
        CHECK(tb_engine_stats(engine, &stats) == TB_FORKED);
        CHECK(tb_engine_advance(engine, 1) == TB_FORKED);
        CHECK(tb_engine_shutdown(engine, count, &number) == TB_FORKED);
    }
    CHECK(tb_timer_arm(timer, 0) == TB_FORKED);
    CHECK(tb_timer_arm_at(timer, 0) == TB_FORKED);
    CHECK(tb_timer_disarm(timer, &outcome) == TB_FORKED);
    CHECK(tb_timer_disarm_and_wait(timer, &outcome) == TB_FORKED);
    CHECK(tb_timer_user(timer, &user) == TB_FORKED);
    CHECK(tb_task_stop(task, &outcome) == TB_FORKED);
    CHECK(tb_task_stop_and_wait(task, &outcome) == TB_FORKED);
    CHECK(tb_loop_turn(loop, UINT64_MAX / 2, 1, NULL) == TB_FORKED);
    CHECK(tb_loop_next_deadline(loop, &number) == TB_FORKED);
    CHECK(tb_loop_fd(loop, &fd) == TB_FORKED);
    CHECK(tb_loop_create(looping, 0, &loop) == TB_FORKED);
    CHECK(tb_schedule_on(looping, 0, 0, count, NULL, &number) == TB_FORKED);
    use_an_engine();
    CHECK(tb_loop_free(loop) == TB_OK);
    CHECK(tb_engine_free(looping) == TB_OK);
    CHECK(tb_timer_free(timer) == TB_OK);
    CHECK(tb_task_free(task) == TB_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(tb_engine_free(engines[i]) == TB_OK);
    }
    _exit(0);
}

// Keeps locks busy, and a thread between calls, while the process forks.
static void *hurry(void *unused) {
    (void)unused;
    while (!atomic_load(&is_over)) {
        uint64_t id;
        CHECK(tb_schedule(called, 60000 * MS, count, NULL, &id) == TB_OK);
        CHECK(tb_cancel(called, id, NULL) == TB_OK);
        CHECK(tb_schedule_keyed(called, "order 17", 60000 * MS, count, NULL, NULL) == TB_OK);
    }
    return NULL;
}

int main(void) {
    atomic_int calls = 0;
    tb_options options = TB_OPTIONS_INIT;
    CHECK(tb_engine_create(&options, &called) == TB_OK);
    options.delivery = TB_POLLED;
    CHECK(tb_engine_create(&options, &polled) == TB_OK);
    CHECK(tb_engine_create_driven(NULL, &driven) == TB_OK);
    tb_options with_a_loop = TB_OPTIONS_INIT;
    with_a_loop.loops = 1;
    atomic_int turned = 0;
    uint64_t now;
    CHECK(tb_engine_create(&with_a_loop, &looping) == TB_OK && tb_loop_create(looping, 0, &loop) == TB_OK);
    CHECK(tb_now(looping, &now) == TB_OK && tb_schedule_at(looping, now, count, &turned, NULL) == TB_OK);
    CHECK(tb_timer_create(called, count, &calls, &timer) == TB_OK);
    CHECK(tb_every(called, MS, count, &calls, &task) == TB_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, hurry, NULL) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            in_the_child();
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&is_over, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    // The parent goes on.
    int before = atomic_load(&calls);
    while (atomic_load(&calls) == before) {
        struct timespec time = {.tv_sec = 0, .tv_nsec = 100000};
        nanosleep(&time, NULL);
    }
    CHECK(tb_loop_turn(loop, now + 10 * MS, 1, NULL) == TB_OK && atomic_load(&turned) == 1);
    CHECK(tb_loop_free(loop) == TB_OK && tb_engine_free(looping) == TB_OK);
    CHECK(tb_timer_free(timer) == TB_OK);
    CHECK(tb_task_free(task) == TB_OK);
    CHECK(tb_engine_free(called) == TB_OK);
    CHECK(tb_engine_free(polled) == TB_OK);
    CHECK(tb_engine_free(driven) == TB_OK);
    printf("forked: ok\n");
    return 0;
}
