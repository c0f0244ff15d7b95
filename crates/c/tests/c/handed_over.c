// Memory that is handed to callbacks and polls, and back, under ThreadSanitizer.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tourbillon.h>

#define MS 1000000ull
#define COUNT 8

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

struct message {
    int question;
    int answer;
};

static struct message *ask(int question) {
    struct message *message = malloc(sizeof *message);
    message->question = question;
    message->answer = 0;
    return message;
}

static void answer(void *user, const tb_event *event) {
    struct message *message = user;
    (void)event;
    message->answer = message->question + 1;
}

static void nap(void) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&time, NULL);
}

static void await_firings(tb_engine *engine, uint64_t one_shots, uint64_t timers) {
    tb_stats stats;
    stats.size = sizeof stats;
    do {
        nap();
        CHECK(tb_engine_stats(engine, &stats) == TB_OK);
    } while (stats.fired < one_shots || stats.timers_fired < timers);
}

static void callbacks(void) {
    tb_engine *engine;
    tb_timer *timer;
    uint64_t now;
    struct message *messages[2 * COUNT + 2];
    tb_options options = TB_OPTIONS_INIT;
    options.shards = 1;
    options.workers = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);
    CHECK(tb_now(engine, &now) == TB_OK);
    for (int i = 0; i < COUNT; i++) {
        messages[i] = ask(i);
        CHECK(tb_schedule(engine, i % 3 * MS, answer, messages[i], NULL) == TB_OK);
        messages[COUNT + i] = ask(i);
        CHECK(tb_schedule_at(engine, now, answer, messages[COUNT + i], NULL) == TB_OK);
    }
    struct message *keyed = messages[2 * COUNT] = ask(17);
    CHECK(tb_schedule_keyed(engine, "order 17", MS, answer, keyed, NULL) == TB_OK);
    struct message *moved = messages[2 * COUNT + 1] = ask(18);
    uint64_t id;
    CHECK(tb_schedule(engine, 60000 * MS, answer, moved, &id) == TB_OK);
    moved->question = 19;
    CHECK(tb_reschedule(engine, id, MS, &id) == TB_OK);

    struct message *armed = ask(20);
    CHECK(tb_timer_create(engine, answer, armed, &timer) == TB_OK);
    armed->question = 21;
    CHECK(tb_timer_arm(timer, MS) == TB_OK);
    await_firings(engine, 2 * COUNT + 2, 1);
    CHECK(tb_timer_disarm_and_wait(timer, NULL) == TB_OK);
    CHECK(armed->answer == 22);
    armed->question = 22;
    CHECK(tb_timer_arm_at(timer, now) == TB_OK);
    await_firings(engine, 2 * COUNT + 2, 2);

    CHECK(tb_engine_shutdown(engine, NULL, NULL) == TB_OK);
    CHECK(armed->answer == 23 && moved->answer == 20);
    for (int i = 0; i < 2 * COUNT + 2; i++) {
        CHECK(messages[i]->answer == messages[i]->question + 1);
        free(messages[i]);
    }
    CHECK(tb_timer_free(timer) == TB_OK);
    CHECK(tb_engine_free(engine) == TB_OK);
    free(armed);
}

static void *poll_all(void *user) {
    tb_engine *engine = user;
    for (size_t polled = 0; polled < COUNT + 1;) {
        tb_event events[4];
        size_t n;
        CHECK(tb_poll(engine, events, 4, &n) == TB_OK);
        for (size_t i = 0; i < n; i++) {
            answer(events[i].user, &events[i]);
            free(events[i].user);
        }
        polled += n;
        nap();
    }
    return NULL;
}

static void polls(void) {
    tb_engine *engine;
    pthread_t thread;
    tb_options options = TB_OPTIONS_INIT;
    options.shards = 1;
    options.delivery = TB_POLLED;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);
    CHECK(pthread_create(&thread, NULL, poll_all, engine) == 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK(tb_schedule(engine, i % 3 * MS, NULL, ask(i), NULL) == TB_OK);
    }
    CHECK(tb_schedule_keyed(engine, "order 17", MS, NULL, ask(17), NULL) == TB_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(tb_engine_free(engine) == TB_OK);
}

// Turns the only loop of an engine until all messages have come.
static void *turn_all(void *user) {
    tb_engine *engine = user;
    tb_loop *loop;
    tb_stats stats;
    stats.size = sizeof stats;
    CHECK(tb_loop_create(engine, 0, &loop) == TB_OK);
    do {
        uint64_t now;
        nap();
        CHECK(tb_now(engine, &now) == TB_OK);
        CHECK(tb_loop_turn(loop, now, 1000, NULL) == TB_OK);
        CHECK(tb_engine_stats(engine, &stats) == TB_OK);
    } while (stats.fired < COUNT + 1 || stats.timers_fired < 1);
    CHECK(tb_loop_free(loop) == TB_OK);
    return NULL;
}

static void loops(void) {
    tb_engine *engine;
    tb_timer *timer;
    pthread_t thread;
    uint64_t now, id;
    struct message *messages[COUNT + 2];
    tb_options options = TB_OPTIONS_INIT;
    options.loops = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);
    CHECK(pthread_create(&thread, NULL, turn_all, engine) == 0);
    CHECK(tb_now(engine, &now) == TB_OK);
    for (int i = 0; i < COUNT; i++) {
        messages[i] = ask(i);
        CHECK(tb_schedule_on(engine, 0, now + (uint64_t)(i % 3) * MS, answer, messages[i], NULL) == TB_OK);
    }
    struct message *moved = messages[COUNT] = ask(17);
    CHECK(tb_schedule_on(engine, 0, now + 60000 * MS, answer, moved, &id) == TB_OK);
    moved->question = 18;
    CHECK(tb_reschedule_on(engine, 0, id, now, &id) == TB_OK);
    struct message *armed = messages[COUNT + 1] = ask(19);
    CHECK(tb_timer_create(engine, answer, armed, &timer) == TB_OK);
    armed->question = 20;
    CHECK(tb_timer_arm_on(timer, 0, now) == TB_OK);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(moved->answer == 19 && armed->answer == 21);
    for (int i = 0; i < COUNT + 2; i++) {
        CHECK(messages[i]->answer == messages[i]->question + 1);
        free(messages[i]);
    }
    CHECK(tb_timer_free(timer) == TB_OK);
    CHECK(tb_engine_free(engine) == TB_OK);
}

int main(void) {
    callbacks();
    polls();
    loops();
    printf("handed over: ok\n");
    return 0;
}
