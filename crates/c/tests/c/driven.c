// A driven engine: the time of each callback is known to the nanosecond.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tourbillon.h>

#define MS 1000000ull

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tb_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

struct log {
    tb_engine *engine;
    uint64_t at[8];
    int length;
};

static void note(void *user, const tb_event *event) {
    struct log *log = user;
    (void)event;
    CHECK(tb_now(log->engine, &log->at[log->length++]) == TB_OK);
}

int main(void) {
    struct log log = {0};
    uint64_t id;
    tb_outcome outcome;
    tb_timer *timer;
    CHECK(tb_engine_create_driven(NULL, &log.engine) == TB_OK);
    CHECK(tb_schedule(log.engine, 5 * MS, note, &log, &id) == TB_OK);
    CHECK(tb_schedule(log.engine, 7 * MS, note, &log, NULL) == TB_OK);
    CHECK(tb_reschedule(log.engine, id, 6 * MS, &id) == TB_OK);
    CHECK(tb_timer_create(log.engine, note, &log, &timer) == TB_OK);
    CHECK(tb_timer_arm_at(timer, 20 * MS) == TB_OK);
    CHECK(tb_timer_arm(timer, 9 * MS) == TB_OK);
    CHECK(tb_engine_advance(log.engine, 100 * MS) == TB_OK);
    CHECK(log.length == 3 && log.at[0] == 6 * MS && log.at[1] == 7 * MS && log.at[2] == 9 * MS);
    CHECK(tb_cancel(log.engine, id, &outcome) == TB_OK && outcome == TB_GONE);
    CHECK(tb_timer_disarm(timer, &outcome) == TB_OK && outcome == TB_GONE);

    CHECK(tb_schedule(NULL, 0, note, &log, NULL) == TB_NULL);
    CHECK(strcmp(tb_last_error(), "tb_engine is null") == 0);
    CHECK(tb_every(log.engine, 0, note, &log, NULL) == TB_INVALID);
    CHECK(tb_timer_free(timer) == TB_OK);
#ifdef DETECTS_STALE
    CHECK(tb_timer_free(timer) == TB_STALE);
    CHECK(tb_timer_arm(timer, 0) == TB_STALE);
#endif
    CHECK(tb_engine_free(log.engine) == TB_OK);
#ifdef DETECTS_STALE
    CHECK(tb_engine_free(log.engine) == TB_STALE);
#endif
    printf("driven: ok\n");
    return 0;
}
