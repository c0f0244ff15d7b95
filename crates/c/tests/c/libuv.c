// A loop of libuv that turns a shard, by the three functions that the crate's README shows: timers fire on the loop's
// thread, never early, also those that another thread arms; the loop runs as long as a timer is pending, even if
// nothing else keeps it running; and then it ends.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tourbillon.h>
#include <uv.h>

#define MS UINT64_C(1000000)

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static tb_engine *engine;
static tb_loop *timers;
static uv_timer_t waker;
static uv_prepare_t preparation;
static uv_async_t earlier;

static void turn(uv_timer_t *handle);

static void keep_running(void) {
    uint64_t next;
    if (uv_is_active((uv_handle_t *)&waker)) {
        return;
    }
    if (tb_loop_next_deadline(timers, &next) == TB_OK && next != UINT64_MAX) {
        uv_timer_start(&waker, turn, 1, 0);
    }
}

static void turn(uv_timer_t *handle) {
    uint64_t now;
    (void)handle;
    tb_now(engine, &now);
    tb_loop_turn(timers, now, 1024, NULL);
    keep_running();
}

static void prepare(uv_prepare_t *handle) {
    uint64_t now, next;
    (void)handle;
    tb_now(engine, &now);
    tb_loop_next_deadline(timers, &next);
    if (next == UINT64_MAX) {
        uv_timer_stop(&waker);
    } else {
        uv_timer_start(&waker, turn, next > now ? (next - now + 999999) / 1000000 : 0, 0);
    }
}

// Another thread has armed an earlier timer: libuv prepares its next poll anew.
static void look_again(uv_async_t *handle) {
    (void)handle;
}

static void wake(void *user) {
    uv_async_send(user);
}

struct probe {
    tb_timer *timer;
    uint64_t due;
    int calls;
    int is_armed_elsewhere; // After the first call.
};

static uv_thread_t other;

static uint64_t now_of_engine(void) {
    uint64_t now;
    CHECK(tb_now(engine, &now) == TB_OK);
    return now;
}

static void arm_elsewhere(void *arg) {
    struct probe *probe = arg;
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 20000000};
    nanosleep(&pause, NULL); // The loop waits for the other timer now.
    probe->due = now_of_engine() + 5 * MS;
    CHECK(tb_timer_arm_on(probe->timer, 0, probe->due) == TB_OK);
}

static void fired(void *user, const tb_event *event) {
    struct probe *probe = user;
    (void)event;
    CHECK(now_of_engine() >= probe->due);
    probe->calls++;
    if (probe->is_armed_elsewhere && probe->calls == 1) {
        CHECK(uv_thread_create(&other, arm_elsewhere, probe) == 0);
    } else if (probe->is_armed_elsewhere) {
        // No other thread arms from here on.
        CHECK(uv_thread_join(&other) == 0);
        uv_close((uv_handle_t *)&earlier, NULL);
    }
}

static void arm(struct probe *probe, uint64_t delay_ns) {
    CHECK(tb_timer_create(engine, fired, probe, &probe->timer) == TB_OK);
    probe->due = now_of_engine() + delay_ns;
    CHECK(tb_timer_arm_at(probe->timer, probe->due) == TB_OK);
}

// Timers alone keep the loop running. No other handle of the loop is active.

static int shots;

static void shoot(void *user, const tb_event *event) {
    int *left = user;
    (void)event;
    shots++;
    if (--*left > 0) {
        CHECK(tb_schedule(engine, 3 * MS, shoot, user, NULL) == TB_OK);
        keep_running(); // In a turn: without effect.
    }
}

static void shoot_later(int *left) {
    CHECK(tb_schedule(engine, 3 * MS, shoot, left, NULL) == TB_OK);
    keep_running();
}

static void is_closed(uv_handle_t *handle) {
    shoot_later(handle->data);
}

static void is_prepared(uv_prepare_t *handle) {
    uv_prepare_stop(handle);
    shoot_later(handle->data);
}

static uv_idle_t idle; // While it is active, a poll does not wait.

static void is_checked(uv_check_t *handle) {
    uv_check_stop(handle);
    uv_idle_stop(&idle);
    shoot_later(handle->data);
}

static void do_nothing(uv_idle_t *handle) {
    (void)handle;
}

static void is_timed_out(uv_timer_t *handle) {
    shoot_later(handle->data);
}

static void run_the_shots(uv_loop_t *loop, int expected) {
    shots = 0;
    CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
    CHECK(shots == expected);
    CHECK(!uv_is_active((uv_handle_t *)&waker));
}

static void timers_alone_keep_the_loop_running(uv_loop_t *loop) {
    int left = 4, many[3000];
    uv_timer_t timeout;
    uv_prepare_t prepared;
    uv_check_t checked;

    shoot_later(&left); // Before the loop runs.
    run_the_shots(loop, 4);
    for (int i = 0; i < 3000; i++) {
        many[i] = 1; // More than a turn fires.
        shoot_later(&many[i]);
    }
    run_the_shots(loop, 3000);

    // The last active handle of the loop arms, in each phase of the loop.
    left = 2;
    uv_timer_init(loop, &timeout);
    timeout.data = &left;
    uv_timer_start(&timeout, is_timed_out, 1, 0);
    run_the_shots(loop, 2);
    left = 2;
    uv_prepare_init(loop, &prepared);
    prepared.data = &left;
    uv_prepare_start(&prepared, is_prepared);
    run_the_shots(loop, 2);
    left = 2;
    uv_check_init(loop, &checked);
    checked.data = &left;
    uv_check_start(&checked, is_checked);
    uv_idle_init(loop, &idle);
    uv_idle_start(&idle, do_nothing);
    run_the_shots(loop, 2);
    left = 2;
    idle.data = &left;
    uv_close((uv_handle_t *)&idle, is_closed);
    run_the_shots(loop, 2);

    uv_close((uv_handle_t *)&timeout, NULL);
    uv_close((uv_handle_t *)&prepared, NULL);
    uv_close((uv_handle_t *)&checked, NULL);
    run_the_shots(loop, 0);
}

int main(void) {
    tb_options options = TB_OPTIONS_INIT;
    uv_loop_t *loop = uv_default_loop();
    struct probe near = {.is_armed_elsewhere = 1}, far = {.calls = 0};

    options.loops = 1;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);
    CHECK(tb_loop_create(engine, 0, &timers) == TB_OK);
    uv_timer_init(loop, &waker);
    uv_prepare_init(loop, &preparation);
    uv_prepare_start(&preparation, prepare);
    uv_unref((uv_handle_t *)&preparation);
    timers_alone_keep_the_loop_running(loop);
    uv_async_init(loop, &earlier, look_again);
    CHECK(tb_loop_wake_by(timers, wake, &earlier) == TB_OK);

    arm(&near, 3 * MS);
    arm(&far, 500 * MS);
    CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
    CHECK(near.calls == 2 && far.calls == 1);

    CHECK(tb_timer_free(near.timer) == TB_OK && tb_timer_free(far.timer) == TB_OK);
    CHECK(tb_loop_free(timers) == TB_OK && tb_engine_free(engine) == TB_OK);
    uv_close((uv_handle_t *)&preparation, NULL);
    uv_close((uv_handle_t *)&waker, NULL);
    CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0 && uv_loop_close(loop) == 0);
    puts("libuv: ok");
    return 0;
}
