// An echo server on epoll that closes idle connections. It has one thread: expired timeouts come through a descriptor
// in the same epoll set as the sockets.
//
//   cargo build --release -p tourbillon-c
//   cd crates/c
//   cc -O2 examples/echo_server.c -I include ../../target/release/libtourbillon_c.a -lpthread -ldl -lm -o echo_server
//   ./echo_server [port, or 0 for any [idle timeout in milliseconds [how many connections close before it ends]]]

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tourbillon.h>

#define BATCH 64
#define BUFFER 4096

struct connection {
    int socket;
    tb_timer *timer;         // Armed anew after each read and write.
    size_t begin, end;       // The bytes to send.
    struct connection *next; // The next connection that was closed in this turn.
    int is_closed;
    char buffer[BUFFER];
};

struct server {
    int epoll, listener, event_fd, signal_fd, is_stopped;
    uint64_t idle_ns;
    tb_engine *engine;
    // Connections that are freed at the end of the turn: its batches of events may still refer to them.
    struct connection *closed;
    unsigned long accepted, bytes, closed_idle, closed_by_peer;
};

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

static void watch(struct server *server, int operation, int fd, uint32_t events, void *what) {
    struct epoll_event interest = {.events = events, .data = {.ptr = what}};
    if (epoll_ctl(server->epoll, operation, fd, &interest) < 0) {
        die("epoll_ctl");
    }
}

static void close_connection(struct server *server, struct connection *connection) {
    // No event of this timer is polled from here on.
    must(tb_timer_free(connection->timer));
    close(connection->socket);
    connection->is_closed = 1;
    connection->next = server->closed;
    server->closed = connection;
}

static void accept_all(struct server *server) {
    for (;;) {
        int socket = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket < 0) {
            return; // No connection is left, or no resources are: then the listener stays readable.
        }
        struct connection *connection = calloc(1, sizeof *connection);
        if (connection == NULL) {
            die("calloc");
        }
        connection->socket = socket;
        must(tb_timer_create(server->engine, NULL, connection, &connection->timer));
        must(tb_timer_arm(connection->timer, server->idle_ns));
        watch(server, EPOLL_CTL_ADD, socket, EPOLLIN, connection);
        server->accepted++;
    }
}

// Sends the bytes in the buffer, then reads. While bytes are unsent, it does not read.
static void serve(struct server *server, struct connection *connection) {
    ssize_t moved;
    if (connection->begin == connection->end) {
        connection->begin = connection->end = 0;
        moved = recv(connection->socket, connection->buffer, BUFFER, 0);
        connection->end = moved > 0 ? (size_t)moved : 0;
        if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) {
            server->closed_by_peer++;
            close_connection(server, connection);
            return;
        }
    }
    moved = 0;
    if (connection->begin < connection->end) {
        size_t unsent = connection->end - connection->begin;
        moved = send(connection->socket, connection->buffer + connection->begin, unsent, MSG_NOSIGNAL);
        if (moved < 0 && errno != EAGAIN && errno != EINTR) {
            server->closed_by_peer++;
            close_connection(server, connection);
            return;
        }
    }
    if (moved > 0) {
        connection->begin += (size_t)moved;
        server->bytes += (unsigned long)moved;
        must(tb_timer_arm(connection->timer, server->idle_ns));
    }
    uint32_t events = connection->begin < connection->end ? EPOLLOUT : EPOLLIN;
    watch(server, EPOLL_CTL_MOD, connection->socket, events, connection);
}

static void close_idle_ones(struct server *server) {
    tb_event events[BATCH];
    size_t count;
    must(tb_poll(server->engine, events, BATCH, &count));
    for (size_t i = 0; i < count; i++) {
        server->closed_idle++;
        close_connection(server, events[i].user);
    }
}

static void turn(struct server *server) {
    struct epoll_event ready[BATCH];
    int count = epoll_wait(server->epoll, ready, BATCH, -1);
    if (count < 0 && errno != EINTR) {
        die("epoll_wait");
    }
    int is_due = 0;
    for (int i = 0; i < count; i++) {
        if (ready[i].data.ptr == &server->listener) {
            accept_all(server);
        } else if (ready[i].data.ptr == &server->event_fd) {
            is_due = 1;
        } else if (ready[i].data.ptr == &server->signal_fd) {
            server->is_stopped = 1;
        } else {
            serve(server, ready[i].data.ptr);
        }
    }
    // Expired timeouts come last, so that a connection that has just sent something is not closed.
    if (is_due) {
        close_idle_ones(server);
    }
    while (server->closed != NULL) {
        struct connection *connection = server->closed;
        server->closed = connection->next;
        free(connection);
    }
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
    struct server server = {0};
    uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 0;
    server.idle_ns = (argc > 2 ? strtoull(argv[2], NULL, 10) : 5000) * 1000000;
    unsigned long last = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;

    tb_options options = TB_OPTIONS_INIT;
    options.delivery = TB_POLLED;
    options.shards = 1;
    // These signals come through a descriptor. A handler could run just before epoll_wait, which would then wait all
    // the same. The engine's threads have the mask of the thread that creates the engine.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    server.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (server.signal_fd < 0) {
        die("signalfd");
    }
    must(tb_engine_create(&options, &server.engine));
    must(tb_event_fd(server.engine, &server.event_fd));

    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server.epoll < 0) {
        die("epoll_create1");
    }
    listen_on(&server, port);
    watch(&server, EPOLL_CTL_ADD, server.listener, EPOLLIN, &server.listener);
    watch(&server, EPOLL_CTL_ADD, server.event_fd, EPOLLIN, &server.event_fd);
    watch(&server, EPOLL_CTL_ADD, server.signal_fd, EPOLLIN, &server.signal_fd);
    while (!server.is_stopped && (last == 0 || server.closed_idle + server.closed_by_peer < last)) {
        turn(&server);
    }

    // At rest the counters are exact.
    must(tb_engine_shutdown(server.engine, NULL, NULL));
    tb_stats stats = {.size = sizeof stats};
    must(tb_engine_stats(server.engine, &stats));
    printf("accepted %lu, echoed bytes %lu, closed idle %lu, closed by peer %lu, timers alive %llu\n", server.accepted,
           server.bytes, server.closed_idle, server.closed_by_peer, (unsigned long long)stats.timers_alive);
    close(server.listener);
    close(server.signal_fd);
    close(server.epoll);
    must(tb_engine_free(server.engine));
    return 0;
}
