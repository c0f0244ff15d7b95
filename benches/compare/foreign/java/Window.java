import java.util.Arrays;
import java.util.function.Supplier;

/**
 * Timers that are all inserted before the first is due. Deadlines are offsets from the window's start, which is {@code lead}
 * after the first insert.
 */
final class Window {
    private static final long WARM_UP_LEAD = 30_000_000L;

    final long[] lateness;
    final double insertNanos;
    final double cpuSeconds;
    /** Voluntary context switches from the last insert to the last firing, for 1,000 timers. */
    final double wakes;

    private Window(long[] lateness, double insertNanos, double cpuSeconds, double wakes) {
        this.lateness = lateness;
        this.insertNanos = insertNanos;
        this.cpuSeconds = cpuSeconds;
        this.wakes = wakes;
    }

    /** Warms up with a few such timers, over and over, on an instance of its own. These need not be inserted in time. */
    static void warmUp(Supplier<Timers> contestant, long[] offsets) {
        try (Timers timers = contestant.get()) {
            WarmUp.untilCompiled(() -> run(timers, offsets, WARM_UP_LEAD, false));
        }
    }

    static Window run(Timers timers, long[] offsets, long lead) {
        return run(timers, offsets, lead, true);
    }

    private static Window run(Timers timers, long[] offsets, long lead, boolean strict) {
        long[] deadlines = offsets.clone();
        Arrivals arrivals = new Arrivals(deadlines);
        long start = System.nanoTime();
        long first = Long.MAX_VALUE;
        long last = Long.MIN_VALUE;
        for (int at = 0; at < deadlines.length; at++) {
            deadlines[at] += start + lead;
            first = Math.min(first, deadlines[at]);
            last = Math.max(last, deadlines[at]);
        }
        // A read beforehand, so that both reads cost the same.
        Machine.allSwitches();
        long begin = System.nanoTime();
        insert(timers, deadlines, arrivals);
        long end = System.nanoTime();
        long switches = Machine.allSwitches();
        long cpu = Machine.cpuNanos();
        Broken.unless(!strict || end < first, "inserted " + (end - first) + " ns after the first was due");
        Machine.sleep(Math.max(last - end, 0) / 1_000_000);
        arrivals.expect(deadlines.length);
        double cpuSeconds = (Machine.cpuNanos() - cpu) / 1e9;
        // A thread that has ended takes its switches along.
        double wakes = Math.max(Machine.allSwitches() - switches, 0) * 1e3 / deadlines.length;
        Pending.expect(timers, 0);
        arrivals.expect(deadlines.length);
        return new Window(arrivals.lateness(), (double) (end - begin) / deadlines.length, cpuSeconds, wakes);
    }

    private static void insert(Timers timers, long[] deadlines, Arrivals arrivals) {
        for (int at = 0; at < deadlines.length; at++) {
            timers.schedule(deadlines[at] - System.nanoTime(), arrivals.task(at));
        }
    }

    long early() {
        return Arrays.stream(lateness).filter(late -> late < 0).count();
    }
}
