import java.util.function.Supplier;

/** The virtual machine's own threads are in the figures, as they are in a service's. */
final class Idle implements Workload {
    @Override
    public Outcome run(Case of, Supplier<Timers> contestant) {
        int count = of.count("timers");
        try (Timers timers = contestant.get()) {
            Memory.fill(timers, count);
            Pending.settle(timers, of.number("settle_ms", 0));
            // A read beforehand, so that both reads cost the same.
            Machine.switches();
            long switches = Machine.switches();
            long cpu = Machine.cpuNanos();
            Machine.sleep(of.number("time_ms"));
            double cpuMillis = (Machine.cpuNanos() - cpu) / 1e6;
            double switched = Machine.switches() - switches;
            Pending.expect(timers, count);
            return new Outcome().number("cpu_ms", cpuMillis).number("switches", switched);
        }
    }
}
