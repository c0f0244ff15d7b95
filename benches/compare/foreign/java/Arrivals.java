import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;

/** Timers that do fire, and how late each was. Both contestants fire from one thread. */
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
    private final long[] lateness;
    /** Written by the firing thread only, released after the lateness. */
    private int fired;
    /** As {@code fired}. */
    private int twice;

    Arrivals(long[] deadlines) {
        this.deadlines = deadlines;
        lateness = new long[deadlines.length];
        Arrays.fill(lateness, UNSET);
    }

    Task task(int at) {
        return new Due(this, at);
    }

    int fired() {
        return (int) FIRED.getAcquire(this);
    }

    /** Waits until so many have fired. */
    void expect(int count) {
        long giveUp = System.nanoTime() + PATIENCE;
        while (fired() < count && System.nanoTime() < giveUp) {
            Machine.sleep(1);
        }
        Broken.unlessEqual(fired(), count, "timers that fired");
        Broken.unlessEqual(twice, 0, "timers that fired twice");
    }

    /** Of those that fired, in the order of their numbers. */
    long[] lateness() {
        return Arrays.stream(lateness).filter(late -> late != UNSET).toArray();
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
            long late = System.nanoTime() - all.deadlines[at];
            if (all.lateness[at] != UNSET) {
                all.twice++;
            }
            all.lateness[at] = late;
            FIRED.setRelease(all, all.fired + 1);
        }
    }
}
