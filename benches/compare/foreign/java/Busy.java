import java.util.function.Supplier;

/** Timers that come due while threads of the process compute. */
final class Busy implements Workload {
    private volatile boolean done;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        long[] offsets = Expiry.offsets(of.count("timers"), of.nanos("time_ms"));
        Expiry.warmUp(contestant);
        try (Timers timers = contestant.get()) {
            Pending.settle(timers, of.number("settle_ms", 0));
            burn(of.counts("threads")[0]);
            Window window = Window.run(timers, offsets, of.nanos("lead_ms"));
            return Expiry.figures(window, new Quantiles(window.lateness));
        } finally {
            done = true;
        }
    }

    private void burn(int threads) {
        for (int at = 0; at < threads; at++) {
            Thread burner = new Thread(() -> {
                while (!done) {
                    Thread.onSpinWait();
                }
            });
            burner.setDaemon(true);
            burner.start();
        }
    }
}
