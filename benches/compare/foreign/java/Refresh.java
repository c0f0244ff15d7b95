import java.util.function.Supplier;

/** Neither contestant can move a timer: it is cancelled and scheduled anew. */
final class Refresh implements Workload {
    private static final int WARM_UP_TIMERS = 10_000;
    private static final int WARM_UP_MOVES = 100_000;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        int count = of.count("timers");
        long seed = of.number("seed", 1);
        try (Timers timers = contestant.get()) {
            Moves moves = new Moves(WARM_UP_TIMERS, WARM_UP_MOVES, seed);
            moves.fill(timers);
            WarmUp.untilCompiled(() -> {
                moves.run(timers);
                timers.settle();
            });
        }
        try (Timers timers = contestant.get()) {
            Moves moves = new Moves(count, of.count("operations"), seed);
            moves.fill(timers);
            Pending.settle(timers, of.number("settle_ms", 0));
            double nanos = moves.run(timers);
            Pending.expect(timers, count);
            return new Outcome().number("t1", nanos);
        }
    }

    private static final class Moves {
        private final Connection[] connections;
        private final int[] which;
        private final long[] delays;

        Moves(int timers, int operations, long seed) {
            connections = Connection.several(timers);
            which = new int[operations];
            delays = new long[operations];
            Chance chance = new Chance(seed);
            for (int at = 0; at < operations; at++) {
                which[at] = (int) chance.within(0, timers);
                delays[at] = chance.farDelay();
            }
        }

        void fill(Timers timers) {
            Chance chance = new Chance(connections.length);
            for (Connection connection : connections) {
                connection.arm(timers, chance.farDelay());
            }
        }

        /** Returns nanoseconds for a move. */
        double run(Timers timers) {
            long start = System.nanoTime();
            for (int at = 0; at < which.length; at++) {
                Connection connection = connections[which[at]];
                connection.disarm(timers);
                connection.arm(timers, delays[at]);
            }
            return (double) (System.nanoTime() - start) / which.length;
        }
    }
}
