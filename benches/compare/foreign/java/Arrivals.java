import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.stream.IntStream;

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
    /** The moments at which the timers fired, by their numbers. Touched before the first timer is armed. */
    private final long[] times;
    /** The number of firings. Only the firing thread writes it, with a release after the time of the timer that it counts. */
    private int fired;

    Arrivals(long[] deadlines) {
        this.deadlines = deadlines;
        times = new long[deadlines.length];
        Arrays.fill(times, UNSET);
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

    /**
     * The lateness of the timers that fired and whose number is at least {@code first}, in the order of their numbers. A timer
     * that fired twice was counted twice, and has one time.
     */
    long[] latenessFrom(int first) {
        int counted = fired();
        long different = Arrays.stream(times).filter(time -> time != UNSET).count();
        Broken.unless(counted <= different, counted - different + " timers that fired twice");
        return IntStream.range(first, times.length)
                .filter(at -> times[at] != UNSET)
                .mapToLong(at -> times[at] - deadlines[at])
                .toArray();
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
            all.times[at] = System.nanoTime();
            FIRED.setRelease(all, all.fired + 1);
        }
    }
}
