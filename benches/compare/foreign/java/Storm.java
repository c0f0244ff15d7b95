import java.util.function.Supplier;

/**
 * Measures the heap in use after collections, instead of resident memory: the objects that the timer keeps, whatever the rate
 * of collections.
 */
final class Storm implements Workload {
    private static final int LOOK = 1024;
    private static final int PARTS = 100;
    private static final int PARTS_A_SAMPLE = 10;
    private static final double MB = 1e6;
    private static final int WARM_UP_PAIRS = 50_000;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        long operations = of.number("operations");
        long time = of.nanos("time_ms");
        try (Timers timers = contestant.get()) {
            WarmUp.untilCompiled(() -> {
                pairs(timers, WARM_UP_PAIRS, Long.MAX_VALUE);
                timers.settle();
            });
        }
        try (Timers timers = contestant.get()) {
            timers.settle();
            long before = Machine.heapInUse();
            long start = System.nanoTime();
            long done = 0;
            long first = 0;
            long last = 0;
            long peak = 0;
            for (int part = 0; part < PARTS && (part == 0 || System.nanoTime() - start < time); part++) {
                long until = operations * (part + 1) / PARTS;
                done += pairs(timers, until - done, start + time);
                if (part == 0 || (part + 1) % PARTS_A_SAMPLE == 0 || done < until) {
                    last = Machine.heapInUse();
                    first = part == 0 ? last : first;
                    peak = Math.max(peak, last);
                }
            }
            Pending.expect(timers, 0);
            return new Outcome()
                    .number("pairs", done)
                    .number("grown", (last - first) / MB)
                    .number("peak", (peak - before) / MB);
        }
    }

    /** Makes a number of pairs, or as many as the time allows; returns their number. */
    private static long pairs(Timers timers, long count, long until) {
        long done = 0;
        while (done < count && System.nanoTime() < until) {
            long to = Math.min(done + LOOK, count);
            some(timers, done, to);
            done = to;
        }
        return done;
    }

    private static void some(Timers timers, long from, long to) {
        for (long pair = from; pair < to; pair++) {
            if (!timers.cancel(timers.schedule(Memory.HOUR, new Payload(pair)))) {
                throw new Broken("a timer just scheduled could not be cancelled");
            }
        }
    }
}
