// A loop of libuv that turns a shard, by the two functions that the crate's README shows: timers fire on the loop's
// thread, never early, also those that another thread arms; and the loop ends when nothing is pending.

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

static void turn(uv_timer_t *handle) {
    uint64_t now;
    (void)handle;
    tb_now(engine, &now);
    tb_loop_turn(timers, now, 1024, NULL);
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
