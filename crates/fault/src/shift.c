/* A library that is preloaded into a process. It shifts the process's time of day by the seconds in a file, which it
 * reads at each call. The environment variable SHIFT names the file. The monotonic clock stays right. libfaketime does
 * the same for more programs, but not for programs with jemalloc, such as redis-server.
 * The functions make system calls without the C library, so that they allocate nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) {
    const char *path = getenv("SHIFT");
    char text[32] = {0};
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return 0;
    }
    if (syscall(SYS_read, file, text, sizeof text - 1) < 0) {
        text[0] = 0;
    }
    syscall(SYS_close, file);
    return (time_t)atoll(text);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        at->tv_sec += shift();
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (result == 0 && at) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return (time_t)-1;
    }
    if (at) {
        *at = now.tv_sec;
    }
    return now.tv_sec;
}
