import java.util.function.Supplier;

/** Measures the heap in use, instead of resident memory. */
final class Memory implements Workload {
    static final long HOUR = 3_600_000_000_000L;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        int count = of.count("timers");
        try (Timers timers = contestant.get()) {
            Broken.unless(timers.cancel(timers.schedule(HOUR, new Payload(0))), "the first timer could not be cancelled");
            Pending.expect(timers, 0);
            timers.settle();
            long before = Machine.heapInUse();
            fill(timers, count);
            timers.settle();
            Machine.sleep(of.number("settle_ms", 0));
            double bytes = (double) (Machine.heapInUse() - before) / count;
            Pending.expect(timers, count);
            return new Outcome().number("bytes", bytes);
        }
    }

    /** A delay of an hour, and up to a minute more. */
    static void fill(Timers timers, int count) {
        Chance chance = new Chance(count);
        for (int at = 0; at < count; at++) {
            timers.schedule(HOUR + chance.within(0, 60_000_000_000L), new Payload(at));
        }
    }
}
