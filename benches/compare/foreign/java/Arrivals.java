import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;

/** Timers that fire, with the lateness of each. Both contestants fire from one thread. */
final class Arrivals {
    private static final long UNSET = Long.MIN_VALUE;
    private static final long PATIENCE = 60_000_000_000L;
    private static final VarHandle FIRED;

    static {
        try {
            FIRED = MethodHandles.lookup().findVarHandle(Arrivals.class, "fired", int.class);
        } catch (ReflectiveOperationException impossible) {
            throw new ExceptionInInitializerError(impossible);
        }
    }

    private final long[] deadlines;
    /** The numbers of the timers in the order in which they fired, and the moments. */
    private final int[] numbers;
    private final long[] times;
    /** The number of firings. Only the firing thread writes it, with a release after the entries that it counts. */
    private int fired;

    Arrivals(long[] deadlines) {
        this.deadlines = deadlines;
        // One entry more, so that a timer that fires twice is counted and throws no exception in its thread.
        numbers = new int[deadlines.length + 1];
        times = new long[deadlines.length + 1];
    }

    Task task(int at) {
        return new Due(this, at);
    }

    int fired() {
        return (int) FIRED.getAcquire(this);
    }

    /** Waits until {@code count} timers have fired, and checks that no other has. */
    void expect(int count) {
        expectAtLeast(count);
        Broken.unlessEqual(fired(), count, "timers that fired");
    }

    /** Waits until {@code count} timers have fired. */
    void expectAtLeast(int count) {
        long giveUp = System.nanoTime() + PATIENCE;
        while (fired() < count && System.nanoTime() < giveUp) {
            Machine.sleep(1);
        }
        Broken.unless(fired() >= count, "only " + fired() + " timers fired, of " + count);
    }

    /** The lateness of the timers that fired, in the order of their numbers. */
    long[] lateness() {
        return latenessFrom(0);
    }

    /** The lateness of the timers that fired and whose number is at least {@code first}, in the order of their numbers. */
    long[] latenessFrom(int first) {
        long[] lateness = new long[deadlines.length];
        Arrays.fill(lateness, UNSET);
        int twice = 0;
        for (int n = 0; n < fired(); n++) {
            int number = numbers[n];
            twice += lateness[number] == UNSET ? 0 : 1;
            lateness[number] = times[n] - deadlines[number];
        }
        Broken.unlessEqual(twice, 0, "timers that fired twice");
        return Arrays.stream(lateness, first, lateness.length).filter(late -> late != UNSET).toArray();
    }

    private static final class Due extends Task {
        private final Arrivals arrivals;
        private final int at;

        Due(Arrivals arrivals, int at) {
            this.arrivals = arrivals;
            this.at = at;
        }

        @Override
        public void run() {
            Arrivals all = arrivals;
            int fired = all.fired;
            all.times[fired] = System.nanoTime();
            all.numbers[fired] = at;
            FIRED.setRelease(all, fired + 1);
        }
    }
}
