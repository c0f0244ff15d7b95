/* tourbillon_libevent: the timers of a libevent loop by the engine. Header only, for libevent 2.0 and later.
 *
 * A program that uses libevent for its sockets, and arms a timer for nearly everything, changes the types and names of
 * its timers, and nothing else:
 *
 *   libevent                                   here
 *   (once for each event_base)                 evbase = tb_evbase_new(base)
 *   struct event *ev                           tb_evtimer *ev
 *   evtimer_new(base, cb, arg)                 tb_evtimer_new(evbase, 0, cb, arg)
 *   event_new(base, -1, EV_PERSIST, cb, arg)   tb_evtimer_new(evbase, EV_PERSIST, cb, arg)
 *   evtimer_add(ev, &tv)                       tb_evtimer_add(ev, &tv)
 *   evtimer_del(ev)                            tb_evtimer_del(ev)
 *   evtimer_pending(ev, NULL)                  tb_evtimer_pending(ev)
 *   event_free(ev)                             tb_evtimer_free(ev)
 *   event_base_free(base)                      tb_evbase_free(evbase), before it
 *
 * The callbacks are the same, and are called by event_base_dispatch on the thread of the loop, as before. One event of
 * libevent wakes the loop for all timers of the evbase, at the earliest deadline. event_base_dispatch returns if
 * neither another event nor a timer is pending, as before.
 *
 * Differences:
 *
 * - Until the loop runs, an evbase and its timers belong to the thread that sets them up, and from the first turn on to
 *   the thread of the loop. With evthread_use_pthreads libevent allows other threads to add and delete; here
 *   tb_evtimer_add and tb_evtimer_del return -1 there. Another thread hands the work to the loop, or uses an engine of
 *   its own.
 * - A timer counts from the moment of the call, not from the moment at which the loop has woken up, and is never early.
 *   Deadlines are rounded up to a tick, which is 1 ms by default.
 * - The callbacks of one turn are one event to libevent: event_base_loopbreak and priorities act between turns, of at
 *   most TB_EVBASE_BUDGET timers.
 * - event_base_loop with EVLOOP_ONCE may return before a timer has fired: at its first call, when the evbase comes to
 *   the loop, and when the loop has woken up for a timer that was deleted.
 * - An evbase does not survive a fork, with or without event_reinit: in the child tb_evtimer_add returns -1, and
 *   event_base_dispatch ends the process with a message. A daemon forks first, and makes its evbase afterwards.
 * - event_active and event_base_once have no counterpart.
 *
 * Lengths are as in libevent: a negative one is 0, and NULL changes nothing, since these events have no descriptor. A
 * length of more than 584 years is for ever. A length from event_base_init_common_timeout has no advantage here. It is
 * known by its microseconds, from 0x50000000 to 0x5fffffff: a program must not give such a number of its own.
 */

#ifndef TOURBILLON_LIBEVENT_H
#define TOURBILLON_LIBEVENT_H

#include <event2/event.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <tourbillon.h>

#ifdef __cplusplus
extern "C" {
#endif

// The number of timers that a turn fires or moves at most, before the loop looks at its sockets again.
#ifndef TB_EVBASE_BUDGET
#define TB_EVBASE_BUDGET 1024
#endif

// The engine of one event_base.
typedef struct tb_evbase {
    tb_engine *engine;
    tb_loop *loop;       // NULL until the loop's thread has come by.
    pthread_t owner;     // The loop's thread, if there is a loop.
    struct event *waker; // Wakes the loop at `next_ns`.
    uint64_t next_ns;    // UINT64_MAX: the waker is not pending.
    size_t pending;      // The number of pending timers: without any, the waker does not keep the loop running.
    int is_turning;      // The turn asks for the next deadline at its end.
} tb_evbase;

// A timer, in place of a `struct event`. Many are armed once in their life, so the first arming is a one-shot, unless
// the timer is persistent.
typedef struct tb_evtimer {
    uint64_t id;     // The one-shot, or 0.
    tb_timer *timer; // From the second arming on. A persistent timer has it from the first on: no firing finds it full.
    tb_evbase *base;
    event_callback_fn callback;
    void *arg;
    uint64_t period_ns;
    int is_persistent, is_pending, is_used;
} tb_evtimer;

static inline uint64_t tb_evbase_ns(const struct timeval *length) {
    const int64_t most_s = INT64_C(10000000000000); // More than the microseconds can change.
    int64_t s = length->tv_sec, us = length->tv_usec;
    if ((us & ~INT64_C(0xfffffff)) == 0x50000000) {
        us &= 0xfffff; // libevent marks a common timeout by bits above the microseconds.
    }
    s = s > most_s ? most_s : s < -most_s ? -most_s : s;
    s += us / 1000000;
    us %= 1000000;
    if (us < 0) {
        us += 1000000;
        s--;
    }
    if (s < 0) {
        return 0;
    }
    if ((uint64_t)s >= UINT64_MAX / 1000000000u) {
        return UINT64_MAX;
    }
    return (uint64_t)s * 1000000000u + (uint64_t)us * 1000u;
}

// The moment `by_ns` after `at_ns`. It is before UINT64_MAX, which means that nothing is pending.
static inline uint64_t tb_evbase_after(uint64_t at_ns, uint64_t by_ns) {
    return at_ns < UINT64_MAX - 1 && by_ns < UINT64_MAX - 1 - at_ns ? at_ns + by_ns : UINT64_MAX - 1;
}

// Ends the program: without its loop no timer would fire.
static inline void tb_evbase_must(tb_status status) {
    if (status != TB_OK) {
        fprintf(stderr, "tourbillon_libevent: %s: %s\n", tb_status_name(status), tb_last_error());
        abort();
    }
}

// Whether the calling thread may use the evbase.
static inline int tb_evbase_is_here(const tb_evbase *base) {
    return base->loop == NULL || pthread_equal(base->owner, pthread_self());
}

// Sets the waker to the earliest deadline.
static inline void tb_evbase_wait(tb_evbase *base, uint64_t now_ns) {
    uint64_t next_ns = UINT64_MAX;
    if (base->pending > 0) {
        tb_evbase_must(tb_loop_next_deadline(base->loop, &next_ns));
        // A timer that never fires keeps the loop running, too.
        next_ns = next_ns < UINT64_MAX - 1 ? next_ns : UINT64_MAX - 1;
    }
    if (next_ns == UINT64_MAX) {
        if (base->next_ns != UINT64_MAX) {
            event_del(base->waker);
        }
    } else if (next_ns != base->next_ns) {
        uint64_t us = next_ns > now_ns ? (next_ns - now_ns - 1) / 1000 + 1 : 0;
        struct timeval length;
        // Thirty years, which every time_t can represent.
        us = us < UINT64_C(1000000000000000) ? us : UINT64_C(1000000000000000);
        length.tv_sec = (time_t)(us / 1000000);
        length.tv_usec = (suseconds_t)(us % 1000000);
        event_add(base->waker, &length);
    }
    base->next_ns = next_ns;
}

// Lets the loop end if no timer is pending.
static inline void tb_evbase_rest(tb_evbase *base) {
    if (base->pending == 0 && base->next_ns != UINT64_MAX) {
        event_del(base->waker);
        base->next_ns = UINT64_MAX;
    }
}

// The callback of the waker.
static inline void tb_evbase_turn(evutil_socket_t fd, short what, void *arg) {
    tb_evbase *base = (tb_evbase *)arg;
    uint64_t now_ns;
    (void)fd;
    (void)what;
    if (base->loop == NULL) {
        tb_evbase_must(tb_loop_create(base->engine, 0, &base->loop));
        base->owner = pthread_self();
    }
    base->next_ns = UINT64_MAX;
    tb_evbase_must(tb_now(base->engine, &now_ns));
    base->is_turning = 1;
    tb_evbase_must(tb_loop_turn(base->loop, now_ns, TB_EVBASE_BUDGET, NULL));
    base->is_turning = 0;
    tb_evbase_must(tb_now(base->engine, &now_ns));
    tb_evbase_wait(base, now_ns);
}

// Makes the engine for an event_base. NULL options mean the defaults; `options->loops` is set to 1 here. Returns NULL
// if there is no memory, or if the options are refused: see tb_last_error.
static inline tb_evbase *tb_evbase_new_with(struct event_base *base, const tb_options *options) {
    tb_options with = TB_OPTIONS_INIT;
    tb_evbase *made = (tb_evbase *)calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    if (options != NULL) {
        with = *options;
    }
    with.loops = 1;
    made->next_ns = UINT64_MAX;
    if (tb_engine_create(&with, &made->engine) != TB_OK) {
        free(made);
        return NULL;
    }
    made->waker = event_new(base, -1, 0, tb_evbase_turn, made);
    if (made->waker == NULL) {
        tb_engine_free(made->engine);
        free(made);
        return NULL;
    }
    // The first turn, on the thread of the loop, creates the loop.
    event_active(made->waker, EV_TIMEOUT, 0);
    return made;
}

static inline tb_evbase *tb_evbase_new(struct event_base *base) {
    return tb_evbase_new_with(base, NULL);
}

// The engine, for tb_engine_stats.
static inline tb_engine *tb_evbase_engine(const tb_evbase *base) {
    return base->engine;
}

// Frees the engine: after its timers and before the event_base, on the thread of the loop or when that has ended, and
// not in a callback of a timer.
static inline void tb_evbase_free(tb_evbase *base) {
    event_free(base->waker);
    if (base->loop != NULL) {
        tb_loop_free(base->loop);
    }
    tb_engine_free(base->engine);
    free(base);
}

static inline void tb_evtimer_set_pending(tb_evtimer *timer, int is_pending) {
    timer->base->pending += (size_t)is_pending - (size_t)timer->is_pending;
    timer->is_pending = is_pending;
}

static inline void tb_evtimer_fire(void *user, const tb_event *event);

// Arms a timer, which may be pending.
static inline tb_status tb_evtimer_arm_at(tb_evtimer *timer, uint64_t deadline_ns) {
    if (timer->timer == NULL) {
        tb_status status;
        if (!timer->is_used && !timer->is_persistent) {
            timer->is_used = 1;
            return tb_schedule_at(timer->base->engine, deadline_ns, tb_evtimer_fire, timer, &timer->id);
        }
        status = tb_timer_create(timer->base->engine, tb_evtimer_fire, timer, &timer->timer);
        if (status == TB_FULL && timer->is_pending) {
            // The one-shot keeps its place in the engine.
            return tb_reschedule_on(timer->base->engine, 0, timer->id, deadline_ns, &timer->id);
        }
        if (status != TB_OK) {
            return status;
        }
        tb_cancel(timer->base->engine, timer->id, NULL);
        timer->id = 0;
    }
    return tb_timer_arm_at(timer->timer, deadline_ns);
}

static inline void tb_evtimer_fire(void *user, const tb_event *event) {
    tb_evtimer *timer = (tb_evtimer *)user;
    int is_pending = 0;
    if (timer->is_persistent) {
        // From the deadline, so that the rate holds; from now, if the next moment has passed already.
        uint64_t now_ns = tb_evbase_after(event->deadline_ns, event->lateness_ns);
        uint64_t next_ns = tb_evbase_after(event->deadline_ns, timer->period_ns);
        next_ns = next_ns > now_ns ? next_ns : tb_evbase_after(now_ns, timer->period_ns);
        is_pending = tb_evtimer_arm_at(timer, next_ns) == TB_OK;
    }
    tb_evtimer_set_pending(timer, is_pending);
    // The callback may free the timer.
    timer->callback(-1, EV_TIMEOUT, timer->arg);
}

// Disarms a timer.
static inline void tb_evtimer_disarm(tb_evtimer *timer) {
    if (timer->is_pending) {
        if (timer->timer != NULL) {
            tb_timer_disarm(timer->timer, NULL);
        } else {
            tb_cancel(timer->base->engine, timer->id, NULL);
        }
        tb_evtimer_set_pending(timer, 0);
        tb_evbase_rest(timer->base);
    }
}

// Makes a timer, which is not pending. `flags` is 0, or EV_PERSIST for a timer that is pending again before its
// callback is called. Returns NULL if there is no memory.
static inline tb_evtimer *tb_evtimer_new(tb_evbase *base, short flags, event_callback_fn callback, void *arg) {
    tb_evtimer *made = (tb_evtimer *)malloc(sizeof *made);
    if (made != NULL) {
        made->id = 0;
        made->timer = NULL;
        made->base = base;
        made->callback = callback;
        made->arg = arg;
        made->period_ns = 0;
        made->is_persistent = (flags & EV_PERSIST) != 0;
        made->is_pending = 0;
        made->is_used = 0;
    }
    return made;
}

// Makes a timer pending, or moves it. Returns 0, or -1 on another thread than the loop's, and if the engine is full. A
// timer that is pending can always be moved.
static inline int tb_evtimer_add(tb_evtimer *timer, const struct timeval *length) {
    tb_evbase *base = timer->base;
    uint64_t now_ns, deadline_ns, period_ns;
    if (!tb_evbase_is_here(base) || tb_now(base->engine, &now_ns) != TB_OK) {
        return -1;
    }
    if (length == NULL) {
        return 0;
    }
    period_ns = tb_evbase_ns(length);
    deadline_ns = tb_evbase_after(now_ns, period_ns);
    if (tb_evtimer_arm_at(timer, deadline_ns) != TB_OK) {
        return -1;
    }
    timer->period_ns = period_ns;
    tb_evtimer_set_pending(timer, 1);
    if (deadline_ns < base->next_ns && base->loop != NULL && !base->is_turning) {
        tb_evbase_wait(base, now_ns);
    }
    return 0;
}

// Makes a timer not pending; its callback is not called any more. Returns 0, or -1 on another thread than the loop's.
static inline int tb_evtimer_del(tb_evtimer *timer) {
    if (!tb_evbase_is_here(timer->base)) {
        return -1;
    }
    tb_evtimer_disarm(timer);
    return 0;
}

// Whether a timer is pending. As in libevent, it is not while its callback runs, unless it is persistent.
static inline int tb_evtimer_pending(const tb_evtimer *timer) {
    return timer->is_pending;
}

// Deletes and frees a timer, in its own callback too.
static inline void tb_evtimer_free(tb_evtimer *timer) {
    tb_evtimer_disarm(timer);
    if (timer->timer != NULL) {
        tb_timer_free(timer->timer);
    }
    free(timer);
}

#ifdef __cplusplus
}
#endif

#endif /* TOURBILLON_LIBEVENT_H */
