// An epoll loop: one-shots, a periodic task and connections whose timers are freed while their events may wait.

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <tourbillon.h>

#define MS 1000000ull
#define CONNECTIONS 200

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

struct connection {
    tb_timer *timer;
    int closed;
};

static int one_shots, ticks, closed;

// No code here runs on another thread: plain counters are enough.
static void one_shot(void *user, const tb_event *event) {
    (void)event;
    free(user);
    one_shots++;
}

static void tick(void *user, const tb_event *event) {
    (void)user;
    ticks += (int)event->count;
}

static void close_idle(void *user, const tb_event *event) {
    struct connection *connection = user;
    (void)event;
    CHECK(tb_timer_free(connection->timer) == TB_OK);
    free(connection);
    closed++;
}

int main(void) {
    tb_options options = TB_OPTIONS_INIT;
    options.shards = 1;
    options.delivery = TB_POLLED;
    options.pinning = TB_UNPINNED;
    tb_engine *engine;
    CHECK(tb_engine_create(&options, &engine) == TB_OK);
    int fd, epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(tb_event_fd(engine, &fd) == TB_OK);
    struct epoll_event interest = {.events = EPOLLIN, .data = {.fd = fd}};
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest) == 0);

    int expected = 0, left_early = 0;
    struct connection *open[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        open[i] = calloc(1, sizeof *open[i]);
        CHECK(tb_timer_create(engine, close_idle, open[i], &open[i]->timer) == TB_OK);
        CHECK(tb_timer_arm(open[i]->timer, (uint64_t)(i % 20) * MS) == TB_OK);
        void *user = malloc(8);
        uint64_t id;
        tb_outcome outcome;
        CHECK(tb_schedule(engine, (uint64_t)(i % 20) * MS, one_shot, user, &id) == TB_OK);
        expected++;
        if (i % 2 == 0) {
            CHECK(tb_cancel(engine, id, &outcome) == TB_OK);
            CHECK(outcome != TB_RUNNING);
            if (outcome == TB_CANCELLED) {
                free(user);
                expected--;
            }
        }
    }
    tb_task *task;
    CHECK(tb_every(engine, 2 * MS, tick, NULL, &task) == TB_OK);

    int next = 0;
    while (one_shots < expected || closed + left_early < CONNECTIONS || ticks < 5) {
        struct epoll_event ready;
        CHECK(epoll_wait(epoll, &ready, 1, 20000) == 1);
        // A timer that is freed between two polls has no event in the second: the program polls one event at a time,
        // since each callback may free any timer.
        tb_event event;
        size_t count;
        CHECK(tb_poll(engine, &event, 1, &count) == TB_OK);
        if (count == 1) {
            if (event.callback == close_idle) {
                for (int i = 0; i < CONNECTIONS; i++) {
                    open[i] = open[i] == event.user ? NULL : open[i];
                }
            }
            event.callback(event.user, &event);
        }
        // A client leaves: its timer may be due by now, but no event of it must come any more.
        while (next < CONNECTIONS && open[next] == NULL) {
            next += 3;
        }
        if (next < CONNECTIONS) {
            CHECK(tb_timer_free(open[next]->timer) == TB_OK);
            free(open[next]);
            open[next] = NULL;
            left_early++;
            next += 3;
        }
    }
    CHECK(tb_task_free(task) == TB_OK);

    // Frees an engine while events wait, and before a timer.
    tb_timer *timer;
    struct epoll_event ready;
    tb_event rest[16];
    size_t count;
    CHECK(tb_poll(engine, rest, 16, &count) == TB_OK && count == 0);
    CHECK(tb_timer_create(engine, NULL, NULL, &timer) == TB_OK);
    CHECK(tb_timer_arm(timer, MS) == TB_OK);
    CHECK(epoll_wait(epoll, &ready, 1, 20000) == 1);
    CHECK(tb_schedule(engine, 0, NULL, NULL, NULL) == TB_OK);
    CHECK(tb_engine_free(engine) == TB_OK);
    CHECK(tb_timer_free(timer) == TB_OK);
    printf("polled: ok\n");
    return 0;
}
