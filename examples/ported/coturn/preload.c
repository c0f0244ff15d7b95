// Loaded before the programs of coturn by `run`. Counts the calls by which a server arms and deletes libevent's timers,
// in the file that TIMER_COUNTS names: four numbers of 64 bits each, armed, deleted, pending and the most that were
// pending. And makes the random numbers of the load's clients the same in each run.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARMED, DELETED, PENDING, MOST, COUNTS };

static int64_t *counts(void) {
    static int64_t nowhere[COUNTS], *counts = NULL;
    const char *path = getenv("TIMER_COUNTS");
    if (counts == NULL && path == NULL) {
        counts = nowhere;
    } else if (counts == NULL) {
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, sizeof nowhere) < 0) {
            abort();
        }
        void *place = mmap(NULL, sizeof nowhere, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (place == MAP_FAILED) {
            abort();
        }
        counts = place;
        close(fd);
    }
    return counts;
}

static void count(int which, int64_t by) {
    int64_t is = __atomic_add_fetch(&counts()[which], by, __ATOMIC_RELAXED), *most = &counts()[MOST];
    if (which == PENDING && is > *most) {
        *most = is; // Without a lock: a larger number of another thread may be lost.
    }
}

static int is_timer(const struct event *ev) {
    return event_get_fd(ev) < 0;
}

int event_add(struct event *ev, const struct timeval *length) {
    static int (*next)(struct event *, const struct timeval *);
    if (next == NULL) {
        next = (int (*)(struct event *, const struct timeval *))dlsym(RTLD_NEXT, "event_add");
    }
    if (length != NULL && is_timer(ev)) {
        count(ARMED, 1);
        if (!event_pending(ev, EV_TIMEOUT, NULL)) {
            count(PENDING, 1);
        }
    }
    return next(ev, length);
}

int event_del(struct event *ev) {
    static int (*next)(struct event *);
    if (next == NULL) {
        next = (int (*)(struct event *))dlsym(RTLD_NEXT, "event_del");
    }
    if (is_timer(ev) && event_pending(ev, EV_TIMEOUT, NULL)) {
        count(DELETED, 1);
        count(PENDING, -1);
    }
    return next(ev);
}

void srandom(unsigned seed) {
    (void)seed;
}
