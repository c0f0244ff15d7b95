/** Timers that pend while something else is measured. */
final class Pending {
    private static final long PATIENCE_MILLIS = 30_000;

    private Pending() {}

    static void schedule(Timers timers, int count, Chance chance) {
        schedule(timers, count, chance, 0);
    }

    /** All of them so much further ahead. */
    static void schedule(Timers timers, int count, Chance chance, long further) {
        for (int at = 0; at < count; at++) {
            timers.schedule(chance.farDelay() + further, new Payload(at));
        }
    }

    /** Everything in its place, what lives long in the old generation, and no garbage of before. */
    static void settle(Timers timers, long millis) {
        timers.settle();
        System.gc();
        Machine.sleep(millis);
        timers.settle();
    }

    /** Waits for cancels that the timer's thread has still to see; no counted timer may have fired. */
    static void expect(Timers timers, long count) {
        for (long waited = 0; timers.pending() != count && waited < PATIENCE_MILLIS; waited++) {
            Payload.expectNoneFired();
            Machine.sleep(1);
        }
        Payload.expectNoneFired();
        Broken.unlessEqual(timers.pending(), count, "pending timers");
    }
}
