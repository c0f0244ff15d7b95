import java.util.Arrays;
import java.util.function.Supplier;
import java.util.stream.IntStream;

final class Expiry implements Workload {
    private static final int PARTS = 100;
    private static final double MS = 1e6;
    private static final int WARM_UP_TIMERS = 20_000;
    private static final long WARM_UP_TIME = 50_000_000L;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        long time = of.nanos("time_ms");
        long[] offsets = offsets(of.count("timers"), time);
        warmUp(contestant);
        try (Timers timers = contestant.get()) {
            Pending.settle(timers, of.number("settle_ms", 0));
            Window window = Window.run(timers, offsets, of.nanos("lead_ms"));
            Quantiles all = new Quantiles(window.lateness);
            Outcome outcome = figures(window, all);
            parts(outcome, offsets, window.lateness, time);
            return outcome.series("quantile", Quantiles.OF_SERIES).series("lateness", all.series(MS));
        }
    }

    static Outcome figures(Window window, Quantiles all) {
        return new Outcome()
                .number("early", window.early())
                .number("p50", all.at(0.5, MS))
                .number("p99", all.at(0.99, MS))
                .number("p999", all.at(0.999, MS))
                .number("max", all.at(1, MS))
                .number("cpu", window.cpuSeconds)
                .number("insert", window.insertNanos)
                .number("wakes", window.wakes);
    }

    static void warmUp(Supplier<Timers> contestant) {
        Window.warmUp(contestant, offsets(WARM_UP_TIMERS, WARM_UP_TIME));
    }

    static long[] offsets(int count, long time) {
        Chance chance = new Chance(1);
        long[] offsets = new long[count];
        Arrays.setAll(offsets, at -> chance.within(0, time));
        return offsets;
    }

    /** Leaves out the parts without timers. */
    private static void parts(Outcome outcome, long[] offsets, long[] lateness, long time) {
        long[][] byPart = new long[PARTS][];
        int[] counts = new int[PARTS];
        for (long offset : offsets) {
            counts[part(offset, time)]++;
        }
        Arrays.setAll(byPart, part -> new long[counts[part]]);
        for (int at = 0; at < offsets.length; at++) {
            int part = part(offsets[at], time);
            byPart[part][--counts[part]] = lateness[at];
        }
        int[] filled = IntStream.range(0, PARTS).filter(part -> byPart[part].length > 0).toArray();
        Quantiles[] quantiles = Arrays.stream(filled).mapToObj(part -> new Quantiles(byPart[part])).toArray(Quantiles[]::new);
        outcome.series("due_ms", Arrays.stream(filled).mapToDouble(part -> part * (time / MS) / PARTS).toArray())
                .series("part_p50", Arrays.stream(quantiles).mapToDouble(part -> part.at(0.5, MS)).toArray())
                .series("part_p99", Arrays.stream(quantiles).mapToDouble(part -> part.at(0.99, MS)).toArray())
                .series("part_max", Arrays.stream(quantiles).mapToDouble(part -> part.at(1, MS)).toArray());
    }

    private static int part(long offset, long time) {
        return (int) (offset * PARTS / time);
    }
}
