import java.util.function.Supplier;

final class Pair implements Workload {
    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        int count = of.count("timers");
        Outcome outcome = new Outcome();
        Pairs.warmUp(contestant);
        try (Timers timers = contestant.get()) {
            Pending.schedule(timers, count, new Chance(count));
            for (int threads : of.counts("threads")) {
                outcome.number("t" + threads, Pairs.measure(timers, threads, 0, of.nanos("time_ms"), of.number("settle_ms")));
            }
            Pending.expect(timers, count);
        }
        return outcome;
    }
}
