// Closes the library while a thread of an engine, which was freed in its own callback, has not ended yet.

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tourbillon.h>

#define ROUNDS 400

#define CHECK(condition)                                                           \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);        \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

// The functions of the library that the program calls.
static tb_status (*create)(const tb_options *, tb_engine **);
static tb_status (*schedule)(const tb_engine *, uint64_t, tb_callback, void *, uint64_t *);
static tb_status (*free_engine)(tb_engine *);

static _Atomic(tb_engine *) engine;
static atomic_int freed;

static void free_it(void *user, const tb_event *event) {
    (void)user;
    (void)event;
    tb_engine *mine;
    while ((mine = atomic_load(&engine)) == NULL) {
    }
    CHECK(free_engine(mine) == TB_OK);
    atomic_store(&freed, 1);
}

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    CHECK(function != NULL);
    return function;
}

static void nap(long nanoseconds) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = nanoseconds};
    nanosleep(&time, NULL);
}

// Runs on a thread of its own: a thread that has used the library keeps it loaded until it ends.
static void *make_and_schedule(void *user) {
    tb_options options = TB_OPTIONS_INIT;
    options.shards = 4;
    options.workers = 16;
    // A tick so short that some threads have not begun when the callback runs.
    options.tick_ns = 1000;
    options.pinning = TB_UNPINNED;
    options.delivery = *(int *)user % 4 == 0 ? TB_INLINE : TB_POOL;
    tb_engine *made;
    CHECK(create(&options, &made) == TB_OK);
    CHECK(schedule(made, 0, free_it, NULL, NULL) == TB_OK);
    atomic_store(&engine, made);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (int round = 0; round < ROUNDS; round++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        *(void **)&create = find(library, "tb_engine_create");
        *(void **)&schedule = find(library, "tb_schedule");
        *(void **)&free_engine = find(library, "tb_engine_free");
        pthread_t thread;
        atomic_store(&freed, 0);
        atomic_store(&engine, NULL);
        CHECK(pthread_create(&thread, NULL, make_and_schedule, &round) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        while (!atomic_load(&freed)) {
        }
        nap(round % 4 * 10000);
        CHECK(dlclose(library) == 0);
    }
    nap(2000000);
    printf("unloaded: ok\n");
    return 0;
}
