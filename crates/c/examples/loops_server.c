// An echo server with several epoll loops, each on a thread of its own: the first loop accepts, and all of them serve.
// A connection has a timer, which lives on the shard of the connection's loop: arming it anew takes a few nanoseconds
// and no call to the system, and its callback is called in the turn of that loop. The engine has no threads.
//
//   cargo build --release -p tourbillon-c
//   cd crates/c
//   cc -O2 examples/loops_server.c -I include ../../target/release/libtourbillon_c.a -lpthread -ldl -lm -o loops_server
//   ./loops_server [port, or 0 for any [idle timeout in milliseconds [how many connections close before it ends
//                  [loops]]]]

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tourbillon.h>

#define BATCH 64
#define BUFFER 4096
#define BUDGET 1024
#define MOST_LOOPS 64

struct connection {
    int socket;
    tb_timer *timer;         // Armed anew after each read and write.
    struct loop *loop;       // The loop that serves it.
    size_t begin, end;       // The bytes to send.
    struct connection *next; // The next connection of the queue, or of those that this turn has closed.
    int is_adopted, is_expired, is_closed;
    char buffer[BUFFER];
};

// A loop. Only its own thread touches the fields below `queue`.
struct loop {
    struct server *server;
    pthread_t thread;
    uint32_t index;
    pthread_mutex_t lock;
    struct connection *queue; // The accepted connections that the loop has not adopted, behind the lock.
    int queue_fd;             // An eventfd: readable when the queue has become longer, or the server stops.
    int epoll, wake_fd, wake_mark, queue_mark;
    tb_loop *timers;
    uint64_t now; // Read once after each poll.
    struct connection *closed;
    unsigned long bytes, served, closed_idle, closed_by_peer;
};

struct server {
    int listener, signal_fd; // In the epoll set of the first loop.
    uint64_t idle_ns;
    tb_engine *engine;
    unsigned long accepted, last; // Of the first loop.
    atomic_ulong ended;
    uint32_t count;
    struct loop loops[MOST_LOOPS];
};

static atomic_int is_stopped;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void must(tb_status status) {
    if (status != TB_OK) {
        fprintf(stderr, "%s: %s\n", tb_status_name(status), tb_last_error());
        exit(1);
    }
}

static void watch(struct loop *loop, int operation, int fd, uint32_t events, void *what) {
    struct epoll_event interest = {.events = events, .data = {.ptr = what}};
    if (epoll_ctl(loop->epoll, operation, fd, &interest) < 0) {
        die("epoll_ctl");
    }
}

static void wake_queue(struct loop *loop) {
    uint64_t one = 1;
    if (write(loop->queue_fd, &one, sizeof one) < 0 && errno != EAGAIN) {
        die("write");
    }
}

static void stop_all(struct server *server) {
    atomic_store(&is_stopped, 1);
    for (uint32_t i = 0; i < server->count; i++) {
        wake_queue(&server->loops[i]);
    }
}

static void close_connection(struct connection *connection) {
    struct loop *loop = connection->loop;
    // No callback of this timer begins from here on, not even if the timer is due in this turn.
    must(tb_timer_free(connection->timer));
    close(connection->socket);
    connection->is_closed = 1;
    connection->next = loop->closed;
    loop->closed = connection;
    if (atomic_fetch_add(&loop->server->ended, 1) + 1 == loop->server->last) {
        stop_all(loop->server);
    }
}

// The callback of a connection's timer, in a turn of the connection's loop.
static void close_idle(void *user, const tb_event *event) {
    struct connection *connection = user;
    (void)event;
    if (!connection->is_adopted) {
        connection->is_expired = 1; // It is in the queue still.
        return;
    }
    connection->loop->closed_idle++;
    close_connection(connection);
}

// Accepts for all loops. The first deadline is armed here, on the shard of the loop that the connection goes to: a
// client that never sends a byte is disconnected, too.
static void accept_all(struct loop *loop) {
    struct server *server = loop->server;
    for (;;) {
        int socket = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket < 0) {
            return; // No connection is left, or no resources are: then the listener stays readable.
        }
        struct connection *connection = calloc(1, sizeof *connection);
        if (connection == NULL) {
            die("calloc");
        }
        struct loop *other = &server->loops[server->accepted++ % server->count];
        connection->socket = socket;
        connection->loop = other;
        must(tb_timer_create(server->engine, close_idle, connection, &connection->timer));
        uint64_t now; // A client may have connected after the poll, so its time is read here.
        must(tb_now(server->engine, &now));
        must(tb_timer_arm_on(connection->timer, other->index, now + server->idle_ns));
        pthread_mutex_lock(&other->lock);
        connection->next = other->queue;
        other->queue = connection;
        pthread_mutex_unlock(&other->lock);
        wake_queue(other);
    }
}

static void adopt_all(struct loop *loop) {
    uint64_t count;
    if (read(loop->queue_fd, &count, sizeof count) < 0) {
        return; // Nothing was written.
    }
    pthread_mutex_lock(&loop->lock);
    struct connection *queue = loop->queue;
    loop->queue = NULL;
    pthread_mutex_unlock(&loop->lock);
    while (queue != NULL) {
        struct connection *connection = queue;
        queue = connection->next;
        connection->is_adopted = 1;
        loop->served++;
        if (connection->is_expired) {
            close_idle(connection, NULL);
        } else {
            watch(loop, EPOLL_CTL_ADD, connection->socket, EPOLLIN, connection);
        }
    }
}

// Sends the bytes in the buffer, then reads. While bytes are unsent, it does not read.
static void serve(struct loop *loop, struct connection *connection) {
    ssize_t moved;
    if (connection->begin == connection->end) {
        connection->begin = connection->end = 0;
        moved = recv(connection->socket, connection->buffer, BUFFER, 0);
        connection->end = moved > 0 ? (size_t)moved : 0;
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) {
            loop->closed_by_peer++;
            close_connection(connection);
            return;
        }
    }
    moved = 0;
    if (connection->begin < connection->end) {
        size_t unsent = connection->end - connection->begin;
        moved = send(connection->socket, connection->buffer + connection->begin, unsent, MSG_NOSIGNAL);
        if (moved < 0 && errno != EAGAIN && errno != EINTR) {
            loop->closed_by_peer++;
            close_connection(connection);
            return;
        }
    }
    if (moved > 0) {
        connection->begin += (size_t)moved;
        loop->bytes += (unsigned long)moved;
        must(tb_timer_arm_at(connection->timer, loop->now + loop->server->idle_ns));
    }
    uint32_t events = connection->begin < connection->end ? EPOLLOUT : EPOLLIN;
    watch(loop, EPOLL_CTL_MOD, connection->socket, events, connection);
}

static void poll_and_turn(struct loop *loop) {
    struct epoll_event ready[BATCH];
    int timeout;
    // After the last call that arms a timer, and before the poll.
    must(tb_loop_timeout(loop->timers, loop->now, &timeout));
    int count = epoll_wait(loop->epoll, ready, BATCH, timeout);
    if (count < 0 && errno != EINTR) {
        die("epoll_wait");
    }
    must(tb_now(loop->server->engine, &loop->now));
    for (int i = 0; i < count; i++) {
        if (ready[i].data.ptr == &loop->server->listener) {
            accept_all(loop);
        } else if (ready[i].data.ptr == &loop->queue_mark) {
            adopt_all(loop);
        } else if (ready[i].data.ptr == &loop->server->signal_fd) {
            stop_all(loop->server);
        } else if (ready[i].data.ptr != &loop->wake_mark) {
            serve(loop, ready[i].data.ptr);
        }
    }
    // Expired timeouts come last, so that a connection that has just sent something is not closed. Timers beyond the
    // budget expire after the next poll, whose timeout is 0 then. A turn makes the wake descriptor unreadable.
    must(tb_loop_turn(loop->timers, loop->now, BUDGET, NULL));
    while (loop->closed != NULL) {
        struct connection *connection = loop->closed;
        loop->closed = connection->next;
        free(connection);
    }
}

static void *run(void *argument) {
    struct loop *loop = argument;
    // The loop belongs to the thread that creates it.
    must(tb_loop_create(loop->server->engine, loop->index, &loop->timers));
    must(tb_loop_fd(loop->timers, &loop->wake_fd));
    must(tb_now(loop->server->engine, &loop->now));
    watch(loop, EPOLL_CTL_ADD, loop->wake_fd, EPOLLIN, &loop->wake_mark);
    while (!atomic_load(&is_stopped)) {
        poll_and_turn(loop);
    }
    must(tb_loop_free(loop->timers));
    return NULL;
}

static void listen_on(struct server *server, uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof address;
    int yes = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listener < 0) {
        die("socket");
    }
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(server->listener, (struct sockaddr *)&address, length) < 0 || listen(server->listener, 1024) < 0 ||
        getsockname(server->listener, (struct sockaddr *)&address, &length) < 0) {
        die("listen");
    }
    printf("listening on 127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
}

int main(int argc, char **argv) {
    static struct server server;
    uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 0;
    server.idle_ns = (argc > 2 ? strtoull(argv[2], NULL, 10) : 5000) * 1000000;
    server.last = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
    server.count = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 2;
    if (server.count == 0 || server.count > MOST_LOOPS) {
        fprintf(stderr, "1 to %d loops\n", MOST_LOOPS);
        return 1;
    }

    tb_options options = TB_OPTIONS_INIT;
    options.loops = server.count;
    must(tb_engine_create(&options, &server.engine));
    for (uint32_t i = 0; i < server.count; i++) {
        struct loop *loop = &server.loops[i];
        loop->server = &server;
        loop->index = i;
        loop->epoll = epoll_create1(EPOLL_CLOEXEC);
        loop->queue_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (loop->epoll < 0 || loop->queue_fd < 0 || pthread_mutex_init(&loop->lock, NULL) != 0) {
            die("a loop");
        }
        watch(loop, EPOLL_CTL_ADD, loop->queue_fd, EPOLLIN, &loop->queue_mark);
    }

    // These signals come through a descriptor. A handler could run just before epoll_wait, which would then wait all
    // the same. The threads of the other loops inherit the mask. The first loop runs here.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    server.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (server.signal_fd < 0) {
        die("signalfd");
    }
    watch(&server.loops[0], EPOLL_CTL_ADD, server.signal_fd, EPOLLIN, &server.signal_fd);
    listen_on(&server, port);
    watch(&server.loops[0], EPOLL_CTL_ADD, server.listener, EPOLLIN, &server.listener);
    for (uint32_t i = 1; i < server.count; i++) {
        if (pthread_create(&server.loops[i].thread, NULL, run, &server.loops[i]) != 0) {
            die("pthread_create");
        }
    }
    run(&server.loops[0]);
    stop_all(&server);

    unsigned long bytes = 0, closed_idle = 0, closed_by_peer = 0;
    for (uint32_t i = 0; i < server.count; i++) {
        struct loop *loop = &server.loops[i];
        if (i > 0) {
            pthread_join(loop->thread, NULL);
        }
        printf("loop %u served %lu\n", i, loop->served);
        bytes += loop->bytes;
        closed_idle += loop->closed_idle;
        closed_by_peer += loop->closed_by_peer;
        close(loop->epoll);
        close(loop->queue_fd);
        pthread_mutex_destroy(&loop->lock);
    }
    // At rest the counters are exact.
    must(tb_engine_shutdown(server.engine, NULL, NULL));
    tb_stats stats = {.size = sizeof stats};
    must(tb_engine_stats(server.engine, &stats));
    printf("accepted %lu, echoed bytes %lu, closed idle %lu, closed by peer %lu, timers alive %llu\n", server.accepted,
           bytes, closed_idle, closed_by_peer, (unsigned long long)stats.timers_alive);
    close(server.listener);
    close(server.signal_fd);
    must(tb_engine_free(server.engine));
    return 0;
}
