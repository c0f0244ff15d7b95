import java.util.function.Supplier;

final class Burst implements Workload {
    private static final double MS = 1e6;
    private static final int WARM_UP_TIMERS = 20_000;

    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        Window.warmUp(contestant, new long[WARM_UP_TIMERS]);
        try (Timers timers = contestant.get()) {
            Pending.settle(timers, of.number("settle_ms", 0));
            Window window = Window.run(timers, new long[of.count("timers")], of.nanos("lead_ms"));
            Quantiles all = new Quantiles(window.lateness);
            return new Outcome()
                    .number("early", window.early())
                    .number("p50", all.at(0.5, MS))
                    .number("last", all.at(1, MS))
                    .number("cpu", window.cpuSeconds)
                    .number("insert", window.insertNanos);
        }
    }
}
