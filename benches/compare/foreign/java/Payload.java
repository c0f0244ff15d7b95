import java.util.concurrent.atomic.AtomicLong;

/** A small payload, and a count of the timers that fired, which is zero if all timers are far ahead. */
class Payload extends Task {
    private static final AtomicLong FIRED = new AtomicLong();
    private static final AtomicLong SUM = new AtomicLong();

    private final long number;

    Payload(long number) {
        this.number = number;
    }

    @Override
    public final void run() {
        FIRED.incrementAndGet();
        SUM.addAndGet(number);
    }

    static void expectNoneFired() {
        Broken.unlessEqual(FIRED.get(), 0, "timers that fired, though far ahead");
    }
}
