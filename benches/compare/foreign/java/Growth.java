import java.util.function.Supplier;

final class Growth implements Workload {
    /** A generous size for a timer, its payload and its place in a queue or a heap. */
    private static final long BYTES_A_TIMER = 200;

    /**
     * With ten million timers on the heap, collections take seconds, and the first timers would be due. All delays are longer by
     * as much, those of the pairs as well, so that the order of deadlines is the same.
     */
    private static final long FURTHER = 60_000_000_000L;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        int[] sizes = of.counts("sizes");
        Outcome outcome = new Outcome();
        Pairs.warmUp(contestant);
        try (Timers timers = contestant.get()) {
            Chance chance = new Chance(sizes[sizes.length - 1]);
            int count = 0;
            for (int size : sizes) {
                if (size * BYTES_A_TIMER > Runtime.getRuntime().maxMemory()) {
                    break;
                }
                Pending.schedule(timers, size - count, chance, FURTHER);
                count = size;
                outcome.number("p" + size, Pairs.measure(timers, 1, FURTHER, of.nanos("time_ms"), of.number("settle_ms")));
                Pending.expect(timers, count);
            }
        }
        return outcome;
    }
}
