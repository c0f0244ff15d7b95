/** Timers that are pending while another operation is measured. */
final class Pending {
    private static final long PATIENCE_MILLIS = 30_000;

    private Pending() {}

    static void schedule(Timers timers, int count, Chance chance) {
        schedule(timers, count, chance, 0);
    }

    /** The time that is added to all delays. */
    static void schedule(Timers timers, int count, Chance chance, long further) {
        for (int at = 0; at < count; at++) {
            timers.schedule(chance.farDelay() + further, new Payload(at));
        }
    }

    /**
     * Waits until all timers are in their places, moves long-lived objects to the old generation, and collects the earlier
     * garbage.
     */
    static void settle(Timers timers, long millis) {
        timers.settle();
        System.gc();
        Machine.sleep(millis);
        timers.settle();
    }

    /** Waits for cancels that the timer's thread has not seen yet. Checks that no counted timer has fired. */
    static void expect(Timers timers, long count) {
        for (long waited = 0; timers.pending() != count && waited < PATIENCE_MILLIS; waited++) {
            Payload.expectNoneFired();
            Machine.sleep(1);
        }
        Payload.expectNoneFired();
        Broken.unlessEqual(timers.pending(), count, "pending timers");
    }
}
