// Loops of the program that turn an engine's shards: a single loop as a wheel without threads, the status of each
// mistake, and several loops on their own threads, which arm and cancel each other's timers.

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tourbillon.h>
#include <unistd.h>

#define MS 1000000ull
#define NEVER UINT64_MAX

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static tb_engine *engine_with(uint32_t loops) {
    tb_options options = TB_OPTIONS_INIT;
    tb_engine *engine;
    options.loops = loops;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);
    return engine;
}

static uint64_t now_of(const tb_engine *engine) {
    uint64_t now;
    CHECK(tb_now(engine, &now) == TB_OK);
    return now;
}

static uint64_t next_of(const tb_loop *loop) {
    uint64_t next;
    CHECK(tb_loop_next_deadline(loop, &next) == TB_OK);
    return next;
}

static void turn(const tb_loop *loop, uint64_t now) {
    int more;
    do {
        CHECK(tb_loop_turn(loop, now, 1000, &more) == TB_OK);
    } while (more);
}

static int is_readable(int fd, int timeout_ms) {
    struct pollfd interest = {.fd = fd, .events = POLLIN};
    return poll(&interest, 1, timeout_ms) > 0;
}

static void nap(void) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&time, NULL);
}

// Runs a function on a thread of its own, to its end.
static void elsewhere(void *(*function)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

// Plain counters: callbacks are called on the loop's thread, in its turns.
static void count(void *user, const tb_event *event) {
    CHECK(event->user == user);
    ++*(int *)user;
}

// --- One loop, without a thread ---

struct connection {
    tb_timer *timer;
    struct connection *other; // Freed by the callback of this connection.
    int is_closed;
};

// Two connections are due at the same moment: the callback of the first frees the timer of the other.
static void close_both(void *user, const tb_event *event) {
    struct connection *connection = user;
    (void)event;
    CHECK(!connection->is_closed);
    for (int i = 0; i < 2; i++, connection = connection->other) {
        connection->is_closed = 1;
        CHECK(tb_timer_free(connection->timer) == TB_OK);
    }
}

struct curious {
    tb_loop *loop;
    tb_engine *engine;
    int calls;
};

// A callback may use its engine, and not its loop.
static void use_the_loop(void *user, const tb_event *event) {
    struct curious *curious = user;
    uint64_t next;
    int timeout;
    CHECK(event->count == 1);
    CHECK(tb_loop_turn(curious->loop, event->deadline_ns, 1, NULL) == TB_BUSY);
    CHECK(tb_loop_next_deadline(curious->loop, &next) == TB_BUSY);
    CHECK(tb_loop_timeout(curious->loop, 0, &timeout) == TB_BUSY);
    CHECK(tb_loop_free(curious->loop) == TB_BUSY);
    CHECK(tb_schedule_at(curious->engine, event->deadline_ns + MS, count, &curious->calls, NULL) == TB_OK);
}

static void a_wheel_without_threads(void) {
    tb_engine *engine = engine_with(1);
    tb_loop *loop;
    CHECK(tb_loop_create(engine, 0, &loop) == TB_OK);
    uint64_t now = now_of(engine);
    CHECK(next_of(loop) <= now); // A loop that has not turned should turn.
    turn(loop, now);
    CHECK(next_of(loop) == NEVER);

    int calls = 0, timeout;
    uint64_t ids[3];
    tb_outcome outcome;
    for (int i = 0; i < 3; i++) {
        CHECK(tb_schedule_at(engine, now + (uint64_t)(10 + i) * MS, count, &calls, &ids[i]) == TB_OK);
    }
    CHECK(tb_cancel(engine, ids[1], &outcome) == TB_OK && outcome == TB_CANCELLED);
    CHECK(tb_cancel(engine, ids[1], &outcome) == TB_OK && outcome == TB_GONE);
    CHECK(tb_loop_timeout(loop, now, &timeout) == TB_OK && timeout > 0 && timeout <= 11);
    turn(loop, now + 9 * MS);
    CHECK(calls == 0); // Not early.
    turn(loop, now + 12 * MS);
    CHECK(calls == 1);
    turn(loop, now + 14 * MS);
    CHECK(calls == 2 && next_of(loop) == NEVER);
    CHECK(tb_loop_timeout(loop, now, &timeout) == TB_OK && timeout == -1);

    // A moment that steps back fires nothing early, and nothing twice.
    CHECK(tb_schedule_at(engine, now + 20 * MS, count, &calls, &ids[0]) == TB_OK);
    turn(loop, now);
    turn(loop, 0);
    CHECK(calls == 2);
    CHECK(tb_reschedule_on(engine, 0, ids[0], now + 30 * MS, &ids[1]) == TB_OK);
    turn(loop, now + 29 * MS);
    CHECK(calls == 2);
    turn(loop, now + 32 * MS);
    CHECK(calls == 3);
    CHECK(tb_reschedule_on(engine, 0, ids[1], now + 40 * MS, &ids[0]) == TB_NOT_PENDING);

    // A budget: the turn says whether timers are left.
    int more, turns = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK(tb_schedule_at(engine, now + 40 * MS, count, &calls, NULL) == TB_OK);
    }
    do {
        CHECK(tb_loop_turn(loop, now + 42 * MS, 0, &more) == TB_OK);
        turns++;
        CHECK(!more || next_of(loop) <= now + 42 * MS);
    } while (more);
    CHECK(calls == 1003 && turns > 5);

    struct curious curious = {.loop = loop, .engine = engine};
    CHECK(tb_schedule_at(engine, now + 50 * MS, use_the_loop, &curious, NULL) == TB_OK);
    turn(loop, now + 52 * MS);
    turn(loop, now + 54 * MS);
    CHECK(curious.calls == 1);

    // By key and periodically, on the same loop.
    void *user;
    CHECK(tb_schedule_keyed(engine, "key", MS, count, &calls, NULL) == TB_OK);
    CHECK(tb_cancel_keyed(engine, "key", &outcome, &user) == TB_OK && outcome == TB_CANCELLED && user == &calls);
    tb_task *task;
    int ticks = 0;
    CHECK(tb_every(engine, MS, count, &ticks, &task) == TB_OK);
    while (ticks < 3) {
        nap();
        turn(loop, now_of(engine));
    }
    CHECK(tb_task_free(task) == TB_OK);

    struct connection both[2] = {{.other = &both[1]}, {.other = &both[0]}};
    for (int round = 0; round < 100; round++) {
        now = now_of(engine);
        for (int i = 0; i < 2; i++) {
            both[i].is_closed = 0;
            CHECK(tb_timer_create(engine, close_both, &both[i], &both[i].timer) == TB_OK);
            CHECK(tb_timer_arm_at(both[i].timer, now) == TB_OK);
        }
        while (!both[0].is_closed) {
            turn(loop, now_of(engine));
        }
        CHECK(both[1].is_closed);
    }
    tb_stats stats = {.size = sizeof stats};
    CHECK(tb_engine_stats(engine, &stats) == TB_OK);
    CHECK(stats.timers_alive == 0 && stats.pending == 0);
    CHECK(stats.scheduled == stats.cancelled + stats.fired && stats.timers_fired >= 103);

    // The engine goes first.
    CHECK(tb_schedule(engine, 0, count, &calls, NULL) == TB_OK);
    CHECK(tb_engine_free(engine) == TB_OK);
    turn(loop, now + 1000 * MS);
    CHECK(calls == 1003 && tb_loop_free(loop) == TB_OK);
#ifdef DETECTS_STALE
    CHECK(tb_loop_free(loop) == TB_STALE);
    CHECK(tb_loop_turn(loop, 0, 1, NULL) == TB_STALE);
#endif
}

// --- Mistakes ---

static void *turn_elsewhere(void *user) {
    tb_loop *loop = user;
    uint64_t next;
    int timeout;
    CHECK(tb_loop_turn(loop, 0, 1, NULL) == TB_WRONG_THREAD);
    CHECK(strstr(tb_last_error(), "thread") != NULL);
    CHECK(tb_loop_next_deadline(loop, &next) == TB_WRONG_THREAD);
    CHECK(tb_loop_timeout(loop, 0, &timeout) == TB_WRONG_THREAD);
    return NULL;
}

static void *create_elsewhere(void *user) {
    tb_engine *engine = user;
    tb_loop *loop;
    CHECK(tb_loop_create(engine, 0, &loop) == TB_OK);
    turn(loop, now_of(engine) + 100 * MS);
    // A thread that ends may leave its loop to another thread, which frees it.
    return loop;
}

static void mistakes(void) {
    tb_options options = TB_OPTIONS_INIT;
    tb_engine *engine = NULL, *threads;
    tb_loop *loop, *again;
    options.loops = 1;
    options.delivery = TB_POLLED;
    CHECK(tb_engine_create(&options, &engine) == TB_INVALID);
    options.delivery = TB_INLINE;
    options.shards = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_INVALID);
    options.shards = 0;
    options.workers = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_INVALID);
    options.workers = 0;
    options.reserved = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_INVALID);
    options.reserved = 0;
    CHECK(tb_engine_create_driven(&options, &engine) == TB_INVALID);
    options.loops = 1025;
    CHECK(tb_engine_create(&options, &engine) == TB_INVALID && engine == NULL);
    options.loops = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);

    CHECK(tb_loop_create(engine, 1, &loop) == TB_INVALID);
    CHECK(tb_loop_create(engine, 0, &loop) == TB_OK);
    CHECK(tb_loop_create(engine, 0, &again) == TB_BUSY);
    CHECK(tb_schedule_on(engine, 1, 0, count, NULL, NULL) == TB_INVALID);
    CHECK(tb_engine_advance(engine, 1) == TB_WRONG_MODE);
    elsewhere(turn_elsewhere, loop);

    tb_timer *timer;
    CHECK(tb_timer_create(engine, count, NULL, &timer) == TB_OK);
    CHECK(tb_timer_arm_on(timer, 1, 0) == TB_INVALID);
    CHECK(tb_timer_free(timer) == TB_OK);

    options.loops = 0;
    options.shards = 1;
    CHECK(tb_engine_create(&options, &threads) == TB_OK);
    uint64_t id;
    CHECK(tb_loop_create(threads, 0, &again) == TB_WRONG_MODE);
    CHECK(tb_schedule_on(threads, 0, 0, count, NULL, NULL) == TB_WRONG_MODE);
    CHECK(tb_reschedule_on(threads, 0, 1, 0, &id) == TB_WRONG_MODE);
    CHECK(tb_timer_create(threads, count, NULL, &timer) == TB_OK);
    CHECK(tb_timer_arm_on(timer, 0, 0) == TB_WRONG_MODE);
    CHECK(tb_timer_free(timer) == TB_OK);
    CHECK(tb_engine_free(threads) == TB_OK);

    // A loop that is freed loses nothing: the next loop of its number fires the pending timers, on another thread.
    int calls = 0;
    turn(loop, now_of(engine));
    CHECK(tb_schedule(engine, MS, count, &calls, NULL) == TB_OK);
    CHECK(tb_loop_free(loop) == TB_OK);
    pthread_t thread;
    void *created;
    CHECK(pthread_create(&thread, NULL, create_elsewhere, engine) == 0 && pthread_join(thread, &created) == 0);
    CHECK(calls == 1);
    CHECK(tb_loop_turn(created, 0, 1, NULL) == TB_WRONG_THREAD);
    CHECK(tb_loop_free(created) == TB_OK);

    // A shutdown returns the timers that a freed loop left.
    uint64_t unfired;
    CHECK(tb_schedule(engine, MS, count, &calls, NULL) == TB_OK);
    CHECK(tb_schedule_keyed(engine, "key", MS, count, &calls, NULL) == TB_OK);
    CHECK(tb_engine_shutdown(engine, count, &unfired) == TB_OK && unfired == 2 && calls == 3);
    CHECK(tb_loop_create(engine, 0, &loop) == TB_OK);
    turn(loop, now_of(engine) + 100 * MS);
    CHECK(tb_loop_free(loop) == TB_OK && calls == 3);
    CHECK(tb_engine_free(engine) == TB_OK);
}

// --- Wakes ---

struct arming {
    tb_engine *engine;
    uint64_t deadline;
    int *calls;
};

static void *arm_elsewhere(void *user) {
    struct arming *arming = user;
    CHECK(tb_schedule_on(arming->engine, 0, arming->deadline, count, arming->calls, NULL) == TB_OK);
    return NULL;
}

static atomic_int wakes;

static void wake(void *user) {
    atomic_fetch_add((atomic_int *)user, 1);
}

// A wake that fails: nothing happens.
static void do_not_wake(void *user) {
    (void)user;
}

static void an_earlier_arming_makes_the_descriptor_readable(void) {
    tb_engine *engine = engine_with(1);
    tb_loop *loop;
    int fd, calls = 0;
    CHECK(tb_loop_create(engine, 0, &loop) == TB_OK && tb_loop_fd(loop, &fd) == TB_OK);
    uint64_t now = now_of(engine);
    turn(loop, now);
    CHECK(!is_readable(fd, 0));

    // On the loop's own thread nothing is woken.
    CHECK(tb_schedule_at(engine, now + 500 * MS, count, &calls, NULL) == TB_OK);
    CHECK(!is_readable(fd, 0));
    struct arming arming = {.engine = engine, .deadline = now + 600 * MS, .calls = &calls};
    elsewhere(arm_elsewhere, &arming);
    CHECK(!is_readable(fd, 0)); // A later moment.
    for (int i = 0; i < 3; i++) {
        arming.deadline = now + (uint64_t)(300 - 100 * i) * MS;
        elsewhere(arm_elsewhere, &arming);
        CHECK(is_readable(fd, 0));
        CHECK(next_of(loop) <= arming.deadline + 2 * MS);
        turn(loop, now);
        CHECK(!is_readable(fd, 0)); // The turn has seen it.
    }
    turn(loop, now + 1000 * MS);
    CHECK(calls == 5 && next_of(loop) == NEVER);

    // A function in its place; and one that fails: the next turn finds the timer.
    CHECK(tb_loop_wake_by(loop, wake, &wakes) == TB_OK);
    arming.deadline = now + 2000 * MS;
    elsewhere(arm_elsewhere, &arming);
    CHECK(atomic_load(&wakes) == 1 && !is_readable(fd, 0));
    CHECK(tb_loop_wake_by(loop, do_not_wake, NULL) == TB_OK);
    arming.deadline = now + 1900 * MS;
    elsewhere(arm_elsewhere, &arming);
    turn(loop, now + 2002 * MS);
    CHECK(calls == 7);
    CHECK(tb_loop_free(loop) == TB_OK && tb_engine_free(engine) == TB_OK);
}

// --- Several loops ---

#define LOOPS 3
#define SHOTS 3000
#define CONNECTIONS 200

struct shot {
    atomic_int called, cancelled;
    uint64_t id, due;
    uint32_t loop;
};

struct moved {
    tb_timer *timer;
    atomic_int calls;
};

struct world {
    tb_engine *engine;
    // Readable at the end, for the loops, which poll without a limit of their own.
    int end[2];
    atomic_int is_over, called, cancelled;
    struct shot shots[2 * SHOTS];
    struct moved connections[CONNECTIONS];
};

static struct world world;
static _Thread_local int on_loop = -1;
static _Thread_local uint64_t turned_at;

static void one_shot(void *user, const tb_event *event) {
    struct shot *shot = user;
    CHECK(on_loop == (int)shot->loop && event->id != 0);
    CHECK(event->deadline_ns == shot->due && turned_at >= shot->due);
    CHECK(atomic_fetch_add(&shot->called, 1) == 0);
    atomic_fetch_add(&world.called, 1);
}

static void connection_due(void *user, const tb_event *event) {
    struct moved *moved = user;
    CHECK(on_loop >= 0 && event->id == 0);
    atomic_fetch_add(&moved->calls, 1);
}

static void *loop_thread(void *argument) {
    tb_loop *loop;
    int fd, timeout;
    on_loop = *(int *)argument;
    CHECK(tb_loop_create(world.engine, (uint32_t)on_loop, &loop) == TB_OK && tb_loop_fd(loop, &fd) == TB_OK);
    for (uint64_t turns = 0; !atomic_load(&world.is_over); turns++) {
        uint64_t now = now_of(world.engine);
        CHECK(tb_loop_timeout(loop, now, &timeout) == TB_OK);
        // A loop whose timers are far, or that has none, polls until it is woken.
        struct pollfd interests[] = {{.fd = fd, .events = POLLIN}, {.fd = world.end[0], .events = POLLIN}};
        poll(interests, 2, timeout);
        turned_at = now_of(world.engine);
        turn(loop, turned_at);
        if (turns % 64 == 63) { // It moves: to a loop of the same number.
            CHECK(tb_loop_free(loop) == TB_OK);
            CHECK(tb_loop_create(world.engine, (uint32_t)on_loop, &loop) == TB_OK && tb_loop_fd(loop, &fd) == TB_OK);
        }
    }
    CHECK(tb_loop_free(loop) == TB_OK);
    return NULL;
}

// Schedules for all loops, and cancels every other one-shot from here: each ends once.
static void *foreign_thread(void *argument) {
    struct shot *shots = argument;
    for (int i = 0; i < SHOTS; i++) {
        struct shot *shot = &shots[i];
        shot->loop = (uint32_t)i % LOOPS;
        shot->due = now_of(world.engine) + (uint64_t)(i % 7) * MS;
        CHECK(tb_schedule_on(world.engine, shot->loop, shot->due, one_shot, shot, &shot->id) == TB_OK);
        if (i % 2 == 1) {
            tb_outcome outcome;
            struct shot *other = &shots[i - i % 16];
            CHECK(tb_cancel_and_wait(world.engine, other->id, &outcome) == TB_OK && outcome != TB_RUNNING);
            if (outcome == TB_CANCELLED) {
                CHECK(atomic_fetch_add(&other->cancelled, 1) == 0 && atomic_load(&other->called) == 0);
                atomic_fetch_add(&world.cancelled, 1);
            }
        }
        struct moved *moved = &world.connections[i % CONNECTIONS];
        CHECK(tb_timer_arm_on(moved->timer, (uint32_t)i % LOOPS, now_of(world.engine) + 2 * MS) == TB_OK);
    }
    return NULL;
}

static void several_loops(void) {
    static const int waits = 20000;
    pthread_t loops[LOOPS], threads[2];
    int numbers[LOOPS];
    world.engine = engine_with(LOOPS);
    CHECK(pipe(world.end) == 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct moved *moved = &world.connections[i];
        CHECK(tb_timer_create(world.engine, connection_due, moved, &moved->timer) == TB_OK);
    }
    for (int i = 0; i < LOOPS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&loops[i], NULL, loop_thread, &numbers[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, foreign_thread, &world.shots[i * SHOTS]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (int i = 0; i < waits && atomic_load(&world.called) + atomic_load(&world.cancelled) < 2 * SHOTS; i++) {
        nap();
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        struct moved *moved = &world.connections[i];
        for (int j = 0; j < waits && atomic_load(&moved->calls) == 0; j++) {
            nap();
        }
        CHECK(atomic_load(&moved->calls) > 0);
        CHECK(tb_timer_disarm_and_wait(moved->timer, NULL) == TB_OK && tb_timer_free(moved->timer) == TB_OK);
    }
    for (int i = 0; i < 2 * SHOTS; i++) {
        CHECK(atomic_load(&world.shots[i].called) + atomic_load(&world.shots[i].cancelled) == 1);
    }
    // A shutdown while the loops turn: it waits for their turns.
    uint64_t unfired;
    static int returned;
    for (uint32_t i = 0; i < LOOPS; i++) {
        CHECK(tb_schedule_on(world.engine, i, NEVER, count, &returned, NULL) == TB_OK);
    }
    CHECK(tb_engine_shutdown(world.engine, count, &unfired) == TB_OK && unfired == LOOPS && returned == LOOPS);
    CHECK(tb_schedule_on(world.engine, 0, 0, count, &returned, NULL) == TB_SHUT_DOWN);
    atomic_store(&world.is_over, 1);
    CHECK(write(world.end[1], "", 1) == 1);
    for (int i = 0; i < LOOPS; i++) {
        CHECK(pthread_join(loops[i], NULL) == 0);
    }
    CHECK(close(world.end[0]) == 0 && close(world.end[1]) == 0);
    tb_stats stats = {.size = sizeof stats};
    CHECK(tb_engine_stats(world.engine, &stats) == TB_OK);
    CHECK(stats.fired == (uint64_t)atomic_load(&world.called) && stats.timers_alive == 0 && stats.returned == LOOPS);
    CHECK(tb_engine_free(world.engine) == TB_OK);
}

// More keys and moves, between two turns, than the lane of the loop's thread holds.
static void keys_beyond_a_lane(void) {
    tb_options options = TB_OPTIONS_INIT;
    tb_engine *engine;
    tb_loop *loop;
    char key[16];
    int calls = 0;
    options.loops = 1;
    options.lane_capacity = 64;
    CHECK(tb_engine_create(&options, &engine) == TB_OK && tb_loop_create(engine, 0, &loop) == TB_OK);
    turn(loop, now_of(engine));
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        CHECK(tb_schedule_keyed(engine, key, NEVER, count, &calls, NULL) == TB_OK);
        CHECK(tb_reschedule_keyed(engine, key, 0) == TB_OK);
    }
    nap();
    nap();
    while (calls < 1000) {
        turn(loop, now_of(engine));
    }
    CHECK(calls == 1000 && tb_loop_free(loop) == TB_OK && tb_engine_free(engine) == TB_OK);
}

// --- Several loops on one thread ---

struct twice {
    tb_engine *engine;
    tb_loop *first;
};

static void *free_the_first(void *argument) {
    struct twice *twice = argument;
    CHECK(tb_loop_free(twice->first) == TB_OK);
    return NULL;
}

static void *create_and_turn_the_first(void *argument) {
    struct twice *twice = argument;
    CHECK(tb_loop_free(twice->first) == TB_OK);
    CHECK(tb_loop_create(twice->engine, 0, &twice->first) == TB_OK);
    turn(twice->first, now_of(twice->engine) + 1000 * MS);
    return NULL;
}

static void a_timer_fires_in(tb_engine *engine, tb_loop *loop) {
    int calls = 0;
    tb_timer *timer;
    uint64_t deadline = now_of(engine);
    CHECK(tb_timer_create(engine, count, &calls, &timer) == TB_OK);
    CHECK(tb_timer_arm_at(timer, deadline) == TB_OK);
    CHECK(tb_schedule_at(engine, deadline, count, &calls, NULL) == TB_OK);
    CHECK(tb_schedule_keyed(engine, "key", 0, count, &calls, NULL) == TB_OK);
    nap();
    nap();
    turn(loop, now_of(engine));
    CHECK(calls == 3);
    CHECK(tb_timer_free(timer) == TB_OK);
}

// The timers of a thread go to one of the loops that it has, also before the first turn of that loop.
static void several_loops_on_one_thread(void) {
    for (int departure = 0; departure < 3; departure++) {
        struct twice twice = {.engine = engine_with(3)};
        tb_loop *second, *third;
        CHECK(tb_loop_create(twice.engine, 2, &third) == TB_OK);
        a_timer_fires_in(twice.engine, third);
        CHECK(tb_loop_create(twice.engine, 0, &twice.first) == TB_OK);
        CHECK(tb_loop_create(twice.engine, 1, &second) == TB_OK);
        a_timer_fires_in(twice.engine, twice.first);
        if (departure == 0) {
            CHECK(tb_loop_free(twice.first) == TB_OK);
        } else {
            elsewhere(departure == 1 ? free_the_first : create_and_turn_the_first, &twice);
            turn(second, now_of(twice.engine));
        }
        a_timer_fires_in(twice.engine, second);
        if (departure == 2) {
            CHECK(tb_loop_free(twice.first) == TB_OK);
        }
        CHECK(tb_loop_free(second) == TB_OK);
        a_timer_fires_in(twice.engine, third);
        CHECK(tb_loop_free(third) == TB_OK && tb_engine_free(twice.engine) == TB_OK);
    }
}

int main(void) {
    a_wheel_without_threads();
    several_loops_on_one_thread();
    keys_beyond_a_lane();
    mistakes();
    an_earlier_arming_makes_the_descriptor_readable();
    several_loops();
    printf("loops: ok\n");
    return 0;
}
