import java.util.function.Supplier;

/** Schedules a timer and cancels it at once, over and over. */
final class Pairs {
    private static final int DELAYS = 1024;
    /** The number of pairs from one read of the clock to the next. */
    private static final int LOOK = 256;
    private static final int WARM_UP = 1024;
    private static final int WARM_UP_COMPILED = 200_000;
    private static final int WARM_UP_PENDING = 10_000;
    private static final long WARM_UP_ROUND = 20_000_000L;

    private final Timers timers;
    private final long[] delays = new long[DELAYS];
    private int at;

    private Pairs(Timers timers, int thread, long further) {
        this.timers = timers;
        Chance chance = new Chance(thread);
        for (int delay = 0; delay < DELAYS; delay++) {
            delays[delay] = chance.farDelay() + further;
        }
    }

    /** Warms up beside a few pending timers, on an instance of its own. */
    static void warmUp(Supplier<Timers> contestant) {
        try (Timers timers = contestant.get()) {
            Pending.schedule(timers, WARM_UP_PENDING, new Chance(WARM_UP_PENDING));
            Pairs pairs = new Pairs(timers, 0, 0);
            WarmUp.untilCompiled(() -> {
                pairs.during(WARM_UP_ROUND);
                timers.settle();
            });
        }
    }

    /**
     * Returns nanoseconds for a pair and thread. As many threads as are measured warm up first, since contention changes the
     * compiler's assumptions on a lock. Delays are longer than those of the table by {@code further}.
     */
    static double measure(Timers timers, int threads, long further, long nanos, long settleMillis) {
        Together.run(threads, (thread, start) -> {
            Pairs pairs = new Pairs(timers, thread, further);
            start.run();
            return pairs.several(WARM_UP_COMPILED);
        });
        // The remaining work of the timer's thread for the warm-up would slow down the measurement.
        Pending.settle(timers, settleMillis);
        return Together.run(threads, (thread, start) -> {
            Pairs pairs = new Pairs(timers, thread, further);
            start.run();
            pairs.several(WARM_UP);
            return pairs.during(nanos);
        });
    }

    private Together.Share during(long nanos) {
        long pairs = 0;
        long start = System.nanoTime();
        long now;
        do {
            several(LOOK);
            pairs += LOOK;
            now = System.nanoTime();
        } while (now - start < nanos);
        return new Together.Share(pairs, now - start);
    }

    private Together.Share several(int count) {
        long start = System.nanoTime();
        int from = at;
        for (int pair = from; pair < from + count; pair++) {
            Object handle = timers.schedule(delays[pair & (DELAYS - 1)], new Payload(pair));
            if (!timers.cancel(handle)) {
                throw new Broken("a timer just scheduled could not be cancelled");
            }
        }
        at = (from + count) & (DELAYS - 1);
        return new Together.Share(count, System.nanoTime() - start);
    }
}
