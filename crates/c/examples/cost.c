// The cost of calls, for one thread and for each of two threads at once: pairs of schedule and cancel, and of arm and
// disarm, with each way of delivery. Two threads need two cores, and a machine that does nothing else.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tourbillon.h>

#define PAIRS 2000000
#define ROUNDS 5

static void must(tb_status status) {
    if (status != TB_OK) {
        fprintf(stderr, "%s: %s\n", tb_status_name(status), tb_last_error());
        exit(1);
    }
}

// CPU time of this thread, so that other programs on the machine count less.
static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void nothing(void *user, const tb_event *event) {
    (void)user;
    (void)event;
}

static double schedule_and_cancel(tb_engine *engine) {
    double begin = now_ns();
    for (int i = 0; i < PAIRS; i++) {
        uint64_t id;
        tb_outcome outcome;
        must(tb_schedule(engine, 5000000000, nothing, NULL, &id));
        must(tb_cancel(engine, id, &outcome));
    }
    return (now_ns() - begin) / PAIRS;
}

static double arm_and_disarm(tb_timer *timer) {
    double begin = now_ns();
    for (int i = 0; i < PAIRS; i++) {
        must(tb_timer_arm(timer, 5000000000));
        must(tb_timer_disarm(timer, NULL));
    }
    return (now_ns() - begin) / PAIRS;
}

static double arm_at_and_disarm(tb_engine *engine, tb_timer *timer) {
    uint64_t now;
    must(tb_now(engine, &now));
    double begin = now_ns();
    for (int i = 0; i < PAIRS; i++) {
        must(tb_timer_arm_at(timer, now + 5000000000));
        must(tb_timer_disarm(timer, NULL));
    }
    return (now_ns() - begin) / PAIRS;
}

// The figures of one thread, each the least of all rounds.
struct worker {
    tb_engine *engine;
    pthread_barrier_t *start;
    double schedule, arm, arm_at;
};

static double least(double a, double b) {
    return a < b ? a : b;
}

static void *measure(void *argument) {
    struct worker *worker = argument;
    tb_timer *timer;
    must(tb_timer_create(worker->engine, nothing, NULL, &timer));
    worker->schedule = worker->arm = worker->arm_at = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(worker->start);
        worker->schedule = least(worker->schedule, schedule_and_cancel(worker->engine));
        pthread_barrier_wait(worker->start);
        worker->arm = least(worker->arm, arm_and_disarm(timer));
        pthread_barrier_wait(worker->start);
        worker->arm_at = least(worker->arm_at, arm_at_and_disarm(worker->engine, timer));
    }
    must(tb_timer_free(timer));
    return NULL;
}

// Prints the mean over the threads.
static void measure_threads(tb_engine *engine, const char *name, int threads) {
    struct worker workers[2];
    pthread_t handles[2];
    pthread_barrier_t start;
    double schedule = 0, arm = 0, arm_at = 0;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.engine = engine, .start = &start};
        if (pthread_create(&handles[i], NULL, measure, &workers[i]) != 0) {
            exit(1);
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        schedule += workers[i].schedule / threads;
        arm += workers[i].arm / threads;
        arm_at += workers[i].arm_at / threads;
    }
    pthread_barrier_destroy(&start);
    printf("%-20s %7d %17.1f %15.1f %18.1f\n", name, threads, schedule, arm, arm_at);
}

int main(void) {
    printf("CPU ns a pair        threads schedule + cancel    arm + disarm    arm_at + disarm\n");
    for (int delivery = TB_POOL; delivery <= TB_POLLED; delivery++) {
        static const char *names[] = {"TB_POOL", "TB_INLINE", "TB_POLLED"};
        tb_options options = TB_OPTIONS_INIT;
        options.delivery = (uint32_t)delivery;
        tb_engine *engine;
        must(tb_engine_create(&options, &engine));
        measure_threads(engine, names[delivery], 1);
        measure_threads(engine, names[delivery], 2);
        must(tb_engine_free(engine));
    }
    return 0;
}
