// What a call costs from one thread: pairs of schedule and cancel, and of arm and disarm, each way of delivery.

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

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
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

static double least(double a, double b) {
    return a < b ? a : b;
}

int main(void) {
    printf("ns a pair, least of %d        schedule + cancel    arm + disarm    arm_at + disarm\n", ROUNDS);
    for (int delivery = TB_POOL; delivery <= TB_POLLED; delivery++) {
        static const char *names[] = {"TB_POOL", "TB_INLINE", "TB_POLLED"};
        tb_options options = TB_OPTIONS_INIT;
        options.delivery = (uint32_t)delivery;
        tb_engine *engine;
        tb_timer *timer;
        must(tb_engine_create(&options, &engine));
        must(tb_timer_create(engine, nothing, NULL, &timer));
        double schedule = 1e9, arm = 1e9, arm_at = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            schedule = least(schedule, schedule_and_cancel(engine));
            arm = least(arm, arm_and_disarm(timer));
            arm_at = least(arm_at, arm_at_and_disarm(engine, timer));
        }
        printf("%-29s %17.1f %15.1f %18.1f\n", names[delivery], schedule, arm, arm_at);
        must(tb_timer_free(timer));
        must(tb_engine_free(engine));
    }
    return 0;
}
