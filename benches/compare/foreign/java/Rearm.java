import java.util.Arrays;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;

final class Rearm implements Workload {
    private static final long TIMEOUT = 5_000_000_000L;
    /** The number of requests from one check whether another thread is done to the next. */
    private static final int LOOK = 1024;
    private static final int WARM_UP_REQUESTS = 50_000;
    private static final int WARM_UP_COMPILED = 200_000;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        int connections = of.count("timers");
        Outcome outcome = new Outcome();
        try (Timers timers = contestant.get()) {
            Requests requests = new Requests(timers, connections, WARM_UP_REQUESTS, 0);
            WarmUp.untilCompiled(() -> {
                requests.until(new AtomicBoolean());
                timers.settle();
            });
        }
        try (Timers timers = contestant.get()) {
            for (int threads : of.counts("threads")) {
                Requests[] requests = new Requests[threads];
                Arrays.setAll(requests, thread -> new Requests(timers, connections, of.count("operations"), thread));
                Together.run(threads, (thread, start) -> {
                    start.run();
                    return requests[thread].warmUp();
                });
                Pending.settle(timers, of.number("settle_ms", 0));
                AtomicBoolean stop = new AtomicBoolean();
                outcome.number("t" + threads, Together.run(threads, (thread, start) -> {
                    start.run();
                    return requests[thread].until(stop);
                }));
                Pending.expect(timers, 0);
            }
        }
        return outcome;
    }

    private static final class Requests {
        private final Timers timers;
        private final Connection[] connections;
        private final int[] order;

        Requests(Timers timers, int connections, int operations, int thread) {
            this.timers = timers;
            this.connections = Connection.several(connections);
            order = new int[operations];
            Chance chance = new Chance(thread);
            for (int at = 0; at < operations; at++) {
                order[at] = (int) chance.within(0, connections);
            }
        }

        /** Arms and disarms each connection at least once. */
        Together.Share warmUp() {
            int done = 0;
            long start = System.nanoTime();
            do {
                for (Connection connection : connections) {
                    request(connection);
                }
                done += connections.length;
            } while (done < WARM_UP_COMPILED);
            return new Together.Share(done, System.nanoTime() - start);
        }

        Together.Share until(AtomicBoolean stop) {
            int done = 0;
            long start = System.nanoTime();
            while (done < order.length && !stop.get()) {
                int to = Math.min(done + LOOK, order.length);
                some(done, to);
                done = to;
            }
            stop.set(true);
            return new Together.Share(done, System.nanoTime() - start);
        }

        private void some(int from, int to) {
            for (int at = from; at < to; at++) {
                request(connections[order[at]]);
            }
        }

        private void request(Connection connection) {
            connection.arm(timers, TIMEOUT);
            connection.disarm(timers);
        }
    }
}
