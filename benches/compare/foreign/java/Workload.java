import java.util.function.Supplier;

interface Workload {
    /** Runs a case. The contestant is a factory, as most workloads warm up on an instance of their own. */
    Outcome run(Case of, Supplier<Timers> contestant);
}
